/* SPDX-License-Identifier: Apache-2.0
 * What the measurement is made of. */
#ifndef FIDELITY_INSIDE_H
#define FIDELITY_INSIDE_H

#include "base/arena.h"
#include "fidelity/fidelity.h"

/* ---- plain attention over decoded rows -------------------------------------------------------------------------------- */

/* What is decoded from its codec; -1: of every layer, head, both sides. The rest stays in 16 bits, behind the same frontiers. */
struct kvt_part {
    int layer, head, side;
    bool inverted; /* all layers but that one */
};
static const struct kvt_part kvt_part_all = {-1, -1, -1, false};

/* Takes attention's place in a session: keeps every row twice, as it is in 16 bits and as its codec gives it back, and attends
 * in plain 32-bit arithmetic to what the plan's cache would show a query. */
struct kvt_plain;
KVT_MUST_CHECK enum kvt_status kvt_plain_create(struct kvt_plain **out, const struct kvt_plan *plan, int n_ctx,
                                                const struct kvt_part *part, const struct kvt_parallel *parallel,
                                                const struct kvt_allocator *allocator, struct kvt_error *err);
void kvt_plain_destroy(struct kvt_plain *plain);
struct kvt_tap kvt_plain_tap(struct kvt_plain *plain);

/* ---- one way of running a chunk --------------------------------------------------------------------------------------- */

/* A session and how tokens are fed to it. */
struct kvt_lane {
    struct kvt_session *session;
    struct kvt_plan *plan; /* the case's; the session of a plain lane has another */
    struct kvt_plain *plain;
    enum kvt_leg leg;
    int width;
};

struct kvt_lane_options {
    const struct kvt_fidelity_case *of;
    int n_ctx;
    int n_batch; /* of the prefill leg */
    bool beyond;
    struct kvt_place place;
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_allocator *allocator;
};

KVT_MUST_CHECK enum kvt_status kvt_lane_open(struct kvt_lane *out, const struct kvt_model *model,
                                             const struct kvt_lane_options *options, struct kvt_error *err);
void kvt_lane_close(struct kvt_lane *lane); /* harmless on a zeroed lane */
/* Feeds n tokens from position 0 on; outputs become what logits are made of, width floats a token. */
KVT_MUST_CHECK enum kvt_status kvt_lane_run(struct kvt_lane *lane, const int32_t *ids, int n, float *outputs,
                                            const struct kvt_progress *progress, struct kvt_error *err);

/* ---- the reference on disk -------------------------------------------------------------------------------------------- */

struct kvt_store;

struct kvt_store_key {
    const char *folder;
    const char *text;    /* whatever the outputs depend on, but for this program: lines */
    const char *program; /* which one: under 32 bytes */
    size_t chunk_bytes;  /* of the outputs of a chunk */
};

/* Opens the file of a key, whether there is one or not. Trouble of any kind (another version, a damaged file) is a sentence in
 * `trouble` and the file counts as absent. NULL: no memory. */
struct kvt_store *kvt_store_open(const struct kvt_store_key *key, char trouble[232],
                                 const struct kvt_allocator *allocator);
/* Copies chunk i, whose ids hash to `ids`, to outputs; false where it is not there. Chunks are asked for in order, and those that
 * are not there must be added before the next one. */
bool kvt_store_read(struct kvt_store *store, int chunk, uint64_t ids, float *outputs);
void kvt_store_add(struct kvt_store *store, int chunk, uint64_t ids, const float *outputs);
/* Puts a file with all chunks in place, if any was added. A failure is a sentence in `trouble` and leaves no file behind but the old
 * one. */
void kvt_store_close(struct kvt_store *store, char trouble[232]);

/* ---- figures ---------------------------------------------------------------------------------------------------------- */

/* Fills a row's figures from the scores of n_chunks chunks of n positions each. NOMEM. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_summarise(struct kvt_fidelity_row *row, const struct kvt_score *scores,
                                                      int n_chunks, int n, const struct kvt_allocator *allocator,
                                                      struct kvt_error *err);
double kvt_fidelity_ppl_ref(const struct kvt_score *scores, size_t n);

/* ---- the check at the start ------------------------------------------------------------------------------------------- */

/* Which layer is looked at after `layer`, where the pass through a layer and a look at it take so many seconds, of which so many are left:
 * the next one where there is time for all, or none for the pass to the end; else as many as can be, evenly, the last one too. */
int kvt_check_next(int layer, int n_layers, double left, double pass_seconds, double look_seconds);

#endif
