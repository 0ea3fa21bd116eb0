/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding and decoding on a device, between C and CUDA: the bytes and floats of the scalar reference. Pointers called `device` lead to
 * the device's memory; nothing is allocated. Calls launch kernels in a stream and return.
 */
#ifndef BACKEND_CUDA_ENCODE_H
#define BACKEND_CUDA_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/codec.h"
#include "kvtile/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the rows of a launch's jobs come from. */
struct kvt_cuda_source {
    bool is_tile;           /* from plain tiles of this side; else from matrices, one for each job */
    enum kvt_number number; /* of the elements */
    ptrdiff_t stride;       /* matrices: elements from row to row */
    /* Matrices: rows are rounded to this before they are encoded, as if they had been in a plain tile (F32: not). */
    enum kvt_number round;
};

/* Rows [first, first + n) of one tile. An array of these is in the device's memory; no two of a launch share a tile. */
struct kvt_cuda_job {
    void *tile; /* device: the tile that is filled, aligned to 64 */
    const void
        *rows; /* device: the plain tile, whose rows have the same places; or the matrix's first row, row `first` */
    const void
        *queries; /* device: the K tile of queries beside the rows (docs/formats.md, section 9); null: not known */
    int first, n;
};

struct kvt_cuda_encode_args {
    const struct kvt_codec *codec;
    enum kvt_side side;
    int d;
    struct kvt_cuda_source source;
    const struct kvt_cuda_job *jobs; /* device */
    int n_jobs, most_rows;           /* most_rows: no job has more */
    /* Device, or null: one number, that the caller has set to UINT64_MAX. Elements of matrices that are no finite number or larger than
     * kvt_codec_limit leave there the first of them: job << 32 | row of the tile << 16 | channel. Their tile's bytes are then undefined. */
    uint64_t *bad;
    float limit; /* in the place of kvt_codec_limit; 0: that */
    /* It may run at the same time as the call before it in the stream, of which it needs nothing and which is of this kind too. */
    bool beside;
};

/* Whether kvt_cuda_encode takes a codec for rows of d elements. UNSUPPORTED with a sentence where not. */
enum kvt_status kvt_cuda_can_encode(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_error *err);

/* Encodes the rows of all jobs; first and n obey the codec's granularity. Other rows' bytes stay as they are. */
enum kvt_status kvt_cuda_encode(const struct kvt_cuda_encode_args *args, void *stream, struct kvt_error *err);

/* Rows [first, first + n) of a tile as floats, row after row from `rows` on. */
struct kvt_cuda_decode_job {
    const void *tile; /* device */
    float *rows;      /* device */
    int first, n;
};

/* Decodes the rows of all jobs, `stride` floats from row to row, in the basis that they came in. */
struct kvt_cuda_decode_args {
    const struct kvt_codec *codec;
    enum kvt_side side;
    int d;
    ptrdiff_t stride;
    const struct kvt_cuda_decode_job *jobs; /* device */
    int n_jobs, most_rows;
};
enum kvt_status kvt_cuda_decode(const struct kvt_cuda_decode_args *args, void *stream, struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
