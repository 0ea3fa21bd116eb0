/* SPDX-License-Identifier: Apache-2.0
 * llama (Touvron et al. 2023), and what files call so: Mistral, SmolLM2, TinyLlama, with or without biases. */
#include "model/block.h"

const struct kvt_arch kvt_arch_llama = {
    .name = "llama",
    .pairing = KVT_ROPE_NEIGHBOURS,
    .needs = {kvt_specs_attention, kvt_specs_gated},
    .may_have = {kvt_specs_qkv_bias, kvt_specs_out_bias},
    .attend = kvt_block_attend,
    .feed = kvt_block_feed_gated,
};
