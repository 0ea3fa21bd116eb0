/* SPDX-License-Identifier: Apache-2.0
 * What the program says about itself, made from the tables of commands and options. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "cli/opt.h"

/* `kvtile` without arguments; `kvtile --help`; `kvtile NAME --help`; docs/cli.md. All but the last in 80 columns.
 * They fail for want of memory only. */
KVT_MUST_CHECK enum kvt_status kvt_help_usage(struct kvt_buf *out);
KVT_MUST_CHECK enum kvt_status kvt_help_program(struct kvt_buf *out);
KVT_MUST_CHECK enum kvt_status kvt_help_command(struct kvt_buf *out, const struct kvt_command *command);
KVT_MUST_CHECK enum kvt_status kvt_help_markdown(struct kvt_buf *out);

/* Parts of them, for other forms: what an option does with what the table knows besides (`field` holds its default); "run [OPTION]...
 * MODEL"; the paragraphs about all commands. */
KVT_MUST_CHECK enum kvt_status kvt_help_meaning(struct kvt_buf *out, const struct kvt_opt *o, const void *field);
KVT_MUST_CHECK enum kvt_status kvt_help_synopsis(struct kvt_buf *out, const struct kvt_command *command);
const char *kvt_help_notes(void);

#endif
