/* SPDX-License-Identifier: Apache-2.0
 * Options of the sanitizers' run-time libraries, linked into every program of a sanitized build. */

const char *__tsan_default_options(void);

/* OpenBLAS is not compiled for ThreadSanitizer: what it does inside itself is not ours to judge. */
const char *__tsan_default_options(void) { return "ignore_noninstrumented_modules=1"; }
