/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fail_each.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cmocka.h>

size_t kvt_fail_each(kvt_scenario_fn scenario, void *ctx) {
    for (size_t n = 1;; n++) {
        struct kvt_alloc_counter counter = {.fail_at = n};
        const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
        const enum kvt_status status = scenario(ctx, &allocator);
        assert_int_equal(counter.live_blocks, 0);
        assert_int_equal(counter.live_bytes, 0);
        if (counter.fail_at > 0) { /* fewer than n takes: the run was whole */
            assert_int_equal(status, KVT_OK);
            return n - 1;
        }
        assert_int_equal(status, KVT_ERR_NOMEM);
    }
}
