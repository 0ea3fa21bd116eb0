/* SPDX-License-Identifier: Apache-2.0
 * Completions for shells from the tables of commands and options. */
#include <string.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/pages.h"
#include "kvtile/kvtile.h"

/* ---- what a value is -------------------------------------------------------------------------------------------------- */

enum value { VALUE_NONE, VALUE_OTHER, VALUE_FILE, VALUE_FOLDER, VALUE_CACHE, VALUE_WORDS, VALUE_COMMAND, VALUE_COUNT };

static bool is_any(const char *text, const char *a, const char *b) {
    return text && (strcmp(text, a) == 0 || strcmp(text, b) == 0);
}

static enum value value_of(const struct kvt_opt *o) {
    const char *what = o->kind == KVT_OPT_ARG || o->kind == KVT_OPT_ARGS ? o->name : o->value;
    if (o->kind == KVT_OPT_FLAG) return VALUE_NONE;
    if (o->words || strcmp(o->name, "level") == 0) return VALUE_WORDS;
    if (is_any(what, "FILE", "MODEL") || is_any(what, "OTHER", "OTHER")) return VALUE_FILE;
    if (is_any(what, "FOLDER", "DIR")) return VALUE_FOLDER;
    if (is_any(what, "K[,V]", "TYPE") || is_any(what, "CACHE", "CACHE")) return VALUE_CACHE;
    return is_any(what, "COMMAND", "COMMAND") ? VALUE_COMMAND : VALUE_OTHER;
}

static enum kvt_status add_commands(struct kvt_buf *out) {
    for (size_t i = 0; kvt_command_at(i); i++) KVT_TRY(kvt_buf_addf(out, i ? " %s" : "%s", kvt_command_at(i)->name));
    return KVT_OK;
}

/* The names that every shell keeps as `caches`. */
static enum kvt_status add_caches(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(out, "auto"));
    for (size_t i = 0; kvt_kv_at(i); i++) KVT_TRY(kvt_buf_addf(out, " %s", kvt_kv_at(i)));
    return KVT_OK;
}

/* What o's value may be, where that is a list of words. */
static enum kvt_status add_words(struct kvt_buf *out, const struct kvt_opt *o) {
    if (value_of(o) == VALUE_COMMAND) return add_commands(out);
    return kvt_buf_addf(out, "%s", o->words ? o->words : "auto ref neon avx2 avx512 amx");
}

/* The argument of a command that comes first, if that is one of some words; NULL: it is not. */
static const struct kvt_opt *first_words(const struct kvt_command *c) {
    const struct kvt_opt *first = c->n_options > 0 ? &c->options[0] : NULL;
    if (!first || first->kind != KVT_OPT_ARG) return NULL;
    return value_of(first) == VALUE_WORDS || value_of(first) == VALUE_COMMAND ? first : NULL;
}

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

/* One arm of the case over the word before: the options of a kind of value, or the one option that has words of its own. */
static enum kvt_status bash_values(struct kvt_buf *out, const struct kvt_command *c, enum value value,
                                   const struct kvt_opt *only) {
    bool any = false;
    size_t i = 0;
    for (const struct kvt_opt *o; (o = next_option(c, &i)) != NULL;) {
        if (value_of(o) != value || (only && o != only)) continue;
        KVT_TRY(kvt_buf_addf(out, any ? " | " : "        "));
        KVT_TRY(add_names(out, o, " | "));
        any = true;
    }
    if (!any) return KVT_OK;
    if (value == VALUE_FILE) return kvt_buf_addf(out, ") _kvtile_files; return ;;\n");
    if (value == VALUE_FOLDER) return kvt_buf_addf(out, ") _kvtile_files -d; return ;;\n");
    if (value == VALUE_CACHE) return kvt_buf_addf(out, ") _kvtile_caches; return ;;\n");
    if (!only) return kvt_buf_addf(out, ") return ;;\n");
    KVT_TRY(kvt_buf_addf(out, ") _kvtile_words \""));
    KVT_TRY(add_words(out, only));
    return kvt_buf_addf(out, "\"; return ;;\n");
}

