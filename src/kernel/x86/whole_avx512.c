/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoders of whole numbers at level avx512, over vectors of 512 bits. What would leave half of one empty is encoded at level avx2.
 */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "base/half.h"
#include "codec/class.h"
#include "codec/whole.h"
#include "kernel/kernel.h"
#include "kernel/table.h"
#include "kernel/x86/vh_avx512.h"
#include "kernel/x86/vw_avx512.h"

static void wide_encode_kq(const struct kvt_encode_args *a);
static void wide_encode_vu(const struct kvt_encode_args *a);

#define NAME(op) wide_##op
#include "kernel/encode_heads.inc"

#include "kernel/encode_pack.inc"

#include "kernel/encode_vu.inc"

#include "kernel/encode_kq.inc"

void kvt_encode_kq_avx512(const struct kvt_encode_args *a) {
    (a->tile->n_terms % VH ? kvt_encode_kq_avx2 : wide_encode_kq)(a);
}

void kvt_encode_vu_avx512(const struct kvt_encode_args *a) {
    const bool is_narrow = a->tile->n_lanes % VH || a->n * (a->n_more + 1) <= VG / 2;
    (is_narrow ? kvt_encode_vu_avx2 : wide_encode_vu)(a);
}
