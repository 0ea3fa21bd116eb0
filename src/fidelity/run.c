/* SPDX-License-Identifier: Apache-2.0
 * The measurement: for each chunk the reference once for each leg, then each case, position by position against it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "fidelity/inside.h"

enum {
    REF_BYTES_MAX = 128 << 20, /* the reference's logits of a chunk are kept up to this size, else made for each case */
    BLOCK_BYTES_MAX = 32 << 20, /* logits of the test that are held at once */
    BLOCK_ROWS_MIN = 16,
    DEFAULT_BATCH = 512,
    KEY_BYTES_MAX = 1536,
    PROGRAM_BYTES_MAX = 32,
};

/* What a token costs on a leg, for the progress bar alone. */
static const unsigned token_work[KVT_LEG_COUNT] = {2, 8};

/* The reference on one leg. */
struct leg {
    bool used;
    struct kvt_lane lane; /* opened when first needed */
    bool open;
    struct kvt_store *store;
    float *outputs; /* of the chunk at work */
    float *logits;  /* of the chunk, or of a block */
};

struct run {
    const struct kvt_model *model;
    const struct kvt_fidelity_options *options;
    struct kvt_fidelity_result *result;
    struct kvt_arena arena;
    int n_vocab, width;
    int n_positions; /* of a chunk */
    int n_scored;    /* the last of them */
    int n_chunks;
    int n_block; /* positions whose logits are made at once */
    bool ref_kept;
    struct leg legs[KVT_LEG_COUNT];
    struct kvt_lane head; /* makes all logits */
    float *test_outputs, *test_logits;
    int32_t *ids;              /* of the chunk at work */
    struct kvt_score **scores; /* by case: [chunk][scored position] */
    uint64_t work_done, work_total;
    unsigned pass_work; /* of a token of the pass under way */
};

/* ---- progress --------------------------------------------------------------------------------------------------------- */

static enum kvt_status report(struct run *r, uint64_t done, struct kvt_error *err) {
    r->work_done += done;
    if (kvt_progress_report(r->options->progress, "fidelity", r->work_done, r->work_total)) return KVT_OK;
    return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
}

/* A forward pass inside the whole. */
static bool report_pass(void *ctx, const char *what, uint64_t done, uint64_t total) {
    const struct run *r = ctx;
    (void)what;
    (void)total;
    return kvt_progress_report(r->options->progress, "fidelity", r->work_done + done * r->pass_work, r->work_total);
}

static uint64_t total_work(const struct run *r) {
    const struct kvt_fidelity_options *o = r->options;
    const uint64_t n = (uint64_t)r->n_positions;
    uint64_t work = 0;
    for (int leg = 0; leg < KVT_LEG_COUNT; leg++)
        if (r->legs[leg].used) work += n * token_work[leg];
    for (int i = 0; i < o->n_cases; i++) work += n * token_work[o->cases[i].leg] + (uint64_t)r->n_scored;
    return work * (uint64_t)r->n_chunks;
}

/* ---- forward passes --------------------------------------------------------------------------------------------------- */

static enum kvt_status lane_open(struct kvt_lane *out, const struct run *r, const struct kvt_fidelity_case *of,
                                 struct kvt_error *err) {
    const struct kvt_fidelity_options *o = r->options;
    const struct kvt_lane_options options = {
        .of = of,
        .n_ctx = r->n_positions,
        .beyond = o->beyond,
        .n_batch = KVT_MIN(o->prefill_chunk ? o->prefill_chunk : DEFAULT_BATCH, r->n_positions),
        .place = o->place,
        .level = o->level,
        .parallel = o->parallel,
        .allocator = o->allocator,
    };
    return kvt_lane_open(out, r->model, &options, err);
}

static const char *reference_kv(const struct run *r) { return r->options->reference ? r->options->reference : "f16"; }

