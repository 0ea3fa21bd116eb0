/* SPDX-License-Identifier: Apache-2.0
 * The terminal and the process around the commands. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "cli/term.h"

#include <errno.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/check.h"
#include "base/clock.h"

/* ---- output ----------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_term_write(const char *data, size_t len, struct kvt_error *err) {
    if (fwrite(data, 1, len, stdout) == len && fflush(stdout) == 0) return KVT_OK;
    if (errno == EPIPE) return kvt_fail(err, KVT_ERR_IO, "%s", "");
    return kvt_fail(err, KVT_ERR_IO, "cannot write to standard output: %s", strerror(errno));
}

enum kvt_status kvt_term_write_report(struct kvt_buf *report, enum kvt_status made, struct kvt_error *err) {
    const enum kvt_status status = made == KVT_OK ? kvt_term_write(report->data, report->len, err)
                                                  : kvt_fail(err, made, "not enough memory for the report");
    kvt_buf_finish(report);
    return status;
}

bool kvt_term_stdout_is_tty(void) { return isatty(STDOUT_FILENO) == 1; }
bool kvt_term_stderr_is_tty(void) { return isatty(STDERR_FILENO) == 1; }

void kvt_term_error(const char *sentence) {
    char line[sizeof((struct kvt_error *)0)->text + 16];
    snprintf(line, sizeof line, "kvtile: %s", sentence);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
    fprintf(stderr, "%s\n", line);
}

const char *kvt_term_bytes(char text[KVT_TERM_BYTES_MAX], uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double)bytes;
    size_t unit = 0;
    for (; x >= 999.5 && unit + 1 < KVT_ARRAY_LEN(units); unit++) x /= 1024;
    const int digits = unit == 0 ? 0 : x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
    snprintf(text, KVT_TERM_BYTES_MAX, "%.*f %s", digits, x, units[unit]);
    return text;
}

/* ---- keys ------------------------------------------------------------------------------------------------------------- */

static struct termios keys_before;
static volatile sig_atomic_t keys_held;

/* Setting a terminal that another job has would stop this one. */
static bool has_terminal(void) { return tcgetpgrp(STDIN_FILENO) == getpgrp(); }

void kvt_term_hold_keys(void) {
    struct termios held;
    if (keys_held || !has_terminal() || tcgetattr(STDIN_FILENO, &keys_before) != 0) return;
    held = keys_before;
    held.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    keys_held = 1;
    tcsetattr(STDIN_FILENO, TCSANOW, &held);
}

void kvt_term_release_keys(void) {
    if (keys_held && has_terminal()) tcsetattr(STDIN_FILENO, TCSANOW, &keys_before);
    keys_held = 0;
}

/* ---- progress and Ctrl-C ---------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted, ended;
static bool catches_end;

static void on_interrupt(int signal_number) {
    interrupted = 1;
    kvt_term_release_keys(); /* the next signal may end the process */
    if (signal_number != SIGINT) ended = 1;
}

/* A parent that ignores Ctrl-C (a script's background job) has its way. A write that waits for a slow reader goes on after
 * the first Ctrl-C (stdio would call it a failed one), and the second ends the program. */
void kvt_term_catch_interrupt(bool breaks_reads) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction old,
        action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND | (breaks_reads ? 0 : SA_RESTART)};
    interrupted = ended;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < (catches_end ? KVT_ARRAY_LEN(numbers) : 1); i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(numbers[i], &action, NULL);
}

void kvt_term_catch_end(void) { catches_end = true; }
bool kvt_term_ended(void) { return ended != 0; }

