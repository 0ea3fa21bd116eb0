/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention kernel for many query rows: 128 query vectors that share a KV head walk its units, f16 in the order of wgmma.cuh, in one
 * online softmax over body, sink and tail. The shape is FlashAttention-3's (Shah et al. 2024): one thread copies units in the background,
 * two warpgroups have 64 vectors each, and their products with the values of a unit run while the weights of the next are computed.
 *
 * A vector's result depends on what it sees alone: units lie at fixed positions and come in a fixed order, and one of which it sees nothing
 * changes no bit.
 *
 * WIDE: for caches that are all 16-bit, whose rows lose nothing else: queries and weights are two f16 each, which is all of an f32.
 */
#ifndef BACKEND_CUDA_PREFILL_KERNEL_CUH
#define BACKEND_CUDA_PREFILL_KERNEL_CUH

#include "backend/cuda/fragment.cuh"
#include "backend/cuda/prefill.h"
#include "backend/cuda/wgmma.cuh"

namespace kvt {

constexpr int LINE = 128, GROUP_THREADS = 128, GROUP_VECTORS = 64, CONSUMERS = 2,
              THREADS = GROUP_THREADS * (1 + CONSUMERS);
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
constexpr float LOG2E = 1.4426950408889634f, NOTHING = -1e30f;
constexpr float UP = 15.f; // weights are at most 2^UP, within f16, so that small ones keep their digits

template <int D, bool WIDE> struct Prefill {
    static constexpr int ROWS = D > 128 ? KVT_CUDA_PREFILL_UNIT / 2 : KVT_CUDA_PREFILL_UNIT; // of a unit
    static constexpr int WIDTH = D < 128 ? D : 128; // channels of a product with values
    static constexpr int KEY_BYTES = (D + 63) / 64 * ROWS * LINE, KEY_BLOCK = ROWS * LINE;
    static constexpr int VALUE_BYTES = ROWS / 64 * D * LINE, VALUE_BLOCK = D * LINE;
    static constexpr int QUERY_BYTES = (D + 63) / 64 * KVT_CUDA_PREFILL_COLUMNS * LINE,
                         QUERY_BLOCK = KVT_CUDA_PREFILL_COLUMNS * LINE;
    static constexpr int STAGES = WIDE && D > 128 ? 1 : 2;
    static constexpr int SHARED = (WIDE ? 2 : 1) * QUERY_BYTES + STAGES * (KEY_BYTES + VALUE_BYTES) + 1024;
};

// What one thread block sees of each region, in units; and all of its vectors, in rows.
struct Seen {
    int n[KVT_REGION_COUNT], first[KVT_REGION_COUNT], place[KVT_REGION_COUNT],
        total; // place: of the first, among the head's
    int all_first[KVT_REGION_COUNT], all_end[KVT_REGION_COUNT];
    int region, left; // of the walk