static enum kvt_status forward(struct run *r, struct kvt_lane *lane, float *outputs, struct kvt_error *err) {
    const struct kvt_progress progress = {report_pass, r};
    r->pass_work = token_work[lane->leg];
    return kvt_lane_run(lane, r->ids, r->n_positions, outputs, &progress, err);
}

/* The reference's outputs of the chunk at work, read or made. */
static enum kvt_status reference_outputs(struct run *r, struct leg *leg, enum kvt_leg which, int chunk,
                                         struct kvt_error *err) {
    const uint64_t ids = kvt_hash(r->ids, (size_t)r->n_positions * sizeof *r->ids);
    if (leg->store && kvt_store_read(leg->store, chunk, ids, leg->outputs)) {
        r->result->stored[which].n_read++;
        return KVT_OK;
    }
    const struct kvt_fidelity_case reference = {.kv = reference_kv(r), .leg = which};
    if (!leg->open) KVT_TRY(lane_open(&leg->lane, r, &reference, err));
    leg->open = true;
    KVT_TRY(forward(r, &leg->lane, leg->outputs, err));
    if (leg->store) kvt_store_add(leg->store, chunk, ids, leg->outputs);
    return KVT_OK;
}

/* Logits of n scored positions from outputs of the whole chunk. Always by the same session and in the same blocks, so that equal
 * outputs have equal logits. */
static enum kvt_status make_logits(const struct run *r, const float *outputs, int first, int n, float *logits,
                                   struct kvt_error *err) {
    const int warmup = r->n_positions - r->n_scored;
    return kvt_session_logits_of(r->head.session, outputs + (ptrdiff_t)(warmup + first) * r->width, n, logits, err);
}

static enum kvt_status run_reference(struct run *r, int chunk, struct kvt_error *err) {
    for (int i = 0; i < KVT_LEG_COUNT; i++) {
        struct leg *leg = &r->legs[i];
        if (!leg->used) continue;
        KVT_TRY(reference_outputs(r, leg, (enum kvt_leg)i, chunk, err));
        KVT_TRY(report(r, (uint64_t)r->n_positions * token_work[i], err));
        for (int first = 0; r->ref_kept && first < r->n_scored; first += r->n_block) {
            const int n = KVT_MIN(r->n_block, r->n_scored - first);
            KVT_TRY(make_logits(r, leg->outputs, first, n, leg->logits + (size_t)first * (size_t)r->n_vocab, err));
        }
    }
    return KVT_OK;
}

/* ---- scores ----------------------------------------------------------------------------------------------------------- */

struct block {
    const struct run *run;
    const float *ref;
    const int32_t *next; /* of the block's first position */
    struct kvt_score *scores;
};

static void score_job(void *arg, int i, int thread) {
    (void)thread;
    const struct block *b = arg;
    const size_t at = (size_t)i * (size_t)b->run->n_vocab;
    b->scores[i] = kvt_score_position(b->ref + at, b->run->test_logits + at, b->run->n_vocab, b->next[i]);
}

static enum kvt_status score_block(struct run *r, int c, int chunk, int first, int n, struct kvt_error *err) {
    const struct leg *leg = &r->legs[r->options->cases[c].leg];
    const int warmup = r->n_positions - r->n_scored;
    const struct block block = {
        .run = r,
        .ref = leg->logits + (r->ref_kept ? (size_t)first * (size_t)r->n_vocab : 0),
        .next = r->ids + warmup + first + 1,
        .scores = r->scores[c] + (size_t)chunk * (size_t)r->n_scored + first,
    };
    if (!r->ref_kept) KVT_TRY(make_logits(r, leg->outputs, first, n, leg->logits, err));
    KVT_TRY(make_logits(r, r->test_outputs, first, n, r->test_logits, err));
    kvt_parallel_run(r->options->parallel, n, score_job, (void *)(uintptr_t)&block);
    for (int i = 0; i < n; i++)
        if (isnan(block.scores[i].kl) || !isfinite(block.scores[i].nll_ref))
            return kvt_fail(err, KVT_ERR_RANGE, "the logits of cache %.60s are not numbers at position %d of chunk %d",
                            r->options->cases[c].kv, warmup + first + i, chunk);
    return report(r, (uint64_t)n, err);
}

