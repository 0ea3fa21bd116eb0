/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of known lengths, whose vectors are to stay in registers.
 */
#ifndef KERNEL_UNROLL_H
#define KERNEL_UNROLL_H

/* MAY_UNROLL: where the number of turns is known in some of a function's instances. clang warns of the others. */
#if defined(KVT_ASSERTS) /* builds for tests: compilers take minutes over unrolled and checked loops */
#define UNROLL
#define MAY_UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define MAY_UNROLL
#else
#define UNROLL     _Pragma("GCC unroll 16")
#define MAY_UNROLL UNROLL
#endif

#endif
