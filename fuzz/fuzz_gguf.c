/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a GGUF file: opened and read whole, or refused with a sentence.
 */
#include <stdlib.h>
#include <string.h>

#include "support/read_whole.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct kvt_gguf *gguf = NULL;
    struct kvt_error err = {KVT_OK, ""};
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
    const enum kvt_status status = kvt_gguf_open_memory(&gguf, data, size, &allocator, &err);
    if (status == KVT_OK) {
        bool kept;
        (void)kvt_read_whole(gguf, &kept);
        if (!kept) abort();
        kvt_gguf_close(gguf);
    } else if (gguf || err.code != status || strlen(err.text) == 0) {
        abort();
    }
    if (counter.live_blocks > 0) abort();
    return 0;
}