    __device__ Seen(const kvt_cuda_prefill &a, const kvt_cuda_prompt &prompt, int column, int rows) {
        const int r0 = column / a.call.group,
                  r1 = min((column + KVT_CUDA_PREFILL_COLUMNS - 1) / a.call.group, prompt.n_rows - 1);
        const kvt_cuda_visible v0 = kvt_cuda_see(&a.sight, prompt.n_before + r0 + 1),
                               v1 = kvt_cuda_see(&a.sight, prompt.n_before + r1 + 1);
        total = 0;
#pragma unroll
        for (int i = 0; i < KVT_REGION_COUNT; i++) {
            first[i] = v0.first[i] / rows;
            n[i] = v0.first[i] < v1.end[i] ? (v1.end[i] + rows - 1) / rows - first[i] : 0;
            all_first[i] = v1.first[i], all_end[i] = v0.end[i];
            total += n[i];
        }
        place[KVT_REGION_BODY] = first[KVT_REGION_BODY] - prompt.first_unit[KVT_REGION_BODY];
        place[KVT_REGION_SINK] =
            prompt.n_units[KVT_REGION_BODY] + first[KVT_REGION_SINK] - prompt.first_unit[KVT_REGION_SINK];
        place[KVT_REGION_TAIL] = prompt.n_units[KVT_REGION_BODY] + prompt.n_units[KVT_REGION_SINK] +
                                 first[KVT_REGION_TAIL] - prompt.first_unit[KVT_REGION_TAIL];
    }
    // Of the walk's unit i: the region, and its number there.
    __device__ __forceinline__ int find(int *i) const {
        if (*i < n[KVT_REGION_BODY]) return KVT_REGION_BODY;
        *i -= n[KVT_REGION_BODY];
        if (*i < n[KVT_REGION_SINK]) return KVT_REGION_SINK;
        *i -= n[KVT_REGION_SINK];
        return KVT_REGION_TAIL;
    }
};

struct Barriers {
    uint64_t keys_full[2], keys_empty[2], values_full[2], values_empty[2];
};

template <int D, bool WIDE>
__device__ __forceinline__ void produce(const kvt_cuda_prefill &a, const Seen &seen, int first_unit, uint32_t units,
                                        Barriers *barriers) {
    using P = Prefill<D, WIDE>;
    const char *from = static_cast<const char *>(a.units) + (size_t)first_unit * (P::KEY_BYTES + P::VALUE_BYTES);
    for (int i = 0; i < seen.total; i++) {
        const int stage = i % P::STAGES;
        const uint32_t parity = (i / P::STAGES & 1) ^ 1, to = units + stage * (P::KEY_BYTES + P::VALUE_BYTES);
        int number = i;
        const int region = seen.find(&number);
        const int place = number + (region == KVT_REGION_BODY   ? seen.place[KVT_REGION_BODY]
                                    : region == KVT_REGION_SINK ? seen.place[KVT_REGION_SINK]
                                                                : seen.place[KVT_REGION_TAIL]);
        const char *unit = from + (size_t)place * (P::KEY_BYTES + P::VALUE_BYTES);
        barrier_wait(shared_address(&barriers->keys_empty[stage]), parity);
        copy_in(to, unit, P::KEY_BYTES, shared_address(&barriers->keys_full[stage]));
        barrier_wait(shared_address(&barriers->values_empty[stage]), parity);
        copy_in(to + P::KEY_BYTES, unit + P::KEY_BYTES, P::VALUE_BYTES, shared_address(&barriers->values_full[stage]));
    }
}

__device__ __forceinline__ float number_of(float x) { return x; }
__device__ __forceinline__ float number_of(__half x) { return __half2float(x); }
__device__ __forceinline__ float number_of(uint16_t bf16) { return __uint_as_float((uint32_t)bf16 << 16); }

// Elements of a warp's query vectors, from number `first` of the head on: all are on their way before one is looked at.
template <int AT_ONCE, int N, class T>
__device__ __forceinline__ void load_elements(float (&q)[AT_ONCE][N], const T *from, const kvt_cuda_attend &call,
                                              const kvt_cuda_prompt &prompt, int head, int first, int lane) {
    T x[AT_ONCE][N];
#pragma unroll
    for (int v = 0; v < AT_ONCE; v++) {
        const int row = min((first + v) / call.group, prompt.n_rows - 1);
        const ptrdiff_t at = (ptrdiff_t)(prompt.row + row) * call.q_row_stride +
                             (head * call.group + (first + v) % call.group) * call.q_head_stride + lane;
#pragma unroll
        for (int j = 0; j < N; j++) x[v][j] = from[at + 32 * j];
    }
#pragma unroll
    for (int v = 0; v < AT_ONCE; v++)
#pragma unroll
        for (int j = 0; j < N; j++) q[v][j] = number_of(x[v][j]);
}

// A warp's 16 query vectors to shared memory, each divided by a power of two to be below 1/2; factors: what scores are
// multiplied by to be powers of two.
template <int D, bool WIDE>
__device__ void load_queries(const kvt_cuda_prefill &a, const kvt_cuda_prompt &prompt, int head, int column,
                             int vector0, char *queries, float *factors, int lane) {
    using P = Prefill<D, WIDE>;
    constexpr int N = D / 32, AT_ONCE = D > 128 ? 8 : 16;
    const kvt_cuda_attend &call = a.call;
#pragma unroll 1
    for (int batch = 0; batch < 16; batch += AT_ONCE) {
        float q[AT_ONCE][N];
        const int first = column + vector0 + batch;
        if (call.q_type == KVT_TYPE_F32)
            load_elements(q, (const float *)call.q, call, prompt, head, first, lane);
        else if (call.q_type == KVT_TYPE_F16)
            load_elements(q, (const __half *)call.q, call, prompt, head, first, lane);
        else
            load_elements(q, (const uint16_t *)call.q, call, prompt, head, first, lane);
#pragma unroll
        for (int v = 0; v < AT_ONCE; v++) {
            const int line = vector0 + batch + v;
            float most = 0;
#pragma unroll
            for (int j = 0; j < N; j++) most = fmaxf(most, fabsf(q[v][j]));
#pragma unroll
            for (int d = 1; d < 32; d *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
            const int exponent = (int)(__float_as_uint(most) >> 23) - 125; // most < 2^(exponent - 1)
            const int e = most > 0 ? max(-100, min(100, exponent)) : 0;
            const float down = __uint_as_float((uint32_t)(127 - e) << 23),
                        up = __uint_as_float((uint32_t)(127 + e) << 23);
            if (lane == 0) factors[line] = up * call.scale * LOG2E;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const int channel = 32 * j + lane;
                const float x = q[v][j] * down;
                const __half high = __float2half_rn(x);
                char *to = queries + channel / 64 * P::QUERY_BLOCK + line * LINE + ((channel / 8 ^ line) & 7) * 16 +
                           channel % 8 * 2;
                *(__half *)to = high;
                if (WIDE) *(__half *)(to + P::QUERY_BYTES) = __float2half_rn(x - __half2float(high));
            }
        }
    }
}

template <int D, bool WIDE> struct Consumer {
    using P = Prefill<D, WIDE>;
    static constexpr int N = P::ROWS / 2, PARTS = D / P::WIDTH; // scores of a thread; products with values side by side
    const kvt_cuda_prefill &a;
    const kvt_cuda_prompt &prompt;
    int rows[2]; // query rows of the thread's two vectors
    int lane;
    float factor[2], most[2], sum[2];
    float mixed[PARTS][P::WIDTH / 2];
    uint32_t weights[N / 2], rest[WIDE ? N / 2 : 1]; // pairs; what f16 lost of them

    __device__ __forceinline__ void score(float (&s)[N], uint32_t queries, uint32_t keys) {
        const bool low = WIDE && a.call.q_type == KVT_TYPE_F32; // others lose nothing
        if (low)
#pragma unroll
            for (int k = 0; k < D / 16; k++)
                product(s, matrix_at(queries + P::QUERY_BYTES + k / 4 * P::QUERY_BLOCK + k % 4 * 32),
                        matrix_at(keys + k / 4 * P::KEY_BLOCK + k % 4 * 32), k > 0);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            product(s, matrix_at(queries + k / 4 * P::QUERY_BLOCK + k % 4 * 32),
                    matrix_at(keys + k / 4 * P::KEY_BLOCK + k % 4 * 32), low || k > 0);
    }
    __device__ __forceinline__ void mix(uint32_t values) {
#pragma unroll
        for (int k = 0; k < P::ROWS / 16; k++)
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const uint64_t v = matrix_at(values + k / 4 * P::VALUE_BLOCK + part * 128 * LINE + k % 4 * 32);
                product(mixed[part], weights + 4 * k, v);
                if (WIDE) product(mixed[part], rest + 4 * k, v);
            }
    }

