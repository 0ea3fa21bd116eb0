/* SPDX-License-Identifier: Apache-2.0 */
#include "model/place.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "model/pack.h"

enum { ALIGN = 256, CHUNK_FLOATS = 1 << 22 };

/* ---- what there is ---------------------------------------------------------------------------------------------------- */

struct list {
    struct kvt_placed_tensor *tensors; /* NULL: they are only counted */
    size_t n, bytes;
};

static void add_tensor(struct list *list, struct kvt_placed_tensor tensor) {
    const size_t floats = tensor.weight ? (size_t)(tensor.matrix.n_out * tensor.matrix.ld) * sizeof(uint16_t)
                                        : (size_t)tensor.n * sizeof(float);
    tensor.at = list->bytes;
    if (list->tensors) list->tensors[list->n] = tensor;
    list->n++;
    list->bytes += (floats + ALIGN - 1) / ALIGN * ALIGN;
}

static void add_matrix(struct list *list, const struct kvt_weight *w) {
    add_tensor(list, (struct kvt_placed_tensor){
                         .host = w->data,
                         .weight = w,
                         .matrix = {.scale = 1, .n_in = w->n_in, .n_out = w->n_out, .ld = kvt_compute_ld(w->n_in)}});
}

static void add_vector(struct list *list, const float *vector, int64_t n) {
    if (vector) add_tensor(list, (struct kvt_placed_tensor){.host = vector, .n = n});
}

/* A layer's tensors, by the lists of its architecture. */
static void add_layer(struct list *list, const struct kvt_model *m, const struct kvt_layer *layer,
                      const struct kvt_tensor_spec *specs) {
    for (; specs && specs->name; specs++) {
        const char *field = (const char *)layer + specs->offset;
        const struct kvt_weight *weight = (const struct kvt_weight *)(const void *)field;
        const float *vector;
        memcpy(&vector, field, sizeof vector);
        if (specs->n_out != KVT_DIM_NONE)
            add_matrix(list, weight);
        else
            add_vector(list, vector, kvt_dim_size(&m->config, &layer->config, specs->n_in));
    }
}

/* All that layers and logits need. Embeddings are looked up in the process. */
static void list_all(struct list *list, const struct kvt_model *m) {
    add_matrix(list, &m->output);
    add_vector(list, m->output_norm, m->config.width);
    for (int l = 0; l < m->config.n_layers; l++)
        for (size_t i = 0; i < KVT_ARRAY_LEN(m->arch->needs); i++) {
            add_layer(list, m, &m->layers[l], m->arch->needs[i]);
            add_layer(list, m, &m->layers[l], m->arch->may_have[i]);
        }
}

static int by_host(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t)((const struct kvt_placed_tensor *)a)->host;
    const uintptr_t y = (uintptr_t)((const struct kvt_placed_tensor *)b)->host;
    return (x > y) - (x < y);
}

static const struct kvt_placed_tensor *find_tensor(const struct kvt_placed *p, const void *host) {
    const struct kvt_placed_tensor key = {.host = host};
    const struct kvt_placed_tensor *found = bsearch(&key, p->tensors, p->n_tensors, sizeof key, by_host);
    KVT_ASSERT(found);
    return found;
}

const struct kvt_compute_matrix *kvt_placed_matrix(const struct kvt_placed *placed, const struct kvt_weight *w) {
    return &find_tensor(placed, w->data)->matrix;
}

const float *kvt_placed_vector(const struct kvt_placed *placed, const float *host) {
    return host ? find_tensor(placed, host)->vector : NULL;
}

/* ---- bringing it there ------------------------------------------------------------------------------------------------ */

/* Rows of a matrix that become f16 numbers; job: one row. */
struct rounding {
    const struct kvt_weight *weight;
    const struct kvt_compute_matrix *matrix;
    int64_t first;
    float *floats; /* a row for each thread */
    uint16_t *halves;
    float *most; /* of each thread: the largest magnitude */
    enum kvt_level level;
};

static void round_row(void *arg, int row, int thread) {
    const struct rounding *r = arg;
    const int64_t n = r->matrix->n_in, ld = r->matrix->ld;
    float *x = r->floats + thread * n, most = r->most[thread];
    uint16_t *to = r->halves + row * ld;
    const float down = 1 / r->matrix->scale;
    kvt_weight_row(r->weight, r->first + row, x, r->level);
    for (int64_t i = 0; i < n; i++) {
        const float magnitude = fabsf(x[i]);
        if (magnitude > most && magnitude <= 3e38f) most = magnitude;
        to[i] = kvt_f16_from_f32(x[i] * down);
    }
    for (int64_t i = n; i < ld; i++) to[i] = 0;
    r->most[thread] = most;
}

struct upload {
    struct kvt_placed *placed;
    const struct kvt_parallel *parallel;
    const struct kvt_progress *progress;
    float *floats, *most;
    uint16_t *halves;
    enum kvt_level level;
    uint64_t done;
};

