/* SPDX-License-Identifier: Apache-2.0
 *
 * The pre-tokenizers, each with the expressions that the authors of its models published in their tokenizer files. They are
 * written here for PCRE2 with UTF; white space is spelled out because PCRE2's \s also takes U+180E, which has not been white
 * space since Unicode 6.3.
 */
#include <string.h>

#include "text/split.h"

#define SPACE "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

/* Endings of English contractions; blanks at the end of a piece, but for the last before a word; lines' ends. */
#define ENDINGS     "(?:[sdmt]|ll|ve|re)"
#define BLANKS      "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define LINE_BLANKS "[" SPACE "]*[\\r\\n]+|" BLANKS

/* GPT-2: letters, digits and the rest apart, each with one space before it. */
#define GPT2 "'" ENDINGS "|\\x{20}?\\p{L}+|\\x{20}?\\p{N}+|\\x{20}?[^" SPACE "\\p{L}\\p{N}]+|" BLANKS

/* cl100k and its kin: any one character that is no letter, digit or line end may lead a word; line ends stay with the
 * punctuation before them. They differ in how many digits a piece may have. */
#define CL100K(digits)                                                                                                 \
    "(?i:'" ENDINGS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "|\\x{20}?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|" LINE_BLANKS

/* o200k and its kin: as above, and a word also ends where lower case turns to upper case. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K(endings, digits)                                                                                         \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" endings "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" endings         \
    "|" digits "|\\x{20}?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*|" LINE_BLANKS

/* DeepSeek's: the cased letters of the first 64K and a little more, as their list has them; the scripts of East Asia as one
 * range of code points. */
#define DEEPSEEK_CASED                                                                                                 \
    "[^\\P{L&}\\x{560}-\\x{588}\\x{10C7}-\\x{10FF}\\x{1C80}-\\x{1C8A}\\x{2D00}-\\x{2D2D}\\x{A790}-\\x{A7FA}"           \
    "\\x{AB30}-\\x{AB68}\\x{10570}-\\x{105BC}\\x{16E40}-\\x{16E7F}\\x{1D400}-\\x{1DF2A}]"
#define DEEPSEEK_PUNCTUATION "[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]"
#define DEEPSEEK_BLANKS      "(?<![" SPACE "])[" SPACE "]++\\z" /* from a run's start: PCRE2 would try each of its blanks */
#define DEEPSEEK_EAST        "[\\x{800}-\\x{9FA5}\\x{AC00}-\\x{D7FF}]+"
#define DEEPSEEK_V3                                                                                                    \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|\\x{20}?[\\p{P}\\p{S}]+[\\r\\n]*|" LINE_BLANKS

/* Qwen3.5: as qwen2, with marks counted among the letters. */
#define QWEN35                                                                                                         \
    "(?i:'" ENDINGS ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|\\x{20}?[^" SPACE                                  \
    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINE_BLANKS

/* Other names on a row are those of models that cut text the same way, as llama.cpp's converter writes them. */
static const struct kvt_pretokenizer rows[] = {
    {"gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum", {GPT2}, false, false},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", {CL100K("\\p{N}{1,3}")}, true, true},
    {"dbrx smaug-bpe chatglm-bpe glm4", {CL100K("\\p{N}{1,3}")}, false, false},
    {"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo", {CL100K("\\p{N}")}, false, false},
    {"qwen35", {QWEN35}, false, false},
    {"smollm", {"\\p{N}", GPT2}, false, false},
    {"starcoder refact command-r codeshell exaone minerva-7b mellum2", {"\\p{N}", GPT2}, false, false},
    {"deepseek-llm",
     {"[\\r\\n]", "[" SPACE "]?" DEEPSEEK_CASED "+", "[" SPACE "]?" DEEPSEEK_PUNCTUATION "+", DEEPSEEK_BLANKS,
      DEEPSEEK_EAST, "\\p{N}+"},
     false,
     false},
    {"deepseek-coder",
     {"[\\r\\n]", "[" SPACE "]?\\p{L}+", "[" SPACE "]?\\p{P}+", DEEPSEEK_EAST, "\\p{N}"},
     false,
     false},
    {"deepseek-v3 hunyuan-dense joyai-llm",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+", DEEPSEEK_V3},
     false,
     false},
    {"tekken", {O200K("", "\\p{N}")}, true, true},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {O200K("(?i:'" ENDINGS ")?", "\\p{N}{1,3}")}, false, false},
};

const struct kvt_pretokenizer *kvt_pretokenizer_find(const char *name) {
    const size_t len = strlen(name);
    if (len == 0 || strchr(name, ' ')) return NULL;
    for (size_t i = 0; i < KVT_ARRAY_LEN(rows); i++)
        for (const char *p = rows[i].names; *p; p += strspn(p, " ")) {
            const size_t n = strcspn(p, " ");
            if (n == len && memcmp(p, name, n) == 0) return &rows[i];
            p += n;
        }
    return NULL;
}

const struct kvt_pretokenizer *kvt_pretokenizer_row(int i) {
    return i >= 0 && (size_t)i < KVT_ARRAY_LEN(rows) ? &rows[i] : NULL;
}
