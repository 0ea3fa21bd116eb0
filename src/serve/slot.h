/* SPDX-License-Identifier: Apache-2.0
 * One answer at work: its session, its sampler, what it says next. The scheduler's thread only. */
#ifndef SERVE_SLOT_H
#define SERVE_SLOT_H

#include "serve/keeper.h"
#include "serve/request.h"

struct kvt_slot {
    struct kvt_request *request; /* NULL: the slot is free */
    struct kvt_session *session;
    struct kvt_sampler *sampler;
    struct kvt_utf8_stream utf8;
    int n_prompt, n_cached;
    int n_exact;  /* as in struct kvt_taken */
    int n_common; /* tokens of the prompt that some kept prefix begins with */
    int n_generated;
    int32_t next;     /* picked and not yet fed; of use once the prompt is read */
    int n_fed;        /* of the pass at work */
    uint64_t reserve; /* bytes of cache that it may come to */
    uint64_t number;  /* of its coming */
};

/* So many slots get their logits by one product: the weights are read once for all of them. */
enum { KVT_SLOT_PICKS = 8 };

/* What all slots share. */
struct kvt_slot_room {
    const struct kvt_model *model;
    const struct kvt_text *text;
    float *outputs, *logits; /* of KVT_SLOT_PICKS tokens */
    int n_vocab, width;
    struct kvt_buf piece, whole, clean;
};

KVT_MUST_CHECK enum kvt_status kvt_slot_room_init(struct kvt_slot_room *room, const struct kvt_model *model,
                                                  struct kvt_error *err);
void kvt_slot_room_finish(struct kvt_slot_room *room);

/* The logits after the last tokens of n slots, at most KVT_SLOT_PICKS, into the room: to the bit those that each would get alone. */
KVT_MUST_CHECK enum kvt_status kvt_slot_logits(struct kvt_slot *const *slots, int n, struct kvt_slot_room *room,
                                               struct kvt_error *err);
/* Takes a token by logits and adds it to the answer. *out_finish: why the answer ends with it, or NULL. */
KVT_MUST_CHECK enum kvt_status kvt_slot_pick(struct kvt_slot *slot, const float *logits, struct kvt_slot_room *room,
                                             const char **out_finish, struct kvt_error *err);

/* Appends bytes as well-formed UTF-8: what is none becomes U+FFFD. */
KVT_MUST_CHECK enum kvt_status kvt_add_well_formed(struct kvt_buf *out, const char *bytes, size_t n);

#endif
