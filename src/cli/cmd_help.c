/* SPDX-License-Identifier: Apache-2.0
 * kvtile help [COMMAND] */
#include "base/check.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/term.h"

struct settings {
    const char *command;
    bool markdown;
};

static const struct settings defaults;

static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "COMMAND", .at = offsetof(struct settings, command), .optional = true,
     .help = "the command to explain"},
    {KVT_OPT_FLAG, .name = "markdown", .at = offsetof(struct settings, markdown), .hidden = true,
     .help = "write docs/cli.md"},
};

static enum kvt_status make_text(struct kvt_buf *text, const struct settings *s, struct kvt_error *err) {
    if (s->markdown) return kvt_help_markdown(text);
    if (!s->command) return kvt_help_program(text);
    const struct kvt_command *command = NULL;
    KVT_TRY(kvt_command_find(&command, s->command, err));
    return kvt_help_command(text, command);
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, 1 << 18);
    enum kvt_status status = make_text(&text, settings, err);
    if (status == KVT_ERR_NOMEM || status == KVT_ERR_LIMIT) kvt_fail(err, status, "no memory for the help");
    if (status == KVT_OK) status = kvt_term_write(text.data, text.len, err);
    kvt_buf_finish(&text);
    return status;
}

const struct kvt_command kvt_command_help = {
    .name = "help",
    .about = "explain the program or a command",
    .text = "Prints what 'kvtile --help' or 'kvtile COMMAND --help' prints.",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
