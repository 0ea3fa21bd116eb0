/* SPDX-License-Identifier: Apache-2.0
 *
 * Names sorted for look-up and for finding duplicates.
 */
#include <string.h>

#include "gguf/inside.h"

bool kvt_gguf_index_init(struct kvt_gguf_index *index, const struct kvt_allocator *allocator, size_t n) {
    struct kvt_gguf_name *names = NULL;
    if (n > 0 && !(names = kvt_take_zero(allocator, n, sizeof *names))) return false;
    *index = (struct kvt_gguf_index){names, n};
    return true;
}

void kvt_gguf_index_finish(struct kvt_gguf_index *index, const struct kvt_allocator *allocator) {
    kvt_give(allocator, index->names, index->n, sizeof *index->names);
    *index = (struct kvt_gguf_index){NULL, 0};
}

static int by_text(const void *a, const void *b) {
    const struct kvt_gguf_name *x = a, *y = b;
    return strcmp(x->text, y->text);
}

const char *kvt_gguf_index_sort(struct kvt_gguf_index *index) {
    if (index->n == 0) return NULL;
    qsort(index->names, index->n, sizeof *index->names, by_text);
    for (size_t i = 1; i < index->n; i++)
        if (by_text(&index->names[i - 1], &index->names[i]) == 0) return index->names[i].text;
    return NULL;
}

size_t kvt_gguf_index_find(const struct kvt_gguf_index *index, const char *name) {
    if (index->n == 0) return SIZE_MAX;
    const struct kvt_gguf_name wanted = {name, 0};
    const struct kvt_gguf_name *found = bsearch(&wanted, index->names, index->n, sizeof *index->names, by_text);
    return found ? found->at : SIZE_MAX;
}
