/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of model: a model is the loaded weights, shared and immutable; a session is one timeline with its cache and logits,
 * and a runner is what its sessions share.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/buf.h"
#include "base/progress.h"
#include "kvtile/kvtile.h"
#include "text/text.h"

/* ---- model ------------------------------------------------------------------------------------------------------------ */

struct kvt_model;

struct kvt_model_options {
    const struct kvt_allocator *allocator; /* NULL: the C library */
    const struct kvt_progress *progress;   /* NULL: silent */
};

/* Maps a GGUF file and binds its tensors. UNSUPPORTED names an unknown architecture, weight type or tokenizer and lists the
 * known ones. options may be NULL. */
KVT_MUST_CHECK enum kvt_status kvt_model_load(struct kvt_model **out, const char *path,
                                              const struct kvt_model_options *options, struct kvt_error *err);
void kvt_model_destroy(struct kvt_model *model);

/* What a user wants to know. Strings live as long as the model. */
struct kvt_model_info {
    const char *name;  /* general.name, or the architecture */
    const char *arch;  /* "llama" */
    const char *types; /* "Q8_0" : the weight types by number of tensors, most first, comma between */
    uint64_t file_bytes;
    uint64_t n_params;
    int n_layers, width, n_q_heads, n_kv_heads, k_size, v_size, n_vocab, n_ctx_train;
    const char *chat_template; /* NULL: none. NUL-terminated copy */
};
struct kvt_model_info kvt_model_info(const struct kvt_model *model);
const struct kvt_text *kvt_model_text(const struct kvt_model *model);
/* The cache's shape; borrowed from the model. */
struct kvt_shape kvt_model_shape(const struct kvt_model *model);
const char *kvt_arch_names(void);      /* "llama, qwen2, qwen3" */
const char *kvt_model_blas_name(void); /* what multiplies large matrices: "OpenBLAS 0.3.21 ..." or "none" */

/* Where runners keep their caches and compute: a backend, and which of its devices. All zero is the processor. */
struct kvt_place {
    const char *backend; /* NULL: "cpu"; see kvt_backend_at */
    int device;          /* from 0 on */
};

/* Whether there is such a place: ARG for an unknown backend or device, UNSUPPORTED for one that the build lacks or has no code for, DEVICE
 * where there is no device. */
KVT_MUST_CHECK enum kvt_status kvt_place_check(struct kvt_place place, struct kvt_error *err);
/* Whether caches of a plan can be kept and read there: UNSUPPORTED names the layer. */
KVT_MUST_CHECK enum kvt_status kvt_place_takes(struct kvt_place place, const struct kvt_plan *plan,
                                               struct kvt_error *err);

struct kvt_place_info {
    uint64_t bytes;        /* of the weights on a device; 0: they are in the process */
    uint64_t free_bytes;   /* of the device, beside them */
    uint64_t packed_bytes; /* in the process: of the weights that it holds beside the file */
    char about[240];       /* "CUDA device 0 (NVIDIA H200)" */
};
/* Brings the weights to a place, unless they are there: to a device as f16, in the process in the order in which they are
 * multiplied. They stay as long as the model. A runner does it by itself: who calls this
 * before can show progress ("weights") and learn how much memory is left. What kvt_place_check gives, or NOMEM with what would fit.
 * parallel, progress and info may be NULL. */
KVT_MUST_CHECK enum kvt_status kvt_model_place(const struct kvt_model *model, struct kvt_place place,
                                               const struct kvt_parallel *parallel, const struct kvt_progress *progress,
                                               struct kvt_place_info *info, struct kvt_error *err);

/* ---- runner and session ----------------------------------------------------------------------------------------------- */

/* What one layer is about to give its cache for n tokens from `position` on: rows of all heads after RoPE, in f32. */
struct kvt_layer_rows {
    int layer, n, n_q_heads;
    int64_t position;
    float scale; /* of the scores */
    struct kvt_rows q, k, v;
};

/* Looks at them, layer by layer of each forward pass; a failure ends the pass and is the evaluation's. `attend`, where there is one,
 * is then asked in the cache's place what attention gives for all n rows: query head h of row r at
 * out + (r * n_q_heads + h) * v_size. */
struct kvt_tap {
    enum kvt_status (*look)(void *ctx, const struct kvt_layer_rows *rows,
                            struct kvt_error *err); /* NULL: nobody does */
    enum kvt_status (*attend)(void *ctx, const struct kvt_layer_rows *rows, float *out, struct kvt_error *err);
    void *ctx;
};

