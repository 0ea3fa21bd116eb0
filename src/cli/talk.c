/* SPDX-License-Identifier: Apache-2.0
 * Conversations: messages, their tokens, and which of them a session holds already. */
#include "cli/talk.h"

#include <string.h>

#include "base/check.h"

enum { TALK_MAX = 1 << 28, SYSTEM_MAX = 1 << 24, PARTS_MAX = 1 << 26, FILE_MAX = 1 << 30, VERSION = 1 };

/* A stretch of the session's tokens whose text is known: written by the template with what a user said, or by the model. */
struct part {
    uint32_t n_ids, n_bytes, is_model;
};

void kvt_talk_init(struct kvt_talk *talk, const struct kvt_model *model, struct kvt_session *session,
                   const struct kvt_chat_template *family, const char *source) {
    *talk = (struct kvt_talk){
        .text = kvt_model_text(model), .session = session, .family = family, .source = source, .exact = true};
    kvt_buf_init(&talk->system, NULL, SYSTEM_MAX);
    kvt_buf_init(&talk->said, NULL, TALK_MAX);
    kvt_buf_init(&talk->written, NULL, TALK_MAX);
    kvt_buf_init(&talk->parts, NULL, PARTS_MAX);
    kvt_chat_text_init(&talk->chat, NULL, TALK_MAX);
    kvt_ids_init(&talk->ids, NULL);
}

void kvt_talk_finish(struct kvt_talk *talk) {
    kvt_ids_finish(&talk->ids);
    kvt_chat_text_finish(&talk->chat);
    kvt_buf_finish(&talk->parts);
    kvt_buf_finish(&talk->written);
    kvt_buf_finish(&talk->said);
    kvt_buf_finish(&talk->system);
}

static enum kvt_status no_memory(struct kvt_error *err, enum kvt_status status) {
    if (status == KVT_ERR_NOMEM) kvt_fail(err, status, "out of memory for the conversation");
    if (status == KVT_ERR_LIMIT) kvt_fail(err, status, "the conversation is longer than %d bytes", TALK_MAX);
    return status;
}

/* ---- messages --------------------------------------------------------------------------------------------------------- */

static enum kvt_status check_message(const char *text, size_t len, struct kvt_error *err) {
    return len && memchr(text, 0, len) ? kvt_fail(err, KVT_ERR_ARG, "a message cannot hold a zero byte") : KVT_OK;
}

enum kvt_status kvt_talk_set_system(struct kvt_talk *talk, const char *text, size_t len, struct kvt_error *err) {
    KVT_TRY(check_message(text, len, err));
    if (len > SYSTEM_MAX) return kvt_fail(err, KVT_ERR_LIMIT, "the system message is longer than %d bytes", SYSTEM_MAX);
    talk->system.len = 0;
    return no_memory(err, kvt_buf_add(&talk->system, text, len));
}

enum kvt_status kvt_talk_say(struct kvt_talk *talk, const char *text, size_t len, struct kvt_error *err) {
    const size_t before = talk->said.len;
    KVT_TRY(check_message(text, len, err));
    enum kvt_status status = kvt_buf_add(&talk->said, text, len);
    if (status == KVT_OK) status = kvt_buf_add(&talk->said, "", 1);
    if (status == KVT_OK)
        talk->n_messages++;
    else
        talk->said.len = before;
    return no_memory(err, status);
}

/* Where the last message begins. */
static size_t last_start(const struct kvt_talk *talk) {
    size_t at = talk->said.len - 1;
    while (at > 0 && talk->said.data[at - 1]) at--;
    return at;
}

void kvt_talk_drop(struct kvt_talk *talk) {
    if (talk->n_messages == 0) return;
    talk->said.len = last_start(talk);
    talk->n_messages--;
}

const char *kvt_talk_last(const struct kvt_talk *talk) {
    return talk->n_messages ? talk->said.data + last_start(talk) : NULL;
}

void kvt_talk_clear(struct kvt_talk *talk) {
    talk->said.len = talk->written.len = talk->parts.len = 0;
    talk->n_messages = 0;
    talk->exact = true;
    kvt_session_clear(talk->session);
}

/* ---- tokens ----------------------------------------------------------------------------------------------------------- */

static int n_parts(const struct kvt_talk *talk) { return (int)(talk->parts.len / sizeof(struct part)); }
static struct part *part_at(const struct kvt_talk *talk, int i) {
    return (struct part *)(void *)talk->parts.data + i; /* aligned as all memory is */
}

