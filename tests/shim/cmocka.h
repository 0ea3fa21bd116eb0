/* SPDX-License-Identifier: Apache-2.0
 * The part of cmocka's interface that the tests use, in one header: for cross builds, where the library is not at hand.
 * A use of anything else fails to compile there. */
#ifndef SHIM_CMOCKA_H
#define SHIM_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    int (*setup_func)(void **state);
    int (*teardown_func)(void **state);
    void *initial_state;
};

static jmp_buf shim_return; /* 1: failed, 2: skipped */

__attribute__((unused, format(printf, 1, 2))) static void print_message(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

__attribute__((unused, format(printf, 1, 2))) static void print_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}

__attribute__((unused, noreturn)) static void shim_end(int how, const char *file, int line) {
    fprintf(stderr, "[  LINE    ] --- %s:%d: %s\n", file, line, how == 1 ? "error: Failure!" : "skipped");
    longjmp(shim_return, how);
}

#define shim_require(condition, ...)                                                                                   \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            print_error(__VA_ARGS__);                                                                                  \
            shim_end(1, __FILE__, __LINE__);                                                                           \
        }                                                                                                              \
    } while (0)

#define fail()                     shim_end(1, __FILE__, __LINE__)
#define skip()                     shim_end(2, __FILE__, __LINE__)
#define fail_msg(...)              shim_require(0, "ERROR: " __VA_ARGS__)
#define assert_true(c)             shim_require((c), "%s\n", #c)
#define assert_false(c)            shim_require(!(c), "!(%s)\n", #c)
#define assert_non_null(p)         shim_require((p) != NULL, "%s is null\n", #p)
#define assert_null(p)             shim_require((p) == NULL, "%s is not null\n", #p)
#define assert_ptr_equal(a, b)     shim_require((const void *)(a) == (const void *)(b), "%s != %s\n", #a, #b)
#define assert_ptr_not_equal(a, b) shim_require((const void *)(a) != (const void *)(b), "%s == %s\n", #a, #b)
#define assert_int_equal(a, b)                                                                                         \
    shim_require((unsigned long long)(a) == (unsigned long long)(b), "%#llx != %#llx\n", (unsigned long long)(a),      \
                 (unsigned long long)(b))
#define assert_int_not_equal(a, b)                                                                                     \
    shim_require((unsigned long long)(a) != (unsigned long long)(b), "%#llx == %#llx\n", (unsigned long long)(a),      \
                 (unsigned long long)(b))
#define assert_in_range(value, low, high)                                                                              \
    shim_require((unsigned long long)(value) >= (unsigned long long)(low) &&                                           \
                     (unsigned long long)(value) <= (unsigned long long)(high),                                        \
                 "%llu is not within the range %llu-%llu\n", (unsigned long long)(value), (unsigned long long)(low),   \
                 (unsigned long long)(high))
#define assert_float_equal(a, b, epsilon)                                                                              \
    shim_require((float)(a) - (float)(b) <= (float)(epsilon) && (float)(b) - (float)(a) <= (float)(epsilon),           \
                 "%f != %f\n", (double)(a), (double)(b))
#define assert_string_equal(a, b)        shim_require(strcmp(a, b) == 0, "\"%s\" != \"%s\"\n", a, b)
#define assert_string_not_equal(a, b)    shim_require(strcmp(a, b) != 0, "\"%s\" == \"%s\"\n", a, b)
#define assert_memory_equal(a, b, n)     shim_require(memcmp(a, b, n) == 0, "%s and %s differ\n", #a, #b)
#define assert_memory_not_equal(a, b, n) shim_require(memcmp(a, b, n) != 0, "%s and %s are the same\n", #a, #b)

#define cmocka_unit_test(f)                                                                                            \
    { #f, f, NULL, NULL, NULL }
#define cmocka_unit_test_setup(f, setup)                                                                               \
    { #f, f, setup, NULL, NULL }
#define cmocka_unit_test_teardown(f, teardown)                                                                         \
    { #f, f, NULL, teardown, NULL }
#define cmocka_unit_test_setup_teardown(f, setup, teardown)                                                            \
    { #f, f, setup, teardown, NULL }
#define cmocka_unit_test_prestate(f, state)                                                                            \
    { #f, f, NULL, NULL, state }

/* 0: passed, 1: failed, 2: skipped. */
__attribute__((unused)) static int shim_run_one(const struct CMUnitTest *test, void *group_state) {
    void *state = test->initial_state ? test->initial_state : group_state;
    const int how = setjmp(shim_return);
    if (how == 0) {
        if (test->setup_func && test->setup_func(&state) != 0) return 1;
        test->test_func(&state);
    }
    if (how == 0 && test->teardown_func && test->teardown_func(&state) != 0) return 1;
    return how;
}

__attribute__((unused)) static int shim_run_group(const char *group, const struct CMUnitTest *tests, size_t n,
                                                  int (*setup)(void **), int (*teardown)(void **)) {
    static const char *const words[] = {"[       OK ]", "[  FAILED  ]", "[  SKIPPED ]"};
    int count[3] = {0, 0, 0};
    void *state = NULL;
    printf("[==========] %s: Running %zu test(s).\n", group, n);
    if (setup && setup(&state) != 0) {
        fprintf(stderr, "[  FAILED  ] GROUP SETUP\n");
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        const int how = shim_run_one(&tests[i], state);
        count[how]++;
        printf("%s %s\n", words[how], tests[i].name);
        fflush(stdout);
    }
    if (teardown && teardown(&state) != 0) count[1]++;
    printf("[  PASSED  ] %d test(s).\n", count[0]);
    if (count[2]) printf("[  SKIPPED ] %d test(s).\n", count[2]);
    if (count[1]) printf("[  FAILED  ] %d test(s).\n", count[1]);
    return count[1];
}

#define cmocka_run_group_tests(tests, setup, teardown)                                                                 \
    shim_run_group(#tests, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                                      \
    shim_run_group(name, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

#endif
