/* SPDX-License-Identifier: Apache-2.0
 * Reading memory at level avx2. */
#include <immintrin.h>

#define NAME    kvt_read_avx2
#define VECTOR  __m256i
#define LOAD(p) _mm256_load_si256((const __m256i *)(const void *)(p))
#define XOR     _mm256_xor_si256
#define FOLD(a) ((uint64_t)_mm256_extract_epi64(_mm256_xor_si256(a, _mm256_permute4x64_epi64(a, 0x4E)), 0))
#include "bench/read.inc"
