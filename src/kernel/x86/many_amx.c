/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of many vectors on tiles of BF16. A tile register holds 16 rows of 64 bytes: on the left 16 vectors by 32 terms, on the right 16
 * pairs of terms by 16 lanes. The pair i of 32 terms is i and i + 16, so that two registers of floats become pairs by a shift and
 * a blend. What is split lies as it is read: step by step of 32 terms, limb by limb, two registers side by side.
 */
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "kernel/kernel.h"
#include "kernel/table.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    ROWS = 16,
    REGISTER = 1024, /* bytes */
    LIMB = 2 * REGISTER,
    LEFT_STEP = KVT_LIMBS * LIMB,
    RIGHT_STEP = 2 * LIMB
};

/* Which limbs are multiplied: of codes of up to MOST_FEW bits, whose error is so large that one limb of queries and weights is enough, of
 * other codes, of f16 and bf16. */
enum kind { FEW_BITS, CODES, F16, BF16 };
enum { MOST_FEW = 4 };

static enum kind kind_of(const struct kvt_tile *tile) {
    if (tile->kind != KVT_TILE_PLAIN) return tile->format.bits <= MOST_FEW ? FEW_BITS : CODES;
    return tile->number == KVT_NUMBER_F16 ? F16 : BF16;
}

/* ---- limbs ------------------------------------------------------------------------------------------------------------- */

/* The next limb of x, in the upper half of each word; x becomes what it leaves. */
INLINE __m512i next_limb(__m512 *x) {
    const __m512i up = _mm512_add_epi32(_mm512_castps_si512(*x), _mm512_set1_epi32(0x8000));
    const __m512i limb = _mm512_and_si512(up, _mm512_set1_epi32((int)0xFFFF0000u));
    *x = _mm512_sub_ps(*x, _mm512_castsi512_ps(limb));
    return limb;
}
/* Pairs of the upper halves of words. */
INLINE __m512i pair_up(__m512i a, __m512i b) {
    return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(a, 16), b);
}
/* 16 pairs to n limbs, `apart` bytes from each other; the last is cut, not rounded. */
INLINE void put_limbs(int n, char *to, size_t apart, __m512 a, __m512 b) {
    for (int i = 0; i < n - 1; i++, to += apart) {
        const __m512i x = next_limb(&a), y = next_limb(&b);
        _mm512_store_si512((void *)to, pair_up(x, y));
    }
    _mm512_store_si512((void *)to, pair_up(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

static __mmask16 below(int n) { return n >= 16 ? 0xFFFF : n <= 0 ? 0 : (__mmask16)((1u << n) - 1); }

void kvt_split_amx(const float *x, ptrdiff_t ld, int n, int n_terms, void *out) {
    char *to = out;
    for (int v0 = 0; v0 < n; v0 += KVT_MANY_VECTORS)
        for (int t = 0; t < n_terms; t += KVT_MANY_TERMS, to += LEFT_STEP)
            for (int v = 0; v < KVT_MANY_VECTORS; v++) {
                const bool real = v0 + v < n;
                const float *from = real ? x + (v0 + v) * ld + t : x;
                const __m512 a = _mm512_maskz_loadu_ps(real ? below(n_terms - t) : 0, from);
                const __m512 b = _mm512_maskz_loadu_ps(real ? below(n_terms - t - ROWS) : 0, from + ROWS);
                put_limbs(KVT_LIMBS, to + v * 64, LIMB, a, b);
            }
}

/* Row `term` of a block, 16 lanes from `lane` on. */
INLINE __m512 block_row(const float *block, int term, int lane, int first, int end) {
    return term >= first && term < end ? _mm512_loadu_ps(block + term * KVT_LANES + lane) : _mm512_setzero_ps();
}

void kvt_spread_amx(const float *block, int n_terms, int first, int end, void *out) {
    char *to = out;
    for (int t = 0; t < n_terms; t += KVT_MANY_TERMS, to += RIGHT_STEP) {
        const bool whole = first <= t && t + KVT_MANY_TERMS <= end && t + KVT_MANY_TERMS <= n_terms;
        for (int i = 0; i < ROWS; i++)
            for (int half = 0; half < 2; half++) {
                const float *from = block + (t + i) * KVT_LANES + half * ROWS;
                const __m512 a =
                    whole ? _mm512_loadu_ps(from) : block_row(block, t + i, half * ROWS, first, KVT_MIN(end, n_terms));
                const __m512 b = whole ? _mm512_loadu_ps(from + ROWS * KVT_LANES)
                                       : block_row(block, t + i + ROWS, half * ROWS, first, KVT_MIN(end, n_terms));
                put_limbs(2, to + half * REGISTER + i * 64, LIMB, a, b);
            }
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------------------------- */

/* e^x for x <= 0, 0 below -87: two to a whole number, and a polynomial for the fraction left, from -1/2 to 1/2. */
INLINE __m512 exp_negative(__m512 x) {
    const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f));
    const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e43p-1f), x);
    const __m512 s = _mm512_fmadd_ps(n, _mm512_set1_ps(0x1.05c61p-29f), r);
    __m512 p = _mm512_set1_ps(0x1.6ab96ep-10f);
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(0x1.126d1ep-7f));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(0x1.55589ap-5f));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(0x1.55540ap-3f));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(0x1.fffffap-2f));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ), p, n);
}

