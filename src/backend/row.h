/* SPDX-License-Identifier: Apache-2.0
 *
 * What each backend fills in; one line each in list.h.
 */
#ifndef BACKEND_ROW_H
#define BACKEND_ROW_H

#include "attention/attention.h"
#include "backend/compute.h"

struct kvt_backend {
    const char *name, *about;
    const char *absent; /* why this build cannot use it; NULL: it can */
    /* One line for people: what of it this machine has. NULL: nothing to look for. */
    void (*look)(char *text, size_t bytes);
    struct kvt_page_ops pages;
    enum kvt_status (*attend)(struct kvt_step *step, int layer, const struct kvt_attend *attend, struct kvt_error *err);
    const struct kvt_compute_ops *compute; /* NULL: an engine computes in the process */
};

#endif
