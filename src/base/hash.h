/* SPDX-License-Identifier: Apache-2.0
 * Checksums of files: XXH3, 64 bits, without a seed (xxHash, Yann Collet). */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t kvt_hash(const void *data, size_t bytes);

#endif
