/* SPDX-License-Identifier: Apache-2.0
 *
 * Every backend, one line each; the first is the default.
 */
#ifndef BACKEND_LIST_H
#define BACKEND_LIST_H

#define KVT_BACKENDS(X) X(cpu) X(cuda)

#endif
