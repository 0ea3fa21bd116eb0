/* SPDX-License-Identifier: Apache-2.0
 * Prefixes that are kept, found and evicted. */
#include "serve/keeper.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"

enum {
    SESSIONS_MAX = 128,  /* beside its pages a session has 4 bytes a token of the context, and its table */
    FILE_TOKENS_MIN = 64 /* fewer are computed sooner than read */
};

void kvt_keeper_log(const struct kvt_keeper *k, const char *format, ...) {
    char line[600];
    if (!k->options->log.line) return;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    k->options->log.line(k->options->log.ctx, line);
}

/* ---- life ------------------------------------------------------------------------------------------------------------- */

static void give_kept(void *ctx, void *item) {
    struct kvt_keeper *k = ctx;
    struct kvt_kept_prefix *kept = item;
    if (kept->session) k->n_sessions--;
    kvt_session_destroy(kept->session);
    if (kept->path) {
        k->n_files--;
        k->file_bytes -= kept->file_bytes;
        kvt_give(&kvt_allocator_libc, kept->path, strlen(kept->path) + 1, 1);
    }
    kvt_give(&kvt_allocator_libc, kept, 1, sizeof *kept);
}

/* Whether a session can be cut anywhere with nothing decoded: rows that are stored as they came, or encoded one by one. */
static bool plan_trims(const struct kvt_plan *plan) {
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        const struct kvt_layer_plan *layer = kvt_plan_layer(plan, l);
        const bool plain =
            kvt_codec_info(layer->codec[KVT_SIDE_K]).plain && kvt_codec_info(layer->codec[KVT_SIDE_V]).plain;
        const bool row_by_row = layer->granularity == 1 && layer->tail == 0 && layer->start == 0;
        if (layer->window != 0 || (!plain && !row_by_row)) return false;
    }
    return true;
}

/* Names of files begin with what they were made with. */
static void set_mark(struct kvt_keeper *k, const struct kvt_model *model) {
    const struct kvt_plan *plan = kvt_runner_plan(k->runner);
    uint64_t hash = kvt_model_fingerprint(model) ^ kvt_hash(kvt_plan_kv(plan), strlen(kvt_plan_kv(plan)));
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        const struct kvt_layer_plan *p = kvt_plan_layer(plan, l);
        const uint64_t numbers[] = {hash, (uint64_t)p->sink, (uint64_t)p->tail, (uint64_t)p->start,
                                    (uint64_t)p->window};
        hash = kvt_hash(numbers, sizeof numbers);
    }
    snprintf(k->mark, sizeof k->mark, "%016" PRIx64 "-", hash);
}

/* The file that prompts may begin with. How it was cut into pieces is not known, so none of its rows count as exact. */
static enum kvt_status load_prompt_cache(struct kvt_keeper *k, struct kvt_error *err) {
    struct kvt_session *session = NULL;
    KVT_TRY(kvt_session_open(&session, k->runner, err));
    const enum kvt_status status = kvt_session_load(session, k->options->prompt_cache, NULL, err);
    if (status != KVT_OK) {
        kvt_session_destroy(session);
        return status;
    }
    kvt_keeper_log(k, "%d tokens of %s are kept", kvt_session_n_rows(session), k->options->prompt_cache);
    kvt_keeper_give(k, session, 0);
    return KVT_OK;
}

enum kvt_status kvt_keeper_init(struct kvt_keeper *k, struct kvt_runner *runner, const struct kvt_model *model,
                                const struct kvt_serve_options *options, struct kvt_error *err) {
    *k = (struct kvt_keeper){.runner = runner, .options = options};
    kvt_prefix_init(&k->prefixes, give_kept, k);
    k->trims = plan_trims(kvt_runner_plan(runner));
    set_mark(k, model);
    if (options->prompt_cache) KVT_TRY(load_prompt_cache(k, err));
    if (!options->kv_dir) return KVT_OK;
    /* Better to fail now than to lose what was meant to be kept. */
    char probe[4096];
    const int n = snprintf(probe, sizeof probe, "%s/%sprobe", options->kv_dir, k->mark);
    if (n < 0 || (size_t)n >= sizeof probe) return kvt_fail(err, KVT_ERR_ARG, "the name of --kv-dir is too long");
    KVT_TRY(kvt_file_probe(probe, err));
    kvt_keeper_find_files(k);
    return KVT_OK;
}

