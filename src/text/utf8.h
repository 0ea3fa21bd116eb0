/* SPDX-License-Identifier: Apache-2.0
 * Well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing past U+10FFFF. */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include "base/attr.h"

/* Bytes of the well-formed character at p (1 to 4), or 0 if there is none within n bytes. */
int kvt_utf8_char_len(const char *p, size_t n);

/* Bytes up to the first that is not part of a well-formed character. */
size_t kvt_utf8_valid_len(const char *p, size_t n);

/* Bytes at the end, 0 to 3, that begin a character which is still unfinished. */
size_t kvt_utf8_unfinished_len(const char *p, size_t n);

/* The code point of a well-formed character of `len` bytes. */
uint32_t kvt_utf8_code(const char *p, int len);

/* Writes a code point below 0x800 and returns its bytes, 1 or 2. */
int kvt_utf8_put(char *dst, uint32_t code);

#endif
