/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing conversations as the templates would.
 */
#include "text/chat.h"

#include <string.h>

#include "base/check.h"
#include "text/utf8.h"
#include "text/vocab.h"

/* ---- finding ----------------------------------------------------------------------------------------------------------- */

const struct kvt_chat_template *kvt_chat_find(const char *name) {
    for (int i = 0; kvt_chat_row(i); i++)
        if (strcmp(kvt_chat_row(i)->name, name) == 0) return kvt_chat_row(i);
    return NULL;
}

const char *kvt_chat_name(const struct kvt_chat_template *family) { return family->name; }

static bool suits(const struct kvt_chat_template *row, const char *plain) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(row->pieces) && row->pieces[i]; i++)
        if (!strstr(plain, row->pieces[i])) return false;
    for (size_t i = 0; i < KVT_ARRAY_LEN(row->without) && row->without[i]; i++)
        if (strstr(plain, row->without[i])) return false;
    return true;
}

const struct kvt_chat_template *kvt_chat_detect(const char *source, size_t len) {
    const struct kvt_chat_template *found = NULL;
    struct kvt_buf plain;
    kvt_buf_init(&plain, NULL, len * 2);
    if (kvt_chat_plain_form(&plain, source, len) == KVT_OK)
        for (int i = 0; !found && kvt_chat_row(i); i++)
            if (suits(kvt_chat_row(i), kvt_buf_text(&plain))) found = kvt_chat_row(i);
    kvt_buf_finish(&plain);
    return found;
}

bool kvt_chat_begins_with_bos(const struct kvt_chat_template *family, const char *source) {
    return source ? strstr(source, "bos_token") || (family->bos && strstr(source, family->bos)) : family->bos != NULL;
}

/* ---- contents ---------------------------------------------------------------------------------------------------------- */

