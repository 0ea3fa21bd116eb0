/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers against what others say: llama.cpp's vocabulary cases, and the hashes of whole books.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "support/load_text.h"
#include "text/text.h"

/* ---- vocabularies with cases: FILE.gguf, FILE.gguf.inp, FILE.gguf.out ------------------------------------------------------ */

/* The ids on a line, up to its end; p moves past it. */
static struct kvt_ids read_ids(const char **p) {
    struct kvt_ids ids;
    kvt_ids_init(&ids, NULL);
    while (**p && **p != '\n') {
        char *end;
        const long id = strtol(*p, &end, 10);
        if (end == *p) {
            (*p)++;
            continue;
        }
        assert_int_equal(kvt_ids_add(&ids, (int32_t)id), KVT_OK);
        *p = end;
        while (**p == ' ' || **p == '\r') (*p)++;
    }
    if (**p) (*p)++;
    return ids;
}

static struct kvt_buf load_beside(const char *path, const char *ending) {
    char name[4100];
    snprintf(name, sizeof name, "%.4090s%s", path, ending);
    return kvt_load_file(name);
}

static int check_cases(const char *path) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    struct kvt_text *text = kvt_load_text(path);
    struct kvt_buf inp = load_beside(path, ".inp"), out = load_beside(path, ".out");
    int n = 0;
    const char *line = kvt_buf_text(&out), *end = inp.data + inp.len;
    for (const char *p = inp.data; p;) {
        const char *next = strstr(p, separator);
        const size_t len = (size_t)((next ? next : end) - p);
        if (!next && len == 0) break;
        struct kvt_ids expected = read_ids(&line);
        struct kvt_ids ids = kvt_encode_all(text, p, len, false);
        char name[4128];
        snprintf(name, sizeof name, "%.4090s, case %d", path, n);
        kvt_assert_ids(&ids, expected.data, expected.len, name);
        kvt_ids_finish(&ids);
        kvt_ids_finish(&expected);
        n++;
        p = next ? next + sizeof separator - 1 : NULL;
    }
    kvt_buf_finish(&inp);
    kvt_buf_finish(&out);
    kvt_text_destroy(text);
    return n;
}

/* KVT_VOCABS may name another folder of such files. */
static void vocabularies_give_the_stated_ids(void **state) {
    (void)state;
    const char *folder = getenv("KVT_VOCABS") ? getenv("KVT_VOCABS") : KVT_SHARED "/fixtures/vocab";
    DIR *dir = opendir(folder);
    if (!dir) {
        print_message("no %s\n", folder);
        skip();
    }
    int n_files = 0, n_cases = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char path[4096];
        const size_t len = strlen(entry->d_name);
        if (len < 9 || strcmp(entry->d_name + len - 9, ".gguf.inp") != 0) continue;
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)len - 4, entry->d_name);
        n_cases += check_cases(path);
        n_files++;
    }
    closedir(dir);
    print_message("%d cases of %d vocabularies\n", n_cases, n_files);
    assert_true(n_files > 0 && n_cases >= 40 * n_files);
}

/* ---- books ----------------------------------------------------------------------------------------------------------------- */

static void check_books(const char *model, const char *path) {
    json_error_t jerr;
    json_t *root = json_load_file(KVT_SHARED "/reference/logits.json", 0, &jerr);
    if (!root) {
        print_message("no " KVT_SHARED "/reference/logits.json\n");
        skip();
    }
    struct kvt_text *text = kvt_load_text(path);
    json_t *books = json_object_get(json_object_get(json_object_get(root, "models"), model), "text_ids");
    assert_int_equal(json_object_size(books), 4);
    const char *book;
    json_t *entry;
    json_object_foreach(books, book, entry) {
        char name[4096], hash[65];
        snprintf(name, sizeof name, KVT_SHARED "/text/%s", book);
        struct kvt_buf data = kvt_load_file(name);
        struct kvt_ids ids = kvt_encode_all(text, data.data, data.len, false);
        assert_int_equal(ids.len, json_integer_value(json_object_get(entry, "count")));
        kvt_sha256(hash, ids.data, ids.len * sizeof *ids.data);
        assert_string_equal(hash, json_string_value(json_object_get(entry, "sha256_of_int32le")));
        kvt_assert_decodes(text, &ids, data.data, data.len, book);
        kvt_ids_finish(&ids);
        kvt_buf_finish(&data);
    }
    json_decref(root);
    kvt_text_destroy(text);
}

static void plain_reads_books(void **state) {
    (void)state;
    check_books("plain", KVT_ROOT "/models/plain.gguf");
}

static void biased_reads_books(void **state) {
    (void)state;
    check_books("biased", KVT_ROOT "/models/biased.gguf");
}

/* A user's own copy of SmolLM2-135M-Instruct (Q4_1). */
static void smollm2_reads_books(void **state) {
    (void)state;
    const char *path = getenv("KVT_SMOLLM2");
    if (!path) {
        print_message("KVT_SMOLLM2 does not name a file\n");
        skip();
    }
    check_books("smollm2-135m-instruct-q4_1", path);
}

