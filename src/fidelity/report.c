/* SPDX-License-Identifier: Apache-2.0
 * What the forms of the report share: tiers, the rows that belong together, the text of a position. */
#include "fidelity/report.h"

#include <stdio.h>

#include "base/check.h"

enum { TOKEN_BYTES_MAX = 1 << 16 };

/* Facts of mlx-quant-fidelity 0.10.0 (IonDen), its KV probe. */
const struct kvt_tier kvt_tiers[KVT_TIERS] = {
    {"good", 0.01, 0.10, 0.01},
    {"marginal", 0.10, 1.00, 0.05},
};

const char *kvt_fidelity_tier(const struct kvt_fidelity_row *row) {
    for (int i = 0; i < KVT_TIERS; i++)
        if (row->kl.mean <= kvt_tiers[i].mean && row->kl.p99 <= kvt_tiers[i].p99 && row->flips <= kvt_tiers[i].flips)
            return kvt_tiers[i].name;
    return "bad";
}

int kvt_report_next(const struct kvt_report *r, enum kvt_fidelity_kind kind, int of, int i) {
    while (++i < r->result->n_rows)
        if (r->about->cases[i].kind == kind && r->about->cases[i].of == of) return i;
    return -1;
}

bool kvt_report_has(const struct kvt_report *r, enum kvt_fidelity_kind kind) {
    for (int i = 0; i < r->result->n_rows; i++)
        if (kvt_report_is(r, i, kind)) return true;
    return false;
}

bool kvt_report_names_legs(const struct kvt_report *r) {
    for (int i = 0; i < r->result->n_rows; i++)
        if (r->about->cases[i].leg == KVT_LEG_DECODE) return true;
    return false;
}

static const char *side_name(int side) { return side == KVT_SIDE_K ? "K" : side == KVT_SIDE_V ? "V" : "K and V"; }

void kvt_report_part(char out[KVT_PART_BYTES], const struct kvt_report *r, int i) {
    const struct kvt_fidelity_case *c = &r->about->cases[i], *of = &r->about->cases[c->of];
    const int first = c->sink - of->sink, newest = c->tail - of->tail;
    switch (c->kind) {
    case KVT_FIDELITY_SCHEME: snprintf(out, KVT_PART_BYTES, "all"); break;
    case KVT_FIDELITY_CONTROL: snprintf(out, KVT_PART_BYTES, "plain attention"); break;
    case KVT_FIDELITY_SIDE: snprintf(out, KVT_PART_BYTES, "%s alone", side_name(c->side)); break;
    case KVT_FIDELITY_LAYER: snprintf(out, KVT_PART_BYTES, "layer %d, %s", c->layer, side_name(c->side)); break;
    case KVT_FIDELITY_KEPT: snprintf(out, KVT_PART_BYTES, "all but layer %d", c->layer); break;
    case KVT_FIDELITY_HEAD: snprintf(out, KVT_PART_BYTES, "layer %d, head %d", c->layer, c->head); break;
    case KVT_FIDELITY_REGION:
        if (first && newest)
            snprintf(out, KVT_PART_BYTES, "%d first, %d newest kept", first, newest);
        else
            snprintf(out, KVT_PART_BYTES, "%d %s kept", first + newest, first ? "first" : "newest");
        break;
    }
}

/* ---- text ------------------------------------------------------------------------------------------------------------- */

/* In one line: a line's end becomes \n, other control characters a space. */
static enum kvt_status add_line(struct kvt_buf *out, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        const char c = (unsigned char)text[i] < ' ' || text[i] == 127 ? ' ' : text[i];
        KVT_TRY(text[i] == '\n' ? kvt_buf_add(out, "\\n", 2) : kvt_buf_add(out, &c, 1));
    }
    return KVT_OK;
}

enum kvt_status kvt_report_token(struct kvt_buf *out, const struct kvt_report *r, int32_t id) {
    struct kvt_buf token;
    if (!r->about->tokenizer) return kvt_buf_addf(out, "%d", id);
    kvt_buf_init(&token, NULL, TOKEN_BYTES_MAX);
    enum kvt_status status = kvt_text_decode(r->about->tokenizer, id, true, &token);
    if (status == KVT_OK) status = add_line(out, kvt_buf_text(&token), token.len);
    kvt_buf_finish(&token);
    return status;
}

bool kvt_report_context(struct kvt_buf *out, const struct kvt_report *r, const struct kvt_fidelity_position *at,
                        int max) {
    const struct kvt_fidelity_about *about = r->about;
    if (!about->tokenizer || !about->ids) return false;
    const int32_t *ids = about->ids + (size_t)at->chunk * (size_t)about->chunk;
    for (int i = KVT_MAX(0, at->position + 1 - max); i <= at->position; i++)
        if (kvt_report_token(out, r, ids[i]) != KVT_OK) return false;
    return true;
}
