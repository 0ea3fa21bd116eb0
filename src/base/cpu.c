/* SPDX-License-Identifier: Apache-2.0
 * Levels: which bundle of instructions this processor has and its operating system saves. */
#include <string.h>

#include "base/check.h"
#include "kvtile/runtime.h"

static const char *const names[KVT_LEVEL_COUNT] = {
#define X(id, name) [KVT_LEVEL_##id] = name,
    KVT_LEVEL_MAP(X)
#undef X
};

bool kvt_level_runs(enum kvt_level level) {
    switch (level) {
    case KVT_LEVEL_REF: return true;
#if defined(__aarch64__)
    case KVT_LEVEL_NEON: return true;
#elif defined(__x86_64__)
    /* __builtin_cpu_supports checks XCR0 as well as CPUID. */
    case KVT_LEVEL_AVX2:
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    case KVT_LEVEL_AVX512:
        return kvt_level_runs(KVT_LEVEL_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
               __builtin_cpu_supports("avx512vnni");
#endif
    default: return false;
    }
}

enum kvt_level kvt_level_best(void) {
    int level = KVT_LEVEL_COUNT - 1;
    while (!kvt_level_runs((enum kvt_level)level)) level--;
    return (enum kvt_level)level;
}

const char *kvt_level_name(enum kvt_level level) {
    return (unsigned)level < KVT_LEVEL_COUNT ? names[level] : "unknown";
}

enum kvt_status kvt_level_parse(enum kvt_level *out, const char *name, struct kvt_error *err) {
    if (strcmp(name, "auto") == 0) {
        *out = kvt_level_best();
        return KVT_OK;
    }
    for (int i = 0; i < KVT_LEVEL_COUNT; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        if (!kvt_level_runs((enum kvt_level)i))
            return kvt_fail(err, KVT_ERR_UNSUPPORTED, "level %s cannot run on this processor; the best here is %s",
                            name, kvt_level_name(kvt_level_best()));
        *out = (enum kvt_level)i;
        return KVT_OK;
    }
    return kvt_fail(err, KVT_ERR_ARG, "unknown level '%s'; known: auto, ref, neon, avx2, avx512", name);
}