    __device__ __forceinline__ void cap(float (&s)[N]) const {
        const float cap = a.call.softcap * LOG2E,
                    f[2] = {2 * factor[0] / a.call.softcap, 2 * factor[1] / a.call.softcap};
#pragma unroll
        for (int i = 0; i < N; i++) { // tanh x = 1 - 2 / (e^2x + 1)
            const float e = exp2_of(s[i] * f[i / 2 % 2]);
            s[i] = cap - __fdividef(2 * cap, e + 1);
        }
    }
    __device__ __forceinline__ void mask(float (&s)[N], int region, int row0) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const kvt_cuda_visible v = kvt_cuda_see(&a.sight, prompt.n_before + rows[h] + 1);
            const int from = region == KVT_REGION_BODY   ? v.first[KVT_REGION_BODY]
                             : region == KVT_REGION_SINK ? v.first[KVT_REGION_SINK]
                                                         : v.first[KVT_REGION_TAIL];
            const int to = region == KVT_REGION_BODY   ? v.end[KVT_REGION_BODY]
                           : region == KVT_REGION_SINK ? v.end[KVT_REGION_SINK]
                                                       : v.end[KVT_REGION_TAIL];
            const int first = from - row0 - lane % 4 * 2, end = to - row0 - lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < N / 4; j++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (8 * j + e < first || 8 * j + e >= end) s[4 * j + 2 * h + e] = -INFINITY;
        }
    }
    // Scores to weights relative to the largest so far; keep: what earlier ones are to be multiplied by. Short chains: what waits for a
    // result is far behind it.
    __device__ __forceinline__ void weigh(float (&s)[N], float (&keep)[2]) {
        const bool capped = a.call.softcap > 0;
        float tops[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}}, sums[2][2] = {}, f[2], up[2];
