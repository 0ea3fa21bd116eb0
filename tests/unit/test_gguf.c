/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading GGUF: what the writer wrote, of every kind; the repository's model; no memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "gguf/gguf.h"
#include "gguf/write.h"
#include "support/fail_each.h"

static const int64_t dims_blocks[4] = {32, 3, 2, 2}, dims_floats[1] = {5};

/* Every kind as a value and as an array, and two tensors. Eight bytes serve for any number: FE FF FF FF FF FF FF 7F. */
static enum kvt_status write_all_kinds(struct kvt_buf *buf, uint32_t alignment, const struct kvt_allocator *a) {
    const uint64_t number = (uint64_t)INT64_MAX - 1;
    static const unsigned char truths[4] = {1, 0, 1, 1};
    static const char *const texts[3] = {"", "one", "two words"};
    struct kvt_gguf_writer *w;
    const enum kvt_status status = kvt_gguf_writer_create(&w, a);
    if (status != KVT_OK) return status;
    if (alignment) kvt_gguf_writer_align(w, alignment);
    for (int i = 0; i < KVT_GGUF_KIND_COUNT; i++) {
        const enum kvt_gguf_kind kind = (enum kvt_gguf_kind)i;
        char one[32], many[32];
        snprintf(one, sizeof one, "one.%s", kvt_gguf_kind_name(kind));
        snprintf(many, sizeof many, "many.%s", kvt_gguf_kind_name(kind));
        if (kind == KVT_GGUF_STRING || kind == KVT_GGUF_ARRAY || kind == KVT_GGUF_BOOL) continue;
        kvt_gguf_add_value(w, one, kind, &number);
        kvt_gguf_add_array(w, many, kind, &number, 1);
    }
    kvt_gguf_add_bool(w, "one.bool", true);
    kvt_gguf_add_array(w, "many.bool", KVT_GGUF_BOOL, truths, 4);
    kvt_gguf_add_text(w, "one.string", "text");
    kvt_gguf_add_texts(w, "many.string", texts, 3);
    kvt_gguf_add_texts(w, "none", NULL, 0);
    kvt_gguf_add_f32(w, "half", 0.5f);
    kvt_gguf_add_i32s(w, "ints", (const int32_t[]){-1, 2, INT32_MIN}, 3);
    unsigned char data[32 * 3 * 2 * 2 / 32 * 34];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7);
    kvt_gguf_add_tensor(w, "blocks", 8, 4, dims_blocks, data, sizeof data);
    kvt_gguf_add_tensor(w, "floats", 0, 1, dims_floats, (const float[]){1, 2, 3, 4, 5}, 20);
    const enum kvt_status end = kvt_gguf_writer_finish(w, buf);
    kvt_gguf_writer_destroy(w);
    return end;
}

