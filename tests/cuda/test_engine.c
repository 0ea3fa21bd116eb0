/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine on a device against the engine in the process: the same greedy tokens, logits that differ by rounding, alone and in batches, with
 * a tap; then too little memory, no cuBLAS and a device that is lost. On a GPU with the project's models (folder: argument 1); with
 * KVT_HOST_DEVICE over a device made of the process's memory, with tiny ones.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/attr.h"
#include "model/model.h"
#if defined(KVT_HOST_DEVICE)
#include "cuda/host_device.h"
#include "support/make_model.h"
#endif

static int n_passed, n_failed;

static bool check(bool good, const char *what, int line) {
    if (good) {
        n_passed++;
    } else {
        n_failed++;
        printf("test_engine.c:%d: not so: %s\n", line, what);
    }
    return good;
}
#define CHECK(c) check((c), #c, __LINE__)

static struct kvt_error err; /* of the last call that failed */

static void must(enum kvt_status status, int line) {
    if (status == KVT_OK) return;
    printf("test_engine.c:%d: %s\n%d passed, %d failed\n", line, err.text, n_passed, n_failed + 1);
    exit(1);
}
#define MUST(call) must((call), __LINE__)

/* ---- two sessions of one model ------------------------------------------------------------------------------------------ */

enum { CPU, GPU, MAX_VOCAB = 1 << 16, MAX_PROMPT = 300 };
#if defined(KVT_HOST_DEVICE)
enum { CACHE_BYTES = 4 << 20 }; /* slabs are as small, and soon filled */
#else
enum { CACHE_BYTES = 256 << 20 };
#endif
static const char *const backends[] = {"cpu", "cuda"};

struct pair {
    struct kvt_model *model;
    struct kvt_session *session[2];
    int n_vocab;
};

static struct kvt_session_options options_of(int where, const char *kv, int tail) {
    return (struct kvt_session_options){.place = {backends[where], 0},
                                        .kv = kv,
                                        .tail = tail,
                                        .n_ctx = 512,
                                        .n_batch = 96,
                                        .cache_byte_limit = CACHE_BYTES};
}

static void open_pair(struct pair *p, struct kvt_model *model, const char *kv, int tail) {
    *p = (struct pair){.model = model, .n_vocab = kvt_model_info(model).n_vocab};
    for (int i = 0; i < 2; i++) {
        const struct kvt_session_options options = options_of(i, kv, tail);
        MUST(kvt_session_create(&p->session[i], model, &options, &err));
    }
}

static void close_pair(struct pair *p) {
    for (int i = 0; i < 2; i++) kvt_session_destroy(p->session[i]);
}

static int best(const float *logits, int n) {
    int at = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[at]) at = i;
    return at;
}

/* Of the second's distribution from the first's. */
static double divergence(const float *a, const float *b, int n) {
    double max_a = -INFINITY, max_b = -INFINITY, sum_a = 0, sum_b = 0, kl = 0;
    for (int i = 0; i < n; i++) {
        max_a = fmax(max_a, (double)a[i]);
        max_b = fmax(max_b, (double)b[i]);
    }
    for (int i = 0; i < n; i++) {
        sum_a += exp((double)a[i] - max_a);
        sum_b += exp((double)b[i] - max_b);
    }
    for (int i = 0; i < n; i++) {
        const double log_a = (double)a[i] - max_a - log(sum_a), log_b = (double)b[i] - max_b - log(sum_b);
        kl += exp(log_a) * (log_a - log_b);
    }
    return kl;
}

static float logits[2][MAX_VOCAB];

/* The largest divergence over a prompt's end and n_tokens greedy ones, which are the processor's on both; *n_same: how many the device would
 * have taken too. */
static double compare(struct pair *p, const int32_t *prompt, int n_prompt, int n_tokens, int *n_same) {
    double worst = 0;
    int32_t next = 0;
    *n_same = 0;
    for (int t = 0; t <= n_tokens; t++) {
        for (int i = 0; i < 2; i++) {
            MUST(kvt_session_eval(p->session[i], t ? &next : prompt, t ? 1 : n_prompt, 1, NULL, &err));
            MUST(kvt_session_logits(p->session[i], 0, 1, logits[i], &err));
        }
        worst = fmax(worst, divergence(logits[CPU], logits[GPU], p->n_vocab));
        next = best(logits[CPU], p->n_vocab);
        *n_same += next == best(logits[GPU], p->n_vocab);
    }
    return worst;
}

/* most: the divergence that rounding may come to; where rows are encoded, an input that is rounded otherwise can become another code. */
struct cache {
    const char *kv;
    int tail;
    double most;
};