#pragma unroll
        for (int i = 0; i < N; i++) tops[i / 2 % 2][i % 2] = fmaxf(tops[i / 2 % 2][i % 2], s[i]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = fmaxf(tops[h][0], tops[h][1]);
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            f[h] = capped ? 1.f : factor[h];
            top = fmaxf(most[h], top * f[h]);
            keep[h] = exp2_of(most[h] - top);
            most[h] = top;
            up[h] = (WIDE ? 0.f : UP) - top;
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int h = i / 2 % 2;
            s[i] = exp2_of(fmaf(s[i], f[h], up[h]));
            if (WIDE) s[i] *= exp2_of(UP); // one rounding less near the largest
            sums[h][i % 2] += s[i];
        }
#pragma unroll
        for (int h = 0; h < 2; h++) sum[h] = fmaf(sum[h], keep[h], sums[h][0] + sums[h][1]);
    }
    __device__ __forceinline__ void pack_weights(const float (&s)[N]) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const __half2 w = __floats2half2_rn(s[2 * i], s[2 * i + 1]);
            weights[i] = bits_of(w);
            if (WIDE) {
                const float2 f = __half22float2(w);
                rest[i] = pack(s[2 * i] - f.x, s[2 * i + 1] - f.y);
            }
        }
    }
    __device__ __forceinline__ void scale_mixed(const float (&keep)[2]) {
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int i = 0; i < P::WIDTH / 2; i++) mixed[part][i] *= keep[i / 2 % 2];
    }

    // What the vectors come to, from sums in units of 2^UP.
    __device__ __forceinline__ void put(int head, int column) {
        const kvt_cuda_attend &call = a.call;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float total = sum[h];
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            const int vector = column + 8 * h, row = vector / call.group;
            if (row >= prompt.n_rows) continue;
            const int q_head = head * call.group + vector % call.group;
            float down = exp2_of(-UP), top = most[h];
            total *= down;
            if (call.sinks) {
                const float sink = call.sinks[q_head] * LOG2E;
                top = fmaxf(top, sink);
                const float keep = exp2_of(most[h] - top);
                total = fmaf(total, keep, exp2_of(sink - top));
                down *= keep;
            }
            if (call.lse && lane % 4 == 0)
                call.lse[(ptrdiff_t)(prompt.row + row) * call.n_q_heads + q_head] = (top + log2f(total)) / LOG2E;
            down /= total;
            float *to = call.out + (ptrdiff_t)(prompt.row + row) * call.out_row_stride + q_head * call.out_head_stride +
                        lane % 4 * 2;
            const bool pairs = ((uintptr_t)to & 7) == 0;
#pragma unroll
            for (int part = 0; part < PARTS; part++)
#pragma unroll
                for (int j = 0; j < P::WIDTH / 8; j++) {
                    const float x = mixed[part][4 * j + 2 * h] * down, y = mixed[part][4 * j + 2 * h + 1] * down;
                    float *at = to + part * P::WIDTH + 8 * j;
                    if (pairs)
                        *(float2 *)at = make_float2(x, y);
                    else
                        at[0] = x, at[1] = y;
                }
        }
    }

    // The two warpgroups issue products in turn, so that one's run while the other computes weights.
    __device__ __forceinline__ void take_turn(int group) {
        asm volatile("bar.sync %0, %1;" ::"r"(3 + group), "n"(2 * GROUP_THREADS) : "memory");
    }
    __device__ __forceinline__ void pass_turn(bool is, int group) {
        if (is) asm volatile("bar.arrive %0, %1;" ::"r"(3 + group), "n"(2 * GROUP_THREADS) : "memory");
    }
    // The unit's weights, from its scores.
    __device__ __forceinline__ void soften(float (&s)[N], float (&keep)[2], const Seen &seen, int i) {
        if (a.call.softcap > 0) cap(s);
        const int region = seen.find(&i);
        const int first = region == KVT_REGION_BODY   ? seen.first[KVT_REGION_BODY]
                          : region == KVT_REGION_SINK ? seen.first[KVT_REGION_SINK]
                                                      : seen.first[KVT_REGION_TAIL];
        const int all_first = region == KVT_REGION_BODY   ? seen.all_first[KVT_REGION_BODY]
                              : region == KVT_REGION_SINK ? seen.all_first[KVT_REGION_SINK]
                                                          : seen.all_first[KVT_REGION_TAIL];
        const int all_end = region == KVT_REGION_BODY   ? seen.all_end[KVT_REGION_BODY]
                            : region == KVT_REGION_SINK ? seen.all_end[KVT_REGION_SINK]
                                                        : seen.all_end[KVT_REGION_TAIL];
        const int row0 = (first + i) * P::ROWS;
        if (row0 < all_first || row0 + P::ROWS > all_end) mask(s, region, row0);
        weigh(s, keep);
    }

    __device__ __forceinline__ void run(const Seen &seen, uint32_t queries, uint32_t units, Barriers *barriers,
                                        int group) {
        constexpr int UNIT = P::KEY_BYTES + P::VALUE_BYTES;
        float s[N], keep[2];
        auto done = [&](uint64_t *barrier) {
            if (lane == 0) barrier_arrive(shared_address(barrier));
        };
        most[0] = most[1] = NOTHING;
        sum[0] = sum[1] = 0;
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int i = 0; i < P::WIDTH / 2; i++) mixed[part][i] = 0;
        barrier_wait(shared_address(&barriers->keys_full[0]), 0);
        products_begin();
        score(s, queries, units);
        products_begun();
        wait_for_products<0>();
        hold(s);
        done(&barriers->keys_empty[0]);
        soften(s, keep, seen, 0);
        pack_weights(s);
        pass_turn(group == 1 && seen.total > 1, 0);
        for (int i = 1; i < seen.total; i++) {
            const int stage = i % P::STAGES, before = (i - 1) % P::STAGES;
            barrier_wait(shared_address(&barriers->keys_full[stage]), i / P::STAGES & 1);
            take_turn(group);
            products_begin();
            score(s, queries, units + stage * UNIT);
            products_begun();
            barrier_wait(shared_address(&barriers->values_full[before]), (i - 1) / P::STAGES & 1);
            products_begin();
            mix(units + before * UNIT + P::KEY_BYTES);
            products_begun();
            pass_turn(group == 0 || i < seen.total - 1, group ^ 1);
            wait_for_products<1>();
            hold(s);
            done(&barriers->keys_empty[stage]);
            soften(s, keep, seen, i);
            wait_for_products<0>();
#pragma unroll
            for (int part = 0; part < PARTS; part++) hold(mixed[part]);
            done(&barriers->values_empty[before]);
            pack_weights(s);
            if (__any_sync(~0u, keep[0] != 1 || keep[1] != 1)) scale_mixed(keep);
        }
        const int last = (seen.total - 1) % P::STAGES;
        barrier_wait(shared_address(&barriers->values_full[last]), (seen.total - 1) / P::STAGES & 1);
        products_begin();
        mix(units + last * UNIT + P::KEY_BYTES);
        products_begun();
        wait_for_products<0>();
