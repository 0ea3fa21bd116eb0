/* SPDX-License-Identifier: Apache-2.0 */
#include "support/share.h"

#include <stdlib.h>

#include "base/hash.h"

bool share_takes(unsigned *n_cases) {
    const char *share = getenv("KVT_TEST_SHARE");
    const int n = share ? atoi(share) : 1;
    const unsigned number = (*n_cases)++;
    return n <= 1 || kvt_hash(&number, sizeof number) % (unsigned)n == 0;
}
