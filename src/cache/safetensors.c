/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors' header. Its JSON is of one kind: an object of objects, of strings, numbers and lists of numbers. Whatever else JSON
 * allows is refused.
 */
#include "cache/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { HEADER_MAX = 100 * 1000 * 1000 }; /* the format's own limit */

static const struct {
    const char *name;
    enum kvt_st_type type;
    unsigned bits;
} types[] = {{"F16", KVT_ST_F16, 16},   {"BF16", KVT_ST_BF16, 16}, {"F32", KVT_ST_F32, 32},   {"I32", KVT_ST_I32, 32},
             {"U32", KVT_ST_U32, 32},   {"U8", KVT_ST_U8, 8},      {"BOOL", KVT_ST_OTHER, 8}, {"I8", KVT_ST_OTHER, 8},
             {"I16", KVT_ST_OTHER, 16}, {"U16", KVT_ST_OTHER, 16}, {"I64", KVT_ST_OTHER, 64}, {"U64", KVT_ST_OTHER, 64},
             {"F64", KVT_ST_OTHER, 64}};

/* ---- JSON -------------------------------------------------------------------------------------------------------------- */

struct scan {
    const char *at, *end;
    const char *name; /* of the file */
    /* Where the next string goes: there is room, as a string's text is longer than what it says and a NUL. */
    char *text;
    struct kvt_error *err;
};

static enum kvt_status bad(const struct scan *s, const char *what) {
    return kvt_fail(s->err, KVT_ERR_FORMAT, "%s: its header is not as safetensors has it: %s, %zd bytes before its end",
                    s->name, what, s->end - s->at);
}

static void skip_blanks(struct scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')) s->at++;
}

/* Whether c comes next; if so it is passed. */
static bool next_is(struct scan *s, char c) {
    skip_blanks(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

static bool read_hex(struct scan *s, unsigned *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        if (s->at == s->end) return false;
        const char c = *s->at;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return false;
        *out = *out << 4 | (unsigned)digit;
    }
    return true;
}

/* What follows "\u". Half a pair of surrogates becomes U+FFFD. */
static bool read_code_point(struct scan *s) {
    unsigned code, low;
    if (!read_hex(s, &code) || code == 0) return false;
    if (code >= 0xD800 && code < 0xDC00 && s->end - s->at >= 6 && s->at[0] == '\\' && s->at[1] == 'u') {
        const char *before = s->at;
        s->at += 2;
        if (!read_hex(s, &low)) return false;
        if (low >= 0xDC00 && low < 0xE000)
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        else
            s->at = before;
    }
    if (code >= 0xD800 && code < 0xE000) code = 0xFFFD;
    const int n = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3; /* bytes that follow the first */
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    *s->text++ = (char)(first[n] | code >> 6 * n);
    for (int i = n - 1; i >= 0; i--) *s->text++ = (char)(0x80 | (code >> 6 * i & 0x3F));
    return true;
}

static enum kvt_status read_string(struct scan *s, const char **out) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (!next_is(s, '"')) return bad(s, "a string is missing");
    *out = s->text;
    while (s->at < s->end && *s->at != '"') {
        const char c = *s->at++;
        if ((unsigned char)c < 0x20) return bad(s, "a control character in a string");
        if (c != '\\') {
            *s->text++ = c;
            continue;
        }
        const char *escape = s->at < s->end && *s->at ? strchr(escapes, *s->at) : NULL;
        if (escape) {
            *s->text++ = meant[escape - escapes];
            s->at++;
        } else if (!(s->at < s->end && *s->at++ == 'u' && read_code_point(s))) {
            return bad(s, "an escape that cannot be");
        }
    }
    if (s->at == s->end) return bad(s, "a string that does not end");
    s->at++;
    *s->text++ = 0;
    return KVT_OK;
}

static enum kvt_status read_number(struct scan *s, int64_t *out) {
    int64_t value = 0;
    skip_blanks(s);
    const char *start = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        if (value > INT64_MAX / 10 - 1) return bad(s, "a number that is too large");
        value = value * 10 + (*s->at - '0');
    }
    if (s->at == start) return bad(s, "a whole number is missing");
    *out = value;
    return KVT_OK;
}

