/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of log8.h.
 */
#include "codec/log8.h"

const uint32_t kvt_log8_fractions[128] = {
#include "codec/log8.inc"
};
