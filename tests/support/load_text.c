/* SPDX-License-Identifier: Apache-2.0 */
#include "support/load_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "model/bind_text.h"

struct kvt_text *kvt_load_text(const char *path) {
    struct kvt_gguf *gguf = NULL;
    struct kvt_text *text = NULL;
    struct kvt_error err = {KVT_OK, ""};
    if (kvt_gguf_open(&gguf, path, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    if (kvt_bind_text(&text, gguf, NULL, &err) != KVT_OK) fail_msg("%s: %s", path, err.text);
    kvt_gguf_close(gguf);
    return text;
}

struct kvt_buf kvt_load_file(const char *path) {
    struct kvt_buf buf;
    struct kvt_error err = {KVT_OK, ""};
    kvt_buf_init(&buf, NULL, (size_t)1 << 30);
    if (kvt_file_read(&buf, path, &err) != KVT_OK) fail_msg("%s", err.text);
    return buf;
}

bool kvt_file_exists(const char *path) { return access(path, R_OK) == 0; }

struct kvt_ids kvt_encode_all(const struct kvt_text *text, const char *data, size_t len, bool parse_special) {
    struct kvt_ids ids;
    struct kvt_error err = {KVT_OK, ""};
    kvt_ids_init(&ids, NULL);
    if (kvt_text_encode(text, data, len, parse_special, &ids, &err) != KVT_OK) fail_msg("%s", err.text);
    return ids;
}

void kvt_assert_ids(const struct kvt_ids *ids, const int32_t *expected, size_t n, const char *what) {
    for (size_t i = 0; i < n && i < ids->len; i++)
        if (ids->data[i] != expected[i])
            fail_msg("%s: token %zu is %d, expected %d", what, i, ids->data[i], expected[i]);
    if (ids->len != n) fail_msg("%s: %zu tokens, expected %zu", what, ids->len, n);
}

void kvt_assert_decodes(const struct kvt_text *text, const struct kvt_ids *ids, const char *data, size_t len,
                        const char *what) {
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, (size_t)1 << 30);
    for (size_t i = 0; i < ids->len; i++) assert_int_equal(kvt_text_decode(text, ids->data[i], true, &buf), KVT_OK);
    if (buf.len != len || (len && memcmp(buf.data, data, len) != 0))
        fail_msg("%s: decoded to '%.200s' (%zu bytes), expected '%.200s' (%zu bytes)", what, kvt_buf_text(&buf),
                 buf.len, data, len);
    kvt_buf_finish(&buf);
}

/* ---- golden files ------------------------------------------------------------------------------------------------------ */

static struct kvt_text_piece string_piece(const json_t *string) {
    return (struct kvt_text_piece){json_string_value(string), json_string_length(string)};
}

static struct kvt_text_piece *pieces(const json_t *list) {
    const size_t n = json_array_size(list);
    struct kvt_text_piece *out = kvt_take(&kvt_allocator_libc, n + 1, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) out[i] = string_piece(json_array_get(list, i));
    return out;
}

struct kvt_golden kvt_load_golden(const char *file) {
    char path[512];
    json_error_t jerr;
    snprintf(path, sizeof path, KVT_ROOT "/tests/golden/text/%s", file);
    struct kvt_golden g = {.root = json_load_file(path, JSON_ALLOW_NUL, &jerr)};
    if (!g.root) fail_msg("%s: %s", path, jerr.text);
    const json_t *tokens = json_object_get(g.root, "tokens"), *merges = json_object_get(g.root, "merges");
    const json_t *scores = json_object_get(g.root, "scores"), *types = json_object_get(g.root, "types");
    const size_t n = json_array_size(tokens);
    float *score = kvt_take(&kvt_allocator_libc, n + 1, sizeof *score);
    int32_t *type = kvt_take(&kvt_allocator_libc, n + 1, sizeof *type);
    assert_true(score && type);
    for (size_t i = 0; i < n; i++) {
        score[i] = (float)json_number_value(json_array_get(scores, i));
        type[i] = types ? (int32_t)json_integer_value(json_array_get(types, i)) : KVT_TOKEN_NORMAL;
    }
    g.spec = (struct kvt_text_spec){.model = scores ? "llama" : "gpt2",
                                    .n_tokens = (int)n,
                                    .tokens = pieces(tokens),
                                    .scores = score,
                                    .types = type,
                                    .n_merges = (int)json_array_size(merges),
                                    .merges = pieces(merges),
                                    .bos = -1,
                                    .eos = -1,
                                    .eot = -1,
                                    .unk = -1,
                                    .pad = -1,
                                    .add_bos = -1,
                                    .add_eos = -1,
                                    .add_space_prefix = -1};
    return g;
}

void kvt_golden_finish(struct kvt_golden *golden) {
    const struct kvt_text_spec *s = &golden->spec;
    const size_t n = (size_t)s->n_tokens + 1;
    kvt_give(&kvt_allocator_libc, (void *)(uintptr_t)s->tokens, n, sizeof *s->tokens);
    kvt_give(&kvt_allocator_libc, (void *)(uintptr_t)s->merges, (size_t)s->n_merges + 1, sizeof *s->merges);
    kvt_give(&kvt_allocator_libc, (void *)(uintptr_t)s->scores, n, sizeof *s->scores);
    kvt_give(&kvt_allocator_libc, (void *)(uintptr_t)s->types, n, sizeof *s->types);
    json_decref(golden->root);
}

struct kvt_text *kvt_make_text(const struct kvt_text_spec *spec) {
    struct kvt_text *text = NULL;
    struct kvt_error err = {KVT_OK, ""};
    if (kvt_text_create(&text, spec, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    return text;
}

void kvt_assert_golden_ids(const struct kvt_text *text, const struct json_t *texts, const struct json_t *ids,
                           const char *what) {
    assert_true(json_array_size(texts) > 0);
    assert_int_equal(json_array_size(texts), json_array_size(ids));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const struct kvt_text_piece t = string_piece(json_array_get(texts, i));
        const json_t *list = json_array_get(ids, i);
        struct kvt_ids expected, got = kvt_encode_all(text, t.data, t.len, false);
        char name[200];
        snprintf(name, sizeof name, "%s: text %zu, '%.80s'", what, i, t.data);
        kvt_ids_init(&expected, NULL);
        for (size_t k = 0; k < json_array_size(list); k++)
            assert_int_equal(kvt_ids_add(&expected, (int32_t)json_integer_value(json_array_get(list, k))), KVT_OK);
        kvt_assert_ids(&got, expected.data, expected.len, name);
        kvt_ids_finish(&expected);
        kvt_ids_finish(&got);
    }
}

/* ---- SHA-256 ----------------------------------------------------------------------------------------------------------- */

static uint32_t rotated(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* The first 32 bits of the fractional part of a prime's square or cube root, by integer search. */
static uint32_t root_bits(uint32_t prime, int power) {
    uint64_t root = 0; /* of prime * 2^(32 * power), bit by bit */
    for (int bit = 35; bit >= 0; bit--) {
        const uint64_t t = root | (uint64_t)1 << bit;
        unsigned __int128 square = (unsigned __int128)t * t;
        bool fits;
        if (power == 2) {
            fits = square <= (unsigned __int128)prime << 64;
        } else {
            fits = square <= ((unsigned __int128)prime << 96) / t;
        }
        if (fits) root = t;
    }
    return (uint32_t)root;
}

static void round_constants(uint32_t start[8], uint32_t k[64]) {
    int n = 0;
    for (uint32_t p = 2; n < 64; p++) {
        bool prime = true;
        for (uint32_t d = 2; d * d <= p; d++) prime &= p % d != 0;
        if (!prime) continue;
        if (n < 8) start[n] = root_bits(p, 2);
        k[n++] = root_bits(p, 3);
    }
}

static void compress(uint32_t state[8], const uint32_t k[64], const unsigned char block[64]) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[i - 7] +
               (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t t1 = s[7] + (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) +
                            ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        const uint32_t t2 = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) +
                            ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void kvt_sha256(char out[65], const void *data, size_t bytes) {
    const unsigned char *p = data;
    uint32_t state[8], k[64];
    unsigned char last[128] = {0};
    round_constants(state, k);
    size_t rest = bytes;
    for (; rest >= 64; rest -= 64, p += 64) compress(state, k, p);
    if (rest) memcpy(last, p, rest);
    last[rest] = 0x80;
    const size_t n_last = rest < 56 ? 64 : 128;
    for (int i = 0; i < 8; i++) last[n_last - 1 - (size_t)i] = (unsigned char)((uint64_t)bytes * 8 >> 8 * i);
    for (size_t i = 0; i < n_last; i += 64) compress(state, k, last + i);
    for (int i = 0; i < 8; i++) snprintf(out + 8 * i, 9, "%08x", state[i]);
}
