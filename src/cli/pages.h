/* SPDX-License-Identifier: Apache-2.0
 * What is installed beside the program, made from its tables: manual pages, and completions for shells. */
#ifndef CLI_PAGES_H
#define CLI_PAGES_H

#include "cli/opt.h"

/* The page of a command, or of the program for NULL, as troff. They fail for want of memory only. */
KVT_MUST_CHECK enum kvt_status kvt_man_page(struct kvt_buf *out, const struct kvt_command *command);

/* A shell's completions; NULL past the end of the list: "bash", "zsh", "fish". */
struct kvt_shell {
    const char *name;
    const char *file; /* how its folder of completions calls it */
    enum kvt_status (*write)(struct kvt_buf *out);
};
const struct kvt_shell *kvt_shell_at(size_t i);

#endif
