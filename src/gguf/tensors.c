/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensor part of a file: names, shapes, and where the data lies.
 */
#include <inttypes.h>

#include "gguf/inside.h"

static enum kvt_status read_dims(struct kvt_gguf_cursor *c, struct kvt_gguf_tensor *t) {
    uint32_t n_dims;
    KVT_TRY(kvt_gguf_read_u32(c, &n_dims));
    if (n_dims > KVT_ARRAY_LEN(t->dims))
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "'%.100s' has %" PRIu32 " dimensions; 4 are the most", t->name,
                               n_dims);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < 4; i++) t->dims[i] = 1;
    for (int i = 0; i < t->n_dims; i++) {
        uint64_t dim;
        KVT_TRY(kvt_gguf_read_u64(c, &dim));
        if (dim == 0 || dim > INT64_MAX)
            return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "'%.100s': dimension %d is %" PRIu64, t->name, i + 1, dim);
        t->dims[i] = (int64_t)dim;
    }
    return KVT_OK;
}

/* Bytes of a tensor whose dims and type are set, every product checked; the number of elements fits int64_t too. */
static enum kvt_status set_bytes(const struct kvt_gguf_cursor *c, struct kvt_gguf_tensor *t) {
    const struct kvt_gguf_type *type = t->type;
    if (t->dims[0] % type->block_len != 0)
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT,
                               "'%.100s': a row of %" PRId64 " elements is no whole number of %s blocks of %d", t->name,
                               t->dims[0], type->name, type->block_len);
    int64_t n = 1;
    bool fits = true;
    for (int i = 0; i < 4; i++) fits = fits && !__builtin_mul_overflow(n, t->dims[i], &n);
    size_t bytes = 0;
    if (!fits || !kvt_mul_ok((size_t)(n / type->block_len), type->block_bytes, &bytes))
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "'%.100s': the product of its dimensions is past any memory",
                               t->name);
    t->bytes = bytes;
    return KVT_OK;
}

static enum kvt_status read_slot(struct kvt_gguf_cursor *c, const struct kvt_gguf *gguf, struct kvt_gguf_slot *slot) {
    struct kvt_gguf_tensor *t = &slot->tensor;
    KVT_TRY(kvt_gguf_read_name(c, &gguf->allocator, &slot->name));
    t->name = slot->name;
    KVT_TRY(read_dims(c, t));
    uint32_t id;
    KVT_TRY(kvt_gguf_read_u32(c, &id));
    t->type = kvt_gguf_type_find(id);
    if (!t->type)
        return kvt_gguf_refuse(c, KVT_ERR_UNSUPPORTED, "'%.100s' is of the unknown type number %" PRIu32, t->name, id);
    KVT_TRY(set_bytes(c, t));
    KVT_TRY(kvt_gguf_read_u64(c, &slot->offset));
    if (slot->offset % gguf->alignment != 0)
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT,
                               "'%.100s': its offset %" PRIu64 " is no multiple of the alignment %zu", t->name,
                               slot->offset, gguf->alignment);
    return KVT_OK;
}

static enum kvt_status place(const struct kvt_gguf_cursor *c, const struct kvt_gguf *gguf, size_t start,
                             struct kvt_gguf_slot *slot) {
    struct kvt_gguf_tensor *t = &slot->tensor;
    const size_t room = gguf->bytes > start ? gguf->bytes - start : 0;
    if (slot->offset > room || t->bytes > room - slot->offset)
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT,
                               "'%.100s': its %zu bytes from %zu + %" PRIu64
                               " on reach past the end of the file at %zu "
                               "(cut short?)",
                               t->name, t->bytes, start, slot->offset, gguf->bytes);
    t->data = gguf->data + start + slot->offset;
    return KVT_OK;
}

enum kvt_status kvt_gguf_parse_tensors(struct kvt_gguf *gguf, struct kvt_gguf_cursor *c) {
    c->part = "tensor";
    for (size_t i = 0; i < gguf->n_slots; i++) {
        c->number = i + 1;
        KVT_TRY(read_slot(c, gguf, &gguf->slots[i]));
        gguf->slot_index.names[i] = (struct kvt_gguf_name){gguf->slots[i].name, i};
    }
    const size_t mask = gguf->alignment - 1, start = (c->at + mask) & ~mask; /* at < 2^63, the alignment <= 2^31 */
    for (size_t i = 0; i < gguf->n_slots; i++) {
        c->number = i + 1;
        KVT_TRY(place(c, gguf, start, &gguf->slots[i]));
    }
    c->number = 0;
    const char *twice = kvt_gguf_index_sort(&gguf->slot_index);
    if (twice) return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "the tensor name '%.100s' is there twice", twice);
    return KVT_OK;
}
