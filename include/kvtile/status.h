/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and the error sentence.
 *
 * A function that can fail returns an `enum kvt_status`: 0 is success, every failure is negative. On failure its
 * out-parameters are untouched. Where a function takes a `struct kvt_error *`, it may be NULL; otherwise a failure
 * fills it with one sentence that names the thing, the limit and what would work.
 */
#ifndef KVTILE_STATUS_H
#define KVTILE_STATUS_H

#if defined(KVT_STATIC)
#define KVT_API
#else
#define KVT_API __attribute__((visibility("default")))
#endif
#define KVT_MUST_CHECK __attribute__((warn_unused_result))

#ifdef __cplusplus
extern "C" {
#endif

/* Every status, once: name, pinned value, meaning. */
#define KVT_STATUS_MAP(X)                                                                                              \
    X(NOMEM, -1, "out of memory")                                                                                      \
    X(ARG, -2, "invalid argument")                                                                                     \
    X(FORMAT, -3, "malformed data")                                                                                    \
    X(UNSUPPORTED, -4, "not supported")                                                                                \
    X(IO, -5, "input or output failed")                                                                                \
    X(RANGE, -6, "a number is out of range")                                                                           \
    X(STATE, -7, "the object is not in a state that allows it")                                                        \
    X(LIMIT, -8, "a limit set by the caller was reached")                                                              \
    X(DEVICE, -9, "the device failed")                                                                                 \
    X(CANCELLED, -10, "cancelled")                                                                                     \
    X(NOTFOUND, -11, "not found")

enum kvt_status {
    KVT_OK = 0,
#define X(name, value, text) KVT_ERR_##name = (value),
    KVT_STATUS_MAP(X)
#undef X
};

/* One sentence about a failure. Filled by the callee; owns nothing, may be reused. */
struct kvt_error {
    enum kvt_status code;
    char text[500];
};

/* The name of a status ("NOMEM") and its general meaning. Any value is accepted. Thread-safe; static storage. */
KVT_API const char *kvt_status_name(enum kvt_status status);
KVT_API const char *kvt_status_text(enum kvt_status status);

#ifdef __cplusplus
}
#endif
#endif
