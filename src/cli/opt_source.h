/* SPDX-License-Identifier: Apache-2.0
 *
 * Options from elsewhere than the command line: the environment (KVTILE_KV_MEMORY is --kv-memory of every command that has it) and
 * a file, both by the option tables. The command line goes before the environment, that before the file, that before the
 * defaults. The file is named by KVTILE_CONFIG (empty: none), or is kvtile/config in $XDG_CONFIG_HOME or in ~/.config:
 *
 *     # a comment
 *     threads = 4            for every command that has the option
 *     [serve]                for that command alone
 *     port = 9000
 */
#ifndef CLI_OPT_SOURCE_H
#define CLI_OPT_SOURCE_H

#include "cli/opt.h"

enum { KVT_OPT_GIVEN_MAX = 128, KVT_OPT_FROM_MAX = 200, KVT_OPT_PATH_MAX = 1024 };

struct kvt_opt_sources {
    struct kvt_opt_given given[KVT_OPT_GIVEN_MAX]; /* weakest first */
    int n;
    char from[KVT_OPT_GIVEN_MAX][KVT_OPT_FROM_MAX];
    char path[KVT_OPT_PATH_MAX];
    struct kvt_buf file; /* the values lie in it */
};

/* What the sources say to a command. A file that is not there is none, unless KVTILE_CONFIG names it. ARG: the sentence names file and
 * line. Finish it in any case, after the settings' life. */
KVT_MUST_CHECK enum kvt_status kvt_opt_sources_read(struct kvt_opt_sources *out, const struct kvt_command *command,
                                                    struct kvt_error *err);
void kvt_opt_sources_finish(struct kvt_opt_sources *sources);

/* A KVTILE_ variable of the environment that no command has an option for, from *at on ("KVTILE_THREDS"): false past the last. */
bool kvt_opt_source_unknown(char name[KVT_OPT_VARIABLE_MAX], size_t *at);

#endif
