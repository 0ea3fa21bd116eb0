/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference level: every operation in plain C. (unpack's meaning is codec/tile.c; a test holds the two together.)
 */
#include "base/half.h"
#include "kernel/kernel.h"
#include "kernel/table.h"
#include "kernel/v32_ref.h"

void kvt_decode_ref(const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes, int first, int n) {
    kvt_tile_decode(tile, rows, stride, bytes, first, n);
}

#define NAME(op)                   kvt_##op##_ref
#define LOAD_F16_ROW(row, from, n) load_f16(row, from, n)
#include "kernel/fold.inc"
#include "kernel/soften.inc"
#include "kernel/unpack.inc"
