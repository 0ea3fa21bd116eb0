/* SPDX-License-Identifier: Apache-2.0
 * Completions for shells from the tables of commands and options. */
#include <string.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/pages.h"
#include "kvtile/kvtile.h"

/* ---- what a value is -------------------------------------------------------------------------------------------------- */

enum value { VALUE_NONE, VALUE_OTHER, VALUE_FILE, VALUE_FOLDER, VALUE_CACHE, VALUE_LEVEL, VALUE_SHELL };

static enum value value_of(const struct kvt_opt *o) {
    if (o->kind == KVT_OPT_FLAG) return VALUE_NONE;
    if (strcmp(o->name, "level") == 0) return VALUE_LEVEL;
    if (!o->value) return VALUE_OTHER;
    if (strcmp(o->value, "FILE") == 0) return VALUE_FILE;
    if (strcmp(o->value, "FOLDER") == 0) return VALUE_FOLDER;
    if (strcmp(o->value, "K[,V]") == 0 || strcmp(o->value, "TYPE") == 0) return VALUE_CACHE;
    return strcmp(o->value, "SHELL") == 0 ? VALUE_SHELL : VALUE_OTHER;
}

static enum kvt_status add_caches(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(out, "auto"));
    for (size_t i = 0; kvt_kv_at(i); i++) KVT_TRY(kvt_buf_addf(out, " %s", kvt_kv_at(i)));
    return KVT_OK;
}

static enum kvt_status add_words(struct kvt_buf *out, enum value value) {
    if (value == VALUE_CACHE) return add_caches(out);
    if (value == VALUE_LEVEL) return kvt_buf_addf(out, "auto ref neon avx2 avx512");
    return value == VALUE_SHELL ? kvt_buf_addf(out, "bash zsh fish") : KVT_OK;
}

static bool has_words(enum value value) { return value == VALUE_CACHE || value == VALUE_LEVEL || value == VALUE_SHELL; }

/* Option i of a command that is completed; NULL past the end. */
static const struct kvt_opt *next_option(const struct kvt_command *c, size_t *i) {
    size_t at;
    for (const struct kvt_opt *o; (o = kvt_opt_at(c, *i, &at)) != NULL;) {
        (*i)++;
        if (o->kind > KVT_OPT_ARGS && !o->hidden) return o;
    }
    return NULL;
}

/* What an option does, in so few words that a list stays one, between a shell's single quotes: `apostrophe` is one there, and marks
 * that it or its list reads are left out. */
static enum kvt_status add_about(struct kvt_buf *out, const char *text, const char *apostrophe) {
    for (const char *p = text; *p && !strchr(";:(", *p); p++) {
        if (*p == '.' && (p[1] == ' ' || !p[1])) break;
        if (*p == '\'')
            KVT_TRY(kvt_buf_addf(out, "%s", apostrophe));
        else if (!strchr("\"[]\\`$", *p))
            KVT_TRY(kvt_buf_add(out, p, 1));
    }
    while (out->len > 0 && out->data[out->len - 1] == ' ') out->len--;
    return KVT_OK;
}

/* "--name" and all its other names, with `between` in between. */
static enum kvt_status add_names(struct kvt_buf *out, const struct kvt_opt *o, const char *between) {
    if (o->brief) KVT_TRY(kvt_buf_addf(out, "-%s%s", o->brief, between));
    KVT_TRY(kvt_buf_addf(out, "--%s", o->name));
    for (const char *p = o->also ? o->also : ""; *p; p += strspn(p, " ")) {
        const int n = (int)strcspn(p, " ");
        KVT_TRY(kvt_buf_addf(out, "%s--%.*s", between, n, p));
        p += n;
    }
    return KVT_OK;
}

/* ---- bash ------------------------------------------------------------------------------------------------------------- */

