/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embedding (Su et al. 2021): pairs of a head's elements turn by position times the pair's frequency.
 * Scaling by a linear factor, by YaRN (Peng et al. 2023) and by per-pair factors all change the frequencies alone, so a
 * model's frequencies are worked out once, in double; cosines and sines once for each position of a forward pass.
 */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "model/config.h"

/* Which elements make a pair: 2i and 2i + 1, or i and i + n_rot / 2. */
enum kvt_rope_pairing { KVT_ROPE_NEIGHBOURS, KVT_ROPE_HALVES };

struct kvt_rope {
    enum kvt_rope_pairing pairing;
    int n_rot;
    double scale;       /* of cosines and sines */
    const double *freq; /* n_rot / 2: radians a position */
};

/* The frequencies that config asks for, into freq. factors: n_rot / 2 divisors of the frequencies, or NULL. */
struct kvt_rope kvt_rope_of(const struct kvt_rope_config *config, enum kvt_rope_pairing pairing, const float *factors,
                            double *freq);

/* The table of one position: n_rot floats, the cosines, then the sines. */
void kvt_rope_table(float *table, const struct kvt_rope *rope, int64_t position);

/* Turns the first n_rot elements of each of n_heads heads, which lie head_size apart. */
void kvt_rope_turn(float *heads, int n_heads, int head_size, const struct kvt_rope *rope, const float *table);

#endif