/* 2^t for t <= 0 within 3e-6, 0 below -126: a polynomial for the fraction above the whole number below. */
INLINE __m512 exp2_rough(__m512 t) {
    const __m512 r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(0x1.bb7cd4p-7f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.aa13fp-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ee798ap-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62d166p-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.00002cp+0f));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), p, t);
}

/* cap * tanh(x / cap) by way of e^(-2 |x| / cap). */
static void cap_scores(float *x, int n, float cap) {
    for (int i = 0; i < n; i += ROWS) {
        const __m512 a = _mm512_load_ps(x + i), one = _mm512_set1_ps(1.0f);
        const __m512 e = exp_negative(_mm512_mul_ps(_mm512_abs_ps(a), _mm512_set1_ps(-2.0f / cap)));
        const __m512 size = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
        const __m512i sign = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN));
        const __m512i y = _mm512_castps_si512(_mm512_mul_ps(size, _mm512_set1_ps(cap)));
        _mm512_store_ps(x + i, _mm512_castsi512_ps(_mm512_or_si512(y, sign)));
    }
}

/* e^(score - base), as precise as what it is multiplied with. */
INLINE __m512 weigh(enum kind kind, __m512 score, __m512 base) {
    const __m512 unit = _mm512_set1_ps(0x1.715476p+0f);
    if (kind <= CODES) return exp2_rough(_mm512_fmsub_ps(score, unit, _mm512_mul_ps(base, unit)));
    return exp_negative(_mm512_sub_ps(score, base));
}

/* The scores of one vector to weights, relative to the largest so far, as limbs. Returns what earlier weights become worth. */
INLINE float soften(enum kind kind, const float *scores, int n_steps, float *max, float *sum, char *weights) {
    __m512 top = _mm512_set1_ps(*max);
    for (int i = 0; i < 2 * n_steps; i++) top = _mm512_max_ps(top, _mm512_load_ps(scores + i * ROWS));
    const float m = _mm512_reduce_max_ps(top), before = *max;
    const __m512 base =
        _mm512_set1_ps(KVT_MAX(m, -FLT_MAX / 2)); /* where nothing was seen yet all weights are exp(-inf) */
    __m512 total = _mm512_setzero_ps();
    for (int i = 0; i < n_steps; i++, scores += KVT_MANY_TERMS) {
        const __m512 a = weigh(kind, _mm512_load_ps(scores), base);
        const __m512 b = weigh(kind, _mm512_load_ps(scores + ROWS), base);
        if (kind == FEW_BITS) { /* the sum of what is multiplied: what all values share gets no error then */
            __m512 rest_a = a, rest_b = b;
            const __m512i x = next_limb(&rest_a), y = next_limb(&rest_b);
            _mm512_store_si512((void *)(weights + i * LEFT_STEP), pair_up(x, y));
            total = _mm512_add_ps(total, _mm512_add_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y)));
            continue;
        }
        total = _mm512_add_ps(total, _mm512_add_ps(a, b));
        put_limbs(kind == CODES ? 2 : KVT_LIMBS, weights + i * LEFT_STEP, LIMB, a, b);
    }
    const float keep = m > before ? _mm512_cvtss_f32(exp_negative(_mm512_sub_ps(_mm512_set1_ps(before), base))) : 1;
    *max = m;
    *sum = *sum * keep + _mm512_reduce_add_ps(total);
    return keep;
}

static void rescale(float *y, ptrdiff_t n, float by) {
    for (ptrdiff_t i = 0; i < n; i += ROWS)
        _mm512_store_ps(y + i, _mm512_mul_ps(_mm512_load_ps(y + i), _mm512_set1_ps(by)));
}

/* Up to 32 vectors, and the steps of 32 rows that some of them sees. */
struct group {
    int v, n, step, n_steps;
    int softened; /* vectors that have weights */
    float (*scores)[KVT_TILE_ROWS];
    char *weights;
};

