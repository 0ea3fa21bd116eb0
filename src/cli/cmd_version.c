/* SPDX-License-Identifier: Apache-2.0
 * kvtile version */
#include "base/check.h"
#include "cli/command.h"
#include "cli/term.h"
#include "kvtile/kvtile.h"

struct settings {
    char none;
};

static const struct settings defaults;

static enum kvt_status add_levels(struct kvt_buf *b) {
    KVT_TRY(kvt_buf_addf(b, "level          %s (these run here:", kvt_level_name(kvt_level_best())));
    const char *separator = " ";
    for (int i = 0; i < KVT_LEVEL_COUNT; i++) {
        if (!kvt_level_runs((enum kvt_level)i)) continue;
        KVT_TRY(kvt_buf_addf(b, "%s%s", separator, kvt_level_name((enum kvt_level)i)));
        separator = ", ";
    }
    return kvt_buf_addf(b, ")\n");
}

static enum kvt_status add_build(struct kvt_buf *b) {
#if defined(__clang__)
    KVT_TRY(kvt_buf_addf(b, "compiler       %s\n", __VERSION__));
#else
    KVT_TRY(kvt_buf_addf(b, "compiler       GCC %s\n", __VERSION__));
#endif
    const int threads = kvt_term_n_processors();
    const bool openmp = kvt_parallel_default(2).n_threads == 2;
    return kvt_buf_addf(b, "threads        %d (OpenMP: %s)\n", openmp ? threads : 1, openmp ? "yes" : "no");
}

static enum kvt_status make_text(struct kvt_buf *b) {
    KVT_TRY(kvt_buf_addf(b, "kvtile %s\n", kvt_version()));
    KVT_TRY(add_levels(b));
    return add_build(b);
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    (void)settings;
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, 1 << 16);
    enum kvt_status status = make_text(&text);
    if (status != KVT_OK)
        kvt_fail(err, status, "no memory for the text");
    else
        status = kvt_term_write(text.data, text.len, err);
    kvt_buf_finish(&text);
    return status;
}

const struct kvt_command kvt_command_version = {
    .name = "version",
    .about = "name the version, the levels that run here and the build options",
    .text =
        "Prints the version, the instruction-set level in use and those that run here, how the program was built, the "
        "architectures it can run and the codecs that --kv takes.",
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
