/* SPDX-License-Identifier: Apache-2.0
 * What a codec is by itself: its axes, and the time that it takes. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "fidelity/fidelity.h"
#include "kernel/kernel.h"

struct kvt_codec_axis kvt_codec_axis(const struct kvt_codec *codec, enum kvt_side side, int d) {
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, d, &tile);
    if (tile.kind == KVT_TILE_PLAIN || tile.format.scale == KVT_SCALE_NONE)
        return (struct kvt_codec_axis){.rotated = tile.kind != KVT_TILE_PLAIN && tile.format.rotated};
    return (struct kvt_codec_axis){
        .has_scale = true,
        .per_channel = !tile.format.per_token,
        .group = tile.format.group,
        .has_factor = tile.format.has_factor,
        .rotated = tile.format.rotated,
    };
}

/* ---- time ------------------------------------------------------------------------------------------------------------- */

/* HEADS: whose rows are encoded together, as a cache does it, up to 128 rows */
enum { ROUNDS = 31, HEADS = 8, KINDS_MAX = 1 + 2 * KVT_LEVEL_COUNT, REPEATS_MAX = 1 << 20 };
#define ROUND_SECONDS 2e-4 /* that one measurement takes at least: short, so that few meet another process */

/* One kind of work on a tile. */
struct kind {
    kvt_encode_fn encode; /* or */
    kvt_decode_fn decode; /* or neither: copy */
    int n_repeats;
    double seconds[ROUNDS];
};

struct bench {
    const struct kvt_codec *codec;
    struct kvt_tile tile;
    int d;
    size_t n_floats;      /* of a tile's rows */
    float *rows, *back;   /* n_floats each */
    float *queries;       /* n_floats; of keys whose codec uses them, else null */
    float *squares;       /* by channel, of queries */
    float *room;          /* of encoders that use the queries themselves; else null */
    unsigned char *bytes; /* HEADS tiles */
    size_t head_bytes;    /* from tile to tile: K and V, as in a page */
    int next;             /* row to encode */
    struct kvt_arena arena;
};

/* As many rows as a tile has, of heads in turn. */
static void encode_rows(struct bench *b, kvt_encode_fn encode) {
    const int n = b->codec->info.granularity, heads = KVT_MIN(HEADS, KVT_TILE_ROWS / n);
    for (int done = 0; done < KVT_TILE_ROWS; done += n * heads) {
        if (b->room) memcpy(b->room, b->queries, b->n_floats * sizeof *b->room);
        encode(&(struct kvt_encode_args){
            .codec = b->codec,
            .tile = &b->tile,
            .bytes = b->bytes,
            .first = b->next,
            .n = n,
            .rows = b->rows + done * b->d,
            .stride = b->d,
            .queries = b->squares,
            .room = b->room,
            .n_more = heads - 1,
            .bytes_step = b->head_bytes,
            .rows_step = n * b->d,
        });
        b->next = (b->next + n) % KVT_TILE_ROWS;
    }
}

static void run_once(struct bench *b, const struct kind *kind) {
    if (kind->encode)
        encode_rows(b, kind->encode);
    else if (kind->decode)
        kind->decode(&b->tile, b->back, b->d, b->bytes, 0, KVT_TILE_ROWS);
    else
        memcpy(b->back, b->rows, b->n_floats * sizeof *b->rows);
    __asm__ volatile("" ::: "memory");
}

static double time_of(struct bench *b, const struct kind *kind) {
    const double start = kvt_clock_seconds();
    for (int i = 0; i < kind->n_repeats; i++) run_once(b, kind);
    return (kvt_clock_seconds() - start) / kind->n_repeats;
}

static void calibrate(struct bench *b, struct kind *kind) {
    for (kind->n_repeats = 1; kind->n_repeats < REPEATS_MAX; kind->n_repeats *= 2)
        if (time_of(b, kind) * kind->n_repeats > ROUND_SECONDS) return;
}

static void fill(float *x, size_t n, struct kvt_rng *rng) {
    for (size_t i = 0; i < n; i++) x[i] = kvt_rng_normal(rng);
}

static bool bench_open(struct bench *b, enum kvt_side side, const struct kvt_allocator *allocator) {
    const bool asks = side == KVT_SIDE_K && b->codec->info.queries;
    const size_t d = (size_t)b->d, n = KVT_TILE_ROWS * d, room = asks ? kvt_codec_room(b->codec, b->d) : 0;
    struct kvt_rng rng = {1};
    kvt_codec_describe(b->codec, side, b->d, &b->tile);
    b->n_floats = n;
    b->head_bytes = 2 * b->tile.bytes;
    const size_t bytes = 3 * kvt_arena_need(n, sizeof(float)) + kvt_arena_need(d, sizeof(float)) +
                         kvt_arena_need(room, sizeof(float)) + kvt_arena_need(HEADS * b->head_bytes, 1);
    if (!kvt_arena_init(&b->arena, allocator, bytes)) return false;
    b->rows = kvt_arena_take(&b->arena, n, sizeof(float));
    b->back = kvt_arena_take(&b->arena, n, sizeof(float));
    b->bytes = kvt_arena_take(&b->arena, HEADS * b->head_bytes, 1);
    memset(b->bytes, 0, HEADS * b->head_bytes);
    fill(b->rows, n, &rng);
    if (!asks) return true;
    b->queries = kvt_arena_take(&b->arena, n, sizeof(float));
    b->squares = kvt_arena_take(&b->arena, d, sizeof(float));
    fill(b->queries, n, &rng);
    memset(b->squares, 0, d * sizeof *b->squares);
    for (size_t i = 0; i < n; i++) b->squares[i % d] += b->queries[i] * b->queries[i];
    if (room) b->room = kvt_arena_take(&b->arena, room, sizeof(float));
    return true;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct kvt_spread spread_of(struct kind *kind) {
    qsort(kind->seconds, ROUNDS, sizeof *kind->seconds, by_size);
    return (struct kvt_spread){kind->seconds[ROUNDS / 2], kind->seconds[ROUNDS / 4],
                               kind->seconds[ROUNDS - 1 - ROUNDS / 4]};
}

enum kvt_status kvt_measure_times(struct kvt_codec_times *out, const struct kvt_codec *codec, enum kvt_side side, int d,
                                  const enum kvt_level *levels, int n_levels, const struct kvt_allocator *allocator,
                                  struct kvt_error *err) {
    KVT_ASSERT(n_levels <= KVT_LEVEL_COUNT);
    struct bench b = {.codec = codec, .d = d};
    struct kind kinds[KINDS_MAX] = {{.encode = NULL}};
    const int n_kinds = 1 + 2 * n_levels;
    KVT_TRY(kvt_codec_fits(codec, side, d, err));
    if (!bench_open(&b, side, allocator))
        return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for a tile of rows of %d elements", d);
    for (int l = 0; l < n_levels; l++) {
        kinds[1 + 2 * l].encode = kvt_encode_select(codec, levels[l]);
        kinds[2 + 2 * l].decode = kvt_kernels_select(levels[l]).decode;
    }
    for (int k = 0; k < n_kinds; k++) calibrate(&b, &kinds[k]);
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < n_kinds; k++) kinds[k].seconds[i] = time_of(&b, &kinds[k]);
    out->copy = spread_of(&kinds[0]);
    for (int l = 0; l < n_levels; l++) {
        out->encode[levels[l]] = spread_of(&kinds[1 + 2 * l]);
        out->decode[levels[l]] = spread_of(&kinds[2 + 2 * l]);
    }
    kvt_arena_finish(&b.arena);
    return KVT_OK;
}
