/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernel encodes what, and how its work is cut.
 */
#include "backend/cuda/decode.cuh"
#include "backend/cuda/encode_groups.cuh"
#include "backend/cuda/encode_kq_feedback.cuh"
#include "backend/cuda/encode_kvarn.cuh"
#include "backend/cuda/encode_plain.cuh"
#include "backend/cuda/encode_vu.cuh"

extern "C" {
#include "base/check.h"
#include "codec/encoders.h"
}

namespace {

typedef void (*encode_fn)(struct encode_args);

/* How a launch is cut: rows and channels of a unit, threads of a block and their shared memory, blocks that take a unit together. */
struct cut {
    int rows, channels, threads;
    size_t shared_bytes;
    int blocks;
};

int round_up(int n, int step) { return (n + step - 1) / step * step; }

int row_size(const struct kvt_tile &tile) { return tile.side == KVT_SIDE_K ? tile.n_terms : tile.n_lanes; }

/* Elements and codes of a unit. */
size_t unit_bytes(const struct kvt_tile &tile, int rows, int channels) {
    const bool is_k = tile.side == KVT_SIDE_K;
    const int terms = is_k ? channels : rows, pitch = (is_k ? rows : channels) | 1;
    return (size_t)terms * pitch * sizeof(float) + (size_t)code_quads(terms) * pitch * 4;
}

/* Rows of a step of codes, on the side V. */
int step_rows(const struct kvt_tile &tile) { return kvt_planes_of(tile.format.bits).step_quads * 4; }

struct cut cut_plain(const struct kvt_tile &tile) {
    return {KVT_BLOCK_LANES, 32, UNIT_THREADS, unit_bytes(tile, KVT_BLOCK_LANES, 32), 1};
}

/* Units are as small as groups and steps of codes allow, rows that are rotated stay whole; a warp for each group, if it can be. */
struct cut cut_groups(const struct kvt_tile &tile) {
    const bool is_k = tile.side == KVT_SIDE_K, fold = tile.kind == KVT_TILE_FOLD;
    const int rows = !is_k ? step_rows(tile) : fold ? KVT_MAX(tile.lane_group, KVT_BLOCK_LANES) : KVT_BLOCK_LANES;
    const int group = tile.format.scale == KVT_SCALE_NONE ? 32 : fold ? tile.lane_group : tile.term_group;
    int channels = is_k && fold ? 32 : round_up(group, 32);
    if (tile.format.rotated || channels > row_size(tile)) channels = row_size(tile);
    const int n_lines = is_k && fold ? channels : rows, of_line = is_k && fold ? rows : channels;
    const int n_tasks = n_lines * round_up(of_line, 32) / KVT_MAX(group, KVT_WARP);
    return {rows, channels, KVT_MIN(KVT_MAX(n_tasks, 2) * KVT_WARP, UNIT_THREADS), unit_bytes(tile, rows, channels), 1};
}

struct cut cut_vu(const struct kvt_tile &tile) {
    const int d = tile.n_lanes, rows = step_rows(tile);
    return {rows, d, KVT_MIN(rows * KVT_WARP, UNIT_THREADS / 2), (size_t)code_quads(rows) * (d | 1) * 4, 1};
}

/* A whole tile. */
struct cut cut_kq(const struct kvt_tile &tile) {
    const int d = tile.n_terms;
    const size_t codes = (size_t)code_quads(d) * CLUSTER_SHARE * 4;
    return {KVT_TILE_ROWS, d, KQ_THREADS, KQ_CODES_AT + KVT_MAX(codes, (size_t)KQ_SQUARES_BYTES), CLUSTER};
}

struct cut cut_kq_feedback(const struct kvt_tile &tile) {
    return {KVT_TILE_ROWS, tile.n_terms, KQ_THREADS, FEEDBACK_AT + sizeof(struct feedback), CLUSTER};
}

struct cut cut_kvarn(const struct kvt_tile &tile) {
    const size_t tokens = (size_t)CLUSTER_SHARE * (row_size(tile) | 1) * sizeof(float);
    return {KVT_TILE_ROWS, KVT_SLICE, KVARN_THREADS, KVARN_ROWS_AT + tokens, CLUSTER};
}

template <bool parity> encode_fn kvarn_of(const struct kvt_tile &tile) {
    return tile.side == KVT_SIDE_K ? encode_kvarn<parity, true> : encode_kvarn<parity, false>;
}

encode_fn vu_of(const struct kvt_tile &tile) {
    const int block = tile.n_lanes & -tile.n_lanes;
    return block > 2 * VU_GROUP ? encode_vu<16> : block > VU_GROUP ? encode_vu<8> : encode_vu<4>;
}

template <encode_fn kernel> encode_fn the_one(const struct kvt_tile &) { return kernel; }

/* Every encoder that has a kernel. */
const struct row {
    const struct kvt_encoder *encoder;
    encode_fn (*kernel)(const struct kvt_tile &tile);
    struct cut (*cut)(const struct kvt_tile &tile);
} rows[] = {
    {&kvt_encoder_f32, the_one<encode_plain>, cut_plain},
    {&kvt_encoder_f16, the_one<encode_plain>, cut_plain},
    {&kvt_encoder_bf16, the_one<encode_plain>, cut_plain},
    {&kvt_encoder_affine, the_one<encode_groups<affine_codes<false>>>, cut_groups},
    {&kvt_encoder_affine_metal, the_one<encode_groups<affine_codes<true>>>, cut_groups},
    {&kvt_encoder_kivi, the_one<encode_groups<kivi_codes>>, cut_groups},
    {&kvt_encoder_kivi_parity, the_one<encode_groups<kivi_parity_codes>>, cut_groups},
    {&kvt_encoder_kvarn, kvarn_of<false>, cut_kvarn},
    {&kvt_encoder_kvarn_parity, kvarn_of<true>, cut_kvarn},
    {&kvt_encoder_q_0, the_one<encode_groups<q_0_codes>>, cut_groups},
    {&kvt_encoder_q_1, the_one<encode_groups<q_1_codes>>, cut_groups},
    {&kvt_encoder_iq4_nl, the_one<encode_groups<iq4_nl_codes>>, cut_groups},
    {&kvt_encoder_fp8, the_one<encode_groups<fp8_codes>>, cut_groups},
    {&kvt_encoder_mxfp, the_one<encode_groups<mxfp_codes>>, cut_groups},
    {&kvt_encoder_turbo, the_one<encode_groups<turbo_codes>>, cut_groups},
    {&kvt_encoder_vu, vu_of, cut_vu},
    {&kvt_encoder_kq, the_one<encode_kq>, cut_kq},
    {&kvt_encoder_kq_feedback, the_one<encode_kq_feedback>, cut_kq_feedback},
};

/* Kernels that know their codes, instead of those of rows[]: usual codecs, in flushes of heads of 128. */
struct known_row {
    const struct kvt_encoder *encoder;
    bool (*takes)(const struct encode_args &a);
    encode_fn kernel;
    int threads;
};

template <class Known> constexpr struct known_row known_of(const struct kvt_encoder *encoder) {
    return {encoder, Known::takes, encode_known<Known>, Known::warps * KVT_WARP};
}

const struct known_row known_rows[] = {
    known_of<known<kivi_codes, KVT_SIDE_K, KVT_TILE_FOLD, 4, 32, 2>>(&kvt_encoder_kivi),
    known_of<known<kivi_codes, KVT_SIDE_V, KVT_TILE_FOLD, 4, 32, 2>>(&kvt_encoder_kivi),
    known_of<known<affine_codes<false>, KVT_SIDE_K, KVT_TILE_LANE, 4, 64, 1>>(&kvt_encoder_affine),
    known_of<known<affine_codes<false>, KVT_SIDE_V, KVT_TILE_FOLD, 4, 64, 1>>(&kvt_encoder_affine),
    known_of<known<q_0_codes, KVT_SIDE_K, KVT_TILE_LANE, 8, 32, 2>>(&kvt_encoder_q_0),
    known_of<known<q_0_codes, KVT_SIDE_V, KVT_TILE_FOLD, 8, 32, 2>>(&kvt_encoder_q_0),
};

const struct known_row *find_known(const struct encode_args &a, const struct kvt_encoder *encoder) {
    for (const struct known_row &known : known_rows)
        if (known.encoder == encoder && known.takes(a)) return &known;
    return nullptr;
}

const struct row *find_row(const struct kvt_codec *codec) {
    for (const struct row &row : rows)
        if (row.encoder == codec->encoder) return &row;
    return nullptr;
}

float rotation_of(const struct kvt_tile &tile) {
    const int d = row_size(tile);
    return (float)(1.0 / sqrt((double)(d & -d)));
}

void copy_table(float *to, const struct kvt_format &format) {
    if (format.meaning == KVT_MEANING_TABLE) memcpy(to, format.table, sizeof(float) << format.bits);
}

/* Units that rows of a job can touch. */
int units_of_rows(int most_rows, int unit) {
    return KVT_MIN((most_rows + 2 * unit - 2) / unit, (KVT_TILE_ROWS + unit - 1) / unit);
}

} /* namespace */

