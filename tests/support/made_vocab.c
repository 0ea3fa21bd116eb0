/* SPDX-License-Identifier: Apache-2.0 */
#include "support/made_vocab.h"

#include <string.h>

#include "support/make_model.h"

/* What GPT-2 writes a space as: U+0120. */
#define SPACE "\xC4\xA0"

static const char *const merges[KVT_MADE_N_MERGES] = {
    SPACE " t", "h e", SPACE "t he", "i n", "e r", "o u", SPACE " a", "n d", SPACE "a nd", "in g",
};

/* GPT-2 writes a byte as a character that can be seen: itself where it is printable in Latin-1, else the next of U+0100 on. */
static void byte_text(char text[4], int byte) {
    int n_hidden = 0, character = byte;
    for (int b = 0; b <= byte; b++) {
        const bool seen = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (!seen && b == byte) character = 0x100 + n_hidden;
        n_hidden += !seen;
    }
    memset(text, 0, 4);
    if (character < 0x80) {
        text[0] = (char)character;
    } else {
        text[0] = (char)(0xC0 | character >> 6);
        text[1] = (char)(0x80 | (character & 0x3F));
    }
}

/* "a b" gives "ab". */
static void merged(char text[16], const char *merge) {
    const char *space = strchr(merge, ' ');
    const size_t left = (size_t)(space - merge);
    memcpy(text, merge, left);
    memcpy(text + left, space + 1, strlen(space + 1) + 1);
}

void kvt_made_vocab_add(struct kvt_gguf_writer *w, const char *pre) {
    char bytes[256][4], results[KVT_MADE_N_MERGES][16];
    const char *tokens[KVT_MADE_N_VOCAB];
    int32_t types[KVT_MADE_N_VOCAB];
    for (int i = 0; i < KVT_MADE_N_VOCAB; i++) types[i] = i < KVT_MADE_BOS ? 1 : 3; /* normal, control */
    for (int i = 0; i < 256; i++) {
        byte_text(bytes[i], i);
        tokens[i] = bytes[i];
    }
    for (int i = 0; i < KVT_MADE_N_MERGES; i++) {
        merged(results[i], merges[i]);
        tokens[256 + i] = results[i];
    }
    tokens[KVT_MADE_BOS] = "<|startoftext|>";
    tokens[KVT_MADE_EOS] = "<|endoftext|>";
    kvt_gguf_add_text(w, "tokenizer.ggml.model", "gpt2");
    kvt_gguf_add_text(w, "tokenizer.ggml.pre", pre);
    kvt_gguf_add_texts(w, "tokenizer.ggml.tokens", tokens, KVT_MADE_N_VOCAB);
    kvt_gguf_add_i32s(w, "tokenizer.ggml.token_type", types, KVT_MADE_N_VOCAB);
    kvt_gguf_add_texts(w, "tokenizer.ggml.merges", merges, KVT_MADE_N_MERGES);
    kvt_gguf_add_u32(w, "tokenizer.ggml.bos_token_id", KVT_MADE_BOS);
    kvt_gguf_add_u32(w, "tokenizer.ggml.eos_token_id", KVT_MADE_EOS);
    kvt_gguf_add_bool(w, "tokenizer.ggml.add_bos_token", true);
}
