/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of backend: where a cache lives and is read. One row each, one line in list.h.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "attention/attention.h"

struct kvt_backend {
    const char *name, *about;
    const char *absent; /* why this build cannot use it; NULL: it can */
    /* One line for people: what of it this machine has. NULL: nothing to look for. */
    void (*look)(char *text, size_t bytes);
    struct kvt_page_ops pages;
    enum kvt_status (*attend)(struct kvt_step *step, int layer, const struct kvt_attend *attend, struct kvt_error *err);
};

#endif
