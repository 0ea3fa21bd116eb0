/* SPDX-License-Identifier: Apache-2.0
 *
 * vu: a warp takes a row, a thread every 32nd channel of it. The arithmetic is that of src/codec/vu.c; its sums of whole numbers do not
 * depend on their order, and its order for floats is a warp's.
 */
#ifndef BACKEND_CUDA_ENCODE_VU_CUH
#define BACKEND_CUDA_ENCODE_VU_CUH

#include "backend/cuda/encode_unit.cuh"

enum { VU_GROUP = 128, VU_LENGTH = 32000, VU_CODE_PER = 64, VU_GROUP_PARTS = VU_GROUP / KVT_WARP };
#define VU_SHORTEST 0x1p-40f
#define ALL_LANES   0xFFFFFFFFu

/* How far codes reach from the mean, in deviations and in distances to the extreme: `reaches` of vu.c. */
KVT_DEVICE float vu_deviation(int bits) { return bits == 2 ? 0.8f : bits == 3 ? 0.3f : 0.1f; }
KVT_DEVICE float vu_extreme(int bits) { return bits == 2 ? 0.3f : bits == 3 ? 0.7f : 0.9f; }

KVT_DEVICE float smaller(float a, float b) { return a < b ? a : b; }
KVT_DEVICE float larger(float a, float b) { return a > b ? a : b; }

/* A span's elements: t[k] of this thread is element 32 k + its place. */
template <int parts> KVT_DEVICE float take_span(int16_t (&t)[parts], const float (&x)[parts], int n, int block) {
    const int lane = thread_in_warp();
    float sum = 0;
#pragma unroll
    for (int k = 0; k < parts; k++)
        if (k * KVT_WARP + lane < n) sum += x[k] * x[k];
    for (int s = KVT_WARP / 2; s > 0; s /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, s);
    const float length = larger(sqrtf(sum), VU_SHORTEST), scale = VU_LENGTH / sqrtf((float)block) / length;
#pragma unroll
    for (int k = 0; k < parts; k++) t[k] = (int16_t)(k * KVT_WARP + lane < n ? (int)rintf(x[k] * scale) : 0);
    for (int s = 1; s < KVT_WARP && s < block; s *= 2)
#pragma unroll
        for (int k = 0; k < parts; k++) {
            const int own = t[k], other = __shfl_xor_sync(ALL_LANES, own, s);
            t[k] = (int16_t)(lane & s ? other - own : own + other);
        }
#pragma unroll
    for (int s = 1; s < parts; s *= 2)
        if (s * KVT_WARP < block)
#pragma unroll
            for (int k = 0; k < parts; k++)
                if (!(k & s)) {
                    const int a = t[k], b = t[k + s];
                    t[k] = (int16_t)(a + b);
                    t[k + s] = (int16_t)(a - b);
                }
    return length * (1.0f / VU_LENGTH);
}

