/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernel serves which level.
 */
#include "kernel/table.h"

#define TABLE(op)                                                                                                      \
    const kvt_##op##_fn kvt_##op##_table[KVT_LEVEL_COUNT] = {[KVT_LEVEL_REF] = kvt_##op##_ref,                         \
                                                             [KVT_LEVEL_NEON] = KVT_ARM(kvt_##op##_neon),              \
                                                             [KVT_LEVEL_AVX2] = KVT_X86(kvt_##op##_avx2),              \
                                                             [KVT_LEVEL_AVX512] = KVT_X86(kvt_##op##_avx512)}
TABLE(unpack);
TABLE(fold);
TABLE(soften);

#define PICK(op)                                                                                                       \
    for (int l = (int)level; l >= 0 && !out.op; l--) out.op = kvt_##op##_table[l]

struct kvt_kernels kvt_kernels_select(enum kvt_level level) {
    struct kvt_kernels out = {.level = level};
    PICK(unpack);
    PICK(fold);
    PICK(soften);
    return out;
}
