/* SPDX-License-Identifier: Apache-2.0
 *
 * What tiles store beside codes, as numbers.
 */
#ifndef BACKEND_CUDA_STORED_CUH
#define BACKEND_CUDA_STORED_CUH

#include "backend/cuda/encode_unit.cuh"

KVT_DEVICE float stored_scale(enum kvt_scale kind, const unsigned char *at, int i) {
    switch (kind) {
    case KVT_SCALE_F16: return load_number(KVT_NUMBER_F16, at, i);
    case KVT_SCALE_F32: return reinterpret_cast<const float *>(at)[i];
    case KVT_SCALE_E8M0: return kvt_f32_from_e8m0(at[i]);
    case KVT_SCALE_E4M3: return kvt_f32_from_e4m3(at[i]);
    case KVT_SCALE_LOG: return kvt_scale_from_log(at[i]);
    default: return 1;
    }
}

/* kvt_class_read_map, by one thread. */
KVT_DEVICE void read_map(uint16_t *channels, const struct kvt_classes &classes, const unsigned char *bytes, int d) {
    int next[KVT_CLASSES];
    for (int i = 0; i < KVT_CLASSES; i++) next[i] = classes.of[i].first;
    for (int c = 0; c < d; c++) {
        int k = KVT_MIN(bytes[KVT_CLASS_MAP + c / 4] >> c % 4 * 2 & 3, KVT_CLASSES - 1);
        while (next[k] == classes.of[k].end) k = (k + 1) % KVT_CLASSES;
        channels[next[k]++] = (uint16_t)c;
    }
}

#endif
