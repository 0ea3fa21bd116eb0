/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding and decoding on a device, held to the scalar reference: every codec, side and head size that the device takes, rows made to
 * hurt, from plain tiles and from matrices, whole tiles and parts of them. Bytes and floats are equal or the test fails.
 *
 *   test_encode [--only NAME] [--share N]    one case of N
 *   test_encode --bench                      a layer's flush: 128 rows of 8 heads of 128, microseconds and GB/s
 */
#include "backend/cuda/simt.cuh"

#include <float.h>

#include <vector>

#include "backend/cuda/encode.h"
#include "cuda/device_memory.h"

extern "C" {
#include "base/rng.h"
}

namespace {

enum { JOBS = 3, MOST_SHOWN = 20 };

struct test {
    struct device_memory memory;
    struct kvt_rng rng;
    const char *only;
    unsigned share, n_seen;
    int passed, failed;
};

int below(struct test *t, int n) { return (int)kvt_rng_below(&t->rng, (uint64_t)n); }

const char *side_name(enum kvt_side side) { return side == KVT_SIDE_K ? "K" : "V"; }

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

/* A row that hurts some encoder; `limit` is the largest magnitude that it may have. */
void fill_row(struct test *t, float *x, int d, float limit) {
    const int kind = below(t, 14);
    const float scale = kind == 0 ? limit / 8 : kind == 1 ? 1e-7f : kind == 2 ? 1e-39f : kind == 13 ? 3e-5f : 1;
    for (int c = 0; c < d; c++) {
        const float normal = kvt_rng_normal(&t->rng), sign = below(t, 2) ? 1 : -1;
        switch (kind) {
        case 3: x[c] = 0.75f; break;
        case 4: x[c] = 0 * sign; break;
        case 5: x[c] = below(t, 2) ? fabsf(normal) : 0 * sign; break;
        case 6: x[c] = (float)below(t, 16) / 2; break;
        case 7: x[c] = sign * 1.5f; break;
        case 8: x[c] = 300 + normal / 64; break;
        case 9: x[c] = sign * (float)(2 * below(t, 256) + 1) / 2; break;
        default: x[c] = fmaxf(-limit, fminf(limit, scale * normal));
        }
    }
    if (kind == 10 || kind == 11) {
        float *outlier = &x[below(t, d)];
        *outlier = fmaxf(-limit, fminf(limit, *outlier * (kind == 10 ? 50 : 1000)));
    }
    if (kind == 12) x[below(t, d)] = below(t, 2) ? limit : -limit;
}

/* How a test's rows come. */
struct origin {
    struct kvt_cuda_source source;
    const char *name;
};
const struct origin origins[] = {
    {{true, KVT_NUMBER_F16, 0, KVT_NUMBER_F32}, "f16 tile"},
    {{false, KVT_NUMBER_F32, 0, KVT_NUMBER_F32}, "f32 matrix"},
    {{false, KVT_NUMBER_F16, 0, KVT_NUMBER_F32}, "f16 matrix"},
    {{true, KVT_NUMBER_BF16, 0, KVT_NUMBER_F32}, "bf16 tile"},
    {{false, KVT_NUMBER_BF16, 0, KVT_NUMBER_F32}, "bf16 matrix"},
    {{true, KVT_NUMBER_F32, 0, KVT_NUMBER_F32}, "f32 tile"},
    {{false, KVT_NUMBER_F32, 0, KVT_NUMBER_F16}, "f32 matrix rounded to f16"},
};

float as_number(enum kvt_number number, float x) {
    if (number == KVT_NUMBER_F16) return kvt_f32_from_f16(kvt_f16_from_f32(x));
    if (number == KVT_NUMBER_BF16) return kvt_f32_from_bf16(kvt_bf16_from_f32(x));
    return x;
}

/* Numbers in memory. */
std::vector<char> pack_numbers(enum kvt_number number, const float *x, size_t n) {
    std::vector<char> out(n * (number == KVT_NUMBER_F32 ? 4 : 2));
    for (size_t i = 0; i < n; i++) {
        const uint16_t half = number == KVT_NUMBER_F16 ? kvt_f16_from_f32(x[i]) : kvt_bf16_from_f32(x[i]);
        if (number == KVT_NUMBER_F32)
            memcpy(&out[i * 4], &x[i], 4);
        else
            memcpy(&out[i * 2], &half, 2);
    }
    return out;
}

/* ---- encode -------------------------------------------------------------------------------------------------------------- */

struct encode_case {
    const struct kvt_codec *codec;
    enum kvt_side side;
    int d;
    const struct origin *origin;
    bool queries;
};

/* What of one job is compared. */
struct filled {
    struct kvt_cuda_job job;
    std::vector<unsigned char> want;
};

/* The queries beside 128 rows, as a cache keeps them: the tile, and the sums that the encoder gets. */
void make_queries(struct test *t, int d, int parts, std::vector<char> *tile_bytes, std::vector<float> *sums,
                  std::vector<float> *rows) {
    const struct kvt_codec *codec;
    struct kvt_tile tile;
    const int n = d / parts;
    if (kvt_codec_parse(&codec, "fp8e5m2", nullptr) != KVT_OK) exit(1);
    kvt_codec_describe(codec, KVT_SIDE_K, n, &tile);
    tile_bytes->assign(tile.bytes, 0);
    rows->assign((size_t)KVT_TILE_ROWS * (size_t)n, 0);
    const int kind = below(t, 4); /* 3: all zero */
    for (int r = 0; r < KVT_TILE_ROWS; r++)
        for (int c = 0; c < n; c++)
            (*rows)[(size_t)(r * n + c)] = kind == 3 ? 0 : kvt_rng_normal(&t->rng) * (c % 7 == 3 ? 20.0f : 1.0f);
    if (parts > 1)
        for (float &x : *rows) x = fabsf(x);
    codec->encoder->encode([&] {
        static struct kvt_encode_args a;
        a = {};
        a.codec = codec, a.tile = &tile, a.bytes = tile_bytes->data(), a.n = KVT_TILE_ROWS;
        a.rows = rows->data(), a.stride = n;
        return &a;
    }());
    kvt_tile_decode(&tile, rows->data(), n, tile_bytes->data(), 0, KVT_TILE_ROWS);
    sums->assign((size_t)d, 0);
    for (int r = 0; r < KVT_TILE_ROWS; r++)
        for (int c = 0; c < n; c++) {
            const float q = (*rows)[(size_t)(r * n + c)];
            (*sums)[(size_t)(r % parts * n + c)] += q * q;
        }
}

/* Fills one job's memory and what its bytes must become. */
struct filled make_job(struct test *t, const struct encode_case &c, const struct kvt_tile &tile, bool whole) {
    const int g = c.codec->info.granularity, d = c.d, n_units = KVT_TILE_ROWS / g;
    const int first = whole ? 0 : below(t, n_units) * g,
              n = whole ? KVT_TILE_ROWS : (1 + below(t, n_units - first / g)) * g;
    const struct kvt_cuda_source &from = c.origin->source;
    const bool half = from.number == KVT_NUMBER_F16 || from.round == KVT_NUMBER_F16;
    const float most = kvt_codec_limit(c.codec, c.side, d);
    const float limit = KVT_MIN(most, half ? 65504.0f : 1e6f) * 0.99f; /* it stays below when it is rounded to bf16 */
    const int stride = d + 3;
    std::vector<float> rows((size_t)KVT_TILE_ROWS * (size_t)stride, 1);
    for (int r = 0; r < n; r++) {
        float *x = &rows[(size_t)(r * stride)];
        fill_row(t, x, d, limit);
        for (int i = 0; i < d; i++) x[i] = as_number(from.number, x[i]);
        if (c.side == KVT_SIDE_K && below(t, 2) == 0)
            x[d / 3] = as_number(from.number, limit / 100); /* a biased channel */
    }
    struct filled out;
    out.job = {};
    out.job.first = first, out.job.n = n;
    if (from.is_tile) {
        struct kvt_tile plain;
        kvt_tile_init_plain(&plain, c.side, d, from.number);
        std::vector<char> bytes(plain.bytes, 0x7C);
        for (int r = 0; r < n; r++) kvt_tile_put_numbers(&plain, bytes.data(), first + r, &rows[(size_t)(r * stride)]);
        out.job.rows = device_copy(&t->memory, bytes.data(), bytes.size());
    } else {
        const std::vector<char> bytes = pack_numbers(from.number, rows.data(), rows.size());
        out.job.rows = device_copy(&t->memory, bytes.data(), bytes.size());
        for (float &x : rows) x = as_number(from.round, x);
    }
    out.want.resize(tile.bytes);
    for (unsigned char &b : out.want) b = (unsigned char)kvt_rng_u64(&t->rng);
    out.job.tile = device_copy(&t->memory, out.want.data(), out.want.size());
    struct kvt_encode_args args = {};
    args.codec = c.codec, args.tile = &tile, args.bytes = out.want.data();
    args.first = first, args.n = n, args.rows = rows.data(), args.stride = stride;
    std::vector<char> queries;
    std::vector<float> sums, room;
    if (c.queries) {
        make_queries(t, d, c.codec->query_rows ? 1 : 4, &queries, &sums, &room);
        out.job.queries = device_copy(&t->memory, queries.data(), queries.size());
        args.queries = sums.data();
        if (c.codec->query_rows) {
            room.resize(kvt_codec_room(c.codec, d));
            args.room = room.data();
        }
    }
    c.codec->encoder->encode(&args);
    return out;
}

bool show(struct test *t) { return ++t->failed <= MOST_SHOWN; }

void check_encode(struct test *t, const struct encode_case &c) {
    struct kvt_tile tile;
    struct kvt_error err = {};
    std::vector<struct filled> jobs;
    std::vector<struct kvt_cuda_job> list;
    t->memory.used = 0;
    kvt_codec_describe(c.codec, c.side, c.d, &tile);
    int most_rows = 0;
    for (int j = 0; j < JOBS; j++) {
        jobs.push_back(make_job(t, c, tile, j == 0));
        list.push_back(jobs.back().job);
        most_rows = KVT_MAX(most_rows, list.back().n);
    }
    struct kvt_cuda_encode_args args = {};
    args.codec = c.codec, args.side = c.side, args.d = c.d, args.source = c.origin->source;
    args.source.stride = c.d + 3;
    args.jobs = device_copy(&t->memory, list.data(), list.size());
    args.n_jobs = JOBS, args.most_rows = most_rows;
    const uint64_t none = UINT64_MAX;
    args.bad = device_copy(&t->memory, &none, 1);
    if (kvt_cuda_encode(&args, nullptr, &err) != KVT_OK) {
        if (show(t)) printf("FAILED %s %s d %d: %s\n", c.codec->info.name, side_name(c.side), c.d, err.text);
        return;
    }
    uint64_t bad;
    device_out(&bad, args.bad, sizeof bad);
    if (bad != none) {
        if (show(t))
            printf("FAILED %s %s d %d: a bad number where there is none\n", c.codec->info.name, side_name(c.side), c.d);
        return;
    }
    for (int j = 0; j < JOBS; j++) {
        std::vector<unsigned char> got(tile.bytes);
        device_out(got.data(), list[(size_t)j].tile, got.size());
        size_t i = 0, n_other = 0;
        for (size_t k = 0; k < got.size(); k++) n_other += got[k] != jobs[(size_t)j].want[k];
        while (i < got.size() && got[i] == jobs[(size_t)j].want[i]) i++;
        if (i == got.size()) continue;
        if (show(t))
            printf(
                "FAILED encode %s %s d %d from %s, rows %d + %d%s: byte %zu of %zu is %02x, not %02x; %zu bytes differ\n",
                c.codec->info.name, side_name(c.side), c.d, c.origin->name, list[(size_t)j].first, list[(size_t)j].n,
                c.queries ? ", queries" : "", i, got.size(), got[i], jobs[(size_t)j].want[i], n_other);
        return;
    }
    t->passed++;
}

/* A number that no codec takes is found, the first of them. */
void check_bad(struct test *t, const struct kvt_codec *codec, enum kvt_side side, int d) {
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, d, &tile);
    const float limit = kvt_codec_limit(codec, side, d),
                bad[] = {NAN, INFINITY, -INFINITY, limit < FLT_MAX ? limit * 1.01f : NAN};
    t->memory.used = 0;
    std::vector<float> rows((size_t)KVT_TILE_ROWS * (size_t)d, 1);
    const int r = below(t, KVT_TILE_ROWS), ch = below(t, d);
    rows[(size_t)(r * d + ch)] = bad[below(t, 4)];
    if (r + 1 < KVT_TILE_ROWS) rows[(size_t)((KVT_TILE_ROWS - 1) * d + ch)] = NAN;
    struct kvt_cuda_job job = {};
    job.tile = device_take(&t->memory, tile.bytes);
    job.rows = device_copy(&t->memory, rows.data(), rows.size());
    job.n = KVT_TILE_ROWS;
    struct kvt_cuda_encode_args args = {};
    const uint64_t none = UINT64_MAX;
    args.codec = codec, args.side = side, args.d = d;
    args.source.stride = d;
    args.jobs = device_copy(&t->memory, &job, 1);
    args.n_jobs = 1, args.most_rows = KVT_TILE_ROWS;
    args.bad = device_copy(&t->memory, &none, 1);
    uint64_t got = 0;
    const enum kvt_status status = kvt_cuda_encode(&args, nullptr, nullptr);
    if (status == KVT_OK) device_out(&got, args.bad, sizeof got);
    if (status == KVT_OK && got == ((uint64_t)r << 16 | (uint64_t)ch))
        t->passed++;
    else if (show(t))
        printf("FAILED %s %s d %d: a bad number at row %d, channel %d was found at %llx\n", codec->info.name,
               side_name(side), d, r, ch, (unsigned long long)got);
}

