/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of backend: where a cache lives and is read is chosen through kvtile/cache.h; this is what an engine computes with there.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "backend/compute.h"

/* Of a backend, by its name; NULL is the default. *out is NULL where pages are in the process's memory, and an engine computes there. ARG
 * lists the backends that there are; UNSUPPORTED says why this build cannot use one. */
KVT_MUST_CHECK enum kvt_status kvt_backend_compute(const struct kvt_compute_ops **out, const char *name,
                                                   struct kvt_error *err);

#endif
