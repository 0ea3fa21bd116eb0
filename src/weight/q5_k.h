/* SPDX-License-Identifier: Apache-2.0
 * Q5_K: Q4_K with a fifth bit a code: bit g of `high[j]` belongs to element j of group g. */
#ifndef WEIGHT_Q5_K_H
#define WEIGHT_Q5_K_H

#include <stdint.h>

/* In the file at any alignment: bytes only. */
struct kvt_q5_k_block {
    uint8_t d[2], m[2], scales[12], high[32], q[128];
};
_Static_assert(sizeof(struct kvt_q5_k_block) == 176, "q5_k block layout");

#endif
