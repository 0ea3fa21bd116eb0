/* SPDX-License-Identifier: Apache-2.0
 * The report of `kvtile codecs` as tables. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cli/codecs.h"

/* ---- cells ------------------------------------------------------------------------------------------------------------ */

/* A table that is written cell by cell: the first column to the left, the rest to the right. In Markdown widths do not
 * matter. */
enum { CELL_MAX = 200 };
struct table {
    struct kvt_buf *out;
    bool markdown;
    int first_width;
    int column;
};

/* Columns that UTF-8 takes: bytes that begin a character. */
static int width_of(const char *text) {
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* width < 0: to the left. */
static enum kvt_status cell(struct table *t, int width, const char *format, ...) KVT_PRINTF(3, 4);
static enum kvt_status cell(struct table *t, int width, const char *format, ...) {
    char text[CELL_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const bool left = t->column == 0 || width < 0;
    const int wanted = t->column == 0 ? t->first_width : width < 0 ? -width : width;
    const int pad = KVT_MAX(wanted - width_of(text), 0);
    if (t->markdown) return kvt_buf_addf(t->out, t->column++ == 0 ? "| %s |" : " %s |", text);
    if (t->column++ > 0) KVT_TRY(kvt_buf_addf(t->out, "  "));
    return left ? kvt_buf_addf(t->out, "%s%*s", text, pad, "") : kvt_buf_addf(t->out, "%*s%s", pad, "", text);
}

static enum kvt_status end_row(struct table *t) {
    t->column = 0;
    while (t->out->len > 0 && t->out->data[t->out->len - 1] == ' ') t->out->data[--t->out->len] = 0;
    return kvt_buf_addf(t->out, "\n");
}

/* Ends the row of headings. */
static enum kvt_status end_head(struct table *t) {
    const int n = t->column;
    KVT_TRY(end_row(t));
    if (!t->markdown) return KVT_OK;
    for (int i = 0; i < n; i++) KVT_TRY(kvt_buf_addf(t->out, i ? "---|" : "|---|"));
    return end_row(t);
}

static enum kvt_status title(struct table *t, const char *text) {
    return kvt_buf_addf(t->out, t->markdown ? "\n## %s\n\n" : "\n%s\n\n", text);
}

/* ---- what they store -------------------------------------------------------------------------------------------------- */

static const char *axis_text(char text[CELL_MAX], const struct kvt_codec_axis *axis) {
    char group[16] = "row";
    if (axis->group) snprintf(group, sizeof group, "%d", axis->group);
    if (!axis->has_scale)
        snprintf(text, CELL_MAX, "no scale");
    else
        snprintf(text, CELL_MAX, "%s%s/%s%s", axis->rotated ? "rot. " : "", axis->per_channel ? "channel" : "token",
                 group,
                 !axis->has_factor   ? ""
                 : axis->per_channel ? " x token"
                                     : " x channel");
    return text;
}

/* "KL" and the name of a model's file, without folder and ending. */
static enum kvt_status add_kl_head(struct table *t, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return cell(t, 10, "KL %.*s", dot && dot > name ? (int)KVT_MIN(dot - name, 40) : 40, name);
}

static enum kvt_status add_stores(struct table *t, const struct kvt_codecs_report *r) {
    char text[CELL_MAX];
    KVT_TRY(title(t, "At a glance"));
    KVT_TRY(cell(t, 0, "codec"));
    KVT_TRY(cell(t, 4, "rows"));
    KVT_TRY(cell(t, -24, "keys"));
    KVT_TRY(cell(t, -24, "values"));
    for (int i = 0; i < KVT_CODECS_N_SIZES; i++) KVT_TRY(cell(t, 8, "bits %d", kvt_codecs_sizes[i]));
    for (int s = 0; s < r->n_sources; s++)
        if (r->sources[s].is_model) KVT_TRY(add_kl_head(t, r->sources[s].name));
    KVT_TRY(end_head(t));
    for (int i = 0; i < r->n_rows; i++) {
        const struct kvt_codecs_row *row = &r->rows[i];
        KVT_TRY(cell(t, 0, "%s", row->kv));
        KVT_TRY(cell(t, 4, "%d", row->granularity));
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            KVT_TRY(cell(t, -24, "%s", axis_text(text, &row->axis[side])));
        for (int k = 0; k < KVT_CODECS_N_SIZES; k++) KVT_TRY(cell(t, 8, "%.3f", row->bits[k]));
        for (int s = 0; s < r->n_sources; s++)
            if (r->sources[s].is_model) KVT_TRY(cell(t, 10, "%.3g", r->sources[s].kl.rows[i].kl.mean));
        KVT_TRY(end_row(t));
    }
    return KVT_OK;
}

/* ---- what they lose --------------------------------------------------------------------------------------------------- */

static enum kvt_status add_loss_title(struct table *t, const struct kvt_codecs_report *r,
                                      const struct kvt_codecs_source *s) {
    char text[600];
    if (s->is_model)
        snprintf(
            text, sizeof text,
            "What they lose on %.200s (%.200s: %d chunk%s of %d tokens; for KL %d first and %d newest rows in 16 bits)",
            s->name, s->text, s->kl.n_chunks, s->kl.n_chunks == 1 ? "" : "s", r->chunk, r->sink, r->tail);
    else
        snprintf(text, sizeof text, "What they lose on %s", s->name);
    return title(t, text);
}

static enum kvt_status add_losses(struct table *t, const struct kvt_codecs_report *r,
                                  const struct kvt_codecs_source *s) {
    KVT_TRY(add_loss_title(t, r, s));
    KVT_TRY(cell(t, 0, "codec"));
    KVT_TRY(cell(t, 9, "row K"));
    KVT_TRY(cell(t, 9, "row V"));
    KVT_TRY(cell(t, 9, "att. K"));
    KVT_TRY(cell(t, 9, "att. V"));
    KVT_TRY(cell(t, 9, "att. both"));
    if (s->is_model) {
        KVT_TRY(cell(t, 9, "KL mean"));
        KVT_TRY(cell(t, 8, "s.e."));
        KVT_TRY(cell(t, 9, "p99"));
        KVT_TRY(cell(t, 7, "flips %%"));
    }
    KVT_TRY(end_head(t));
    for (int i = 0; i < r->n_rows; i++) {
        const struct kvt_codec_errors e = kvt_codec_errors_of(&s->sums[i]);
        KVT_TRY(cell(t, 0, "%s", r->rows[i].kv));
        for (int side = 0; side < KVT_SIDE_COUNT; side++) KVT_TRY(cell(t, 9, "%.3g", e.row[side]));
        for (int k = 0; k < KVT_DECODED_COUNT; k++) KVT_TRY(cell(t, 9, "%.3g", e.attention[k]));
        if (s->is_model) {
            const struct kvt_fidelity_row *row = &s->kl.rows[i];
            KVT_TRY(cell(t, 9, "%.3g", row->kl.mean));
            KVT_TRY(cell(t, 8, "%.2g", row->kl_stderr));
            KVT_TRY(cell(t, 9, "%.3g", row->kl.p99));
            KVT_TRY(cell(t, 7, "%.2f", 100 * row->flips));
        }
        KVT_TRY(end_row(t));
    }
    return KVT_OK;
}

/* ---- what they take --------------------------------------------------------------------------------------------------- */

static enum kvt_status add_time(struct table *t, const struct kvt_spread *s) {
    const double median = kvt_codecs_ns(s->median), spread = kvt_codecs_ns(s->high - s->low) / 2;
    return cell(t, 13, median < 99.5 ? "%.1f ±%.1f" : "%.0f ±%.0f", median, spread);
}

static enum kvt_status add_times(struct table *t, const struct kvt_codecs_report *r) {
    static const char *const sides[KVT_SIDE_COUNT] = {"K", "V"};
    KVT_TRY(title(t, "What they take: nanoseconds for 1024 values, one thread"));
    KVT_TRY(cell(t, 0, "codec"));
    for (int work = 0; work < 2; work++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            for (int l = 0; l < r->n_levels; l++)
                KVT_TRY(cell(t, 13, "%s %s %s", work ? "dec." : "enc.", sides[side], kvt_level_name(r->levels[l])));
    KVT_TRY(cell(t, 13, "copy"));
    KVT_TRY(end_head(t));
    for (int i = 0; i < r->n_rows; i++) {
        const struct kvt_codec_times *times = r->rows[i].times;
        KVT_TRY(cell(t, 0, "%s", r->rows[i].kv));
        for (int work = 0; work < 2; work++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++)
                for (int l = 0; l < r->n_levels; l++)
                    KVT_TRY(add_time(t, work ? &times[side].decode[r->levels[l]] : &times[side].encode[r->levels[l]]));
        KVT_TRY(add_time(t, &times[KVT_SIDE_K].copy));
        KVT_TRY(end_row(t));
    }
    return KVT_OK;
}

/* ---- what the words mean ---------------------------------------------------------------------------------------------- */

static const char legend[] =
    "\n"
    "rows          how many a codec must have before it can encode\n"
    "keys, values  what shares a scale: N rows of one channel, or N channels of one token;\n"
    "              rot.: rows are rotated first; x: a second factor along the other axis\n"
    "bits N        an element's, of full tiles of heads of N, scales and padding included\n"
    "row K, V      relative error of rows that were encoded and decoded\n"
    "att.          the same of attention over them: keys, values or both decoded, no row in 16 bits\n"
    "KL            of the predictions with this cache from those with an f16 cache, nats a position\n"
    "enc., dec.    to encode rows as soon as a codec has enough of them; to decode a whole tile\n"
    "±             half the interquartile range of 31 times; copy is memcpy of as many floats, in turn\n"
    "              with the rest; ref is plain C, and a codec without a kernel is the same at every level\n"
    "\n"
    "Row error alone can rank codecs backwards: go by KL, and where there is none by attention.\n";

enum kvt_status kvt_codecs_table(struct kvt_buf *out, const struct kvt_codecs_report *report, bool markdown) {
    struct table t = {.out = out, .markdown = markdown, .first_width = (int)strlen("codec")};
    for (int i = 0; i < report->n_rows; i++) t.first_width = KVT_MAX(t.first_width, (int)strlen(report->rows[i].kv));
    KVT_TRY(add_stores(&t, report));
    for (int s = 0; s < report->n_sources; s++) KVT_TRY(add_losses(&t, report, &report->sources[s]));
    KVT_TRY(add_times(&t, report));
    return markdown ? KVT_OK : kvt_buf_addf(out, "%s", legend);
}
