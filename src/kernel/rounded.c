/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the rounded queries of a call lie.
 */
#include "kernel/fused.h"

size_t kvt_rounded_init(struct kvt_rounded *out, const struct kvt_tile *tile, int n, char *memory) {
    const size_t rows = (size_t)kvt_round_up(n, 8),
                 terms = (size_t)kvt_round_up(kvt_tile_stored_terms(tile), KVT_SEGMENT);
    *out = (struct kvt_rounded){.n = n, .rows = (int)rows, .segment = KVT_MIN(tile->term_group, KVT_SEGMENT)};
    out->n_segments = (int)kvt_div_up(tile->n_terms, out->segment);
    out->ld[0] = (ptrdiff_t)terms / 4;
    out->ld[1] = (ptrdiff_t)terms / 2;
    size_t at = 0;
    for (int w = 0; w < 2; w++) {
        if (memory) out->words[w] = (int32_t *)(void *)(memory + at);
        at += rows * (size_t)out->ld[w] * sizeof(int32_t);
    }
    float **const lists[] = {&out->unit[0], &out->unit[1], &out->middle[0], &out->middle[1],
                             &out->total,   &out->noise,   &out->share};
    for (size_t i = 0; i < KVT_ARRAY_LEN(lists); i++) {
        if (memory) *lists[i] = (float *)(void *)(memory + at);
        at += (size_t)kvt_round_up((int64_t)(rows * (size_t)out->n_segments * sizeof(float)), 64);
    }
    return at;
}
