/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs whose groups are encoded one by one: a warp takes a group, or two of 16, and each arithmetic is that of its encoder in src/codec,
 * written for elements that are spread over threads. Extremes do not depend on the order; where the first of equals counts, it is found.
 */
#ifndef BACKEND_CUDA_ENCODE_GROUPS_CUH
#define BACKEND_CUDA_ENCODE_GROUPS_CUH

#include <float.h>

#include "backend/cuda/encode_unit.cuh"

/* Elements that share a scale: thread `lane` of `width` has elements lane, lane + width, ... of n. */
struct group {
    const float *x; /* element i at x[i * step] */
    int step, n;
    int lane, width;
    unsigned mask; /* its threads in their warp */
    int bits;
    const struct encode_args *args;
    uint8_t *codes; /* element i at codes[code_place(pitch, ...)] */
    int pitch, term, of_lane;
    bool along_lanes;
    char *bytes;
};

#define FOR_ELEMENTS(i, g) for (int i = (g).lane; i < (g).n; i += (g).width)

KVT_DEVICE void put_code(const struct group &g, int i, unsigned code) {
    const int term = g.along_lanes ? g.term : g.term + i, lane = g.along_lanes ? g.of_lane + i : g.of_lane;
    g.codes[code_place(g.pitch, term, lane)] = (uint8_t)(code ^ g.args->tile.flip);
}

KVT_DEVICE void put_scale(const struct group &g, const struct scale_place &at, uint32_t bits) {
    if (g.lane == 0) store_scale(g.args->tile.format.scale, g.bytes + at.scales, at.index, bits);
}
KVT_DEVICE void put_zero(const struct group &g, const struct scale_place &at, uint32_t bits) {
    if (g.lane == 0) store_scale(g.args->tile.format.zero, g.bytes + at.zeros, at.index, bits);
}

/* ---- over a group ---------------------------------------------------------------------------------------------------------- */

KVT_DEVICE float largest(const struct group &g, float x) {
    for (int s = g.width / 2; s > 0; s /= 2) {
        const float o = __shfl_xor_sync(g.mask, x, s);
        x = o > x ? o : x;
    }
    return x;
}

KVT_DEVICE float largest_magnitude(const struct group &g) {
    float most = 0;
    FOR_ELEMENTS(i, g) most = fabsf(g.x[i * g.step]) > most ? fabsf(g.x[i * g.step]) : most;
    return largest(g, most);
}

/* The first element of a magnitude that some element has. */
KVT_DEVICE float first_of_magnitude(const struct group &g, float magnitude) {
    for (int i0 = 0; i0 < g.n; i0 += g.width) {
        const int i = i0 + g.lane;
        const float v = i < g.n ? g.x[i * g.step] : 0;
        const unsigned found = __ballot_sync(g.mask, i < g.n && fabsf(v) == magnitude) & g.mask;
        if (found) return __shfl_sync(g.mask, v, __ffs((int)found) - 1);
    }
    return magnitude;
}

/* A zero among extremes has the sign that a walk in order finds: of the first zero. */
KVT_DEVICE void extremes(const struct group &g, float *lo, float *hi) {
    float l = g.x[0], h = l;
    FOR_ELEMENTS(i, g) {
        const float v = g.x[i * g.step];
        l = v < l ? v : l;
        h = v > h ? v : h;
    }
    l = -largest(g, -l), h = largest(g, h);
    *lo = l == 0 ? first_of_magnitude(g, 0) : l;
    *hi = h == 0 ? first_of_magnitude(g, 0) : h;
}

/* The element of largest magnitude, the first of equals; 0 where all are. */
KVT_DEVICE float edge_of(const struct group &g) {
    const float most = largest_magnitude(g);
    return most == 0 ? 0 : first_of_magnitude(g, most);
}

/* ---- arithmetics ----------------------------------------------------------------------------------------------------------- */

template <bool metal> struct affine_codes {
    KVT_DEVICE void encode(const struct group &g, const struct scale_place &at) {
        const float top = (float)((1 << g.bits) - 1);
        float lo, hi;
        extremes(g, &lo, &hi);
        if (metal && hi < 0) hi = 0;
        const struct kvt_affine a = kvt_affine_fit_ties(lo, hi, top, metal);
        put_zero(g, at, kvt_f16_from_f32(a.zero));
        put_scale(g, at, kvt_f16_from_f32(a.scale));
        FOR_ELEMENTS(i, g) {
            const float steps = (g.x[i * g.step] - a.zero) / a.scale, code = metal ? roundf(steps) : rintf(steps);
            put_code(g, i, (uint8_t)(code < 0 ? 0 : code > top ? top : code));
        }
    }
};