void kvt_term_ignore_broken_pipes(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

bool kvt_term_interrupted(void) { return interrupted != 0; }

/* "1:05 left", or nothing while it is too early to say. */
static void write_time_left(char *text, size_t size, double elapsed, double share) {
    const double left = share > 0 ? elapsed / share - elapsed : 0;
    text[0] = 0;
    if (elapsed >= 2 && left < 100 * 3600) snprintf(text, size, "%d:%02d left", (int)left / 60, (int)left % 60);
}

static void draw(struct kvt_term_progress *p, const char *what, double share, double now) {
    enum { WIDTH = 40 };
    static const char full[WIDTH + 1] = "########################################";
    const int n = (int)(share * WIDTH);
    char left[32];
    write_time_left(left, sizeof left, now - p->start, share);
    fprintf(stderr, "\r%-8.20s [%.*s%*s] %3.0f %%  %-13s", what, n, full, WIDTH - n, "", 100 * share, left);
    fflush(stderr);
    p->last = now;
    p->drawn = true;
}

static void tell(struct kvt_term_progress *p, const char *what, double share, double now) {
    char left[32];
    write_time_left(left, sizeof left, now - p->start, share);
    fprintf(stderr, "kvtile: %s, %.0f %% done%s%s\n", what, 100 * share, *left ? ", " : "", left);
    p->last = now;
}

static bool report(void *ctx, const char *what, uint64_t done, uint64_t total) {
    struct kvt_term_progress *p = ctx;
    const double now = kvt_clock_seconds();
    if (p->tells && !p->what) p->last = now;
    if (what != p->what) {
        p->what = what;
        p->start = now;
    }
    const double share = total > 0 ? KVT_MIN((double)done / (double)total, 1.0) : 0;
    if (p->draws && total > 0 && now - p->last >= 0.1) draw(p, what, share, now);
    if (p->tells && share > 0 && share < 1 && now - p->last >= KVT_TERM_PROGRESS_SECONDS) tell(p, what, share, now);
    return !kvt_term_interrupted();
}

void kvt_term_progress_init(struct kvt_term_progress *p, bool quiet) {
    const bool is_tty = kvt_term_stderr_is_tty();
    *p = (struct kvt_term_progress){.draws = !quiet && is_tty, .tells = !quiet && !is_tty, .last = kvt_clock_seconds()};
    p->progress = (struct kvt_progress){report, p};
    kvt_term_catch_interrupt(false);
}

void kvt_term_progress_erase(struct kvt_term_progress *p) {
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
    p->what = NULL;
}

/* ---- the process ------------------------------------------------------------------------------------------------------ */

void kvt_term_map_large_blocks(void) {
#if defined(M_MMAP_THRESHOLD) /* glibc, which else keeps such blocks in its heaps after the first is freed */
    mallopt(M_MMAP_THRESHOLD, 1 << 16);
#endif
}

/* The whole processors of the control group's quota (version 2, its own mount as in a container); 0: no quota. */
static int quota_processors(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f) return 0;
    long quota, period;
    const bool ok = fscanf(f, "%ld %ld", &quota, &period) == 2 && quota > 0 && period > 0; /* "max" is no number */
    fclose(f);
    return ok ? (int)KVT_MAX(quota / period, 1) : 0;
}

int kvt_term_n_processors(void) {
    cpu_set_t set;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    const int quota = quota_processors();
    if (quota > 0 && quota < n) n = quota;
    return (int)KVT_MAX(n, 1);
}

enum kvt_status kvt_term_threads(struct kvt_threads **out, int64_t n, struct kvt_error *err) {
    return kvt_threads_create(out, n > 0 ? (int)n : kvt_term_n_processors(), NULL, err);
}

uint64_t kvt_term_peak_bytes(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0; /* Linux counts in KiB */
}

/* The number after a name at a line's beginning of a file; false where there is none. */
static bool number_of(const char *path, const char *name, uint64_t *out) {
    FILE *f = fopen(path, "re");
    char line[160];
    bool found = false;
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) {
        unsigned long long n;
        if (strncmp(line, name, strlen(name)) != 0 || sscanf(line + strlen(name), "%llu", &n) != 1) continue;
        *out = n;
        found = true;
    }
    fclose(f);
    return found;
}

/* What a control group's limit leaves; pages of files that nobody used of late can go. */
static bool group_bytes(uint64_t *out) {
    uint64_t max, current, files = 0;
    if (!number_of("/sys/fs/cgroup/memory.max", "", &max)) return false; /* "max" is no number */
    if (!number_of("/sys/fs/cgroup/memory.current", "", &current)) return false;
    if (!number_of("/sys/fs/cgroup/memory.stat", "inactive_file ", &files)) files = 0;
    *out = max + files > current ? max + files - current : 0;
    return true;
}

uint64_t kvt_term_free_bytes(void) {
    uint64_t kib = 0, group = 0;
    if (!number_of("/proc/meminfo", "MemAvailable:", &kib)) return 0;
    return group_bytes(&group) ? KVT_MIN(group, kib * 1024) : kib * 1024;
}
