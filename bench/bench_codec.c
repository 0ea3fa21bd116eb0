/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding: nanoseconds per row of 1024 values (8 heads of 128, 16 of 64), one thread, rows and tiles in cache, beside a plain copy of
 * as many floats. Usage: bench_codec [NAME]...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "kernel/kernel.h"

enum { VALUES = 1024, ROUNDS = 9 };

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, compare);
    return x[n / 2];
}

struct job {
    kvt_encode_fn fn; /* NULL: copy */
    const struct kvt_codec *codec;
    struct kvt_tile tile;
    unsigned char *bytes;
    float *rows, *sink;
    int d, n;
};

static void run(const struct job *j) {
    if (!j->fn) {
        for (int r = 0; r < KVT_TILE_ROWS; r++) /* one large memcpy is slow where pages alias */
            memcpy(j->sink + r * j->d, j->rows + r * j->d, (size_t)j->d * sizeof(float));
        __asm__ volatile("" : : "r"(j->sink) : "memory");
        return;
    }
    for (int r = 0; r < KVT_TILE_ROWS; r += j->n)
        j->fn(&(struct kvt_encode_args){j->codec, &j->tile, j->bytes, r, j->n, j->rows + r * j->d, j->d});
}

/* Nanoseconds for 1024 values. */
static double time_of(const struct job *j) {
    double t[ROUNDS];
    const double scale = 1e9 * VALUES / (KVT_TILE_ROWS * j->d);
    int reps = 1;
    for (;;) {
        const double t0 = kvt_clock_seconds();
        for (int i = 0; i < reps; i++) run(j);
        if (kvt_clock_seconds() - t0 > 0.002) break;
        reps *= 2;
    }
    for (int i = 0; i < ROUNDS; i++) {
        const double t0 = kvt_clock_seconds();
        for (int r = 0; r < reps; r++) run(j);
        t[i] = (kvt_clock_seconds() - t0) / reps * scale;
    }
    return median(t, ROUNDS);
}

static void bench(const struct kvt_codec *codec, int d) {
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        struct job j = {.codec = codec, .d = d, .n = codec->info.granularity};
        kvt_codec_describe(codec, (enum kvt_side)side, d, &j.tile);
        j.bytes = aligned_alloc(64, j.tile.bytes);
        j.rows = malloc((size_t)(KVT_TILE_ROWS * d) * sizeof(float));
        j.sink = malloc((size_t)(KVT_TILE_ROWS * d) * sizeof(float));
        if (!j.bytes || !j.rows || !j.sink) exit(1);
        memset(j.bytes, 0, j.tile.bytes);
        struct kvt_rng rng = {1};
        for (int i = 0; i < KVT_TILE_ROWS * d; i++) j.rows[i] = kvt_rng_normal(&rng);
        printf("%-14s %s %4d", codec->info.name, side ? "V" : "K", d);
        for (int l = 0; l < KVT_LEVEL_COUNT; l++) {
            if (!kvt_level_runs((enum kvt_level)l)) continue;
            j.fn = l == KVT_LEVEL_REF ? codec->encoder->encode : kvt_encode_kernel(codec, (enum kvt_level)l);
            if (j.fn) printf("  %s %8.0f", kvt_level_name((enum kvt_level)l), time_of(&j));
        }
        j.fn = NULL;
        printf("  copy %4.0f\n", time_of(&j));
        free(j.bytes), free(j.rows), free(j.sink);
    }
}

int main(int argc, char **argv) {
    printf("ns for 1024 values, medians of %d\n", ROUNDS);
    for (size_t i = 0; i < kvt_codec_count(); i++) {
        bool wanted = argc < 2;
        for (int a = 1; a < argc; a++) wanted |= strcmp(argv[a], kvt_codec_at(i)->info.name) == 0;
        if (wanted) bench(kvt_codec_at(i), 128);
    }
    return 0;
}
