/* SPDX-License-Identifier: Apache-2.0
 * kvtile version */
#include <string.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/line.h"
#include "cli/term.h"
#include "model/model.h"

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

static enum kvt_status add_backends(struct kvt_buf *b) {
    for (size_t i = 0; kvt_backend_at(i); i++) {
        char text[600];
        if (kvt_backend_about(kvt_backend_at(i), text, sizeof text, NULL) == KVT_OK)
            KVT_TRY(kvt_buf_addf(b, "%-14s %s: %s\n", i ? "" : "backends", kvt_backend_at(i), text));
    }
    return KVT_OK;
}

static enum kvt_status add_build(struct kvt_buf *b) {
#if defined(__clang__)
    const char *compiler = "";
#else
    const char *compiler = "GCC ";
#endif
    KVT_TRY(kvt_buf_addf(b, "compiler       %s%s\n", compiler, __VERSION__));
    KVT_TRY(kvt_buf_addf(b, "BLAS           %s\n", kvt_model_blas_name()));
    KVT_TRY(kvt_buf_addf(b, "line editing   %s\n", kvt_line_editor()));
#if defined(KVT_ASSERTS)
    KVT_TRY(kvt_buf_addf(b, "assertions     on\n"));
#endif
    return kvt_buf_addf(b, "architectures  %s\n", kvt_arch_names());
}

/* The codecs' names, wrapped. */
static enum kvt_status add_codecs(struct kvt_buf *b) {
    enum { INDENT = 15, COLUMNS = 80 };
    KVT_TRY(kvt_buf_addf(b, "codecs        "));
    size_t column = INDENT - 1;
    for (size_t i = 0; i < kvt_codec_count(); i++) {
        const char *name = kvt_codec_info(kvt_codec_at(i)).name;
        if (column + 1 + strlen(name) > COLUMNS) {
            KVT_TRY(kvt_buf_addf(b, "\n%*s", INDENT - 1, ""));
            column = INDENT - 1;
        }
        KVT_TRY(kvt_buf_addf(b, " %s", name));
        column += 1 + strlen(name);
    }
    return kvt_buf_addf(b, "\n");
}

static enum kvt_status make_text(struct kvt_buf *b) {
    KVT_TRY(kvt_buf_addf(b, "kvtile %s\n", kvt_version()));
    KVT_TRY(add_levels(b));
    KVT_TRY(add_backends(b));
    KVT_TRY(add_build(b));
    return add_codecs(b);
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
    .about = "name the version, the levels and backends that run here and the build options",
    .text =
        "Prints the version, the instruction-set level in use and those that run here, the places where a cache can live "
        "with the devices that were found, how the program was built, the architectures it can run and the codecs that "
        "--kv takes.",
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