void kvt_keeper_finish(struct kvt_keeper *k) { kvt_prefix_finish(&k->prefixes); }

/* ---- finding ---------------------------------------------------------------------------------------------------------- */

/* Has the session of a kept prefix in memory; one whose file is no good is dropped. */
static bool wake(struct kvt_keeper *k, struct kvt_prefix_node *node) {
    struct kvt_kept_prefix *kept = node->item;
    struct kvt_error err = {0};
    if (kept->session) return true;
    struct kvt_session *session = NULL;
    enum kvt_status status = kvt_session_open(&session, k->runner, &err);
    if (status == KVT_OK) status = kvt_session_load(session, kept->path, NULL, &err);
    kvt_prefix_use(&k->prefixes, node); /* so that it does not evict itself, should memory be short */
    while (session && status == KVT_ERR_LIMIT && kvt_keeper_evict(k))
        status = kvt_session_load(session, kept->path, NULL, &err);
    if (status == KVT_OK) {
        kept->session = session;
        k->n_sessions++;
        return true;
    }
    kvt_session_destroy(session);
    kvt_keeper_log(k, "a kept prefix cannot be used: %s", err.text);
    if (status != KVT_ERR_LIMIT && status != KVT_ERR_NOMEM) {
        kvt_keeper_remove_file(k, kept);
        kvt_prefix_drop(&k->prefixes, node);
    }
    return false;
}

/* A fork of a kept session, cut to n tokens; NULL where that is not exact, or failed. */
static struct kvt_session *fork_of(struct kvt_keeper *k, struct kvt_prefix_node *node, int n, int *n_exact) {
    struct kvt_kept_prefix *kept = node->item;
    struct kvt_session *fork = NULL;
    bool exact = true;
    if (!kept->session && n < node->depth && !k->trims) return NULL;
    if (!wake(k, node)) return NULL;
    if (kvt_session_fork(&fork, kept->session, NULL) != KVT_OK) return NULL;
    if (n < node->depth && (kvt_session_trim(fork, n, &exact, NULL) != KVT_OK || !exact)) {
        kvt_session_destroy(fork);
        return NULL;
    }
    kept->n_hits++;
    kvt_prefix_use(&k->prefixes, node);
    *n_exact = KVT_MIN(kept->n_exact, n / k->options->chunk * k->options->chunk);
    return fork;
}

/* How many of the first n tokens of a kept prefix a request may begin with. */
static int allowed(const struct kvt_keeper *k, const struct kvt_prefix_node *node, int n) {
    const struct kvt_kept_prefix *kept = node->item;
    return k->options->exact ? KVT_MIN(n / k->options->chunk * k->options->chunk, kept->n_exact) : n;
}

/* The longest kept beginning of a prompt that may be begun with whole. */
static struct kvt_prefix_node *longest(const struct kvt_keeper *k, const int32_t *ids, int n) {
    struct kvt_prefix_node *node = kvt_prefix_longest(&k->prefixes, ids, n, n - 1);
    while (node && allowed(k, node, node->depth) < node->depth)
        node = kvt_prefix_longest(&k->prefixes, ids, n, node->depth - 1);
    return node;
}

