/* SPDX-License-Identifier: Apache-2.0
 *
 * The program's commands. Each is a row `kvt_command_NAME` in its own file cmd_NAME.c; the table is in main.c.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "cli/opt.h"

/* In the order of the help; NULL past the end. */
const struct kvt_command *kvt_command_at(size_t i);
/* By name; ARG with the nearest name if there is none. */
KVT_MUST_CHECK enum kvt_status kvt_command_find(const struct kvt_command **out, const char *name,
                                                struct kvt_error *err);

extern const struct kvt_command kvt_command_run, kvt_command_plan, kvt_command_chat, kvt_command_serve,
    kvt_command_inspect, kvt_command_cache, kvt_command_codecs, kvt_command_fidelity, kvt_command_sweep,
    kvt_command_needle, kvt_command_bench, kvt_command_version, kvt_command_help;

#endif
