/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention kernel for few query rows: online softmax over body, sink and tail (Milakov and Gimelshein 2018; the context is split over
 * blocks and merged as in Flash-Decoding, Dao et al. 2023).
 *
 * A warp owns two slots of shared memory, one for keys and one for values, fills them itself and waits for no other warp inside a share.
 * Weights are relative to a reference that is looked at across lanes only when a score passes it by SLACK; they are kept times 2^up, as
 * large as f16 allows with the scales that they meet, so that small ones keep their digits.
 */
#ifndef BACKEND_CUDA_ATTEND_KERNEL_CUH
#define BACKEND_CUDA_ATTEND_KERNEL_CUH

#include <type_traits>

#include "backend/cuda/attend_class.cuh"
#include "backend/cuda/attend_few.cuh"
#include "backend/cuda/attend_known.cuh"
#include "backend/cuda/attend_merge.cuh"
#include "backend/cuda/attend_table.cuh"

namespace kvt {

// Warps of a block: 8 have 255 registers each, 12 have 168, in which the sums of a kernel for any codes do not fit.
template <int D, int NB, class K>
constexpr int MOST_WARPS =
    K::KNOWN || K::CLASS_BITS != 0 || Shape<D, NB>::MOST_WARPS < 8 ? Shape<D, NB>::MOST_WARPS : 8;

// Which units of a share a warp takes: each n_warps-th. PAIRS: both units of a tile of the body, one after the other.
template <bool PAIRS> struct Walked {
    static __device__ __forceinline__ int first(const kvt_cuda_share &share, const kvt_cuda_seq &seq, int warp) {
        if (!PAIRS) return share.first + warp;
        return max(share.first, share.first - ((share.first + seq.first_unit[KVT_REGION_BODY]) & 1) + 2 * warp);
    }
    static __device__ __forceinline__ int next(const kvt_cuda_seq &seq, int unit, int n_warps) {
        if (!PAIRS) return unit + n_warps;
        return unit + ((unit + seq.first_unit[KVT_REGION_BODY]) & 1 ? 2 * n_warps - 1 : 1);
    }
};

// Where a warp is in the block's shares: the unit that it fetches next, and the address of its page, which is fetched a unit earlier.
template <bool PAIRS> struct Cursor {
    const Args &a;
    int next_share = -1, begin = 0, unit = 0, end = 0; // of the share
    int region_end = 0,
        number = 0; // of the region, in the share's units; from a unit of the share to its number in the region
    int log = 0;    // of units in a tile
    uint32_t head_at = 0;
    const void *const *pages = nullptr;
    const kvt_cuda_seq *seq = nullptr;
    int head = 0;
    bool more = true, coded = false; // of the unit that is found
    const char *page = nullptr;

    // share, of: the block's first one and its sequence, read before.
    __device__ __forceinline__ Cursor(const Args &args, const kvt_cuda_share &share, const kvt_cuda_seq &of, int warp)
        : a(args) {
        enter_share(share, of, warp);
        if (unit < end)
            enter_region(of), find_page();
        else
            find(warp);
    }
    __device__ __forceinline__ void enter_share(const kvt_cuda_share &share, const kvt_cuda_seq &of, int warp) {
        seq = a.call.seqs + share.seq, head = share.head, next_share = share.next;
        begin = share.first, unit = Walked<PAIRS>::first(share, of, warp), end = share.end;
    }
    __device__ __forceinline__ void enter_region(const kvt_cuda_seq &of) {
        const int n_body = of.n_units[KVT_REGION_BODY], n_plain = n_body + of.n_units[KVT_REGION_SINK];
        const int where = unit < n_body ? KVT_REGION_BODY : unit < n_plain ? KVT_REGION_SINK : KVT_REGION_TAIL;
        auto chosen = [&](auto body, auto sink, auto tail) {
            return where == KVT_REGION_BODY ? body : where == KVT_REGION_SINK ? sink : tail;
        };
        region_end = chosen(n_body, n_plain, 0x7fffffff);
        number = chosen(of.first_unit[KVT_REGION_BODY], of.first_unit[KVT_REGION_SINK] - n_body,
                        of.first_unit[KVT_REGION_TAIL] - n_plain);
        pages = chosen(of.pages[KVT_REGION_BODY], of.pages[KVT_REGION_SINK], of.pages[KVT_REGION_TAIL]);
        head_at = (uint32_t)head * chosen(a.body.head_bytes, a.sink_head_bytes, a.plain.head_bytes);
        coded = where == KVT_REGION_BODY && a.body.k.bits != 0;
        log = coded ? 1 : 2;
    }
    __device__ __forceinline__ void find_page() {
        page = (const char *)__ldg((const unsigned long long *)(pages + ((unit + number) >> log)));
    }
    // In the share, or in a later one; or there is no more.
    __device__ __forceinline__ void find(int warp) {
        if (unit >= region_end || unit >= end) {
            while (unit >= end) {
                if (next_share < 0) {
                    more = false;
                    return;
                }
                const kvt_cuda_share share = load_whole(a.call.shares + next_share);
                enter_share(share, a.call.seqs[share.seq], warp);
            }
            enter_region(load_whole(seq));
        }
        find_page();
    }
    __device__ __forceinline__ const char *tile() const { return page + head_at; }
    __device__ __forceinline__ void next(int n_warps) { unit = Walked<PAIRS>::next(*seq, unit, n_warps); }
    // Whether the warp had no other unit of the tile just before.
    __device__ __forceinline__ bool fresh() const { return unit == begin || part() == 0; }
    __device__ __forceinline__ int part() const { return (unit + number) & ((1 << log) - 1); }
};

// Reads the query vectors of a share, turned where the body is, into shared memory, each below 1/2.
template <int D, int NB>
__device__ void prepare_queries(const Args &a, const kvt_cuda_share &share, const kvt_cuda_seq &seq, char *queries,
                                float *term_sums, float *factors, int warp, int n_warps, int lane) {
    constexpr int N = D / 32, STRIDE = Queries<D, NB>::STRIDE, BYTES = Queries<D, NB>::BYTES;
    const kvt_cuda_attend &call = a.call;
    for (int column = warp; column < 8 * NB; column += n_warps) {
        const int vector = share.column + column, row = vector / call.group;
        float q[N] = {};
        if (row < seq.n_rows) {
            const ptrdiff_t at = (seq.row + row) * call.q_row_stride +
                                 (share.head * call.group + vector % call.group) * call.q_head_stride;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const ptrdiff_t i = at + 32 * j + lane;
                q[j] = call.q_type == KVT_TYPE_F32   ? ((const float *)call.q)[i]
                       : call.q_type == KVT_TYPE_F16 ? __half2float(((const __half *)call.q)[i])
                                                     : __uint_as_float((uint32_t)((const uint16_t *)call.q)[i] << 16);
            }
        }
        for (int turned = 0; turned < 2; turned++) {
            if (turned) {
                if (!a.rotated_k) break;
#pragma unroll
                for (int stride = 1; stride < 32; stride *= 2)
#pragma unroll
                    for (int j = 0; j < N; j++) {
                        const float other = __shfl_xor_sync(~0u, q[j], stride);
                        q[j] = lane & stride ? other - q[j] : q[j] + other;
                    }
#pragma unroll
                for (int stride = 1; stride < (D & -D) / 32; stride *= 2)
#pragma unroll
                    for (int j = 0; j < N; j++)
                        if (!(j & stride)) {
                            const float x = q[j], y = q[j + stride];
                            q[j] = x + y, q[j + stride] = x - y;
                        }
                const float norm = rsqrtf((float)(D & -D));
                for (int j = 0; j < N; j++) q[j] *= norm;
            }
            float most = 0;
#pragma unroll
            for (int j = 0; j < N; j++) most = fmaxf(most, fabsf(q[j]));
#pragma unroll
            for (int d = 1; d < 32; d *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
            const int exponent = (int)(__float_as_uint(most) >> 23) - 125; // most < 2^(exponent - 1)
            const int e = most > 0 ? max(-100, min(100, exponent)) : 0;
            const float down = __uint_as_float((uint32_t)(127 - e) << 23),
                        up = __uint_as_float((uint32_t)(127 + e) << 23);
            if (lane == 0) factors[turned * 8 * NB + column] = up * call.scale;
            char *to = queries + 2 * turned * BYTES + column * STRIDE;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float x = q[j] * down;
                const __half high = __float2half_rn(x), low = __float2half_rn(x - __half2float(high));
                ((__half *)to)[32 * j + lane] = high;
                ((__half *)(to + BYTES))[32 * j + lane] = low;
                if (turned == (int)a.rotated_k) {
                    float sum = __half2float(high) + (a.body.k.bits >= 6 ? __half2float(low) : 0.f);
#pragma unroll
                    for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
                    const int per = max(1, a.body.k.per), g = j / per;
                    float *at = term_sums + g * 8 * NB + column;
                    if (lane == 0) *at = j % per == 0 ? sum : *at + sum;
                }
            }
        }
    }
}

