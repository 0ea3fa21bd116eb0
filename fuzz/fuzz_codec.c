/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a tile, of every codec: decoded without fault, the same whichever rows are asked for, and the same at every level.
 * Input: codec (2 bytes), side, row size, first row, rows and block; the rest fills the tile, over and over.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernel/kernel.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum { HEAD = 6, MAX_ROWS = 9, SKIP = 29 };

/* Whole blocks of lanes and parts of one, one slice of channels and two. */
static const int sizes[] = {8, 16, 24, 40, 64, 72, 136};

/* The same number, or both none. */
static bool is_same(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

static void *take(size_t n, size_t bytes) {
    void *p = kvt_take(&kvt_allocator_libc, n, bytes);
    if (!p) abort();
    return p;
}

/* Rows [first, first + n), into just as much room, are what each of them is alone. */
static void decode(const struct kvt_codec *codec, enum kvt_side side, int d, const void *tile, int first, int n) {
    const size_t row = (size_t)d * sizeof(float);
    float *rows = malloc(n ? (size_t)n * row : 1), *one = malloc(row);
    if (!rows || !one || kvt_codec_decode(codec, side, d, rows, d, tile, first, n, NULL) != KVT_OK) abort();
    for (int r = 0; r < n; r++) {
        if (kvt_codec_decode(codec, side, d, one, d, tile, first + r, 1, NULL) != KVT_OK) abort();
        for (int c = 0; c < d; c++)
            if (!is_same(rows[r * d + c], one[c])) abort();
    }
    free(rows);
    free(one);
}

/* What kernels make of a block is what the layout says of its elements, at every level that runs here. */
static void unpack(const struct kvt_tile *tile, const void *bytes, int block) {
    float *out = take((size_t)tile->n_terms * KVT_LANES, sizeof *out);
    for (int l = 0; l < KVT_LEVEL_COUNT; l++) {
        if (!kvt_level_runs((enum kvt_level)l)) continue;
        kvt_kernels_select((enum kvt_level)l).unpack(tile, bytes, block, out);
        for (int i = 0; i < tile->n_terms * KVT_LANES; i += SKIP) {
            const int term = i / KVT_LANES, lane = block * KVT_LANES + i % KVT_LANES;
            if (lane < tile->n_lanes && !is_same(out[i], kvt_tile_get(tile, bytes, term, lane))) abort();
        }
    }
    kvt_give(&kvt_allocator_libc, out, (size_t)tile->n_terms * KVT_LANES, sizeof *out);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (size < HEAD) return 0;
    const struct kvt_codec *codec = kvt_codec_at((size_t)(data[0] | data[1] << 8) % kvt_codec_count());
    const enum kvt_side side = data[2] % 2 ? KVT_SIDE_V : KVT_SIDE_K;
    const int d = sizes[data[3] % KVT_ARRAY_LEN(sizes)], first = data[4] % KVT_TILE_ROWS;
    const int n = data[5] % (KVT_MIN(KVT_TILE_ROWS - first, MAX_ROWS) + 1);
    const size_t bytes = kvt_codec_tile_bytes(codec, side, d);
    if (bytes == 0) return 0;
    unsigned char *tile_bytes = take(bytes, 1);
    for (size_t i = 0; i < bytes; i++) tile_bytes[i] = size > HEAD ? data[HEAD + i % (size - HEAD)] : 0;
    decode(codec, side, d, tile_bytes, first, n);
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, d, &tile);
    unpack(&tile, tile_bytes, data[5] % kvt_tile_n_blocks(&tile));
    kvt_give(&kvt_allocator_libc, tile_bytes, bytes, 1);
    return 0;
}