static enum kvt_status run_case(struct run *r, int c, int chunk, struct kvt_error *err) {
    const struct kvt_fidelity_case *kase = &r->options->cases[c];
    struct kvt_lane lane;
    KVT_TRY(lane_open(&lane, r, kase, err));
    const double start = kvt_clock_seconds();
    enum kvt_status status;
    KVT_TRY_OUT(forward(r, &lane, r->test_outputs, err));
    r->result->rows[c].seconds += kvt_clock_seconds() - start;
    KVT_TRY_OUT(report(r, (uint64_t)r->n_positions * token_work[kase->leg], err));
    for (int first = 0; first < r->n_scored; first += r->n_block)
        KVT_TRY_OUT(score_block(r, c, chunk, first, KVT_MIN(r->n_block, r->n_scored - first), err));
out:
    kvt_lane_close(&lane);
    return status;
}

static enum kvt_status run_chunk(struct run *r, int chunk, struct kvt_error *err) {
    const struct kvt_fidelity_options *o = r->options;
    memcpy(r->ids, o->ids + (size_t)chunk * (size_t)o->chunk, (size_t)o->chunk * sizeof *r->ids);
    if (o->first_id >= 0) r->ids[0] = o->first_id;
    KVT_TRY(run_reference(r, chunk, err));
    for (int i = 0; i < o->n_cases; i++) KVT_TRY(run_case(r, i, chunk, err));
    return KVT_OK;
}

/* ---- before and after ------------------------------------------------------------------------------------------------- */

static enum kvt_status check_case(const struct kvt_model *model, const struct kvt_fidelity_case *c,
                                  const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(model);
    const struct kvt_plan_options options = {
        .struct_size = sizeof options, .kv = c->kv, .sink = c->sink, .tail = c->tail, .start = c->start};
    struct kvt_plan *plan;
    KVT_TRY(kvt_plan_create(&plan, &shape, &options, allocator, err));
    kvt_plan_destroy(plan);
    return KVT_OK;
}

enum kvt_status kvt_fidelity_check(const struct kvt_model *model, const struct kvt_fidelity_options *o,
                                   struct kvt_error *err) {
    const int n_ctx = kvt_model_info(model).n_ctx_train;
    const struct kvt_fidelity_case reference = {.kv = o->reference};
    if (o->n_cases < 1) return kvt_fail(err, KVT_ERR_ARG, "no cache to measure; name at least one, such as affine4g64");
    if (o->chunk < 2)
        return kvt_fail(err, KVT_ERR_ARG, "a chunk of %d token%s scores nothing; 2 is the least", o->chunk,
                        o->chunk == 1 ? "" : "s");
    if (o->n_chunks < 0) return kvt_fail(err, KVT_ERR_ARG, "%d chunks make no sense; 0 means all", o->n_chunks);
    if (o->chunk > n_ctx && !o->beyond)
        return kvt_fail(
            err, KVT_ERR_RANGE,
            "a chunk of %d tokens is longer than the model's context of %d; take shorter ones (or --beyond-context)",
            o->chunk, n_ctx);
    if (o->warmup < 0 || o->warmup > o->chunk - 2)
        return kvt_fail(err, KVT_ERR_ARG, "%d of a chunk's %d positions to warm up leave none to score", o->warmup,
                        o->chunk - 1);
    KVT_TRY(check_case(model, &reference, o->allocator, err));
    for (int i = 0; i < o->n_cases; i++) KVT_TRY(check_case(model, &o->cases[i], o->allocator, err));
    return KVT_OK;
}

