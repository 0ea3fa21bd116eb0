/* SPDX-License-Identifier: Apache-2.0
 *
 * All of libkvtile.
 */
#ifndef KVTILE_KVTILE_H
#define KVTILE_KVTILE_H

#include "kvtile/attention.h"
#include "kvtile/cache.h"
#include "kvtile/codec.h"
#include "kvtile/convert.h"
#include "kvtile/runtime.h"
#include "kvtile/snapshot.h"
#include "kvtile/status.h"
#include "kvtile/version.h"

#endif
