/* SPDX-License-Identifier: Apache-2.0 */
#include "model/pack.h"

#include "base/check.h"

struct packing {
    const struct kvt_model *model;
    const struct kvt_parallel *parallel;
    const struct kvt_progress *progress;
    unsigned char *memory; /* NULL: bytes are only counted */
    size_t bytes, total;
};

static enum kvt_status pack_one(struct packing *p, struct kvt_weight *w, struct kvt_error *err) {
    const size_t bytes = kvt_weight_packed_bytes(w);
    if (p->memory && bytes) {
        if (!kvt_progress_report(p->progress, "weights", p->bytes, p->total))
            return kvt_fail(err, KVT_ERR_CANCELLED, "packing the weights was cancelled");
        kvt_weight_pack(p->memory + p->bytes, w, p->parallel);
        kvt_gguf_release(p->model->gguf, w->data, (size_t)w->n_out * w->row_bytes);
        w->packed = p->memory + p->bytes;
    }
    p->bytes += kvt_arena_need(bytes, 1);
    return KVT_OK;
}

static enum kvt_status pack_list(struct packing *p, struct kvt_layer *layer, const struct kvt_tensor_spec *specs,
                                 struct kvt_error *err) {
    for (; specs && specs->name; specs++) {
        struct kvt_weight *w = (struct kvt_weight *)(void *)((char *)layer + specs->offset);
        if (specs->n_out != KVT_DIM_NONE && w->type) KVT_TRY(pack_one(p, w, err));
    }
    return KVT_OK;
}

static enum kvt_status pack_all(struct packing *p, struct kvt_error *err) {
    const struct kvt_model *m = p->model;
    p->bytes = 0;
    for (int l = 0; l < m->config.n_layers; l++)
        for (size_t i = 0; i < KVT_ARRAY_LEN(m->arch->needs); i++) {
            KVT_TRY(pack_list(p, &m->layers[l], m->arch->needs[i], err));
            KVT_TRY(pack_list(p, &m->layers[l], m->arch->may_have[i], err));
        }
    return pack_one(p, m->places->output, err);
}

enum kvt_status kvt_model_pack(const struct kvt_model *m, const struct kvt_parallel *parallel,
                               const struct kvt_progress *progress, struct kvt_error *err) {
    struct packing p = {.model = m, .parallel = parallel, .progress = progress};
    if (m->places->packed) return KVT_OK;
    KVT_TRY(pack_all(&p, err));
    if (p.bytes == 0) return KVT_OK;
    p.total = p.bytes;
    p.memory = kvt_take(&m->allocator, p.total, 1);
    if (!p.memory)
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the packed weights of a model (%zu bytes)", p.total);
    kvt_advise_large(p.memory, p.total);
    m->places->packed = p.memory;
    m->places->packed_bytes = p.total;
    const enum kvt_status status = pack_all(&p, err);
    if (status != KVT_OK)
        kvt_model_unpack(m); /* weights may point there still: nobody multiplies before this succeeds */
    return status;
}

void kvt_model_unpack(const struct kvt_model *m) {
    kvt_give(&m->allocator, m->places->packed, m->places->packed_bytes, 1);
    m->places->packed = NULL;
}