static enum kvt_status check_text(const struct kvt_fidelity_options *o, int n_vocab, struct kvt_error *err) {
    if (o->n_ids < (size_t)o->chunk)
        return kvt_fail(err, KVT_ERR_ARG,
                        "the text has %zu tokens, less than one chunk of %d; take a longer text or a shorter chunk",
                        o->n_ids, o->chunk);
    if (o->first_id >= n_vocab)
        return kvt_fail(err, KVT_ERR_RANGE, "first id %d is outside the vocabulary (0 to %d)", o->first_id,
                        n_vocab - 1);
    for (size_t i = 0; i < o->n_ids; i++)
        if (o->ids[i] < 0 || o->ids[i] >= n_vocab)
            return kvt_fail(err, KVT_ERR_RANGE, "id %d, number %zu of the text, is outside the vocabulary (0 to %d)",
                            o->ids[i], i, n_vocab - 1);
    return KVT_OK;
}

static bool take_memory(struct run *r) {
    const struct kvt_fidelity_options *o = r->options;
    const size_t vocab = (size_t)r->n_vocab, n_block = (size_t)r->n_block, n_cases = (size_t)o->n_cases;
    const size_t n_scores = (size_t)r->n_chunks * (size_t)r->n_scored;
    const size_t n_outputs = (size_t)r->n_positions * (size_t)r->width;
    const size_t n_ref = (r->ref_kept ? (size_t)r->n_scored : n_block) * vocab;
    const size_t leg_bytes = kvt_arena_need(n_outputs, sizeof(float)) + kvt_arena_need(n_ref, sizeof(float));
    const size_t bytes = KVT_LEG_COUNT * leg_bytes + kvt_arena_need(n_outputs, sizeof(float)) +
                         kvt_arena_need(n_block * vocab, sizeof(float)) +
                         kvt_arena_need((size_t)o->chunk, sizeof *r->ids) + kvt_arena_need(n_cases, sizeof *r->scores) +
                         n_cases * kvt_arena_need(n_scores, sizeof **r->scores);
    if (!kvt_arena_init(&r->arena, o->allocator, bytes)) return false;
    for (int i = 0; i < KVT_LEG_COUNT; i++) {
        r->legs[i].outputs = kvt_arena_take(&r->arena, n_outputs, sizeof(float));
        r->legs[i].logits = kvt_arena_take(&r->arena, n_ref, sizeof(float));
    }
    r->test_outputs = kvt_arena_take(&r->arena, n_outputs, sizeof(float));
    r->test_logits = kvt_arena_take(&r->arena, n_block * vocab, sizeof(float));
    r->ids = kvt_arena_take(&r->arena, (size_t)o->chunk, sizeof *r->ids);
    r->scores = kvt_arena_take(&r->arena, n_cases, sizeof *r->scores);
    for (size_t i = 0; i < n_cases; i++) r->scores[i] = kvt_arena_take(&r->arena, n_scores, sizeof **r->scores);
    return true;
}

/* The version, and a hash of this program's file: outputs are bit-equal only where the code is the same. Without /proc the
 * version alone. */
static void name_program(char name[PROGRAM_BYTES_MAX]) {
    struct kvt_map map;
    struct kvt_error err;
    const bool mapped = kvt_map_open(&map, "/proc/self/exe", &err) == KVT_OK;
    const uint64_t hash = mapped ? kvt_hash(map.data, map.bytes) : 0;
    if (mapped) kvt_map_close(&map);
    snprintf(name, PROGRAM_BYTES_MAX, "%.14s %016llx", kvt_version(), (unsigned long long)hash);
}

