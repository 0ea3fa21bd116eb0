/* SPDX-License-Identifier: Apache-2.0
 * base: files, clock, parallel loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/parallel.h"
#include "support/threads.h"

/* A folder of the test's own; every test removes what it made, and teardown fails if anything is left. */
static char folder[] = "/tmp/kvt-test-XXXXXX";

static const char *in_folder(const char *name) {
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static int n_files(void) {
    DIR *dir = opendir(folder);
    int n = 0;
    while (readdir(dir)) n++;
    closedir(dir);
    return n - 2;
}

static void assert_content(const char *path, const char *want) {
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, 1000);
    assert_int_equal(kvt_file_read(&buf, path, NULL), KVT_OK);
    assert_string_equal(kvt_buf_text(&buf), want);
    kvt_buf_finish(&buf);
}

static void files_are_mapped(void **state) {
    (void)state;
    struct kvt_error err;
    struct kvt_map map = {NULL, 77};
    const char *path = in_folder("map");
    assert_int_equal(kvt_file_write(path, "tile", 4, &err), KVT_OK);
    assert_int_equal(kvt_map_open(&map, path, &err), KVT_OK);
    assert_int_equal(map.bytes, 4);
    assert_memory_equal(map.data, "tile", 4);
    kvt_map_close(&map);
    kvt_map_close(&map);
    assert_null(map.data);

    assert_int_equal(kvt_file_write(path, "", 0, &err), KVT_OK);
    assert_int_equal(kvt_map_open(&map, path, &err), KVT_OK);
    assert_null(map.data);
    assert_int_equal(map.bytes, 0);
    kvt_map_close(&map);
    unlink(path);
}

static void what_cannot_be_mapped_is_named(void **state) {
    (void)state;
    struct kvt_error err;
    struct kvt_map map = {NULL, 77};
    const char *path = in_folder("absent");
    assert_int_equal(kvt_map_open(&map, path, &err), KVT_ERR_IO);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(kvt_map_open(&map, folder, &err), KVT_ERR_FORMAT);
    assert_non_null(strstr(err.text, "not a regular file"));
    const char *fifo = in_folder("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(kvt_map_open(&map, fifo, &err), KVT_ERR_FORMAT);
    unlink(fifo);
    assert_int_equal(map.bytes, 77);
}

static void files_are_read_up_to_a_limit(void **state) {
    (void)state;
    struct kvt_error err;
    struct kvt_buf buf;
    const char *path = in_folder("read");
    static char data[200000];
    memset(data, 'k', sizeof data);
    assert_int_equal(kvt_file_write(path, data, sizeof data, &err), KVT_OK);
    kvt_buf_init(&buf, NULL, sizeof data);
    assert_int_equal(kvt_file_read(&buf, path, &err), KVT_OK);
    assert_int_equal(buf.len, sizeof data);
    assert_memory_equal(buf.data, data, sizeof data);
    kvt_buf_finish(&buf);

    kvt_buf_init(&buf, NULL, sizeof data - 1);
    assert_int_equal(kvt_file_read(&buf, path, &err), KVT_ERR_LIMIT);
    assert_non_null(strstr(err.text, "199999 bytes"));
    kvt_buf_finish(&buf);
    struct kvt_alloc_counter counter = {.fail_at = 1};
    const struct kvt_allocator a = kvt_allocator_counted(&counter);
    kvt_buf_init(&buf, &a, sizeof data);
    assert_int_equal(kvt_file_read(&buf, path, &err), KVT_ERR_NOMEM);
    assert_int_equal(kvt_file_read(&buf, folder, &err), KVT_ERR_IO);
    assert_int_equal(kvt_file_read(&buf, in_folder("absent"), &err), KVT_ERR_IO);
    kvt_buf_finish(&buf);
    unlink(path);
}

static void a_write_replaces_at_once_or_not_at_all(void **state) {
    (void)state;
    struct kvt_error err;
    struct kvt_writer w;
    const char *path = in_folder("out");
    assert_int_equal(kvt_file_write(path, "old", 3, &err), KVT_OK);
    assert_int_equal(kvt_writer_open(&w, path, NULL, &err), KVT_OK);
    kvt_writer_add(&w, "ne", 2);
    assert_content(path, "old");
    kvt_writer_add(&w, "w", 1);
    assert_int_equal(kvt_writer_commit(&w, &err), KVT_OK);
    assert_content(path, "new");
    kvt_writer_abandon(&w);

    assert_int_equal(kvt_writer_open(&w, path, NULL, &err), KVT_OK);
    kvt_writer_add(&w, "never", 5);
    kvt_writer_abandon(&w);
    assert_content(path, "new");
    assert_int_equal(n_files(), 1);

    /* A probe leaves nothing, and finds out what a write would. */
    assert_int_equal(kvt_file_probe(path, &err), KVT_OK);
    assert_content(path, "new");
    assert_int_equal(kvt_file_probe(in_folder("other"), &err), KVT_OK);
    assert_int_equal(n_files(), 1);
    assert_int_equal(kvt_file_probe(in_folder("absent/other"), &err), KVT_ERR_IO);
    assert_int_equal(kvt_file_probe("/dev/null", &err), KVT_OK);
    path = in_folder("out");

    /* Two writers of one file do not meet; the last one wins. */
    struct kvt_writer v;
    assert_int_equal(kvt_writer_open(&w, path, NULL, &err), KVT_OK);
    assert_int_equal(kvt_writer_open(&v, path, NULL, &err), KVT_OK);
    kvt_writer_add(&w, "from w", 6);
    kvt_writer_add(&v, "from v", 6);
    assert_int_equal(kvt_writer_commit(&v, &err), KVT_OK);
    assert_int_equal(kvt_writer_commit(&w, &err), KVT_OK);
    assert_content(path, "from w");
    assert_int_equal(n_files(), 1);

    const mode_t mask = umask(027);
    assert_int_equal(kvt_file_write(path, "m", 1, &err), KVT_OK);
    umask(mask);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    unlink(path);
    struct kvt_writer zeroed = {0};
    kvt_writer_abandon(&zeroed);
}

static void a_write_that_cannot_be_is_refused(void **state) {
    (void)state;
    struct kvt_error err;
    assert_int_equal(kvt_file_write(in_folder("absent/out"), "x", 1, &err), KVT_ERR_IO);
    assert_non_null(strstr(err.text, "absent/out"));
    assert_int_equal(kvt_file_write(folder, "x", 1, &err), KVT_ERR_IO);
    struct kvt_alloc_counter counter = {.fail_at = 2};
    const struct kvt_allocator a = kvt_allocator_counted(&counter);
    struct kvt_writer w;
    assert_int_equal(kvt_writer_open(&w, in_folder("out"), &a, &err), KVT_ERR_NOMEM);
    assert_int_equal(counter.live_bytes, 0);
    assert_int_equal(n_files(), 0);
}

/* A disk that is full in the middle: the old file stays, the temporary one goes. The writer's descriptor is turned to a device
 * that is always full. */
static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    struct kvt_error err;
    struct kvt_writer w;
    const char *path = in_folder("out");
    assert_int_equal(kvt_file_write(path, "old", 3, &err), KVT_OK);
    assert_int_equal(kvt_writer_open(&w, path, NULL, &err), KVT_OK);
    const int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    assert_true(dup2(full, w.fd) >= 0);
    close(full);
    kvt_writer_add(&w, "new", 3);
    kvt_writer_add(&w, "more", 4);
    assert_int_equal(kvt_writer_commit(&w, &err), KVT_ERR_IO);
    assert_non_null(strstr(err.text, "No space left"));
    assert_non_null(strstr(err.text, "old file, if any, is unchanged"));
    assert_content(path, "old");
    assert_int_equal(n_files(), 1);
    unlink(path);
}

