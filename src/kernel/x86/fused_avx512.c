/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused attention products and softmax at level avx512.
 */
#include "kernel/kernel.h"
#include "kernel/table.h"
#include "kernel/x86/v16_avx512.h"

#define NAME(op) kvt_##op##_avx512
#include "kernel/fused.inc"
#include "kernel/soften.inc"
