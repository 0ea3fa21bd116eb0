/* SPDX-License-Identifier: Apache-2.0
 * Tensors as matrices, single rows of them, and strips. */
#include "base/check.h"
#include "weight/strip.h"

enum kvt_status kvt_weight_bind(struct kvt_weight *out, const struct kvt_gguf_tensor *tensor, struct kvt_error *err) {
    const struct kvt_weight_type *type = kvt_weight_type_find(tensor->type->id);
    if (!type)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "tensor %s: type %s cannot be computed with; known: %s", tensor->name,
                        tensor->type->name, kvt_weight_type_names());
    if (tensor->n_dims < 1 || tensor->n_dims > 2)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "tensor %s: has %d dimensions; a matrix has 1 or 2", tensor->name,
                        tensor->n_dims);
    const int64_t n_in = tensor->dims[0], n_out = tensor->n_dims == 2 ? tensor->dims[1] : 1;
    if (n_in < 1 || n_out < 1 || n_in % type->block_len != 0)
        return kvt_fail(err, KVT_ERR_FORMAT,
                        "tensor %s: a row of %lld elements is not a whole number of blocks of %d (%s)", tensor->name,
                        (long long)n_in, type->block_len, tensor->type->name);
    size_t row_bytes, bytes;
    if (!kvt_mul_ok((size_t)(n_in / type->block_len), type->block_bytes, &row_bytes) ||
        !kvt_mul_ok(row_bytes, (size_t)n_out, &bytes) || bytes > tensor->bytes)
        return kvt_fail(err, KVT_ERR_FORMAT, "tensor %s: %lld x %lld elements of %s do not fit its %zu bytes",
                        tensor->name, (long long)n_in, (long long)n_out, tensor->type->name, tensor->bytes);
    *out = (struct kvt_weight){type, tensor->data, n_in, n_out, row_bytes, NULL};
    return KVT_OK;
}

void kvt_weight_row(const struct kvt_weight *w, int64_t row, float *dst, enum kvt_level level) {
    KVT_ASSERT(row >= 0 && row < w->n_out);
    const struct kvt_weight_kernels *k = kvt_weight_kernels_find(w->type, level);
    const unsigned char *src = w->data + (size_t)row * w->row_bytes;
    if (k)
        k->decode(dst, src, w->n_in);
    else
        kvt_weight_decode_ref(w->type, dst, src, w->n_in);
}

static size_t strip_bytes(const struct kvt_weight *w) {
    return (size_t)(w->n_in / w->type->block_len) * w->type->codes->unit_bytes;
}

size_t kvt_weight_packed_bytes(const struct kvt_weight *w) {
    if (!w->type->codes || !kvt_weight_kernels_find(w->type, kvt_level_best())) return 0;
    return (size_t)kvt_div_up(w->n_out, KVT_STRIP_ROWS) * strip_bytes(w);
}

struct packing {
    unsigned char *dst;
    const struct kvt_weight *w;
};

static void pack_strip(void *arg, int i, int thread) {
    (void)thread;
    const struct packing *p = arg;
    const struct kvt_weight *w = p->w;
    const int64_t first = (int64_t)i * KVT_STRIP_ROWS;
    w->type->codes->pack(p->dst + (size_t)i * strip_bytes(w), w->data + (size_t)first * w->row_bytes, w->row_bytes,
                         (int)KVT_MIN(w->n_out - first, KVT_STRIP_ROWS), w->n_in / w->type->block_len);
}

void kvt_weight_pack(unsigned char *dst, const struct kvt_weight *w, const struct kvt_parallel *parallel) {
    struct packing p = {dst, w};
    kvt_parallel_run(parallel, (int)kvt_div_up(w->n_out, KVT_STRIP_ROWS), pack_strip, &p);
}
