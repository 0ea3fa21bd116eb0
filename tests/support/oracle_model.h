/* SPDX-License-Identifier: Apache-2.0
 *
 * The truth that an engine is tested against: a slow forward pass in double precision on the dequantized weights, without a
 * cache, written for being read. It shares nothing with src/model and src/weight.
 */
#ifndef SUPPORT_ORACLE_MODEL_H
#define SUPPORT_ORACLE_MODEL_H

#include "gguf/gguf.h"

/* Rows of token_embd.weight; 0 if it is absent. */
int kvt_oracle_n_vocab(const struct kvt_gguf *gguf);

/* Logits after each of n >= 1 tokens, dst[i * n_vocab + v]. Architectures llama, qwen2 and qwen3; weights F32, F16, BF16,
 * Q8_0, Q4_0 and Q4_1. Anything else is UNSUPPORTED, a missing or misshapen tensor FORMAT. */
KVT_MUST_CHECK enum kvt_status kvt_oracle_logits(double *dst, const struct kvt_gguf *gguf, const int32_t *ids, int n,
                                                 struct kvt_error *err);

#endif
