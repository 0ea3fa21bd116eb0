/* SPDX-License-Identifier: Apache-2.0
 * Help texts from the tables: 80 columns for a terminal, Markdown for docs/cli.md. */
#include "cli/help.h"

#include <string.h>

#include "base/check.h"
#include "cli/command.h"
#include "kvtile/version.h"

enum { COLUMNS = 80, NAMES_WIDTH = 26, TEXT_MAX = 1 << 16 };

static const char intro[] = "Runs and measures language models (GGUF files) on a low-bit key/value cache.";
static const char notes[] =
    "A cache is written as its codecs, one for keys and values or one each: --kv affine4g64, --kv "
    "affine8g64,affine4g64. 'kvtile version' lists the codecs.\n\n"
    "Every option can also be set by a variable of the environment, --kv-memory by KVTILE_KV_MEMORY, and in a file: the one that "
    "KVTILE_CONFIG names, or kvtile/config in $XDG_CONFIG_HOME or in ~/.config, with lines such as 'threads = 4' for every command "
    "that has the option, and below '[serve]' for that one. The command line goes before the environment, that before the "
    "file; an option that is only on or off takes yes or no there.\n\n"
    "The exit status is 0 when all went well, 1 after a failure, 2 after wrong usage and 130 when Ctrl-C ended the work.";
static const char *const examples[] = {
    "kvtile run models/plain.gguf -p \"The old house\" -n 64 --kv affine4g64",
    "kvtile inspect models/plain.gguf",
    "kvtile fidelity models/biased.gguf --self 2048 --kv affine8 --kv affine4",
};

/* Adds text wrapped at COLUMNS with each line after `indent` blanks; the first line continues at column `at`. */
static enum kvt_status add_wrapped(struct kvt_buf *out, const char *text, int indent, int at) {
    int column = at;
    bool line_is_empty = true;
    for (const char *p = text; *p;) {
        if (*p == '\n') {
            KVT_TRY(kvt_buf_add(out, "\n", 1));
            column = 0;
            line_is_empty = true;
            p++;
            continue;
        }
        const int word = (int)strcspn(p, " \n");
        if (!line_is_empty && column + 1 + word > COLUMNS) {
            KVT_TRY(kvt_buf_add(out, "\n", 1));
            column = 0;
            line_is_empty = true;
        }
        const int blanks = !line_is_empty ? 1 : KVT_MAX(indent - column, 0);
        KVT_TRY(kvt_buf_addf(out, "%*s%.*s", blanks, "", word, p));
        column += blanks + word;
        line_is_empty = false;
        p += word;
        p += strspn(p, " ");
    }
    return kvt_buf_add(out, "\n", 1);
}

/* The right column, beside names that end at `column`, or below them where they are too long. */
static enum kvt_status add_meaning(struct kvt_buf *out, const char *text, int column) {
    if (column + 2 <= NAMES_WIDTH) return add_wrapped(out, text, NAMES_WIDTH, column);
    KVT_TRY(kvt_buf_add(out, "\n", 1));
    return add_wrapped(out, text, NAMES_WIDTH, 0);
}

/* "-n, --max-tokens N"; without a short name the long one keeps its column. */
static enum kvt_status add_names(struct kvt_buf *out, const struct kvt_opt *o, const char *no_brief) {
    if (o->kind == KVT_OPT_ARGS) return kvt_buf_addf(out, "[%s...]", o->name);
    if (o->kind == KVT_OPT_ARG)
        return kvt_buf_addf(out, "%s%s%s", o->optional ? "[" : "", o->name, o->optional ? "]" : "");
    if (o->brief)
        KVT_TRY(kvt_buf_addf(out, "-%s, ", o->brief));
    else
        KVT_TRY(kvt_buf_addf(out, "%s", no_brief));
    KVT_TRY(kvt_buf_addf(out, "--%s", o->name));
    return o->kind == KVT_OPT_FLAG ? KVT_OK : kvt_buf_addf(out, " %s", o->value);
}

