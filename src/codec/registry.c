/* SPDX-License-Identifier: Apache-2.0
 *
 * All codecs, by number and by name, and the public calls that need no cache.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/check.h"
#include "codec/encoders.h"
#include "codec/kq.h"

static const struct kvt_encoder *const encoders[] = {
#define X(name) &kvt_encoder_##name,
    KVT_ENCODERS(X)
#undef X
};

size_t kvt_codec_count(void) {
    size_t n = 0;
    for (size_t e = 0; e < KVT_ARRAY_LEN(encoders); e++) n += encoders[e]->n_codecs;
    return n;
}

const struct kvt_codec *kvt_codec_at(size_t i) {
    for (size_t e = 0; e < KVT_ARRAY_LEN(encoders); e++) {
        if (i < encoders[e]->n_codecs) return &encoders[e]->codecs[i];
        i -= encoders[e]->n_codecs;
    }
    return NULL;
}

struct kvt_codec_info kvt_codec_info(const struct kvt_codec *codec) {
    return codec->info;
}

/* ---- names ------------------------------------------------------------------------------------------------------------- */

/* Whether `name` is the codec's, whole or without its group: "kivi4-parity" for "kivi4g32-parity". */
static bool is_named(const struct kvt_codec *codec, const char *name) {
    const char *const whole = codec->info.name, *const group = strchr(whole, 'g');
    if (strcmp(whole, name) == 0) return true;
    if (!group) return false;
    const size_t stem = (size_t)(group - whole);
    return strncmp(whole, name, stem) == 0 && strcmp(group + 1 + strspn(group + 1, "0123456789"), name + stem) == 0;
}

/* Levenshtein's distance of two short names. */
static size_t distance(const char *a, const char *b) {
    size_t row[33];
    const size_t n = KVT_MIN(strlen(b), KVT_ARRAY_LEN(row) - 1);
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = KVT_MIN(change, KVT_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

enum kvt_status kvt_codec_unknown(const char *name, const char *more, const char *(*more_at)(size_t i),
                                  struct kvt_error *err) {
    char known[400] = "";
    size_t used = 0, best = SIZE_MAX;
    const char *nearest = "", *other;
    for (size_t e = 0; e < KVT_ARRAY_LEN(encoders) && used < sizeof known; e++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", e ? ", " : "", encoders[e]->grammar);
    for (size_t i = 0; i < kvt_codec_count(); i++) {
        const size_t d = distance(name, kvt_codec_at(i)->info.name);
        if (d < best) best = d, nearest = kvt_codec_at(i)->info.name;
    }
    for (size_t i = 0; more_at && (other = more_at(i)) != NULL; i++) {
        const size_t d = distance(name, other);
        if (d < best) best = d, nearest = other;
    }
    return kvt_fail(err, KVT_ERR_ARG, "unknown codec '%.32s', the nearest is '%s'; known: %s%s", name, nearest, known,
                    more);
}

enum kvt_status kvt_codec_parse(const struct kvt_codec **out, const char *name, struct kvt_error *err) {
    for (size_t i = 0; i < kvt_codec_count() && *name; i++)
        if (is_named(kvt_codec_at(i), name)) {
            *out = kvt_codec_at(i);
            return KVT_OK;
        }
    return kvt_codec_unknown(name, "", NULL, err);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------------- */

float kvt_codec_limit(const struct kvt_codec *codec, enum kvt_side side, int d) {
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, d, &tile);
    if (tile.kind == KVT_TILE_PLAIN && tile.number != KVT_NUMBER_F16) return FLT_MAX;
    return tile.format.rotated ? 65504.0f / sqrtf((float)(d & -d)) : 65504.0f;
}

enum kvt_status kvt_codec_fits(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_error *err) {
    const int most = side == KVT_SIDE_K ? KVT_LATENT_MAX : KVT_HEAD_MAX;
    const int step = KVT_MAX(codec->row_step, KVT_HEAD_STEP);
    if (d < step || d > most || d % step != 0)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "%s cannot store %s rows of %d elements: a row must be a multiple of %d, at most %d",
                        codec->info.name, side == KVT_SIDE_K ? "K" : "V", d, step, most);
    if (!kvt_codec_takes(codec, side))
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "%s is made for %s: write 'K,V' with another codec for %s",
                        codec->info.name, side == KVT_SIDE_K ? "values alone" : "keys alone",
                        side == KVT_SIDE_K ? "K" : "V");
    return KVT_OK;
}

size_t kvt_codec_room(const struct kvt_codec *codec, int d) { return codec->query_rows ? kvt_kq_room(d) : 0; }

void kvt_codec_describe(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out) {
    if (codec->encoder->describe)
        codec->encoder->describe(codec, side, d, out);
    else
        kvt_tile_init(out, side, d, &codec->format);
}

size_t kvt_codec_tile_bytes(const struct kvt_codec *codec, enum kvt_side side, int d) {
    if (kvt_codec_fits(codec, side, d, NULL) != KVT_OK) return 0;
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, d, &tile);
    return tile.bytes;
}

static enum kvt_status check_rows(const struct kvt_codec *codec, int granularity, int first, int n,
                                  struct kvt_error *err) {
    if (first < 0 || n < 0 || first > KVT_TILE_ROWS || n > KVT_TILE_ROWS - first)
        return kvt_fail(err, KVT_ERR_RANGE, "rows %d to %d are outside a tile of %d rows", first, first + n,
                        KVT_TILE_ROWS);
    if (first % granularity != 0 || n % granularity != 0)
        return kvt_fail(err, KVT_ERR_ARG, "%s encodes %d rows at a time; rows %d to %d do not fit that",
                        codec->info.name, granularity, first, first + n);
    return KVT_OK;
}

enum kvt_status kvt_codec_encode(const struct kvt_codec *codec, enum kvt_side side, int d, void *tile, int first, int n,
                                 const float *rows, ptrdiff_t stride, struct kvt_error *err) {
    KVT_TRY(kvt_codec_fits(codec, side, d, err));
    KVT_TRY(check_rows(codec, codec->info.granularity, first, n, err));
    const float limit = kvt_codec_limit(codec, side, d);
    for (int r = 0; r < n; r++)
        for (int c = 0; c < d; c++)
            if (!(fabsf(rows[r * stride + c]) <= limit))
                return kvt_fail(err, KVT_ERR_RANGE, "row %d, channel %d is %g: %s takes finite numbers up to %g",
                                first + r, c, (double)rows[r * stride + c], codec->info.name, (double)limit);
    struct kvt_tile description;
    kvt_codec_describe(codec, side, d, &description);
    codec->encoder->encode(&(struct kvt_encode_args){
        .codec = codec, .tile = &description, .bytes = tile, .first = first, .n = n, .rows = rows, .stride = stride});
    return KVT_OK;
}

enum kvt_status kvt_codec_decode(const struct kvt_codec *codec, enum kvt_side side, int d, float *rows,
                                 ptrdiff_t stride, const void *tile, int first, int n, struct kvt_error *err) {
    KVT_TRY(kvt_codec_fits(codec, side, d, err));
    KVT_TRY(check_rows(codec, 1, first, n, err));
    struct kvt_tile description;
    kvt_codec_describe(codec, side, d, &description);
    kvt_tile_decode(&description, rows, stride, tile, first, n);
    return KVT_OK;
}