// The largest |scale| of a unit of values.
template <int D> __device__ __forceinline__ float largest_scale(uint32_t slot, const Side &v, int lane) {
    uint32_t most = 0;
    for (int g = lane / 8; g < v.groups; g += 4) {
        const uint4 s = load4(slot + ValueSlot<D>::scales(v, g) + lane % 8 * 16);
#pragma unroll
        for (int i = 0; i < 4; i++) most = bits_of(__hmax2(halves_of(most), halves_of(word_of(s, i) & 0x7fff7fffu)));
    }
    const float2 f = __half22float2(halves_of(most));
    return fmaxf(f.x, f.y);
}

template <int D, int NB> struct Walk {
    using S = Shape<D, NB>;
    const Args &a;
    int lane, r, c;
    float reference[NB][2], up;
    Mixed<D, NB> mixed;

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int nb = 0; nb < NB; nb++) reference[nb][0] = reference[nb][1] = NOTHING;
        up = MOST_UP;
        mixed.clear();
    }

    template <int BLOCKS> __device__ __noinline__ static float capped(float x, float cap) {
        return cap * tanhf(x / cap);
    }
    template <int BLOCKS> __device__ __forceinline__ void cap(Sums<NB> &x) const {
        const float most = a.call.softcap * LOG2E;
        for (int nb = 0; nb < NB; nb++)
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
#pragma unroll
                for (int t = 0; t < 2; t++)
#pragma unroll
                    for (int e = 0; e < 4; e++) x[b][t][nb][e] = capped<BLOCKS>(x[b][t][nb][e], most);
    }

    // Scores as powers of two. BLOCKS of 32 rows.
    template <int BLOCKS> __device__ __forceinline__ void to_powers(Sums<NB> &x, const float *factors) const {
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            const float2 f = *(const float2 *)(factors + nb * 8 + 2 * c);
            const float even = f.x * LOG2E, odd = f.y * LOG2E;
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
#pragma unroll
                for (int t = 0; t < 2; t++)
#pragma unroll
                    for (int e = 0; e < 4; e++) x[b][t][nb][e] *= e % 2 ? odd : even;
        }
        if (a.call.softcap > 0) cap<BLOCKS>(x);
    }

    // What a column does not see goes. `row`: of the context, the unit's first.
    template <int BLOCKS>
    __device__ void mask(Sums<NB> &x, const kvt_cuda_share &share, const kvt_cuda_seq &seq, int region,
                         bool plain_places, int row) const {
        for (int nb = 0; nb < NB; nb++)
            for (int odd = 0; odd < 2; odd++) {
                const int q_row = (share.column + nb * 8 + 2 * c + odd) / a.call.group;
                const kvt_cuda_visible &v = a.call.visible[seq.row + min(q_row, seq.n_rows - 1)];
                const int first = v.first[region], end = v.end[region];
#pragma unroll
                for (int b = 0; b < BLOCKS; b++)
#pragma unroll
                    for (int t = 0; t < 2; t++)
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            const int at = row + (plain_places ? 16 * t + 8 * h + r : 32 * b + 4 * r + 2 * t + h);
                            if (at < first || at >= end) {
                                if (odd)
                                    x[b][t][nb][2 * h + 1] = -INFINITY;
                                else
                                    x[b][t][nb][2 * h] = -INFINITY;
                            }
                        }
            }
    }

    // Moves the references where a score passes them by SLACK.
    template <int BLOCKS> __device__ __forceinline__ void refer(const Sums<NB> &x) {
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            float most[2] = {NOTHING, NOTHING};
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
#pragma unroll
                for (int t = 0; t < 2; t++)
#pragma unroll
                    for (int e = 0; e < 4; e++) most[e % 2] = fmaxf(most[e % 2], x[b][t][nb][e]);
            if (!__any_sync(~0u, most[0] > reference[nb][0] + SLACK || most[1] > reference[nb][1] + SLACK)) continue;
            float keep[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                most[e] = fmaxf(most[e], reference[nb][e]);
#pragma unroll
                for (int d = 4; d < 32; d *= 2) most[e] = fmaxf(most[e], __shfl_xor_sync(~0u, most[e], d));
                keep[e] = exp2_of(reference[nb][e] - most[e]);
                reference[nb][e] = most[e];
            }
            mixed.scale(nb, keep[0], keep[1]);
        }
    }

    // Lowers `up` where products with the unit's scales would pass f16.
    __device__ __forceinline__ void fit(uint32_t slot) {
        const Side &v = a.body.v;
        const int beside = v.bits > 4 ? 4 : v.bits == 3 ? 2 : 0; // what the second plane counts more
        fit_scale(largest_scale<D>(slot, v, lane), beside);
    }
    __device__ __forceinline__ void fit_scale(float most, int beside) { // most: of the lane
        if (!__any_sync(~0u, most > exp2_of(MOST_UP - beside - up))) return;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
        const float to = (float)(MOST_UP - beside - ((int)(__float_as_uint(most) >> 23) - 126));
#pragma unroll
        for (int nb = 0; nb < NB; nb++) mixed.scale(nb, exp2_of(to - up), exp2_of(to - up));
        up = to;
    }

    __device__ __forceinline__ float weight(float x, int nb, int e) const {
        return exp2_of(x + (up - reference[nb][e % 2]));
    }

    // Weights of a block: pairs of rows i and 4 + i of the lane's octet.
    __device__ __forceinline__ void octet_weights(uint32_t (&t)[4], const Sums<NB> &x, int b, int nb) const {
#pragma unroll
        for (int i = 0; i < 4; i++)
            t[i] = transpose8x8(
                pack(weight(x[b][i / 2][nb][i % 2 * 2], nb, 0), weight(x[b][i / 2][nb][i % 2 * 2 + 1], nb, 1)));
    }

    template <class V> __device__ __forceinline__ void mix_body(const Sums<NB> &x, uint32_t slot) {
        Weights<NB> w[2];
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int nb = 0; nb < NB; nb++) {
                uint32_t t[4];
                octet_weights(t, x, b, nb);
                w[b].n[nb][0] = lows(t[0], t[1]), w[b].n[nb][1] = lows(t[2], t[3]);
                w[b].n[nb][2] = highs(t[0], t[1]), w[b].n[nb][3] = highs(t[2], t[3]);
            }
        if constexpr (V::TABLED)
            a.body.v.bits == 8 ? mix_table<NB, true>(mixed, slot, a.body.v, w, lane)
                               : mix_table<NB, false>(mixed, slot, a.body.v, w, lane);
        else
            mix<D, NB>(mixed, slot, a.body.v, w, lane);
    }

    // Weights in the order of operands.
    __device__ __forceinline__ void weigh_known(uint4 (&w)[2][1][NB], const Sums<NB> &x) const {
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int nb = 0; nb < NB; nb++) {
                uint32_t t[4];
                octet_weights(t, x, b, nb);
                w[b][0][nb] = make_uint4(lows(t[0], t[2]), lows(t[1], t[3]), highs(t[0], t[2]), highs(t[1], t[3]));
            }
    }
    template <class V> __device__ __forceinline__ void mix_weighed(const uint4 (&w)[2][1][NB], uint32_t slot) {
        if constexpr (V::BITS == 3)
            mix_three<V, NB>(mixed, slot, w, lane);
        else
            mix_known<V, NB>(mixed, slot, w, taken_by<V::BITS>(lane, a.body.v), lane);
    }
    template <class V> __device__ __forceinline__ void mix_body_known(const Sums<NB> &x, uint32_t slot) {
        uint4 w[2][1][NB];
        weigh_known(w, x);
        mix_weighed<V>(w, slot);
    }

    __device__ __forceinline__ void mix_wide(const Sums<NB> &x, uint32_t slot) {
        Pairs<NB> high, low;
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float w0 = weight(x[0][i / 2][nb][i % 2 * 2], nb, 0),
                            w1 = weight(x[0][i / 2][nb][i % 2 * 2 + 1], nb, 1);
                const __half2 h = __floats2half2_rn(w0, w1);
                const float2 f = __half22float2(h);
                high.n[nb][i] = transpose8x8(bits_of(h));
                low.n[nb][i] = transpose8x8(pack(w0 - f.x, w1 - f.y));
            }
        mix_plain<D, NB>(mixed, slot, high, low, lane);
    }
};

