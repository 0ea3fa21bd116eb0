/* SPDX-License-Identifier: Apache-2.0
 * A prompt's cache in a file, for the next prompt that begins alike. The file is a session's (kvt_session_save). */
#ifndef CLI_PROMPT_CACHE_H
#define CLI_PROMPT_CACHE_H

#include "cli/reuse.h"

struct kvt_prompt_cache {
    const char *path;
    bool read_only;
    int n_held;  /* tokens of the file; 0: there is none yet */
    bool covers; /* it holds all of the prompt: nothing is to be saved */
    struct kvt_reuse reuse;
};

/* Looks at the file, if there is one. FORMAT, UNSUPPORTED or IO where it cannot be read. */
KVT_MUST_CHECK enum kvt_status kvt_prompt_cache_open(struct kvt_prompt_cache *out, const char *path, bool read_only,
                                                     struct kvt_error *err);
/* Puts what file and prompt have in common into the session, which is empty; feed it ids[reuse.n_kept ..). ARG where the file is of
 * another model or plan. */
KVT_MUST_CHECK enum kvt_status kvt_prompt_cache_load(struct kvt_prompt_cache *cache, struct kvt_session *session,
                                                     const int32_t *ids, int n, struct kvt_error *err);
/* Saves the session, which holds the prompt, unless the file covers it or is only to be read. */
KVT_MUST_CHECK enum kvt_status kvt_prompt_cache_save(const struct kvt_prompt_cache *cache,
                                                     const struct kvt_session *session, struct kvt_error *err);

#endif