struct kvt_session_options {
    const char *kv;         /* NULL: "f16" */
    int sink, tail;         /* rows in 16 bits */
    int64_t start, rolling; /* as in kvt_plan_options, and so are: */
    bool hold_last, fallback;
    int n_ctx;   /* rows of a session at most; 0: the model's training context */
    bool beyond; /* n_ctx may be more than that */
    int n_batch; /* tokens of one forward pass at most; 0: 512. A longer eval is cut. Results do not depend on it but by rounding */
    int n_keep; /* tokens of one eval that can be kept for their logits, of width floats each; 0: n_ctx. 1 is enough to generate */
    struct kvt_place place;
    const char *level;                   /* NULL: "auto" */
    const struct kvt_parallel *parallel; /* copied; NULL: the calling thread */
    const struct kvt_allocator *allocator;
    uint64_t cache_byte_limit; /* 0: none */
    struct kvt_tap tap;
};

/* One pool of pages and the room of one forward pass, for any number of sessions. It and its sessions belong to one thread at a time;
 * the model may serve many runners at once. */
struct kvt_runner;

/* For at most max_feeds sessions in one pass. RANGE for an n_ctx past the model's training context. */
KVT_MUST_CHECK enum kvt_status kvt_runner_create(struct kvt_runner **out, const struct kvt_model *model,
                                                 const struct kvt_session_options *options, int max_feeds,
                                                 struct kvt_error *err);
void kvt_runner_destroy(struct kvt_runner *runner); /* after its sessions */

const struct kvt_plan *kvt_runner_plan(const struct kvt_runner *runner);
/* Of all pages, those that sessions share counted once: now, and the most so far. */
uint64_t kvt_runner_cache_bytes(const struct kvt_runner *runner);
uint64_t kvt_runner_peak_cache_bytes(const struct kvt_runner *runner);

/* A timeline of tokens with its cache, and the logits of its last evaluation. */
struct kvt_session;

/* An empty one in a runner. All memory but cache pages is taken here. */
KVT_MUST_CHECK enum kvt_status kvt_session_open(struct kvt_session **out, struct kvt_runner *runner,
                                                struct kvt_error *err);
/* The same tokens and rows in another session of the runner, without logits; pages are shared until one of the two writes. */
KVT_MUST_CHECK enum kvt_status kvt_session_fork(struct kvt_session **out, const struct kvt_session *session,
                                                struct kvt_error *err);
/* A session with a runner of its own. */
KVT_MUST_CHECK enum kvt_status kvt_session_create(struct kvt_session **out, const struct kvt_model *model,
                                                  const struct kvt_session_options *options, struct kvt_error *err);
void kvt_session_destroy(struct kvt_session *session);

/* Tokens for one session of a pass. */
struct kvt_feed {
    struct kvt_session *session;
    const int32_t *ids;
    int n, keep; /* n >= 1; the last `keep` are kept for their logits, none if 0 */
};

/* One forward pass over distinct sessions of the runner, together at most n_batch tokens and n_keep kept. Each gets the rows and
 * logits that it would get alone: on the backend cpu to the bit, on others up to rounding. Fails as a whole, without a token fed: ARG for wrong counts and ids outside the
 * vocabulary (and where there is a tap, for more than one feed), LIMIT where a context or the cache's limit is too small,
 * NOMEM. */
KVT_MUST_CHECK enum kvt_status kvt_runner_eval(struct kvt_runner *runner, const struct kvt_feed *feeds, int n_feeds,
                                               struct kvt_error *err);

/* Feeds n >= 1 tokens after those that are there. Afterwards kvt_session_logits gives the logits after any of the tokens of
 * this call's last `keep` ones (keep in [1, n], at most the options' n_keep). ARG for an id outside the vocabulary, LIMIT if
 * the context would overflow: nothing is fed. progress is reported before each batch and at the end ("prompt"); cancelled
 * before a batch: CANCELLED. After that, or where pages run out (NOMEM, LIMIT), the batches done stay, without logits. */
KVT_MUST_CHECK enum kvt_status kvt_session_eval(struct kvt_session *session, const int32_t *ids, int n, int keep,
                                                const struct kvt_progress *progress, struct kvt_error *err);

/* Logits after kept tokens [first, first + n), counted from the first kept one: dst[i * n_vocab + v]. They last until the next
 * evaluation of any session of the runner. */
KVT_MUST_CHECK enum kvt_status kvt_session_logits(struct kvt_session *session, int first, int n, float *dst,
                                                  struct kvt_error *err);

/* What logits are made of: the outputs of kept tokens [first, first + n), width floats each. Kept elsewhere, they give their logits
 * again, in any session of the same model (level and n_batch alike, in the process: the same bits). */
