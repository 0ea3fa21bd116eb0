/* SPDX-License-Identifier: Apache-2.0
 * A small seeded generator (splitmix64, Steele, Lea and Flood 2014): the same numbers on every machine. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct kvt_rng {
    uint64_t state;
};

static inline uint64_t kvt_rng_u64(struct kvt_rng *rng) {
    uint64_t z = rng->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Uniform in [0, n), n > 0; the bias of the modulo is below n / 2^64. */
static inline uint64_t kvt_rng_below(struct kvt_rng *rng, uint64_t n) { return kvt_rng_u64(rng) % n; }

/* Uniform in [0, 1), a multiple of 2^-53. */
static inline double kvt_rng_unit(struct kvt_rng *rng) { return (double)(kvt_rng_u64(rng) >> 11) * 0x1p-53; }

/* Nearly normal with variance 1: the sum of twelve uniforms less six. No libm, so the same everywhere. */
static inline float kvt_rng_normal(struct kvt_rng *rng) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += kvt_rng_unit(rng);
    return (float)sum;
}

#endif
