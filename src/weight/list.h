/* SPDX-License-Identifier: Apache-2.0
 * Every weight type, one line each, in the order in which users are told of them; each is a file of the same name, and with
 * nothing else it works at every level. To make it fast: NAME.inc (its unpack over v32; of codes, how they lie in strips), a line for that in each
 * kernels_LEVEL.c, and KVT_WEIGHT_KERNELS and KVT_WEIGHT_CELLS (of codes: CODE_) in its file. The tests want its layout, in
 * tests/support/weight_data.c, and its hashes, by tests/compare/weights.py. */
#define KVT_WEIGHT_TYPES(X)                                                                                            \
    X(f32, "F32")                                                                                                      \
    X(f16, "F16")                                                                                                      \
    X(bf16, "BF16")                                                                                                    \
    X(q8_0, "Q8_0")                                                                                                    \
    X(q4_0, "Q4_0")                                                                                                    \
    X(q4_1, "Q4_1")                                                                                                    \
    X(q5_0, "Q5_0")                                                                                                    \
    X(q5_1, "Q5_1")                                                                                                    \
    X(q4_k, "Q4_K")                                                                                                    \
    X(q5_k, "Q5_K")                                                                                                    \
    X(q6_k, "Q6_K")