static void check_model(struct kvt_model *model, const char *name, const struct cache *caches, size_t n_caches,
                        const int32_t *prompt, int n_prompt, int n_tokens, bool same) {
    for (size_t i = 0; i < n_caches; i++) {
        struct pair p;
        int n_same;
        open_pair(&p, model, caches[i].kv, caches[i].tail);
        const double worst = compare(&p, prompt, n_prompt, n_tokens, &n_same);
        printf("%s, %s tail %d: %d of %d tokens the same, KL at most %.3g\n", name, caches[i].kv, caches[i].tail,
               n_same, n_tokens + 1, worst);
        CHECK(worst <= caches[i].most);
        if (same) CHECK(n_same == n_tokens + 1);
        CHECK(kvt_session_usage(p.session[CPU]).total_bytes == kvt_session_usage(p.session[GPU]).total_bytes);
        close_pair(&p);
    }
}

/* ---- batches, taps, what is kept ---------------------------------------------------------------------------------------- */

/* Two sessions of different lengths in one pass, against each alone on the processor. */
static void check_batch(struct kvt_model *model, const int32_t *ids, double most) {
    enum { N = 2, STEPS = 6 };
    static const int n_prompt[N] = {70, 20};
    const int n_vocab = kvt_model_info(model).n_vocab;
    struct kvt_runner *runner;
    struct kvt_session *together[N], *alone[N];
    const struct kvt_session_options there = options_of(GPU, "kivi4g32", 0), here = options_of(CPU, "kivi4g32", 0);
    MUST(kvt_runner_create(&runner, model, &there, N, &err));
    for (int i = 0; i < N; i++) {
        MUST(kvt_session_open(&together[i], runner, &err));
        MUST(kvt_session_create(&alone[i], model, &here, &err));
    }
    double worst = 0;
    for (int t = 0; t <= STEPS; t++) {
        struct kvt_feed feeds[N];
        for (int i = 0; i < N; i++) {
            const int at = t ? n_prompt[i] + t - 1 : 0, n = t ? 1 : n_prompt[i];
            feeds[i] = (struct kvt_feed){together[i], ids + at, n, 1};
            MUST(kvt_session_eval(alone[i], ids + at, n, 1, NULL, &err));
        }
        MUST(kvt_runner_eval(runner, feeds, N, &err));
        for (int i = 0; i < N; i++) {
            MUST(kvt_session_logits(together[i], 0, 1, logits[GPU], &err));
            MUST(kvt_session_logits(alone[i], 0, 1, logits[CPU], &err));
            worst = fmax(worst, divergence(logits[CPU], logits[GPU], n_vocab));
        }
    }
    printf("two sessions in a pass: KL at most %.3g\n", worst);
    CHECK(worst <= most);
    for (int i = 0; i < N; i++) {
        kvt_session_destroy(together[i]);
        kvt_session_destroy(alone[i]);
    }
    kvt_runner_destroy(runner);
}

/* What a tap saw of K, and how much of it. */
struct seen {
    float *k;
    size_t n, most;
    const struct kvt_model *model;
};

static enum kvt_status look(void *ctx, const struct kvt_layer_rows *rows, struct kvt_error *error) {
    struct seen *seen = ctx;
    const size_t n = (size_t)rows->n * (size_t)rows->k.row_stride;
    (void)error;
    if (seen->n + n <= seen->most) memcpy(seen->k + seen->n, rows->k.data, n * sizeof(float));
    seen->n += n;
    return KVT_OK;
}

static void check_tap(struct kvt_model *model, const int32_t *ids) {
    enum { N = 40, MOST = 1 << 18 };
    struct seen seen[2];
    for (int i = 0; i < 2; i++) {
        struct kvt_session *session;
        seen[i] = (struct seen){malloc(MOST * sizeof(float)), 0, MOST, model};
        struct kvt_session_options options = options_of(i, "f16", 0);
        options.tap = (struct kvt_tap){.look = look, .ctx = &seen[i]};
        MUST(kvt_session_create(&session, model, &options, &err));
        MUST(kvt_session_eval(session, ids, N, 1, NULL, &err));
        kvt_session_destroy(session);
    }
    double difference = 0, size = 0;
    CHECK(seen[CPU].n == seen[GPU].n && seen[CPU].n > 0);
    for (size_t i = 0; i < KVT_MIN(seen[CPU].n, (size_t)MOST); i++) {
        const double d = (double)seen[CPU].k[i] - (double)seen[GPU].k[i];
        difference += d * d;
        size += (double)seen[CPU].k[i] * (double)seen[CPU].k[i];
    }
    printf("keys that a tap sees: %.3g of their size\n", sqrt(difference / size));
    CHECK(sqrt(difference / size) < 4e-3);
    free(seen[CPU].k);
    free(seen[GPU].k);
}