enum kvt_status kvt_cuda_can_encode(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_error *err) {
    KVT_TRY(kvt_codec_fits(codec, side, d, err));
    if (codec->query_rows && d > FEEDBACK_MOST)
        return kvt_fail(
            err, KVT_ERR_UNSUPPORTED,
            "%s encodes rows of at most %d on a device, not of %d: the same codec without feedback takes them",
            codec->info.name, FEEDBACK_MOST, d);
    if (find_row(codec)) return KVT_OK;
    return kvt_fail(err, KVT_ERR_UNSUPPORTED, "%s has no encoder on a device yet: the backend cpu has one",
                    codec->info.name);
}

enum kvt_status kvt_cuda_encode(const struct kvt_cuda_encode_args *args, void *stream, struct kvt_error *err) {
    KVT_TRY(kvt_cuda_can_encode(args->codec, args->side, args->d, err));
    if (args->n_jobs <= 0 || args->most_rows <= 0) return KVT_OK;
    const struct row *row = find_row(args->codec);
    struct encode_args a = {};
    kvt_codec_describe(args->codec, args->side, args->d, &a.tile);
    const struct cut cut = row->cut(a.tile);
    if (a.tile.kind == KVT_TILE_CLASS) a.classes = kvt_classes_of(args->d, a.tile.format.bits);
    copy_table(a.table, a.tile.format);
    a.source = args->source;
    a.jobs = args->jobs;
    a.bad = args->bad;
    a.limit = args->limit > 0 ? args->limit : kvt_codec_limit(args->codec, args->side, args->d);
    a.unit_rows = cut.rows, a.unit_channels = cut.channels;
    a.n_row_units = units_of_rows(args->most_rows, cut.rows);
    a.rotation = rotation_of(a.tile);
    const int n_units = a.n_row_units * ((args->d + cut.channels - 1) / cut.channels);
    const struct known_row *known = find_known(a, row->encoder);
    const char *fault =
        launch(known ? known->kernel : row->kernel(a.tile), args->n_jobs, n_units * cut.blocks,
               known ? known->threads : cut.threads, cut.shared_bytes, stream, a, args->beside, cut.blocks);
    if (!fault) return KVT_OK;
    return kvt_fail(err, KVT_ERR_DEVICE, "CUDA, encoding %d tiles of %s: %s", args->n_jobs, args->codec->info.name,
                    fault);
}

