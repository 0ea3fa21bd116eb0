/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused attention products and softmax at level avx2.
 */
#include "kernel/kernel.h"
#include "kernel/table.h"
#include "kernel/x86/v16_avx2.h"

#define NAME(op) kvt_##op##_avx2
#include "kernel/fused.inc"
#include "kernel/soften.inc"