static enum kvt_status bash_command(struct kvt_buf *out, const struct kvt_command *c) {
    const struct kvt_opt *first = first_words(c);
    size_t i = 0, k = 0;
    KVT_TRY(kvt_buf_addf(out, "    %s)\n        case $before in\n", c->name));
    for (int v = VALUE_OTHER; v <= VALUE_CACHE; v++) KVT_TRY(bash_values(out, c, (enum value)v, NULL));
    for (const struct kvt_opt *o; (o = next_option(c, &k)) != NULL;)
        if (value_of(o) == VALUE_WORDS) KVT_TRY(bash_values(out, c, VALUE_WORDS, o));
    KVT_TRY(kvt_buf_addf(out, "        esac\n        options=\"--help"));
    for (const struct kvt_opt *o; (o = next_option(c, &i)) != NULL;) KVT_TRY(kvt_buf_addf(out, " --%s", o->name));
    KVT_TRY(kvt_buf_addf(out, "\""));
    if (!first) return kvt_buf_addf(out, " ;;\n");
    KVT_TRY(kvt_buf_addf(out, " first=\""));
    KVT_TRY(add_words(out, first));
    return kvt_buf_addf(out, "\" ;;\n");
}

static enum kvt_status bash(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(out, "# Completions of kvtile for bash: written by 'kvtile help --completions bash'.\n"
                              "_kvtile_words() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$now\"); }\n"
                              "_kvtile_files() {\n    compopt -o filenames 2>/dev/null\n"
                              "    mapfile -t COMPREPLY < <(compgen \"${1:--f}\" -- \"$now\")\n}\n"
                              "_kvtile_caches() { # one, or one for the keys and one for the values\n    local head=\n"
                              "    if [[ $now == *,* ]]; then head=${now%%,*},; fi\n"
                              "    mapfile -t COMPREPLY < <(compgen -P \"$head\" -W \""));
    KVT_TRY(add_caches(out));
    KVT_TRY(kvt_buf_addf(
        out,
        "\" -- \"${now##*,}\")\n}\n"
        "_kvtile() {\n    local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options= first=\n"
        "    if [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi # --name=value comes in three words\n"
        "    if [ \"$now\" = = ]; then now=; fi\n"
        "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        _kvtile_words \""));
    KVT_TRY(add_commands(out));
    KVT_TRY(kvt_buf_addf(out, " --help --version\"\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n"));
    for (size_t i = 0; kvt_command_at(i); i++) KVT_TRY(bash_command(out, kvt_command_at(i)));
    return kvt_buf_addf(
        out, "    esac\n    if [[ $now == -* ]]; then\n        _kvtile_words \"$options\"\n"
             "    elif [ \"$COMP_CWORD\" -eq 2 ] && [ -n \"$first\" ]; then\n        _kvtile_words \"$first\"\n"
             "    else\n        _kvtile_files\n    fi\n}\ncomplete -F _kvtile kvtile\n");
}

/* ---- zsh -------------------------------------------------------------------------------------------------------------- */

static const char zsh_apostrophe[] = "'\\''", fish_apostrophe[] = "\\'";

/* ":what:how" of a value or an argument. */
static enum kvt_status zsh_value(struct kvt_buf *out, const struct kvt_opt *o) {
    static const char *const how[VALUE_COUNT] = {[VALUE_NONE] = "",
                                                 [VALUE_OTHER] = ":value:",
                                                 [VALUE_FILE] = ":file:_files",
                                                 [VALUE_FOLDER] = ":folder:_files -/",
                                                 [VALUE_CACHE] = ":cache:_sequence -n 2 compadd -a - caches",
                                                 [VALUE_WORDS] = ":name:(",
                                                 [VALUE_COMMAND] = ":command:("};
    const enum value value = value_of(o);
    KVT_TRY(kvt_buf_addf(out, "%s", how[value]));
    if (value != VALUE_WORDS && value != VALUE_COMMAND) return KVT_OK;
    KVT_TRY(add_words(out, o));
    return kvt_buf_addf(out, ")");
}

static enum kvt_status zsh_option(struct kvt_buf *out, const struct kvt_opt *o) {
    if (o->brief)
        KVT_TRY(kvt_buf_addf(out, "        '(-%s --%s)'{-%s,--%s}'[", o->brief, o->name, o->brief, o->name));
    else
        KVT_TRY(kvt_buf_addf(out, "        '%s--%s[", o->kind == KVT_OPT_TEXTS ? "*" : "", o->name));
    KVT_TRY(add_about(out, o->help, zsh_apostrophe));
    KVT_TRY(kvt_buf_addf(out, "]"));
    KVT_TRY(zsh_value(out, o));
    return kvt_buf_addf(out, "' \\\n");
}

