#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the `gguf` package makes of the blocks of tests/support/weight_data.c, as hashes.

    python3 tests/compare/weights.py           compares with tests/golden/weights/decode.txt
    python3 tests/compare/weights.py --record  writes it

Needs numpy and gguf (made with gguf 0.19.0). The C test test_weight_decode reads the file and needs neither.
"""
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden", "weights", "decode.txt")
N_PARTS = 8  # hashes a type: a difference is found in an eighth of the blocks
SEED = 20240601

# name: elements a block, bytes a block, offsets of the f16 fields, blocks
LAYOUTS = {
    "F32": (1, 4, (), 4096), "F16": (1, 2, (0,), 4096), "BF16": (1, 2, (), 4096),
    "Q8_0": (32, 34, (0,), 1024), "Q4_0": (32, 18, (0,), 1024), "Q4_1": (32, 20, (0, 2), 1024),
    "Q5_0": (32, 22, (0,), 1024), "Q5_1": (32, 24, (0, 2), 1024),
    "Q4_K": (256, 144, (0, 2), 512), "Q5_K": (256, 176, (0, 2), 512), "Q6_K": (256, 210, (208,), 512),
}
EXTREME = (0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x0000, 0x8000)
MASK = (1 << 64) - 1


class Rng:
    """kvt_rng of src/base/rng.h."""

    def __init__(self, seed):
        self.state = seed

    def u64(self):
        self.state = z = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31


def scale(rng, i):
    h = rng.u64() & 0xFFFF
    if h & 0x7C00 == 0x7C00:
        h ^= 0x4000
    return EXTREME[i // 4 % 8] if i % 4 == 3 else h


def blocks(name):
    length, size, halves, n = LAYOUTS[name]
    rng, out = Rng(SEED), bytearray()
    for i in range(n):
        if length == 1:
            bits = rng.u64() & 0xBFFFFFFF
            half = scale(rng, i)
            value = bits if size == 4 else half if halves else bits >> 16
            out += value.to_bytes(size, "little")
            continue
        block = bytearray([i] * size) if i < 256 else bytearray(rng.u64() & 255 for _ in range(size))
        for k, at in enumerate(halves):
            block[at:at + 2] = scale(rng, i + k).to_bytes(2, "little")
        out += block
    return np.frombuffer(bytes(out), np.uint8).reshape(n, size)


def fnv(words):
    """FNV-1a over 32-bit words."""
    h = 0xCBF29CE484222325
    for w in words:
        h = (h ^ w) * 0x100000001B3 & MASK
    return h


def lines():
    yield "# type seed blocks; FNV-1a over the 32-bit words of each eighth. Made by tests/compare/weights.py --record"
    for name, (_, _, _, n) in LAYOUTS.items():
        values = dequantize(blocks(name), Type[name])
        assert np.isfinite(values).all(), name
        parts = np.ascontiguousarray(values).view(np.uint32).reshape(N_PARTS, -1)
        yield f"{name} {SEED} {n} " + " ".join(f"{fnv(p.tolist()):016x}" for p in parts)


def main():
    text = "\n".join(lines()) + "\n"
    if sys.argv[1:] == ["--record"]:
        with open(GOLDEN, "w") as f:
            f.write(text)
        return 0
    with open(GOLDEN) as f:
        same = f.read() == text
    print("same" if same else "different")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
