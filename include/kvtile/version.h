/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of the library: of the headers (macros) and of the code that runs (functions).
 */
#ifndef KVTILE_VERSION_H
#define KVTILE_VERSION_H

#include "kvtile/status.h"

#define KVT_VERSION_MAJOR  0
#define KVT_VERSION_MINOR  1
#define KVT_VERSION_PATCH  0
#define KVT_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* "MAJOR.MINOR.PATCH" of the library that is linked. Static storage. */
KVT_API const char *kvt_version(void);

#ifdef __cplusplus
}
#endif
#endif
