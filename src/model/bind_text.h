/* SPDX-License-Identifier: Apache-2.0
 * A file's vocabulary as a tokenizer. */
#ifndef MODEL_BIND_TEXT_H
#define MODEL_BIND_TEXT_H

#include "gguf/gguf.h"
#include "text/text.h"

/* Makes the tokenizer that a GGUF's tokenizer.ggml.* describe; it does not need the file afterwards. FORMAT or UNSUPPORTED
 * with a sentence, as kvt_text_create says. */
KVT_MUST_CHECK enum kvt_status kvt_bind_text(struct kvt_text **out, const struct kvt_gguf *gguf,
                                             const struct kvt_allocator *allocator, struct kvt_error *err);

#endif
