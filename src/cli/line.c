/* SPDX-License-Identifier: Apache-2.0
 * Reading turns, with libedit or without. */
#include "cli/line.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef KVT_HAVE_LIBEDIT
#include <histedit.h>
#endif

#include "base/check.h"
#include "cli/term.h"

enum { PASTE_MS = 20, HISTORY_MAX = 1000 };

struct kvt_line {
    bool is_typed, goes_on; /* goes_on: the line continues a turn */
    bool is_over;           /* Ctrl-D came behind lines that were typed ahead: the next turn is the end */
#ifdef KVT_HAVE_LIBEDIT
    EditLine *editor;
    History *history;
#endif
};

static const char *prompt_text(const struct kvt_line *line) { return line->goes_on ? ". " : "> "; }

/* ---- libedit ---------------------------------------------------------------------------------------------------------- */

#ifdef KVT_HAVE_LIBEDIT

const char *kvt_line_editor(void) { return "libedit"; }

static char *prompt(EditLine *editor) {
    struct kvt_line *line = NULL;
    el_get(editor, EL_CLIENTDATA, &line);
    static char text[8];
    snprintf(text, sizeof text, "%s", prompt_text(line));
    return text;
}

/* Without an editor lines are read as they come. */
static void open_editor(struct kvt_line *line) {
    HistEvent event;
    if (!setlocale(LC_CTYPE, "")) setlocale(LC_CTYPE, "C.UTF-8");
    FILE *out = kvt_term_stdout_is_tty() ? stdout : stderr;
    line->editor = el_init("kvtile", stdin, out, stderr);
    if (!line->editor) return;
    el_set(line->editor, EL_CLIENTDATA, line);
    el_set(line->editor, EL_PROMPT, prompt);
    el_set(line->editor, EL_EDITOR, "emacs");
    el_set(line->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(line->editor, EL_BIND, "^I", "ed-insert", NULL);
    line->history = history_init();
    if (line->history) {
        history(line->history, &event, H_SETSIZE, HISTORY_MAX);
        history(line->history, &event, H_SETUNIQUE, 1);
        el_set(line->editor, EL_HIST, history, line->history);
    }
    el_source(line->editor, NULL); /* ~/.editrc: as its owner wants it */
}

static void close_editor(struct kvt_line *line) {
    if (line->editor) el_end(line->editor);
    if (line->history) history_end(line->history);
}

static bool has_editor(const struct kvt_line *line) { return line->editor != NULL; }

static enum kvt_status read_edited(enum kvt_line_end *out, struct kvt_line *line, struct kvt_buf *turn,
                                   struct kvt_error *err) {
    int n = 0;
    HistEvent event;
    errno = 0;
    const char *text = el_gets(line->editor, &n);
    if (text && n > 0) {
        if (line->history) history(line->history, &event, H_ENTER, text);
        *out = KVT_LINE_TURN;
        return kvt_buf_add(turn, text, (size_t)n);
    }
    *out = n < 0 && errno == EINTR ? KVT_LINE_INTERRUPTED : KVT_LINE_OVER;
    if (n < 0 && errno != EINTR && errno != 0)
        return kvt_fail(err, KVT_ERR_IO, "cannot read from the terminal: %s", strerror(errno));
    el_reset(line->editor);
    return KVT_OK;
}

#else

const char *kvt_line_editor(void) { return "none"; }
static void open_editor(struct kvt_line *line) { (void)line; }
static void close_editor(struct kvt_line *line) { (void)line; }
static bool has_editor(const struct kvt_line *line) {
    (void)line;
    return false;
}
static enum kvt_status read_edited(enum kvt_line_end *out, struct kvt_line *line, struct kvt_buf *turn,
                                   struct kvt_error *err) {
    (void)out, (void)line, (void)turn;
    return kvt_fail(err, KVT_ERR_UNSUPPORTED, "this program was built without libedit");
}

#endif

/* ---- lines as they come ----------------------------------------------------------------------------------------------- */

static enum kvt_status read_plain(enum kvt_line_end *out, struct kvt_line *line, struct kvt_buf *turn,
                                  struct kvt_error *err) {
    const size_t before = turn->len;
    if (line->is_typed) fprintf(stderr, "%s", prompt_text(line));
    clearerr(stdin);
    errno = 0;
    enum kvt_status status = KVT_OK;
    for (int c; (c = getc(stdin)) != EOF;) {
        const char byte = (char)c;
        if (status == KVT_OK) status = kvt_buf_add(turn, &byte, 1); /* or else the rest of the line goes by */
        if (c != '\n') continue;
        *out = KVT_LINE_TURN;
        return status;
    }
    if (status != KVT_OK) return status;
    *out = turn->len > before ? KVT_LINE_TURN : KVT_LINE_OVER;
    if (!ferror(stdin)) return KVT_OK;
    *out = KVT_LINE_INTERRUPTED;
    return errno == EINTR ? KVT_OK : kvt_fail(err, KVT_ERR_IO, "cannot read standard input: %s", strerror(errno));
}

/* ---- turns ------------------------------------------------------------------------------------------------------------ */

enum kvt_status kvt_line_open(struct kvt_line **out, struct kvt_error *err) {
    struct kvt_line *line = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *line);
    if (!line) return kvt_fail(err, KVT_ERR_NOMEM, "out of memory to read from the terminal");
    line->is_typed = isatty(STDIN_FILENO) == 1;
    if (line->is_typed) open_editor(line);
    if (has_editor(line)) kvt_term_hold_keys();
    *out = line;
    return KVT_OK;
}

