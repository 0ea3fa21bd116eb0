/* SPDX-License-Identifier: Apache-2.0
 * How a long run shows where nobody sees a terminal. */
#define _GNU_SOURCE /* cli/term.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/term.c"

/* Lets reports come `seconds` apart, and gives what they write. */
static void reports(char *text, size_t size, const char *const *what, int n, double seconds, bool quiet) {
    struct kvt_term_progress p;
    FILE *file = tmpfile();
    const int before = dup(STDERR_FILENO);
    assert_non_null(file);
    assert_true(before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    kvt_term_progress_init(&p, quiet);
    for (int i = 0; i < n; i++) {
        const bool goes_on =
            what[i] == NULL || p.progress.report(p.progress.ctx, what[i], (uint64_t)i + 1, (uint64_t)n);
        if (!what[i]) kvt_term_progress_erase(&p);
        assert_true(goes_on);
        p.last -= seconds;
        p.start -= seconds;
    }
    kvt_term_progress_erase(&p);
    fflush(stderr);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

static void expect(const char *const *what, int n, double seconds, bool quiet, const char *text) {
    char said[400];
    reports(said, sizeof said, what, n, seconds, quiet);
    assert_string_equal(said, text);
}

static void lines_in_a_file(void **state) {
    static const char *const what[] = {"filling", "filling", "measuring", "measuring"};
    (void)state;
    expect(what, 4, 20, false, "kvtile: filling, 50 % done, 0:20 left\nkvtile: measuring, 75 % done\n");
    expect(what, 4, 20, true, "");
    expect(what, 4, 4, false, "");
}

/* Work that begins a minute after other work has ended is not late. */
static void work_begins_anew(void **state) {
    static const char *const what[] = {"prompt", NULL, "prompt", "prompt"};
    (void)state;
    expect(what, 3, 60, false, "");
    expect(what, 4, 60, false, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_in_a_file), cmocka_unit_test(work_begins_anew)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