/* Devices and pipes are written to; they are not replaced by files. By a link, so that a broken writer replaces only that. */
static void a_device_is_not_replaced(void **state) {
    (void)state;
    struct kvt_error err;
    struct stat st;
    const char *link = in_folder("link");
    assert_int_equal(symlink("/dev/full", link), 0);
    assert_int_equal(kvt_file_write(link, "x", 1, &err), KVT_ERR_IO);
    assert_non_null(strstr(err.text, link));
    unlink(link);
    assert_int_equal(symlink("/dev/null", link), 0);
    assert_int_equal(kvt_file_write(link, "x", 1, &err), KVT_OK);
    assert_int_equal(stat(link, &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    unlink(link);

    const char *fifo = in_folder("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const int reader = open(fifo, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_int_equal(kvt_file_write(fifo, "pipe", 4, &err), KVT_OK);
    char got[8] = {0};
    assert_int_equal(read(reader, got, sizeof got), 4);
    assert_string_equal(got, "pipe");
    close(reader);
    unlink(fifo);
}

static void the_clock_goes_forward(void **state) {
    (void)state;
    const double a = kvt_clock_seconds();
    usleep(2000);
    const double b = kvt_clock_seconds();
    assert_true(b - a > 0.0015 && b - a < 60);
}

/* Jobs note who ran them; each element is written by its job alone. */
struct notes {
    int ran[1000];
    int thread[1000];
};

static void note(void *arg, int i, int thread) {
    struct notes *n = arg;
    n->ran[i]++;
    n->thread[i] = thread;
}

static void every_job_runs_once(void **state) {
    (void)state;
    static const int sizes[] = {0, 1, 2, 3, 7, 64, 1000};
    for (int n_threads = 0; n_threads <= 5; n_threads++) {
        const struct kvt_parallel p = test_parallel(n_threads);
        assert_true(p.n_threads >= 1);
        for (size_t s = 0; s < KVT_ARRAY_LEN(sizes); s++) {
            struct notes notes = {0};
            kvt_parallel_run(n_threads ? &p : NULL, sizes[s], note, &notes);
            for (int i = 0; i < 1000; i++) {
                assert_int_equal(notes.ran[i], i < sizes[s]);
                assert_in_range(notes.thread[i], 0, p.n_threads - 1);
            }
        }
    }
    assert_int_equal(kvt_parallel_n_threads(NULL), 1);
}

static void run_backwards(void *ctx, int n_jobs, kvt_job_fn job, void *arg) {
    ++*(int *)ctx;
    for (int i = n_jobs - 1; i >= 0; i--) job(arg, i, i % 3);
}

static void a_callers_loop_is_used(void **state) {
    (void)state;
    int n_calls = 0;
    struct notes notes = {0};
    const struct kvt_parallel p = {3, run_backwards, &n_calls};
    kvt_parallel_run(&p, 10, note, &notes);
    assert_int_equal(n_calls, 1);
    assert_int_equal(notes.ran[9], 1);
    assert_int_equal(notes.thread[8], 2);
    /* One job is not worth it. */
    kvt_parallel_run(&p, 1, note, &notes);
    assert_int_equal(n_calls, 1);
    assert_int_equal(kvt_parallel_n_threads(&p), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_mapped),
        cmocka_unit_test(what_cannot_be_mapped_is_named),
        cmocka_unit_test(files_are_read_up_to_a_limit),
        cmocka_unit_test(a_write_replaces_at_once_or_not_at_all),
        cmocka_unit_test(a_write_that_cannot_be_is_refused),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(a_device_is_not_replaced),
        cmocka_unit_test(the_clock_goes_forward),
        cmocka_unit_test(every_job_runs_once),
        cmocka_unit_test(a_callers_loop_is_used),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