KVT_MUST_CHECK enum kvt_status kvt_session_outputs(const struct kvt_session *session, int first, int n, float *dst,
                                                   struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status kvt_session_logits_of(struct kvt_session *session, const float *outputs, int n,
                                                     float *dst, struct kvt_error *err);

int kvt_session_n_rows(const struct kvt_session *session);
int kvt_session_n_ctx(const struct kvt_session *session);
const int32_t *kvt_session_ids(const struct kvt_session *session); /* of its n_rows tokens, until it changes */
/* Cuts the timeline to its first n tokens; *out_exact as in kvt_seq_trim, may be NULL. */
KVT_MUST_CHECK enum kvt_status kvt_session_trim(struct kvt_session *session, int n, bool *out_exact,
                                                struct kvt_error *err);
void kvt_session_clear(struct kvt_session *session);

const struct kvt_plan *kvt_session_plan(const struct kvt_session *session);
struct kvt_usage kvt_session_usage(const struct kvt_session *session); /* all layers */
uint64_t kvt_session_peak_cache_bytes(const struct kvt_session *session);

/* ---- sessions in files ------------------------------------------------------------------------------------------------ */

/* Writes a session and up to 2^31 bytes of the caller's own as a snapshot (kvtile/snapshot.h) whose blob is
 *     "KVTSESS" NUL, u32 version 1, u32 number of tokens, u64 kvt_model_fingerprint, u64 bytes of the caller's, tokens, those
 * `path` is the old file or the whole new one, whatever happens. */
KVT_MUST_CHECK enum kvt_status kvt_session_save(const struct kvt_session *session, const char *path, const void *extra,
                                                size_t extra_bytes, struct kvt_error *err);
/* The session becomes that of the file, without logits, and goes on as the one that was saved; the caller's bytes are added to
 * extra (NULL: dropped). ARG where the file is of another model or plan, FORMAT where it is no session or damaged, LIMIT where it has
 * more tokens than n_ctx. After a failure the session is as it was. */
KVT_MUST_CHECK enum kvt_status kvt_session_load(struct kvt_session *session, const char *path, struct kvt_buf *extra,
                                                struct kvt_error *err);

/* What a file of kvt_session_save is of. */
struct kvt_session_info {
    char kv[96]; /* the plan's string, cut where it is longer */
    int n_layers, n_tokens;
    uint64_t model; /* its kvt_model_fingerprint */
    uint64_t extra_bytes, bytes;
};
KVT_MUST_CHECK enum kvt_status kvt_session_peek(struct kvt_session_info *out, const char *path, struct kvt_error *err);

/* The session's rows as a prompt cache of mlx-lm (kvtile/convert.h), the elements of keys in the order in which mlx-lm has them for models
 * of this architecture, or as_in_gguf; and back, for the n tokens that the file's rows are said to be of: ARG if they are more or fewer. */
KVT_MUST_CHECK enum kvt_status kvt_session_export(const struct kvt_session *session, const char *path,
                                                  enum kvt_mlx_layout layout, bool as_in_gguf,
                                                  const struct kvt_mlx_entry *entries, int n_entries,
                                                  struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status kvt_session_import(struct kvt_session *session, const struct kvt_mlx_cache *cache,
                                                  bool as_in_gguf, const int32_t *ids, int n, struct kvt_error *err);
/* Rows and tokens of a session, decoded, become those of another runner's session with another cache. RANGE where a window has dropped
 * some; after a failure `to` is empty. */
KVT_MUST_CHECK enum kvt_status kvt_session_copy(struct kvt_session *to, const struct kvt_session *from,
                                                struct kvt_error *err);

/* Tells models apart without reading all of their weights: XXH3 of the file's size, its metadata, and of each tensor its name, type,
 * shape and first bytes. */
uint64_t kvt_model_fingerprint(const struct kvt_model *model);

/* ---- sampling --------------------------------------------------------------------------------------------------------- */

struct kvt_sample_options {
    float temp;  /* 0: greedy */
    int top_k;   /* 0: off */
    float top_p; /* 1: off */
    float min_p; /* 0: off */
    uint64_t seed;
};

struct kvt_sampler;
/* ARG for a number out of its range. */
KVT_MUST_CHECK enum kvt_status kvt_sampler_create(struct kvt_sampler **out, const struct kvt_sample_options *options,
                                                  int n_vocab, const struct kvt_allocator *allocator,
                                                  struct kvt_error *err);
void kvt_sampler_destroy(struct kvt_sampler *sampler);
/* Picks a token; greedy takes the first of equal logits. The same options and logits give the same tokens. In the order
 * that llama.cpp has them: the top_k largest logits; of those the fewest largest whose probability at temperature 1 reaches
 * top_p; of those the ones at least min_p times as probable as the first; the logits divided by temp; one draw. Of equal
 * logits smaller ids come first. NaN counts as the least. */
int kvt_sampler_pick(struct kvt_sampler *sampler, const float *logits);
/* What of it changes from pick to pick: with the state set to one that it gave before, the same picks follow as then. */
uint64_t kvt_sampler_state(const struct kvt_sampler *sampler);
void kvt_sampler_set_state(struct kvt_sampler *sampler, uint64_t state);

#endif
