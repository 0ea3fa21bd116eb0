/* SPDX-License-Identifier: Apache-2.0
 * The weight kernels at level neon: each type's unpack and the operations, over the level's vocabulary. */
#include "weight/arm/strip_neon.h"
#include "weight/arm/v32_neon.h"

#include "weight/tile.inc"

extern const struct kvt_weight_tile kvt_weight_tile_neon;
const struct kvt_weight_tile kvt_weight_tile_neon = {KVT_LEVEL_NEON, strip_round, V32_PARTS, multiply};

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
