/* SPDX-License-Identifier: Apache-2.0
 *
 * backend/cuda/cuda.h, encode.h and queries.h over the process's memory, everything done at once.
 */
#include "cuda/host_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/encode.h"
#include "backend/cuda/queries.h"
#include "base/attr.h"
#include "base/check.h"
#include "base/half.h"
#include "kernel/kernel.h"

enum { MAX_BLOCKS = 4096, DEVICES = 2 };

struct host_device host_device;
static struct {
    char *at;
    size_t bytes;
} blocks[MAX_BLOCKS];

enum kvt_status host_device_call(struct kvt_error *err) {
    host_device.n_calls++;
    if (host_device.fail_at && --host_device.fail_at == 0) host_device.fail_at = -1;
    if (host_device.fail_at >= 0) return KVT_OK;
    host_device.fail_at = -1;
    return kvt_fail(err, KVT_ERR_DEVICE, "the device of this test was pulled out");
}

const char *kvt_cuda_built_with(void) { return "0.0 for this test"; }

enum kvt_status kvt_cuda_n_devices(int *out, struct kvt_error *err) {
    KVT_TRY(host_device_call(err));
    *out = DEVICES;
    return KVT_OK;
}

enum kvt_status kvt_cuda_describe(struct kvt_cuda_about *out, int device, struct kvt_error *err) {
    KVT_TRY(host_device_call(err));
    *out = (struct kvt_cuda_about){.name = "memory of a test", .major = 9, .n_multiprocessors = device + 1};
    return KVT_OK;
}

enum kvt_status kvt_cuda_open(struct kvt_cuda *out, int device, void *stream, struct kvt_error *err) {
    KVT_TRY(host_device_call(err));
    if (device < 0 || device >= DEVICES)
        return kvt_fail(err, KVT_ERR_ARG, "there is no CUDA device %d; found: 0 (memory of a test)", device);
    *out = (struct kvt_cuda){.device = device, .stream = stream, .owns_stream = !stream};
    return KVT_OK;
}

void kvt_cuda_close(struct kvt_cuda *cuda) { cuda->stream = NULL; }

enum kvt_status kvt_cuda_enter(const struct kvt_cuda *cuda, int *before, struct kvt_error *err) {
    (void)cuda;
    *before = 0;
    return host_device_call(err);
}

void kvt_cuda_leave(int before) { (void)before; }

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

enum kvt_status kvt_cuda_take(const struct kvt_cuda *cuda, void **device, size_t bytes, struct kvt_error *err) {
    (void)cuda;
    KVT_TRY(host_device_call(err));
    if (host_device.most && host_device.live + bytes > host_device.most)
        return kvt_fail(err, KVT_ERR_NOMEM, "CUDA device has no %zu bytes", bytes);
    int i = 0;
    while (i < MAX_BLOCKS && blocks[i].at) i++;
    void *taken = i < MAX_BLOCKS ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    if (!taken) return kvt_fail(err, KVT_ERR_NOMEM, "this test has no %zu bytes", bytes);
    memset(taken, 0xA5, bytes);
    blocks[i].at = taken;
    blocks[i].bytes = bytes;
    host_device.live += bytes;
    host_device.n_live++;
    *device = taken;
    return KVT_OK;
}

static int block_of(const void *at) {
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (blocks[i].at && (const char *)at >= blocks[i].at && (const char *)at < blocks[i].at + blocks[i].bytes)
            return i;
    return -1;
}

void kvt_cuda_give(const struct kvt_cuda *cuda, void *device) {
    (void)cuda;
    const int i = device ? block_of(device) : -1;
    if (i < 0) return;
    host_device.live -= blocks[i].bytes;
    host_device.n_live--;
    free(blocks[i].at);
    blocks[i].at = NULL;
}

enum kvt_status kvt_cuda_free_bytes(const struct kvt_cuda *cuda, size_t *out, struct kvt_error *err) {
    (void)cuda;
    KVT_TRY(host_device_call(err));
    *out = host_device.most ? host_device.most - host_device.live : (size_t)1 << 40;
    return KVT_OK;
}

