/* SPDX-License-Identifier: Apache-2.0
 * Choosing the text: from a file, as token ids, or written by the model. */
#include "cli/input_options.h"

#include <stdio.h>

#include "base/check.h"
#include "base/file.h"

enum { TEXT_BYTES_MAX = 64 << 20 };

#define AT(field) offsetof(struct kvt_input_settings, field)

/* clang-format off */
const struct kvt_opt kvt_input_options[KVT_INPUT_N_OPTIONS] = {
    {KVT_OPT_GROUP, .name = "Text, one of"},
    {KVT_OPT_TEXT, .name = "text", .value = "FILE", .at = AT(text), .not_with = "ids self",
     .help = "a plain text, \"-\" for standard input"},
    {KVT_OPT_TEXT, .name = "ids", .value = "FILE", .at = AT(ids), .not_with = "text self",
     .help = "token ids, one per line"},
    {KVT_OPT_INT, .name = "self", .value = "N", .at = AT(self), .min = 2, .max = 1 << 30, .not_with = "text ids",
     .help = "N tokens that the model writes itself, at temperature 1 with a 16-bit cache"},
    {KVT_OPT_INT, .name = "seed", .brief = "s", .value = "N", .at = AT(seed), .max = 0xFFFFFFFFp0, .needs = "self",
     .help = "the same seed gives the same text"},
};
/* clang-format on */

static enum kvt_status read_file(struct kvt_ids *out, const struct kvt_input_settings *s,
                                 const struct kvt_input_reader *reader, struct kvt_error *err) {
    const char *path = s->ids ? s->ids : s->text;
    struct kvt_buf file;
    enum kvt_status status;
    kvt_buf_init(&file, NULL, TEXT_BYTES_MAX);
    KVT_TRY_OUT(kvt_file_read(&file, path, err));
    if (s->ids)
        status =
            kvt_fidelity_read_ids(out, kvt_buf_text(&file), file.len, path, kvt_model_info(reader->model).n_vocab, err);
    else
        status = kvt_fidelity_read_text(out, kvt_buf_text(&file), file.len, reader->model, err);
out:
    kvt_buf_finish(&file);
    return status;
}

static enum kvt_status sample(struct kvt_ids *out, const struct kvt_input_settings *s,
                              const struct kvt_input_reader *reader, struct kvt_error *err) {
    const struct kvt_self_options self = {
        .n = (int)s->self,
        .chunk = reader->chunk,
        .beyond = reader->beyond,
        .seed = (uint64_t)s->seed,
        .level = reader->level,
        .parallel = reader->parallel,
        .progress = reader->progress,
    };
    if (self.n < self.chunk)
        return kvt_fail(err, KVT_ERR_ARG, "--self %d is less than one chunk of %d tokens", self.n, self.chunk);
    return kvt_fidelity_sample(out, reader->model, &self, err);
}

enum kvt_status kvt_input_read(struct kvt_ids *out, char name[KVT_INPUT_NAME_MAX], const struct kvt_input_settings *s,
                               const struct kvt_input_reader *reader, struct kvt_error *err) {
    KVT_ASSERT(kvt_input_is_named(s));
    if (s->self)
        snprintf(name, KVT_INPUT_NAME_MAX, "self:%lld, seed %lld", (long long)s->self, (long long)s->seed);
    else
        snprintf(name, KVT_INPUT_NAME_MAX, "%s", s->ids ? s->ids : s->text);
    return s->self ? sample(out, s, reader, err) : read_file(out, s, reader, err);
}