/* One arm of the case over the word before: the options of a kind of value. */
static enum kvt_status bash_values(struct kvt_buf *out, const struct kvt_command *c, enum value value) {
    bool any = false;
    size_t i = 0;
    for (const struct kvt_opt *o; (o = next_option(c, &i)) != NULL;) {
        if (value_of(o) != value) continue;
        KVT_TRY(kvt_buf_addf(out, any ? " | " : "        "));
        KVT_TRY(add_names(out, o, " | "));
        any = true;
    }
    if (!any) return KVT_OK;
    if (value == VALUE_FILE) return kvt_buf_addf(out, ") _kvtile_files; return ;;\n");
    if (value == VALUE_FOLDER) return kvt_buf_addf(out, ") _kvtile_files -d; return ;;\n");
    if (value == VALUE_OTHER) return kvt_buf_addf(out, ") return ;;\n");
    KVT_TRY(kvt_buf_addf(out, ") _kvtile_words \""));
    KVT_TRY(add_words(out, value));
    return kvt_buf_addf(out, "\"; return ;;\n");
}

static enum kvt_status bash_command(struct kvt_buf *out, const struct kvt_command *c) {
    KVT_TRY(kvt_buf_addf(out, "    %s)\n        case $before in\n", c->name));
    for (int v = VALUE_OTHER; v <= VALUE_SHELL; v++) KVT_TRY(bash_values(out, c, (enum value)v));
    KVT_TRY(kvt_buf_addf(out, "        esac\n        options=\"--help"));
    size_t i = 0;
    for (const struct kvt_opt *o; (o = next_option(c, &i)) != NULL;) KVT_TRY(kvt_buf_addf(out, " --%s", o->name));
    return kvt_buf_addf(out, "\" ;;\n");
}

static enum kvt_status add_commands(struct kvt_buf *out) {
    for (size_t i = 0; kvt_command_at(i); i++) KVT_TRY(kvt_buf_addf(out, i ? " %s" : "%s", kvt_command_at(i)->name));
    return KVT_OK;
}

static enum kvt_status bash(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(
        out, "# Completions of kvtile for bash: written by 'kvtile help --completions bash'.\n"
             "_kvtile_words() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$now\"); }\n"
             "_kvtile_files() {\n    compopt -o filenames 2>/dev/null\n"
             "    mapfile -t COMPREPLY < <(compgen \"${1:--f}\" -- \"$now\")\n}\n"
             "_kvtile() {\n    local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options=\n"
             "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        _kvtile_words \""));
    KVT_TRY(add_commands(out));
    KVT_TRY(kvt_buf_addf(out, " --help --version\"\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n"));
    for (size_t i = 0; kvt_command_at(i); i++) KVT_TRY(bash_command(out, kvt_command_at(i)));
    KVT_TRY(kvt_buf_addf(out, "    esac\n    if [[ $now == -* ]]; then\n        _kvtile_words \"$options\"\n"
                              "    elif [ \"${COMP_WORDS[1]}\" = help ]; then\n        _kvtile_words \""));
    KVT_TRY(add_commands(out));
    return kvt_buf_addf(out, "\"\n    else\n        _kvtile_files\n    fi\n}\ncomplete -F _kvtile kvtile\n");
}

/* ---- zsh -------------------------------------------------------------------------------------------------------------- */

static const char zsh_apostrophe[] = "'\\''", fish_apostrophe[] = "\\'";

static enum kvt_status zsh_option(struct kvt_buf *out, const struct kvt_opt *o) {
    const enum value value = value_of(o);
    if (o->brief)
        KVT_TRY(kvt_buf_addf(out, "        '(-%s --%s)'{-%s,--%s}'[", o->brief, o->name, o->brief, o->name));
    else
        KVT_TRY(kvt_buf_addf(out, "        '%s--%s[", o->kind == KVT_OPT_TEXTS ? "*" : "", o->name));
    KVT_TRY(add_about(out, o->help, zsh_apostrophe));
    KVT_TRY(kvt_buf_addf(out, "]"));
    if (value != VALUE_NONE) KVT_TRY(kvt_buf_addf(out, ":%s:", has_words(value) ? "name" : "value"));
    if (value == VALUE_FILE) KVT_TRY(kvt_buf_addf(out, "_files"));
    if (value == VALUE_FOLDER) KVT_TRY(kvt_buf_addf(out, "_files -/"));
    if (has_words(value)) {
        KVT_TRY(kvt_buf_addf(out, "("));
        KVT_TRY(add_words(out, value));
        KVT_TRY(kvt_buf_addf(out, ")"));
    }
    return kvt_buf_addf(out, "' \\\n");
}

