/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching attention over tiles of any kind.
 */
#include "backend/cuda/attend_any.cuh"

extern "C" {
#include "base/check.h"
}

namespace {

enum { SHARED_MOST = 227 * 1024 };

size_t shared_bytes(const struct kvt_cuda_page &body, int n_columns) {
    return sizeof(float) * (size_t)any_room_of(kvt_tile_row_size(&body.tile[KVT_SIDE_K]),
                                               kvt_tile_row_size(&body.tile[KVT_SIDE_V]), n_columns)
                               .end;
}

/* Tiles of values that a warp has. */
int tiles_of(const struct kvt_cuda_page &body) {
    return kvt_tile_row_size(&body.tile[KVT_SIDE_V]) <= TILE_LANES * ANY_WARPS ? 1 : MOST_TILES;
}

template <int TILES> const char *launch_tiles(const struct any_args &a, size_t shared, void *stream) {
    void (*const kernel)(struct any_args) =
        a.call.n_columns == KVT_CUDA_FEW_COLUMNS ? attend_any<1, TILES> : attend_any<2, TILES>;
    return launch(kernel, a.call.n_blocks, 1, ANY_THREADS, shared, stream, a);
}

} /* namespace */

int kvt_cuda_attend_any_blocks(const struct kvt_cuda_page *body, int n_columns) {
    const int room = SHARED_MOST / (int)(shared_bytes(*body, n_columns) + 1024),
              most = any_blocks_of(n_columns / 8, tiles_of(*body));
    return KVT_MIN(room, most);
}

enum kvt_status kvt_cuda_attend_any_launch(const struct kvt_cuda_attend *attend, void *stream, struct kvt_error *err) {
    struct any_args a = {};
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        a.side[0][side] = packed_side_of(attend->body, (enum kvt_side)side);
        a.side[1][side] = packed_side_of(attend->plain, (enum kvt_side)side);
        const int d = a.side[0][side].d;
        a.norm[side] = (float)(1.0 / sqrt((double)(d & -d)));
    }
    a.head_bytes[KVT_REGION_BODY] = (uint32_t)attend->body.head_bytes;
    a.head_bytes[KVT_REGION_SINK] = (uint32_t)attend->sink_head_bytes;
    a.head_bytes[KVT_REGION_TAIL] = (uint32_t)attend->plain.head_bytes;
    a.room = any_room_of(a.side[0][KVT_SIDE_K].d, a.side[0][KVT_SIDE_V].d, attend->n_columns);
    a.call = *attend;
    const size_t shared = shared_bytes(attend->body, attend->n_columns);
    const char *fault =
        tiles_of(attend->body) == 1 ? launch_tiles<1>(a, shared, stream) : launch_tiles<MOST_TILES>(a, shared, stream);
    if (!fault) return KVT_OK;
    return kvt_fail(err, KVT_ERR_DEVICE, "CUDA, launching attention: %s", fault);
}