static void cut_parts(struct kvt_talk *talk, int n) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += part_at(talk, i)->n_bytes;
    talk->written.len = bytes;
    talk->parts.len = (size_t)n * sizeof(struct part);
}

/* Forgets parts that the session does not hold whole. */
static void fit_parts(struct kvt_talk *talk) {
    const uint64_t n_rows = (uint64_t)kvt_session_n_rows(talk->session);
    uint64_t n_ids = 0;
    int n = 0;
    while (n < n_parts(talk) && n_ids + part_at(talk, n)->n_ids <= n_rows) n_ids += part_at(talk, n++)->n_ids;
    cut_parts(talk, n);
}

static enum kvt_status add_part(struct kvt_talk *talk, struct part part, const char *text) {
    const size_t before = talk->written.len;
    KVT_TRY(kvt_buf_add(&talk->written, text, part.n_bytes));
    const enum kvt_status status = kvt_buf_add(&talk->parts, &part, sizeof part);
    if (status != KVT_OK) talk->written.len = before;
    return status;
}

static enum kvt_status write_chat(struct kvt_talk *talk, struct kvt_error *err) {
    const size_t room = (size_t)talk->n_messages + 1;
    struct kvt_chat_message *messages = kvt_take(&kvt_allocator_libc, room, sizeof *messages);
    if (!messages) return no_memory(err, KVT_ERR_NOMEM);
    int n = 0;
    if (talk->system.len) messages[n++] = (struct kvt_chat_message){"system", kvt_buf_text(&talk->system)};
    const char *said = talk->said.data;
    for (int i = 0; i < talk->n_messages; i++, said += strlen(said) + 1)
        messages[n++] = (struct kvt_chat_message){i % 2 ? "assistant" : "user", said};
    const enum kvt_status status = kvt_chat_write(talk->family, talk->source, messages, n, true, &talk->chat, err);
    kvt_give(&kvt_allocator_libc, messages, room, sizeof *messages);
    return status;
}

/* Adds the tokens of the conversation's bytes [from, end). */
static enum kvt_status encode(struct kvt_talk *talk, size_t from, size_t end, struct kvt_error *err) {
    const struct kvt_text_mixed mixed = {.data = kvt_buf_text(&talk->chat.text),
                                         .len = end,
                                         .plain = talk->chat.contents,
                                         .n_plain = talk->chat.n_contents,
                                         .from = from,
                                         .after = talk->ids.len ? talk->ids.data[talk->ids.len - 1] : -1};
    if (talk->ids.len == 0) {
        const int bos = kvt_chat_bos(talk->text, talk->family, talk->source);
        if (bos >= 0) KVT_TRY(no_memory(err, kvt_ids_add(&talk->ids, bos)));
    }
    return kvt_text_encode_mixed(talk->text, &mixed, &talk->ids, err);
}

/* Adds the tokens of a part that the session holds from `at` on, if they are still those of the conversation's bytes from `from` on. */
static enum kvt_status keep_part(bool *kept, struct kvt_talk *talk, const struct part *part, size_t at, size_t from,
                                 const char *written, struct kvt_error *err) {
    const struct kvt_buf *chat = &talk->chat.text;
    const int32_t *held = kvt_session_ids(talk->session) + at;
    const size_t before = talk->ids.len;
    *kept = part->n_bytes <= chat->len - from && memcmp(kvt_buf_text(chat) + from, written, part->n_bytes) == 0;
    if (!*kept) return KVT_OK;
    if (part->is_model) {
        for (uint32_t i = 0; i < part->n_ids; i++) KVT_TRY(no_memory(err, kvt_ids_add(&talk->ids, held[i])));
        return KVT_OK;
    }
    KVT_TRY(encode(talk, from, from + part->n_bytes, err));
    *kept =
        talk->ids.len - before == part->n_ids && memcmp(talk->ids.data + before, held, part->n_ids * sizeof *held) == 0;
    if (!*kept) talk->ids.len = before;
    return KVT_OK;
}

enum kvt_status kvt_talk_prepare(struct kvt_talk *talk, struct kvt_error *err) {
    KVT_TRY(write_chat(talk, err));
    fit_parts(talk);
    talk->ids.len = 0;
    size_t at = 0, from = 0;
    int n = 0;
    for (bool kept = true; n < n_parts(talk); n++) {
        const struct part *part = part_at(talk, n);
        KVT_TRY(keep_part(&kept, talk, part, at, from, talk->written.data + from, err));
        if (!kept) break;
        at += part->n_ids;
        from += part->n_bytes;
    }
    talk->n_kept_parts = n;
    talk->n_kept_bytes = from;
    return encode(talk, from, talk->chat.text.len, err);
}