/* ---- decode -------------------------------------------------------------------------------------------------------------- */

void check_decode(struct test *t, const struct kvt_codec *codec, enum kvt_side side, int d) {
    struct kvt_tile tile;
    struct kvt_error err = {};
    kvt_codec_describe(codec, side, d, &tile);
    t->memory.used = 0;
    const int stride = d + 1;
    std::vector<std::vector<float>> want;
    std::vector<struct kvt_cuda_decode_job> list;
    int most_rows = 0;
    for (int j = 0; j < JOBS; j++) {
        std::vector<unsigned char> bytes(tile.bytes);
        for (unsigned char &b : bytes) b = (unsigned char)kvt_rng_u64(&t->rng);
        for (size_t i = 1; i < bytes.size(); i += 2)
            if ((bytes[i] & 0x7C) == 0x7C) bytes[i] &= 0xBF; /* no f16 and few f32 of the largest exponent */
        const int first = j == 0 ? 0 : below(t, KVT_TILE_ROWS),
                  n = j == 0 ? KVT_TILE_ROWS : 1 + below(t, KVT_TILE_ROWS - first);
        want.emplace_back((size_t)n * (size_t)stride, -7.0f);
        struct kvt_cuda_decode_job job = {};
        job.tile = device_copy(&t->memory, bytes.data(), bytes.size());
        job.rows = device_copy(&t->memory, want.back().data(), want.back().size());
        job.first = first, job.n = n;
        kvt_tile_decode(&tile, want.back().data(), stride, bytes.data(), first, n);
        list.push_back(job);
        most_rows = KVT_MAX(most_rows, n);
    }
    struct kvt_cuda_decode_args args = {};
    args.codec = codec, args.side = side, args.d = d, args.stride = stride;
    args.jobs = device_copy(&t->memory, list.data(), list.size());
    args.n_jobs = JOBS, args.most_rows = most_rows;
    if (kvt_cuda_decode(&args, nullptr, &err) != KVT_OK) {
        if (show(t)) printf("FAILED %s %s d %d: %s\n", codec->info.name, side_name(side), d, err.text);
        return;
    }
    for (int j = 0; j < JOBS; j++) {
        std::vector<float> got(want[(size_t)j].size());
        device_out(got.data(), list[(size_t)j].rows, got.size() * sizeof(float));
        size_t i = 0;
        while (i < got.size()) {
            const float a = got[i], b = want[(size_t)j][i];
            if (kvt_f32_bits(a) != kvt_f32_bits(b) && !(a != a && b != b)) break;
            i++;
        }
        if (i == got.size()) continue;
        if (show(t))
            printf("FAILED decode %s %s d %d, rows %d + %d: row %zu, channel %zu is %a, not %a\n", codec->info.name,
                   side_name(side), d, list[(size_t)j].first, list[(size_t)j].n, i / (size_t)stride, i % (size_t)stride,
                   (double)got[i], (double)want[(size_t)j][i]);
        return;
    }
    t->passed++;
}

