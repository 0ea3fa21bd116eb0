/* SPDX-License-Identifier: Apache-2.0
 * The weight kernels at level amx: types of codes, whose tokens meet strips by groups in tiles. */
#include "weight/x86/v32_avx512.h"
#undef V32_NAME
#define V32_NAME(type) kvt_weight_##type##_amx

#include "weight/x86/strip_amx.h"

#include "weight/q4_0.inc"
#include "weight/q4_1.inc"
#include "weight/q4_k.inc"
#include "weight/q5_0.inc"
#include "weight/q5_1.inc"
#include "weight/q5_k.inc"
#include "weight/q6_k.inc"
#include "weight/q8_0.inc"
