/* SPDX-License-Identifier: Apache-2.0
 * Loading models: what a file says of itself, and every way in which it can be refused by name. Bad files are made from a
 * good one by copying it with one change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "gguf/write.h"
#include "model/model.h"
#include "support/make_model.h"

/* One change: a key or tensor dropped, a key given another value, a tensor renamed or reshaped, or one more of either. */
struct change {
    const char *drop_key, *drop_tensor;
    const char *u32_key, *f32_key, *text_key, *i32s_key;
    uint32_t u32;
    float f32;
    const char *text;
    int32_t i32s[4];
    int n_i32s;
    const char *swap_dims_of, *add_tensor;
};

static bool is(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

static void copy_value(struct kvt_gguf_writer *w, const char *key, const struct kvt_gguf_value *v) {
    const enum kvt_gguf_kind kind = v->kind == KVT_GGUF_ARRAY ? v->element : v->kind;
    if (kind != KVT_GGUF_STRING) {
        if (v->kind == KVT_GGUF_ARRAY)
            kvt_gguf_add_array(w, key, kind, v->data, v->count);
        else
            kvt_gguf_add_value(w, key, kind, v->data);
        return;
    }
    char **texts = calloc(v->count, sizeof *texts);
    for (uint64_t i = 0; i < v->count; i++) {
        texts[i] = calloc(v->text[i].len + 1, 1);
        memcpy(texts[i], v->text[i].data, v->text[i].len);
    }
    if (v->kind == KVT_GGUF_ARRAY)
        kvt_gguf_add_texts(w, key, (const char *const *)texts, v->count);
    else
        kvt_gguf_add_text(w, key, texts[0]);
    for (uint64_t i = 0; i < v->count; i++) free(texts[i]);
    free(texts);
}

static void copy_keys(struct kvt_gguf_writer *w, const struct kvt_gguf *g, const struct change *c) {
    for (size_t i = 0; i < kvt_gguf_n_keys(g); i++) {
        const char *key = kvt_gguf_key(g, i);
        if (is(key, c->drop_key) || is(key, c->u32_key) || is(key, c->f32_key) || is(key, c->text_key) ||
            is(key, c->i32s_key))
            continue;
        copy_value(w, key, kvt_gguf_value(g, i));
    }
    if (c->u32_key) kvt_gguf_add_u32(w, c->u32_key, c->u32);
    if (c->f32_key) kvt_gguf_add_f32(w, c->f32_key, c->f32);
    if (c->text_key) kvt_gguf_add_text(w, c->text_key, c->text);
    if (c->i32s_key) kvt_gguf_add_i32s(w, c->i32s_key, c->i32s, (size_t)c->n_i32s);
}

static void copy_tensors(struct kvt_gguf_writer *w, const struct kvt_gguf *g, const struct change *c) {
    for (size_t i = 0; i < kvt_gguf_n_tensors(g); i++) {
        const struct kvt_gguf_tensor *t = kvt_gguf_tensor(g, i);
        if (is(t->name, c->drop_tensor)) continue;
        const int64_t swapped[] = {t->dims[1], t->dims[0]};
        const bool swap = is(t->name, c->swap_dims_of);
        kvt_gguf_add_tensor(w, t->name, t->type->id, swap ? 2 : t->n_dims, swap ? swapped : t->dims, t->data, t->bytes);
    }
    const float zeros[8] = {0};
    const int64_t eight = 8;
    if (c->add_tensor) kvt_gguf_add_tensor(w, c->add_tensor, 0, 1, &eight, zeros, sizeof zeros);
}

/* Writes the changed copy of a made model; the caller removes it. */
static void write_changed(char *path, size_t size, const char *made, const struct change *c) {
    struct kvt_gguf *g = NULL;
    struct kvt_gguf_writer *w = NULL;
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, (size_t)1 << 24);
    assert_int_equal(kvt_made_file(path, size, kvt_made_find(made)), KVT_OK);
    assert_int_equal(kvt_gguf_open(&g, path, NULL, NULL), KVT_OK);
    assert_int_equal(kvt_gguf_writer_create(&w, NULL), KVT_OK);
    copy_keys(w, g, c);
    copy_tensors(w, g, c);
    assert_int_equal(kvt_gguf_writer_finish(w, &buf), KVT_OK);
    kvt_gguf_writer_destroy(w);
    kvt_gguf_close(g);
    assert_int_equal(kvt_file_write(path, buf.data, buf.len, NULL), KVT_OK);
    kvt_buf_finish(&buf);
}

