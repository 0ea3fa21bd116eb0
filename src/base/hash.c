/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#define XXH_INLINE_ALL /* compiled in: who links kvtile need not have xxHash */
#include <xxhash.h>

uint64_t kvt_hash(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }
