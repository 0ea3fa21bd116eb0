/* SPDX-License-Identifier: Apache-2.0
 * Makes the checksums of a snapshot right again after something in it was changed, so that what they hide is tried. */
#ifndef SUPPORT_RESEAL_H
#define SUPPORT_RESEAL_H

#include <stddef.h>

void kvt_reseal(unsigned char *data, size_t bytes);

#endif
