/* SPDX-License-Identifier: Apache-2.0
 * Prompts that begin alike. */
#include "cli/prompt_cache.h"

#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "kvtile/snapshot.h"

enum kvt_status kvt_prompt_cache_open(struct kvt_prompt_cache *out, const char *path, bool read_only,
                                      struct kvt_error *err) {
    struct kvt_prompt_cache cache = {.path = path, .read_only = read_only};
    if (access(path, F_OK) == 0) {
        struct kvt_snapshot *snapshot = NULL;
        KVT_TRY(kvt_snapshot_open(&snapshot, path, NULL, err));
        cache.n_held = (int)KVT_MIN(kvt_snapshot_info(snapshot).n_rows, (int64_t)INT32_MAX);
        kvt_snapshot_close(snapshot);
    }
    *out = cache;
    return KVT_OK;
}

enum kvt_status kvt_prompt_cache_load(struct kvt_prompt_cache *cache, struct kvt_session *session, const int32_t *ids,
                                      int n, struct kvt_error *err) {
    if (cache->n_held > 0) KVT_TRY(kvt_session_load(session, cache->path, NULL, err));
    cache->covers =
        kvt_session_n_rows(session) >= n && memcmp(kvt_session_ids(session), ids, (size_t)n * sizeof *ids) == 0;
    return kvt_reuse_trim(&cache->reuse, session, ids, n, err);
}

enum kvt_status kvt_prompt_cache_save(const struct kvt_prompt_cache *cache, const struct kvt_session *session,
                                      struct kvt_error *err) {
    return cache->read_only || cache->covers ? KVT_OK : kvt_session_save(session, cache->path, NULL, 0, err);
}
