/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that must be refused, each with its sentence; and files that are damaged anywhere: opened or refused, never a fault.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "gguf/write.h"
#include "support/make_model.h"
#include "support/read_whole.h"

enum { F32 = 0, Q8_0 = 8 };

/* ---- a file by hand --------------------------------------------------------------------------------------------------- */

struct hand {
    struct kvt_buf buf;
};

static void put(struct hand *h, const void *data, size_t n) { assert_int_equal(kvt_buf_add(&h->buf, data, n), KVT_OK); }
static void put_u32(struct hand *h, uint32_t u) { put(h, &u, 4); }
static void put_u64(struct hand *h, uint64_t u) { put(h, &u, 8); }
static void put_text(struct hand *h, const char *text) {
    put_u64(h, strlen(text));
    put(h, text, strlen(text));
}

static struct hand begin(uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    struct hand h;
    kvt_buf_init(&h.buf, NULL, 1 << 20);
    put(&h, "GGUF", 4);
    put_u32(&h, version);
    put_u64(&h, n_tensors);
    put_u64(&h, n_keys);
    return h;
}

static void put_key(struct hand *h, const char *key, uint32_t kind) {
    put_text(h, key);
    put_u32(h, kind);
}

static void put_tensor(struct hand *h, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                       uint64_t offset) {
    put_text(h, name);
    put_u32(h, n_dims);
    for (uint32_t i = 0; i < KVT_MIN(n_dims, 8); i++) put_u64(h, dims[i]);
    put_u32(h, type);
    put_u64(h, offset);
}

static void put_zeros(struct hand *h, size_t n) {
    while (n-- > 0) put(h, "", 1);
}

/* Opens a block of exactly this size, so that the sanitizer sees a byte too far. out NULL: closes it, read whole, at once. */
static enum kvt_status open_exact(const void *data, size_t n, struct kvt_error *err) {
    const struct kvt_allocator *a = &kvt_allocator_libc;
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator counted = kvt_allocator_counted(&counter);
    unsigned char *copy = kvt_take(a, KVT_MAX(n, 1), 1);
    assert_non_null(copy);
    if (n) memcpy(copy, data, n);
    struct kvt_gguf *gguf = NULL;
    const enum kvt_status status = kvt_gguf_open_memory(&gguf, copy, n, &counted, err);
    if (status == KVT_OK) {
        bool kept;
        (void)kvt_read_whole(gguf, &kept);
        assert_true(kept);
        kvt_gguf_close(gguf);
    } else {
        assert_null(gguf);
        assert_int_equal(err->code, status);
        assert_true(strlen(err->text) > 20);
    }
    assert_int_equal(counter.live_blocks, 0);
    kvt_give(a, copy, KVT_MAX(n, 1), 1);
    return status;
}

/* Refused, with these words in the sentence. Ends the file. */
static void refused(struct hand h, enum kvt_status status, const char *words) {
    struct kvt_error err = {KVT_OK, ""};
    const enum kvt_status got = open_exact(h.buf.data, h.buf.len, &err);
    if (got != status || !strstr(err.text, words)) fail_msg("wanted '%s', got %d: '%s'\n", words, (int)got, err.text);
    kvt_buf_finish(&h.buf);
}

static void accepted(struct hand h) {
    struct kvt_error err = {KVT_OK, ""};
    if (open_exact(h.buf.data, h.buf.len, &err) != KVT_OK) fail_msg("%s\n", err.text);
    kvt_buf_finish(&h.buf);
}

/* ---- cases ------------------------------------------------------------------------------------------------------------- */

static const uint64_t huge[] = {
    UINT64_MAX, UINT64_MAX - 7, UINT64_MAX / 2 + 1, UINT64_MAX / 8, UINT64_MAX / 25 + 1, (uint64_t)1 << 32, 100};

