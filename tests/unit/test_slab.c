/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages out of slabs, over a source that counts: no two pages overlap, what comes back is used again, empty slabs go, little
 * memory is used to the last page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "backend/slab.h"
#include "base/rng.h"

/* A source of addresses that nobody looks at. */
struct place {
    uintptr_t next;
    size_t live, most; /* bytes; most: 0 is any number */
    int n_slabs;
    struct {
        uintptr_t at;
        size_t bytes;
    } slab[64];
};

static enum kvt_status take(void *arg, void **out, size_t bytes, struct kvt_error *err) {
    struct place *place = arg;
    (void)err;
    if (place->most && place->live + bytes > place->most) return KVT_ERR_NOMEM;
    assert_true(place->n_slabs < 64);
    place->slab[place->n_slabs].at = place->next;
    place->slab[place->n_slabs++].bytes = bytes;
    place->live += bytes;
    *out = (void *)place->next;
    place->next += bytes + 4096;
    return KVT_OK;
}

static void give(void *arg, void *memory) {
    struct place *place = arg;
    int i = 0;
    while (i < place->n_slabs && place->slab[i].at != (uintptr_t)memory) i++;
    assert_true(i < place->n_slabs);
    place->live -= place->slab[i].bytes;
    place->slab[i] = place->slab[--place->n_slabs];
}

struct fixture {
    struct kvt_alloc_counter counter;
    struct kvt_allocator allocator;
    struct place place;
    struct kvt_slabs slabs;
};

static void open(struct fixture *f) {
    memset(f, 0, sizeof *f);
    f->place.next = 1 << 20;
    f->allocator = kvt_allocator_counted(&f->counter);
    const struct kvt_slab_source source = {&f->place, take, give};
    assert_int_equal(kvt_slabs_init(&f->slabs, &f->allocator, &source, 2, NULL), KVT_OK);
}

static void close(struct fixture *f) {
    assert_int_equal(f->slabs.used, 0);
    kvt_slabs_finish(&f->slabs);
    assert_int_equal(f->place.live, 0);
    assert_int_equal(f->counter.live_bytes, 0);
}

enum { SMALL = 3 * 64 + KVT_PAGE_HEADER, LARGE = (9 << 20) + KVT_PAGE_HEADER, N = 500 };

static void check_apart(struct kvt_page *const *pages, const size_t *bytes, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i && pages[i]; j++) {
            const uintptr_t a = (uintptr_t)pages[i]->tiles, b = pages[j] ? (uintptr_t)pages[j]->tiles : 0;
            assert_int_equal(a % KVT_SLAB_ALIGN, 0);
            if (b) assert_true(a + bytes[i] - KVT_PAGE_HEADER <= b || b + bytes[j] - KVT_PAGE_HEADER <= a);
        }
}

static void test_many(void **state) {
    (void)state;
    struct fixture f;
    struct kvt_page *pages[N] = {NULL};
    size_t bytes[N] = {0};
    struct kvt_rng rng = {7};
    open(&f);
    for (int round = 0; round < 20000; round++) {
        const int i = (int)kvt_rng_below(&rng, N);
        if (pages[i]) {
            kvt_slabs_give(&f.slabs, pages[i]);
            pages[i] = NULL;
        } else {
            bytes[i] = i % 25 ? SMALL : LARGE;
            assert_int_equal(kvt_slabs_take(&f.slabs, bytes[i], 0, &pages[i], NULL), KVT_OK);
        }
        assert_int_equal(f.slabs.reserved, f.place.live);
        if (round % 1000 == 0) check_apart(pages, bytes, N);
    }
    for (int i = 0; i < N; i++)
        if (pages[i]) kvt_slabs_give(&f.slabs, pages[i]);
    assert_int_equal(f.place.n_slabs, 2); /* one of each size stays */
    close(&f);
}

/* A limit of bytes gives small slabs; where the source has less than a slab, its last page is found. */
static void test_little(void **state) {
    (void)state;
    struct fixture f;
    struct kvt_page *pages[8];
    open(&f);
    const size_t step = LARGE - KVT_PAGE_HEADER;
    assert_int_equal(kvt_slabs_take(&f.slabs, LARGE, step, &pages[0], NULL), KVT_OK);
    assert_int_equal(f.slabs.reserved, step);
    f.place.most = 4 * step + step / 2;
    for (int i = 1; i < 4; i++) assert_int_equal(kvt_slabs_take(&f.slabs, LARGE, 0, &pages[i], NULL), KVT_OK);
    assert_int_equal(kvt_slabs_take(&f.slabs, LARGE, 0, &pages[4], NULL), KVT_ERR_NOMEM);
    assert_int_equal(f.slabs.used, 4 * step);
    for (int i = 0; i < 4; i++) kvt_slabs_give(&f.slabs, pages[i]);
    close(&f);
}

/* Headers are the process's memory, and may be refused. */
static void test_no_headers(void **state) {
    (void)state;
    struct fixture f;
    struct kvt_page *page;
    struct kvt_error err;
    open(&f);
    f.counter.fail_at = 1;
    assert_int_equal(kvt_slabs_take(&f.slabs, SMALL, 0, &page, &err), KVT_ERR_NOMEM);
    assert_int_equal(f.place.live, 0);
    assert_int_equal(kvt_slabs_take(&f.slabs, SMALL, 0, &page, &err), KVT_OK);
    kvt_slabs_give(&f.slabs, page);
    close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many), cmocka_unit_test(test_little),
                                       cmocka_unit_test(test_no_headers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
