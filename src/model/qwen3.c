/* SPDX-License-Identifier: Apache-2.0
 * qwen3 (Yang et al. 2025): each head of Q and K is normalised before RoPE; no biases; the head size is the file's own. */
#include "model/block.h"

const struct kvt_arch kvt_arch_qwen3 = {
    .name = "qwen3",
    .pairing = KVT_ROPE_HALVES,
    .needs = {kvt_specs_attention, kvt_specs_qk_norm, kvt_specs_gated},
    .attend = kvt_block_attend,
    .feed = kvt_block_feed_gated,
};
