/* SPDX-License-Identifier: Apache-2.0
 * The terminal and the process: output that may fail, one-line errors, a progress bar, Ctrl-C, threads, peak memory. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include "base/buf.h"
#include "base/progress.h"
#include "kvtile/kvtile.h"

/* Writes to standard output and flushes it. A pipe that its reader closed fails with an empty sentence: nothing is to be
 * said about it. */
KVT_MUST_CHECK enum kvt_status kvt_term_write(const char *data, size_t len, struct kvt_error *err);
/* The same with a report that `made` says was made or not, which ends its life. */
KVT_MUST_CHECK enum kvt_status kvt_term_write_report(struct kvt_buf *report, enum kvt_status made,
                                                     struct kvt_error *err);
bool kvt_term_stdout_is_tty(void);
bool kvt_term_stderr_is_tty(void);

/* "kvtile: sentence" on standard error, on one line whatever the sentence holds. */
void kvt_term_error(const char *sentence);

/* A progress bar on standard error, with the time left, that also ends the work when Ctrl-C was pressed: from init on it sets
 * a flag, a second one ends the process at once. Where standard error is no terminal the bar is a line now and then, so that what a
 * file or a pipe shows of a long run is not silence, and of a short one nothing. `quiet`: neither. */
enum { KVT_TERM_PROGRESS_SECONDS = 15 }; /* from line to line */
struct kvt_term_progress {
    struct kvt_progress progress; /* to pass down */
    bool draws, drawn, tells;
    const char *what; /* the work at hand, by its address */
    double start, last;
};
void kvt_term_progress_init(struct kvt_term_progress *p, bool quiet); /* p must stay where it is */
void kvt_term_progress_erase(struct kvt_term_progress *p);            /* that work has ended */

bool kvt_term_interrupted(void);
/* Forgets a Ctrl-C and waits for the next, as init does. With breaks_reads it also ends a read that waits (EINTR). */
void kvt_term_catch_interrupt(bool breaks_reads);
/* Keys typed from now on are kept as they are, unseen, until they are released, which Ctrl-C does too. A terminal that reads lines would
 * turn Ctrl-D into an end at once, and lose it where an editor of lines takes over. */
void kvt_term_hold_keys(void);
void kvt_term_release_keys(void); /* async-signal-safe; also where none are held */

/* From the next catch on a terminal that goes away and a request to end (SIGHUP, SIGTERM) count as a Ctrl-C that is never forgotten. */
void kvt_term_catch_end(void);
bool kvt_term_ended(void);
/* Broken pipes, and files that reach the limit of a process (ulimit -f), become write errors. */
void kvt_term_ignore_broken_pipes(void);

/* From now on blocks of 64 KiB and more come from the system one by one and go back to it. Pages of 16-bit rows are such blocks, and come and
 * go between the smaller ones of encoded rows: in one heap a server's memory would creep up by the holes between them. */
void kvt_term_map_large_blocks(void);

/* The processors that this process may use: its affinity mask and its control group's quota. At least 1. */
int kvt_term_n_processors(void);
/* Threads for -t: n, or where n is 0 as many as kvt_term_n_processors says. */
KVT_MUST_CHECK enum kvt_status kvt_term_threads(struct kvt_threads **out, int64_t n, struct kvt_error *err);

/* Memory that new pages can have now: of the machine, or what the control group leaves of it. 0: unknown. */
uint64_t kvt_term_free_bytes(void);
/* The most memory that the process has had resident. */
uint64_t kvt_term_peak_bytes(void);

/* "812 B", "64.0 KiB", "1.25 GiB": three digits, into text, which is returned. */
enum { KVT_TERM_BYTES_MAX = 16 };
const char *kvt_term_bytes(char text[KVT_TERM_BYTES_MAX], uint64_t bytes);

#endif
