/* SPDX-License-Identifier: Apache-2.0
 *
 * All backends, and the public calls that choose one.
 */
#include <string.h>

#include "backend/backend.h"
#include "backend/list.h"
#include "base/check.h"

#define X(name) extern const struct kvt_backend kvt_backend_##name;
KVT_BACKENDS(X)
#undef X

static const struct kvt_backend *const backends[] = {
#define X(name) &kvt_backend_##name,
    KVT_BACKENDS(X)
#undef X
};

#define X(name) " " #name
static const char known[] = KVT_BACKENDS(X);
#undef X

enum kvt_status kvt_pool_create(struct kvt_pool **out, const struct kvt_plan *plan,
                                const struct kvt_pool_options *options, struct kvt_error *err) {
    const struct kvt_pool_options none = {.struct_size = sizeof none};
    const struct kvt_pool_options *o = options ? options : &none;
    for (size_t i = 0; i < KVT_ARRAY_LEN(backends); i++)
        if (!o->backend || strcmp(o->backend, backends[i]->name) == 0)
            return kvt_pool_create_on(out, plan, o, &backends[i]->pages, backends[i], err);
    return kvt_fail(err, KVT_ERR_ARG, "unknown backend '%s'; known:%s", o->backend, known);
}

enum kvt_status kvt_step_attend(struct kvt_step *step, int layer, const struct kvt_attend *attend,
                                struct kvt_error *err) {
    const struct kvt_backend *backend = step->pool->backend;
    return backend->attend(step, layer, attend, err);
}