/* A command's options, then its arguments in their order. */
static enum kvt_status zsh_command(struct kvt_buf *out, const struct kvt_command *c) {
    size_t i = 0, at;
    KVT_TRY(kvt_buf_addf(out, "    %s)\n        _arguments \\\n", c->name));
    for (const struct kvt_opt *o; (o = next_option(c, &i)) != NULL;) KVT_TRY(zsh_option(out, o));
    i = 0;
    for (const struct kvt_opt *o; (o = kvt_opt_at(c, i, &at)) != NULL; i++) {
        if (o->kind != KVT_OPT_ARG && o->kind != KVT_OPT_ARGS) continue;
        KVT_TRY(kvt_buf_addf(out, "        '%s", o->kind == KVT_OPT_ARGS ? "*" : ""));
        KVT_TRY(zsh_value(out, o));
        KVT_TRY(kvt_buf_addf(out, "' \\\n"));
    }
    return kvt_buf_addf(out, "        '(- *)'{-h,--help}'[explain the command]' ;;\n");
}

static enum kvt_status zsh(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(
        out, "#compdef kvtile\n# Completions of kvtile for zsh: written by 'kvtile help --completions zsh'.\n"
             "_kvtile() {\n    local -a commands caches\n    caches=("));
    KVT_TRY(add_caches(out));
    KVT_TRY(kvt_buf_addf(out, ")\n    commands=(\n"));
    for (size_t i = 0; kvt_command_at(i); i++) {
        KVT_TRY(kvt_buf_addf(out, "        '%s:", kvt_command_at(i)->name));
        KVT_TRY(add_about(out, kvt_command_at(i)->about, zsh_apostrophe));
        KVT_TRY(kvt_buf_addf(out, "'\n"));
    }
    KVT_TRY(kvt_buf_addf(
        out, "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
             "    local name=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $name in\n"));
    for (size_t i = 0; kvt_command_at(i); i++) KVT_TRY(zsh_command(out, kvt_command_at(i)));
    return kvt_buf_addf(out, "    esac\n}\n_kvtile \"$@\"\n");
}

/* ---- fish ------------------------------------------------------------------------------------------------------------- */

static enum kvt_status fish_option(struct kvt_buf *out, const struct kvt_command *c, const struct kvt_opt *o) {
    const enum value value = value_of(o);
    KVT_TRY(kvt_buf_addf(out, "complete -c kvtile -n '__kvtile_is %s' -l %s", c->name, o->name));
    if (o->brief) KVT_TRY(kvt_buf_addf(out, o->brief[1] ? " -o %s" : " -s %s", o->brief));
    if (value == VALUE_FILE || value == VALUE_FOLDER) KVT_TRY(kvt_buf_addf(out, " -r -F"));
    if (value == VALUE_OTHER) KVT_TRY(kvt_buf_addf(out, " -x"));
    if (value == VALUE_CACHE) KVT_TRY(kvt_buf_addf(out, " -x -a '(__fish_complete_list , __kvtile_caches)'"));
    if (value == VALUE_WORDS) {
        KVT_TRY(kvt_buf_addf(out, " -x -a '"));
        KVT_TRY(add_words(out, o));
        KVT_TRY(kvt_buf_addf(out, "'"));
    }
    KVT_TRY(kvt_buf_addf(out, " -d '"));
    KVT_TRY(add_about(out, o->help, fish_apostrophe));
    return kvt_buf_addf(out, "'\n");
}

/* A command's first argument, where it is one of some words. */
static enum kvt_status fish_first(struct kvt_buf *out, const struct kvt_command *c) {
    if (!first_words(c)) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "complete -c kvtile -f -n '__kvtile_is %s 2' -a '", c->name));
    KVT_TRY(add_words(out, first_words(c)));
    return kvt_buf_addf(out, "'\n");
}

static enum kvt_status fish(struct kvt_buf *out) {
    KVT_TRY(kvt_buf_addf(
        out, "# Completions of kvtile for fish: written by 'kvtile help --completions fish'.\n"
             "function __kvtile_is # COMMAND [N]: it is the first word, and there are N before the cursor\n"
             "    set -l words (commandline -opc)\n"
             "    test \"$words[2]\" = $argv[1]; and test (count $words) = \"$argv[2]\" -o -z \"$argv[2]\"\n"
             "end\nfunction __kvtile_caches\n    string split ' ' '"));
    KVT_TRY(add_caches(out));
    KVT_TRY(kvt_buf_addf(out, "'\nend\n"));
    for (size_t i = 0; kvt_command_at(i); i++) {
        KVT_TRY(kvt_buf_addf(out, "complete -c kvtile -f -n '__kvtile_is \"\" 1' -a %s -d '", kvt_command_at(i)->name));
        KVT_TRY(add_about(out, kvt_command_at(i)->about, fish_apostrophe));
        KVT_TRY(kvt_buf_addf(out, "'\n"));
    }
    for (size_t c = 0; kvt_command_at(c); c++) {
        size_t i = 0;
        KVT_TRY(fish_first(out, kvt_command_at(c)));
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
