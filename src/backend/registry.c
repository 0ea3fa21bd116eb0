/* SPDX-License-Identifier: Apache-2.0
 *
 * All backends, and the public calls that choose one.
 */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/list.h"
#include "backend/row.h"
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

static const struct kvt_backend *find(const char *name) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(backends); i++)
        if (strcmp(name, backends[i]->name) == 0) return backends[i];
    return NULL;
}

/* NULL is the default. */
static enum kvt_status choose(const struct kvt_backend **out, const char *name, struct kvt_error *err) {
    const struct kvt_backend *backend = name ? find(name) : backends[0];
    if (!backend) return kvt_fail(err, KVT_ERR_ARG, "unknown backend '%s'; known:%s", name, known);
    if (backend->absent)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "there is no backend %s here: %s", backend->name, backend->absent);
    *out = backend;
    return KVT_OK;
}

enum kvt_status kvt_backend_compute(const struct kvt_compute_ops **out, const char *name, struct kvt_error *err) {
    const struct kvt_backend *backend = NULL;
    KVT_TRY(choose(&backend, name, err));
    *out = backend->compute;
    return KVT_OK;
}

/* Options of a caller whose struct may end before ours. */
static struct kvt_pool_options whole_options(const struct kvt_pool_options *options) {
    struct kvt_pool_options whole = {0};
    const size_t first = offsetof(struct kvt_pool_options, device); /* all that the first version has */
    if (options) memcpy(&whole, options, KVT_MIN(KVT_MAX(options->struct_size, first), sizeof whole));
    whole.struct_size = sizeof whole;
    return whole;
}

enum kvt_status kvt_pool_create(struct kvt_pool **out, const struct kvt_plan *plan,
                                const struct kvt_pool_options *options, struct kvt_error *err) {
    const struct kvt_pool_options whole = whole_options(options), *o = &whole;
    const struct kvt_backend *backend = NULL;
    KVT_TRY(choose(&backend, o->backend, err));
    return kvt_pool_create_on(out, plan, o, &backend->pages, backend, err);
}

const char *kvt_backend_at(size_t i) { return i < KVT_ARRAY_LEN(backends) ? backends[i]->name : NULL; }

enum kvt_status kvt_backend_about(const char *name, char *text, size_t bytes, struct kvt_error *err) {
    const struct kvt_backend *backend = find(name);
    if (!backend) return kvt_fail(err, KVT_ERR_ARG, "unknown backend '%s'; known:%s", name, known);
    if (backend->look)
        backend->look(text, bytes);
    else
        snprintf(text, bytes, "%s", backend->absent ? backend->absent : backend->about);
    return KVT_OK;
}

enum kvt_status kvt_step_attend(struct kvt_step *step, int layer, const struct kvt_attend *attend,
                                struct kvt_error *err) {
    const struct kvt_backend *backend = step->pool->backend;
    KVT_TRY(kvt_pool_check(step->pool, err));
    return backend->attend(step, layer, attend, err);
}
