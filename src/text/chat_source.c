/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "base/check.h"
#include "text/chat.h"

/* A place in a source. */
struct place {
    const char *p, *end;
};

static bool at(const struct place *s, const char *what) {
    const size_t n = strlen(what);
    return (size_t)(s->end - s->p) >= n && memcmp(s->p, what, n) == 0;
}

static enum kvt_status add(struct kvt_buf *out, const char *text) { return kvt_buf_add(out, text, strlen(text)); }

static enum kvt_status add_char(struct kvt_buf *out, char c) {
    return c == '\n' ? add(out, "\\n") : kvt_buf_add(out, &c, 1);
}

/* From the opening quote to past the closing one; a string that is added to another continues it. */
static enum kvt_status string(struct kvt_buf *out, struct place *s) {
    const char quote = *s->p++;
    if (out->len >= 2 && memcmp(out->data + out->len - 2, "'+", 2) == 0)
        out->len -= 2;
    else
        KVT_TRY(add(out, "'"));
    while (s->p < s->end && *s->p != quote) {
        if (*s->p == '\\' && s->p + 1 < s->end) KVT_TRY(add_char(out, *s->p++));
        KVT_TRY(add_char(out, *s->p++));
    }
    if (s->p < s->end) s->p++;
    return add(out, "'");
}

/* Bytes of ['name'] at the place, or 0. */
static size_t subscript_len(const struct place *s) {
    const size_t rest = (size_t)(s->end - s->p);
    if (rest < 5 || s->p[0] != '[' || (s->p[1] != '\'' && s->p[1] != '"')) return 0;
    size_t n = 2;
    while (n < rest && (isalnum((unsigned char)s->p[n]) || s->p[n] == '_')) n++;
    return n > 2 && n + 1 < rest && s->p[n] == s->p[1] && s->p[n + 1] == ']' ? n + 2 : 0;
}

/* From past {{ or {% to past its end. */
static enum kvt_status code(struct kvt_buf *out, struct place *s) {
    while (s->p < s->end) {
        const size_t subscript = subscript_len(s);
        if (at(s, "-}}") || at(s, "-%}") || at(s, "+%}")) s->p++;
        if (at(s, "}}") || at(s, "%}")) {
            KVT_TRY(kvt_buf_add(out, s->p, 2));
            s->p += 2;
            return KVT_OK;
        }
        if (*s->p == '\'' || *s->p == '"') {
            KVT_TRY(string(out, s));
        } else if (subscript) {
            KVT_TRY(add(out, "."));
            KVT_TRY(kvt_buf_add(out, s->p + 2, subscript - 4));
            s->p += subscript;
        } else {
            if (!isspace((unsigned char)*s->p)) KVT_TRY(kvt_buf_add(out, s->p, 1));
            s->p++;
        }
    }
    return KVT_OK;
}

/* ---- text between tags ------------------------------------------------------------------------------------------------- */

static bool at_tag(const struct place *s) { return at(s, "{{") || at(s, "{%") || at(s, "{#"); }

/* What is left of the text [text, s->p) that stands before a tag or the end. Templates are rendered with trim_blocks and
 * lstrip_blocks: the line end after a block and the blanks before one at the start of a line do not count. */
static struct kvt_text_piece strip(const char *text, const struct place *s, const char *begin) {
    const char *end = s->p;
    const char last = text - begin >= 3 ? text[-3] : 0; /* of the tag before: -%} or %} */
    const bool after_block = text - begin >= 2 && text[-1] == '}' && (text[-2] == '%' || text[-2] == '#');
    bool line_start = text == begin;
    if (text > begin && last == '-') {
        while (text < end && isspace((unsigned char)*text)) line_start |= *text++ == '\n';
    } else if (after_block && last != '+' && text < end && *text == '\n') {
        text++;
        line_start = true;
    }
    const bool before_block = at(s, "{%") || at(s, "{#");
    const char mark = s->end - s->p > 2 ? s->p[2] : 0;
    if (at_tag(s) && mark == '-') {
        while (end > text && isspace((unsigned char)end[-1])) end--;
    } else if (before_block && mark != '+') {
        const char *blanks = end;
        while (blanks > text && (blanks[-1] == ' ' || blanks[-1] == '\t')) blanks--;
        if (blanks > text ? blanks[-1] == '\n' : line_start) end = blanks;
    }
    return (struct kvt_text_piece){text, (size_t)(end - text)};
}

enum kvt_status kvt_chat_plain_form(struct kvt_buf *out, const char *source, size_t len) {
    if (len > 0 && source[len - 1] == '\n') len--; /* as Jinja does */
    struct place s = {source, source + len};
    while (s.p < s.end) {
        const char *text = s.p;
        while (s.p < s.end && !at_tag(&s)) s.p++;
        const struct kvt_text_piece left = strip(text, &s, source);
        for (size_t i = 0; i < left.len; i++) KVT_TRY(add_char(out, left.data[i]));
        if (at(&s, "{#")) {
            while (s.p < s.end && !at(&s, "#}")) s.p++;
            s.p = s.end - s.p < 2 ? s.end : s.p + 2;
        } else if (s.p < s.end) {
            KVT_TRY(kvt_buf_add(out, s.p, 2));
            s.p += 2;
            if (s.p < s.end && (*s.p == '-' || *s.p == '+')) s.p++;
            KVT_TRY(code(out, &s));
        }
    }
    return KVT_OK;
}

enum kvt_status kvt_chat_unescape(struct kvt_buf *out, const char *string, size_t len) {
    for (size_t i = 0; i < len; i++) {
        char c = string[i];
        if (c == '\\' && i + 1 < len) {
            c = string[++i];
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
        }
        KVT_TRY(kvt_buf_add(out, &c, 1));
    }
    return KVT_OK;
}
