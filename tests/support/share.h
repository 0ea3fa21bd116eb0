/* SPDX-License-Identifier: Apache-2.0
 * Tests that go through thousands of like cases take one in N of them, drawn by the case's number, where the environment has
 * KVT_TEST_SHARE=N: an emulated processor takes minutes for what a real one does in seconds. */
#ifndef SUPPORT_SHARE_H
#define SUPPORT_SHARE_H

#include <stdbool.h>

/* Whether the case is taken; *n_cases counts them and starts at 0. */
bool share_takes(unsigned *n_cases);

#endif