static enum kvt_status zsh(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(
        out, "#compdef kvtile\n# Completions of kvtile for zsh: written by 'kvtile help --completions zsh'.\n"
             "_kvtile() {\n    local -a commands\n    commands=(\n"));
    for (size_t i = 0; kvt_command_at(i); i++) {
        KVT_TRY(kvt_buf_addf(out, "        '%s:", kvt_command_at(i)->name));
        KVT_TRY(add_about(out, kvt_command_at(i)->about, zsh_apostrophe));
        KVT_TRY(kvt_buf_addf(out, "'\n"));
    }
    KVT_TRY(kvt_buf_addf(
        out, "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
             "    local name=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $name in\n"));
    for (size_t c = 0; kvt_command_at(c); c++) {
        KVT_TRY(kvt_buf_addf(out, "    %s)\n        _arguments \\\n", kvt_command_at(c)->name));
        size_t i = 0;
        for (const struct kvt_opt *o; (o = next_option(kvt_command_at(c), &i)) != NULL;) KVT_TRY(zsh_option(out, o));
        KVT_TRY(kvt_buf_addf(out, "        '*:file:_files' ;;\n"));
    }
    return kvt_buf_addf(out, "    esac\n}\n_kvtile \"$@\"\n");
}

/* ---- fish ------------------------------------------------------------------------------------------------------------- */

static enum kvt_status fish_option(struct kvt_buf *out, const struct kvt_command *c, const struct kvt_opt *o) {
    const enum value value = value_of(o);
    KVT_TRY(kvt_buf_addf(out, "complete -c kvtile -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name));
    if (o->brief) KVT_TRY(kvt_buf_addf(out, o->brief[1] ? " -o %s" : " -s %s", o->brief));
    if (value == VALUE_FILE || value == VALUE_FOLDER) KVT_TRY(kvt_buf_addf(out, " -r -F"));
    if (value == VALUE_OTHER) KVT_TRY(kvt_buf_addf(out, " -x"));
    if (has_words(value)) {
        KVT_TRY(kvt_buf_addf(out, " -x -a '"));
        KVT_TRY(add_words(out, value));
        KVT_TRY(kvt_buf_addf(out, "'"));
    }
    KVT_TRY(kvt_buf_addf(out, " -d '"));
    KVT_TRY(add_about(out, o->help, fish_apostrophe));
    return kvt_buf_addf(out, "'\n");
}

static enum kvt_status fish(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(out, "# Completions of kvtile for fish: written by 'kvtile help --completions fish'.\n"));
    for (size_t i = 0; kvt_command_at(i); i++) {
        KVT_TRY(
            kvt_buf_addf(out, "complete -c kvtile -f -n __fish_use_subcommand -a %s -d '", kvt_command_at(i)->name));
        KVT_TRY(add_about(out, kvt_command_at(i)->about, fish_apostrophe));
        KVT_TRY(kvt_buf_addf(out, "'\n"));
    }
    for (size_t c = 0; kvt_command_at(c); c++) {
        size_t i = 0;
        for (const struct kvt_opt *o; (o = next_option(kvt_command_at(c), &i)) != NULL;)
            KVT_TRY(fish_option(out, kvt_command_at(c), o));
    }
    return KVT_OK;
}

const struct kvt_shell *kvt_shell_at(size_t i) {
    static const struct kvt_shell shells[] = {
        {"bash", "kvtile", bash}, {"zsh", "_kvtile", zsh}, {"fish", "kvtile.fish", fish}};
    return i < KVT_ARRAY_LEN(shells) ? &shells[i] : NULL;
}