enum kvt_status kvt_cuda_take_pinned(const struct kvt_cuda *cuda, void **host, size_t bytes, struct kvt_error *err) {
    (void)cuda;
    KVT_TRY(host_device_call(err));
    void *taken = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!taken) return kvt_fail(err, KVT_ERR_NOMEM, "no memory");
    host_device.n_live++;
    *host = taken;
    return KVT_OK;
}

void kvt_cuda_give_pinned(const struct kvt_cuda *cuda, void *host) {
    (void)cuda;
    if (host) host_device.n_live--;
    free(host);
}

enum kvt_status kvt_cuda_take_table(const struct kvt_cuda *cuda, void **device, size_t bytes, struct kvt_error *err) {
    return kvt_cuda_take(cuda, device, bytes, err);
}

void kvt_cuda_give_table(const struct kvt_cuda *cuda, void *device) { kvt_cuda_give(cuda, device); }

enum kvt_status kvt_cuda_fill(const struct kvt_cuda *cuda, void *device, int byte, size_t bytes,
                              struct kvt_error *err) {
    (void)cuda;
    KVT_TRY(host_device_call(err));
    memset(device, byte, bytes);
    return KVT_OK;
}

enum kvt_status kvt_cuda_copy(const struct kvt_cuda *cuda, void *to, const void *from, size_t bytes,
                              struct kvt_error *err) {
    (void)cuda;
    KVT_TRY(host_device_call(err));
    memmove(to, from, bytes);
    return KVT_OK;
}

enum kvt_status kvt_cuda_pack(const struct kvt_cuda *cuda, void *device, const void *from, size_t row_bytes,
                              ptrdiff_t step, size_t n, struct kvt_error *err) {
    (void)cuda;
    KVT_TRY(host_device_call(err));
    for (size_t i = 0; i < n; i++)
        memcpy((char *)device + i * row_bytes, (const char *)from + (ptrdiff_t)i * step, row_bytes);
    return KVT_OK;
}

enum kvt_status kvt_cuda_wait(const struct kvt_cuda *cuda, struct kvt_error *err) {
    (void)cuda;
    return host_device_call(err);
}

enum kvt_status kvt_cuda_set_entries(const struct kvt_cuda *cuda, const struct kvt_cuda_entry *entries, int n,
                                     struct kvt_error *err) {
    (void)cuda;
    KVT_TRY(host_device_call(err));
    for (int i = 0; i < n; i++) *entries[i].slot = entries[i].value;
    return KVT_OK;
}

enum kvt_status kvt_cuda_is_device(const struct kvt_cuda *cuda, const void *pointer, int *out, struct kvt_error *err) {
    (void)cuda;
    KVT_TRY(host_device_call(err));
    *out = block_of(pointer) >= 0;
    return KVT_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------------- */

static float number_at(enum kvt_number number, const void *numbers, ptrdiff_t i) {
    if (number == KVT_NUMBER_F32) return ((const float *)numbers)[i];
    const uint16_t half = ((const uint16_t *)numbers)[i];
    return number == KVT_NUMBER_F16 ? kvt_f32_from_f16(half) : kvt_f32_from_bf16(half);
}

static float round_to(enum kvt_number number, float x) {
    if (number == KVT_NUMBER_F16) return kvt_f32_from_f16(kvt_f16_from_f32(x));
    return number == KVT_NUMBER_BF16 ? kvt_f32_from_bf16(kvt_bf16_from_f32(x)) : x;
}

enum kvt_status kvt_cuda_can_encode(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_error *err) {
    if (strncmp(codec->info.name, "mxfp4", 5) == 0)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "%s has no encoder on a device yet", codec->info.name);
    return kvt_codec_fits(codec, side, d, err);
}

/* What append.c gives an encoder of the queries beside rows, here as they lie in their tile: sums of squares by channel and, in `room`,
 * the queries themselves where the codec wants those. */
static void read_queries(const struct kvt_cuda_encode_args *a, const struct kvt_cuda_job *job, float *room,
                         float *sums) {
    const struct kvt_codec *codec;
    struct kvt_tile tile;
    const int parts = a->codec->query_rows ? 1 : 4, n = a->d / parts;
    if (kvt_codec_parse(&codec, "fp8e5m2", NULL) != KVT_OK) return;
    kvt_codec_describe(codec, KVT_SIDE_K, n, &tile);
    kvt_tile_decode(&tile, room, n, job->queries, 0, KVT_TILE_ROWS);
    memset(sums, 0, (size_t)a->d * sizeof *sums);
    for (int r = 0; r < KVT_TILE_ROWS; r++)
        for (int c = 0; c < n; c++) sums[r % parts * n + c] += room[r * n + c] * room[r * n + c];
}