static bool is_blank(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Without what Python's strip takes away. */
static struct kvt_text_piece trim(struct kvt_text_piece t) {
    for (;;) {
        const int n = kvt_utf8_char_len(t.data, t.len);
        if (n == 0 || !is_blank(kvt_utf8_code(t.data, n))) break;
        t.data += n;
        t.len -= (size_t)n;
    }
    for (bool more = true; more;) {
        more = false;
        for (size_t n = 1; n <= 3 && n <= t.len && !more; n++) {
            const char *last = t.data + t.len - n;
            more = kvt_utf8_char_len(last, n) == (int)n && is_blank(kvt_utf8_code(last, (int)n));
            if (more) t.len -= n;
        }
    }
    return t;
}

static struct kvt_text_piece trim_lines(struct kvt_text_piece t) {
    while (t.len && t.data[0] == '\n') t.data++, t.len--;
    while (t.len && t.data[t.len - 1] == '\n') t.len--;
    return t;
}

static struct kvt_text_piece piece(const char *text) { return (struct kvt_text_piece){text, strlen(text)}; }

static enum kvt_status add(struct kvt_buf *out, const char *text) { return kvt_buf_add(out, text, strlen(text)); }

/* ---- conversations ----------------------------------------------------------------------------------------------------- */

struct chat {
    const struct kvt_chat_template *row;
    unsigned rules;
    const char *plain; /* the source in plain form, or NULL */
    const struct kvt_chat_message *messages;
    int n;
    int first;          /* of the messages that are turns */
    const char *system; /* written apart from the turns, or NULL */
    struct kvt_buf *out;
    struct kvt_chat_text *text; /* whose spans are noted; NULL: none's */
    struct kvt_error *err;
};

/* What somebody said, in part or whole. */
static enum kvt_status add_content(const struct chat *c, struct kvt_text_piece content) {
    const size_t start = c->out->len;
    KVT_TRY(kvt_buf_add(c->out, content.data, content.len));
    if (!c->text || content.len == 0) return KVT_OK;
    KVT_ASSERT(c->text->n_contents < c->text->room);
    c->text->contents[c->text->n_contents++] = (struct kvt_text_span){start, c->out->len};
    return KVT_OK;
}

/* Trims what was written from `start` on, its contents with it. */
static void trim_from(const struct chat *c, size_t start) {
    const struct kvt_text_piece whole = {c->out->data + start, c->out->len - start}, cut = trim(whole);
    const size_t gone = (size_t)(cut.data - whole.data), end = start + cut.len;
    memmove(c->out->data + start, cut.data, cut.len);
    c->out->len = end;
    for (int i = 0; c->text && i < c->text->n_contents; i++) {
        struct kvt_text_span *span = &c->text->contents[i];
        if (span->start >= start) span->start = KVT_MIN(KVT_MAX(span->start, start + gone) - gone, end);
        if (span->end > start) span->end = KVT_MIN(KVT_MAX(span->end, start + gone) - gone, end);
    }
}

static bool is_role(const struct kvt_chat_message *message, const char *role) {
    return strcmp(message->role, role) == 0;
}

static enum kvt_status check(const struct chat *c) {
    const char *name = c->row->name;
    if (c->n <= 0) return kvt_fail(c->err, KVT_ERR_ARG, "a conversation needs at least one message");
    for (int i = 0; i < c->n; i++) {
        const struct kvt_chat_message *m = &c->messages[i];
        const bool user = is_role(m, "user"), assistant = is_role(m, "assistant");
        if (!user && !assistant && !is_role(m, "system"))
            return kvt_fail(c->err, KVT_ERR_ARG, "message %d has the role '%.40s'; known: system, user, assistant", i,
                            m->role);
        if (!user && !assistant && (c->rules & KVT_CHAT_NO_SYSTEM))
            return kvt_fail(c->err, KVT_ERR_ARG,
                            "chat template %s has no place for a system message; put it into the user's first one",
                            name);
        if (!user && !assistant && i > 0 && (c->rules & KVT_CHAT_SYSTEM_FIRST))
            return kvt_fail(c->err, KVT_ERR_ARG,
                            "message %d is the system's; chat template %s takes it only as the first", i, name);
        if (i >= c->first && (c->rules & KVT_CHAT_TAKES_TURNS) && user != ((i - c->first) % 2 == 0))
            return kvt_fail(
                c->err, KVT_ERR_ARG,
                "message %d is from '%s'; in chat template %s user and assistant take turns, the user first", i,
                m->role, name);
    }
    return KVT_OK;
}

/* The default system message of the source, or nothing: the string between the row's marks. */
static enum kvt_status add_default_system(const struct chat *c) {
    const char *open = c->row->default_open, *end = c->row->default_end;
    if (!c->plain || !open) return KVT_OK;
    for (const char *p = c->plain; (p = strstr(p, open)); p++) {
        const char *text = p + strlen(open), *stop = strstr(text, end);
        const char *quote = text;
        while (*quote && *quote != '\'') quote += *quote == '\\' && quote[1] ? 2 : 1;
        if (!stop || quote < stop || stop == text) continue;
        KVT_TRY(add(c->out, c->row->system.open));
        KVT_TRY(kvt_chat_unescape(c->out, text, (size_t)(stop - text)));
        return add(c->out, c->row->system.close);
    }
    return KVT_OK;
}

static enum kvt_status add_system(const struct chat *c) {
    if (c->system || (c->rules & KVT_CHAT_SYSTEM_ALWAYS)) {
        struct kvt_text_piece content = piece(c->system ? c->system : "");
        if (c->rules & KVT_CHAT_TRIM) content = trim(content);
        KVT_TRY(add(c->out, c->row->system.open));
        KVT_TRY(add_content(c, content));
        return add(c->out, c->row->system.close);
    }
    bool given = is_role(&c->messages[0], "system");
    for (int i = 1; i < c->n && (c->rules & KVT_CHAT_DEFAULT_IF_NONE); i++) given |= is_role(&c->messages[i], "system");
    return given ? KVT_OK : add_default_system(c);
}

/* The user's content, which may take in the system message. */
static enum kvt_status add_user(const struct chat *c, int i) {
    const char *system = is_role(&c->messages[0], "system") ? c->messages[0].content : NULL;
    const bool takes_in = system && (((c->rules & KVT_CHAT_SYSTEM_IN_USER) && i == c->first) ||
                                     ((c->rules & KVT_CHAT_SYSTEM_IN_LAST) && i == c->n - 1));
    struct kvt_text_piece content = piece(c->messages[i].content);
    if (c->rules & KVT_CHAT_TRIM) content = trim(content);
    if ((c->rules & KVT_CHAT_BOS_EACH_TURN) && i > c->first) KVT_TRY(add(c->out, c->row->bos));
    KVT_TRY(add(c->out, c->row->user.open));
    const size_t before = c->out->len;
    if (takes_in) {
        KVT_TRY(add(c->out, c->row->system.open));
        KVT_TRY(add_content(c, piece(system)));
        KVT_TRY(add(c->out, c->row->system.close));
    }
    KVT_TRY(add_content(c, content));
    if (c->rules & KVT_CHAT_TRIM_TURN) trim_from(c, before);
    return add(c->out, c->row->user.close);
}

/* Parts a content at </think>: what follows the last one, and what stands before the first, after the last <think>. */
static bool part_thought(struct kvt_text_piece *content, struct kvt_text_piece *thought) {
    static const char open[] = "<think>", close[] = "</think>";
    const char *first = strstr(content->data, close), *last = first;
    *thought = (struct kvt_text_piece){content->data, 0};
    if (!first) return false;
    for (const char *p = first; (p = strstr(p, close)); p += sizeof close - 1) last = p;
    const char *start = content->data, *end = content->data + content->len;
    for (const char *p = start; (p = strstr(p, open)) && p < first; p += sizeof open - 1) start = p + sizeof open - 1;
    *thought = (struct kvt_text_piece){start, (size_t)(first - start)};
    last += sizeof close - 1;
    *content = (struct kvt_text_piece){last, (size_t)(end - last)};
    return true;
}

static enum kvt_status add_assistant(const struct chat *c, int i) {
    struct kvt_text_piece content = piece(c->messages[i].content), thought = {NULL, 0};
    if (c->rules & (KVT_CHAT_TRIM | KVT_CHAT_TRIM_ASSISTANT | KVT_CHAT_TRIM_TURN)) content = trim(content);
    const bool parted = (c->rules & KVT_CHAT_FORGET_THOUGHT) && part_thought(&content, &thought);
    KVT_TRY(add(c->out, c->row->assistant.open));
    if (c->rules & KVT_CHAT_SHOW_THOUGHT) {
        bool answered = false; /* a user's message follows */
        for (int k = i + 1; k < c->n; k++) answered |= is_role(&c->messages[k], "user");
        const bool last = !answered && i == c->n - 1;
        while (content.len && content.data[0] == '\n' && (parted || last)) content.data++, content.len--;
        if (!answered && (last || trim_lines(thought).len)) {
            KVT_TRY(add(c->out, "<think>\n"));
            KVT_TRY(add_content(c, trim_lines(thought)));
            KVT_TRY(add(c->out, "\n</think>\n\n"));
        }
    }
    KVT_TRY(add_content(c, content));
    return add(c->out, c->row->assistant.close);
}

static enum kvt_status add_turn(const struct chat *c, int i) {
    if (is_role(&c->messages[i], "user")) return add_user(c, i);
    if (is_role(&c->messages[i], "assistant")) return add_assistant(c, i);
    struct kvt_text_piece content = piece(c->messages[i].content);
    if (c->rules & KVT_CHAT_TRIM) content = trim(content);
    if (content.len == 0 && (c->rules & KVT_CHAT_SYSTEM_IF_ANY)) return KVT_OK;
    KVT_TRY(add(c->out, c->row->system.open));
    KVT_TRY(add_content(c, content));
    return add(c->out, c->row->system.close);
}

static enum kvt_status write_chat(const struct chat *c, bool add_reply) {
    KVT_TRY(add_system(c));
    for (int i = c->first; i < c->n; i++) KVT_TRY(add_turn(c, i));
    const bool always = c->plain && !strstr(c->plain, "add_generation_prompt");
    if (add_reply || always) {
        const bool thinks = c->plain && c->row->thinking_reply && strstr(c->plain, c->row->thinking_reply);
        KVT_TRY(add(c->out, c->row->reply));
        return thinks ? add(c->out, "<think>\n") : KVT_OK;
    }
    const bool ends = c->row->ending && (!c->plain || strstr(c->plain, "{%else%}{{eos_token}}"));
    return ends ? add(c->out, c->row->ending) : KVT_OK;
}

static enum kvt_status format(struct chat *c, const char *source, bool add_reply) {
    struct kvt_buf plain;
    kvt_buf_init(&plain, &c->out->allocator, source ? strlen(source) * 2 : 0);
    enum kvt_status status = source ? kvt_chat_plain_form(&plain, source, strlen(source)) : KVT_OK;
    if (status == KVT_OK) {
        c->plain = source ? kvt_buf_text(&plain) : NULL;
        const bool in_last = c->plain && strstr(c->plain, "loop.lastandsystem_message");
        const bool in_first = c->plain && strstr(c->plain, "loop.firstandsystem_message");
        if (in_last || in_first) {
            c->rules &= ~(unsigned)(KVT_CHAT_SYSTEM_IN_USER | KVT_CHAT_SYSTEM_IN_LAST);
            c->rules |= in_last ? KVT_CHAT_SYSTEM_IN_LAST : KVT_CHAT_SYSTEM_IN_USER;
        }
        const bool apart = c->rules & (KVT_CHAT_SYSTEM_FIRST | KVT_CHAT_SYSTEM_ALWAYS);
        c->first = c->n > 0 && apart && is_role(&c->messages[0], "system");
        const bool inside = c->rules & (KVT_CHAT_SYSTEM_IN_USER | KVT_CHAT_SYSTEM_IN_LAST);
        c->system = c->first && !inside ? c->messages[0].content : NULL;
        status = check(c);
    }
    if (status == KVT_OK) status = write_chat(c, add_reply);
    kvt_buf_finish(&plain);
    if (status == KVT_ERR_NOMEM || status == KVT_ERR_LIMIT)
        kvt_fail(c->err, status, "the conversation does not fit into memory or its limit of %zu bytes", c->out->max);
    return status;
}

enum kvt_status kvt_chat_format(const struct kvt_chat_template *family, const char *source,
                                const struct kvt_chat_message *messages, int n, bool add_reply, struct kvt_buf *out,
                                struct kvt_error *err) {
    struct chat c = {.row = family, .rules = family->rules, .messages = messages, .n = n, .out = out, .err = err};
    const size_t before = out->len;
    const enum kvt_status status = format(&c, source, add_reply);
    if (status != KVT_OK) {
        out->len = before;
        if (out->data) out->data[before] = 0;
    }
    return status;
}

/* ---- with the places of contents --------------------------------------------------------------------------------------- */

void kvt_chat_text_init(struct kvt_chat_text *chat, const struct kvt_allocator *allocator, size_t max) {
    *chat = (struct kvt_chat_text){.contents = NULL};
    kvt_buf_init(&chat->text, allocator, max);
}

void kvt_chat_text_finish(struct kvt_chat_text *chat) {
    kvt_give(&chat->text.allocator, chat->contents, (size_t)chat->room, sizeof *chat->contents);
    kvt_buf_finish(&chat->text);
    *chat = (struct kvt_chat_text){.text = chat->text};
}

/* Room for the contents of n messages: a message has at most two parts, and the system's may be taken into a user's. */
static bool make_room(struct kvt_chat_text *chat, int n) {
    if (n > (INT32_MAX - 2) / 2) return false;
    const int room = KVT_MAX(n, 0) * 2 + 2;
    if (room <= chat->room) return true;
    struct kvt_text_span *contents = kvt_take(&chat->text.allocator, (size_t)room, sizeof *contents);
    if (!contents) return false;
    kvt_give(&chat->text.allocator, chat->contents, (size_t)chat->room, sizeof *contents);
    chat->contents = contents;
    chat->room = room;
    return true;
}

enum kvt_status kvt_chat_write(const struct kvt_chat_template *family, const char *source,
                               const struct kvt_chat_message *messages, int n, bool add_reply,
                               struct kvt_chat_text *out, struct kvt_error *err) {
    struct chat c = {.row = family,
                     .rules = family->rules,
                     .messages = messages,
                     .n = n,
                     .out = &out->text,
                     .text = out,
                     .err = err};
    out->n_contents = 0;
    out->text.len = 0;
    if (!make_room(out, n)) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a conversation of %d messages", n);
    return format(&c, source, add_reply);
}

/* ---- as tokens ---------------------------------------------------------------------------------------------------------- */

int kvt_chat_bos(const struct kvt_text *text, const struct kvt_chat_template *family, const char *source) {
    return kvt_text_add_bos(text) || kvt_chat_begins_with_bos(family, source) ? kvt_text_bos(text) : -1;
}

enum kvt_status kvt_chat_encode(const struct kvt_text *text, const struct kvt_chat_template *family, const char *source,
                                const struct kvt_chat_message *messages, int n, bool add_reply, struct kvt_ids *out,
                                struct kvt_error *err) {
    const size_t before = out->len;
    const int bos = kvt_chat_bos(text, family, source);
    struct kvt_chat_text chat;
    kvt_chat_text_init(&chat, &out->allocator, KVT_TEXT_MAX);
    enum kvt_status status = kvt_chat_write(family, source, messages, n, add_reply, &chat, err);
    if (status == KVT_OK && bos >= 0 && kvt_ids_add(out, bos) != KVT_OK)
        status = kvt_fail(err, KVT_ERR_NOMEM, "no memory for the tokens of a conversation");
    if (status == KVT_OK) {
        const struct kvt_text_mixed mixed = {.data = kvt_buf_text(&chat.text),
                                             .len = chat.text.len,
                                             .plain = chat.contents,
                                             .n_plain = chat.n_contents,
                                             .after = -1};
        status = kvt_text_encode_mixed(text, &mixed, out, err);
    }
    if (status != KVT_OK) out->len = before;
    kvt_chat_text_finish(&chat);
    return status;
}
