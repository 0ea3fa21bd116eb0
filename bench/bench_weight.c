/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of the weight products: for each type, level and number of tokens the packed bytes read and the arithmetic done a
 * second, beside what the machine can do in the same run: reading memory, fused multiply-adds in registers, OpenBLAS.
 *
 *     bench_weight [-t THREADS] [-m N_IN,N_OUT] [-o TYPE]
 *
 * "cold" walks over matrices of 64 MiB together, "warm" repeats one. Times are the best of many short runs, so that
 * other programs on the machine matter little.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "weight/weight.h"
#if defined(KVT_HAVE_OPENBLAS)
#include <cblas.h>
#endif

enum { COLD_BYTES = 64 << 20, N_TOKENS_MAX = 512 };

struct bench {
    struct kvt_parallel parallel;
    struct kvt_arena scratch;
    int64_t n_in, n_out;
    unsigned char *data, *packed;
    float *x, *dst;
};

/* The least seconds of one call, over about half a second of calls. */
static double best_seconds(void (*call)(void *arg, int i), void *arg) {
    double best = 1e9;
    const double end = kvt_clock_seconds() + 0.5;
    for (int i = 0; i < 3 || kvt_clock_seconds() < end; i++) {
        const double start = kvt_clock_seconds();
        call(arg, i);
        best = KVT_MIN(best, kvt_clock_seconds() - start);
    }
    return best;
}

static void read_part(void *arg, int i, int thread) {
    (void)thread;
    const struct bench *b = arg;
    const uint64_t *p = (const uint64_t *)(const void *)b->data + (size_t)i * (1 << 20) / 8;
    uint64_t sum[16] = {0};
    for (size_t j = 0; j < (1 << 20) / 8; j += 16)
        for (int k = 0; k < 16; k++) sum[k] ^= p[j + (size_t)k];
    for (int k = 0; k < 16; k++) __asm__ volatile("" ::"r"(sum[k]));
}

static void read_all(void *arg, int i) {
    (void)i;
    const struct bench *b = arg;
    kvt_parallel_run(&b->parallel, COLD_BYTES >> 20, read_part, arg);
}

#if defined(KVT_HAVE_OPENBLAS)
static void blas_512(void *arg, int i) {
    (void)i;
    const struct bench *b = arg;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N_TOKENS_MAX, (blasint)b->n_out, (blasint)b->n_in, 1, b->x,
                (blasint)b->n_in, (const float *)(const void *)b->data, (blasint)b->n_in, 0, b->dst, (blasint)b->n_out);
}
#endif

struct product {
    struct bench *bench;
    struct kvt_weight w;
    size_t packed_bytes;
    int n_tokens, n_matrices;
    enum kvt_level level;
};

static void product(void *arg, int i) {
    const struct product *p = arg;
    struct bench *b = p->bench;
    struct kvt_weight w = p->w;
    w.data += (size_t)(i % p->n_matrices) * (size_t)w.n_out * w.row_bytes;
    if (w.packed) w.packed += (size_t)(i % p->n_matrices) * p->packed_bytes;
    kvt_weight_product(b->dst, w.n_out, &w, b->x, w.n_in, p->n_tokens, p->level, &b->parallel, &b->scratch);
}

/* One matrix again and again / as many as fill COLD_BYTES in turn, as a whole. */
static void cold_sweep(void *arg, int i) {
    (void)i;
    const struct product *p = arg;
    for (int k = 0; k < p->n_matrices; k++) product(arg, k);
}

