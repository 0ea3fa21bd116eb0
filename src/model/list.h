/* SPDX-License-Identifier: Apache-2.0
 * The architectures: one line each, the file of that name has the row. */
#ifndef MODEL_LIST_H
#define MODEL_LIST_H

#define KVT_ARCHES(X)                                                                                                  \
    X(llama)                                                                                                           \
    X(qwen2)                                                                                                           \
    X(qwen3)

#endif