enum kvt_status kvt_talk_feed(struct kvt_talk *talk, const struct kvt_progress *progress, struct kvt_error *err) {
    size_t n_kept_ids = 0;
    const int n = (int)talk->ids.len;
    KVT_TRY(kvt_reuse_trim(&talk->reuse, talk->session, talk->ids.data, n, err));
    talk->exact = talk->exact && talk->reuse.exact;
    cut_parts(talk, talk->n_kept_parts);
    for (int i = 0; i < talk->n_kept_parts; i++) n_kept_ids += part_at(talk, i)->n_ids;
    const struct part part = {.n_ids = (uint32_t)(talk->ids.len - n_kept_ids),
                              .n_bytes = (uint32_t)(talk->chat.text.len - talk->n_kept_bytes)};
    enum kvt_status status =
        part.n_ids ? no_memory(err, add_part(talk, part, talk->chat.text.data + talk->n_kept_bytes)) : KVT_OK;
    const int kept = talk->reuse.n_kept;
    if (status == KVT_OK) status = kvt_session_eval(talk->session, talk->ids.data + kept, n - kept, 1, progress, err);
    if (status != KVT_OK) fit_parts(talk);
    return status;
}

/* ---- answers ---------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_talk_hear(struct kvt_talk *talk, const char *piece, size_t len, struct kvt_error *err) {
    KVT_ASSERT(talk->n_messages > 0);
    talk->said.len--;
    enum kvt_status status = KVT_OK;
    for (size_t i = 0; i < len && status == KVT_OK; i++) /* a zero byte would end the message */
        if (piece[i]) status = kvt_buf_add(&talk->said, piece + i, 1);
    if (status == KVT_OK) status = kvt_buf_add(&talk->said, "", 1);
    if (status != KVT_OK) talk->said.data[talk->said.len++] = 0; /* there was room for one */
    return no_memory(err, status);
}

enum kvt_status kvt_talk_feed_token(struct kvt_talk *talk, int32_t id, const char *piece, size_t len,
                                    struct kvt_error *err) {
    KVT_TRY(kvt_session_eval(talk->session, &id, 1, 1, NULL, err));
    const struct part *last = n_parts(talk) ? part_at(talk, n_parts(talk) - 1) : NULL;
    if (!last || !last->is_model) KVT_TRY(no_memory(err, add_part(talk, (struct part){.is_model = 1}, "")));
    struct part *part = part_at(talk, n_parts(talk) - 1);
    const size_t before = talk->written.len;
    for (size_t i = 0; i < len; i++)
        if (piece[i]) KVT_TRY(no_memory(err, kvt_buf_add(&talk->written, piece + i, 1)));
    part->n_bytes += (uint32_t)(talk->written.len - before);
    part->n_ids++;
    return KVT_OK;
}

/* ---- as bytes --------------------------------------------------------------------------------------------------------- */

#define MAGIC "KVTTALK" /* its NUL included */

struct head { /* the bytes as they are: little-endian, no padding */
    char magic[8];
    uint32_t version, n_messages;
    uint64_t sampler;
    uint32_t exact, zero;
    uint64_t system_bytes, said_bytes, written_bytes, parts_bytes;
};
_Static_assert(sizeof(struct head) == 64, "a conversation's head");

static enum kvt_status write_bytes(const struct kvt_talk *talk, uint64_t sampler, struct kvt_buf *out) {
    const struct kvt_buf *const bufs[] = {&talk->system, &talk->said, &talk->written, &talk->parts};
    const struct head head = {.magic = MAGIC,
                              .version = VERSION,
                              .n_messages = (uint32_t)talk->n_messages,
                              .sampler = sampler,
                              .exact = talk->exact,
                              .system_bytes = talk->system.len,
                              .said_bytes = talk->said.len,
                              .written_bytes = talk->written.len,
                              .parts_bytes = talk->parts.len};
    KVT_TRY(kvt_buf_add(out, &head, sizeof head));
    for (size_t i = 0; i < KVT_ARRAY_LEN(bufs); i++) KVT_TRY(kvt_buf_add(out, kvt_buf_text(bufs[i]), bufs[i]->len));
    return KVT_OK;
}