/* The help sentence with what the table knows besides; `field` holds the default. */
enum kvt_status kvt_help_meaning(struct kvt_buf *out, const struct kvt_opt *o, const void *field) {
    KVT_TRY(kvt_buf_addf(out, "%s", o->help));
    const double number = o->kind == KVT_OPT_INT ? (double)*(const int64_t *)field : 0;
    if (number != 0 && number >= o->min && number <= o->max) /* outside: nothing was said */
        KVT_TRY(kvt_buf_addf(out, " (default %lld)", (long long)*(const int64_t *)field));
    if (o->kind == KVT_OPT_FLOAT && *(const double *)field != 0)
        KVT_TRY(kvt_buf_addf(out, " (default %g)", *(const double *)field));
    if (o->kind == KVT_OPT_TEXT && *(const char *const *)field)
        KVT_TRY(kvt_buf_addf(out, " (default %s)", *(const char *const *)field));
    if (o->kind == KVT_OPT_TEXTS) KVT_TRY(kvt_buf_addf(out, " (may be repeated)"));
    if (!o->also) return KVT_OK;
    const char *separator = " (also ";
    for (const char *p = o->also; *p; p += strspn(p, " ")) {
        const int n = (int)strcspn(p, " ");
        KVT_TRY(kvt_buf_addf(out, "%s--%.*s", separator, n, p));
        separator = ", ";
        p += n;
    }
    return kvt_buf_addf(out, ")");
}

static enum kvt_status add_option(struct kvt_buf *out, struct kvt_buf *scratch, const struct kvt_opt *o,
                                  const void *field) {
    const size_t start = out->len;
    KVT_TRY(kvt_buf_addf(out, "  "));
    KVT_TRY(add_names(out, o, "    "));
    const int column = (int)(out->len - start);
    scratch->len = 0;
    KVT_TRY(kvt_help_meaning(scratch, o, field));
    return add_meaning(out, kvt_buf_text(scratch), column);
}

/* "run [OPTION]... MODEL" */
static enum kvt_status add_synopsis(struct kvt_buf *out, const struct kvt_command *c, bool with_options) {
    KVT_TRY(kvt_buf_addf(out, "%s", c->name));
    bool any_option = false;
    size_t at;
    const struct kvt_opt *o;
    for (size_t i = 0; (o = kvt_opt_at(c, i, &at)) != NULL; i++) any_option |= !o->hidden && o->kind > KVT_OPT_ARGS;
    if (with_options && any_option) KVT_TRY(kvt_buf_addf(out, " [OPTION]..."));
    for (size_t i = 0; (o = kvt_opt_at(c, i, &at)) != NULL; i++) {
        if ((o->kind != KVT_OPT_ARG && o->kind != KVT_OPT_ARGS) || o->hidden) continue;
        KVT_TRY(kvt_buf_addf(out, " "));
        KVT_TRY(add_names(out, o, ""));
    }
    return KVT_OK;
}

enum kvt_status kvt_help_synopsis(struct kvt_buf *out, const struct kvt_command *command) {
    return add_synopsis(out, command, true);
}

const char *kvt_help_notes(void) { return notes; }

static enum kvt_status add_commands(struct kvt_buf *out) {
    for (size_t i = 0; kvt_command_at(i); i++) {
        const size_t start = out->len;
        KVT_TRY(kvt_buf_addf(out, "  "));
        KVT_TRY(add_synopsis(out, kvt_command_at(i), false));
        KVT_TRY(add_meaning(out, kvt_command_at(i)->about, (int)(out->len - start)));
    }
    return KVT_OK;
}

enum kvt_status kvt_help_usage(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(out, "usage: kvtile COMMAND [OPTION]... [ARGUMENT]\n\n"));
    KVT_TRY(add_commands(out));
    return kvt_buf_addf(out, "\n'kvtile --help' says more, 'kvtile COMMAND --help' tells a command's options.\n");
}

enum kvt_status kvt_help_program(struct kvt_buf *out) {
    KVT_TRY(
        kvt_buf_addf(out, "kvtile %s\n%s\n\nusage: kvtile COMMAND [OPTION]... [ARGUMENT]\n\n", kvt_version(), intro));
    KVT_TRY(add_commands(out));
    KVT_TRY(kvt_buf_addf(out, "\n"));
    KVT_TRY(add_wrapped(out, notes, 0, 0));
    KVT_TRY(kvt_buf_addf(out, "\nExamples\n"));
    for (size_t i = 0; i < KVT_ARRAY_LEN(examples); i++) KVT_TRY(kvt_buf_addf(out, "  %s\n", examples[i]));
    return kvt_buf_addf(out, "\n'kvtile COMMAND --help' tells a command's options.\n");
}

