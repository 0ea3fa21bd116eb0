/* SPDX-License-Identifier: Apache-2.0
 *
 * Option tables. A command's options, arguments and their help are one table; parsing, help, docs/cli.md (and whatever else
 * lists them) read it. Values land in the command's settings struct, which starts as a copy of its defaults.
 */
#ifndef CLI_OPT_H
#define CLI_OPT_H

#include "base/buf.h"

enum kvt_opt_kind {
    KVT_OPT_GROUP, /* a heading of the help; name is its text */
    KVT_OPT_ARG,   /* const char *: an argument without a dash, in table order; needed unless `optional` */
    KVT_OPT_ARGS,  /* struct kvt_opt_texts: all arguments from here on; never needed */
    KVT_OPT_FLAG,  /* bool */
    KVT_OPT_INT,   /* int64_t in [min, max] */
    KVT_OPT_FLOAT, /* double in [min, max] */
    KVT_OPT_TEXT,  /* const char *, borrowed from argv */
    KVT_OPT_TEXTS, /* struct kvt_opt_texts: may be given again and again */
    KVT_OPT_BYTES  /* uint64_t: "300000", "512M", "1.5G"; K, M, G, T are powers of 1024 */
};

enum { KVT_OPT_TEXTS_MAX = 64, KVT_OPTIONS_MAX = 64 };

struct kvt_opt_texts {
    const char *items[KVT_OPT_TEXTS_MAX];
    int n;
};

struct kvt_opt {
    enum kvt_opt_kind kind;
    const char *name;     /* long name without its dashes; of an ARG what the help calls it ("MODEL") */
    const char *brief;    /* short name without its dash, usually one letter; NULL: none */
    const char *also;     /* other long names, blank between; NULL: none */
    const char *value;    /* what the help calls the value: "N", "FILE" */
    const char *words;    /* values that shells offer, blank between; NULL: by its kind of value (complete.c) */
    const char *help;     /* what it does; the default is added where it is not 0, false, NULL or out of range */
    size_t at;            /* offsetof(struct of settings, field) */
    double min, max;      /* of INT and FLOAT */
    const char *not_with; /* long names that cannot be given together with it, blank between */
    const char *needs;    /* long names of which one must be given with it */
    bool optional;        /* ARG */
    bool hidden;          /* not in the help */
};

/* Options that several commands share: their rows' `at` count from the field at `at` of a command's settings. */
struct kvt_opt_shared {
    const struct kvt_opt *options;
    size_t n_options;
    size_t at;
};

/* One command of the program: the row of the table in main.c. */
struct kvt_command {
    const char *name;
    const char *about;    /* one line for the list of commands, without a full stop */
    const char *text;     /* what the help says before the options: paragraphs, '\n' between; wrapped when printed */
    const char *examples; /* one a line, or NULL */
    const struct kvt_opt *options;
    size_t n_options;
    const struct kvt_opt_shared *shared; /* after the command's own; with them at most KVT_OPTIONS_MAX */
    size_t n_shared;
    const void *defaults;
    size_t settings_bytes;
    /* Does the work with the parsed settings. A failure's sentence is printed by main: ARG ends the program with status 2,
     * CANCELLED with 130, every other failure with 1; no sentence is printed for CANCELLED and where err->text is empty. */
    enum kvt_status (*run)(const void *settings, struct kvt_error *err);
};

/* A value from elsewhere than the command line. */
enum kvt_opt_source { KVT_OPT_DEFAULT, KVT_OPT_FILE, KVT_OPT_ENVIRONMENT, KVT_OPT_COMMAND_LINE }; /* weakest first */
struct kvt_opt_given {
    enum kvt_opt_source source;
    const char *name;  /* an option's long name */
    const char *value; /* outlives the settings; of a FLAG: yes or no, true or false, on or off, 1 or 0 */
    const char *from;  /* what a sentence calls it: "KVTILE_THREADS" */
};

/* Option i of a command, its own and then the shared ones; NULL past the end. *out_at is its field's offset in the
 * settings. */
const struct kvt_opt *kvt_opt_at(const struct kvt_command *command, size_t i, size_t *out_at);

/* Takes n values from elsewhere, weakest first, and then reads argv[0 .. argc) (what follows the command's name) into settings, which holds the defaults. Options and arguments
 * mix; "--name=value", "--name value", "-n value", "-nvalue"; "--" ends the options. The last of a repeated option counts.
 * -h or --help: *out_help is true and the rest is not looked at. A stronger source replaces what a weaker one says, lists too, and an
 * option that cannot be with it or lacks what it needs; within one source that is a mistake. ARG: the sentence names what is
 * wrong, and for an unknown option the nearest one. */
KVT_MUST_CHECK enum kvt_status kvt_opt_parse(const struct kvt_command *command, void *settings,
                                             const struct kvt_opt_given *given, int n, int argc, char *const *argv,
                                             bool *out_help, struct kvt_error *err);

/* Whether a command has an option of that long name, one of its other names too. */
bool kvt_opt_has(const struct kvt_command *command, const char *name);
/* "KVTILE_KV_MEMORY" of "kv-memory". */
enum { KVT_OPT_VARIABLE_MAX = 64 };
void kvt_opt_variable(char variable[KVT_OPT_VARIABLE_MAX], const char *name);

/* Reads the value of option `name`, whole numbers with commas between ("1,2,4"), into out: at most `most`, each in [min, max]. ARG. */
KVT_MUST_CHECK enum kvt_status kvt_opt_list(int *out, int *n, int most, const char *name, const char *text, int min,
                                            int max, struct kvt_error *err);

/* How many single edits (insert, delete, replace, swap of neighbours) turn one word into the other. Words longer than 63
 * count as far away. */
int kvt_word_distance(const char *a, const char *b);
/* Whether that is near enough to say "did you mean". */
bool kvt_word_is_near(const char *typed, int distance);

#endif