/* A list of at most `max` numbers. */
static enum kvt_status read_list(struct scan *s, int64_t *out, int *n, int max) {
    *n = 0;
    if (!next_is(s, '[')) return bad(s, "a list is missing");
    if (next_is(s, ']')) return KVT_OK;
    do {
        if (*n == max) return bad(s, "a list that is too long");
        KVT_TRY(read_number(s, &out[(*n)++]));
    } while (next_is(s, ','));
    return next_is(s, ']') ? KVT_OK : bad(s, "a list that does not end");
}

/* Passes to the next key of an object, whose "{" was passed: false at its end. */
static enum kvt_status next_key(struct scan *s, bool *is_first, const char **key, bool *out_more) {
    *out_more = !next_is(s, '}');
    if (!*out_more) return KVT_OK;
    if (!*is_first && !next_is(s, ',')) return bad(s, "a comma is missing");
    *is_first = false;
    KVT_TRY(read_string(s, key));
    return next_is(s, ':') ? KVT_OK : bad(s, "a colon is missing");
}

/* ---- the header -------------------------------------------------------------------------------------------------------- */

static enum kvt_status read_entries(struct kvt_st *st, struct scan *s) {
    bool is_first = true, more;
    const char *key;
    if (!next_is(s, '{')) return bad(s, "__metadata__ is no object");
    for (;;) {
        KVT_TRY(next_key(s, &is_first, &key, &more));
        if (!more) return KVT_OK;
        struct kvt_st_entry *entry = &st->entries[st->n_entries++];
        entry->key = key;
        KVT_TRY(read_string(s, &entry->value));
    }
}

static enum kvt_status find_type(const struct scan *s, struct kvt_st_array *array, const char *name, unsigned *bits) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(types); i++)
        if (strcmp(name, types[i].name) == 0) {
            array->type = types[i].type;
            *bits = types[i].bits;
            return KVT_OK;
        }
    return kvt_fail(s->err, KVT_ERR_FORMAT, "%s: array %.60s has elements of the unknown type %.20s", s->name,
                    array->name, name);
}

/* Where the array lies, and that it is as large as its shape says. */
static enum kvt_status place(const struct scan *s, struct kvt_st_array *array, const int64_t range[2], unsigned bits,
                             const unsigned char *data, size_t bytes) {
    if (range[0] > range[1] || (uint64_t)range[1] > bytes)
        return kvt_fail(s->err, KVT_ERR_FORMAT, "%s: array %.60s lies at bytes %lld to %lld of %zu (cut short?)",
                        s->name, array->name, (long long)range[0], (long long)range[1], bytes);
    array->data = data + range[0];
    array->bytes = (size_t)(range[1] - range[0]);
    uint64_t need = bits / 8;
    for (int i = 0; i < array->n_dims; i++)
        if (__builtin_mul_overflow(need, (uint64_t)array->dims[i], &need)) need = UINT64_MAX, i = array->n_dims;
    if (need != array->bytes)
        return kvt_fail(s->err, KVT_ERR_FORMAT, "%s: array %.60s has %zu bytes, its shape needs %llu", s->name,
                        array->name, array->bytes, (unsigned long long)need);
    return KVT_OK;
}

static enum kvt_status read_array(struct kvt_st *st, struct scan *s, const char *name, const unsigned char *data,
                                  size_t bytes) {
    struct kvt_st_array *array = &st->arrays[st->n_arrays++];
    int64_t range[2] = {0};
    const char *key, *type = NULL;
    int n_range = 0;
    unsigned bits = 0;
    bool is_first = true, more, has_shape = false;
    *array = (struct kvt_st_array){.name = name};
    if (!next_is(s, '{')) return bad(s, "an array is no object");
    for (;;) {
        KVT_TRY(next_key(s, &is_first, &key, &more));
        if (!more) break;
        if (strcmp(key, "dtype") == 0) {
            KVT_TRY(read_string(s, &type));
        } else if (strcmp(key, "shape") == 0) {
            KVT_TRY(read_list(s, array->dims, &array->n_dims, KVT_ST_DIMS));
            has_shape = true;
        } else if (strcmp(key, "data_offsets") == 0) {
            KVT_TRY(read_list(s, range, &n_range, 2));
        } else {
            return bad(s, "an array has something else than dtype, shape and data_offsets");
        }
    }
    if (!type || !has_shape || n_range != 2) return bad(s, "an array lacks dtype, shape or data_offsets");
    KVT_TRY(find_type(s, array, type, &bits));
    return place(s, array, range, bits, data, bytes);
}