static void bench_type(struct bench *b, const struct kvt_gguf_type *type) {
    const size_t bytes = (size_t)(b->n_in / type->block_len * b->n_out) * type->block_bytes;
    const struct kvt_gguf_tensor tensor = {type->name, type, 2, {b->n_in, b->n_out, 1, 1}, b->data, bytes};
    const double products = (double)b->n_in * (double)b->n_out;
    struct product p = {.bench = b, .n_tokens = 1, .n_matrices = 1};
    struct kvt_error err;
    if (kvt_weight_bind(&p.w, &tensor, &err) != KVT_OK) {
        printf("%-5s %s\n", type->name, err.text);
        return;
    }
    p.packed_bytes = kvt_weight_packed_bytes(&p.w);
    if (p.packed_bytes) {
        struct kvt_weight w = p.w;
        const double start = kvt_clock_seconds();
        for (size_t i = 0; i < COLD_BYTES / bytes; i++, w.data += bytes)
            kvt_weight_pack(b->packed + i * p.packed_bytes, &w, &b->parallel);
        printf("%-5s packed at %.2f GB/s\n", type->name, COLD_BYTES / (kvt_clock_seconds() - start) * 1e-9);
        p.w.packed = b->packed;
    }
    for (int level = 1; level < KVT_LEVEL_COUNT; level++) {
        if (!kvt_level_runs((enum kvt_level)level)) continue;
        p.level = (enum kvt_level)level;
        p.n_tokens = p.n_matrices = 1;
        printf("%-5s %-7s", type->name, kvt_level_name(p.level));
        const double warm = best_seconds(product, &p);
        p.n_matrices = (int)(COLD_BYTES / bytes);
        const double cold = best_seconds(cold_sweep, &p) / p.n_matrices;
        printf(" %7.1f %7.1f %7.2f", (double)bytes / warm * 1e-9, (double)bytes / cold * 1e-9, products / warm * 1e-9);
        p.n_matrices = 1;
        for (p.n_tokens = 4; p.n_tokens <= N_TOKENS_MAX; p.n_tokens *= p.n_tokens == 4 ? 4 : 32)
            printf(" %8.1f", 2 * products * p.n_tokens / best_seconds(product, &p) * 1e-9);
        printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    struct kvt_threads *threads = NULL;
    struct bench b = {.parallel = kvt_threads_parallel(NULL), .n_in = 1536, .n_out = 576};
    const char *only = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-t") == 0) {
            if (threads || kvt_threads_create(&threads, atoi(argv[i + 1]), NULL, NULL) != KVT_OK) return 2;
            b.parallel = kvt_threads_parallel(threads);
        }
        if (strcmp(argv[i], "-m") == 0) {
            b.n_in = atoll(argv[i + 1]);
            b.n_out = strchr(argv[i + 1], ',') ? atoll(strchr(argv[i + 1], ',') + 1) : 0;
        }
        if (strcmp(argv[i], "-o") == 0) only = argv[i + 1];
    }
    if (b.n_in < 1 || b.n_out < 1 || b.n_in * b.n_out > COLD_BYTES / 4) {
        fprintf(stderr, "bench_weight: -m N_IN,N_OUT needs two numbers whose product is at most %d\n", COLD_BYTES / 4);
        return 2;
    }
    struct kvt_rng rng = {1};
    b.data = kvt_take(&kvt_allocator_libc, COLD_BYTES, 1);
    b.packed = kvt_take(&kvt_allocator_libc, 2 * (size_t)COLD_BYTES, 1);
    b.x = kvt_take(&kvt_allocator_libc, (size_t)(N_TOKENS_MAX * b.n_in), sizeof(float));
    b.dst = kvt_take(&kvt_allocator_libc, (size_t)(N_TOKENS_MAX * b.n_out), sizeof(float));
    if (!b.data || !b.packed || !b.x || !b.dst ||
        !kvt_arena_init(&b.scratch, NULL, kvt_weight_scratch_bytes(b.n_in, N_TOKENS_MAX, &b.parallel)))
        return 1;
    /* As 16-bit, 32-bit floats and scales these bytes are near 1: nothing is subnormal or infinite. */
    for (size_t i = 0; i < COLD_BYTES; i++)
        b.data[i] = i % 2 ? 0x3C | (uint8_t)(kvt_rng_u64(&rng) & 0x83) : (uint8_t)kvt_rng_u64(&rng);
    for (int64_t i = 0; i < N_TOKENS_MAX * b.n_in; i++) b.x[i] = kvt_rng_normal(&rng);

    printf("%lld x %lld, %d thread(s), level %s, BLAS: %s\n", (long long)b.n_in, (long long)b.n_out,
           b.parallel.n_threads, kvt_level_name(kvt_level_best()), kvt_weight_blas_name());
    printf("reading %d MiB: %.1f GB/s\n", COLD_BYTES >> 20, COLD_BYTES / best_seconds(read_all, &b) * 1e-9);
#if defined(KVT_HAVE_OPENBLAS)
    openblas_set_num_threads(b.parallel.n_threads);
    printf("OpenBLAS on floats, 512 tokens: %.1f GFLOP/s\n",
           2.0 * (double)(b.n_in * b.n_out) * N_TOKENS_MAX / best_seconds(blas_512, &b) * 1e-9);
#endif
    printf("                 1 token                    4       16      512 tokens\n");
    printf("              warm    cold    warm\n");
    printf("              GB/s    GB/s  Gmac/s   GFLOP/s  GFLOP/s  GFLOP/s\n");
    for (uint32_t id = 0; id < 64; id++) {
        const struct kvt_gguf_type *type = kvt_weight_type_find(id) ? kvt_gguf_type_find(id) : NULL;
        if (type && (!only || strcmp(only, type->name) == 0)) bench_type(&b, type);
    }
    return 0;
}
