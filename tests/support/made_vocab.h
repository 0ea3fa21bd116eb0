/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of made models (see make_model.h for its ids). */
#ifndef SUPPORT_MADE_VOCAB_H
#define SUPPORT_MADE_VOCAB_H

#include "gguf/write.h"

/* Adds the tokenizer's metadata, with a pre-tokenizer by name. */
void kvt_made_vocab_add(struct kvt_gguf_writer *w, const char *pre);

#endif