/* The paragraphs of one command, in 80 columns. */
static enum kvt_status add_command(struct kvt_buf *out, struct kvt_buf *scratch, const struct kvt_command *c) {
    KVT_TRY(kvt_buf_addf(out, "usage: kvtile "));
    KVT_TRY(add_synopsis(out, c, true));
    KVT_TRY(kvt_buf_addf(out, "\n\n"));
    KVT_TRY(add_wrapped(out, c->text, 0, 0));
    bool first = true;
    size_t at;
    const struct kvt_opt *o;
    for (size_t i = 0; (o = kvt_opt_at(c, i, &at)) != NULL; i++) {
        if (o->hidden) continue;
        if (first && o->kind != KVT_OPT_GROUP) KVT_TRY(kvt_buf_addf(out, "\n"));
        first = false;
        if (o->kind == KVT_OPT_GROUP)
            KVT_TRY(kvt_buf_addf(out, "\n%s\n", o->name));
        else
            KVT_TRY(add_option(out, scratch, o, (const char *)c->defaults + at));
    }
    if (!c->examples) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "\nExamples\n"));
    for (const char *p = c->examples; *p; p += strspn(p, "\n")) {
        const int n = (int)strcspn(p, "\n");
        KVT_TRY(kvt_buf_addf(out, "  %.*s\n", n, p));
        p += n;
    }
    return KVT_OK;
}

enum kvt_status kvt_help_command(struct kvt_buf *out, const struct kvt_command *command) {
    struct kvt_buf scratch;
    kvt_buf_init(&scratch, NULL, TEXT_MAX);
    const enum kvt_status status = add_command(out, &scratch, command);
    kvt_buf_finish(&scratch);
    return status;
}

/* Option names as code, meanings as text: a definition list in a table. */
static enum kvt_status add_markdown(struct kvt_buf *out, const struct kvt_command *c) {
    KVT_TRY(kvt_buf_addf(out, "\n## kvtile %s\n\n`kvtile ", c->name));
    KVT_TRY(add_synopsis(out, c, true));
    KVT_TRY(kvt_buf_addf(out, "`\n\n%s\n", c->text));
    bool in_table = false;
    size_t at;
    const struct kvt_opt *o;
    for (size_t i = 0; (o = kvt_opt_at(c, i, &at)) != NULL; i++) {
        if (o->hidden) continue;
        if (o->kind == KVT_OPT_GROUP) {
            KVT_TRY(kvt_buf_addf(out, "\n### %s\n", o->name));
            in_table = false;
            continue;
        }
        if (!in_table) KVT_TRY(kvt_buf_addf(out, "\n| option | meaning |\n|---|---|\n"));
        in_table = true;
        KVT_TRY(kvt_buf_addf(out, "| `"));
        KVT_TRY(add_names(out, o, ""));
        KVT_TRY(kvt_buf_addf(out, "` | "));
        KVT_TRY(kvt_help_meaning(out, o, (const char *)c->defaults + at));
        KVT_TRY(kvt_buf_addf(out, " |\n"));
    }
    return c->examples ? kvt_buf_addf(out, "\n```\n%s\n```\n", c->examples) : KVT_OK;
}

enum kvt_status kvt_help_markdown(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(out,
                         "# kvtile\n\n<!-- Written by `kvtile help --markdown`; do not edit. -->\n\n%s\n\n%s\n\n"
                         "| command | what it does |\n|---|---|\n",
                         intro, notes));
    for (size_t i = 0; kvt_command_at(i); i++) {
        const struct kvt_command *c = kvt_command_at(i);
        KVT_TRY(kvt_buf_addf(out, "| [`%s`](#kvtile-%s) | %s |\n", c->name, c->name, c->about));
    }
    for (size_t i = 0; kvt_command_at(i); i++) KVT_TRY(add_markdown(out, kvt_command_at(i)));
    return KVT_OK;
}
