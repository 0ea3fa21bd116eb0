/* SPDX-License-Identifier: Apache-2.0
 * Levels: which bundle of instructions this processor has and its operating system saves. */
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#include "base/check.h"
#include "kvtile/runtime.h"

static const char *const names[KVT_LEVEL_COUNT] = {
#define X(id, name) [KVT_LEVEL_##id] = name,
    KVT_LEVEL_MAP(X)
#undef X
};

#if defined(__x86_64__)
/* Not every compiler that we support knows this feature by name. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* What the operating system saves of this thread; only where it says that it does. */
static uint64_t saved_state(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}

/* Linux gives tiles to processes that ask for them, whose threads may then use them. */
static bool may_use_tiles(void) {
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

/* Nor these. */
static bool has_amx(void) {
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25, all = amx_bf16 | amx_tile | amx_int8;
    const unsigned avx512_bf16 = 1u << 5;
    const uint64_t tiles = 3u << 17;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & all) != all) return false;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & avx512_bf16)) return false;
    return (saved_state() & tiles) == tiles && may_use_tiles();
}
#endif

bool kvt_level_runs(enum kvt_level level) {
    switch (level) {
    case KVT_LEVEL_REF: return true;
#if defined(__aarch64__)
    case KVT_LEVEL_NEON: return true;
#elif defined(__x86_64__)
    /* __builtin_cpu_supports checks XCR0 as well as CPUID. */
    case KVT_LEVEL_AVX2:
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
               has_f16c();
    case KVT_LEVEL_AVX512:
        return kvt_level_runs(KVT_LEVEL_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
               __builtin_cpu_supports("avx512vnni");
    case KVT_LEVEL_AMX: return kvt_level_runs(KVT_LEVEL_AVX512) && has_amx();
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
    if (!out || !name) return kvt_fail(err, KVT_ERR_ARG, "kvt_level_parse needs a place for the result and a name");
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
#define X(id, name) ", " name
    return kvt_fail(err, KVT_ERR_ARG, "unknown level '%s'; known: auto" KVT_LEVEL_MAP(X), name);
#undef X
}
