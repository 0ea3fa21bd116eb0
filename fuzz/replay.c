/* SPDX-License-Identifier: Apache-2.0
 * Runs a fuzz target over files, without a fuzzer: every file in the folders given, then cut and bit-flipped forms of it
 * made from a fixed seed. A fault ends the process; otherwise the last line counts the inputs. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum { MAX_FILES = 4096, N_CUTS = 16, N_FLIPS = 48 };
static const size_t max_bytes = (size_t)1 << 26;

/* The target sees a block of exactly `size` bytes, so that the sanitizer sees one byte too far. */
static bool try_input(const char *data, size_t size) {
    unsigned char *copy = kvt_take(&kvt_allocator_libc, size ? size : 1, 1);
    if (!copy) return false;
    if (size) memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    kvt_give(&kvt_allocator_libc, copy, size ? size : 1, 1);
    return true;
}

static long replay(const char *path) {
    struct kvt_buf buf;
    struct kvt_error err;
    kvt_buf_init(&buf, NULL, max_bytes);
    if (kvt_file_read(&buf, path, &err) != KVT_OK) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    long n = try_input(buf.data, buf.len);
    struct kvt_rng rng = {buf.len};
    for (int i = 0; i < N_CUTS && buf.len > 0; i++) n += try_input(buf.data, kvt_rng_below(&rng, buf.len));
    for (int i = 0; i < N_FLIPS && buf.len > 0; i++) {
        const size_t at = kvt_rng_below(&rng, buf.len);
        const char old = buf.data[at];
        buf.data[at] = (char)(old ^ (1 << kvt_rng_below(&rng, 8)));
        n += try_input(buf.data, buf.len);
        buf.data[at] = old;
    }
    kvt_buf_finish(&buf);
    return n;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

int main(int argc, char **argv) {
    long n_inputs = 0;
    int n_files = 0;
    for (int i = 1; i < argc; i++) {
        struct dirent **entries;
        const int n = scandir(argv[i], &entries, NULL, by_name);
        if (n < 0) {
            fprintf(stderr, "cannot read the folder '%s'\n", argv[i]);
            return 1;
        }
        for (int k = 0; k < n && n_files < MAX_FILES; k++) {
            char path[4096];
            if (entries[k]->d_name[0] != '.') {
                snprintf(path, sizeof path, "%s/%s", argv[i], entries[k]->d_name);
                const long inputs = replay(path);
                if (inputs < 0) return 1;
                n_inputs += inputs;
                n_files++;
            }
            free(entries[k]);
        }
        free(entries);
    }
    printf("%ld inputs from %d files\n", n_inputs, n_files);
    return n_files == 0;
}