/* Everything that the reference's outputs depend on. */
static enum kvt_status open_store(struct run *r, enum kvt_leg leg, struct kvt_error *err) {
    const struct kvt_fidelity_options *o = r->options;
    char text[KEY_BYTES_MAX], program[PROGRAM_BYTES_MAX];
    enum kvt_level level;
    if (!o->store || !r->legs[leg].used) return KVT_OK;
    KVT_TRY(kvt_level_parse(&level, o->level ? o->level : "auto", err));
    const int batch =
        leg == KVT_LEG_DECODE ? 1 : KVT_MIN(o->prefill_chunk ? o->prefill_chunk : DEFAULT_BATCH, r->n_positions);
    snprintf(
        text, sizeof text,
        "model %016llx\ntext %016llx\ncache %.600s\nchunk %d\nfirst id %d\nleg %s\nbatch %d\nbackend %s\nlevel %s\nblas %.200s\n",
        (unsigned long long)o->store->model, (unsigned long long)kvt_hash(o->ids, o->n_ids * sizeof *o->ids),
        reference_kv(r), o->chunk, o->first_id, kvt_leg_name(leg), batch, o->place.backend ? o->place.backend : "cpu",
        kvt_level_name(level), kvt_model_blas_name());
    name_program(program);
    const struct kvt_store_key key = {
        .folder = o->store->folder,
        .text = text,
        .program = program,
        .chunk_bytes = (size_t)r->n_positions * (size_t)r->width * sizeof(float),
    };
    r->legs[leg].store = kvt_store_open(&key, r->result->stored[leg].trouble, o->allocator);
    return r->legs[leg].store ? KVT_OK : kvt_fail(err, KVT_ERR_NOMEM, "no memory for the stored reference");
}

/* Sizes, memory, and the session that makes logits. */
static enum kvt_status prepare(struct run *r, struct kvt_error *err) {
    const struct kvt_fidelity_options *o = r->options;
    const struct kvt_model_info info = kvt_model_info(r->model);
    r->n_vocab = info.n_vocab;
    r->width = info.width;
    KVT_TRY(check_text(o, r->n_vocab, err));
    r->n_positions = o->chunk - 1;
    r->n_scored = r->n_positions - o->warmup;
    const size_t fit = o->n_ids / (size_t)o->chunk;
    r->n_chunks = (int)KVT_MIN(fit, o->n_chunks ? (size_t)o->n_chunks : (size_t)INT32_MAX);
    const size_t row_bytes = (size_t)r->n_vocab * sizeof(float);
    r->n_block = KVT_MIN(r->n_scored, KVT_MAX(BLOCK_ROWS_MIN, (int)(BLOCK_BYTES_MAX / row_bytes)));
    r->ref_kept = row_bytes * (size_t)r->n_scored <= REF_BYTES_MAX;
    for (int i = 0; i < o->n_cases; i++) r->legs[o->cases[i].leg].used = true;
    r->work_total = total_work(r);
    if (!take_memory(r))
        return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to score chunks of %d tokens", o->chunk);
    for (int leg = 0; leg < KVT_LEG_COUNT; leg++) KVT_TRY(open_store(r, (enum kvt_leg)leg, err));
    return lane_open(&r->head, r, &(struct kvt_fidelity_case){.kv = "f16"}, err);
}

/* Bytes of a case's cache at the end of a chunk, and bits for each element of the rows it holds. */
static void measure_cache(struct kvt_fidelity_row *row, const struct kvt_plan *plan, int n_rows) {
    double elements = 0;
    for (int layer = 0; layer < kvt_plan_n_layers(plan); layer++) {
        const struct kvt_layer_shape *shape = &kvt_plan_layer(plan, layer)->shape;
        const struct kvt_usage usage = kvt_plan_usage(plan, layer, n_rows);
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            elements += (double)usage.rows[region] * shape->n_kv_heads * (shape->k_size + shape->v_size);
    }
    row->cache_bytes = kvt_plan_bytes(plan, n_rows);
    row->bits_per_element = (double)row->cache_bytes * 8 / elements;
}

