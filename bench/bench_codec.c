/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding and decoding: nanoseconds for 1024 values (8 heads of 128), one thread, rows and tiles in cache, beside a plain copy of as
 * many floats. The smallest of several rounds, levels and the copy in turn in each round, since a shared machine only ever adds time;
 * the clock that a chain of additions saw is printed, as machines lower it. Usage: bench_codec [--decode] [NAME]...
 *
 *   token  as few rows a call as the codec's granularity allows, of all heads, up to 128 rows together: what a cache does as tokens come.
 *          Tiles lie as in a page, rows come from the same 64 KB again and again
 *   tile   128 rows of one head a call: what a prompt costs
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/clock.h"
#include "base/rng.h"
#include "kernel/kernel.h"

enum { VALUES = 1024, ROUNDS = 15, D = 128, HEADS = 8, MAX_JOBS = 2 * KVT_LEVEL_COUNT + 1 };

struct job {
    kvt_encode_fn encode; /* all null: copy */
    kvt_decode_fn decode;
    int n, heads; /* rows and heads of a call */
    double best;
};

struct data {
    const struct kvt_codec *codec;
    struct kvt_tile tile;
    unsigned char *bytes;
    size_t head_bytes;
    float *rows, *sink;
};

static void run(const struct data *x, const struct job *j) {
    int from = 0;
    for (int r = 0; r < KVT_TILE_ROWS; r += j->n)
        for (int h = 0; h < HEADS; h += j->heads, from = (from + j->heads * j->n) % KVT_TILE_ROWS) {
            unsigned char *bytes = x->bytes + (size_t)h * x->head_bytes;
            const float *rows = x->rows + from * D;
            float *sink = x->sink + from * D;
            if (j->encode)
                j->encode(&(struct kvt_encode_args){.codec = x->codec,
                                                    .tile = &x->tile,
                                                    .bytes = bytes,
                                                    .first = r,
                                                    .n = j->n,
                                                    .rows = rows,
                                                    .stride = D,
                                                    .n_more = j->heads - 1,
                                                    .bytes_step = x->head_bytes,
                                                    .rows_step = j->n * D});
            else if (j->decode)
                j->decode(&x->tile, sink, D, bytes, r, j->n);
            else
                memcpy(sink, rows, D * sizeof(float));
        }
    __asm__ volatile("" : : "r"(x->sink), "r"(x->bytes) : "memory");
}

/* Nanoseconds for 1024 values. */
static double round_of(const struct data *x, const struct job *j) {
    const double span = 0.0002, start = kvt_clock_seconds();
    double now = start;
    int n = 0;
    for (; n == 0 || now - start < span; n++) {
        run(x, j);
        now = kvt_clock_seconds();
    }
    return (now - start) / n * 1e9 * VALUES / (HEADS * KVT_TILE_ROWS * D);
}

static double clock_ghz(void) {
    double best = 1;
    for (int round = 0; round < 20; round++) {
        long x = 0;
        const double start = kvt_clock_seconds();
        for (int i = 0; i < 20000; i++) __asm__ volatile("add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0" : "+r"(x));
        const double t = kvt_clock_seconds() - start;
        best = t < best ? t : best;
    }
    return 80000 / best * 1e-9;
}

static void bench(const struct kvt_codec *codec, enum kvt_side side, bool decodes) {
    struct data x = {.codec = codec};
    kvt_codec_describe(codec, side, D, &x.tile);
    x.head_bytes = 2 * x.tile.bytes; /* K and V */
    x.bytes = aligned_alloc(64, HEADS * x.head_bytes);
    x.rows = aligned_alloc(64, KVT_TILE_ROWS * D * sizeof(float));
    x.sink = aligned_alloc(64, KVT_TILE_ROWS * D * sizeof(float));
    if (!x.bytes || !x.rows || !x.sink) exit(1);
    memset(x.bytes, 0, HEADS * x.head_bytes);
    struct kvt_rng rng = {1};
    for (int i = 0; i < KVT_TILE_ROWS * D; i++) x.rows[i] = kvt_rng_normal(&rng);
    kvt_encode_ref(&(struct kvt_encode_args){.codec = codec,
                                             .tile = &x.tile,
                                             .bytes = x.bytes,
                                             .n = KVT_TILE_ROWS,
                                             .rows = x.rows,
                                             .stride = D,
                                             .n_more = HEADS - 1,
                                             .bytes_step = x.head_bytes});

    struct job jobs[MAX_JOBS] = {{.n = 1, .heads = 1, .best = 1e9}};
    const char *names[MAX_JOBS] = {"copy"};
    int n_jobs = 1;
    for (int l = 0; l < KVT_LEVEL_COUNT; l++) {
        const enum kvt_level level = (enum kvt_level)l;
        struct job j = {.best = 1e9};
        if (!kvt_level_runs(level)) continue;
        if (decodes)
            j.decode = kvt_decode_table[level];
        else
            j.encode = level == KVT_LEVEL_REF ? kvt_encode_ref : kvt_encode_kernel(codec, level);
        if (!j.encode && !j.decode) continue;
        const int least = decodes ? 1 : codec->info.granularity;
        for (int whole = 0; whole < (least < KVT_TILE_ROWS ? 2 : 1); whole++) {
            j.n = whole ? KVT_TILE_ROWS : least;
            j.heads = decodes ? 1 : KVT_MIN(HEADS, KVT_TILE_ROWS / j.n);
            names[n_jobs] = kvt_level_name(level);
            jobs[n_jobs++] = j;
        }
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n_jobs; i++) {
            const double t = round_of(&x, &jobs[i]);
            jobs[i].best = t < jobs[i].best ? t : jobs[i].best;
        }
    printf("%-14s %c", codec->info.name, side == KVT_SIDE_K ? 'K' : 'V');
    for (int i = 0; i < n_jobs; i++)
        printf("  %s%s %6.0f", names[i],
               i == 0                       ? ""
               : jobs[i].n == KVT_TILE_ROWS ? " tile"
               : decodes                    ? " row"
                                            : " token",
               jobs[i].best);
    printf("\n");
    free(x.bytes), free(x.rows), free(x.sink);
}

int main(int argc, char **argv) {
    const bool decodes = argc > 1 && strcmp(argv[1], "--decode") == 0;
    const int names = decodes ? 2 : 1;
    printf("%s, ns for 1024 values, smallest of %d rounds, clock %.2f GHz\n", decodes ? "decode" : "encode", ROUNDS,
           clock_ghz());
    for (size_t i = 0; i < kvt_codec_count(); i++) {
        const struct kvt_codec *codec = kvt_codec_at(i);
        bool wanted = argc <= names;
        for (int a = names; a < argc; a++) wanted |= strcmp(argv[a], codec->info.name) == 0;
        for (int side = 0; wanted && side < KVT_SIDE_COUNT; side++)
            if (kvt_codec_takes(codec, (enum kvt_side)side)) bench(codec, (enum kvt_side)side, decodes);
    }
    return 0;
}
