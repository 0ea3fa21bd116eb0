/* SPDX-License-Identifier: Apache-2.0
 * The table of tile products by level. */
#include "weight/tile.h"

#if defined(__x86_64__)
extern const struct kvt_weight_tile kvt_weight_tile_avx2, kvt_weight_tile_avx512;
#define LEVELS [KVT_LEVEL_AVX2] = &kvt_weight_tile_avx2, [KVT_LEVEL_AVX512] = &kvt_weight_tile_avx512
#elif defined(__aarch64__)
extern const struct kvt_weight_tile kvt_weight_tile_neon;
#define LEVELS [KVT_LEVEL_NEON] = &kvt_weight_tile_neon
#else
#define LEVELS 0
#endif

const struct kvt_weight_tile *kvt_weight_tile_find(enum kvt_level level) {
    static const struct kvt_weight_tile *const table[KVT_LEVEL_COUNT] = {LEVELS};
    int l = level;
    while (l > 0 && !table[l]) l--;
    return table[l];
}