static enum kvt_status load_changed(struct kvt_model **model, const char *made, const struct change *c,
                                    struct kvt_error *err) {
    char path[256];
    write_changed(path, sizeof path, made, c);
    const enum kvt_status status = kvt_model_load(model, path, NULL, err);
    remove(path);
    return status;
}

static const struct bad {
    const char *made;
    struct change change;
    enum kvt_status code;
    const char *a, *b; /* what the sentence must name */
} bad[] = {
    {"llama", {.drop_key = "general.architecture"}, KVT_ERR_FORMAT, "general.architecture", ""},
    {"llama",
     {.text_key = "general.architecture", .text = "gpt2"},
     KVT_ERR_UNSUPPORTED,
     "\"gpt2\"",
     "llama, qwen2, qwen3"},
    {"llama", {.drop_key = "llama.context_length"}, KVT_ERR_FORMAT, "llama.context_length", "no key"},
    {"llama", {.drop_key = "llama.embedding_length"}, KVT_ERR_FORMAT, "llama.embedding_length", "no key"},
    {"llama", {.drop_key = "llama.block_count"}, KVT_ERR_FORMAT, "llama.block_count", "no key"},
    {"llama", {.drop_key = "llama.feed_forward_length"}, KVT_ERR_FORMAT, "llama.feed_forward_length", "no key"},
    {"llama", {.drop_key = "llama.attention.head_count"}, KVT_ERR_FORMAT, "llama.attention.head_count", "no key"},
    {"llama", {.drop_key = "llama.attention.layer_norm_rms_epsilon"}, KVT_ERR_FORMAT, "rms_epsilon", "no key"},
    {"llama", {.u32_key = "llama.block_count", .u32 = 0}, KVT_ERR_FORMAT, "llama.block_count", ""},
    {"llama", {.u32_key = "llama.block_count", .u32 = 1000000}, KVT_ERR_FORMAT, "llama.block_count", ""},
    {"llama", {.u32_key = "llama.block_count", .u32 = 3}, KVT_ERR_FORMAT, "blk.2.attn_norm.weight", "no tensor"},
    {"llama", {.u32_key = "llama.block_count", .u32 = 1}, KVT_ERR_UNSUPPORTED, "blk.1.", "1 layers"},
    {"llama", {.u32_key = "llama.context_length", .u32 = 0}, KVT_ERR_FORMAT, "llama.context_length", ""},
    {"llama", {.u32_key = "llama.embedding_length", .u32 = 0xFFFFFFFFu}, KVT_ERR_FORMAT, "llama.embedding_length", ""},
    {"llama", {.u32_key = "llama.embedding_length", .u32 = 65}, KVT_ERR_FORMAT, "multiple of head_count 4", "65"},
    {"llama",
     {.u32_key = "llama.attention.head_count", .u32 = 0},
     KVT_ERR_FORMAT,
     "llama.attention.head_count",
     "layer 0"},
    {"llama", {.u32_key = "llama.attention.head_count", .u32 = 600000}, KVT_ERR_FORMAT, "head_count 600000", ""},
    {"llama", {.u32_key = "llama.attention.head_count_kv", .u32 = 3}, KVT_ERR_FORMAT, "4 query heads", "3 KV heads"},
    {"llama", {.u32_key = "llama.attention.head_count_kv", .u32 = 2}, KVT_ERR_FORMAT, "blk.0.attn_k.weight", "64 x 32"},
    {"llama",
     {.i32s_key = "llama.attention.head_count_kv", .i32s = {4, 4, 4}, .n_i32s = 3},
     KVT_ERR_FORMAT,
     "llama.attention.head_count_kv",
     "3 values for 2 layers"},
    {"llama",
     {.i32s_key = "llama.attention.head_count_kv", .i32s = {4, -4}, .n_i32s = 2},
     KVT_ERR_FORMAT,
     "llama.attention.head_count_kv",
     "layer 1"},
    {"llama",
     {.i32s_key = "llama.attention.head_count_kv", .i32s = {4, 2}, .n_i32s = 2},
     KVT_ERR_FORMAT,
     "blk.1.attn_k.weight",
     "64 x 64"},
    {"llama", {.text_key = "llama.feed_forward_length", .text = "96"}, KVT_ERR_FORMAT, "llama.feed_forward_length", ""},
    {"llama", {.u32_key = "llama.attention.key_length", .u32 = 24}, KVT_ERR_FORMAT, "blk.0.attn_q.weight", "64 x 96"},
    {"llama", {.u32_key = "llama.attention.value_length", .u32 = 8}, KVT_ERR_FORMAT, "blk.0.attn_v.weight", "64 x 32"},
    {"llama",
     {.u32_key = "llama.rope.dimension_count", .u32 = 15},
     KVT_ERR_FORMAT,
     "llama.rope.dimension_count",
     "odd"},
    {"llama", {.u32_key = "llama.rope.dimension_count", .u32 = 18}, KVT_ERR_FORMAT, "llama.rope.dimension_count", ""},
    {"llama", {.f32_key = "llama.rope.freq_base", .f32 = 0}, KVT_ERR_FORMAT, "llama.rope.freq_base", "outside"},
    {"llama", {.f32_key = "llama.rope.scaling.factor", .f32 = -1}, KVT_ERR_FORMAT, "llama.rope.scaling.factor", "-1"},
    {"llama", {.text_key = "llama.rope.scaling.type", .text = "longrope"}, KVT_ERR_UNSUPPORTED, "\"longrope\"", "yarn"},
    {"llama",
     {.f32_key = "llama.rope.scaling.yarn_log_multiplier", .f32 = 0.1f},
     KVT_ERR_UNSUPPORTED,
     "log_multiplier",
     ""},
    {"llama",
     {.f32_key = "llama.attention.layer_norm_rms_epsilon", .f32 = -1e-5f},
     KVT_ERR_FORMAT,
     "rms_epsilon",
     "outside"},
    {"llama", {.u32_key = "llama.expert_count", .u32 = 8}, KVT_ERR_UNSUPPORTED, "8 experts", "llama.expert_count"},
    {"llama", {.drop_tensor = "token_embd.weight"}, KVT_ERR_FORMAT, "token_embd.weight", "no tensor"},
    {"llama", {.drop_tensor = "output_norm.weight"}, KVT_ERR_FORMAT, "output_norm.weight", "no tensor"},
    {"llama", {.drop_tensor = "blk.1.ffn_down.weight"}, KVT_ERR_FORMAT, "blk.1.ffn_down.weight", "no tensor"},
    {"llama",
     {.swap_dims_of = "blk.1.ffn_up.weight"},
     KVT_ERR_FORMAT,
     "blk.1.ffn_up.weight has the shape 96 x 64",
     "64 x 96"},
    {"llama", {.swap_dims_of = "blk.0.attn_norm.weight"}, KVT_ERR_FORMAT, "blk.0.attn_norm.weight", "make it 64"},
    {"llama", {.add_tensor = "blk.0.ffn_gate_inp.weight"}, KVT_ERR_UNSUPPORTED, "blk.0.ffn_gate_inp.weight", "llama"},
    {"llama", {.add_tensor = "blk.9.attn_q.bias"}, KVT_ERR_UNSUPPORTED, "blk.9.attn_q.bias", "2 layers"},
    {"llama", {.add_tensor = "blk.0.attn_q.bias"}, KVT_ERR_FORMAT, "blk.0.attn_q.bias", "make it 64"},
    {"llama", {.add_tensor = "rope_freqs.weight"}, KVT_ERR_FORMAT, "rope_freqs.weight", "element 0 is 0"},
    {"qwen2", {.drop_tensor = "blk.0.attn_k.bias"}, KVT_ERR_FORMAT, "blk.0.attn_k.bias", "qwen2"},
    {"qwen3", {.drop_tensor = "blk.0.attn_k_norm.weight"}, KVT_ERR_FORMAT, "blk.0.attn_k_norm.weight", "qwen3"},
    {"qwen3", {.add_tensor = "blk.0.attn_v.bias"}, KVT_ERR_UNSUPPORTED, "blk.0.attn_v.bias", "qwen3"},
};

