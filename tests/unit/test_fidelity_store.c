/* SPDX-License-Identifier: Apache-2.0
 * The reference on disk: what was put in comes out, and nothing else ever does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "fidelity/inside.h"

enum { CHUNKS = 4, FLOATS = 100 };

static char folder[64], path[512];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kvtile-store-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* Files of the folder; the last one's name goes to `path`. */
static int n_files(void) {
    DIR *dir = opendir(folder);
    int n = 0;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.') {
            n++;
            snprintf(path, sizeof path, "%s/%.200s", folder, e->d_name);
        }
    closedir(dir);
    return n;
}

static int remove_folder(void **state) {
    (void)state;
    while (n_files() > 0) unlink(path);
    return rmdir(folder);
}

static float value(int chunk, int i) { return (float)(chunk * 1000 + i) + 0.5f; }

static struct kvt_store *open_store(const char *text, const char *program, char trouble[232]) {
    trouble[0] = 0;
    const struct kvt_store_key key = {folder, text, program, FLOATS * sizeof(float)};
    return kvt_store_open(&key, trouble, NULL);
}

/* Runs chunks 0 to n - 1 as a measurement does, and says how many were there. */
static int run(const char *text, const char *program, int n, char trouble[232]) {
    struct kvt_store *s = open_store(text, program, trouble);
    int n_read = 0;
    assert_non_null(s);
    for (int c = 0; c < n; c++) {
        float outputs[FLOATS];
        if (kvt_store_read(s, c, (uint64_t)c + 7, outputs)) {
            n_read++;
            for (int i = 0; i < FLOATS; i++) assert_true(outputs[i] == value(c, i));
            continue;
        }
        for (int i = 0; i < FLOATS; i++) outputs[i] = value(c, i);
        kvt_store_add(s, c, (uint64_t)c + 7, outputs);
    }
    kvt_store_close(s, trouble);
    return n_read;
}

static void what_was_put_in_comes_out(void **state) {
    (void)state;
    char trouble[232];
    assert_int_equal(run("a text", "1.0", 2, trouble), 0);
    assert_int_equal(n_files(), 1);
    assert_int_equal(run("a text", "1.0", 2, trouble), 2);
    assert_int_equal(run("a text", "1.0", CHUNKS, trouble), 2); /* a longer run goes on where it ended */
    assert_int_equal(run("a text", "1.0", CHUNKS, trouble), CHUNKS);
    assert_int_equal(run("a text", "1.0", 1, trouble), 1); /* and a shorter one keeps it */
    assert_int_equal(run("a text", "1.0", CHUNKS, trouble), CHUNKS);
    assert_int_equal(run("another text", "1.0", CHUNKS, trouble), 0);
    assert_string_equal(trouble, "");
    assert_int_equal(n_files(), 2);
}

static void other_ids_are_not_found(void **state) {
    (void)state;
    char trouble[232];
    float outputs[FLOATS];
    run("a text", "1.0", CHUNKS, trouble);
    struct kvt_store *s = open_store("a text", "1.0", trouble);
    assert_true(kvt_store_read(s, 0, 7, outputs));
    assert_false(kvt_store_read(s, 1, 99, outputs));
    kvt_store_close(s, trouble);
    assert_int_equal(run("a text", "1.0", CHUNKS, trouble), CHUNKS);
}

static void another_build_is_made_anew(void **state) {
    (void)state;
    char trouble[232];
    run("a text", "1.0", CHUNKS, trouble);
    assert_int_equal(run("a text", "1.1", CHUNKS, trouble), 0);
    assert_non_null(strstr(trouble, "was made by another build of kvtile, and is made anew"));
    assert_int_equal(run("a text", "1.1", CHUNKS, trouble), CHUNKS);
    assert_string_equal(trouble, "");
}

/* Whatever byte is wrong, no wrong number comes out: run() looks at each. */
static void damage_is_noticed(void **state) {
    (void)state;
    char trouble[232];
    run("a text", "1.0", CHUNKS, trouble);
    assert_int_equal(n_files(), 1);
    struct kvt_buf file;
    kvt_buf_init(&file, NULL, 1 << 20);
    assert_int_equal(kvt_file_read(&file, path, NULL), KVT_OK);
    for (size_t at = 0; at < file.len; at += at < 128 ? 1 : 37) {
        file.data[at] ^= 0x10;
        assert_int_equal(kvt_file_write(path, file.data, file.len, NULL), KVT_OK);
        file.data[at] ^= 0x10;
        assert_true(run("a text", "1.0", CHUNKS, trouble) < CHUNKS);
        assert_int_equal(run("a text", "1.0", CHUNKS, trouble), CHUNKS); /* it was mended */
    }
    for (size_t len = 0; len < file.len; len += 61) {
        assert_int_equal(kvt_file_write(path, file.data, len, NULL), KVT_OK);
        assert_true(run("a text", "1.0", CHUNKS, trouble) < CHUNKS);
        assert_int_equal(run("a text", "1.0", CHUNKS, trouble), CHUNKS);
    }
    kvt_buf_finish(&file);
}

static void a_folder_that_takes_nothing_is_said(void **state) {
    (void)state;
    char trouble[232];
    rmdir(folder);
    assert_int_equal(run("a text", "1.0", CHUNKS, trouble), 0);
    assert_non_null(strstr(trouble, folder));
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(n_files(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_put_in_comes_out, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(other_ids_are_not_found, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(another_build_is_made_anew, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damage_is_noticed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_folder_that_takes_nothing_is_said, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
