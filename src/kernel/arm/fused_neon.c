/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused attention products and softmax at level neon.
 */
#include "kernel/arm/v16_neon.h"
#include "kernel/kernel.h"
#include "kernel/table.h"

#define NAME(op) kvt_##op##_neon
#include "kernel/fused.inc"
#include "kernel/soften.inc"