/* *out: the largest magnitude. */
static enum kvt_status send_matrix(struct upload *u, struct kvt_placed_tensor *t, float *out, struct kvt_error *err) {
    const struct kvt_placed *p = u->placed;
    const int64_t rows = KVT_MAX(1, CHUNK_FLOATS / t->matrix.ld);
    memset(u->most, 0, (size_t)kvt_parallel_n_threads(u->parallel) * sizeof *u->most);
    for (int64_t first = 0, n; first < t->matrix.n_out; first += n) {
        n = KVT_MIN(rows, t->matrix.n_out - first);
        struct rounding r = {t->weight, &t->matrix, first, u->floats, u->halves, u->most, u->level};
        if (!kvt_progress_report(u->progress, "weights", u->done, p->bytes))
            return kvt_fail(err, KVT_ERR_CANCELLED, "bringing the weights to the device was cancelled");
        kvt_parallel_run(u->parallel, (int)n, round_row, &r);
        const size_t bytes = (size_t)(n * t->matrix.ld) * sizeof *u->halves;
        KVT_TRY(p->ops->send(p->compute, p->memory + t->at + (size_t)(first * t->matrix.ld) * sizeof *u->halves,
                             u->halves, bytes, err));
        u->done += bytes;
    }
    *out = 0;
    for (int i = 0; i < kvt_parallel_n_threads(u->parallel); i++) *out = KVT_MAX(*out, u->most[i]);
    return KVT_OK;
}

static enum kvt_status send_tensor(struct upload *u, struct kvt_placed_tensor *t, struct kvt_error *err) {
    const struct kvt_placed *p = u->placed;
    if (!t->weight) {
        t->vector = (const float *)(const void *)(p->memory + t->at);
        return p->ops->send(p->compute, p->memory + t->at, t->host, (size_t)t->n * sizeof(float), err);
    }
    const uint64_t before = u->done;
    float most = 0;
    t->matrix.halves = (const uint16_t *)(const void *)(p->memory + t->at);
    KVT_TRY(send_matrix(u, t, &most, err));
    if (most < 65504) return KVT_OK;
    while (most / t->matrix.scale >= 65504) t->matrix.scale *= 2; /* a matrix that f16 does not hold: rare */
    u->done = before;
    return send_matrix(u, t, &most, err);
}

static enum kvt_status send_all(struct kvt_placed *p, const struct kvt_model *m, const struct kvt_parallel *parallel,
                                const struct kvt_progress *progress, struct kvt_error *err) {
    const struct kvt_allocator *a = &m->allocator;
    const size_t n_threads = (size_t)kvt_parallel_n_threads(parallel);
    size_t n_in = 1, ld = CHUNK_FLOATS;
    for (size_t i = 0; i < p->n_tensors; i++) {
        n_in = KVT_MAX(n_in, (size_t)p->tensors[i].matrix.n_in);
        ld = KVT_MAX(ld, (size_t)p->tensors[i].matrix.ld);
    }
    struct upload u = {p,
                       parallel,
                       progress,
                       kvt_take(a, n_threads * n_in, sizeof(float)),
                       kvt_take(a, n_threads, sizeof(float)),
                       kvt_take(a, ld, sizeof(uint16_t)),
                       KVT_LEVEL_REF,
                       0};
    enum kvt_status status = kvt_level_parse(&u.level, "auto", err);
    if (!u.floats || !u.most || !u.halves)
        status = kvt_fail(err, KVT_ERR_NOMEM, "no memory to bring the weights to the device");
    for (size_t i = 0; i < p->n_tensors && status == KVT_OK; i++) status = send_tensor(&u, &p->tensors[i], err);
    char last; /* so that all of it is there */
    if (status == KVT_OK) status = p->ops->fetch(p->compute, &last, p->memory, 1, err);
    kvt_give(a, u.floats, n_threads * n_in, sizeof(float));
    kvt_give(a, u.most, n_threads, sizeof(float));
    kvt_give(a, u.halves, ld, sizeof(uint16_t));
    return status;
}

/* Takes the memory; says what would fit where there is too little. */
static enum kvt_status take_memory(struct kvt_placed *p, struct kvt_error *err) {
    uint64_t free_bytes = 0;
    char about[200];
    void *memory;
    KVT_TRY(p->ops->free_bytes(p->compute, &free_bytes, err));
    const enum kvt_status status =
        p->bytes > free_bytes ? KVT_ERR_NOMEM : p->ops->take(p->compute, &memory, (size_t)p->bytes, err);
    p->ops->about(p->compute, about, sizeof about);
    if (status == KVT_ERR_NOMEM)
        return kvt_fail(err, status,
                        "the model's weights take %.2f GB as f16, and %.100s has %.2f GB free: a model of %.2f "
                        "billion weights would fit there, this one on the backend cpu",
                        (double)p->bytes / 1e9, about, (double)free_bytes / 1e9, (double)free_bytes / 2e9);
    if (status == KVT_OK) p->memory = memory;
    return status;
}