static void load_rows(const struct kvt_cuda_encode_args *a, int j, float limit, float *rows) {
    const struct kvt_cuda_job *job = &a->jobs[j];
    struct kvt_tile plain;
    if (a->source.is_tile) {
        kvt_tile_init_plain(&plain, a->side, a->d, a->source.number);
        kvt_tile_decode(&plain, rows, a->d, job->rows, job->first, job->n);
        return;
    }
    for (int r = 0; r < job->n; r++)
        for (int c = 0; c < a->d; c++) {
            const float x = number_at(a->source.number, job->rows, r * a->source.stride + c);
            const uint64_t place = (uint64_t)j << 32 | (uint64_t)(job->first + r) << 16 | (uint64_t)c;
            if (!(fabsf(x) <= limit) && a->bad) *a->bad = KVT_MIN(*a->bad, place);
            rows[r * a->d + c] = !(fabsf(x) <= limit) ? 0 : round_to(a->source.round, x);
        }
}

enum kvt_status kvt_cuda_encode(const struct kvt_cuda_encode_args *a, void *stream, struct kvt_error *err) {
    (void)stream;
    if (a->n_jobs <= 0) return KVT_OK;
    KVT_TRY(host_device_call(err));
    KVT_TRY(kvt_cuda_can_encode(a->codec, a->side, a->d, err));
    const float limit = a->limit > 0 ? a->limit : kvt_codec_limit(a->codec, a->side, a->d);
    const size_t n_room = KVT_MAX(kvt_codec_room(a->codec, a->d), (size_t)KVT_TILE_ROWS * KVT_LATENT_MAX);
    float *rows = malloc(KVT_TILE_ROWS * KVT_LATENT_MAX * sizeof *rows), sums[KVT_LATENT_MAX];
    float *room = malloc(n_room * sizeof *room);
    struct kvt_tile tile;
    kvt_codec_describe(a->codec, a->side, a->d, &tile);
    for (int j = 0; j < a->n_jobs && rows && room; j++) {
        const struct kvt_cuda_job *job = &a->jobs[j];
        if (job->n > a->most_rows) abort();
        load_rows(a, j, limit, rows);
        if (job->queries) read_queries(a, job, room, sums);
        a->codec->encoder->encode(
            &(struct kvt_encode_args){.codec = a->codec,
                                      .tile = &tile,
                                      .bytes = job->tile,
                                      .first = job->first,
                                      .n = job->n,
                                      .rows = rows,
                                      .stride = a->d,
                                      .queries = job->queries ? sums : NULL,
                                      .room = job->queries && a->codec->query_rows ? room : NULL});
    }
    free(room);
    free(rows);
    return KVT_OK;
}

enum kvt_status kvt_cuda_keep_queries(const struct kvt_cuda_queries *a, void *stream, struct kvt_error *err) {
    (void)stream;
    KVT_TRY(host_device_call(err));
    const int n = a->d / a->parts;
    for (int i = 0; i < a->n_rows * a->n_heads * a->d; i++) {
        const int c = i % a->d, head = i / a->d % a->n_heads, row = i / a->d / a->n_heads;
        if (a->positions[row] < a->from) continue;
        const int part = (int)(a->positions[row] % a->parts) * n;
        float sum = 0, one = 0;
        for (int g = 0; g < a->group; g++) {
            const int q_head = head * a->group + g;
            const float x = number_at(a->number, a->data, row * a->row_stride + q_head * a->head_stride + c);
            const uint64_t place = (uint64_t)row << 32 | (uint64_t)q_head << 16 | (uint64_t)c;
            if (!(fabsf(x) <= 65504)) *a->bad = KVT_MIN(*a->bad, place);
            sum += x * x;
            if (g == a->positions[row] % a->group) one = x;
        }
        if (c >= part && c < part + n)
            a->out[(row * a->n_heads + head) * n + c - part] = a->parts == 1 ? one : sqrtf(sum / (float)a->group);
    }
    return KVT_OK;
}
