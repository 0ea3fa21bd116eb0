/* SPDX-License-Identifier: Apache-2.0
 * The weight kernels at level avx512: each type's unpack and the operations, over the level's vocabulary. */
#include "weight/x86/strip_avx512.h"
#include "weight/x86/v32_avx512.h"

#include "weight/tile.inc"

extern const struct kvt_weight_tile kvt_weight_tile_avx512;
const struct kvt_weight_tile kvt_weight_tile_avx512 = {KVT_LEVEL_AVX512, strip_round, V32_PARTS, multiply};

#include "weight/bf16.inc"
#include "weight/f16.inc"
#include "weight/f32.inc"
#include "weight/q4_0.inc"
#include "weight/q4_1.inc"
#include "weight/q4_k.inc"
#include "weight/q5_0.inc"
#include "weight/q5_1.inc"
#include "weight/q5_k.inc"
#include "weight/q6_k.inc"
#include "weight/q8_0.inc"