static void destroy_one(const struct kvt_model *m, struct kvt_placed *p) {
    if (p->compute) {
        p->ops->give(p->compute, p->memory);
        p->ops->close(p->compute);
    }
    kvt_give(&m->allocator, p->tensors, p->n_tensors, sizeof *p->tensors);
    kvt_give(&m->allocator, p, 1, sizeof *p);
}

static enum kvt_status place(struct kvt_placed *p, const struct kvt_model *m, const struct kvt_parallel *parallel,
                             const struct kvt_progress *progress, struct kvt_error *err) {
    struct list list = {NULL, 0, 0};
    list_all(&list, m);
    p->tensors = kvt_take(&m->allocator, list.n, sizeof *p->tensors);
    if (!p->tensors) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the list of a model's tensors");
    p->n_tensors = list.n;
    list = (struct list){p->tensors, 0, 0};
    list_all(&list, m);
    p->bytes = list.bytes;
    KVT_TRY(p->ops->open(&p->compute, NULL, p->device, &m->allocator, err));
    KVT_TRY(take_memory(p, err));
    KVT_TRY(send_all(p, m, parallel, progress, err));
    qsort(p->tensors, p->n_tensors, sizeof *p->tensors, by_host);
    return KVT_OK;
}

/* ---- of a model ------------------------------------------------------------------------------------------------------- */

static struct kvt_placed *look_up(const struct kvt_model *m, const struct kvt_compute_ops *ops, int device) {
    struct kvt_placed *p = m->places->first;
    while (p && (p->ops != ops || p->device != device)) p = p->next;
    return p;
}

/* A new one, first in the list. */
static enum kvt_status add(struct kvt_placed **out, const struct kvt_model *m, const struct kvt_compute_ops *ops,
                           int device, const struct kvt_parallel *parallel, const struct kvt_progress *progress,
                           struct kvt_error *err) {
    struct kvt_placed *p = kvt_take_zero(&m->allocator, 1, sizeof *p);
    if (!p) return kvt_fail(err, KVT_ERR_NOMEM, "no memory to bring a model to a device");
    p->ops = ops;
    p->device = device;
    const enum kvt_status status = place(p, m, parallel, progress, err);
    if (status != KVT_OK) {
        destroy_one(m, p);
        return status;
    }
    p->next = m->places->first;
    m->places->first = *out = p;
    return KVT_OK;
}

enum kvt_status kvt_placed_find(const struct kvt_placed **out, const struct kvt_model *m, struct kvt_place place,
                                const struct kvt_parallel *parallel, const struct kvt_progress *progress,
                                struct kvt_error *err) {
    const struct kvt_compute_ops *ops = NULL;
    KVT_TRY(kvt_backend_compute(&ops, place.backend, err));
    struct kvt_placed *found = NULL;
    enum kvt_status status = KVT_OK;
    pthread_mutex_lock(&m->places->lock);
    if (ops)
        found = look_up(m, ops, place.device);
    else
        status = kvt_model_pack(m, parallel, progress, err);
    if (ops && !found) status = add(&found, m, ops, place.device, parallel, progress, err);
    pthread_mutex_unlock(&m->places->lock);
    if (status == KVT_OK) *out = found;
    return status;
}

void kvt_placed_destroy(const struct kvt_model *m) {
    for (struct kvt_placed *p = m->places->first, *next; p; p = next) {
        next = p->next;
        destroy_one(m, p);
    }
    m->places->first = NULL;
}

enum kvt_status kvt_model_place(const struct kvt_model *model, struct kvt_place place,
                                const struct kvt_parallel *parallel, const struct kvt_progress *progress,
                                struct kvt_place_info *info, struct kvt_error *err) {
    const struct kvt_placed *placed;
    struct kvt_place_info found = {.bytes = 0, .about = "the processor"};
    KVT_TRY(kvt_placed_find(&placed, model, place, parallel, progress, err));
    if (!placed) found.packed_bytes = model->places->packed_bytes;
    if (placed) {
        found.bytes = placed->bytes;
        placed->ops->about(placed->compute, found.about, sizeof found.about);
        KVT_TRY(placed->ops->free_bytes(placed->compute, &found.free_bytes, err));
    }
    if (info) *info = found;
    return KVT_OK;
}

enum kvt_status kvt_place_check(struct kvt_place place, struct kvt_error *err) {
    const struct kvt_compute_ops *ops = NULL;
    struct kvt_compute *compute;
    KVT_TRY(kvt_backend_compute(&ops, place.backend, err));
    if (!ops) return KVT_OK;
    KVT_TRY(ops->open(&compute, NULL, place.device, &kvt_allocator_libc, err));
    ops->close(compute);
    return KVT_OK;
}

enum kvt_status kvt_place_takes(struct kvt_place place, const struct kvt_plan *plan, struct kvt_error *err) {
    const struct kvt_compute_ops *ops = NULL;
    KVT_TRY(kvt_backend_compute(&ops, place.backend, err));
    return ops ? ops->takes(plan, err) : KVT_OK;
}
