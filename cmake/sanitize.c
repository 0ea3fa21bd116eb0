/* SPDX-License-Identifier: Apache-2.0
 * Options of the sanitizers' run-time libraries, linked into every program of a sanitized build: what OpenMP's run time does
 * inside itself is not ours to judge. */

const char *__lsan_default_suppressions(void);
const char *__tsan_default_options(void);

/* libomp keeps its threads' data to the end of the process. */
const char *__lsan_default_suppressions(void) { return "leak:libomp.so\n"; }

/* libomp is not compiled for ThreadSanitizer; its tool libarcher tells where its threads meet. */
const char *__tsan_default_options(void) { return "ignore_noninstrumented_modules=1"; }