struct kivi_codes {
    KVT_DEVICE void encode(const struct group &g, const struct scale_place &at) {
        const float top = (float)((1 << g.bits) - 1);
        float lo, hi;
        extremes(g, &lo, &hi);
        const struct kvt_kivi k = kvt_kivi_fit(lo, hi, top);
        const float zero = kvt_f32_from_f16(k.zero);
        put_scale(g, at, k.scale);
        put_zero(g, at, k.zero);
        FOR_ELEMENTS(i, g) {
            const float code = rintf((g.x[i * g.step] - zero) * k.inverse);
            put_code(g, i, (uint8_t)(code > top ? top : code));
        }
    }
};

struct kivi_parity_codes {
    KVT_DEVICE void encode(const struct group &g, const struct scale_place &at) {
        const float top = (float)((1 << g.bits) - 1);
        float lo, hi;
        extremes(g, &lo, &hi);
        const float range = (hi - lo) / top, scale = range > 1e-8f ? range : 1e-8f;
        put_scale(g, at, kvt_f32_bits(scale));
        put_zero(g, at, kvt_f32_bits(lo));
        FOR_ELEMENTS(i, g) {
            const float code = rintf((g.x[i * g.step] - lo) / scale);
            put_code(g, i, (uint8_t)(code > top ? top : code));
        }
    }
};

