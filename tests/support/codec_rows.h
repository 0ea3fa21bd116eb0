/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that hurt an encoder, the same in C and in tests/compare/codecs.py.
 */
#ifndef SUPPORT_CODEC_ROWS_H
#define SUPPORT_CODEC_ROWS_H

enum { CODEC_ROWS_KINDS = 8 };

/* Fills rows of d elements. Row r is of kind r % 8: 0 normal; 1 large; 2 on a grid that makes ties, either sign; 3 the same,
 * one-sided; 4 zeros of both signs, constants, 1e-20; 5 an outlier; 6 small; 7 f16 numbers with a bias on some channels. */
void codec_rows_fill(float *rows, int n, int d, int tile);

#endif
