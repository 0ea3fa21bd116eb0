/* SPDX-License-Identifier: Apache-2.0
 * Tokenizers and texts for tests. Whatever fails, fails the cmocka test. */
#ifndef SUPPORT_LOAD_TEXT_H
#define SUPPORT_LOAD_TEXT_H

#include "text/text.h"

struct json_t;

/* The tokenizer of a GGUF file. */
struct kvt_text *kvt_load_text(const char *path);

/* A whole file. */
struct kvt_buf kvt_load_file(const char *path);

bool kvt_file_exists(const char *path);

/* Encodes into a list of its own. */
struct kvt_ids kvt_encode_all(const struct kvt_text *text, const char *data, size_t len, bool parse_special);

/* Fails unless ids are as expected; `what` is for the message. */
void kvt_assert_ids(const struct kvt_ids *ids, const int32_t *expected, size_t n, const char *what);

/* Fails unless the ids' bytes, special tokens shown, are these. */
void kvt_assert_decodes(const struct kvt_text *text, const struct kvt_ids *ids, const char *data, size_t len,
                        const char *what);

/* A vocabulary of tests/golden/text as a specification: tokens, scores, types and merges as far as the file has them. What it
 * points to lives until finish. */
struct kvt_golden {
    struct json_t *root;
    struct kvt_text_spec spec;
};
struct kvt_golden kvt_load_golden(const char *file);
void kvt_golden_finish(struct kvt_golden *golden);

/* The tokenizer of a specification. */
struct kvt_text *kvt_make_text(const struct kvt_text_spec *spec);

/* Encodes the texts of a golden file and fails unless `ids`, an array of arrays, is what comes out. */
void kvt_assert_golden_ids(const struct kvt_text *text, const struct json_t *texts, const struct json_t *ids,
                           const char *what);

/* SHA-256 (FIPS 180-4), in lower-case hexadecimal. */
void kvt_sha256(char out[65], const void *data, size_t bytes);

#endif
