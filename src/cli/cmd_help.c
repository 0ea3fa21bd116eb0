/* SPDX-License-Identifier: Apache-2.0
 * kvtile help [COMMAND] */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/pages.h"
#include "cli/term.h"

struct settings {
    const char *command, *shell, *pages;
    bool markdown, man;
};

static const struct settings defaults;

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "COMMAND", .at = AT(command), .optional = true, .help = "the command to explain"},
    {KVT_OPT_FLAG, .name = "man", .at = AT(man), .help = "as a manual page: kvtile help --man run | man -l -"},
    {KVT_OPT_TEXT, .name = "completions", .value = "SHELL", .words = "bash zsh fish", .at = AT(shell), .not_with = "man",
     .help = "write the completions for bash, zsh or fish"},
    {KVT_OPT_FLAG, .name = "markdown", .at = AT(markdown), .hidden = true, .help = "write docs/cli.md"},
    {KVT_OPT_TEXT, .name = "pages", .value = "FOLDER", .at = AT(pages), .hidden = true,
     .help = "write all manual pages and completions into a folder, as they are installed"},
};
/* clang-format on */

static enum kvt_status write_completions(struct kvt_buf *text, const char *shell, struct kvt_error *err) {
    for (size_t i = 0; kvt_shell_at(i); i++)
        if (strcmp(kvt_shell_at(i)->name, shell) == 0) return kvt_shell_at(i)->write(text);
    return kvt_fail(err, KVT_ERR_ARG, "--completions takes bash, zsh or fish, not '%.40s'", shell);
}

static enum kvt_status make_text(struct kvt_buf *text, const struct settings *s, struct kvt_error *err) {
    const struct kvt_command *command = NULL;
    if (s->markdown) return kvt_help_markdown(text);
    if (s->shell) return write_completions(text, s->shell, err);
    if (s->command) KVT_TRY(kvt_command_find(&command, s->command, err));
    if (s->man) return kvt_man_page(text, command);
    return command ? kvt_help_command(text, command) : kvt_help_program(text);
}

/* ---- all of them ------------------------------------------------------------------------------------------------------ */

static enum kvt_status write_page(const char *folder, const char *name, const struct kvt_buf *page,
                                  struct kvt_error *err) {
    char path[1024];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return kvt_fail(err, KVT_ERR_ARG, "the folder's name is too long: %.60s...", folder);
    return kvt_file_write(path, page->data, page->len, err);
}

static enum kvt_status write_man_page(struct kvt_buf *page, const char *folder, const struct kvt_command *command,
                                      struct kvt_error *err) {
    char name[80];
    snprintf(name, sizeof name, "kvtile%s%.60s.1", command ? "-" : "", command ? command->name : "");
    page->len = 0;
    KVT_TRY(kvt_man_page(page, command));
    return write_page(folder, name, page, err);
}

static enum kvt_status write_pages(struct kvt_buf *page, const char *folder, struct kvt_error *err) {
    KVT_TRY(write_man_page(page, folder, NULL, err));
    for (size_t i = 0; kvt_command_at(i); i++) KVT_TRY(write_man_page(page, folder, kvt_command_at(i), err));
    for (size_t i = 0; kvt_shell_at(i); i++) {
        page->len = 0;
        KVT_TRY(kvt_shell_at(i)->write(page));
        KVT_TRY(write_page(folder, kvt_shell_at(i)->file, page, err));
    }
    return KVT_OK;
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, 1 << 18);
    const struct settings *s = settings;
    enum kvt_status status = s->pages ? write_pages(&text, s->pages, err) : make_text(&text, s, err);
    if (status == KVT_ERR_NOMEM || status == KVT_ERR_LIMIT) kvt_fail(err, status, "no memory for the help");
    if (status == KVT_OK && !s->pages) status = kvt_term_write(text.data, text.len, err);
    kvt_buf_finish(&text);
    return status;
}

const struct kvt_command kvt_command_help = {
    .name = "help",
    .about = "explain the program or a command",
    .text =
        "Prints what 'kvtile --help' or 'kvtile COMMAND --help' prints; the same as a manual page; or what a shell needs to "
        "complete commands, options, and the names of caches. All of these are installed with the program.",
    .examples = "kvtile help plan\n"
                "source <(kvtile help --completions bash)\n"
                "kvtile help --completions fish > ~/.config/fish/completions/kvtile.fish",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
