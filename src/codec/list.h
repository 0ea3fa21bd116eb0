/* SPDX-License-Identifier: Apache-2.0
 *
 * Every encoder, one line each: the order gives the codecs' places in the registry, so append only.
 */
#ifndef CODEC_LIST_H
#define CODEC_LIST_H

#define KVT_ENCODERS(X)                                                                                                \
    X(f32)                                                                                                             \
    X(f16)                                                                                                             \
    X(bf16)                                                                                                            \
    X(affine)                                                                                                          \
    X(kivi)                                                                                                            \
    X(kvarn)                                                                                                           \
    X(kvarn_parity)                                                                                                    \
    X(q_0)                                                                                                             \
    X(q_1)                                                                                                             \
    X(iq4_nl)                                                                                                          \
    X(fp8)                                                                                                             \
    X(mxfp)                                                                                                            \
    X(turbo)                                                                                                           \
    X(kivi_parity)                                                                                                     \
    X(affine_metal)                                                                                                    \
    X(vu)                                                                                                              \
    X(kq)                                                                                                              \
    X(kq_feedback)

#endif