#pragma unroll
        for (int part = 0; part < PARTS; part++) hold(mixed[part]);
    }
};

template <int D, bool WIDE>
__global__ void __launch_bounds__(THREADS, 1) prefill_kernel(const __grid_constant__ kvt_cuda_prefill a) {
    using P = Prefill<D, WIDE>;
    extern __shared__ char raw[];
    __shared__ Barriers barriers;
    __shared__ float factors[KVT_CUDA_PREFILL_COLUMNS];
    char *queries = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
    const uint32_t units = shared_address(queries) + (WIDE ? 2 : 1) * P::QUERY_BYTES;
    const int group = threadIdx.x / GROUP_THREADS, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const kvt_cuda_prefill_block block = a.blocks[blockIdx.x];
    const kvt_cuda_prompt &prompt = a.prompts[block.prompt];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_address(&barriers.keys_full[i]), 1);
            barrier_init(shared_address(&barriers.values_full[i]), 1);
            barrier_init(shared_address(&barriers.keys_empty[i]), 4 * CONSUMERS);
            barrier_init(shared_address(&barriers.values_empty[i]), 4 * CONSUMERS);
        }
        show_to_products();
    }
    __syncthreads();
    const Seen seen(a, prompt, block.column, P::ROWS);
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
        if (threadIdx.x == 0) produce<D, WIDE>(a, seen, block.first, units, &barriers);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
        const int vector0 = (group - 1) * GROUP_VECTORS + 16 * warp, own = vector0 + lane / 4;
        load_queries<D, WIDE>(a, prompt, block.head, block.column, vector0, queries, factors, lane);
        show_to_products();
        asm volatile("bar.sync %0, %1;" ::"r"(group), "n"(GROUP_THREADS) : "memory");
        Consumer<D, WIDE> consumer{a, prompt};
        consumer.lane = lane;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            consumer.rows[h] = min((block.column + own + 8 * h) / a.call.group, prompt.n_rows - 1);
            consumer.factor[h] = factors[own + 8 * h];
        }
        consumer.run(seen, shared_address(queries) + (group - 1) * GROUP_VECTORS * LINE, units, &barriers, group - 1);
        consumer.put(block.head, block.column + own);
    }
}

} // namespace kvt

#endif
