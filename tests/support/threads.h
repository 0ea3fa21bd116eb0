/* SPDX-License-Identifier: Apache-2.0
 * Threads for tests: pools of up to 8, made when first asked for, kept to the end of the program. */
#ifndef SUPPORT_THREADS_H
#define SUPPORT_THREADS_H

#include "kvtile/runtime.h"

struct kvt_parallel test_parallel(int n_threads);

#endif
