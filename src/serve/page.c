/* SPDX-License-Identifier: Apache-2.0
 * The web page. */
#include "serve/page.h"

#include <string.h>

#include "base/attr.h"
#include "serve/server.h"

static const char *type_of(const char *name) {
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending && i < KVT_ARRAY_LEN(types); i++)
        if (strcmp(ending, types[i][0]) == 0) return types[i][1];
    return "application/octet-stream";
}

void kvt_serve_page(struct kvt_server *server, struct kvt_call *call) {
    (void)server;
    const char *under = "/page/";
    const char *name = strcmp(call->path, "/") == 0 ? "index.html" : call->path + strlen(under);
    for (const struct kvt_page_file *file = kvt_page_files; file->name; file++) {
        if (strcmp(file->name, name) != 0) continue;
        call->type = type_of(name);
        call->fixed = (const char *)file->data;
        call->fixed_len = file->len;
        return;
    }
    kvt_call_fail(call, KVT_ERR_NOTFOUND, "the page has no such file");
}
