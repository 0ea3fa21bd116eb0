/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "kvtile/version.h"

const char *kvt_version(void) { return KVT_VERSION_STRING; }

const char *kvt_status_name(enum kvt_status status) {
    switch (status) {
    case KVT_OK: return "OK";
#define X(name, value, text)                                                                                           \
    case KVT_ERR_##name: return #name;
        KVT_STATUS_MAP(X)
#undef X
    }
    return "UNKNOWN";
}

const char *kvt_status_text(enum kvt_status status) {
    switch (status) {
    case KVT_OK: return "success";
#define X(name, value, text)                                                                                           \
    case KVT_ERR_##name: return text;
        KVT_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

enum kvt_status kvt_fail(struct kvt_error *err, enum kvt_status code, const char *format, ...) {
    if (err) {
        char text[sizeof err->text];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        err->code = code;
        memcpy(err->text, text, strlen(text) + 1);
    }
    return code;
}

#if defined(KVT_ASSERTS)
void kvt_assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}
#endif