static void versions(void **state) {
    (void)state;
    accepted(begin(3, 0, 0));
    accepted(begin(2, 0, 0));
    refused(begin(1, 0, 0), KVT_ERR_UNSUPPORTED, "GGUF version 1; versions 2 and 3 can be read");
    refused(begin(0, 0, 0), KVT_ERR_UNSUPPORTED, "GGUF version 0");
    refused(begin(4, 0, 0), KVT_ERR_UNSUPPORTED, "GGUF version 4");
    refused(begin(3u << 24, 0, 0), KVT_ERR_UNSUPPORTED, "a big-endian GGUF file");
    struct hand h = begin(3, 0, 0);
    h.buf.data[0] = 'g';
    refused(h, KVT_ERR_FORMAT, "not a GGUF file");
}

static void counts(void **state) {
    (void)state;
    for (size_t i = 0; i < KVT_ARRAY_LEN(huge); i++) {
        struct hand h = begin(3, huge[i], 0);
        put_zeros(&h, 64);
        refused(h, KVT_ERR_FORMAT, "tensors are announced, but only 64 bytes follow");
        h = begin(3, 0, huge[i]);
        put_zeros(&h, 64);
        refused(h, KVT_ERR_FORMAT, "metadata keys are announced, but only 64 bytes follow");
        h = begin(3, 0, 1);
        put_u64(&h, huge[i]); /* a key's length */
        put_zeros(&h, 64);
        refused(h, KVT_ERR_FORMAT, "metadata key 1: ");
        h = begin(3, 0, 1);
        put_key(&h, "s", KVT_GGUF_STRING);
        put_u64(&h, huge[i]);
        put_zeros(&h, 64);
        refused(h, KVT_ERR_FORMAT, "but the file ends at byte");
    }
}

static void arrays(void **state) {
    (void)state;
    for (size_t i = 0; i < KVT_ARRAY_LEN(huge); i++)
        for (uint32_t kind = 0; kind < KVT_GGUF_KIND_COUNT; kind++) {
            if (kind == KVT_GGUF_ARRAY) continue;
            struct hand h = begin(3, 0, 1);
            put_key(&h, "list", KVT_GGUF_ARRAY);
            put_u32(&h, kind);
            put_u64(&h, huge[i]);
            put_zeros(&h, 99);
            refused(h, KVT_ERR_FORMAT, "are announced, but only 99 bytes follow");
        }
    struct hand h = begin(3, 0, 1);
    put_key(&h, "deep", KVT_GGUF_ARRAY);
    put_u32(&h, KVT_GGUF_ARRAY);
    put_u64(&h, 1);
    put_zeros(&h, 64);
    refused(h, KVT_ERR_UNSUPPORTED, "'deep' is an array of arrays");
    h = begin(3, 0, 1);
    put_key(&h, "list", KVT_GGUF_ARRAY);
    put_u32(&h, KVT_GGUF_KIND_COUNT);
    put_u64(&h, 1);
    refused(h, KVT_ERR_FORMAT, "value type 13 is unknown");
    h = begin(3, 0, 1);
    put_key(&h, "texts", KVT_GGUF_ARRAY); /* the second string is too long */
    put_u32(&h, KVT_GGUF_STRING);
    put_u64(&h, 2);
    put_text(&h, "one");
    put_u64(&h, 4);
    put(&h, "two", 3);
    refused(h, KVT_ERR_FORMAT, "metadata key 1: 4 bytes are needed");
    h = begin(3, 0, 1);
    put_key(&h, "flags", KVT_GGUF_ARRAY);
    put_u32(&h, KVT_GGUF_BOOL);
    put_u64(&h, 2);
    put(&h, "\1\2", 2);
    refused(h, KVT_ERR_FORMAT, "a bool is 2");
}

