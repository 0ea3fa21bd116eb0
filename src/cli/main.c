/* SPDX-License-Identifier: Apache-2.0
 * The program: the table of commands, and what becomes of their failures. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/opt_source.h"
#include "cli/term.h"

enum { EXIT_USAGE = 2, EXIT_INTERRUPTED = 130, HELP_MAX = 1 << 18 };

static const struct kvt_command *const commands[] = {
    &kvt_command_run,   &kvt_command_plan,    &kvt_command_chat,     &kvt_command_serve, &kvt_command_inspect,
    &kvt_command_cache, &kvt_command_codecs,  &kvt_command_fidelity, &kvt_command_sweep, &kvt_command_needle,
    &kvt_command_bench, &kvt_command_version, &kvt_command_help,
};

const struct kvt_command *kvt_command_at(size_t i) { return i < KVT_ARRAY_LEN(commands) ? commands[i] : NULL; }

enum kvt_status kvt_command_find(const struct kvt_command **out, const char *name, struct kvt_error *err) {
    const struct kvt_command *nearest = NULL;
    int least = INT_MAX;
    for (size_t i = 0; i < KVT_ARRAY_LEN(commands); i++) {
        const int distance = kvt_word_distance(name, commands[i]->name);
        if (distance == 0) {
            *out = commands[i];
            return KVT_OK;
        }
        if (distance < least) {
            least = distance;
            nearest = commands[i];
        }
    }
    if (nearest && kvt_word_is_near(name, least))
        return kvt_fail(err, KVT_ERR_ARG, "there is no command '%s'; did you mean '%s'? ('kvtile --help' lists them)",
                        name, nearest->name);
    return kvt_fail(err, KVT_ERR_ARG, "there is no command '%s'; 'kvtile --help' lists those there are", name);
}

/* Prints one of the help texts. */
static enum kvt_status print_help(const struct kvt_command *command, struct kvt_error *err) {
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, HELP_MAX);
    enum kvt_status status = command ? kvt_help_command(&text, command) : kvt_help_program(&text);
    if (status != KVT_OK)
        kvt_fail(err, status, "no memory for the help");
    else
        status = kvt_term_write(text.data, text.len, err);
    kvt_buf_finish(&text);
    return status;
}

/* A variable with a typing error would otherwise have no effect and say nothing. */
static void warn_of_unknown_variables(void) {
    char name[KVT_OPT_VARIABLE_MAX];
    for (size_t at = 0; kvt_opt_source_unknown(name, &at);)
        fprintf(stderr, "kvtile: the variable %s is no option's; 'kvtile --help' says how they are named\n", name);
}

static enum kvt_status run_with(const struct kvt_command *command, void *settings, struct kvt_opt_sources *sources,
                                int argc, char *const *argv, struct kvt_error *err) {
    bool wants_help = false;
    KVT_TRY(kvt_opt_sources_read(sources, command, err));
    KVT_TRY(kvt_opt_parse(command, settings, sources->given, sources->n, argc, argv, &wants_help, err));
    if (wants_help) return print_help(command, err);
    warn_of_unknown_variables();
    return command->run(settings, err);
}

static enum kvt_status run_command(const struct kvt_command *command, int argc, char *const *argv,
                                   struct kvt_error *err) {
    void *settings = kvt_take(&kvt_allocator_libc, command->settings_bytes, 1);
    struct kvt_opt_sources *sources = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *sources);
    enum kvt_status status = KVT_ERR_NOMEM;
    if (!settings || !sources) {
        kvt_fail(err, status, "no memory for the settings of %s", command->name);
    } else {
        memcpy(settings, command->defaults, command->settings_bytes);
        status = run_with(command, settings, sources, argc, argv, err);
        kvt_opt_sources_finish(sources);
    }
    kvt_give(&kvt_allocator_libc, sources, 1, sizeof *sources);
    kvt_give(&kvt_allocator_libc, settings, command->settings_bytes, 1);
    return status;
}

static enum kvt_status run_program(int argc, char *const *argv, struct kvt_error *err) {
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return print_help(NULL, err);
    if (strcmp(word, "--version") == 0) word = "version";
    const struct kvt_command *command = NULL;
    KVT_TRY(kvt_command_find(&command, word, err));
    return run_command(command, argc - 2, argv + 2, err);
}

static int print_usage(void) {
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, HELP_MAX);
    if (kvt_help_usage(&text) == KVT_OK) fputs(kvt_buf_text(&text), stderr);
    kvt_buf_finish(&text);
    return EXIT_USAGE;
}

/* Ends the process without the libraries' own clean-up, which our leak checks need and users do not: OpenBLAS waits there
 * for its threads, and one that finds no memory for its buffer never ends. */
static int end(int status) {
#if !defined(KVT_ASSERTS)
    fflush(NULL);
    quick_exit(status);
#endif
    return status;
}

int main(int argc, char **argv) {
    if (argc < 2) return end(print_usage());
    kvt_term_ignore_broken_pipes();
    kvt_term_map_large_blocks();
    struct kvt_error err = {.code = KVT_OK};
    switch (run_program(argc, argv, &err)) {
    case KVT_OK: return end(0);
    case KVT_ERR_CANCELLED: return end(EXIT_INTERRUPTED);
    case KVT_ERR_ARG: kvt_term_error(err.text); return end(EXIT_USAGE);
    default:
        if (err.text[0]) kvt_term_error(err.text);
        return end(1);
    }
}