/* ---- all ----------------------------------------------------------------------------------------------------------------- */

bool takes(struct test *t) {
#if !defined(__CUDACC__)
    on_host::backwards = !on_host::backwards;
#endif
    return t->n_seen++ % t->share == 0;
}

/* Whether flushes of it have a kernel that knows its codes: no share leaves these out. */
bool is_known(const struct kvt_codec *codec, int d, const struct kvt_cuda_source &source) {
    const char *name = codec->info.name;
    return d == 128 && source.is_tile && source.number == KVT_NUMBER_F16 &&
           (strcmp(name, "kivi4g32") == 0 || strcmp(name, "affine4g64") == 0 || strcmp(name, "q8_0") == 0);
}

void check_codec(struct test *t, const struct kvt_codec *codec, enum kvt_side side, int d) {
    if (takes(t)) check_decode(t, codec, side, d);
    if (kvt_cuda_can_encode(codec, side, d, nullptr) != KVT_OK) return;
    for (const struct origin &origin : origins)
        for (int queries = 0; queries < 1 + (codec->info.queries && side == KVT_SIDE_K); queries++)
            if (takes(t) || is_known(codec, d, origin.source)) check_encode(t, {codec, side, d, &origin, queries != 0});
    if (takes(t)) check_bad(t, codec, side, d);
}

