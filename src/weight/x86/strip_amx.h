/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of strips at level amx: that of avx512, and for a whole group of tokens tiles. A strip's vectors are the rows of a tile as
 * they lie. */
#ifndef WEIGHT_X86_STRIP_AMX_H
#define WEIGHT_X86_STRIP_AMX_H

#include "weight/x86/strip_avx512.h"

#define STRIP_TILES 1

/* Of KVT_TOKEN_GROUP tokens with 16 rows, by the tokens' bytes. */
struct strip_tiles {
    _Alignas(64) int32_t upper[KVT_TOKEN_GROUP][KVT_STRIP_ROWS];
    int32_t lower[KVT_TOKEN_GROUP][KVT_STRIP_ROWS];
};

/* Tiles 0, 1: sums of upper and lower bytes; 2, 3: the tokens' upper and lower bytes; 4: codes. n elements at once. */
static inline void strip_tiles_begin(int n) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 5; i++) {
        config.row_bytes[i] = (uint16_t)(i == 2 || i == 3 ? n : 64);
        config.rows[i] = (uint8_t)(i == 4 ? n / 4 : KVT_TOKEN_GROUP);
    }
    __asm__ volatile(""
                     :
                     : "m"(config)); /* GCC 12 takes ldtilecfg to read 8 bytes, and could drop the others' stores */
    _tile_loadconfig(&config);
}
static inline void strip_tiles_end(void) { _tile_release(); }

/* Codes are signed; x: the first token's block, from the element on. */
static inline void strip_tiles_multiply(struct strip_tiles *dst, const int8_t *codes, const struct kvt_rounded *x,
                                        int element) {
    const long stride = sizeof *x;
    __asm__ volatile("" ::: "memory"); /* the loads of tiles do not tell the compiler what they read */
    _tile_loadd(4, codes, KVT_STRIP_VECTOR);
    _tile_loadd(2, x->bytes[0] + element, stride);
    _tile_loadd(3, x->bytes[1] + element, stride);
    _tile_zero(0);
    _tile_zero(1);
    _tile_dpbssd(0, 2, 4);
    _tile_dpbssd(1, 3, 4);
    _tile_stored(0, dst->upper, sizeof dst->upper[0]);
    _tile_stored(1, dst->lower, sizeof dst->lower[0]);
}
static inline void strip_store_signed(int8_t *dst, strip_codes codes, int less) {
    _mm512_store_si512(dst, _mm512_sub_epi8(codes, _mm512_set1_epi8((char)less)));
}
static inline strip_sum strip_tiles_float(const struct strip_tiles *tiles, int token) {
    const __m512i upper = _mm512_load_si512(tiles->upper[token]), lower = _mm512_load_si512(tiles->lower[token]);
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower));
}

#endif