static void mask_scores(const struct kvt_many *args, const struct group *g, int i) {
    const int first = args->first[g->v + i] - g->step * KVT_MANY_TERMS, n = g->n_steps * KVT_MANY_TERMS;
    const int end = args->end[g->v + i] - g->step * KVT_MANY_TERMS;
    float *scores = g->scores[i];
    if (args->softcap > 0) cap_scores(scores, n, args->softcap);
    for (int r = 0; r < KVT_MIN(first, n); r++) scores[r] = -INFINITY;
    for (int r = KVT_MAX(KVT_MAX(first, end), 0); r < n; r++) scores[r] = -INFINITY;
}

INLINE void soften_some_of(enum kind kind, const struct kvt_many *args, struct group *g, int end) {
    for (; g->softened < end; g->softened++) {
        const int i = g->softened, v = g->v + i;
        mask_scores(args, g, i);
        const float keep = soften(kind, g->scores[i], g->n_steps, &args->max[v], &args->sum[v], g->weights + i * 64);
        if (keep == 1) continue;
        rescale(args->y + v * args->ld_y, args->ld_y, keep);
        if (args->other) rescale(args->other + v * args->ld_y, args->ld_y, keep);
    }
}

/* The next n vectors of a group; rows of weights that have no vector are 0. */
static void soften_some(const struct kvt_many *args, struct group *g, int n) {
    if (!g->softened && g->n < KVT_MANY_VECTORS) memset(g->weights, 0, (size_t)g->n_steps * LEFT_STEP);
    const int end = KVT_MIN(g->n, g->softened + n);
    switch (kind_of(args->values)) {
    case FEW_BITS: soften_some_of(FEW_BITS, args, g, end); break;
    case CODES: soften_some_of(CODES, args, g, end); break;
    default: soften_some_of(F16, args, g, end); break;
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------------- */

/* What is computed between steps of products, which run beside it: softmax of the group before, or nothing. */
struct meanwhile {
    const struct kvt_many *args;
    struct group *group; /* may be NULL */
    int n;               /* vectors for each step */
};

#define LOAD_LEFT(two, limb)                                                                                           \
    _tile_loadd(4, left + (limb)*LIMB, 64);                                                                            \
    if (two) _tile_loadd(5, left + (limb)*LIMB + REGISTER, 64)
#define LOAD_RIGHT(limb)                                                                                               \
    _tile_loadd(6, right + (limb)*LIMB, 64);                                                                           \
    _tile_loadd(7, right + (limb)*LIMB + REGISTER, 64)
#define MULTIPLY(two)                                                                                                  \
    _tile_dpbf16ps(0, 4, 6);                                                                                           \
    _tile_dpbf16ps(1, 4, 7);                                                                                           \
    if (two) {                                                                                                         \
        _tile_dpbf16ps(2, 5, 6);                                                                                       \
        _tile_dpbf16ps(3, 5, 7);                                                                                       \
    }

/* Steps of 32 terms, small products first. */
INLINE void multiply_steps(enum kind kind, bool two, const char *left, const char *right, const struct meanwhile *m,
                           int n) {
    for (; n > 0; n--, left += LEFT_STEP, right += RIGHT_STEP) {
        if (m->group) soften_some(m->args, m->group, m->n);
        LOAD_RIGHT(0);
        if (kind >= F16) {
            LOAD_LEFT(two, 2);
            MULTIPLY(two);
        }
        if (kind != FEW_BITS) {
            LOAD_LEFT(two, 1);
            MULTIPLY(two);
        }
        if (kind == F16) {
            LOAD_RIGHT(1);
            MULTIPLY(two);
            LOAD_LEFT(two, 0);
            MULTIPLY(two);
            LOAD_RIGHT(0);
            MULTIPLY(two);
        } else {
            LOAD_LEFT(two, 0);
            MULTIPLY(two);
            if (kind <= CODES) {
                LOAD_RIGHT(1);
                MULTIPLY(two);
            }
        }
    }
}

INLINE void multiply_block(enum kind kind, bool two, float *y, ptrdiff_t ld, bool add, const char *left,
                           const char *right, const struct meanwhile *m, int n_steps) {
    const long stride = (long)ld * (long)sizeof *y;
    if (add) {
        _tile_loadd(0, y, stride);
        _tile_loadd(1, y + ROWS, stride);
        if (two) {
            _tile_loadd(2, y + ROWS * ld, stride);
            _tile_loadd(3, y + ROWS * ld + ROWS, stride);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        if (two) {
            _tile_zero(2);
            _tile_zero(3);
        }
    }
    multiply_steps(kind, two, left, right, m, n_steps);
    _tile_stored(0, y, stride);
    _tile_stored(1, y + ROWS, stride);
    if (two) {
        _tile_stored(2, y + ROWS * ld, stride);
        _tile_stored(3, y + ROWS * ld + ROWS, stride);
    }
}

/* y[vector][lane] = (add: +=) the product of up to 32 vectors with n blocks of lanes, `block_bytes` from each other. */
INLINE void multiply(enum kind kind, bool two, float *y, ptrdiff_t ld, bool add, const char *left, const char *right,
                     size_t block_bytes, int n_blocks, int n_steps, const struct meanwhile *m) {
    __asm__ volatile("" ::: "memory"); /* the intrinsics for loads do not say that they read memory */
    for (int b = 0; b < n_blocks; b++)
        multiply_block(kind, two, y + b * KVT_LANES, ld, add, left, right + (size_t)b * block_bytes, m, n_steps);
    __asm__ volatile("" ::: "memory");
}

static void multiply_any(enum kind kind, bool two, float *y, ptrdiff_t ld, bool add, const char *left,
                         const char *right, size_t block_bytes, int n_blocks, int n_steps, const struct meanwhile *m) {
#define CASE(kind, two) multiply(kind, two, y, ld, add, left, right, block_bytes, n_blocks, n_steps, m)
    switch (kind) {
    case FEW_BITS: two ? CASE(FEW_BITS, true) : CASE(FEW_BITS, false); break;
    case CODES: two ? CASE(CODES, true) : CASE(CODES, false); break;
    case F16: two ? CASE(F16, true) : CASE(F16, false); break;
    case BF16: two ? CASE(BF16, true) : CASE(BF16, false); break;
    }
#undef CASE
}

/* ---- attention --------------------------------------------------------------------------------------------------------- */

/* The group from vector v on; false if none of its vectors sees a row. */
static bool find_group(const struct kvt_many *args, int v, struct group *g) {
    int first = KVT_TILE_ROWS, end = 0;
    g->v = v;
    g->n = KVT_MIN(args->n - v, KVT_MANY_VECTORS);
    g->softened = 0;
    for (int i = v; i < v + g->n; i++)
        if (args->first[i] < args->end[i]) first = KVT_MIN(first, args->first[i]), end = KVT_MAX(end, args->end[i]);
    g->step = first / KVT_MANY_TERMS;
    g->n_steps = (int)kvt_div_up(end, KVT_MANY_TERMS) - g->step;
    return first < end;
}

/* Scores of a group, and meanwhile the weights of the one before. */
static void score_group(const struct kvt_many *args, const struct group *g, struct group *before) {
    const int key_steps = (int)kvt_div_up(args->keys->n_terms, KVT_MANY_TERMS);
    const size_t key_bytes = kvt_spread_bytes(args->keys->n_terms);
    const char *queries = (const char *)args->queries + (size_t)(g->v / KVT_MANY_VECTORS * key_steps) * LEFT_STEP;
    const struct meanwhile m = {args, before, (int)kvt_div_up(KVT_MANY_VECTORS, g->n_steps * key_steps)};
    multiply_any(kind_of(args->keys), g->n > ROWS, g->scores[0], KVT_TILE_ROWS, false, queries,
                 args->key_blocks + (size_t)g->step * key_bytes, key_bytes, g->n_steps, key_steps, &m);
}

static void mix_group(const struct kvt_many *args, struct group *g) {
    soften_some(args, g, g->n - g->softened);
    multiply_any(kind_of(args->values), g->n > ROWS, args->y + g->v * args->ld_y, args->ld_y, true, g->weights,
                 args->value_blocks + g->step * RIGHT_STEP, kvt_spread_bytes(KVT_TILE_ROWS),
                 kvt_tile_n_blocks(args->values), g->n_steps, &(struct meanwhile){0});
}

void kvt_many_amx(const struct kvt_many *args) {
    _Alignas(64) float scores[2][KVT_MANY_VECTORS][KVT_TILE_ROWS];
    _Alignas(64) char weights[KVT_TILE_ROWS / KVT_MANY_TERMS * LEFT_STEP];
    /* Static: GCC 12 takes ldtilecfg to read 8 bytes, and could drop what is stored behind them. */
    static _Alignas(64) const struct {
        uint8_t palette, start, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1,
                .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS}};
    _tile_loadconfig(&shapes);
    struct group groups[2], *before = NULL;
    for (int v = 0, turn = 0; v < args->n; v += KVT_MANY_VECTORS) {
        struct group *g = &groups[turn];
        if (!find_group(args, v, g)) continue;
        g->scores = scores[turn];
        g->weights = weights;
        score_group(args, g, before);
        if (before) mix_group(args, before);
        before = g;
        turn = !turn;
    }
    if (before) mix_group(args, before);
    _tile_release();
}
