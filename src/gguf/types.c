/* SPDX-License-Identifier: Apache-2.0
 *
 * The two lists of the format: tensor types (GGML's numbers and block sizes) and metadata kinds.
 */
#include "gguf/inside.h"

/* Indexed by id. The gaps are numbers that GGML gave up (4, 5, 31 to 33, 36 to 38). K-quants, IQ and TQ types are blocks
 * of 256 elements. (Q8_1: GGML's struct has 36 bytes; its Python package says 40. No file holds it.) */
static const struct kvt_gguf_type types[] = {
#define X(id, type_name, len, bytes) [id] = {id, #type_name, len, bytes}
    X(0, F32, 1, 4),         X(1, F16, 1, 2),         X(2, Q4_0, 32, 18),      X(3, Q4_1, 32, 20),
    X(6, Q5_0, 32, 22),      X(7, Q5_1, 32, 24),      X(8, Q8_0, 32, 34),      X(9, Q8_1, 32, 36),
    X(10, Q2_K, 256, 84),    X(11, Q3_K, 256, 110),   X(12, Q4_K, 256, 144),   X(13, Q5_K, 256, 176),
    X(14, Q6_K, 256, 210),   X(15, Q8_K, 256, 292),   X(16, IQ2_XXS, 256, 66), X(17, IQ2_XS, 256, 74),
    X(18, IQ3_XXS, 256, 98), X(19, IQ1_S, 256, 50),   X(20, IQ4_NL, 32, 18),   X(21, IQ3_S, 256, 110),
    X(22, IQ2_S, 256, 82),   X(23, IQ4_XS, 256, 136), X(24, I8, 1, 1),         X(25, I16, 1, 2),
    X(26, I32, 1, 4),        X(27, I64, 1, 8),        X(28, F64, 1, 8),        X(29, IQ1_M, 256, 56),
    X(30, BF16, 1, 2),       X(34, TQ1_0, 256, 54),   X(35, TQ2_0, 256, 66),   X(39, MXFP4, 32, 17),
    X(40, NVFP4, 64, 36),    X(41, Q1_0, 128, 18),
#undef X
};

const struct kvt_gguf_type *kvt_gguf_type_find(uint32_t id) {
    return id < KVT_ARRAY_LEN(types) && types[id].name ? &types[id] : NULL;
}

static const struct {
    const char *name;
    size_t bytes; /* of one value; 0: not fixed */
} kinds[KVT_GGUF_KIND_COUNT] = {
    [KVT_GGUF_U8] = {"uint8", 1},    [KVT_GGUF_I8] = {"int8", 1},    [KVT_GGUF_U16] = {"uint16", 2},
    [KVT_GGUF_I16] = {"int16", 2},   [KVT_GGUF_U32] = {"uint32", 4}, [KVT_GGUF_I32] = {"int32", 4},
    [KVT_GGUF_F32] = {"float32", 4}, [KVT_GGUF_BOOL] = {"bool", 1},  [KVT_GGUF_STRING] = {"string", 0},
    [KVT_GGUF_ARRAY] = {"array", 0}, [KVT_GGUF_U64] = {"uint64", 8}, [KVT_GGUF_I64] = {"int64", 8},
    [KVT_GGUF_F64] = {"float64", 8},
};

const char *kvt_gguf_kind_name(enum kvt_gguf_kind kind) {
    return (unsigned)kind < KVT_GGUF_KIND_COUNT ? kinds[kind].name : "unknown";
}

size_t kvt_gguf_kind_bytes(enum kvt_gguf_kind kind) {
    return (unsigned)kind < KVT_GGUF_KIND_COUNT ? kinds[kind].bytes : 0;
}