static struct kvt_gguf *open_buf(const struct kvt_buf *buf) {
    struct kvt_gguf *gguf = NULL;
    struct kvt_error err = {KVT_OK, ""};
    if (kvt_gguf_open_memory(&gguf, buf->data, buf->len, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    return gguf;
}

static int64_t int_of(const struct kvt_gguf *gguf, const char *key, uint64_t i) {
    int64_t n = 0;
    assert_non_null(kvt_gguf_find(gguf, key));
    assert_true(kvt_gguf_as_i64(kvt_gguf_find(gguf, key), i, &n));
    return n;
}

static void check_numbers(const struct kvt_gguf *g) {
    static const struct {
        const char *name;
        int64_t value;
    } ints[] = {{"uint8", 0xFE},        {"int8", -2},  {"uint16", 0xFFFE},        {"int16", -2},
                {"uint32", 0xFFFFFFFE}, {"int32", -2}, {"uint64", INT64_MAX - 1}, {"int64", INT64_MAX - 1}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(ints); i++) {
        char key[32];
        snprintf(key, sizeof key, "one.%s", ints[i].name);
        assert_int_equal(int_of(g, key, 0), ints[i].value);
        snprintf(key, sizeof key, "many.%s", ints[i].name);
        assert_int_equal(int_of(g, key, 0), ints[i].value);
        double x = 0;
        assert_true(kvt_gguf_as_f64(kvt_gguf_find(g, key), 0, &x));
        assert_true(x == (double)ints[i].value);
    }
    assert_int_equal(int_of(g, "ints", 0), -1);
    assert_int_equal(int_of(g, "ints", 1), 2);
    assert_int_equal(int_of(g, "ints", 2), INT32_MIN);
    double x = 0;
    int64_t n = 77;
    assert_true(kvt_gguf_as_f64(kvt_gguf_find(g, "half"), 0, &x));
    assert_true(x == 0.5);
    assert_false(kvt_gguf_as_i64(kvt_gguf_find(g, "half"), 0, &n));
    assert_false(kvt_gguf_as_i64(kvt_gguf_find(g, "one.string"), 0, &n));
    assert_false(kvt_gguf_as_f64(kvt_gguf_find(g, "one.string"), 0, &x));
    assert_int_equal(n, 77);
}

static void check_texts(const struct kvt_gguf *g) {
    const struct kvt_gguf_value *v = kvt_gguf_find(g, "many.string");
    assert_non_null(v);
    assert_int_equal(v->kind, KVT_GGUF_ARRAY);
    assert_int_equal(v->element, KVT_GGUF_STRING);
    assert_int_equal(v->count, 3);
    assert_int_equal(v->text[0].len, 0);
    assert_int_equal(v->text[1].len, 3);
    assert_memory_equal(v->text[1].data, "one", 3);
    assert_int_equal(v->text[2].len, 9);
    assert_memory_equal(v->text[2].data, "two words", 9);
    struct kvt_slice text;
    assert_int_equal(kvt_gguf_get_text(g, "one.string", &text, NULL), KVT_OK);
    assert_int_equal(text.len, 4);
    assert_memory_equal(text.data, "text", 4);
    assert_int_equal(kvt_gguf_find(g, "none")->count, 0);
    static const int64_t truths[4] = {1, 0, 1, 1};
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(int_of(g, "many.bool", i), truths[i]);
}

static void check_tensors(const struct kvt_gguf *g) {
    assert_int_equal(kvt_gguf_n_tensors(g), 2);
    assert_null(kvt_gguf_tensor_find(g, "block"));
    const struct kvt_gguf_tensor *t = kvt_gguf_tensor_find(g, "blocks");
    assert_ptr_equal(t, kvt_gguf_tensor(g, 0));
    assert_string_equal(t->name, "blocks");
    assert_string_equal(t->type->name, "Q8_0");
    assert_int_equal(t->n_dims, 4);
    assert_memory_equal(t->dims, dims_blocks, sizeof dims_blocks);
    assert_int_equal(t->bytes, 12 * 34);
    for (size_t i = 0; i < t->bytes; i++) assert_int_equal(t->data[i], (unsigned char)(i * 7));
    t = kvt_gguf_tensor_find(g, "floats");
    const int64_t dims[4] = {5, 1, 1, 1};
    assert_memory_equal(t->dims, dims, sizeof dims);
    assert_memory_equal(t->data, ((const float[]){1, 2, 3, 4, 5}), 20);
    assert_int_equal((uintptr_t)t->data % kvt_gguf_alignment(g), 0); /* the buffer is aligned to 64 */
}

static void round_trip_of_every_kind(void **state) {
    (void)state;
    static const uint32_t alignments[] = {0, 8, 64};
    for (size_t i = 0; i < KVT_ARRAY_LEN(alignments); i++) {
        struct kvt_buf buf;
        kvt_buf_init(&buf, NULL, 1 << 20);
        assert_int_equal(write_all_kinds(&buf, alignments[i], NULL), KVT_OK);
        struct kvt_gguf *g = open_buf(&buf);
        assert_int_equal(kvt_gguf_version(g), 3);
        assert_int_equal(kvt_gguf_alignment(g), alignments[i] ? alignments[i] : 32);
        assert_int_equal(kvt_gguf_bytes(g), buf.len);
        check_numbers(g);
        check_texts(g);
        check_tensors(g);
        for (size_t k = 0; k < kvt_gguf_n_keys(g); k++)
            assert_ptr_equal(kvt_gguf_find(g, kvt_gguf_key(g, k)), kvt_gguf_value(g, k));
        assert_null(kvt_gguf_find(g, "one"));
        kvt_gguf_close(g);
        kvt_buf_finish(&buf);
    }
}

static void typed_look_ups_say_what_is_wrong(void **state) {
    (void)state;
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, 1 << 20);
    struct kvt_gguf_writer *w;
    assert_int_equal(kvt_gguf_writer_create(&w, NULL), KVT_OK);
    kvt_gguf_add_u32(w, "n", 7);
    kvt_gguf_add_value(w, "big", KVT_GGUF_U64, &(uint64_t){UINT64_MAX});
    kvt_gguf_add_f32(w, "x", 2.5f);
    kvt_gguf_add_value(w, "inf", KVT_GGUF_F64, &(double){1e308 * 10});
    kvt_gguf_add_bool(w, "yes", true);
    kvt_gguf_add_text(w, "s", "abc");
    kvt_gguf_add_i32s(w, "list", (const int32_t[]){7}, 1);
    assert_int_equal(kvt_gguf_writer_finish(w, &buf), KVT_OK);
    kvt_gguf_writer_destroy(w);
    struct kvt_gguf *g = open_buf(&buf);
    struct kvt_error err = {KVT_OK, "untouched"};
    int64_t n = -1;
    double x = -1;
    bool yes = false;
    struct kvt_slice s = {NULL, 0};
    assert_int_equal(kvt_gguf_get_int(g, "absent", 0, 9, &n, &err), KVT_ERR_NOTFOUND);
    assert_int_equal(kvt_gguf_get_float(g, "absent", &x, &err), KVT_ERR_NOTFOUND);
    assert_int_equal(kvt_gguf_get_bool(g, "absent", &yes, &err), KVT_ERR_NOTFOUND);
    assert_int_equal(kvt_gguf_get_text(g, "absent", &s, &err), KVT_ERR_NOTFOUND);
    assert_string_equal(err.text, "untouched");
    assert_int_equal(kvt_gguf_get_int(g, "n", 0, 6, &n, &err), KVT_ERR_FORMAT);
    assert_string_equal(err.text, "the metadata key 'n' is 7; it must be from 0 to 6");
    assert_int_equal(kvt_gguf_get_int(g, "n", 8, 9, &n, &err), KVT_ERR_FORMAT);
    assert_int_equal(kvt_gguf_get_int(g, "big", 0, 6, &n, &err), KVT_ERR_FORMAT);
    assert_string_equal(err.text, "the metadata key 'big' is past 2^63; it must be from 0 to 6");
    assert_int_equal(kvt_gguf_get_int(g, "x", 0, 6, &n, &err), KVT_ERR_FORMAT);
    assert_string_equal(err.text, "the metadata key 'x' is of type float32; it must be an integer");
    assert_int_equal(kvt_gguf_get_int(g, "list", 0, 9, &n, &err), KVT_ERR_FORMAT);
    assert_int_equal(kvt_gguf_get_float(g, "s", &x, &err), KVT_ERR_FORMAT);
    assert_int_equal(kvt_gguf_get_float(g, "inf", &x, &err), KVT_ERR_FORMAT);
    assert_int_equal(kvt_gguf_get_bool(g, "n", &yes, &err), KVT_ERR_FORMAT);
    assert_int_equal(kvt_gguf_get_text(g, "n", &s, &err), KVT_ERR_FORMAT);
    assert_true(n == -1 && x == -1 && !yes && !s.data);
    assert_int_equal(kvt_gguf_get_int(g, "n", 7, 7, &n, &err), KVT_OK);
    assert_int_equal(kvt_gguf_get_float(g, "x", &x, &err), KVT_OK);
    assert_int_equal(kvt_gguf_get_bool(g, "yes", &yes, &err), KVT_OK);
    assert_true(n == 7 && x == 2.5 && yes);
    assert_int_equal(kvt_gguf_get_float(g, "n", &x, &err), KVT_OK);
    assert_true(x == 7);
    kvt_gguf_close(g);
    kvt_buf_finish(&buf);
}

/* The facts of models/README.md. */
static void the_plain_model(void **state) {
    (void)state;
    struct kvt_gguf *g;
    struct kvt_error err;
    if (kvt_gguf_open(&g, KVT_ROOT "/models/plain.gguf", NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    static const struct {
        const char *key;
        int64_t value;
    } facts[] = {{"llama.block_count", 8},
                 {"llama.context_length", 4096},
                 {"llama.embedding_length", 384},
                 {"llama.feed_forward_length", 1024},
                 {"llama.attention.head_count", 4},
                 {"llama.attention.head_count_kv", 2},
                 {"llama.attention.key_length", 128},
                 {"llama.vocab_size", 4096},
                 {"tokenizer.ggml.bos_token_id", 0}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(facts); i++) assert_int_equal(int_of(g, facts[i].key, 0), facts[i].value);
    double theta;
    assert_int_equal(kvt_gguf_get_float(g, "llama.rope.freq_base", &theta, NULL), KVT_OK);
    assert_true(theta == 100000);
    assert_int_equal(kvt_gguf_n_keys(g), 24);
    assert_int_equal(kvt_gguf_n_tensors(g), 2 + 8 * 9);
    const struct kvt_gguf_value *tokens = kvt_gguf_find(g, "tokenizer.ggml.tokens");
    assert_int_equal(tokens->count, 4096);
    assert_int_equal(tokens->text[0].len, 13);
    assert_memory_equal(tokens->text[0].data, "<|endoftext|>", 13);
    const struct kvt_gguf_tensor *t = kvt_gguf_tensor_find(g, "token_embd.weight");
    assert_string_equal(t->type->name, "Q8_0");
    assert_true(t->n_dims == 2 && t->dims[0] == 384 && t->dims[1] == 4096);
    assert_int_equal(t->bytes, 4096 * 384 / 32 * 34);
    assert_string_equal(kvt_gguf_tensor_find(g, "blk.7.attn_norm.weight")->type->name, "F32");
    assert_null(kvt_gguf_tensor_find(g, "output.weight"));
    kvt_gguf_close(g);
}

static enum kvt_status write_and_read(void *ctx, const struct kvt_allocator *a) {
    (void)ctx;
    struct kvt_buf buf;
    kvt_buf_init(&buf, a, 1 << 20);
    enum kvt_status status = write_all_kinds(&buf, 0, a);
    struct kvt_gguf *g = NULL;
    if (status == KVT_OK) status = kvt_gguf_open_memory(&g, buf.data, buf.len, a, NULL);
    if (status == KVT_OK)
        kvt_gguf_close(g);
    else
        assert_null(g);
    kvt_buf_finish(&buf);
    return status;
}

/* A file's bytes are read again; the caller's memory is left alone. */
static void released_tensors_keep_their_bytes(void **state) {
    (void)state;
    struct kvt_buf file;
    struct kvt_gguf *of_file = NULL, *of_memory = NULL;
    kvt_buf_init(&file, NULL, 1 << 26);
    assert_int_equal(kvt_file_read(&file, KVT_ROOT "/models/plain.gguf", NULL), KVT_OK);
    assert_int_equal(kvt_gguf_open(&of_file, KVT_ROOT "/models/plain.gguf", NULL, NULL), KVT_OK);
    assert_int_equal(kvt_gguf_open_memory(&of_memory, file.data, file.len, NULL, NULL), KVT_OK);
    for (size_t i = 0; i < kvt_gguf_n_tensors(of_file); i++) {
        const struct kvt_gguf_tensor *t = kvt_gguf_tensor(of_file, i), *copy = kvt_gguf_tensor(of_memory, i);
        kvt_gguf_release(of_file, t->data, t->bytes);
        kvt_gguf_release(of_memory, copy->data, copy->bytes);
        assert_memory_equal(t->data, copy->data, t->bytes);
    }
    kvt_gguf_close(of_file);
    kvt_gguf_close(of_memory);
    kvt_buf_finish(&file);
}

static void every_take_may_fail(void **state) {
    (void)state;
    assert_true(kvt_fail_each(write_and_read, NULL) > 30);
}

/* A vocabulary of the largest models opens at once and is indexed whole. */
static void many_strings(void **state) {
    (void)state;
    enum { N = 262144 };
    const struct kvt_allocator a = kvt_allocator_libc;
    const char **texts = kvt_take(&a, N, sizeof *texts);
    assert_non_null(texts);
    for (int i = 0; i < N; i++) texts[i] = &"abcdefgh"[i % 9];
    struct kvt_gguf_writer *w;
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, 1 << 26);
    assert_int_equal(kvt_gguf_writer_create(&w, NULL), KVT_OK);
    kvt_gguf_add_texts(w, "tokens", texts, N);
    assert_int_equal(kvt_gguf_writer_finish(w, &buf), KVT_OK);
    kvt_gguf_writer_destroy(w);
    struct kvt_gguf *g = open_buf(&buf);
    const struct kvt_gguf_value *v = kvt_gguf_find(g, "tokens");
    assert_int_equal(v->count, N);
    for (int i = 0; i < N; i++) assert_int_equal(v->text[i].len, 8 - i % 9);
    kvt_gguf_close(g);
    kvt_buf_finish(&buf);
    kvt_give(&a, texts, N, sizeof *texts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip_of_every_kind), cmocka_unit_test(typed_look_ups_say_what_is_wrong),
        cmocka_unit_test(the_plain_model),          cmocka_unit_test(released_tensors_keep_their_bytes),
        cmocka_unit_test(every_take_may_fail),      cmocka_unit_test(many_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