enum kvt_status kvt_cuda_decode(const struct kvt_cuda_decode_args *args, void *stream, struct kvt_error *err) {
    KVT_TRY(kvt_codec_fits(args->codec, args->side, args->d, err));
    if (args->n_jobs <= 0 || args->most_rows <= 0) return KVT_OK;
    struct decode_args a = {};
    kvt_codec_describe(args->codec, args->side, args->d, &a.tile);
    if (a.tile.kind == KVT_TILE_CLASS) a.classes = kvt_classes_of(args->d, a.tile.format.bits);
    copy_table(a.table, a.tile.format);
    a.jobs = args->jobs;
    a.stride = args->stride;
    a.rotation = rotation_of(a.tile);
    const size_t shared_bytes =
        (size_t)KVT_BLOCK_LANES * (args->d | 1) * sizeof(float) + KVT_LATENT_MAX * sizeof(uint16_t);
    const char *fault = launch(decode_rows, args->n_jobs, units_of_rows(args->most_rows, KVT_BLOCK_LANES),
                               DECODE_THREADS, shared_bytes, stream, a);
    if (!fault) return KVT_OK;
    return kvt_fail(err, KVT_ERR_DEVICE, "CUDA, decoding %d tiles of %s: %s", args->n_jobs, args->codec->info.name,
                    fault);
}