void kvt_line_close(struct kvt_line *line) {
    if (!line) return;
    kvt_term_release_keys();
    close_editor(line);
    kvt_give(&kvt_allocator_libc, line, 1, sizeof *line);
}

bool kvt_line_is_typed(const struct kvt_line *line) { return line->is_typed; }

static bool more_is_waiting(void) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, PASTE_MS) == 1 && (in.revents & POLLIN);
}

static enum kvt_status read_line(enum kvt_line_end *out, struct kvt_line *line, struct kvt_buf *turn,
                                 struct kvt_error *err) {
    const enum kvt_status status =
        has_editor(line) ? read_edited(out, line, turn, err) : read_plain(out, line, turn, err);
    if (status == KVT_ERR_LIMIT) kvt_fail(err, status, "a message of more than %zu bytes", turn->max);
    if (status == KVT_ERR_NOMEM) kvt_fail(err, status, "out of memory for a message");
    return status;
}

/* Lines until one ends the turn. */
static enum kvt_status read_turn(enum kvt_line_end *out, struct kvt_line *line, struct kvt_buf *turn,
                                 struct kvt_error *err) {
    bool waits = false; /* the line was typed or pasted before it was asked for */
    for (line->goes_on = false;; line->goes_on = true) {
        KVT_TRY(read_line(out, line, turn, err));
        if (*out == KVT_LINE_INTERRUPTED) return KVT_OK;
        if (*out == KVT_LINE_OVER) break;
        const bool ended = turn->len && turn->data[turn->len - 1] == '\n';
        turn->len -= ended;
        const bool asks_more = turn->len && turn->data[turn->len - 1] == '\\';
        turn->len -= asks_more;
        waits = ended && line->is_typed && turn->data[0] != '/' && more_is_waiting();
        if (!ended || !(asks_more || waits)) break;
        KVT_TRY(kvt_buf_add(turn, "\n", 1));
    }
    if (*out == KVT_LINE_OVER && line->goes_on) {
        *out = KVT_LINE_TURN;
        line->is_over = waits;
        if (line->is_typed) fputc('\n', stderr);
    }
    if (turn->data) turn->data[turn->len] = 0;
    return KVT_OK;
}

enum kvt_status kvt_line_read(enum kvt_line_end *out, struct kvt_line *line, struct kvt_buf *turn,
                              struct kvt_error *err) {
    turn->len = 0;
    *out = KVT_LINE_OVER;
    if (line->is_over) return KVT_OK;
    kvt_term_release_keys();
    const enum kvt_status status = read_turn(out, line, turn, err);
    if (has_editor(line)) kvt_term_hold_keys();
    return status;
}