/* hound.ids: BOS and the first ids of the first 200,000 bytes of hound.txt, one a line. */
static void plain_gives_the_ids_of_hound(void **state) {
    (void)state;
    if (!kvt_file_exists(KVT_SHARED "/text/hound.ids")) {
        print_message("no " KVT_SHARED "/text/hound.ids\n");
        skip();
    }
    struct kvt_text *text = kvt_load_text(KVT_ROOT "/models/plain.gguf");
    struct kvt_buf book = kvt_load_file(KVT_SHARED "/text/hound.txt"),
                   list = kvt_load_file(KVT_SHARED "/text/hound.ids");
    assert_true(kvt_text_add_bos(text));
    struct kvt_ids ids = kvt_encode_all(text, book.data, 200000, false);
    const char *p = list.data;
    size_t n = 0;
    for (; *p; n++) {
        char *end;
        assert_true(n <= ids.len);
        assert_int_equal(strtol(p, &end, 10), n == 0 ? kvt_text_bos(text) : ids.data[n - 1]);
        assert_ptr_not_equal(end, p);
        p = end + strspn(end, "\r\n");
    }
    assert_true(n > 20000);
    kvt_ids_finish(&ids);
    kvt_buf_finish(&book);
    kvt_buf_finish(&list);
    kvt_text_destroy(text);
}

/* ---- chat templates of files ----------------------------------------------------------------------------------------------- */

/* A conversation by the template of a file; the caller finishes it. */
static struct kvt_buf chat_of_file(const char *path, const char *family_name, const struct kvt_chat_message *messages,
                                   int n) {
    struct kvt_gguf *gguf;
    struct kvt_error err = {KVT_OK, ""};
    struct kvt_slice source;
    if (kvt_gguf_open(&gguf, path, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    assert_int_equal(kvt_gguf_get_text(gguf, "tokenizer.chat_template", &source, &err), KVT_OK);
    const struct kvt_chat_template *family = kvt_chat_detect(source.data, source.len);
    if (!family) fail_msg("%s: its chat template is not known", path);
    assert_string_equal(kvt_chat_name(family), family_name);
    char *copy = kvt_take_string(&kvt_allocator_libc, source.data, source.len);
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 10000);
    if (kvt_chat_format(family, copy, messages, n, true, &out, &err) != KVT_OK) fail_msg("%s", err.text);
    kvt_give(&kvt_allocator_libc, copy, source.len + 1, 1);
    kvt_gguf_close(gguf);
    return out;
}

static void phi3_writes_its_chat(void **state) {
    (void)state;
    static const char path[] = KVT_SHARED "/fixtures/vocab/ggml-vocab-phi-3.gguf";
    const struct kvt_chat_message messages[] = {{"user", "Hello"}, {"assistant", "Hi"}, {"user", "Bye"}};
    if (!kvt_file_exists(path)) {
        print_message("no %s\n", path);
        skip();
    }
    struct kvt_buf out = chat_of_file(path, "phi3-first", messages, 3);
    assert_string_equal(kvt_buf_text(&out), "<|user|>\nHello<|end|>\n<|assistant|>\nHi<|end|>\n<|user|>\nBye<|end|>\n"
                                            "<|assistant|>\n");
    /* Its tokens, as the file's own merging of the text between them gives them, without the line ends they eat. */
    struct kvt_text *text = kvt_load_text(path);
    struct kvt_ids ids = kvt_encode_all(text, out.data, out.len, true);
    static const int32_t expected[] = {32010, 15043, 32007, 32001, 6324, 32007, 32010, 2648, 29872, 32007, 32001};
    kvt_assert_ids(&ids, expected, KVT_ARRAY_LEN(expected), "phi-3");
    assert_true(kvt_text_is_end(text, 32007) && kvt_text_is_end(text, 32000));
    kvt_ids_finish(&ids);
    kvt_text_destroy(text);
    kvt_buf_finish(&out);
}

static void smollm2_has_a_default_system_message(void **state) {
    (void)state;
    const char *path = getenv("KVT_SMOLLM2");
    const struct kvt_chat_message messages[] = {{"user", "Hello"}};
    if (!path) {
        print_message("KVT_SMOLLM2 does not name a file\n");
        skip();
    }
    struct kvt_buf out = chat_of_file(path, "chatml", messages, 1);
    assert_string_equal(
        kvt_buf_text(&out),
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
    struct kvt_text *text = kvt_load_text(path);
    struct kvt_ids ids = kvt_encode_all(text, out.data, out.len, true);
    int n_control = 0;
    for (size_t i = 0; i < ids.len; i++) n_control += ids.data[i] == 1 || ids.data[i] == 2;
    assert_int_equal(n_control, 5);
    assert_true(kvt_text_is_end(text, 0) && kvt_text_is_end(text, 2) && !kvt_text_is_end(text, 1));
    kvt_assert_decodes(text, &ids, out.data, out.len, "chat");
    kvt_ids_finish(&ids);
    kvt_text_destroy(text);
    kvt_buf_finish(&out);
}

static void the_hash_is_sha256(void **state) {
    (void)state;
    char hash[65];
    kvt_sha256(hash, "abc", 3);
    assert_string_equal(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_sha256),   cmocka_unit_test(vocabularies_give_the_stated_ids),
        cmocka_unit_test(plain_reads_books),    cmocka_unit_test(biased_reads_books),
        cmocka_unit_test(phi3_writes_its_chat), cmocka_unit_test(smollm2_has_a_default_system_message),
        cmocka_unit_test(smollm2_reads_books),  cmocka_unit_test(plain_gives_the_ids_of_hound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