static void refuses_by_name(void **state) {
    const struct bad *b = *state;
    struct kvt_model *model = NULL;
    struct kvt_error err = {0};
    assert_int_equal(load_changed(&model, b->made, &b->change, &err), b->code);
    assert_null(model);
    assert_int_equal(err.code, b->code);
    if (!strstr(err.text, b->a) || !strstr(err.text, b->b))
        fail_msg("no \"%s\" and \"%s\" in: %s", b->a, b->b, err.text);
}

/* One value for each layer is as good as one for all; tensors that repeat the metadata are passed over. */
static void accepts_what_means_the_same(void **state) {
    (void)state;
    const struct change changes[] = {
        {.i32s_key = "llama.attention.head_count_kv", .i32s = {4, 4}, .n_i32s = 2},
        {.i32s_key = "llama.feed_forward_length", .i32s = {96, 96}, .n_i32s = 2},
        {.drop_key = "llama.attention.head_count_kv"},
        {.add_tensor = "blk.0.attn_rot_embd.weight"},
        {.u32_key = "llama.expert_count", .u32 = 0},
        {.drop_key = "general.name"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct kvt_model *model = NULL;
        struct kvt_error err = {0};
        const enum kvt_status status = load_changed(&model, "llama", &changes[i], &err);
        if (status != KVT_OK) fail_msg("change %zu: %s", i, err.text);
        kvt_model_destroy(model);
    }
}

static void says_what_it_is(void **state) {
    (void)state;
    struct kvt_model *model = NULL;
    assert_int_equal(kvt_model_load(&model, KVT_ROOT "/models/biased.gguf", NULL, NULL), KVT_OK);
    const struct kvt_model_info info = kvt_model_info(model);
    assert_string_equal(info.arch, "llama");
    assert_string_equal(info.types, "Q8_0, F32");
    assert_int_equal(info.n_layers, 8);
    assert_int_equal(info.width, 384);
    assert_int_equal(info.n_q_heads, 4);
    assert_int_equal(info.n_kv_heads, 2);
    assert_int_equal(info.k_size, 128);
    assert_int_equal(info.v_size, 128);
    assert_int_equal(info.n_vocab, 4096);
    assert_int_equal(info.n_ctx_train, 4096);
    assert_int_equal(info.n_params, 15743360);
    assert_true(info.file_bytes > 16000000 && info.file_bytes < 18000000);
    assert_int_equal(kvt_text_n_tokens(kvt_model_text(model)), 4096);
    const struct kvt_shape shape = kvt_model_shape(model);
    assert_int_equal(shape.n_layers, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(shape.layers[i].n_kv_heads, 2);
        assert_int_equal(shape.layers[i].k_size, 128);
        assert_int_equal(shape.layers[i].v_size, 128);
        assert_int_equal(shape.layers[i].window, 0);
    }
    kvt_model_destroy(model);
}

struct watch {
    int n, cancel_at;
    uint64_t last, total;
};

static bool report(void *ctx, const char *what, uint64_t done, uint64_t total) {
    struct watch *watch = ctx;
    assert_string_equal(what, "load");
    assert_true(done >= watch->last && done <= total);
    watch->last = done;
    watch->total = total;
    return watch->n++ != watch->cancel_at;
}

static void reports_loading_and_cancels(void **state) {
    (void)state;
    struct watch watch = {.cancel_at = -1};
    const struct kvt_progress progress = {report, &watch};
    const struct kvt_model_options options = {.progress = &progress};
    struct kvt_model *model = NULL;
    struct kvt_error err = {0};
    assert_int_equal(kvt_model_load(&model, KVT_ROOT "/models/plain.gguf", &options, &err), KVT_OK);
    assert_true(watch.n > 10 && watch.last == watch.total);
    kvt_model_destroy(model);
    model = NULL;
    watch = (struct watch){.cancel_at = 3};
    assert_int_equal(kvt_model_load(&model, KVT_ROOT "/models/plain.gguf", &options, &err), KVT_ERR_CANCELLED);
    assert_null(model);
    assert_int_equal(watch.n, 4);
}

static bool cancel(void *ctx, const char *what, uint64_t done, uint64_t total) {
    int *n_left = ctx;
    assert_string_equal(what, "weights");
    assert_true(done < total);
    return (*n_left)-- > 0;
}

static void first_logits(const struct kvt_model *model, float *dst) {
    struct kvt_session *session = NULL;
    static const int32_t ids[] = {5, 9, 2};
    assert_int_equal(kvt_session_create(&session, model, &(struct kvt_session_options){.n_ctx = 8}, NULL), KVT_OK);
    assert_int_equal(kvt_session_eval(session, ids, 3, 1, NULL, NULL), KVT_OK);
    assert_int_equal(kvt_session_logits(session, 0, 1, dst, NULL), KVT_OK);
    kvt_session_destroy(session);
}

/* Packing that was cancelled, or had no memory, leaves a model that can be packed later, and is done once. */
static void packs_weights_once(void **state) {
    (void)state;
    struct kvt_alloc_counter counter = {.fail_at = 0};
    const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
    const struct kvt_model_options options = {.allocator = &allocator};
    struct kvt_model *model = NULL, *other = NULL;
    struct kvt_place_info info;
    static float want[8192], got[8192];
    int n_left = 3;
    const struct kvt_progress progress = {cancel, &n_left};
    assert_int_equal(kvt_model_load(&model, KVT_ROOT "/models/plain.gguf", &options, NULL), KVT_OK);
    assert_int_equal(kvt_model_load(&other, KVT_ROOT "/models/plain.gguf", NULL, NULL), KVT_OK);
    assert_true(kvt_model_info(model).n_vocab <= 8192);
    first_logits(other, want);
    if (kvt_level_best() != KVT_LEVEL_REF) {
        assert_int_equal(kvt_model_place(model, (struct kvt_place){NULL, 0}, NULL, &progress, NULL, NULL),
                         KVT_ERR_CANCELLED);
        atomic_store(&counter.fail_at, 1);
        assert_int_equal(kvt_model_place(model, (struct kvt_place){NULL, 0}, NULL, NULL, NULL, NULL), KVT_ERR_NOMEM);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvt_model_place(model, (struct kvt_place){NULL, 0}, NULL, NULL, &info, NULL), KVT_OK);
        const size_t n_blocks = counter.live_blocks;
        first_logits(model, got);
        assert_int_equal(counter.live_blocks, n_blocks);
        assert_memory_equal(want, got, (size_t)kvt_model_info(model).n_vocab * sizeof *got);
    }
    assert_int_equal(info.bytes, 0);
    assert_true((info.packed_bytes > 0) == (kvt_level_best() != KVT_LEVEL_REF));
    kvt_model_destroy(other);
    kvt_model_destroy(model);
    assert_int_equal(counter.live_blocks, 0);
}

