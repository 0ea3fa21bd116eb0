/* SPDX-License-Identifier: Apache-2.0
 * The files of src/serve/page, made into C by cmake/embed.cmake. */
#ifndef SERVE_PAGE_H
#define SERVE_PAGE_H

#include <stddef.h>

struct kvt_page_file {
    const char *name; /* "index.html" */
    const unsigned char *data;
    size_t len;
};

extern const struct kvt_page_file kvt_page_files[]; /* the last has no name */

#endif
