/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a layer's flush takes: 128 rows of 8 heads of 128, K and V, from f16 tiles, in a graph of 32 layers whose memory is larger than
 * the L2 cache. Beside it a copy of the bytes that are read and written.
 */
#ifndef TESTS_CUDA_ENCODE_BENCH_CUH
#define TESTS_CUDA_ENCODE_BENCH_CUH

namespace {

enum { BENCH_LAYERS = 32, BENCH_ROUNDS = 4, BENCH_HEADS = 8, BENCH_D = 128, BENCH_REPEATS = 20 };

struct bench_side {
    const struct kvt_codec *codec;
    enum kvt_side side;
    size_t tile_bytes, source_bytes, queries_bytes;
    struct kvt_cuda_job *jobs; /* [round][layer][head] */
};

struct bench {
    struct device_memory memory;
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

void bench_fill(struct bench_side *s, struct bench *b, const char *name, enum kvt_side side) {
    const size_t n = (size_t)BENCH_ROUNDS * BENCH_LAYERS * BENCH_HEADS;
    s->side = side;
    if (kvt_codec_parse(&s->codec, name, nullptr) != KVT_OK) exit(1);
    s->tile_bytes = kvt_codec_tile_bytes(s->codec, side, BENCH_D);
    s->source_bytes = (size_t)KVT_TILE_ROWS * BENCH_D * 2;
    s->queries_bytes = s->codec->info.queries ? KVT_TILE_ROWS * BENCH_D / (s->codec->query_rows ? 1 : 4) : 0;
    std::vector<uint16_t> source(s->source_bytes / 2);
    std::vector<unsigned char> queries(s->queries_bytes);
    struct kvt_rng rng = {7};
    for (uint16_t &x : source) x = kvt_f16_from_f32(kvt_rng_normal(&rng));
    for (unsigned char &x : queries) x = (unsigned char)(0x38 + kvt_rng_below(&rng, 8));
    std::vector<struct kvt_cuda_job> jobs(n);
    for (struct kvt_cuda_job &job : jobs) {
        job = {};
        job.tile = device_take(&b->memory, s->tile_bytes);
        job.rows = device_copy(&b->memory, source.data(), source.size());
        if (s->queries_bytes) job.queries = device_copy(&b->memory, queries.data(), queries.size());
        job.n = KVT_TILE_ROWS;
    }
    s->jobs = device_copy(&b->memory, jobs.data(), jobs.size());
}

void bench_encode(const struct bench_side *s, cudaStream_t stream, int round, int layer, bool beside) {
    struct kvt_cuda_encode_args args = {};
    struct kvt_error err = {};
    args.codec = s->codec, args.side = s->side, args.d = BENCH_D;
    args.source.is_tile = true, args.source.number = KVT_NUMBER_F16;
    args.jobs = s->jobs + (size_t)(round * BENCH_LAYERS + layer) * BENCH_HEADS;
    args.n_jobs = BENCH_HEADS, args.most_rows = KVT_TILE_ROWS;
    args.beside = beside;
    if (kvt_cuda_encode(&args, stream, &err) != KVT_OK) printf("%s\n", err.text), exit(1);
}

/* Microseconds of a layer: the least of the repeats' means over their rounds. */
template <class Layer> float bench_time(struct bench *b, const Layer &layer) {
    cudaGraphExec_t graphs[BENCH_ROUNDS];
    float best = 1e30f;
    for (int r = 0; r < BENCH_ROUNDS; r++) {
        cudaGraph_t graph;
        device_try(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal), "capture");
        for (int l = 0; l < BENCH_LAYERS; l++) layer(r, l);
        device_try(cudaStreamEndCapture(b->stream, &graph), "capture");
        device_try(cudaGraphInstantiate(&graphs[r], graph, 0), "a graph");
        device_try(cudaGraphDestroy(graph), "a graph");
    }
    for (int i = 0; i < BENCH_REPEATS; i++) {
        device_try(cudaEventRecord(b->begin, b->stream), "an event");
        for (int r = 0; r < BENCH_ROUNDS; r++) device_try(cudaGraphLaunch(graphs[r], b->stream), "a graph");
        device_try(cudaEventRecord(b->end, b->stream), "an event");
        device_try(cudaEventSynchronize(b->end), "the benchmark");
        float ms;
        device_try(cudaEventElapsedTime(&ms, b->begin, b->end), "an event");
        best = KVT_MIN(best, ms * 1000 / (BENCH_ROUNDS * BENCH_LAYERS));
    }
    for (int r = 0; r < BENCH_ROUNDS; r++) device_try(cudaGraphExecDestroy(graphs[r]), "a graph");
    return best;
}

void bench_pair(struct bench *b, const char *k_name, const char *v_name) {
    struct bench_side k, v;
    b->memory.used = 0;
    bench_fill(&k, b, k_name, KVT_SIDE_K);
    bench_fill(&v, b, v_name, KVT_SIDE_V);
    const size_t read = (k.source_bytes + v.source_bytes + k.queries_bytes) * BENCH_HEADS,
                 written = (k.tile_bytes + v.tile_bytes) * BENCH_HEADS, half = (read + written) / 2;
    char *const low = b->memory.at, *const high = low + b->memory.bytes / 2;
    if (kvt_cuda_can_encode(k.codec, KVT_SIDE_K, BENCH_D, nullptr) != KVT_OK ||
        kvt_cuda_can_encode(v.codec, KVT_SIDE_V, BENCH_D, nullptr) != KVT_OK)
        return;
    const float us_k = bench_time(b, [&](int round, int layer) { bench_encode(&k, b->stream, round, layer, false); });
    const float us_v = bench_time(b, [&](int round, int layer) { bench_encode(&v, b->stream, round, layer, false); });
    const float us = bench_time(b, [&](int round, int layer) { /* as a step does */
                                                               bench_encode(&k, b->stream, round, layer, false);
                                                               bench_encode(&v, b->stream, round, layer, true);
    });
    const float us_copy = bench_time(b, [&](int round, int layer) {
        const size_t at = (size_t)(round * BENCH_LAYERS + layer) * half;
        device_try(cudaMemcpyAsync(high + at, low + at, half, cudaMemcpyDeviceToDevice, b->stream), "a copy");
    });
    printf("%-12s %-12s %8zu KB  K %6.2f  V %6.2f  both %6.2f us, %5.0f GB/s; a copy of as much %6.2f us\n", k_name,
           v_name, (read + written) / 1024, (double)us_k, (double)us_v, (double)us,
           (double)(read + written) / (double)us * 1e-3, (double)us_copy);
}

int encode_bench(const char *only) {
    static const char *const pairs[][2] = {{"f16", "f16"},
                                           {"kivi4g32", "kivi4g32"},
                                           {"kivi4g32", "affine4g64"},
                                           {"kivi2g32", "kivi2g32"},
                                           {"kivi8g64", "kivi8g64"},
                                           {"kivi4g128", "kivi4g128"},
                                           {"affine4g64", "affine4g64"},
                                           {"affine8g64", "affine8g64"},
                                           {"q8_0", "q8_0"},
                                           {"q5_1", "q5_1"},
                                           {"q4_0", "q4_0"},
                                           {"q4_0-rot", "q4_0-rot"},
                                           {"iq4_nl", "iq4_nl"},
                                           {"fp8e4m3", "fp8e4m3"},
                                           {"fp8e4m3-row", "fp8e4m3-row"},
                                           {"mxfp8", "mxfp8"},
                                           {"nvfp4", "nvfp4"},
                                           {"turbo4", "turbo4"},
                                           {"kvarn4", "kvarn4"},
                                           {"kq4", "vu4"},
                                           {"kq3", "vu3"},
                                           {"kq2", "vu2"},
                                           {"kq3-feedback", "vu3"}};
    struct bench b = {};
    if (!device_open(&b.memory, (size_t)2 << 30)) return 77;
    device_try(cudaStreamCreate(&b.stream), "a stream");
    device_try(cudaEventCreate(&b.begin), "an event");
    device_try(cudaEventCreate(&b.end), "an event");
    printf(
        "a layer's flush: %d rows of %d heads of %d, K and V, in graphs of %d layers, %d sets of memory; least of %d\n",
        KVT_TILE_ROWS, BENCH_HEADS, BENCH_D, BENCH_LAYERS, BENCH_ROUNDS, BENCH_REPEATS);
    for (const auto &pair : pairs)
        if (!only || strncmp(pair[0], only, strlen(only)) == 0) bench_pair(&b, pair[0], pair[1]);
    return 0;
}

} /* namespace */

#endif
