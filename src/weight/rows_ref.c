/* SPDX-License-Identifier: Apache-2.0
 * The reference of the numeric contract in type.h. */
#include <math.h>

#include "weight/type.h"

enum { CHUNK = 256 }; /* a multiple of every block length and of the lanes */

static float tree_sum(float lane[KVT_WEIGHT_LANES]) {
    for (int half = KVT_WEIGHT_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

void kvt_weight_decode_ref(const struct kvt_weight_type *type, float *dst, const unsigned char *src, int64_t n) {
    const struct kvt_weight_codes *c = type->codes;
    if (!c) {
        type->decode(dst, src, n);
        return;
    }
    int8_t code[CHUNK];
    float scale[CHUNK / 16], min[CHUNK / 16];
    for (int64_t i = 0; i < n; i += type->block_len, src += type->block_bytes) {
        c->split(code, scale, min, src);
        for (int j = 0; j < type->block_len; j++) {
            const float product = scale[j / c->group] * (float)code[j];
            *dst++ = c->has_min ? product + min[j / c->group] : product;
        }
    }
}

static float dot(const struct kvt_weight_type *type, const unsigned char *row, const float *x, int64_t n_in) {
    float lane[KVT_WEIGHT_LANES] = {0}, w[CHUNK];
    for (int64_t i = 0; i < n_in; i += CHUNK) {
        const int n = (int)KVT_MIN(n_in - i, CHUNK);
        type->decode(w, row + (size_t)(i / type->block_len) * type->block_bytes, n);
        for (int j = 0; j < n; j++) lane[j % KVT_WEIGHT_LANES] = fmaf(w[j], x[i + j], lane[j % KVT_WEIGHT_LANES]);
        for (int j = n; j % KVT_WEIGHT_LANES; j++) lane[j % KVT_WEIGHT_LANES] = fmaf(0, 0, lane[j % KVT_WEIGHT_LANES]);
    }
    return tree_sum(lane);
}

void kvt_weight_rows_ref(float *dst, const struct kvt_weight_type *type, const unsigned char *rows, size_t row_bytes,
                         int64_t n_rows, const float *x, int64_t n_in) {
    for (int64_t r = 0; r < n_rows; r++) dst[r] = dot(type, rows + (size_t)r * row_bytes, x, n_in);
}

static void round_32(struct kvt_rounded *dst, const float *x) {
    uint32_t most = 0;
    for (int i = 0; i < 32; i++) most = KVT_MAX(most, kvt_f32_bits(x[i]) & 0x7FFFFFFFu);
    const float m = kvt_f32_from_bits(most);
    memset(dst, 0, sizeof *dst);
    if (most >= 0x7F800000u) dst->scale = dst->moment = kvt_f32_from_bits(0x7FC00000u);
    if (most >= 0x7F800000u || m < 0x1p-100f) return;
    const float inverse = KVT_ROUNDED_MOST / m;
    dst->scale = m / KVT_ROUNDED_MOST;
    for (int i = 0; i < 32; i++) {
        dst->q[i] = (int16_t)rintf(x[i] * inverse);
        dst->sum[i / 16] += dst->q[i];
    }
    dst->moment = (float)(dst->sum[0] + dst->sum[1]) * dst->scale;
}

void kvt_weight_round_ref(struct kvt_rounded *dst, ptrdiff_t ld_dst, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += 32, dst += ld_dst) round_32(dst, x + i);
}

static float code_dot(const struct kvt_weight_type *type, const unsigned char *row, const struct kvt_rounded *x,
                      ptrdiff_t ld_x, int64_t n_in) {
    const struct kvt_weight_codes *c = type->codes;
    int8_t code[CHUNK];
    float scale[CHUNK / 16], min[CHUNK / 16], sum = 0;
    for (int64_t i = 0; i < n_in; i += type->block_len, row += type->block_bytes) {
        c->split(code, scale, min, row);
        for (int j = 0; j < type->block_len; j += c->group) {
            const struct kvt_rounded *r = x + (i + j) / 32 * ld_x;
            const int g = j / c->group;
            int32_t whole = 0;
            for (int k = 0; k < c->group; k++) whole += code[j + k] * r->q[j % 32 + k];
            sum = fmaf((float)whole, scale[g] * r->scale, sum);
            if (c->has_min) sum = fmaf(min[g], r->moment, sum);
        }
    }
    return sum;
}

void kvt_weight_code_rows_ref(float *dst, const struct kvt_weight_type *type, const unsigned char *rows,
                              size_t row_bytes, int64_t n_rows, const struct kvt_rounded *x, ptrdiff_t ld_x,
                              int64_t n_in) {
    for (int64_t r = 0; r < n_rows; r++) dst[r] = code_dot(type, rows + (size_t)r * row_bytes, x, ld_x, n_in);
}
