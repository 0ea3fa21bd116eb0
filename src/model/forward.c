/* SPDX-License-Identifier: Apache-2.0
 * A batch of tokens through all layers. */
#include "base/check.h"
#include "model/compute.h"

/* The largest sizes of any layer. */
struct widths {
    size_t q, k, v, mix, ff;
};

static struct widths widths_of(const struct kvt_model *m) {
    struct widths w = {0, 0, 0, 0, 0};
    for (int i = 0; i < m->config.n_layers; i++) {
        const struct kvt_layer *layer = &m->layers[i];
        w.q = KVT_MAX(w.q, (size_t)layer->q.n_out);
        w.k = KVT_MAX(w.k, (size_t)layer->k.n_out);
        w.v = KVT_MAX(w.v, (size_t)layer->v.n_out);
        w.mix = KVT_MAX(w.mix, (size_t)layer->out.n_in);
        w.ff = KVT_MAX(w.ff, (size_t)layer->config.n_ff);
    }
    return w;
}

/* Cuts one block into the matrices, each at a multiple of KVT_ALIGN; without a block it only counts the floats. */
static size_t cut_matrices(struct kvt_pass *p, float *block) {
    const struct widths w = widths_of(p->model);
    const size_t width = (size_t)p->model->config.width, n_rot = (size_t)p->model->rope.n_rot;
    const struct {
        float **field;
        size_t width;
    } matrices[] = {
        {&p->x, width},   {&p->h, width},   {&p->q, w.q},   {&p->k, w.k},      {&p->v, w.v},
        {&p->mix, w.mix}, {&p->gate, w.ff}, {&p->up, w.ff}, {&p->rope, n_rot},
    };
    size_t n = 0;
    for (size_t i = 0; i < KVT_ARRAY_LEN(matrices); i++) {
        if (block) *matrices[i].field = block + n;
        n += kvt_arena_need((size_t)p->n_max * matrices[i].width, sizeof(float)) / sizeof(float);
    }
    return n;
}

static enum kvt_status init(struct kvt_pass *p, const struct kvt_pass_options *o, struct kvt_error *err) {
    const size_t n = (size_t)o->n_max, n_seqs = (size_t)o->max_seqs;
    const size_t bytes = kvt_arena_need(n, sizeof *p->ids) + kvt_arena_need(n, sizeof *p->positions) +
                         kvt_arena_need(n_seqs, sizeof *p->seqs) + kvt_arena_need(n_seqs, sizeof *p->seq_rows);
    if (!kvt_arena_init(&p->arena, &p->allocator, bytes))
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for forward passes of %d tokens (%zu bytes)", o->n_max, bytes);
    p->ids = kvt_arena_take(&p->arena, n, sizeof *p->ids);
    p->positions = kvt_arena_take(&p->arena, n, sizeof *p->positions);
    p->seqs = kvt_arena_take(&p->arena, n_seqs, sizeof *p->seqs);
    p->seq_rows = kvt_arena_take(&p->arena, n_seqs, sizeof *p->seq_rows);
    KVT_TRY(p->ops->open(p, o, err));
    const size_t n_floats = cut_matrices(p, NULL);
    KVT_TRY(p->ops->take(p, &p->matrices, n_floats, err));
    p->n_floats = n_floats;
    cut_matrices(p, p->matrices);
    return KVT_OK;
}

enum kvt_status kvt_pass_init(struct kvt_pass *pass, const struct kvt_model *model,
                              const struct kvt_pass_options *options, struct kvt_error *err) {
    *pass = (struct kvt_pass){
        .model = model,
        .ops = options->placed ? &kvt_pass_ops_device : &kvt_pass_ops_host,
        .parallel = options->parallel,
        .level = options->level,
        .step = options->step,
        .allocator = *options->allocator,
        .tap = options->tap,
        .n_max = options->n_max,
    };
    return init(pass, options, err);
}

void kvt_pass_finish(struct kvt_pass *pass) {
    if (!pass->ops) return;
    if (pass->matrices) pass->ops->give(pass, pass->matrices, pass->n_floats);
    pass->ops->close(pass);
    kvt_arena_finish(&pass->arena);
    pass->ops = NULL;
}

static enum kvt_status run_layers(struct kvt_pass *p, int first_kept, struct kvt_error *err) {
    const struct kvt_model *m = p->model;
    KVT_TRY(p->ops->begin(p, err));
    for (p->layer = 0; p->layer < m->config.n_layers; p->layer++) {
        p->first = p->layer + 1 == m->config.n_layers ? first_kept : 0;
        KVT_TRY(m->arch->attend(p, &m->layers[p->layer], err));
        if (p->first < p->n) KVT_TRY(m->arch->feed(p, &m->layers[p->layer], err));
    }
    return kvt_step_end(p->step, err);
}

static void lay_out(struct kvt_pass *p, struct kvt_pass_feed *feed, int seq) {
    KVT_ASSERT(feed->n >= 1 && feed->n <= p->n_max - p->n && feed->keep >= 0 && feed->keep <= feed->n);
    p->seqs[seq] = feed->seq;
    p->seq_rows[seq] = feed->n;
    feed->row = p->n;
    for (int i = 0; i < feed->n; i++, p->n++) {
        p->ids[p->n] = feed->ids[i];
        p->positions[p->n] = kvt_seq_n_rows(feed->seq) + i;
    }
}

enum kvt_status kvt_pass_run(struct kvt_pass *p, struct kvt_pass_feed *feeds, int n_feeds, struct kvt_error *err) {
    int seq = 0;
    p->n = 0;
    /* Those that keep nothing first: the last layer skips them. */
    for (int i = 0; i < n_feeds; i++)
        if (feeds[i].keep == 0) lay_out(p, &feeds[i], seq++);
    int first_kept = -1;
    for (int i = 0; i < n_feeds; i++) {
        if (feeds[i].keep == 0) continue;
        if (first_kept < 0) first_kept = p->n + feeds[i].n - feeds[i].keep;
        lay_out(p, &feeds[i], seq++);
    }
    if (first_kept < 0) first_kept = p->n;
    KVT_TRY(kvt_step_begin(p->step, p->seqs, p->seq_rows, n_feeds, err));
    const enum kvt_status status = run_layers(p, first_kept, err);
    if (status != KVT_OK) kvt_step_abandon(p->step);
    return status;
}
