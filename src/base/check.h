/* SPDX-License-Identifier: Apache-2.0
 * Errors as values: the world's faults are statuses with a sentence, ours are assertions. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stdlib.h>

#include "base/attr.h"
#include "kvtile/status.h"

/* Writes the sentence into err (if any) and returns code: return kvt_fail(err, KVT_ERR_ARG, "...", ...). The arguments may
 * be parts of err itself, so a caller can put words before its callee's sentence. */
enum kvt_status kvt_fail(struct kvt_error *err, enum kvt_status code, const char *format, ...) KVT_PRINTF(3, 4);

/* Passes a failure up unchanged. */
#define KVT_TRY(call)                                                                                                  \
    do {                                                                                                               \
        const enum kvt_status kvt_try_status = (call);                                                                 \
        if (kvt_try_status != KVT_OK) return kvt_try_status;                                                           \
    } while (0)

/* Passes a failure to the function's clean-up label; needs a local `status`. */
#define KVT_TRY_OUT(call)                                                                                              \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != KVT_OK) goto out;                                                                                \
    } while (0)

/* A condition that only our own mistake can break. On in dev and test builds (KVT_ASSERTS). */
#if defined(KVT_ASSERTS)
void kvt_assert_failed(const char *condition, const char *file, int line) __attribute__((noreturn));
#define KVT_ASSERT(c) ((c) ? (void)0 : kvt_assert_failed(#c, __FILE__, __LINE__))
#else
#define KVT_ASSERT(c) ((void)sizeof(c))
#endif

#endif