/* Outputs that are kept elsewhere give their logits again. */
static void check_outputs(struct kvt_model *model, const int32_t *ids) {
    enum { N = 30, KEEP = 5 };
    struct kvt_session *session;
    const int n_vocab = kvt_model_info(model).n_vocab, width = kvt_model_info(model).width;
    const struct kvt_session_options options = options_of(GPU, "f16", 0);
    float *outputs = malloc((size_t)(KEEP * width) * sizeof *outputs), *all = malloc((size_t)(2 * KEEP * n_vocab) * 4);
    MUST(kvt_session_create(&session, model, &options, &err));
    MUST(kvt_session_eval(session, ids, N, KEEP, NULL, &err));
    MUST(kvt_session_logits(session, 0, KEEP, all, &err));
    MUST(kvt_session_outputs(session, 0, KEEP, outputs, &err));
    MUST(kvt_session_logits_of(session, outputs, KEEP, all + KEEP * n_vocab, &err));
    CHECK(memcmp(all, all + KEEP * n_vocab, (size_t)(KEEP * n_vocab) * sizeof *all) == 0);
    kvt_session_destroy(session);
    free(outputs);
    free(all);
}

/* ---- faults ------------------------------------------------------------------------------------------------------------- */

static void check_refusals(const struct kvt_model *model) {
    CHECK(kvt_model_place(model, (struct kvt_place){"cuda", 77}, NULL, NULL, NULL, &err) == KVT_ERR_ARG &&
          strstr(err.text, "77"));
    CHECK(kvt_model_place(model, (struct kvt_place){"tpu", 0}, NULL, NULL, NULL, &err) == KVT_ERR_ARG &&
          strstr(err.text, "known: cpu"));
    struct kvt_place_info info;
    MUST(kvt_model_place(model, (struct kvt_place){"cpu", 0}, NULL, NULL, &info, &err));
    CHECK(info.bytes == 0);
    MUST(kvt_model_place(model, (struct kvt_place){"cuda", 0}, NULL, NULL, &info, &err));
    printf("%s: %llu bytes of weights, %llu free\n", info.about, (unsigned long long)info.bytes,
           (unsigned long long)info.free_bytes);
    CHECK(info.bytes > 0 && info.free_bytes > 0);
}

#if defined(KVT_HOST_DEVICE)

static struct kvt_model *made_model(const char *name, const struct kvt_allocator *allocator) {
    char file[256];
    struct kvt_model *model;
    const struct kvt_model_options options = {.allocator = allocator};
    if (kvt_made_file(file, sizeof file, kvt_made_find(name)) != KVT_OK) exit(1);
    MUST(kvt_model_load(&model, file, &options, &err));
    remove(file);
    return model;
}

/* The device is lost at its n-th call after everything is open. True: the calls were too few for that. */
static bool lose_at(struct kvt_model *model, const int32_t *ids, int n) {
    struct kvt_session *session;
    const struct kvt_session_options options = options_of(GPU, "kivi4g32", 0);
    MUST(kvt_session_create(&session, model, &options, &err));
    MUST(kvt_session_eval(session, ids, 40, 1, NULL, &err));
    host_device.fail_at = n;
    enum kvt_status status = kvt_session_eval(session, ids + 40, 30, 2, NULL, &err);
    if (status == KVT_OK) status = kvt_session_logits(session, 0, 1, logits[GPU], &err);
    const bool through = status == KVT_OK;
    host_device.fail_at = 0;
    if (!through) {
        CHECK(status == KVT_ERR_DEVICE && strstr(err.text, "the cache is lost"));
        CHECK(kvt_session_n_rows(session) == 40 || kvt_session_n_rows(session) == 70);
        CHECK(memcmp(kvt_session_ids(session), ids, 40 * sizeof *ids) == 0);
        CHECK(kvt_session_eval(session, ids, 1, 1, NULL, &err) == KVT_ERR_DEVICE);
    }
    kvt_session_destroy(session);
    return through;
}

/* The process has no memory for the n-th thing that it takes, n = 1, 2, ... until all goes through. */
static void check_memory(struct kvt_model *model, struct kvt_alloc_counter *counter,
                         const struct kvt_allocator *allocator, const int32_t *ids) {
    const size_t live = atomic_load(&counter->live_blocks);
    const int n_live = host_device.n_live;
    enum kvt_status status = KVT_ERR_NOMEM;
    int n = 0;
    while (status == KVT_ERR_NOMEM && n < 1000) {
        struct kvt_session *session = NULL;
        struct kvt_session_options options = options_of(GPU, "kivi4g32", 0);
        options.allocator = allocator;
        atomic_store(&counter->fail_at, (size_t)++n);
        status = kvt_session_create(&session, model, &options, &err);
        if (status == KVT_OK) {
            status = kvt_session_eval(session, ids, 40, 1, NULL, &err);
            kvt_session_destroy(session);
        }
        atomic_store(&counter->fail_at, 0);
        CHECK(status == KVT_OK || status == KVT_ERR_NOMEM);
        CHECK(atomic_load(&counter->live_blocks) == live && host_device.n_live == n_live);
    }
    printf("out of memory at %d places\n", n - 1);
    CHECK(status == KVT_OK && n > 20);
}

