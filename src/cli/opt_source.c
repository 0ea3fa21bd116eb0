/* SPDX-License-Identifier: Apache-2.0
 * Options from the environment and from a file. */
#include "cli/opt_source.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "cli/command.h"

extern char **environ;

enum { FILE_BYTES_MAX = 1 << 20 };
static const char prefix[] = "KVTILE_", own[] = "KVTILE_CONFIG";

static enum kvt_status add(struct kvt_opt_sources *s, enum kvt_opt_source source, const char *name, const char *value,
                           const char *from, struct kvt_error *err) {
    if (s->n == KVT_OPT_GIVEN_MAX)
        return kvt_fail(err, KVT_ERR_ARG, "%s: more than %d options from files and the environment", from,
                        KVT_OPT_GIVEN_MAX);
    snprintf(s->from[s->n], KVT_OPT_FROM_MAX, "%s", from);
    s->given[s->n] = (struct kvt_opt_given){source, name, value, s->from[s->n]};
    s->n++;
    return KVT_OK;
}

/* ---- the file --------------------------------------------------------------------------------------------------------- */

/* Where it is; empty: nowhere. */
static void find_path(struct kvt_opt_sources *s) {
    const char *named = getenv(own), *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int len = 0;
    s->path[0] = 0;
    if (named)
        len = snprintf(s->path, sizeof s->path, "%s", named);
    else if (config && config[0] == '/')
        len = snprintf(s->path, sizeof s->path, "%s/kvtile/config", config);
    else if (home && home[0] == '/')
        len = snprintf(s->path, sizeof s->path, "%s/.config/kvtile/config", home);
    if (len >= (int)sizeof s->path || (!named && access(s->path, F_OK) != 0)) s->path[0] = 0;
}

/* Cuts blanks off both ends. */
static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1])) text[--n] = 0;
    return text;
}

static bool any_command_has(const char *name) {
    for (size_t i = 0; kvt_command_at(i); i++)
        if (kvt_opt_has(kvt_command_at(i), name)) return true;
    return false;
}

/* "[NAME]": the command that the lines below are for. */
static enum kvt_status take_section(const struct kvt_command **out, char *line, const char *from,
                                    struct kvt_error *err) {
    const size_t n = strlen(line);
    struct kvt_error why;
    if (n < 3 || line[n - 1] != ']')
        return kvt_fail(err, KVT_ERR_ARG, "%s: '%.40s' is no section: write [COMMAND]", from, line);
    line[n - 1] = 0;
    if (kvt_command_find(out, line + 1, &why) == KVT_OK) return KVT_OK;
    return kvt_fail(err, KVT_ERR_ARG, "%s: %.150s", from, why.text);
}

/* "name = value", of `section`, or of all commands where that is NULL. */
static enum kvt_status take_value(struct kvt_opt_sources *s, const struct kvt_command *command,
                                  const struct kvt_command *section, char *line, const char *from,
                                  struct kvt_error *err) {
    char *equals = strchr(line, '='), label[KVT_OPT_FROM_MAX];
    if (!equals) return kvt_fail(err, KVT_ERR_ARG, "%s: '%.40s' is no option: write NAME = VALUE", from, line);
    *equals = 0;
    const char *name = trim(line), *value = trim(equals + 1);
    if (section && !kvt_opt_has(section, name))
        return kvt_fail(err, KVT_ERR_ARG, "%s: %s has no option '%.40s'", from, section->name, name);
    if (!section && !any_command_has(name))
        return kvt_fail(err, KVT_ERR_ARG, "%s: no command has an option '%.40s'", from, name);
    if (section ? section != command : !kvt_opt_has(command, name)) return KVT_OK;
    snprintf(label, sizeof label, "%.150s: %.40s", from, name);
    return add(s, KVT_OPT_FILE, name, value, label, err);
}

static enum kvt_status read_file(struct kvt_opt_sources *s, const struct kvt_command *command, struct kvt_error *err) {
    const struct kvt_command *section = NULL;
    KVT_TRY(kvt_file_read(&s->file, s->path, err));
    KVT_TRY(kvt_buf_add(&s->file, "", 1));
    if (memchr(s->file.data, 0, s->file.len - 1)) return kvt_fail(err, KVT_ERR_ARG, "%.150s is no text file", s->path);
    int number = 0;
    for (char *line = s->file.data, *next; line; line = next) {
        char from[KVT_OPT_FROM_MAX];
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        snprintf(from, sizeof from, "%.150s:%d", s->path, ++number);
        line = trim(line);
        if (*line == 0 || *line == '#') continue;
        if (*line == '[')
            KVT_TRY(take_section(&section, line, from, err));
        else
            KVT_TRY(take_value(s, command, section, line, from, err));
    }
    return KVT_OK;
}

/* ---- the environment -------------------------------------------------------------------------------------------------- */

static enum kvt_status read_environment(struct kvt_opt_sources *s, const struct kvt_command *command,
                                        struct kvt_error *err) {
    size_t at;
    const struct kvt_opt *o;
    for (size_t i = 0; (o = kvt_opt_at(command, i, &at)) != NULL; i++) {
        char variable[KVT_OPT_VARIABLE_MAX];
        if (!kvt_opt_has(command, o->name)) continue; /* a heading, an argument, hidden */
        kvt_opt_variable(variable, o->name);
        const char *value = getenv(variable);
        if (value) KVT_TRY(add(s, KVT_OPT_ENVIRONMENT, o->name, value, variable, err));
    }
    return KVT_OK;
}

/* Whether a variable is some command's option. */
static bool is_known(const char *variable) {
    size_t at;
    const struct kvt_opt *o;
    for (size_t c = 0; kvt_command_at(c); c++)
        for (size_t i = 0; (o = kvt_opt_at(kvt_command_at(c), i, &at)) != NULL; i++) {
            char name[KVT_OPT_VARIABLE_MAX];
            kvt_opt_variable(name, o->name);
            if (strcmp(name, variable) == 0 && kvt_opt_has(kvt_command_at(c), o->name)) return true;
        }
    return strcmp(variable, own) == 0;
}

bool kvt_opt_source_unknown(char name[KVT_OPT_VARIABLE_MAX], size_t *at) {
    while (environ && environ[*at]) {
        const char *variable = environ[(*at)++];
        const size_t n = strcspn(variable, "=");
        if (strncmp(variable, prefix, sizeof prefix - 1) != 0 || n >= KVT_OPT_VARIABLE_MAX) continue;
        memcpy(name, variable, n);
        name[n] = 0;
        if (!is_known(name)) return true;
    }
    return false;
}

/* ---- both ------------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_opt_sources_read(struct kvt_opt_sources *out, const struct kvt_command *command,
                                     struct kvt_error *err) {
    out->n = 0;
    kvt_buf_init(&out->file, NULL, FILE_BYTES_MAX);
    find_path(out);
    if (out->path[0]) KVT_TRY(read_file(out, command, err));
    return read_environment(out, command, err);
}

void kvt_opt_sources_finish(struct kvt_opt_sources *sources) { kvt_buf_finish(&sources->file); }