template <int D, int NB, class K, class V>
__global__ void __launch_bounds__(32 * MOST_WARPS<D, NB, K>, 1) attend_kernel(const __grid_constant__ Args a) {
    using S = Shape<D, NB>;
#if defined(__CUDACC__)
    extern __shared__ __align__(128) char shared[];
#else
    char *const shared = (char *)kvt_shared;
#endif
    // The shares that warps are at: some may still merge the one before.
    __shared__ kvt_cuda_share shares[2];
    __shared__ kvt_cuda_seq seqs[2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    const uint32_t key_slot = shared_address(shared) + warp * a.slots, value_slot = key_slot + a.key_slot;
    char *queries = shared + n_warps * a.slots;
    float *term_sums = (float *)(queries + S::QUERIES), *factors = term_sums + S::TERM_SUMS / 4;
    float *handed = factors + S::FACTORS / 4;
    const Queries<D, NB> plain = {shared_address(queries), shared_address(queries) + Queries<D, NB>::BYTES, 0};
    const uint32_t turned = a.rotated_k || K::KNOWN ? 2 * Queries<D, NB>::BYTES : 0;
    const Queries<D, NB> body = {plain.high + turned, plain.low + turned, shared_address(term_sums)};
    const bool coded = a.body.k.bits != 0;

    constexpr bool CLASSED = K::CLASS_BITS != 0;
    // Queries before the body's copies: those fill the pipe that queries would pass through.
    uint4 first_queries[NB] = {};
    auto load_queries = [&](const kvt_cuda_share &share) {
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
            if ((K::KNOWN || CLASSED) && warp + nb * n_warps < 8 * NB)
                first_queries[nb] = load_query(a.call, share, warp + nb * n_warps, lane);
    };
    const kvt_cuda_share first_share = load_whole(a.call.shares + blockIdx.x);
    const kvt_cuda_seq first_seq = load_whole(a.call.seqs + first_share.seq);
    load_queries(first_share);
    Cursor<CLASSED> cursor(a, first_share, first_seq, warp);
    auto prepare = [&](const kvt_cuda_share &share, const kvt_cuda_seq &seq, int at) {
        if constexpr (K::KNOWN)
            prepare_known<K, NB>(a, share, queries, term_sums, factors, first_queries, warp, n_warps, lane);
        else if constexpr (CLASSED)
            prepare_class_queries(a, share, queries, factors, first_queries[0], warp, n_warps, lane);
        else
            prepare_queries<D, NB>(a, share, seq, queries, term_sums, factors, warp, n_warps, lane);
        if (threadIdx.x == 0) shares[at] = share, seqs[at] = seq;
        __syncthreads();
    };
    auto fetch_k = [&]() {
        if (cursor.more) {
            if (cursor.coded) {
                if constexpr (K::KNOWN)
                    fetch_known_keys<K>(key_slot, cursor.tile(), cursor.part(), lane);
                else if constexpr (K::TABLED)
                    fetch_table_keys(key_slot, cursor.tile(), a.body.k, cursor.part(), lane);
                else if constexpr (CLASSED)
                    fetch_class_keys<K::CLASS_BITS>(key_slot, cursor.tile(), cursor.part(), cursor.fresh(), lane);
                else
                    fetch_keys<D>(key_slot, cursor.tile(), a.body.k, cursor.part(), lane);
            } else
                fetch_plain_keys<D>(key_slot, cursor.tile(), a.plain.k, cursor.part(), lane);
        }
        copies_begun();
    };
    auto fetch_v = [&]() {
        if (cursor.more) {
            if (cursor.coded) {
                if constexpr (V::LOGS)
                    fetch_log_values<V>(value_slot, cursor.tile() + K::TILE, cursor.part(), lane);
                else if constexpr (V::KNOWN)
                    fetch_known_values<V>(value_slot, cursor.tile() + K::TILE, cursor.part(), lane);
                else if constexpr (V::TABLED)
                    fetch_table_values(value_slot, cursor.tile(), a.body.v, cursor.part(), lane);
                else
                    fetch_body_values<D>(value_slot, cursor.tile(), a.body.v, cursor.part(), lane);
            } else
                fetch_plain_values<D>(value_slot, cursor.tile(), a.plain.v, cursor.part(), lane);
            cursor.next(n_warps);
            cursor.find(warp);
        }
        copies_begun();
    };
    prepare(first_share, first_seq, 0);
    fetch_k();
    fetch_v();

    Walk<D, NB> walk{a, lane, lane / 4, lane % 4};
    for (int at = 0;; at ^= 1) {
        const kvt_cuda_share &share = shares[at];
        const kvt_cuda_seq &seq = seqs[at];
        walk.begin();
        const int n_body = seq.n_units[KVT_REGION_BODY], n_sink = seq.n_units[KVT_REGION_SINK], end = share.end;
        const bool few = CLASSED && share.n_rows * a.call.group - share.column <= 4;
        bool settled = !coded;
        for (int u = Walked<CLASSED>::first(share, seq, warp); u < end; u = Walked<CLASSED>::next(seq, u, n_warps)) {
            const int region = u < n_body ? KVT_REGION_BODY : u < n_body + n_sink ? KVT_REGION_SINK : KVT_REGION_TAIL;
            const int count = u - (region == KVT_REGION_BODY   ? 0
                                   : region == KVT_REGION_SINK ? n_body
                                                               : n_body + n_sink);
            Sums<NB> x = {};
            wait_for_copies<1>();
            __syncwarp();
            if (region == KVT_REGION_BODY && coded) {
                const int row = (seq.first_unit[region] + count) * KVT_CUDA_CODED_ROWS;
                if constexpr (K::KNOWN && K::BY_TOKEN) {
                    score_known_lane<K, NB>(x, key_slot, body, lane);
                } else if constexpr (K::KNOWN) {
                    turn_known_keys<K>(key_slot, lane);
                    __syncwarp();
                    score_known_fold<K, NB>(x, key_slot, body, lane);
                } else if constexpr (K::TABLED) {
                    unpack_table_scales(key_slot, a.body.k, true, lane);
                    a.body.k.bits == 8 ? score_table<NB, true>(x, key_slot, a.body.k, body, lane)
                                       : score_table<NB, false>(x, key_slot, a.body.k, body, lane);
                } else if constexpr (CLASSED) {
                    const bool fresh = u == share.first || !((seq.first_unit[region] + count) & 1);
                    score_class<K::CLASS_BITS>(x, key_slot, plain.high + 2 * Queries<D, NB>::BYTES, fresh, few, lane);
                } else {
                    score<D, NB>(x, key_slot, a.body.k, body, lane);
                }
                __syncwarp();
                fetch_k();
                const bool masked = row < seq.all.first[region] || row + KVT_CUDA_CODED_ROWS > seq.all.end[region];
                float few_reference = 0;
                if constexpr (CLASSED)
                    if (few) {
                        few_to_powers(walk, x, factors);
                        if (masked) few_mask(walk, x, share, seq, region, row);
                        few_reference = few_refer(walk, x);
                    }
                if (!few) {
                    walk.template to_powers<2>(x, factors + (a.rotated_k ? S::COLUMNS : 0));
                    if (masked) walk.template mask<2>(x, share, seq, region, false, row);
                    walk.template refer<2>(x);
                }
                wait_for_copies<1>();
                __syncwarp();
                if constexpr (V::LOGS) {
                    walk.fit_scale(unpack_log_values<V>(value_slot, lane), 0);
                    __syncwarp();
                    uint4 w[2][1][NB];
                    if (few)
                        few_weigh(walk, w, x, few_reference);
                    else
                        walk.weigh_known(w, x);
                    walk.template mix_weighed<V>(w, value_slot);
                } else if constexpr (V::KNOWN) {
                    const float2 most = __half22float2(halves_of(turn_known_values<V>(value_slot, lane)));
                    walk.fit_scale(fmaxf(most.x, most.y), 0);
                    __syncwarp();
                    walk.template mix_body_known<V>(x, value_slot);
                } else if constexpr (V::TABLED) {
                    unpack_table_scales(value_slot, a.body.v, false, lane);
                    walk.template mix_body<V>(x, value_slot);
                } else {
                    if (a.body.v.logs) unpack_log_scales<D>(value_slot, a.body.v, lane);
                    walk.fit(value_slot);
                    walk.template mix_body<V>(x, value_slot);
                }
            } else {
                const int row = (seq.first_unit[region] + count) * KVT_CUDA_PLAIN_ROWS;
                if (!settled) settle(walk.mixed, a.body.v, a.rotated_v, lane), settled = true;
                score_plain<D, NB>(x, key_slot, plain, lane);
                __syncwarp();
                fetch_k();
                walk.template to_powers<1>(x, factors);
                if (row < seq.all.first[region] || row + KVT_CUDA_PLAIN_ROWS > seq.all.end[region])
                    walk.template mask<1>(x, share, seq, region, true, row);
                walk.template refer<1>(x);
                wait_for_copies<1>();
                __syncwarp();
                walk.mix_wide(x, value_slot);
            }
            __syncwarp();
            fetch_v();
        }
        const int next = share.next, n_columns = min(S::COLUMNS, share.n_rows * a.call.group - share.column);
        // After the last share a warp's slots are free.
        const Lines lines = next < 0 ? Lines{(float *)shared, (int)a.slots / 4, n_warps}
                                     : Lines{handed, n_columns * S::LINE, S::HANDED / 4 / (n_columns * S::LINE)};
        if (next >= 0) load_queries(load_whole(a.call.shares + next));
        constexpr bool CODED = V::KNOWN && !V::FACTOR;
        // By each warp where there are plain rows, which are not turned; otherwise all sums at once.
        const bool turns = CODED && !settled && !(V::LOGS && end > n_body);
        if (turns) {
            put_all_lines<D, NB, CODED>(a, walk.mixed, walk.reference, walk.up, lines, n_columns, warp, n_warps, lane);
        } else {
            if (!settled) settle(walk.mixed, a.body.v, a.rotated_v, lane);
            put_all_lines<D, NB, false>(a, walk.mixed, walk.reference, walk.up, lines, n_columns, warp, n_warps, lane);
        }
        hand_in<D, NB>(a, share, lines, turns && a.rotated_v, n_columns, warp, n_warps, lane);
        if (next < 0) return;
        const kvt_cuda_share next_share = load_whole(a.call.shares + next);
        prepare(next_share, load_whole(a.call.seqs + next_share.seq), at ^ 1);
    }
}

} // namespace kvt

#endif