static struct kvt_session *find(struct kvt_keeper *k, const int32_t *ids, int n, int common,
                                struct kvt_prefix_node *beyond, int *n_exact) {
    const struct kvt_prefix_node *whole = longest(k, ids, n);
    const int cut = beyond ? allowed(k, beyond, KVT_MIN(common, n - 1)) : 0; /* the last token's logits are wanted */
    struct kvt_session *session = NULL;
    if (cut > (whole ? whole->depth : 0)) session = fork_of(k, beyond, cut, n_exact);
    while (!session) { /* one whose file is no good is dropped: then the next */
        const int n_before = k->prefixes.n_items;
        struct kvt_prefix_node *node = longest(k, ids, n);
        if (!node) break;
        session = fork_of(k, node, node->depth, n_exact);
        if (!session && k->prefixes.n_items == n_before) break;
    }
    return session;
}

enum kvt_status kvt_keeper_take(struct kvt_keeper *k, const int32_t *ids, int n, bool reuse, struct kvt_taken *out,
                                struct kvt_error *err) {
    struct kvt_prefix_node *beyond = NULL;
    *out = (struct kvt_taken){.n_common = kvt_prefix_common(&k->prefixes, ids, n, &beyond)};
    if (reuse) {
        out->session = find(k, ids, n, out->n_common, beyond, &out->n_exact);
        *(out->session ? &k->n_hits : &k->n_misses) += 1;
    }
    return out->session ? KVT_OK : kvt_session_open(&out->session, k->runner, err);
}

/* ---- keeping ---------------------------------------------------------------------------------------------------------- */

static void keep(struct kvt_keeper *k, struct kvt_session *session, int n_exact, bool worth) {
    struct kvt_kept_prefix *kept = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *kept);
    if (kept) {
        *kept = (struct kvt_kept_prefix){.session = session, .n_exact = n_exact, .worth = worth};
        k->n_sessions++;
        if (kvt_prefix_put(&k->prefixes, kvt_session_ids(session), kvt_session_n_rows(session), kept) == KVT_OK) {
            while (k->n_sessions > SESSIONS_MAX && kvt_keeper_evict(k)) {
            }
            return;
        }
        k->n_sessions--;
        kvt_give(&kvt_allocator_libc, kept, 1, sizeof *kept);
    }
    kvt_session_destroy(session); /* memory is short: it is not kept */
}

void kvt_keeper_give(struct kvt_keeper *k, struct kvt_session *session, int n_exact) {
    const int n = kvt_session_n_rows(session);
    if (n == 0 || kvt_prefix_has(&k->prefixes, kvt_session_ids(session), n))
        kvt_session_destroy(session);
    else
        keep(k, session, n_exact, true);
}

void kvt_keeper_mark(struct kvt_keeper *k, const struct kvt_session *session, int n_exact, bool worth) {
    struct kvt_session *fork = NULL;
    if (kvt_prefix_has(&k->prefixes, kvt_session_ids(session), kvt_session_n_rows(session))) return;
    if (kvt_session_fork(&fork, session, NULL) == KVT_OK) keep(k, fork, n_exact, worth);
}

bool kvt_keeper_evict(struct kvt_keeper *k) {
    struct kvt_prefix_node *oldest = NULL;
    for (struct kvt_prefix_node *node = NULL; (node = kvt_prefix_next(&k->prefixes, node));)
        if (((struct kvt_kept_prefix *)node->item)->session && (!oldest || node->used < oldest->used)) oldest = node;
    if (!oldest) return false;
    struct kvt_kept_prefix *kept = oldest->item;
    k->n_evicted++;
    if (!kept->path) {
        kvt_prefix_drop(&k->prefixes, oldest);
        return true;
    }
    kvt_session_destroy(kept->session);
    kept->session = NULL;
    k->n_sessions--;
    return true;
}

bool kvt_keeper_save_one(struct kvt_keeper *k) {
    if (!k->options->kv_dir) return false;
    for (struct kvt_prefix_node *node = NULL; (node = kvt_prefix_next(&k->prefixes, node));) {
        const struct kvt_kept_prefix *kept = node->item;
        if (kept->path || !kept->session || node->depth < FILE_TOKENS_MIN) continue;
        if (!kept->worth && kept->n_hits == 0) continue;
        kvt_keeper_write(k, node);
        return true;
    }
    return false;
}