static void keys(void **state) {
    (void)state;
    struct hand h = begin(3, 0, 2);
    put_key(&h, "twin", KVT_GGUF_U32);
    put_u32(&h, 1);
    put_key(&h, "twin", KVT_GGUF_U32);
    put_u32(&h, 2);
    refused(h, KVT_ERR_FORMAT, "the metadata key 'twin' is there twice");
    h = begin(3, 0, 1);
    put_key(&h, "", KVT_GGUF_U32);
    put_zeros(&h, 64);
    refused(h, KVT_ERR_FORMAT, "its name has 0 bytes");
    h = begin(3, 0, 1);
    put_key(&h, "a\nb", KVT_GGUF_U32);
    put_u32(&h, 1);
    refused(h, KVT_ERR_FORMAT, "control character (0x0a)");
    h = begin(3, 0, 1);
    put_u64(&h, 70000);
    for (int i = 0; i < 70000; i++) put(&h, "k", 1);
    put_zeros(&h, 64);
    refused(h, KVT_ERR_FORMAT, "its name has 70000 bytes; 1 to 65535 are allowed");
    h = begin(3, 0, 1);
    put_key(&h, "odd", 77);
    put_zeros(&h, 64);
    refused(h, KVT_ERR_FORMAT, "value type 77 is unknown; 0 to 12 are defined");
}

static void alignments(void **state) {
    (void)state;
    static const struct {
        uint32_t value;
        bool good;
    } cases[] = {{0, false}, {1, false}, {4, false},    {8, true},           {24, false},     {33, false},
                 {32, true}, {64, true}, {65536, true}, {UINT32_MAX, false}, {1u << 31, true}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct hand h = begin(3, 0, 1);
        put_key(&h, "general.alignment", KVT_GGUF_U32);
        put_u32(&h, cases[i].value);
        if (cases[i].good)
            accepted(h);
        else
            refused(h, KVT_ERR_FORMAT, "it must be a power of two from 8 to 2^31");
    }
    struct hand h = begin(3, 0, 1);
    put_key(&h, "general.alignment", KVT_GGUF_F32);
    put_u32(&h, 0);
    refused(h, KVT_ERR_FORMAT, "general.alignment is of type float32; it must be an integer");
    h = begin(3, 1, 1); /* the data would begin past the end of the file */
    put_key(&h, "general.alignment", KVT_GGUF_U32);
    put_u32(&h, 1u << 31);
    put_tensor(&h, "t", 1, (const uint64_t[]){1}, F32, 0);
    put_zeros(&h, 100);
    refused(h, KVT_ERR_FORMAT, "reach past the end of the file");
}

static struct hand one_tensor(uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset) {
    struct hand h = begin(3, 1, 0);
    put_tensor(&h, "w", n_dims, dims, type, offset);
    put_zeros(&h, -h.buf.len & 31);
    put_zeros(&h, 256);
    return h;
}

static void tensors(void **state) {
    (void)state;
    const uint64_t d[8] = {32, 2, 1, 1, 1, 1, 1, 1};
    accepted(one_tensor(2, d, F32, 0));
    accepted(one_tensor(0, d, F32, 252 / 32 * 32));
    refused(one_tensor(2, d, F32, 32), KVT_ERR_FORMAT,
            "'w': its 256 bytes from 96 + 32 on reach past the end of the file");
    refused(one_tensor(2, d, F32, 4), KVT_ERR_FORMAT, "its offset 4 is no multiple of the alignment 32");
    refused(one_tensor(1, d, F32, UINT64_MAX - 31), KVT_ERR_FORMAT, "reach past the end of the file");
    refused(one_tensor(1, d, F32, UINT64_MAX), KVT_ERR_FORMAT, "no multiple of the alignment");
    refused(one_tensor(5, d, F32, 0), KVT_ERR_FORMAT, "'w' has 5 dimensions; 4 are the most");
    refused(one_tensor(UINT32_MAX, d, F32, 0), KVT_ERR_FORMAT, "4294967295 dimensions");
    refused(one_tensor(2, d, 4, 0), KVT_ERR_UNSUPPORTED, "tensor 1: 'w' is of the unknown type number 4");
    refused(one_tensor(2, d, 99, 0), KVT_ERR_UNSUPPORTED, "unknown type number 99");
    refused(one_tensor(1, (const uint64_t[]){33}, Q8_0, 0), KVT_ERR_FORMAT,
            "a row of 33 elements is no whole number of Q8_0 blocks of 32");
    refused(one_tensor(2, (const uint64_t[]){32, 0}, Q8_0, 0), KVT_ERR_FORMAT, "'w': dimension 2 is 0");
    for (size_t i = 0; i < KVT_ARRAY_LEN(huge); i++) {
        const uint64_t by_rows[4] = {32, huge[i], 1, 1},
                       by_all[4] = {huge[i] & ~(uint64_t)31, huge[i], huge[i], huge[i]};
        refused(one_tensor(2, by_rows, Q8_0, 0), KVT_ERR_FORMAT, "'w': ");
        refused(one_tensor(4, by_all, F32, 0), KVT_ERR_FORMAT, "'w': ");
    }
    /* Products that wrap to something small: 2^32 * 2^32, and 2^62 elements of 4 bytes. */
    refused(one_tensor(2, (const uint64_t[]){(uint64_t)1 << 32, (uint64_t)1 << 32}, F32, 0), KVT_ERR_FORMAT,
            "the product of its dimensions is past any memory");
    refused(one_tensor(1, (const uint64_t[]){(uint64_t)1 << 62}, F32, 0), KVT_ERR_FORMAT,
            "the product of its dimensions is past any memory");
    struct hand h = begin(3, 2, 0);
    put_tensor(&h, "twin", 1, (const uint64_t[]){1}, F32, 0);
    put_tensor(&h, "twin", 1, (const uint64_t[]){1}, F32, 0);
    put_zeros(&h, 64);
    refused(h, KVT_ERR_FORMAT, "the tensor name 'twin' is there twice");
}

