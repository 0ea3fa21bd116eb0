/* SPDX-License-Identifier: Apache-2.0
 * Manual pages from the tables of commands and options. */
#include <ctype.h>
#include <string.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/pages.h"
#include "kvtile/version.h"

/* Text as troff reads it: no line of it begins with a dot or an apostrophe, and a '-' is one. */
static enum kvt_status add_some(struct kvt_buf *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const bool first = i == 0 || text[i - 1] == '\n';
        if (first && (text[i] == '.' || text[i] == '\'')) KVT_TRY(kvt_buf_add(out, "\\&", 2));
        if (text[i] == '\\')
            KVT_TRY(kvt_buf_add(out, "\\e", 2));
        else if (text[i] == '-')
            KVT_TRY(kvt_buf_add(out, "\\-", 2));
        else
            KVT_TRY(kvt_buf_add(out, text + i, 1));
    }
    return KVT_OK;
}

static enum kvt_status add_text(struct kvt_buf *out, const char *text) { return add_some(out, text, strlen(text)); }

/* Paragraphs, '\n' between. */
static enum kvt_status add_paragraphs(struct kvt_buf *out, const char *text) {
    for (const char *p = text + strspn(text, "\n"); *p; p += strspn(p, "\n")) {
        const size_t n = strcspn(p, "\n");
        KVT_TRY(add_some(out, p, n));
        p += n;
        KVT_TRY(kvt_buf_addf(out, p[strspn(p, "\n")] ? "\n.PP\n" : "\n"));
    }
    return KVT_OK;
}

static enum kvt_status add_head(struct kvt_buf *out, const char *name, const char *about) {
    KVT_TRY(kvt_buf_addf(out, ".\\\" Written by 'kvtile help --man'; do not edit.\n.TH "));
    for (const char *p = name; *p; p++) {
        const char upper = (char)toupper((unsigned char)*p);
        KVT_TRY(add_some(out, &upper, 1));
    }
    KVT_TRY(kvt_buf_addf(out, " 1 \"\" \"kvtile %s\" \"kvtile\"\n.SH NAME\n", kvt_version()));
    KVT_TRY(add_text(out, name));
    KVT_TRY(kvt_buf_addf(out, " \\- "));
    KVT_TRY(add_text(out, about));
    return kvt_buf_addf(out, "\n");
}

/* ".TP" and the names in bold. */
static enum kvt_status add_option(struct kvt_buf *out, const struct kvt_opt *o, const void *field) {
    struct kvt_buf meaning;
    KVT_TRY(kvt_buf_addf(out, ".TP\n\\fB"));
    if (o->kind == KVT_OPT_ARG || o->kind == KVT_OPT_ARGS) {
        KVT_TRY(add_text(out, o->name));
    } else {
        if (o->brief) KVT_TRY(kvt_buf_addf(out, "\\-%s\\fR, \\fB", o->brief));
        KVT_TRY(add_text(out, "--"));
        KVT_TRY(add_text(out, o->name));
    }
    KVT_TRY(kvt_buf_addf(out, "\\fR"));
    if (o->value) KVT_TRY(kvt_buf_addf(out, " \\fI%s\\fR", o->value));
    KVT_TRY(kvt_buf_addf(out, "\n"));
    kvt_buf_init(&meaning, NULL, 1 << 14);
    enum kvt_status status = kvt_help_meaning(&meaning, o, field);
    if (status == KVT_OK) status = add_text(out, kvt_buf_text(&meaning));
    kvt_buf_finish(&meaning);
    return status == KVT_OK ? kvt_buf_addf(out, "\n") : status;
}

static enum kvt_status add_options(struct kvt_buf *out, const struct kvt_command *c) {
    size_t at;
    const struct kvt_opt *o;
    KVT_TRY(kvt_buf_addf(out, ".SH OPTIONS\n"));
    for (size_t i = 0; (o = kvt_opt_at(c, i, &at)) != NULL; i++) {
        if (o->hidden) continue;
        if (o->kind != KVT_OPT_GROUP) {
            KVT_TRY(add_option(out, o, (const char *)c->defaults + at));
            continue;
        }
        KVT_TRY(kvt_buf_addf(out, ".SS "));
        KVT_TRY(add_text(out, o->name));
        KVT_TRY(kvt_buf_addf(out, "\n"));
    }
    return KVT_OK;
}

static enum kvt_status add_examples(struct kvt_buf *out, const char *examples) {
    KVT_TRY(kvt_buf_addf(out, ".SH EXAMPLES\n.nf\n"));
    KVT_TRY(add_text(out, examples));
    return kvt_buf_addf(out, "\n.fi\n");
}

static enum kvt_status command_page(struct kvt_buf *out, const struct kvt_command *c) {
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, 1 << 12);
    enum kvt_status status;
    KVT_TRY_OUT(kvt_buf_addf(&text, "kvtile-%s", c->name));
    KVT_TRY_OUT(add_head(out, kvt_buf_text(&text), c->about));
    text.len = 0;
    KVT_TRY_OUT(kvt_help_synopsis(&text, c));
    KVT_TRY_OUT(kvt_buf_addf(out, ".SH SYNOPSIS\n\\fBkvtile\\fR "));
    KVT_TRY_OUT(add_text(out, kvt_buf_text(&text)));
    KVT_TRY_OUT(kvt_buf_addf(out, "\n.SH DESCRIPTION\n"));
    KVT_TRY_OUT(add_paragraphs(out, c->text));
    KVT_TRY_OUT(add_options(out, c));
    if (c->examples) KVT_TRY_OUT(add_examples(out, c->examples));
    KVT_TRY_OUT(kvt_buf_addf(out, ".SH SEE ALSO\n.BR kvtile (1)\n"));
out:
    kvt_buf_finish(&text);
    return status;
}

static enum kvt_status program_page(struct kvt_buf *out) {
    KVT_TRY(add_head(out, "kvtile", "language models on a low-bit key/value cache"));
    KVT_TRY(kvt_buf_addf(out, ".SH SYNOPSIS\n\\fBkvtile\\fR COMMAND [OPTION]... [ARGUMENT]\n.SH DESCRIPTION\n"));
    KVT_TRY(add_paragraphs(out, kvt_help_notes()));
    KVT_TRY(kvt_buf_addf(out, ".SH COMMANDS\n"));
    for (size_t i = 0; kvt_command_at(i); i++) {
        KVT_TRY(kvt_buf_addf(out, ".TP\n.BR kvtile\\-%s (1)\n", kvt_command_at(i)->name));
        KVT_TRY(add_text(out, kvt_command_at(i)->about));
        KVT_TRY(kvt_buf_addf(out, "\n"));
    }
    return KVT_OK;
}

enum kvt_status kvt_man_page(struct kvt_buf *out, const struct kvt_command *command) {
    return command ? command_page(out, command) : program_page(out);
}
