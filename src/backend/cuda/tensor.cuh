/* SPDX-License-Identifier: Apache-2.0
 *
 * Products on tensor cores at the precision of f32: a number is split into what tf32 keeps of it and the rest, and of the four products
 * the three that count are added up (3xTF32, as CUTLASS calls it). Exponents are those of f32, so that nothing has to be scaled first.
 * On a processor tests/cuda/on_host.h has the same two functions.
 */
#ifndef BACKEND_CUDA_TENSOR_CUH
#define BACKEND_CUDA_TENSOR_CUH

#include "backend/cuda/simt.cuh"

#if defined(__CUDACC__)
/* x in 11 bits, to nearest. */
KVT_DEVICE float tf32_of(float x) {
    return __uint_as_float((__float_as_uint(x) + 0x1000u) &
                           0xffffe000u); /* cvt.rna.tf32 is twice as many instructions */
}
/* d += A B: 16 lanes by 8 terms by 8 columns. Thread (r, c) = (place in warp / 4, place % 4) has of A lanes r and r + 8 at term c, then at
 * term c + 4, of B column r at these terms, of d lanes r and r + 8 (the latter in [2] and [3]) at columns 2 c and 2 c + 1. */
KVT_DEVICE void mma_tf32(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}
KVT_DEVICE float exp2_near(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

/* Four floats in shared memory. */
struct alignas(16) float_quad {
    float at[4];
};
struct split_quad {
    float_quad high, low;
};
KVT_DEVICE split_quad split(const float_quad &x) {
    split_quad s;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s.high.at[i] = tf32_of(x.at[i]);
        s.low.at[i] = x.at[i] - s.high.at[i];
    }
    return s;
}

/* A matrix in shared memory: lines of `pitch` floats, a multiple of 32. Quads of a line change places so that neither eight lines at one place nor
 * two lines at four places meet a bank twice. */
struct matrix {
    float *at;
    int pitch;
};
KVT_DEVICE int quad_place(const matrix &m, int line, int quad) {
    return line * m.pitch + 4 * (quad ^ ((line & 1) << 2 | (line >> 1 & 3)));
}
KVT_DEVICE float_quad *quad_of(const matrix &m, int line, int quad) {
    return reinterpret_cast<float_quad *>(m.at + quad_place(m, line, quad));
}
KVT_DEVICE float &element_of(const matrix &m, int line, int place) {
    return m.at[quad_place(m, line, place / 4) + place % 4];
}

/* Sums of a product that are kept apart so that the many small ones cost the large ones no digits. */
struct product {
    float large[4], small[4];
};
/* Adds 16 terms: x has lines line0 .. line0 + 15 by terms, high and low are the two parts of what those are multiplied with, by column. */
template <int eights>
KVT_DEVICE void multiply(product (&sums)[eights], const matrix &x, int line0, const matrix &high, const matrix &low,
                         int step) {
    const int r = thread_in_warp() / 4, c = thread_in_warp() % 4, quad = 4 * step + c;
    const split_quad upper = split(*quad_of(x, line0 + r, quad)), lower = split(*quad_of(x, line0 + r + 8, quad));
#pragma unroll
    for (int n = 0; n < eights; n++) {
        const float_quad h = *quad_of(high, 8 * n + r, quad), l = *quad_of(low, 8 * n + r, quad);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const float a[4] = {upper.high.at[i], lower.high.at[i], upper.high.at[i + 1], lower.high.at[i + 1]};
            const float rest[4] = {upper.low.at[i], lower.low.at[i], upper.low.at[i + 1], lower.low.at[i + 1]};
            const float b[2] = {h.at[i], h.at[i + 1]}, b_rest[2] = {l.at[i], l.at[i + 1]};
            mma_tf32(sums[n].large, a, b);
            mma_tf32(sums[n].small, a, b_rest);
            mma_tf32(sums[n].small, rest, b);
        }
    }
}

#endif