/* To the nearest integer, ties away from zero; |x| is small. */
KVT_DEVICE int round_away(float x) {
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

struct q_0_codes {
    KVT_DEVICE void encode(const struct group &g, const struct scale_place &at) {
        const int middle = 1 << (g.bits - 1);
        const float edge = edge_of(g), scale = g.bits == 8 ? fabsf(edge) / 127 : edge / (float)-middle;
        float inverse = scale != 0 ? 1 / scale : 0;
        if (fabsf(inverse) > FLT_MAX) inverse = 0;
        put_scale(g, at, kvt_f16_from_f32(scale));
        FOR_ELEMENTS(i, g) {
            const float v = g.x[i * g.step] * inverse;
            const int code = g.bits == 8 ? middle + round_away(v) : (int)(v + ((float)middle + 0.5f));
            put_code(g, i, (uint8_t)KVT_MIN(code, 2 * middle - 1));
        }
    }
};

struct q_1_codes {
    KVT_DEVICE void encode(const struct group &g, const struct scale_place &at) {
        const int top = (1 << g.bits) - 1;
        float lo, hi;
        extremes(g, &lo, &hi);
        const float scale = (hi - lo) / (float)top;
        float inverse = scale != 0 ? 1 / scale : 0;
        if (inverse > FLT_MAX) inverse = 0;
        put_scale(g, at, kvt_f16_from_f32(scale));
        put_zero(g, at, kvt_f16_from_f32(lo));
        FOR_ELEMENTS(i, g) {
            const int code = (int)((g.x[i * g.step] - lo) * inverse + 0.5f);
            put_code(g, i, (uint8_t)KVT_MIN(code, top));
        }
    }
};

struct iq4_nl_codes {
    /* The level nearest to x, a tie to the upper one. */
    KVT_DEVICE int nearest(const float *levels, float x) {
        if (x <= levels[0]) return 0;
        int upper = 1;
        while (upper < 15 && x >= levels[upper]) upper++;
        return x - levels[upper - 1] < levels[upper] - x ? upper - 1 : upper;
    }
    KVT_DEVICE void encode(const struct group &g, const struct scale_place &at) {
        const float *levels = g.args->table;
        const float edge = edge_of(g), inverse = 1 / (edge / levels[0]);
        const bool is_zero = fabsf(edge) < 1e-15f, has = g.lane < g.n;
        const float x = has ? g.x[g.lane * g.step] : 0, weight = x * x;
        const int code = is_zero ? 8 : nearest(levels, inverse * x);
        const float level = levels[code], product = weight * level * x, square = weight * level * level;
        float dot = 0, squares = 0;
        for (int i = 0; i < g.n; i++) {
            dot += __shfl_sync(g.mask, product, i);
            squares += __shfl_sync(g.mask, square, i);
        }
        put_scale(g, at, is_zero ? 0 : kvt_f16_from_f32(dot / squares));
        if (has) put_code(g, g.lane, (unsigned)code);
    }
};

struct fp8_codes {
    KVT_DEVICE void encode(const struct group &g, const struct scale_place &at) {
        const bool e4m3 = g.args->tile.format.meaning == KVT_MEANING_E4M3;
        float scale = 1;
        if (g.args->tile.format.scale == KVT_SCALE_F32) {
            scale = largest_magnitude(g) / (e4m3 ? 448.0f : 57344.0f);
            put_scale(g, at, kvt_f32_bits(scale));
        }
        FOR_ELEMENTS(i, g) {
            const float v = scale > 0 ? g.x[i * g.step] / scale : 0;
            put_code(g, i, e4m3 ? kvt_e4m3_from_f32(v) : kvt_e5m2_from_f32(v));
        }
    }
};

struct mxfp_codes {
    KVT_DEVICE unsigned e2m1_from_f32(float x) {
        const float m = fabsf(x);
        const unsigned code = (m > 0.25f) + (m > 0.75f) + (m > 1.25f) + (m > 1.75f) + (m > 2.5f) + (m > 3.5f) + (m > 5);
        return code != 0 && x < 0 ? code | 8 : code;
    }
    KVT_DEVICE void encode(const struct group &g, const struct scale_place &at) {
        const struct kvt_format &format = g.args->tile.format;
        const bool e4m3 = format.meaning == KVT_MEANING_E4M3, nv = format.scale == KVT_SCALE_E4M3;
        const float most = largest_magnitude(g), target = most / (e4m3 ? 448.0f : 6.0f);
        const uint8_t stored = nv ? kvt_e4m3_from_f32(target) : most > 0 ? kvt_e8m0_above_f32(target) : 127;
        const float scale = nv ? kvt_f32_from_e4m3(stored) : kvt_f32_from_e8m0(stored);
        put_scale(g, at, stored);
        FOR_ELEMENTS(i, g) {
            const float v = scale > 0 ? g.x[i * g.step] / scale : 0;
            put_code(g, i, e4m3 ? kvt_e4m3_from_f32(v) : e2m1_from_f32(v));
        }
    }
};

struct turbo_codes {
    /* The codec's order of sums: 32 lanes, then lanes at distances 16, 8, 4, 2, 1. */
    KVT_DEVICE float sum(const struct group &g, float x) {
        for (int s = KVT_WARP / 2; s > 0; s /= 2) x += __shfl_xor_sync(g.mask, x, s);
        return x;
    }
    KVT_DEVICE void encode(const struct group &g, const struct scale_place &at) {
        const float *levels = g.args->table;
        float own = 0, near = 0;
        FOR_ELEMENTS(i, g) own += g.x[i * g.step] * g.x[i * g.step];
        const float square = sum(g, own), rms = sqrtf(square / (float)g.n);
        FOR_ELEMENTS(i, g) {
            int code = 0;
            for (int k = 1; k < 1 << g.bits; k++) code += g.x[i * g.step] > (levels[k - 1] + levels[k]) / 2 * rms;
            near += levels[code] * levels[code];
            put_code(g, i, (unsigned)code);
        }
        put_scale(g, at, kvt_f16_from_f32(sqrtf(square / sum(g, near))));
    }
};

/* ---- the kernel ------------------------------------------------------------------------------------------------------------ */

/* All groups of a unit. A task is a line, one term (FOLD) or lane (LANE), and what a warp takes of it. */
template <class Codes, bool masked>
KVT_DEVICE void encode_tasks(const struct unit &u, const struct encode_args &a, char *bytes, const float *x,
                             uint8_t *codes) {
    const bool along_lanes = a.tile.kind == KVT_TILE_FOLD;
    const int size = along_lanes ? a.tile.lane_group : a.tile.term_group,
              width = a.tile.format.group == 16 ? 16 : KVT_WARP;
    const int line_from = along_lanes ? u.term_from : u.lane_from, line_end = along_lanes ? u.term_end : u.lane_end;
    const int first = masked ? 0 : line_from, n_lines = masked ? along_lanes ? u.n_terms : u.n_lanes : line_end - first;
    const int n = along_lanes ? u.n_lanes : u.n_terms, per_task = KVT_MAX(size, KVT_WARP);
    const int half = thread_in_warp() / width; /* which of two groups of 16 */
    struct group g;
    g.lane = thread_in_warp() % width, g.width = width;
    g.mask = width == KVT_WARP ? 0xFFFFFFFFu : 0xFFFFu << half * width;
    g.step = along_lanes ? 1 : u.pitch;
    g.bits = a.tile.format.bits, g.args = &a;
    g.codes = codes, g.pitch = u.pitch, g.along_lanes = along_lanes, g.bytes = bytes;
    for (int from = 0; from < n; from += per_task)
        for (int i = warp_in_block(); i < n_lines; i += u.warps) {
            const int at = from + half * width, line = first + i;
            g.n = KVT_MIN(size, n - at);
            if (g.n <= 0 || line < line_from || line >= line_end) continue;
            g.term = along_lanes ? line : at, g.of_lane = along_lanes ? at : line;
            g.x = x + g.term * u.pitch + g.of_lane;
            Codes::encode(g, find_scale(a.tile, u.term0 + g.term, u.lane0 + g.of_lane));
        }
}

/* warps: of the block where that is known, and then the unit's size is; else 0. */
template <class Codes, int warps>
KVT_DEVICE void encode_unit(const struct encode_args &a, const struct kvt_cuda_job &job) {
    struct unit u;
    if (!find_unit(&u, a, job)) return;
    if (warps) u.warps = warps;
    float *x = reinterpret_cast<float *>(kvt_shared);
    uint8_t *codes = kvt_shared + (size_t)u.n_terms * u.pitch * sizeof *x;
    load_unit<warps != 0>(x, u, a, job);
    __syncthreads();
    if (a.tile.format.rotated) rotate_unit(x, u, a.tile.side == KVT_SIDE_K, a.rotation, true);
    encode_tasks<Codes, warps != 0>(u, a, static_cast<char *>(job.tile), x, codes);
    __syncthreads();
    pack_unit(a.tile, job.tile, codes, u);
}

template <class Codes> KVT_KERNEL(UNIT_THREADS) encode_groups(KVT_ARGS struct encode_args a) {
    const side_by_side both;
    encode_unit<Codes, 0>(a, a.jobs[blockIdx.x]);
}

namespace {

/* The same for integer codes with f16 scales of the rows of an f16 tile, d 128, of which the width, the group and the unit are known when it
 * is compiled: without divisions by what is not known, and loops over it, a small unit takes half the time. Groups per warp: 1 is the fastest
 * alone, 2 leave room for a launch beside it. */
template <class Its, int side, int kind, int bits, int group, int per_warp> struct known {
    typedef Its Codes;
    static constexpr bool is_k = side == KVT_SIDE_K, fold = kind == KVT_TILE_FOLD;
    static constexpr int rows = is_k ? KVT_BLOCK_LANES : 8, channels = is_k && fold ? KVT_BLOCK_LANES : group;
    static constexpr int warps = rows * channels / group / per_warp;

    static bool takes(const struct encode_args &a) {
        return a.tile.side == side && a.tile.kind == kind && a.tile.format.bits == bits && a.tile.n_lanes == 128 &&
               a.tile.n_terms == 128 && (fold ? a.tile.lane_group : a.tile.term_group) == group &&
               !a.tile.format.rotated && a.tile.format.scale == KVT_SCALE_F16 && a.source.is_tile &&
               a.source.number == KVT_NUMBER_F16 && a.unit_rows == rows && a.unit_channels == channels;
    }
    KVT_DEVICE struct encode_args of(const struct encode_args &given) {
        struct encode_args a = given;
        a.tile.side = static_cast<enum kvt_side>(side), a.tile.kind = static_cast<enum kvt_tile_kind>(kind);
        a.tile.n_terms = a.tile.n_lanes = 128;
        a.tile.lane_group = fold ? group : KVT_BLOCK_LANES, a.tile.term_group = fold ? 0 : group;
        a.tile.format.bits = bits, a.tile.format.group = group, a.tile.format.rotated = false;
        a.tile.format.scale = a.tile.format.zero = KVT_SCALE_F16;
        a.source.is_tile = true, a.source.number = KVT_NUMBER_F16;
        a.unit_rows = rows, a.unit_channels = channels;
        return a;
    }
};

} /* namespace */

template <class Known> KVT_KERNEL(UNIT_THREADS) encode_known(KVT_ARGS struct encode_args given) {
    const side_by_side both;
    const struct encode_args a = Known::of(given);
    encode_unit<typename Known::Codes, Known::warps>(a, given.jobs[blockIdx.x]);
}

#endif
