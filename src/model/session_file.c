/* SPDX-License-Identifier: Apache-2.0
 * A session as a snapshot whose blob has the tokens. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "kvtile/snapshot.h"
#include "model/runner.h"

#define MAGIC "KVTSESS" /* its NUL included */

enum { VERSION = 1, SAMPLE_BYTES = 256 };
static const size_t extra_max = (size_t)1 << 31;

/* The blob's bytes as they are: little-endian, no padding. */
struct head {
    char magic[8];
    uint32_t version, n_ids;
    uint64_t model, extra_bytes;
};
_Static_assert(sizeof(struct head) == 32, "a blob's head");

/* ---- which model ------------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t hash, const void *data, size_t bytes) {
    const uint64_t both[2] = {hash, kvt_hash(data, bytes)};
    return kvt_hash(both, sizeof both);
}

uint64_t kvt_model_fingerprint(const struct kvt_model *model) {
    const struct kvt_gguf *gguf = model->gguf;
    const uint64_t bytes = kvt_gguf_bytes(gguf);
    uint64_t hash = mix(0, &bytes, sizeof bytes);
    for (size_t i = 0; i < kvt_gguf_n_keys(gguf); i++) {
        const struct kvt_gguf_value *value = kvt_gguf_value(gguf, i);
        hash = mix(hash, kvt_gguf_key(gguf, i), strlen(kvt_gguf_key(gguf, i)));
        for (uint64_t k = 0; k < value->count; k++) {
            double x = 0;
            if (value->text)
                hash = mix(hash, value->text[k].data, value->text[k].len);
            else if (kvt_gguf_as_f64(value, k, &x))
                hash = mix(hash, &x, sizeof x);
        }
    }
    for (size_t i = 0; i < kvt_gguf_n_tensors(gguf); i++) {
        const struct kvt_gguf_tensor *tensor = kvt_gguf_tensor(gguf, i);
        hash = mix(hash, tensor->name, strlen(tensor->name));
        hash = mix(hash, &tensor->type->id, sizeof tensor->type->id);
        hash = mix(hash, tensor->dims, sizeof tensor->dims);
        hash = mix(hash, tensor->data, KVT_MIN(tensor->bytes, (size_t)SAMPLE_BYTES));
    }
    return hash;
}

/* ---- saving and loading ----------------------------------------------------------------------------------------------- */

enum kvt_status kvt_session_save(const struct kvt_session *s, const char *path, const void *extra, size_t extra_bytes,
                                 struct kvt_error *err) {
    const size_t n_ids = (size_t)kvt_session_n_rows(s);
    if (extra_bytes > extra_max)
        return kvt_fail(err, KVT_ERR_LIMIT, "%zu bytes beside a session; %zu fit", extra_bytes, extra_max);
    const struct head head = {MAGIC, VERSION, (uint32_t)n_ids, kvt_model_fingerprint(s->runner->model), extra_bytes};
    struct kvt_buf blob;
    kvt_buf_init(&blob, &s->runner->allocator, sizeof head + n_ids * sizeof *s->ids + extra_bytes);
    enum kvt_status status = kvt_buf_add(&blob, &head, sizeof head);
    if (status == KVT_OK) status = kvt_buf_add(&blob, s->ids, n_ids * sizeof *s->ids);
    if (status == KVT_OK && extra_bytes) status = kvt_buf_add(&blob, extra, extra_bytes);
    if (status == KVT_OK)
        status = kvt_seq_save(s->seq, path, blob.data, blob.len, err);
    else
        (void)kvt_fail(err, status, "no memory to save a session of %zu tokens", n_ids);
    kvt_buf_finish(&blob);
    return status;
}

/* The head of a snapshot's blob, checked against the snapshot. */
static enum kvt_status read_head(struct head *head, const struct kvt_snapshot_info *info, const char *path,
                                 struct kvt_error *err) {
    if (info->blob_bytes < sizeof *head || memcmp(info->blob, MAGIC, sizeof MAGIC) != 0)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s has a cache but no session: it does not name its tokens", path);
    memcpy(head, info->blob, sizeof *head);
    if (head->version != VERSION)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "%s has a session of version %" PRIu32 "; this program reads %d",
                        path, head->version, VERSION);
    const uint64_t bytes = sizeof *head + (uint64_t)head->n_ids * sizeof(int32_t);
    if ((int64_t)head->n_ids != info->n_rows || head->extra_bytes > extra_max ||
        bytes + head->extra_bytes != info->blob_bytes)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is damaged: it has %" PRIu32 " tokens for %" PRId64 " rows", path,
                        head->n_ids, info->n_rows);
    return KVT_OK;
}

