/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernel serves which level.
 */
#include "base/attr.h"
#include "codec/encoders.h"
#include "kernel/table.h"

#define TABLE(op)                                                                                                      \
    const kvt_##op##_fn kvt_##op##_table[KVT_LEVEL_COUNT] = {[KVT_LEVEL_REF] = kvt_##op##_ref,                         \
                                                             [KVT_LEVEL_NEON] = KVT_ARM(kvt_##op##_neon),              \
                                                             [KVT_LEVEL_AVX2] = KVT_X86(kvt_##op##_avx2),              \
                                                             [KVT_LEVEL_AVX512] = KVT_X86(kvt_##op##_avx512)}
TABLE(unpack);
TABLE(fold);
TABLE(soften);
TABLE(decode);

/* The reference of these is unpack and fold. */
#define FUSED_TABLE(op)                                                                                                \
    const kvt_##op##_fn kvt_##op##_table[KVT_LEVEL_COUNT] = {[KVT_LEVEL_NEON] = KVT_ARM(kvt_##op##_neon),              \
                                                             [KVT_LEVEL_AVX2] = KVT_X86(kvt_##op##_avx2),              \
                                                             [KVT_LEVEL_AVX512] = KVT_X86(kvt_##op##_avx512)}
FUSED_TABLE(fused);
FUSED_TABLE(round);

#define MANY_TABLE(op)                                                                                                 \
    const kvt_##op##_fn kvt_##op##_table[KVT_LEVEL_COUNT] = {[KVT_LEVEL_AMX] = KVT_X86(kvt_##op##_amx)}
MANY_TABLE(split);
MANY_TABLE(spread);
MANY_TABLE(many);

#define PICK(op)                                                                                                       \
    for (int l = (int)level; l >= 0 && !out.op; l--) out.op = kvt_##op##_table[l]

struct kvt_kernels kvt_kernels_select(enum kvt_level level) {
    struct kvt_kernels out = {.level = level};
    PICK(unpack);
    PICK(fold);
    PICK(soften);
    PICK(decode);
    PICK(fused);
    PICK(round);
    PICK(split);
    PICK(spread);
    PICK(many);
    return out;
}

/* ---- encoders ---------------------------------------------------------------------------------------------------------- */

static const struct {
    const struct kvt_encoder *encoder;
    kvt_encode_fn kernel[KVT_LEVEL_COUNT];
} encode_table[] = {
#define X(name, level)                                                                                                 \
    {&kvt_encoder_##name,                                                                                              \
     {[KVT_LEVEL_NEON] = KVT_ARM(kvt_encode_##name##_neon),                                                            \
      [KVT_LEVEL_AVX2] = KVT_X86(kvt_encode_##name##_avx2),                                                            \
      [KVT_LEVEL_AVX512] = KVT_X86(kvt_encode_##name##_avx512)}},
    KVT_ENCODE_KERNELS(X, any)
#undef X
};

kvt_encode_fn kvt_encode_kernel(const struct kvt_codec *codec, enum kvt_level level) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(encode_table); i++)
        if (encode_table[i].encoder == codec->encoder) return encode_table[i].kernel[level];
    return NULL;
}

kvt_encode_fn kvt_encode_select(const struct kvt_codec *codec, enum kvt_level level) {
    for (int l = (int)level; l > KVT_LEVEL_REF; l--) {
        const kvt_encode_fn fn = kvt_encode_kernel(codec, (enum kvt_level)l);
        if (fn) return fn;
    }
    return kvt_encode_ref;
}
