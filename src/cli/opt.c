/* SPDX-License-Identifier: Apache-2.0
 * Parsing of option tables. */
#include "cli/opt.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

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

static bool is_option(const struct kvt_opt *o) { return o->kind != KVT_OPT_GROUP && o->kind != KVT_OPT_ARG; }

static bool has_name(const struct kvt_opt *o, const char *name) {
    if (strcmp(o->name, name) == 0) return true;
    char word[WORD_MAX + 1];
    for (const char *list = o->also; next_word(&list, word);)
        if (strcmp(word, name) == 0) return true;
    return false;
}

static const struct kvt_opt *find_long(const struct kvt_command *c, const char *name) {
    for (size_t i = 0; i < c->n_options; i++)
        if (is_option(&c->options[i]) && has_name(&c->options[i], name)) return &c->options[i];
    return NULL;
}

/* The option of a short name, whole ("-n", "-ctk"), or else of its first letter with the value attached ("-n64"). */
static const struct kvt_opt *find_short(const struct kvt_command *c, const char *name, const char **value) {
    const struct kvt_opt *attached = NULL;
    for (size_t i = 0; i < c->n_options; i++) {
        const struct kvt_opt *o = &c->options[i];
        if (!is_option(o) || !o->brief) continue;
        if (strcmp(o->brief, name) == 0) return o;
        if (o->kind != KVT_OPT_FLAG && !o->brief[1] && o->brief[0] == name[0]) attached = o;
    }
    if (attached) *value = name + 1;
    return attached;
}

static enum kvt_status unknown(const struct kvt_command *c, const char *given, const char *name,
                               struct kvt_error *err) {
    const char *nearest = NULL;
    int least = INT_MAX;
    for (size_t i = 0; i < c->n_options; i++) {
        const struct kvt_opt *o = &c->options[i];
        if (!is_option(o) || o->hidden) continue;
        int distance = kvt_word_distance(name, o->name);
        char word[WORD_MAX + 1];
        for (const char *list = o->also; next_word(&list, word);)
            distance = KVT_MIN(distance, kvt_word_distance(name, word));
        if (distance < least) {
            least = distance;
            nearest = o->name;
        }
    }
    if (nearest && kvt_word_is_near(name, least))
        return kvt_fail(err, KVT_ERR_ARG, "%s has no option '%s'; did you mean --%s? ('kvtile %s --help' lists them)",
                        c->name, given, nearest, c->name);
    return kvt_fail(err, KVT_ERR_ARG, "%s has no option '%s'; 'kvtile %s --help' lists those it has", c->name, given,
                    c->name);
}

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
static enum kvt_status store(const struct kvt_opt *o, const char *given, const char *text, void *settings,
                             struct kvt_error *err) {
    void *field = (char *)settings + o->at;
    char *end;
    errno = 0;
    switch (o->kind) {
    case KVT_OPT_FLAG: *(bool *)field = true; return KVT_OK;
    case KVT_OPT_ARG:
    case KVT_OPT_TEXT: *(const char **)field = text; return KVT_OK;
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

/* Whether one of the listed options was given; the first such in *out. */
static bool any_given(const struct kvt_command *c, uint64_t given, const char *list, const struct kvt_opt **out) {
    char word[WORD_MAX + 1];
    while (next_word(&list, word)) {
        const struct kvt_opt *o = find_long(c, word);
        KVT_ASSERT(o != NULL);
        if (o && given >> (o - c->options) & 1) {
            *out = o;
            return true;
        }
    }
    return false;
}

static enum kvt_status check_together(const struct kvt_command *c, uint64_t given, struct kvt_error *err) {
    for (size_t i = 0; i < c->n_options; i++) {
        const struct kvt_opt *o = &c->options[i], *other;
        if (o->kind == KVT_OPT_ARG && !o->optional && !(given >> i & 1))
            return kvt_fail(err, KVT_ERR_ARG, "%s needs %s ('kvtile %s --help' explains)", c->name, o->name, c->name);
        if (!(given >> i & 1)) continue;
        if (any_given(c, given, o->not_with, &other))
            return kvt_fail(err, KVT_ERR_ARG, "--%s and --%s cannot be given together", o->name, other->name);
        if (o->needs && !any_given(c, given, o->needs, &other)) {
            char first[WORD_MAX + 1] = "";
            const char *list = o->needs;
            next_word(&list, first);
            return kvt_fail(err, KVT_ERR_ARG, "--%s needs --%s", o->name, first);
        }
    }
    return KVT_OK;
}

/* An argument without a dash: the next ARG of the table. */
static enum kvt_status take_arg(const struct kvt_command *c, const char *word, uint64_t *given, void *settings,
                                struct kvt_error *err) {
    for (size_t i = 0; i < c->n_options; i++) {
        if (c->options[i].kind != KVT_OPT_ARG || *given >> i & 1) continue;
        *given |= UINT64_C(1) << i;
        return store(&c->options[i], c->options[i].name, word, settings, err);
    }
    return kvt_fail(err, KVT_ERR_ARG, "%s has no use for the argument '%s' ('kvtile %s --help' explains)", c->name,
                    word, c->name);
}

/* The option at argv[*i]; leaves *i at its last word. */
static enum kvt_status take_option(const struct kvt_command *c, int *i, int argc, char *const *argv, uint64_t *given,
                                   void *settings, struct kvt_error *err) {
    const char *word = argv[*i], *value = NULL;
    const bool is_long = word[1] == '-';
    const size_t n = is_long ? strcspn(word, "=") : strlen(word); /* without the value */
    char name[WORD_MAX + 3];
    if (n >= sizeof name) return kvt_fail(err, KVT_ERR_ARG, "%s has no option '%.40s...'", c->name, word);
    memcpy(name, word, n);
    name[n] = 0;
    if (word[n] == '=') value = word + n + 1;

    const struct kvt_opt *o = is_long ? find_long(c, name + 2) : find_short(c, word + 1, &value);
    if (!o) return unknown(c, name, name + (is_long ? 2 : 1), err);
    if (!is_long && value) name[2] = 0;
    if (o->kind == KVT_OPT_FLAG) {
        if (value) return kvt_fail(err, KVT_ERR_ARG, "%s takes no value", name);
    } else if (!value) {
        if (*i + 1 == argc) return kvt_fail(err, KVT_ERR_ARG, "%s needs a value: %s %s", name, name, o->value);
        value = argv[++*i];
    }
    *given |= UINT64_C(1) << (o - c->options);
    return store(o, name, value, settings, err);
}

enum kvt_status kvt_opt_parse(const struct kvt_command *command, void *settings, int argc, char *const *argv,
                              bool *out_help, struct kvt_error *err) {
    KVT_ASSERT(command->n_options <= 64);
    uint64_t given = 0; /* bit i: option i of the table */
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!ended && strcmp(word, "--") == 0) {
            ended = true;
        } else if (!ended && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            *out_help = true;
            return KVT_OK;
        } else if (ended || word[0] != '-' || !word[1]) {
            KVT_TRY(take_arg(command, word, &given, settings, err));
        } else {
            KVT_TRY(take_option(command, &i, argc, argv, &given, settings, err));
        }
    }
    return check_together(command, given, err);
}
