/* SPDX-License-Identifier: Apache-2.0
 *
 * What the backend cuda says of the devices of this machine. Without one: why, and nothing is left behind.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "kvtile/kvtile.h"

static int n_passed, n_failed;

#define CHECK(c)                                                                                                       \
    ((c) ? (void)n_passed++ : (void)(n_failed++, fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #c)))

/* Nothing can be opened where there is no device, and every way to find out says the same. */
static void check_absent(const struct kvt_error *why) {
    struct kvt_cuda cuda;
    struct kvt_error err;
    char text[600];
    CHECK(strstr(why->text, "no CUDA device") != NULL);
    CHECK(kvt_cuda_open(&cuda, 0, NULL, &err) == KVT_ERR_DEVICE && strcmp(err.text, why->text) == 0);
    CHECK(kvt_backend_about("cuda", text, sizeof text, &err) == KVT_OK && strstr(text, why->text) != NULL);
    puts(text);
}

static void check_table(const struct kvt_cuda *cuda, void *memory) {
    struct kvt_error err;
    void *table = NULL, *got[4];
    CHECK(kvt_cuda_take_table(cuda, &table, sizeof got, &err) == KVT_OK);
    CHECK(kvt_cuda_fill(cuda, table, 0, sizeof got, &err) == KVT_OK);
    const struct kvt_cuda_entry entries[] = {{(void **)table + 3, memory}, {(void **)table + 1, table}};
    CHECK(kvt_cuda_copy(cuda, memory, entries, sizeof entries, &err) == KVT_OK);
    CHECK(kvt_cuda_set_entries(cuda, memory, 2, &err) == KVT_OK);
    CHECK(kvt_cuda_copy(cuda, got, table, sizeof got, &err) == KVT_OK && kvt_cuda_wait(cuda, &err) == KVT_OK);
    CHECK(!got[0] && got[1] == table && !got[2] && got[3] == memory);
    kvt_cuda_give_table(cuda, table);
}

static void check_present(int n) {
    struct kvt_cuda cuda;
    struct kvt_error err;
    char text[600];
    CHECK(kvt_backend_about("cuda", text, sizeof text, &err) == KVT_OK && strstr(text, "device 0: ") != NULL);
    puts(text);
    CHECK(kvt_cuda_open(&cuda, n, NULL, &err) == KVT_ERR_ARG && strstr(err.text, "found: 0 (") != NULL);
    CHECK(kvt_cuda_open(&cuda, -1, NULL, &err) == KVT_ERR_ARG);
    CHECK(kvt_cuda_open(&cuda, 0, NULL, &err) == KVT_OK);
    unsigned char out[1000], in[1000];
    for (int i = 0; i < 1000; i++) in[i] = (unsigned char)(i * 7);
    void *memory = NULL, *more = NULL;
    int is_device = -1;
    CHECK(kvt_cuda_take(&cuda, &memory, 2000, &err) == KVT_OK);
    CHECK(kvt_cuda_copy(&cuda, memory, in, 1000, &err) == KVT_OK);
    CHECK(kvt_cuda_copy(&cuda, (char *)memory + 1000, memory, 1000, &err) == KVT_OK);
    CHECK(kvt_cuda_fill(&cuda, memory, 0, 1000, &err) == KVT_OK);
    CHECK(kvt_cuda_copy(&cuda, out, (char *)memory + 1000, 1000, &err) == KVT_OK);
    CHECK(kvt_cuda_wait(&cuda, &err) == KVT_OK && memcmp(out, in, 1000) == 0);
    CHECK(kvt_cuda_pack(&cuda, memory, in, 10, 50, 20, &err) == KVT_OK);
    CHECK(kvt_cuda_pack(&cuda, (char *)memory + 200, in, 10, 0, 2, &err) == KVT_OK);
    CHECK(kvt_cuda_copy(&cuda, out, memory, 1000, &err) == KVT_OK && kvt_cuda_wait(&cuda, &err) == KVT_OK);
    CHECK(memcmp(out + 10, in + 50, 10) == 0 && memcmp(out + 190, in + 950, 10) == 0);
    CHECK(memcmp(out + 200, in, 10) == 0 && memcmp(out + 210, in, 10) == 0 && out[220] == 0 && out[999] == 0);
    check_table(&cuda, memory);
    CHECK(kvt_cuda_is_device(&cuda, memory, &is_device, &err) == KVT_OK && is_device == 1);
    CHECK(kvt_cuda_is_device(&cuda, out, &is_device, &err) == KVT_OK && is_device == 0);
    CHECK(kvt_cuda_take(&cuda, &more, (size_t)1 << 50, &err) == KVT_ERR_NOMEM && strstr(err.text, "are free") != NULL);
    CHECK(more == NULL);
    kvt_cuda_give(&cuda, memory);
    CHECK(kvt_cuda_wait(&cuda, &err) == KVT_OK);
    kvt_cuda_close(&cuda);
}

int main(void) {
    int n = 0;
    struct kvt_error err;
    if (kvt_cuda_n_devices(&n, &err) == KVT_OK)
        check_present(n);
    else
        check_absent(&err);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}
