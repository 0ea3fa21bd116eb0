/* SPDX-License-Identifier: Apache-2.0 */
#include "support/reseal.h"

#include <string.h>

#include "base/hash.h"
#include "cache/snapshot.h"

/* Pages follow each other as far as their sizes make sense. */
static void reseal_pages(unsigned char *data, size_t bytes, size_t at) {
    struct kvt_snap_page page;
    while (at <= bytes && bytes - at >= sizeof page) {
        memcpy(&page, data + at, sizeof page);
        if (page.bytes > bytes - at - sizeof page) return;
        page.hash = kvt_hash(data + at + sizeof page, (size_t)page.bytes);
        memcpy(data + at, &page, sizeof page);
        at += sizeof page + (size_t)page.bytes;
    }
}

void kvt_reseal(unsigned char *data, size_t bytes) {
    struct kvt_snap_header h;
    if (bytes < sizeof h) return;
    memcpy(&h, data, sizeof h);
    h.file_bytes = bytes;
    if (h.header_bytes >= sizeof h && h.header_bytes <= bytes) {
        const size_t rest = bytes - (size_t)h.header_bytes;
        if (h.blob_bytes <= rest) {
            h.blob_hash = kvt_hash(data + h.header_bytes, (size_t)h.blob_bytes);
            const uint64_t padded = (h.blob_bytes + KVT_SNAP_ALIGN - 1) / KVT_SNAP_ALIGN * KVT_SNAP_ALIGN;
            if (padded <= rest) reseal_pages(data, bytes, (size_t)(h.header_bytes + padded));
        }
        memcpy(data, &h, sizeof h);
        h.hash = kvt_hash(data + KVT_SNAP_HASHED, (size_t)h.header_bytes - KVT_SNAP_HASHED);
    }
    memcpy(data, &h, sizeof h);
}