/* The rows, with the plans' own names. */
static enum kvt_status make_rows(struct kvt_fidelity_result *result, const struct kvt_model *model,
                                 const struct kvt_fidelity_options *o, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(model);
    result->allocator = kvt_allocator_or_default(o->allocator);
    result->rows = kvt_take_zero(&result->allocator, (size_t)o->n_cases, sizeof *result->rows);
    if (!result->rows) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %d rows", o->n_cases);
    result->n_rows = o->n_cases;
    for (int i = 0; i < o->n_cases; i++) {
        const struct kvt_fidelity_case *c = &o->cases[i];
        const struct kvt_plan_options options = {
            .struct_size = sizeof options, .kv = c->kv, .sink = c->sink, .tail = c->tail, .start = c->start};
        struct kvt_plan *plan;
        KVT_TRY(kvt_plan_create(&plan, &shape, &options, o->allocator, err));
        const char *kv = kvt_plan_kv(plan);
        result->rows[i].kv = kvt_take_string(&result->allocator, kv, strlen(kv));
        measure_cache(&result->rows[i], plan, o->chunk - 1);
        kvt_plan_destroy(plan);
        if (!result->rows[i].kv) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for a cache's name");
    }
    return KVT_OK;
}

static enum kvt_status summarise(struct run *r, struct kvt_error *err) {
    const struct kvt_fidelity_options *o = r->options;
    struct kvt_fidelity_result *result = r->result;
    result->n_positions = (int64_t)result->n_chunks * r->n_scored;
    for (int leg = 0; leg < KVT_LEG_COUNT; leg++) result->ppl_ref[leg] = NAN;
    for (int i = 0; i < o->n_cases; i++) {
        result->ppl_ref[o->cases[i].leg] = kvt_fidelity_ppl_ref(r->scores[i], (size_t)result->n_positions);
        KVT_TRY(
            kvt_fidelity_summarise(&result->rows[i], r->scores[i], result->n_chunks, r->n_scored, o->allocator, err));
        for (int w = 0; w < result->rows[i].n_worst; w++) result->rows[i].worst[w].position += o->warmup;
    }
    return KVT_OK;
}

static void finish(struct run *r) {
    for (int i = 0; i < KVT_LEG_COUNT; i++) {
        kvt_store_close(r->legs[i].store, r->result->stored[i].trouble);
        kvt_lane_close(&r->legs[i].lane);
    }
    kvt_lane_close(&r->head);
    kvt_arena_finish(&r->arena);
}

enum kvt_status kvt_fidelity_run(struct kvt_fidelity_result *out, const struct kvt_model *model,
                                 const struct kvt_fidelity_options *options, struct kvt_error *err) {
    struct kvt_fidelity_result result = {0};
    struct run r = {.model = model, .options = options, .result = &result};
    enum kvt_status status;
    KVT_TRY_OUT(kvt_fidelity_check(model, options, err));
    KVT_TRY_OUT(make_rows(&result, model, options, err));
    KVT_TRY_OUT(prepare(&r, err));
    while (result.n_chunks < r.n_chunks) {
        KVT_TRY_OUT(run_chunk(&r, result.n_chunks, err));
        result.n_chunks++;
    }
out:
    if (result.n_chunks > 0 && (status == KVT_OK || status == KVT_ERR_CANCELLED)) {
        const enum kvt_status summed = summarise(&r, err);
        if (summed != KVT_OK) status = summed;
    }
    finish(&r);
    if (result.n_chunks > 0 && (status == KVT_OK || status == KVT_ERR_CANCELLED)) {
        *out = result;
    } else {
        kvt_fidelity_finish(&result);
        if (status == KVT_ERR_CANCELLED) *out = (struct kvt_fidelity_result){0};
    }
    return status;
}

void kvt_fidelity_finish(struct kvt_fidelity_result *result) {
    for (int i = 0; i < result->n_rows; i++) {
        char *kv = result->rows[i].kv;
        if (kv) kvt_give(&result->allocator, kv, strlen(kv) + 1, 1);
    }
    if (result->rows) kvt_give(&result->allocator, result->rows, (size_t)result->n_rows, sizeof *result->rows);
    *result = (struct kvt_fidelity_result){0};
}