static enum kvt_status check_head(const struct head *head, const struct kvt_session *s, const char *path,
                                  struct kvt_error *err) {
    const uint64_t model = kvt_model_fingerprint(s->runner->model);
    if (head->model != model)
        return kvt_fail(err, KVT_ERR_ARG, "%s was made with another model (%016" PRIx64 ", this one is %016" PRIx64 ")",
                        path, head->model, model);
    if (head->n_ids > (uint32_t)s->runner->n_ctx)
        return kvt_fail(err, KVT_ERR_LIMIT, "%s has %" PRIu32 " tokens, more than the context of %d", path, head->n_ids,
                        s->runner->n_ctx);
    return KVT_OK;
}

static enum kvt_status check_ids(const struct kvt_session *s, const int32_t *ids, int n, const char *path,
                                 struct kvt_error *err) {
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->runner->model->config.n_vocab)
            return kvt_fail(err, KVT_ERR_FORMAT, "%s is damaged: token %d is %d, outside the vocabulary", path, i,
                            ids[i]);
    return KVT_OK;
}

static enum kvt_status load(struct kvt_session *s, const char *path, const struct kvt_snapshot *snapshot,
                            struct kvt_buf *extra, struct kvt_error *err) {
    const struct kvt_snapshot_info info = kvt_snapshot_info(snapshot);
    struct head head;
    KVT_TRY(read_head(&head, &info, path, err));
    KVT_TRY(check_head(&head, s, path, err));
    const char *blob = info.blob;
    const int32_t *ids = (const int32_t *)(const void *)(blob + sizeof head); /* a blob is aligned to 64 */
    KVT_TRY(check_ids(s, ids, (int)head.n_ids, path, err));
    struct kvt_seq *seq = NULL;
    KVT_TRY(kvt_seq_load(&seq, s->runner->pool, snapshot, s->runner->n_ctx, err));
    if (extra) {
        const enum kvt_status status = kvt_buf_add(extra, ids + head.n_ids, head.extra_bytes);
        if (status != KVT_OK) {
            kvt_seq_destroy(seq);
            return kvt_fail(err, status, "no memory for what %s has beside its tokens", path);
        }
    }
    kvt_seq_destroy(s->seq);
    s->seq = seq;
    s->n_kept = 0;
    memcpy(s->ids, ids, head.n_ids * sizeof *ids);
    return KVT_OK;
}

enum kvt_status kvt_session_load(struct kvt_session *s, const char *path, struct kvt_buf *extra,
                                 struct kvt_error *err) {
    struct kvt_snapshot *snapshot = NULL;
    KVT_TRY(kvt_snapshot_open(&snapshot, path, &s->runner->allocator, err));
    const enum kvt_status status = load(s, path, snapshot, extra, err);
    kvt_snapshot_close(snapshot);
    return status;
}

enum kvt_status kvt_session_peek(struct kvt_session_info *out, const char *path, struct kvt_error *err) {
    struct kvt_snapshot *snapshot = NULL;
    struct head head;
    KVT_TRY(kvt_snapshot_open(&snapshot, path, NULL, err));
    const struct kvt_snapshot_info info = kvt_snapshot_info(snapshot);
    const enum kvt_status status = read_head(&head, &info, path, err);
    if (status == KVT_OK) {
        *out = (struct kvt_session_info){.n_layers = info.n_layers,
                                         .n_tokens = (int)head.n_ids,
                                         .model = head.model,
                                         .extra_bytes = head.extra_bytes,
                                         .bytes = info.bytes};
        snprintf(out->kv, sizeof out->kv, "%s", info.kv);
    }
    kvt_snapshot_close(snapshot);
    return status;
}