/* A group of n elements from part `first` on, as a group of vu.c: its step and zero, and codes. */
template <int parts>
KVT_DEVICE void encode_vu_group(const int16_t (&t)[parts], int first, int n, float unit, const struct encode_args &a,
                                char *bytes, uint8_t *codes, int pitch, int row, int row0, int channel) {
    const int bits = a.tile.format.bits, most = (1 << bits) - 1, lane = thread_in_warp();
    int lo = INT16_MAX, hi = INT16_MIN, sum = 0;
    unsigned squares = 0;
#pragma unroll
    for (int k = 0; k < VU_GROUP_PARTS; k++)
        if (k * KVT_WARP + lane < n) {
            const int v = t[first + k];
            lo = KVT_MIN(v, lo), hi = KVT_MAX(v, hi);
            sum += v, squares += (unsigned)(v * v);
        }
    lo = __reduce_min_sync(ALL_LANES, lo), hi = __reduce_max_sync(ALL_LANES, hi);
    sum = __reduce_add_sync(ALL_LANES, sum), squares = __reduce_add_sync(ALL_LANES, squares);
    const float top = (float)most, mean = (float)sum / (float)n;
    const float variance = larger((float)squares / (float)n - mean * mean, 0);
    const float shortest = larger(fabsf(mean) * (2.125f / top), kvt_scale_from_log(0) / unit);

    const float deviation = sqrtf(variance) * vu_deviation(bits), part = vu_extreme(bits);
    const float below = mean - (float)lo, above = (float)hi - mean;
    const float down = smaller(deviation + below * part, below), up = smaller(deviation + above * part, above);
    const float step0 = larger((down + up) / top, shortest);
    const int from = (int)rintf(mean - down),
              inverse = (int)rintf(smaller(VU_CODE_PER * 32768.0f / step0, KVT_WHOLE_MOST));
    int code_sum = 0, products = 0;
#pragma unroll
    for (int k = 0; k < VU_GROUP_PARTS; k++)
        if (k * KVT_WARP + lane < n) {
            const int v = t[first + k], fine = kvt_whole_part(kvt_whole_cut(v - from), inverse);
            const int code = KVT_MIN(KVT_MAX((int)kvt_whole_part(fine, 32768 / VU_CODE_PER), 0), most);
            codes[code_place(pitch, row, channel + k * KVT_WARP + lane)] = (uint8_t)((unsigned)code ^ a.tile.flip);
            code_sum += code, products += code * v;
        }
    code_sum = __reduce_add_sync(ALL_LANES, code_sum), products = __reduce_add_sync(ALL_LANES, products);
    const float shared = (float)products - mean * (float)code_sum;
    const float step = shared > 0 ? larger(variance * (float)n / shared, shortest) : step0;
    const float mean_code = (float)code_sum / (float)n;

    const int e = nearest_log8<KVT_LOG_PER>(step * unit) + KVT_LOG_BIAS;
    const uint8_t scale = (uint8_t)KVT_MIN(KVT_MAX(e, 0), 255);
    const float middle = mean * unit / kvt_scale_from_log(scale) - mean_code;
    const float shift = rintf(middle * (KVT_SHIFT_UNIT / top)) + KVT_SHIFT_UNIT / 2;
    if (lane == 0) {
        const struct scale_place at = find_scale(a.tile, row0 + row, channel);
        bytes[at.scales + (size_t)at.index] = (char)scale;
        bytes[at.zeros + (size_t)at.index] = (char)(int8_t)larger(smaller(shift, 127), -128);
    }
}

/* parts: of a span, 32 channels each. */
template <int parts> KVT_KERNEL(UNIT_THREADS / 2) encode_vu(KVT_ARGS struct encode_args a) {
    const side_by_side both;
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    struct unit u;
    if (!find_unit(&u, a, job)) return;
    const int d = u.n_lanes, block = d & -d, span = parts * KVT_WARP;
    char *bytes = static_cast<char *>(job.tile);
    for (int r = u.term_from + warp_in_block(); r < u.term_end; r += warps_of_block())
        for (int c0 = 0; c0 < d; c0 += span) {
            const int n = KVT_MIN(span, d - c0);
            float x[parts];
            int16_t t[parts];
            load_elements(
                x, a, job,
                [&](int k) { /* of none beyond the span is the value used */
                             return row_channel{u.term0 + r, c0 + KVT_MIN(k * KVT_WARP + thread_in_warp(), n - 1)};
                });
            const float unit = take_span(t, x, n, block);
#pragma unroll
            for (int k = 0; k < parts; k += VU_GROUP_PARTS)
                if (k * KVT_WARP < n)
                    encode_vu_group(t, k, KVT_MIN(VU_GROUP, n - k * KVT_WARP), unit, a, bytes, kvt_shared, u.pitch, r,
                                    u.term0, c0 + k * KVT_WARP);
        }
    __syncthreads();
    pack_unit(a.tile, bytes, kvt_shared, u);
}

#endif
