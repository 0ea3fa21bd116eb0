/* SPDX-License-Identifier: Apache-2.0
 * From logits to text. */
#include "serve/slot.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

enum { PIECE_MAX = 1 << 20 };

static size_t outputs_len(const struct kvt_slot_room *room) { return (size_t)KVT_SLOT_PICKS * (size_t)room->width; }
static size_t logits_len(const struct kvt_slot_room *room) { return (size_t)KVT_SLOT_PICKS * (size_t)room->n_vocab; }

enum kvt_status kvt_slot_room_init(struct kvt_slot_room *room, const struct kvt_model *model, struct kvt_error *err) {
    const struct kvt_model_info info = kvt_model_info(model);
    *room = (struct kvt_slot_room){
        .model = model, .text = kvt_model_text(model), .n_vocab = info.n_vocab, .width = info.width};
    kvt_buf_init(&room->piece, NULL, PIECE_MAX);
    kvt_buf_init(&room->whole, NULL, PIECE_MAX);
    kvt_buf_init(&room->clean, NULL, PIECE_MAX);
    room->outputs = kvt_take(&kvt_allocator_libc, outputs_len(room), sizeof *room->outputs);
    room->logits = kvt_take(&kvt_allocator_libc, logits_len(room), sizeof *room->logits);
    if (room->outputs && room->logits) return KVT_OK;
    return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the logits of %d tokens", room->n_vocab);
}

void kvt_slot_room_finish(struct kvt_slot_room *room) {
    kvt_give(&kvt_allocator_libc, room->logits, logits_len(room), sizeof *room->logits);
    kvt_give(&kvt_allocator_libc, room->outputs, outputs_len(room), sizeof *room->outputs);
    kvt_buf_finish(&room->clean);
    kvt_buf_finish(&room->whole);
    kvt_buf_finish(&room->piece);
}

/* Bytes of the well-formed character at p, 0 if there is none within n bytes (Unicode 15, table 3-7). */
static size_t char_len(const unsigned char *p, size_t n) {
    const unsigned char c = p[0];
    const size_t len = c < 0x80                ? 1
                       : c >= 0xC2 && c < 0xE0 ? 2
                       : c >= 0xE0 && c < 0xF0 ? 3
                       : c >= 0xF0 && c < 0xF5 ? 4
                                               : 0;
    if (len == 0 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F)) return 0;
    if ((c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F)) return 0;
    return len;
}

enum kvt_status kvt_add_well_formed(struct kvt_buf *out, const char *bytes, size_t n) {
    for (size_t i = 0; i < n;) {
        const size_t len = char_len((const unsigned char *)bytes + i, n - i);
        KVT_TRY(len ? kvt_buf_add(out, bytes + i, len) : kvt_buf_add(out, "\xEF\xBF\xBD", 3));
        i += len ? len : 1;
    }
    return KVT_OK;
}

/* What a token is worth beside all others, at temperature 1, and the likeliest ones. */
static void write_note(struct kvt_token_note *note, const float *logits, int n, int32_t id, int n_top) {
    double sum = 0, most = logits[0];
    for (int i = 1; i < n; i++) most = fmax(most, (double)logits[i]);
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    const double log_sum = most + log(sum);
    note->id = id;
    note->logprob = (float)((double)logits[id] - log_sum);
    note->n_top = 0;
    for (int i = 0; i < n && n_top > 0; i++) {
        const float logprob = (float)((double)logits[i] - log_sum);
        if (note->n_top == n_top && logprob <= note->top[n_top - 1].logprob) continue;
        int at = note->n_top < n_top ? note->n_top++ : n_top - 1;
        for (; at > 0 && note->top[at - 1].logprob < logprob; at--) note->top[at] = note->top[at - 1];
        note->top[at].id = i;
        note->top[at].logprob = logprob;
    }
}

/* The text of a token, and at the end of an answer what was held of a character that never became whole. */
static enum kvt_status decode(struct kvt_slot *slot, struct kvt_slot_room *room, int32_t id, bool last) {
    room->piece.len = room->whole.len = room->clean.len = 0;
    KVT_TRY(kvt_text_decode(room->text, id, false, &room->piece));
    KVT_TRY(kvt_utf8_feed(&slot->utf8, kvt_buf_text(&room->piece), room->piece.len, &room->whole));
    if (last) KVT_TRY(kvt_utf8_flush(&slot->utf8, &room->whole));
    return kvt_add_well_formed(&room->clean, kvt_buf_text(&room->whole), room->whole.len);
}

enum kvt_status kvt_slot_logits(struct kvt_slot *const *slots, int n, struct kvt_slot_room *room,
                                struct kvt_error *err) {
    if (n == 1) return kvt_session_logits(slots[0]->session, 0, 1, room->logits, err);
    for (int i = 0; i < n; i++)
        KVT_TRY(kvt_session_outputs(slots[i]->session, 0, 1, room->outputs + (ptrdiff_t)i * room->width, err));
    return kvt_session_logits_of(slots[0]->session, room->outputs, n, room->logits, err);
}

enum kvt_status kvt_slot_pick(struct kvt_slot *slot, const float *logits, struct kvt_slot_room *room,
                              const char **out_finish, struct kvt_error *err) {
    const struct kvt_ask *ask = &slot->request->ask;
    const int32_t id = kvt_sampler_pick(slot->sampler, logits);
    *out_finish = NULL;
    if (kvt_text_is_end(room->text, id) && !ask->ignores_end) {
        *out_finish = "stop";
        return KVT_OK;
    }
    slot->next = id;
    slot->n_generated++;
    const int n_rows = kvt_session_n_rows(slot->session);
    if (slot->n_generated >= ask->max_tokens || n_rows >= kvt_session_n_ctx(slot->session)) *out_finish = "length";

    struct kvt_token_note note;
    if (ask->logprobs) write_note(&note, logits, room->n_vocab, id, ask->n_top);
    bool stopped = false;
    enum kvt_status status = decode(slot, room, id, *out_finish != NULL);
    if (status == KVT_OK)
        status = kvt_request_add(slot->request, kvt_buf_text(&room->clean), room->clean.len,
                                 ask->logprobs ? &note : NULL, &stopped);
    if (stopped) *out_finish = "stop";
    return status == KVT_OK ? KVT_OK : kvt_fail(err, status, "no memory for the answer");
}