static void check_faults(const int32_t *ids) {
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
    struct kvt_model *model = made_model("llama-biased", &allocator);
    const int n_before = host_device.n_live;
    host_device.most = host_device.live + 100000;
    CHECK(kvt_model_place(model, (struct kvt_place){"cuda", 0}, NULL, NULL, NULL, &err) == KVT_ERR_NOMEM);
    CHECK(strstr(err.text, "would fit") && strstr(err.text, "backend cpu"));
    CHECK(host_device.n_live == n_before);
    host_device.most = 0;
    MUST(kvt_model_place(model, (struct kvt_place){"cuda", 0}, NULL, NULL, NULL, &err));
    int n = 1;
    while (!lose_at(model, ids, n)) n += n < 40 ? 1 : 7;
    printf("lost at %d places\n", n);
    CHECK(n > 40);
    const struct kvt_session_options options = options_of(GPU, "mxfp4", 0);
    struct kvt_session *session;
    CHECK(kvt_session_create(&session, model, &options, &err) == KVT_ERR_UNSUPPORTED && strstr(err.text, "layer 0"));
    check_memory(model, &counter, &allocator, ids);
    kvt_model_destroy(model);
    CHECK(host_device.n_live == n_before);
    CHECK(atomic_load(&counter.live_bytes) == 0);
}

int main(void) {
    static const char *const names[] = {"llama-biased", "llama-q8_0",   "llama-yarn-all",
                                        "qwen2",        "qwen3-linear", "qwen3"};
    static const struct cache caches[] = {
        {"f16", 0, 1e-4}, {"kivi4g32", 0, 5e-2}, {"affine4g32", 0, 5e-2}, {"q8_0", 32, 2e-4}, {"turbo4,vu4", 96, 4e-3}};
    int32_t ids[MAX_PROMPT];
    kvt_made_ids(ids, MAX_PROMPT, 9);
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++) {
        struct kvt_model *model = made_model(names[i], NULL);
        host_device.no_blas = i % 2;
        check_model(model, names[i], caches, i ? 2 : KVT_ARRAY_LEN(caches), ids, 70, 2, false);
        if (i < 2) check_batch(model, ids, 4e-3);
        if (i < 2) check_tap(model, ids);
        if (i < 2) check_outputs(model, ids);
        if (i == 0) check_refusals(model);
        kvt_model_destroy(model);
        CHECK(host_device.n_live == 0);
    }
    check_faults(ids);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}

#else

#if !defined(KVT_ROOT)
#define KVT_ROOT "."
#endif

int main(int argc, char **argv) {
    static const char *const names[] = {"plain", "biased"};
    static const struct cache caches[] = {
        {"f16", 0, 1e-4}, {"kivi4g32", 0, 1e-2}, {"kivi8g32,affine8g32", 128, 1e-3}, {"affine4g64", 64, 1e-2}};
    char about[256];
    MUST(kvt_backend_about("cuda", about, sizeof about, &err));
    if (!strstr(about, "device 0")) {
        printf("skipped: %s\n", about);
        return 77;
    }
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++) {
        char path[1024];
        struct kvt_model *model;
        struct kvt_ids prompt;
        static const char text[] =
            "It was a dark night, and the ship lay still upon the water. The captain came on deck,";
        snprintf(path, sizeof path, "%s/%s.gguf", argc > 1 ? argv[1] : KVT_ROOT "/models", names[i]);
        MUST(kvt_model_load(&model, path, NULL, &err));
        kvt_ids_init(&prompt, NULL);
        for (int k = 0; k < 6; k++) /* long enough for groups, and for a batch */
            MUST(kvt_text_encode(kvt_model_text(model), text, sizeof text - 1, false, &prompt, &err));
        if (i == 0) check_refusals(model);
        check_model(model, names[i], caches, KVT_ARRAY_LEN(caches), prompt.data, 20, 64, true);
        check_model(model, names[i], caches, KVT_ARRAY_LEN(caches), prompt.data, (int)prompt.len, 16, false);
        check_batch(model, prompt.data, 1e-2);
        check_tap(model, prompt.data);
        check_outputs(model, prompt.data);
        kvt_ids_finish(&prompt);
        kvt_model_destroy(model);
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}

#endif