static void refuses_files_that_are_none(void **state) {
    (void)state;
    struct kvt_model *model = NULL;
    struct kvt_error err = {0};
    assert_int_equal(kvt_model_load(&model, KVT_ROOT "/models/none.gguf", NULL, &err), KVT_ERR_IO);
    assert_int_equal(kvt_model_load(&model, KVT_ROOT "/models/README.md", NULL, &err), KVT_ERR_FORMAT);
    assert_null(model);
}

/* Every take fails once. Some may: a regular expression that cannot be compiled to machine code is interpreted. */
static void survives_lack_of_memory(void **state) {
    (void)state;
    char path[256];
    int n_refused = 0;
    assert_int_equal(kvt_made_file(path, sizeof path, kvt_made_find("llama-yarn-all")), KVT_OK);
    for (size_t at = 1;; at++) {
        struct kvt_alloc_counter counter = {.fail_at = at};
        const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
        struct kvt_model *model = NULL;
        struct kvt_error err = {0};
        const enum kvt_status status =
            kvt_model_load(&model, path, &(struct kvt_model_options){.allocator = &allocator}, &err);
        kvt_model_destroy(model);
        assert_int_equal(counter.live_blocks, 0);
        if (counter.fail_at > 0) break; /* fewer takes than at */
        if (status != KVT_OK) {
            assert_int_equal(status, KVT_ERR_NOMEM);
            assert_true(err.text[0] != 0);
            n_refused++;
        }
    }
    assert_true(n_refused > 10);
    remove(path);
}

int main(void) {
    enum { N_BAD = sizeof bad / sizeof bad[0] };
    struct CMUnitTest refusals[N_BAD];
    for (size_t i = 0; i < N_BAD; i++)
        refusals[i] = (struct CMUnitTest){bad[i].a, refuses_by_name, NULL, NULL, (void *)(uintptr_t)&bad[i]};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_what_means_the_same), cmocka_unit_test(says_what_it_is),
        cmocka_unit_test(reports_loading_and_cancels), cmocka_unit_test(refuses_files_that_are_none),
        cmocka_unit_test(survives_lack_of_memory),     cmocka_unit_test(packs_weights_once),
    };
    return _cmocka_run_group_tests("refusals", refusals, N_BAD, NULL, NULL) + cmocka_run_group_tests(tests, NULL, NULL);
}
