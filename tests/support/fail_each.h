/* SPDX-License-Identifier: Apache-2.0
 *
 * Out of memory, at every place where it can happen.
 */
#ifndef SUPPORT_FAIL_EACH_H
#define SUPPORT_FAIL_EACH_H

#include "base/alloc.h"

/* Something that takes memory from `allocator` only and has given all of it back when it returns, whatever happened. */
typedef enum kvt_status (*kvt_scenario_fn)(void *ctx, const struct kvt_allocator *allocator);

/* Runs the scenario with its first take failing, then its second, and so on until it runs through; fails the cmocka test
 * unless each failing run returns NOMEM and no run keeps a block. Returns the number of takes of the whole run. */
size_t kvt_fail_each(kvt_scenario_fn scenario, void *ctx);

#endif
