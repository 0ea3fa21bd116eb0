/* SPDX-License-Identifier: Apache-2.0
 *
 * Definitions as in ggml's rope_yarn, ggml_rope_yarn_corr_dims (ggml/src/ggml-cpu/ops.cpp, ggml.c).
 */
#include "model/rope.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* The pair, as a real number, that makes `turns` turns within the original context. */
static double pair_of_turns(const struct kvt_rope_config *c, double turns) {
    return c->n_rot * log(c->n_ctx_original / (turns * 2 * pi)) / (2 * log(c->base));
}

struct kvt_rope kvt_rope_of(const struct kvt_rope_config *c, enum kvt_rope_pairing pairing, const float *factors,
                            double *freq) {
    const bool yarn = c->scaling == KVT_ROPE_SCALING_YARN && c->ext_factor != 0;
    const double low = yarn ? fmax(0, floor(pair_of_turns(c, c->beta_fast))) : 0;
    const double high = yarn ? fmin(c->n_rot - 1, ceil(pair_of_turns(c, c->beta_slow))) : 0;
    for (int i = 0; i < c->n_rot / 2; i++) {
        double keep = 0; /* the share of the pair that is not scaled: fast pairs keep their frequency */
        if (yarn) keep = (1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)))) * c->ext_factor;
        freq[i] = pow(c->base, -2.0 * i / c->n_rot) * ((1 - keep) / c->factor + keep);
        if (factors) freq[i] /= (double)factors[i];
    }
    return (struct kvt_rope){
        .pairing = pairing,
        .n_rot = c->n_rot,
        .scale = c->attn_factor * (yarn ? 1 + 0.1 * fmax(0, log(c->factor)) : 1),
        .freq = freq,
    };
}

void kvt_rope_table(float *table, const struct kvt_rope *rope, int64_t position) {
    const int half = rope->n_rot / 2;
    for (int i = 0; i < half; i++) {
        const double angle = (double)position * rope->freq[i];
        table[i] = (float)(cos(angle) * rope->scale);
        table[half + i] = (float)(sin(angle) * rope->scale);
    }
}

static void turn_neighbours(float *x, const float *restrict cosine, const float *restrict sine, int half) {
    for (int i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosine[i] - b * sine[i];
        x[2 * i + 1] = a * sine[i] + b * cosine[i];
    }
}

static void turn_halves(float *restrict x, float *restrict y, const float *restrict cosine, const float *restrict sine,
                        int half) {
    for (int i = 0; i < half; i++) {
        const float a = x[i], b = y[i];
        x[i] = a * cosine[i] - b * sine[i];
        y[i] = a * sine[i] + b * cosine[i];
    }
}

void kvt_rope_turn(float *heads, int n_heads, int head_size, const struct kvt_rope *rope, const float *table) {
    const int half = rope->n_rot / 2;
    for (int h = 0; h < n_heads; h++, heads += head_size) {
        if (rope->pairing == KVT_ROPE_HALVES)
            turn_halves(heads, heads + half, table, table + half, half);
        else
            turn_neighbours(heads, table, table + half, half);
    }
}