enum kvt_status kvt_talk_save(const struct kvt_talk *talk, uint64_t sampler, const char *path, struct kvt_error *err) {
    struct kvt_buf bytes;
    kvt_buf_init(&bytes, NULL, FILE_MAX);
    enum kvt_status status = no_memory(err, write_bytes(talk, sampler, &bytes));
    if (status == KVT_OK) status = kvt_session_save(talk->session, path, bytes.data, bytes.len, err);
    kvt_buf_finish(&bytes);
    return status;
}

static bool is_sound(const struct head *head, const struct kvt_talk *read, uint64_t n_rows) {
    uint64_t n_ids = 0, n_bytes = 0, n_ends = 0;
    const struct kvt_buf *said = &read->said;
    if (read->parts.len % sizeof(struct part) || memchr(kvt_buf_text(&read->system), 0, read->system.len)) return false;
    for (int i = 0; i < n_parts(read); i++) {
        n_ids += part_at(read, i)->n_ids;
        n_bytes += part_at(read, i)->n_bytes;
    }
    for (size_t i = 0; i < said->len; i++) n_ends += said->data[i] == 0;
    return n_ids <= n_rows && n_bytes == read->written.len && n_ends == head->n_messages &&
           (said->len == 0 || said->data[said->len - 1] == 0);
}

/* Fills the buffers of `read`, which are empty. */
static enum kvt_status read_parts(struct kvt_talk *read, const struct head *head, const struct kvt_buf *in,
                                  const char *path, struct kvt_error *err) {
    struct kvt_buf *const bufs[] = {&read->system, &read->said, &read->written, &read->parts};
    const uint64_t bytes[] = {head->system_bytes, head->said_bytes, head->written_bytes, head->parts_bytes};
    size_t at = sizeof *head;
    for (size_t i = 0; i < KVT_ARRAY_LEN(bufs); i++) {
        if (bytes[i] > in->len - at) return kvt_fail(err, KVT_ERR_FORMAT, "%s has a conversation that is cut", path);
        KVT_TRY(no_memory(err, kvt_buf_add(bufs[i], in->data + at, (size_t)bytes[i])));
        at += (size_t)bytes[i];
    }
    if (at != in->len || !is_sound(head, read, (uint64_t)kvt_session_n_rows(read->session)))
        return kvt_fail(err, KVT_ERR_FORMAT, "%s has a damaged conversation: its parts contradict each other", path);
    return KVT_OK;
}

static void swap(struct kvt_buf *a, struct kvt_buf *b) {
    const struct kvt_buf kept = *a;
    *a = *b;
    *b = kept;
}

static enum kvt_status read_bytes(struct kvt_talk *talk, uint64_t *sampler, const struct kvt_buf *in, const char *path,
                                  struct kvt_error *err) {
    struct head head;
    if (in->len < sizeof head || memcmp(in->data, MAGIC, sizeof MAGIC) != 0)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s has a cache but no conversation", path);
    memcpy(&head, in->data, sizeof head);
    if (head.version != VERSION)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "%s has a conversation of version %u; this program reads %d", path,
                        (unsigned)head.version, VERSION);
    struct kvt_talk read = {.session = talk->session};
    kvt_buf_init(&read.system, NULL, SYSTEM_MAX);
    kvt_buf_init(&read.said, NULL, TALK_MAX);
    kvt_buf_init(&read.written, NULL, TALK_MAX);
    kvt_buf_init(&read.parts, NULL, PARTS_MAX);
    const enum kvt_status status = read_parts(&read, &head, in, path, err);
    if (status == KVT_OK) {
        swap(&talk->system, &read.system);
        swap(&talk->said, &read.said);
        swap(&talk->written, &read.written);
        swap(&talk->parts, &read.parts);
        talk->n_messages = (int)head.n_messages;
        talk->exact = head.exact != 0;
        *sampler = head.sampler;
    }
    kvt_buf_finish(&read.system);
    kvt_buf_finish(&read.said);
    kvt_buf_finish(&read.written);
    kvt_buf_finish(&read.parts);
    return status;
}

enum kvt_status kvt_talk_load(struct kvt_talk *talk, uint64_t *sampler, const char *path, struct kvt_error *err) {
    struct kvt_buf bytes;
    kvt_buf_init(&bytes, NULL, FILE_MAX);
    enum kvt_status status = kvt_session_load(talk->session, path, &bytes, err);
    if (status == KVT_OK) {
        status = read_bytes(talk, sampler, &bytes, path, err);
        if (status != KVT_OK) cut_parts(talk, 0); /* they were the other session's */
    }
    kvt_buf_finish(&bytes);
    return status;
}
