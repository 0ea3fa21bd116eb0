/* SPDX-License-Identifier: Apache-2.0
 * A batch of tokens through all layers. */
#include "base/check.h"
#include "model/block.h"

enum { ROWS_PER_JOB = 16 };

struct row_jobs {
    struct kvt_pass *pass;
    const struct kvt_layer *layer;
    int first;
    kvt_row_fn fn;
};

static void run_rows(void *arg, int i, int thread) {
    (void)thread;
    const struct row_jobs *jobs = arg;
    const int begin = jobs->first + i * ROWS_PER_JOB, end = KVT_MIN(begin + ROWS_PER_JOB, jobs->pass->n);
    for (int row = begin; row < end; row++) jobs->fn(jobs->pass, jobs->layer, row);
}

void kvt_pass_rows(struct kvt_pass *pass, const struct kvt_layer *layer, int first, kvt_row_fn fn) {
    struct row_jobs jobs = {pass, layer, first, fn};
    kvt_parallel_run(pass->parallel, (int)kvt_div_up(pass->n - first, ROWS_PER_JOB), run_rows, &jobs);
}

/* The largest sizes of any layer. */
struct widths {
    size_t q, k, v, mix, ff, n_in_max;
};

static struct widths widths_of(const struct kvt_model *m) {
    struct widths w = {0, 0, 0, 0, 0, (size_t)m->config.width};
    for (int i = 0; i < m->config.n_layers; i++) {
        const struct kvt_layer *layer = &m->layers[i];
        w.q = KVT_MAX(w.q, (size_t)layer->q.n_out);
        w.k = KVT_MAX(w.k, (size_t)layer->k.n_out);
        w.v = KVT_MAX(w.v, (size_t)layer->v.n_out);
        w.mix = KVT_MAX(w.mix, (size_t)layer->out.n_in);
        w.ff = KVT_MAX(w.ff, (size_t)layer->config.n_ff);
    }
    w.n_in_max = KVT_MAX(w.n_in_max, KVT_MAX(w.mix, w.ff));
    return w;
}

enum kvt_status kvt_pass_init(struct kvt_pass *pass, const struct kvt_model *model, int n_max, int max_seqs,
                              enum kvt_level level, const struct kvt_parallel *parallel, struct kvt_step *step,
                              const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct widths w = widths_of(model);
    const size_t n = (size_t)n_max, width = (size_t)model->config.width, n_rot = (size_t)model->rope.n_rot;
    const struct {
        float **field;
        size_t width;
    } matrices[] = {
        {&pass->x, width},   {&pass->h, width},   {&pass->q, w.q},   {&pass->k, w.k},      {&pass->v, w.v},
        {&pass->mix, w.mix}, {&pass->gate, w.ff}, {&pass->up, w.ff}, {&pass->rope, n_rot},
    };
    *pass = (struct kvt_pass){.model = model, .parallel = parallel, .level = level, .step = step, .n_max = n_max};
    size_t bytes = kvt_arena_need(n, sizeof *pass->ids) + kvt_arena_need(n, sizeof *pass->positions) +
                   kvt_arena_need((size_t)max_seqs, sizeof *pass->seqs) +
                   kvt_arena_need((size_t)max_seqs, sizeof *pass->seq_rows);
    for (size_t i = 0; i < KVT_ARRAY_LEN(matrices); i++) bytes += kvt_arena_need(n * matrices[i].width, sizeof(float));
    const size_t scratch_bytes = KVT_MAX((size_t)1, kvt_weight_scratch_bytes((int64_t)w.n_in_max, n_max, parallel));
    if (!kvt_arena_init(&pass->arena, allocator, bytes) || !kvt_arena_init(&pass->scratch, allocator, scratch_bytes))
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for forward passes of %d tokens (%zu bytes)", n_max,
                        bytes + scratch_bytes);
    for (size_t i = 0; i < KVT_ARRAY_LEN(matrices); i++)
        *matrices[i].field = kvt_arena_take(&pass->arena, n * matrices[i].width, sizeof(float));
    pass->ids = kvt_arena_take(&pass->arena, n, sizeof *pass->ids);
    pass->positions = kvt_arena_take(&pass->arena, n, sizeof *pass->positions);
    pass->seqs = kvt_arena_take(&pass->arena, (size_t)max_seqs, sizeof *pass->seqs);
    pass->seq_rows = kvt_arena_take(&pass->arena, (size_t)max_seqs, sizeof *pass->seq_rows);
    return KVT_OK;
}

void kvt_pass_finish(struct kvt_pass *pass) {
    kvt_arena_finish(&pass->scratch);
    kvt_arena_finish(&pass->arena);
}

static void begin_row(struct kvt_pass *p, const struct kvt_layer *layer, int row) {
    (void)layer;
    kvt_weight_row(&p->model->embedding, p->ids[row], p->x + (ptrdiff_t)row * p->model->config.width, p->level);
    kvt_rope_table(p->rope + (ptrdiff_t)row * p->model->rope.n_rot, &p->model->rope, p->positions[row]);
}

static enum kvt_status run_layers(struct kvt_pass *p, int first_kept, struct kvt_error *err) {
    const struct kvt_model *m = p->model;
    kvt_pass_rows(p, NULL, 0, begin_row);
    for (p->layer = 0; p->layer < m->config.n_layers; p->layer++) {
        p->first = p->layer + 1 == m->config.n_layers ? first_kept : 0;
        KVT_TRY(m->arch->attend(p, &m->layers[p->layer], err));
        if (p->first < p->n) m->arch->feed(p, &m->layers[p->layer]);
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
