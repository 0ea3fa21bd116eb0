/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper of prefixes: sessions that nobody uses now, in the runner's pool and in files, found again by their tokens. The scheduler's
 * thread only.
 *
 * A cache of encoded rows cannot be cut anywhere without decoding its frontier, which is not exact. So sessions are kept as they were
 * at chosen lengths (forks, which share pages), and a request begins with the longest that is a beginning of its prompt; where the
 * plan's trims are exact, with the longest beginning that any has.
 *
 * Prompts are cut into pieces at multiples of options->chunk. Rows that were computed so are, to the bit, those of any prompt that begins
 * with the same tokens. Rows of the rest of a prompt and of an answer come from products of other shapes and differ by rounding;
 * with options->exact they are not begun with.
 */
#ifndef SERVE_KEEPER_H
#define SERVE_KEEPER_H

#include "model/model.h"
#include "serve/prefix.h"
#include "serve/serve.h"

/* What is kept for a prefix: a session, a file, or both. */
struct kvt_kept_prefix {
    struct kvt_session *session;
    char *path; /* NULL: no file */
    uint64_t file_bytes;
    int n_exact; /* of its first tokens, in whole pieces of a prompt each: they have the bits that any prompt's would have */
    bool worth; /* of a file, even before anyone came back to it */
    int n_hits;
};

struct kvt_keeper {
    struct kvt_runner *runner;
    const struct kvt_serve_options *options;
    struct kvt_prefix prefixes;
    bool trims; /* any cut of a session is exact */
    char mark[24];
    int n_sessions, n_files;
    uint64_t file_bytes;
    uint64_t n_hits, n_misses, n_evicted; /* so far */
};

/* Finds the files of kv_dir that were made with this model and plan. */
KVT_MUST_CHECK enum kvt_status kvt_keeper_init(struct kvt_keeper *k, struct kvt_runner *runner,
                                               const struct kvt_model *model, const struct kvt_serve_options *options,
                                               struct kvt_error *err);
void kvt_keeper_finish(struct kvt_keeper *k);

/* What a request begins with. */
struct kvt_taken {
    struct kvt_session *session;
    int n_exact; /* as in struct kvt_kept_prefix, at most its rows */
    int n_common; /* tokens that the prompt has in common with a kept one, which may be more: a good place to keep a session */
};

/* A session for a prompt: with as many of its first tokens as are kept, at least one left out, or an empty one. */
KVT_MUST_CHECK enum kvt_status kvt_keeper_take(struct kvt_keeper *k, const int32_t *ids, int n, bool reuse,
                                               struct kvt_taken *out, struct kvt_error *err);
/* Keeps a session that is done; it is the keeper's from here on. */
void kvt_keeper_give(struct kvt_keeper *k, struct kvt_session *session, int n_exact);
/* Keeps one as it is now, while it goes on. */
void kvt_keeper_mark(struct kvt_keeper *k, const struct kvt_session *session, int n_exact, bool worth);
/* Gives back the pages of the session that was not used for longest; false: there is none. */
bool kvt_keeper_evict(struct kvt_keeper *k);
/* Writes the file of one session that is worth it and has none; false: there is none to write. */
bool kvt_keeper_save_one(struct kvt_keeper *k);

/* ---- files (disk.c) ---- */

void kvt_keeper_find_files(struct kvt_keeper *k);
/* Writes the session of a node; a failure is logged, and not tried again. */
void kvt_keeper_write(struct kvt_keeper *k, struct kvt_prefix_node *node);
/* Forgets the file, and removes it. */
void kvt_keeper_remove_file(struct kvt_keeper *k, struct kvt_kept_prefix *kept);
void kvt_keeper_log(const struct kvt_keeper *k, const char *format, ...) KVT_PRINTF(2, 3);

#endif
