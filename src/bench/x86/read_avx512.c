/* SPDX-License-Identifier: Apache-2.0
 * Reading memory at level avx512. */
#include <immintrin.h>

#define NAME    kvt_read_avx512
#define VECTOR  __m512i
#define LOAD(p) _mm512_load_si512((const void *)(p))
#define XOR     _mm512_xor_si512
#define FOLD(a) ((uint64_t)_mm512_reduce_add_epi64(a))
#include "bench/read.inc"