void check_all(struct test *t) {
    static const int sizes[] = {64, 80, 96, 128, 192, 256, 8, 72, 512, 576};
    int n_without = 0;
    for (size_t i = 0; i < kvt_codec_count(); i++) {
        const struct kvt_codec *codec = kvt_codec_at(i);
        if (t->only && strncmp(codec->info.name, t->only, strlen(t->only)) != 0) continue;
        bool some = false;
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            for (const int d : sizes) {
                if (kvt_codec_fits(codec, (enum kvt_side)side, d, nullptr) != KVT_OK) continue;
                some |= kvt_cuda_can_encode(codec, (enum kvt_side)side, d, nullptr) == KVT_OK;
                check_codec(t, codec, (enum kvt_side)side, d);
            }
        if (!some) n_without++, printf("no encoder on a device: %s\n", codec->info.name);
    }
    if (n_without) printf("%d codecs have no encoder on a device\n", n_without);
}

} /* namespace */

#if defined(__CUDACC__)
#include "cuda/encode_bench.cuh"
#endif

int main(int argc, char **argv) {
    static struct test t = {};
    bool bench = false;
    t.rng.state = 20250901;
    t.share = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0) bench = true;
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) t.only = argv[++i];
        if (strcmp(argv[i], "--share") == 0 && i + 1 < argc) t.share = (unsigned)atoi(argv[++i]);
    }
    if (!device_open(&t.memory, (size_t)64 << 20)) return 77;
#if defined(__CUDACC__)
    if (bench) return encode_bench(t.only);
#else
    (void)bench;
#endif
    check_all(&t);
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed != 0;
}