static enum kvt_status read_header(struct kvt_st *st, struct scan *s, const unsigned char *data, size_t bytes) {
    bool is_first = true, more;
    const char *key;
    if (!next_is(s, '{')) return bad(s, "it is no object");
    for (;;) {
        KVT_TRY(next_key(s, &is_first, &key, &more));
        if (!more) break;
        KVT_TRY(strcmp(key, "__metadata__") == 0 ? read_entries(st, s) : read_array(st, s, key, data, bytes));
    }
    skip_blanks(s);
    return s->at == s->end ? KVT_OK : bad(s, "something follows it");
}

static int compare_arrays(const void *a, const void *b) {
    return strcmp(((const struct kvt_st_array *)a)->name, ((const struct kvt_st_array *)b)->name);
}

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const struct kvt_st_entry *)a)->key, ((const struct kvt_st_entry *)b)->key);
}

static enum kvt_status sort(struct kvt_st *st, const char *name, struct kvt_error *err) {
    qsort(st->arrays, (size_t)st->n_arrays, sizeof *st->arrays, compare_arrays);
    qsort(st->entries, (size_t)st->n_entries, sizeof *st->entries, compare_entries);
    for (int i = 1; i < st->n_arrays; i++)
        if (compare_arrays(&st->arrays[i - 1], &st->arrays[i]) == 0)
            return kvt_fail(err, KVT_ERR_FORMAT, "%s: array %.60s is there twice", name, st->arrays[i].name);
    for (int i = 1; i < st->n_entries; i++)
        if (compare_entries(&st->entries[i - 1], &st->entries[i]) == 0)
            return kvt_fail(err, KVT_ERR_FORMAT, "%s: entry %.60s is there twice", name, st->entries[i].key);
    return KVT_OK;
}

enum kvt_status kvt_st_read(struct kvt_st *out, const unsigned char *data, size_t bytes, const char *name,
                            const struct kvt_allocator *allocator, struct kvt_error *err) {
    uint64_t header = 0;
    *out = (struct kvt_st){0};
    for (int i = 0; i < 8 && bytes >= 8; i++) header |= (uint64_t)data[i] << 8 * i;
    if (bytes < 10 || header < 2 || header > HEADER_MAX || header > bytes - 8)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is no safetensors file: %zu bytes cannot have a header of %llu", name,
                        bytes, (unsigned long long)header);
    struct scan s = {(const char *)data + 8, (const char *)data + 8 + header, name, NULL, err};
    size_t n_arrays = 1, n_entries = 1; /* at most as many as there are "{" and, with four quotes each, strings */
    for (const char *at = s.at; at < s.end; at++) {
        n_arrays += *at == '{';
        n_entries += *at == '"';
    }
    n_entries = n_entries / 4 + 1;
    const size_t block = kvt_arena_need((size_t)header, 1) + kvt_arena_need(n_arrays, sizeof *out->arrays) +
                         kvt_arena_need(n_entries, sizeof *out->entries);
    if (!kvt_arena_init(&out->arena, allocator, block))
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the header of %s", name);
    s.text = kvt_arena_take(&out->arena, (size_t)header, 1);
    out->arrays = kvt_arena_take(&out->arena, n_arrays, sizeof *out->arrays);
    out->entries = kvt_arena_take(&out->arena, n_entries, sizeof *out->entries);
    KVT_TRY(read_header(out, &s, data + 8 + header, bytes - 8 - (size_t)header));
    return sort(out, name, err);
}

void kvt_st_finish(struct kvt_st *st) {
    kvt_arena_finish(&st->arena);
    *st = (struct kvt_st){0};
}

const struct kvt_st_array *kvt_st_array(const struct kvt_st *st, const char *name) {
    const struct kvt_st_array key = {.name = name};
    return bsearch(&key, st->arrays, (size_t)st->n_arrays, sizeof key, compare_arrays);
}

const char *kvt_st_entry(const struct kvt_st *st, const char *name) {
    const struct kvt_st_entry key = {.key = name};
    const struct kvt_st_entry *found = bsearch(&key, st->entries, (size_t)st->n_entries, sizeof key, compare_entries);
    return found ? found->value : NULL;
}
