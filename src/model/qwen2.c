/* SPDX-License-Identifier: Apache-2.0
 * qwen2 (Yang et al. 2024): llama with biases of Q, K and V, and pairs half a head apart. */
#include "model/block.h"

const struct kvt_arch kvt_arch_qwen2 = {
    .name = "qwen2",
    .pairing = KVT_ROPE_HALVES,
    .needs = {kvt_specs_attention, kvt_specs_qkv_bias, kvt_specs_gated},
    .attend = kvt_block_attend,
    .feed = kvt_block_feed_gated,
};
