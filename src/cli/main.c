/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "kvtile/kvtile.h"

int main(void) {
    printf("kvtile %s\n", kvt_version());
    return 0;
}
