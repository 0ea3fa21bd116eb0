/* SPDX-License-Identifier: Apache-2.0
 * Decoded weights are those of the `gguf` Python package, to the bit, at every level; tests/compare/weights.py made the
 * hashes in tests/golden/weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "support/guard.h"
#include "support/weight_data.h"
#include "weight/type.h"

enum { N_PARTS = 8 };

static uint64_t fnv(const float *values, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, values + i, 4);
        h = (h ^ word) * 0x100000001B3u;
    }
    return h;
}

static const struct kvt_weight_type *type_by_name(const char *name) {
    for (size_t i = 0; i < kvt_weight_type_count(); i++)
        if (strcmp(kvt_weight_type_name(kvt_weight_type_at(i)), name) == 0) return kvt_weight_type_at(i);
    return NULL;
}

/* One line of the golden file, at every level that runs here. */
static void check_line(const char *name, uint64_t seed, int n, const uint64_t want[N_PARTS]) {
    const struct weight_layout *layout = weight_layout_find(name);
    const struct kvt_weight_type *type = type_by_name(name);
    assert_non_null(layout);
    assert_non_null(type);
    const size_t bytes = (size_t)n * (size_t)layout->block_bytes, len = (size_t)n * (size_t)layout->block_len;
    struct guard packed, decoded;
    assert_true(guard_init(&packed, bytes) && guard_init(&decoded, len * sizeof(float)));
    unsigned char *src = guard_last(&packed, bytes);
    float *dst = (float *)(void *)guard_last(&decoded, len * sizeof(float));
    weight_data_fill(src, layout, n, seed);
    const struct kvt_weight w = {type, src, (int64_t)len, 1, bytes, NULL};
    for (int level = 0; level < KVT_LEVEL_COUNT; level++) {
        const enum kvt_level l = (enum kvt_level)level;
        if (!kvt_level_runs(l) || (level > 0 && kvt_weight_kernels_find(type, l) ==
                                                    kvt_weight_kernels_find(type, (enum kvt_level)(level - 1))))
            continue;
        memset(dst, 0xAA, len * sizeof(float));
        kvt_weight_row(&w, 0, dst, l);
        for (int part = 0; part < N_PARTS; part++) {
            const uint64_t got = fnv(dst + (size_t)part * len / N_PARTS, len / N_PARTS);
            if (got != want[part]) print_error("%s at level %s: part %d differs\n", name, kvt_level_name(l), part);
            assert_true(got == want[part]);
        }
    }
    guard_finish(&packed);
    guard_finish(&decoded);
}

static void golden(void **state) {
    (void)state;
    FILE *f = fopen(KVT_ROOT "/tests/golden/weights/decode.txt", "r");
    assert_non_null(f);
    char line[400];
    size_t n_types = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#') continue;
        char name[16];
        unsigned long long seed, want[N_PARTS];
        int n, at = 0;
        assert_int_equal(sscanf(line, "%15s %llu %d%n", name, &seed, &n, &at), 3);
        uint64_t hashes[N_PARTS];
        for (int i = 0; i < N_PARTS; i++) {
            int used = 0;
            assert_int_equal(sscanf(line + at, "%llx%n", &want[i], &used), 1);
            hashes[i] = want[i];
            at += used;
        }
        check_line(name, seed, n, hashes);
        n_types++;
    }
    fclose(f);
    assert_int_equal(n_types, kvt_weight_type_count());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
