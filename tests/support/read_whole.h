/* SPDX-License-Identifier: Apache-2.0
 *
 * What "a file that opens can be read without further checks" means, done.
 */
#ifndef SUPPORT_READ_WHOLE_H
#define SUPPORT_READ_WHOLE_H

#include "gguf/gguf.h"

/* Looks up every name, reads every value by every look-up and every byte of every tensor, and checks what gguf.h promises of
 * them. Returns a sum that depends on all of it; false through *kept if a promise was broken. */
uint64_t kvt_read_whole(const struct kvt_gguf *gguf, bool *kept);

#endif
