/* SPDX-License-Identifier: Apache-2.0
 * Parsing of option tables. */
#include "cli/opt.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"

enum { WORD_MAX = 63 };

int kvt_word_distance(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX) return INT_MAX;
    int row[3][WORD_MAX + 1]; /* of a's letters i - 2, i - 1 and i */
    for (size_t j = 0; j <= m; j++) row[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        const int *before = row[(i + 1) % 3], *last = row[(i + 2) % 3];
        int *now = row[i % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const bool same = a[i - 1] == b[j - 1];
            int best = last[j - 1] + !same;
            best = KVT_MIN(best, last[j] + 1);
            best = KVT_MIN(best, now[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) best = KVT_MIN(best, before[j - 2] + 1);
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

bool kvt_word_is_near(const char *typed, int distance) { return distance <= 1 + (int)strlen(typed) / 3; }

/* The next word of a list with blanks between; false at its end. */
static bool next_word(const char **list, char word[WORD_MAX + 1]) {
    if (!*list) return false;
    const char *p = *list + strspn(*list, " ");
    const size_t n = strcspn(p, " ");
    if (n == 0 || n > WORD_MAX) return false;
    memcpy(word, p, n);
    word[n] = 0;
    *list = p + n;
    return true;
}

/* ---- the table as the parser sees it ---------------------------------------------------------------------------------- */

struct parser {
    const struct kvt_command *command;
    int n;
    const struct kvt_opt *rows[KVT_OPTIONS_MAX];
    void *fields[KVT_OPTIONS_MAX];
    const void *defaults[KVT_OPTIONS_MAX]; /* of the fields; NULL: zero */
    enum kvt_opt_source given[KVT_OPTIONS_MAX];
    const char *from[KVT_OPTIONS_MAX]; /* what a sentence calls it, where it is not from the command line */
};

const struct kvt_opt *kvt_opt_at(const struct kvt_command *command, size_t i, size_t *out_at) {
    const struct kvt_opt_shared own = {command->options, command->n_options, 0}, *table = &own;
    for (size_t t = 0; i >= table->n_options; t++) {
        if (t == command->n_shared) return NULL;
        i -= table->n_options;
        table = &command->shared[t];
    }
    *out_at = table->at + table->options[i].at;
    return &table->options[i];
}

static void parser_init(struct parser *p, const struct kvt_command *command, void *settings) {
    *p = (struct parser){.command = command};
    size_t at;
    for (const struct kvt_opt *o; (o = kvt_opt_at(command, (size_t)p->n, &at)) != NULL; p->n++) {
        KVT_ASSERT(p->n < KVT_OPTIONS_MAX);
        p->rows[p->n] = o;
        p->fields[p->n] = (char *)settings + at;
        p->defaults[p->n] = command->defaults ? (const char *)command->defaults + at : NULL;
    }
}

static bool is_option(const struct kvt_opt *o) {
    return o->kind != KVT_OPT_GROUP && o->kind != KVT_OPT_ARG && o->kind != KVT_OPT_ARGS;
}

static bool has_name(const struct kvt_opt *o, const char *name) {
    if (strcmp(o->name, name) == 0) return true;
    char word[WORD_MAX + 1];
    for (const char *list = o->also; next_word(&list, word);)
        if (strcmp(word, name) == 0) return true;
    return false;
}

/* These return a row's index, or -1. */
static int find_long(const struct parser *p, const char *name) {
    for (int i = 0; i < p->n; i++)
        if (is_option(p->rows[i]) && has_name(p->rows[i], name)) return i;
    return -1;
}

/* A short name, whole ("-n", "-ctk"), or else its first letter with the value attached ("-n64"). */
static int find_short(const struct parser *p, const char *name, const char **value) {
    int attached = -1;
    for (int i = 0; i < p->n; i++) {
        const struct kvt_opt *o = p->rows[i];
        if (!is_option(o) || !o->brief) continue;
        if (strcmp(o->brief, name) == 0) return i;
        if (o->kind != KVT_OPT_FLAG && !o->brief[1] && o->brief[0] == name[0]) attached = i;
    }
    if (attached >= 0) *value = name + 1;
    return attached;
}

static enum kvt_status unknown(const struct parser *p, const char *given, const char *name, struct kvt_error *err) {
    char nearest[WORD_MAX + 1] = "";
    int least = INT_MAX;
    for (int i = 0; i < p->n; i++) {
        if (!is_option(p->rows[i]) || p->rows[i]->hidden) continue;
        char word[WORD_MAX + 1];
        const char *own = p->rows[i]->name, *others = p->rows[i]->also;
        while (next_word(&own, word) || next_word(&others, word)) {
            const int distance = kvt_word_distance(name, word);
            if (distance >= least) continue;
            least = distance;
            memcpy(nearest, word, sizeof nearest);
        }
    }
    const char *command = p->command->name;
    if (least < INT_MAX && kvt_word_is_near(name, least))
        return kvt_fail(err, KVT_ERR_ARG, "%s has no option '%s'; did you mean --%s? ('kvtile %s --help' lists them)",
                        command, given, nearest, command);
    return kvt_fail(err, KVT_ERR_ARG, "%s has no option '%s'; 'kvtile %s --help' lists those it has", command, given,
                    command);
}

/* ---- values ----------------------------------------------------------------------------------------------------------- */

static bool read_bytes(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    if (end == text || errno != 0 || !isdigit((unsigned char)text[0])) return false;
    static const char units[] = "KMGT";
    double unit = 1;
    if (*end) {
        const char *u = strchr(units, toupper((unsigned char)*end));
        if (!u) return false;
        unit = (double)(UINT64_C(1) << (10 * (u - units + 1)));
        end++;
        if (*end == 'i') end++;
        if (toupper((unsigned char)*end) == 'B') end++;
    }
    if (*end || !(number * unit < 0x1p63)) return false;
    *out = (uint64_t)(number * unit);
    return true;
}

/* Puts the text of a value where it belongs. `given` is the option as the user wrote it. */
static enum kvt_status store(const struct kvt_opt *o, const char *given, const char *text, void *field,
                             struct kvt_error *err) {
    char *end;
    errno = 0;
    switch (o->kind) {
    case KVT_OPT_FLAG: *(bool *)field = true; return KVT_OK;
    case KVT_OPT_ARG:
    case KVT_OPT_TEXT: *(const char **)field = text; return KVT_OK;
    case KVT_OPT_ARGS:
    case KVT_OPT_TEXTS: {
        struct kvt_opt_texts *texts = field;
        if (texts->n == KVT_OPT_TEXTS_MAX)
            return kvt_fail(err, KVT_ERR_ARG, "%s was given more than %d times", given, KVT_OPT_TEXTS_MAX);
        texts->items[texts->n++] = text;
        return KVT_OK;
    }
    case KVT_OPT_INT: {
        const long long n = strtoll(text, &end, 10);
        if (end == text || *end || errno != 0 || (double)n < o->min || (double)n > o->max)
            return kvt_fail(err, KVT_ERR_ARG, "%s takes a whole number from %.0f to %.0f, not '%s'", given, o->min,
                            o->max, text);
        *(int64_t *)field = n;
        return KVT_OK;
    }
    case KVT_OPT_FLOAT: {
        const double x = strtod(text, &end);
        if (end == text || *end || !(x >= o->min && x <= o->max))
            return kvt_fail(err, KVT_ERR_ARG, "%s takes a number from %g to %g, not '%s'", given, o->min, o->max, text);
        *(double *)field = x;
        return KVT_OK;
    }
    case KVT_OPT_BYTES:
        if (!read_bytes(text, field))
            return kvt_fail(err, KVT_ERR_ARG, "%s takes a size such as 300000, 512M or 1.5G, not '%s'", given, text);
        return KVT_OK;
    case KVT_OPT_GROUP: break;
    }
    return KVT_OK;
}

enum kvt_status kvt_opt_list(int *out, int *n, int most, const char *name, const char *text, int min, int max,
                             struct kvt_error *err) {
    const char *at = text;
    for (*n = 0; *n < most; at++) {
        char *end;
        errno = 0;
        const long long value = strtoll(at, &end, 10);
        if (!isdigit((unsigned char)*at) || errno || value < min || value > max) break;
        out[(*n)++] = (int)value;
        at = end;
        if (!*at) return KVT_OK;
        if (*at != ',') break;
    }
    return kvt_fail(err, KVT_ERR_ARG, "--%s takes up to %d whole numbers from %d to %d with commas between, not '%s'",
                    name, most, min, max, text);
}

/* ---- the command line ------------------------------------------------------------------------------------------------- */

/* The first of the listed options that was given, or -1. */
static int first_given(const struct parser *p, const char *list) {
    char word[WORD_MAX + 1];
    while (next_word(&list, word)) {
        const int i = find_long(p, word);
        KVT_ASSERT(i >= 0);
        if (i >= 0 && p->given[i]) return i;
    }
    return -1;
}

/* Makes an option what it is by default. */
static void forget(struct parser *p, int i) {
    static const size_t bytes[] = {
        [KVT_OPT_ARG] = sizeof(const char *), [KVT_OPT_ARGS] = sizeof(struct kvt_opt_texts),
        [KVT_OPT_FLAG] = sizeof(bool),        [KVT_OPT_INT] = sizeof(int64_t),
        [KVT_OPT_FLOAT] = sizeof(double),     [KVT_OPT_TEXT] = sizeof(const char *),
        [KVT_OPT_BYTES] = sizeof(uint64_t),   [KVT_OPT_TEXTS] = sizeof(struct kvt_opt_texts)};
    const size_t n = bytes[p->rows[i]->kind];
    if (p->defaults[i])
        memcpy(p->fields[i], p->defaults[i], n);
    else
        memset(p->fields[i], 0, n);
    p->given[i] = KVT_OPT_DEFAULT;
}

/* "--name", or where the value is from. */
static const char *called(const struct parser *p, int i, char text[WORD_MAX + 3]) {
    if (p->from[i] && p->given[i] != KVT_OPT_COMMAND_LINE) return p->from[i];
    memcpy(text, "--", 2);
    memcpy(text + 2, p->rows[i]->name, KVT_MIN(strlen(p->rows[i]->name), (size_t)WORD_MAX) + 1);
    return text;
}

/* An option that cannot be with another: the weaker one of two goes. */
static enum kvt_status check_rivals(struct parser *p, int i, struct kvt_error *err) {
    for (int other; p->given[i] && (other = first_given(p, p->rows[i]->not_with)) >= 0;) {
        char name[WORD_MAX + 3], rival[WORD_MAX + 3];
        if (p->given[i] == p->given[other])
            return kvt_fail(err, KVT_ERR_ARG, "%s and %s cannot be given together", called(p, i, name),
                            called(p, other, rival));
        forget(p, p->given[i] < p->given[other] ? i : other);
    }
    return KVT_OK;
}

static enum kvt_status check_together(struct parser *p, struct kvt_error *err) {
    for (int i = 0; i < p->n; i++) {
        const struct kvt_opt *o = p->rows[i];
        if (o->kind == KVT_OPT_ARG && !o->optional && !p->given[i])
            return kvt_fail(err, KVT_ERR_ARG, "%s needs %s ('kvtile %s --help' explains)", p->command->name, o->name,
                            p->command->name);
        KVT_TRY(check_rivals(p, i, err));
    }
    for (int i = 0; i < p->n; i++) {
        const struct kvt_opt *o = p->rows[i];
        if (!p->given[i] || !o->needs || first_given(p, o->needs) >= 0) continue;
        if (p->given[i] == KVT_OPT_COMMAND_LINE)
            return kvt_fail(err, KVT_ERR_ARG, "--%s needs --%.*s", o->name, (int)strcspn(o->needs, " "), o->needs);
        forget(p, i);
    }
    return KVT_OK;
}

/* Marks an option as given: what a weaker source said of a list goes. */
static void mark(struct parser *p, int i, enum kvt_opt_source source, const char *from) {
    const enum kvt_opt_kind kind = p->rows[i]->kind;
    if (p->given[i] && p->given[i] < source && (kind == KVT_OPT_TEXTS || kind == KVT_OPT_ARGS)) forget(p, i);
    p->given[i] = source;
    p->from[i] = from;
}

/* An argument without a dash: the next ARG of the table, or ARGS. */
static enum kvt_status take_arg(struct parser *p, const char *word, struct kvt_error *err) {
    for (int i = 0; i < p->n; i++) {
        if (p->rows[i]->kind != KVT_OPT_ARGS && (p->rows[i]->kind != KVT_OPT_ARG || p->given[i])) continue;
        mark(p, i, KVT_OPT_COMMAND_LINE, NULL);
        return store(p->rows[i], p->rows[i]->name, word, p->fields[i], err);
    }
    return kvt_fail(err, KVT_ERR_ARG, "%s has no use for the argument '%s' ('kvtile %s --help' explains)",
                    p->command->name, word, p->command->name);
}

/* The option at argv[*at]; leaves *at at its last word. */
static enum kvt_status take_option(struct parser *p, int *at, int argc, char *const *argv, struct kvt_error *err) {
    const char *word = argv[*at], *value = NULL;
    const bool is_long = word[1] == '-';
    const size_t n = is_long ? strcspn(word, "=") : strlen(word); /* without the value */
    char name[WORD_MAX + 3] = "";
    memcpy(name, word, KVT_MIN(n, sizeof name - 1));
    if (word[n] == '=') value = word + n + 1;

    const int i = is_long ? find_long(p, name + 2) : find_short(p, word + 1, &value);
    if (i < 0) return unknown(p, name, name + (is_long ? 2 : 1), err);
    const struct kvt_opt *o = p->rows[i];
    if (!is_long && value) name[2] = 0;
    if (o->kind == KVT_OPT_FLAG) {
        if (value) return kvt_fail(err, KVT_ERR_ARG, "%s takes no value", name);
    } else if (!value) {
        if (*at + 1 == argc) return kvt_fail(err, KVT_ERR_ARG, "%s needs a value: %s %s", name, name, o->value);
        value = argv[++*at];
    }
    mark(p, i, KVT_OPT_COMMAND_LINE, NULL);
    return store(o, name, value, p->fields[i], err);
}

/* ---- other sources ---------------------------------------------------------------------------------------------------- */

static bool read_switch(const char *text, bool *out) {
    static const char *const words[] = {"0", "1", "no", "yes", "false", "true", "off", "on"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(words); i++)
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2;
            return true;
        }
    return false;
}

static enum kvt_status take_given(struct parser *p, const struct kvt_opt_given *given, struct kvt_error *err) {
    const int i = find_long(p, given->name);
    if (i < 0) return kvt_fail(err, KVT_ERR_ARG, "%s: %s has no such option", given->from, p->command->name);
    mark(p, i, given->source, given->from);
    if (p->rows[i]->kind != KVT_OPT_FLAG) return store(p->rows[i], given->from, given->value, p->fields[i], err);
    if (!read_switch(given->value, p->fields[i]))
        return kvt_fail(err, KVT_ERR_ARG, "%s takes yes or no, not '%.40s'", given->from, given->value);
    if (!*(bool *)p->fields[i]) p->given[i] = KVT_OPT_DEFAULT; /* said to be off: in nobody's way */
    return KVT_OK;
}

bool kvt_opt_has(const struct kvt_command *command, const char *name) {
    size_t at;
    const struct kvt_opt *o;
    for (size_t i = 0; (o = kvt_opt_at(command, i, &at)) != NULL; i++)
        if (is_option(o) && !o->hidden && has_name(o, name)) return true;
    return false;
}

void kvt_opt_variable(char variable[KVT_OPT_VARIABLE_MAX], const char *name) {
    const int n = snprintf(variable, KVT_OPT_VARIABLE_MAX, "KVTILE_%s", name);
    for (int i = 0; i < n && variable[i]; i++)
        variable[i] = variable[i] == '-' ? '_' : (char)toupper((unsigned char)variable[i]);
}

enum kvt_status kvt_opt_parse(const struct kvt_command *command, void *settings, const struct kvt_opt_given *given,
                              int n, int argc, char *const *argv, bool *out_help, struct kvt_error *err) {
    struct parser parser;
    parser_init(&parser, command, settings);
    for (int i = 0; i < n; i++) KVT_TRY(take_given(&parser, &given[i], err));
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!ended && strcmp(word, "--") == 0) {
            ended = true;
        } else if (!ended && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            *out_help = true;
            return KVT_OK;
        } else if (ended || word[0] != '-' || !word[1]) {
            KVT_TRY(take_arg(&parser, word, err));
        } else {
            KVT_TRY(take_option(&parser, &i, argc, argv, err));
        }
    }
    return check_together(&parser, err);
}