/* ---- files -------------------------------------------------------------------------------------------------------------- */

static void write_temporary(char path[64], const void *data, size_t n) {
    snprintf(path, 64, "/tmp/kvtile-bad-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    close(fd);
}

static void file_refused(const char *path, enum kvt_status status, const char *words) {
    struct kvt_gguf *gguf = NULL;
    struct kvt_error err = {KVT_OK, ""};
    assert_int_equal(kvt_gguf_open(&gguf, path, NULL, &err), status);
    assert_null(gguf);
    if (!strstr(err.text, words) || !strstr(err.text, path)) fail_msg("'%s'\n", err.text);
}

static void sentences_name_the_file(void **state) {
    (void)state;
    char path[64];
    file_refused("/nowhere/to/be/found.gguf", KVT_ERR_IO, "No such file");
    file_refused("/tmp", KVT_ERR_FORMAT, "not a regular file");
    write_temporary(path, "", 0);
    file_refused(path, KVT_ERR_FORMAT, "is empty");
    unlink(path);
    write_temporary(path, "GG", 2);
    file_refused(path, KVT_ERR_FORMAT, "does not begin with the letters GGUF");
    unlink(path);
    write_temporary(path, "GGUF\3\0\0\0\1", 9);
    file_refused(path, KVT_ERR_FORMAT, "8 bytes are needed at byte 8, but the file ends at byte 9");
    unlink(path);
}

static void plain_cut_short(void **state) {
    (void)state;
    static const size_t cuts[] = {1, 4, 23, 24, 1000, 65536, 65537, 150000, 1000000, 16000000};
    struct kvt_map map;
    struct kvt_error err;
    if (kvt_map_open(&map, KVT_ROOT "/models/plain.gguf", &err) != KVT_OK) fail_msg("%s\n", err.text);
    for (size_t i = 0; i < KVT_ARRAY_LEN(cuts); i++) {
        char path[64];
        write_temporary(path, map.data, cuts[i]);
        file_refused(path, KVT_ERR_FORMAT, "");
        unlink(path);
    }
    kvt_map_close(&map);
}

/* ---- damage everywhere --------------------------------------------------------------------------------------------------- */

/* A small file with something of everything. Returns where the tensor data begins. */
static size_t small_file(struct kvt_buf *buf) {
    struct kvt_gguf_writer *w;
    const int64_t dims[3] = {32, 2, 2};
    const uint8_t data[34 * 4] = {1, 2, 3};
    kvt_buf_init(buf, NULL, 1 << 20);
    assert_int_equal(kvt_gguf_writer_create(&w, NULL), KVT_OK);
    kvt_gguf_writer_align(w, 16);
    for (int k = 0; k < KVT_GGUF_KIND_COUNT; k++) {
        const enum kvt_gguf_kind kind = (enum kvt_gguf_kind)k;
        const uint64_t ones[3] = {1, 1, 1};
        if (kind == KVT_GGUF_STRING || kind == KVT_GGUF_ARRAY) continue;
        kvt_gguf_add_value(w, kvt_gguf_kind_name(kind), kind, ones);
        kvt_gguf_add_array(w, &"0_1_2_3_4_5_6_7_8_9_a_b_c"[2 * k], kind, ones, kind == KVT_GGUF_BOOL ? 1 : 3);
    }
    kvt_gguf_add_text(w, "text", "a text");
    kvt_gguf_add_texts(w, "texts", (const char *const[]){"one", "", "three"}, 3);
    kvt_gguf_add_tensor(w, "a", Q8_0, 3, dims, data, sizeof data);
    kvt_gguf_add_tensor(w, "b", F32, 1, (const int64_t[]){3}, data, 12);
    assert_int_equal(kvt_gguf_writer_finish(w, buf), KVT_OK);
    kvt_gguf_writer_destroy(w);
    return buf->len - (sizeof data + 8) - 16;
}

static void cut_anywhere(void **state) {
    (void)state;
    struct kvt_buf buf;
    struct kvt_error err;
    small_file(&buf);
    assert_int_equal(open_exact(buf.data, buf.len, &err), KVT_OK);
    for (size_t n = 0; n + 4 < buf.len; n++) /* the last four bytes are padding */
        assert_int_equal(open_exact(buf.data, n, &err), KVT_ERR_FORMAT);
    kvt_buf_finish(&buf);
    kvt_buf_init(&buf, NULL, 1 << 24);
    assert_int_equal(kvt_made_write(&buf, kvt_made_find("llama-q8_0")), KVT_OK);
    assert_int_equal(open_exact(buf.data, buf.len, &err), KVT_OK);
    for (size_t n = 0; n + 64 < buf.len; n += 64) assert_int_equal(open_exact(buf.data, n, &err), KVT_ERR_FORMAT);
    kvt_buf_finish(&buf);
}

static void flipped_anywhere(void **state) {
    (void)state;
    struct kvt_buf buf;
    struct kvt_error err;
    const size_t header = small_file(&buf);
    int n_opened = 0, n_refused = 0;
    for (size_t i = 0; i < header; i++)
        for (int bit = 0; bit < 8; bit++) {
            buf.data[i] = (char)(buf.data[i] ^ 1 << bit);
            const enum kvt_status status = open_exact(buf.data, buf.len, &err);
            n_opened += status == KVT_OK;
            n_refused += status != KVT_OK;
            buf.data[i] = (char)(buf.data[i] ^ 1 << bit);
        }
    assert_true(n_opened > 500 && n_refused > 500); /* a value or a name may change unseen, a length may not */
    kvt_buf_finish(&buf);
    kvt_buf_init(&buf, NULL, 1 << 24);
    assert_int_equal(kvt_made_write(&buf, kvt_made_find("qwen3")), KVT_OK);
    struct kvt_rng rng = {7};
    for (size_t i = 0; i < 12000; i += 1 + kvt_rng_below(&rng, 8)) {
        const char old = buf.data[i];
        buf.data[i] = (char)(old ^ 1 << kvt_rng_below(&rng, 8));
        (void)open_exact(buf.data, buf.len, &err);
        buf.data[i] = old;
    }
    kvt_buf_finish(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions),        cmocka_unit_test(counts),
        cmocka_unit_test(arrays),          cmocka_unit_test(keys),
        cmocka_unit_test(alignments),      cmocka_unit_test(tensors),
        cmocka_unit_test(cut_anywhere),    cmocka_unit_test(flipped_anywhere),
        cmocka_unit_test(plain_cut_short), cmocka_unit_test(sentences_name_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
