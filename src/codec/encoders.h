/* SPDX-License-Identifier: Apache-2.0
 *
 * Every encoder of list.h, declared.
 */
#ifndef CODEC_ENCODERS_H
#define CODEC_ENCODERS_H

#include "codec/codec.h"
#include "codec/list.h"

#define X(name) extern const struct kvt_encoder kvt_encoder_##name;
KVT_ENCODERS(X)
#undef X

#endif
