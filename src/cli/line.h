/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns of a conversation from standard input. At a terminal: with a prompt, and edited where the program was built with libedit,
 * with a history while it runs. Elsewhere each line is a turn.
 */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include "base/buf.h"

enum kvt_line_end {
    KVT_LINE_TURN,       /* here is one */
    KVT_LINE_OVER,       /* no more come: the end of the input, Ctrl-D */
    KVT_LINE_INTERRUPTED /* Ctrl-C: what was typed is gone */
};

struct kvt_line;
KVT_MUST_CHECK enum kvt_status kvt_line_open(struct kvt_line **out, struct kvt_error *err);
void kvt_line_close(struct kvt_line *line); /* NULL is fine */

/* Whether somebody types it. */
bool kvt_line_is_typed(const struct kvt_line *line);
/* "libedit", or "none" where the program was built without. */
const char *kvt_line_editor(void);

/* Puts the next turn into `turn`, without its line end. A backslash at a line's end is a line end in the turn; so are those of text that
 * was pasted into a terminal. IO; LIMIT for more than turn's maximum: what was read of it is lost. */
KVT_MUST_CHECK enum kvt_status kvt_line_read(enum kvt_line_end *out, struct kvt_line *line, struct kvt_buf *turn,
                                             struct kvt_error *err);

#endif
