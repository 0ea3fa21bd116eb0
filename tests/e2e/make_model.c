/* SPDX-License-Identifier: Apache-2.0
 * make_model FILE [arch=NAME] [layers=N] [width=N] [heads=N] [head=N] [context=N] [seed=N]: a tiny random model, also ones
 * that the program must refuse. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/file.h"
#include "support/make_model.h"

static bool apply(struct kvt_made *made, const char *word) {
    const struct {
        const char *key;
        int *field;
    } numbers[] = {{"layers=", &made->n_layers},
                   {"width=", &made->width},
                   {"heads=", &made->n_q_heads},
                   {"head=", &made->head_size},
                   {"context=", &made->n_ctx}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(numbers); i++) {
        const size_t n = strlen(numbers[i].key);
        if (strncmp(word, numbers[i].key, n) != 0) continue;
        *numbers[i].field = atoi(word + n);
        return true;
    }
    if (strncmp(word, "arch=", 5) == 0) made->arch = word + 5;
    if (strncmp(word, "seed=", 5) == 0) made->seed = strtoull(word + 5, NULL, 10);
    return strncmp(word, "arch=", 5) == 0 || strncmp(word, "seed=", 5) == 0;
}

int main(int argc, char **argv) {
    struct kvt_made made = {.name = "made",
                            .arch = "llama",
                            .seed = 1,
                            .n_layers = 2,
                            .width = 64,
                            .ffn = 96,
                            .n_q_heads = 4,
                            .n_kv_heads = 1,
                            .head_size = 32,
                            .n_ctx = 512};
    for (int i = 2; i < argc; i++) {
        if (apply(&made, argv[i])) continue;
        fprintf(stderr, "make_model: what is '%s'?\n", argv[i]);
        return 2;
    }
    struct kvt_buf buf;
    struct kvt_error err = {.text = "the model cannot be made"};
    kvt_buf_init(&buf, NULL, (size_t)1 << 30);
    enum kvt_status status = argc < 2 ? KVT_ERR_ARG : kvt_made_write(&buf, &made);
    if (status == KVT_OK) status = kvt_file_write(argv[1], buf.data, buf.len, &err);
    kvt_buf_finish(&buf);
    if (status != KVT_OK) fprintf(stderr, "make_model: %s\n", err.text);
    return status == KVT_OK ? 0 : 1;
}
