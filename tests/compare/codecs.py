#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What other libraries make of the rows of tests/support/codec_rows.c, as hashes of scales, zeros and codes.

    python3 tests/compare/codecs.py [--ggml PATH]           compares with tests/golden/codecs/codes.txt
    python3 tests/compare/codecs.py [--ggml PATH] --record  writes it

Needs numpy, gguf, ml_dtypes and mlx[cpu] (made with gguf 0.19.0, ml_dtypes 0.6.0, mlx 0.32.4); PATH: llama.cpp's libggml-base.so, by default that of an installed
llama-cpp-python (made with 0.3.36). A codec whose library is missing is skipped, and keeps its line in the file. The C test
test_codec_golden reads the file and needs none of them.
"""
import argparse
import ctypes
import glob
import importlib.util
import math
import os
import sys

import numpy as np

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden", "codecs", "codes.txt")
SEED, N_KINDS, N_TILES, TILE = 20250807, 8, 2, 128
SIZES = (96, 128)
MASK = (1 << 64) - 1
F = np.float32


# ---- rows --------------------------------------------------------------------------------------------------------------

def draws(seed, n):
    """The first n of kvt_rng_u64."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return z ^ z >> np.uint64(31)


# Kinds 2 and 3: the extreme and the grid, which puts elements on ties.
GRIDS = ((-8, .25), (16, .25), (127, .5), (6, .125), (448, 1), (-127, .5), (15, .25), (31, .5))


def rows(d, tile):
    """The 128 rows of codec_rows_fill."""
    u = draws(SEED + tile, TILE * d * 13).reshape(TILE, d, 13)
    normal = np.full((TILE, d), -6.0)
    for i in range(12):
        normal = normal + (u[..., i] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    x, k = normal.astype(F), u[..., 12]
    c = np.arange(d)
    for r in range(TILE):
        kind, turn = r % N_KINDS, r // N_KINDS
        top, step = (F(v) for v in GRIDS[turn % 8])
        m = np.uint64(abs(top) / step)
        if kind == 1:
            x[r] *= F(200)
        elif kind == 2:
            x[r] = ((k[r] % (2 * m + np.uint64(1))).astype(np.int64) - np.int64(m)).astype(F) * step
            x[r, c % 16 == 0] = top
        elif kind == 3:
            x[r] = (k[r] % (m + np.uint64(1))).astype(F) * step - F(3)
            x[r, c % 16 == 0] = F(-3)
            x[r, c % 16 == 1] = abs(top) - F(3)
        elif kind == 4:
            if turn % 4 == 0:
                x[r] = np.where(k[r] & np.uint64(1), F(-0.0), F(0))
            elif turn % 4 == 3:
                x[r] *= F(1e-20)
            else:
                x[r] = F(0.75) if turn % 4 == 1 else F(-3.1)
        elif kind == 5:
            x[r, int(k[r, 0] % np.uint64(d))] = 5000
        elif kind == 6:
            x[r] *= F(1e-4)
        elif kind == 7:
            x[r] = (x[r] * F(3)).astype(np.float16).astype(F)
            x[r, c % 16 == 3] += F(100)
    return x


def rotate_f16(x):
    """kvt_rotate_f16."""
    d = x.shape[-1]
    n = d & -d
    y = x.reshape(-1, n).astype(F)
    stride = 1
    while stride < n:
        y = y.reshape(-1, n // (2 * stride), 2, stride)
        y = np.stack([y[:, :, 0] + y[:, :, 1], y[:, :, 0] - y[:, :, 1]], axis=2).reshape(-1, n)
        stride *= 2
    y = y * F(1 / np.sqrt(np.float64(n)))
    return y.astype(np.float16).astype(F).reshape(x.shape)


# ---- libraries: each gives scales and zeros as they are stored (integers, one a group) and codes ----------------------------

def split_blocks(name, blocks):
    """llama.cpp's blocks of 32: scale, minimum, codes."""
    bits, has_min = int(name[1]) if name[0] == "q" else 4, name.endswith("_1")
    halves = blocks[:, :4 if has_min else 2].copy().view(np.uint16)
    rest = blocks[:, 4 if has_min else 2:]
    if bits == 8:
        codes = (rest.view(np.int8).astype(np.int64) + 128)
    else:
        high = 4 if bits == 5 else 0
        codes = np.concatenate([rest[:, high:] & 15, rest[:, high:] >> 4], axis=1).astype(np.int64)
        if high:
            codes |= np.unpackbits(rest[:, :4], axis=1, bitorder="little").astype(np.int64) << 4
    return halves[:, 0], halves[:, 1] if has_min else np.zeros(len(blocks), np.uint16), codes


def by_gguf(name, x):
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize
    packed = quantize(x.reshape(-1, 32), getattr(GGMLQuantizationType, name.upper()))
    return split_blocks(name, packed)


def by_ggml(name, x, lib):
    n = x.size // 32
    size = {"q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18, "iq4_nl": 18}[name]
    out, x = np.zeros((n, size), np.uint8), np.ascontiguousarray(x, F)
    fn = getattr(lib, f"quantize_row_{name}_ref")
    fn(x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(x.size))
    scale, zero, codes = split_blocks(name, out)
    if name == "iq4_nl":  # left undefined there
        codes[abs(x.reshape(-1, 32)).max(axis=1) < F(1e-15)] = 8
    return scale, zero, codes


def load_ggml(path):
    spec = None if path else importlib.util.find_spec("llama_cpp")
    if spec:
        found = glob.glob(os.path.join(os.path.dirname(spec.origin), "lib", "libggml-base.so"))
        path = found[0] if found else None
    return ctypes.CDLL(path) if path else None


def by_mlx(mode, x):
    import mlx.core as mx
    mx.set_default_device(mx.cpu)
    packed, scale = mx.quantize(mx.array(x), mode=mode)
    codes = np.array(packed).view(np.uint8)
    if mode.endswith("4"):
        codes = np.stack([codes & 15, codes >> 4], axis=-1)
    scale = np.array(scale).reshape(-1)
    return scale, np.zeros(len(scale), np.uint16), codes.astype(np.int64).reshape(len(scale), -1)


def fp8(x, name, per_row):
    """Casts of ml_dtypes, after cutting to its largest number."""
    import ml_dtypes
    kind = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[name]
    most = F(ml_dtypes.finfo(kind).max)
    scale = abs(x).max(axis=1) / most if per_row else np.ones(len(x), F)
    with np.errstate(invalid="ignore", divide="ignore"):
        v = np.where(scale[:, None] > 0, x / scale[:, None], F(0))
    codes = np.clip(v, -most, most).astype(kind).view(np.uint8).astype(np.int64)
    stored = scale.view(np.uint32) if per_row else np.zeros(len(x), np.uint32)
    return stored, np.zeros(len(x), np.uint16), codes


# ---- no library stores this: the same steps, written anew in numpy ---------------------------------------------------------

def gaussian_levels(bits):
    """Lloyd and Max's levels of the unit Gaussian, to the nearest f32 of nine decimals."""
    n = 1 << bits
    phi = lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    below = lambda x: math.erfc(-x / math.sqrt(2)) / 2
    levels, change = [4 * (i + .5) / n - 2 for i in range(n)], 1
    while change > 1e-14:
        edges = [-40.0] + [(a + b) / 2 for a, b in zip(levels, levels[1:])] + [40.0]
        means = [(phi(a) - phi(b)) / (below(b) - below(a)) for a, b in zip(edges, edges[1:])]
        levels, change = means, max(abs(a - b) for a, b in zip(means, levels))
    return np.array([round(v, 9) for v in levels], F)


def lane_sum(x):
    """Rows summed as turbo.c does."""
    n, d = x.shape
    lanes = np.zeros((n, 32), F)
    for c in range(0, d, 32):
        lanes = lanes + x[:, c:c + 32]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def turbo(bits, x):
    levels, x = gaussian_levels(bits), rotate_f16(x)
    square = lane_sum(x * x)
    rms = np.sqrt(square / F(x.shape[1]))
    middles = (levels[:-1] + levels[1:]) / F(2)
    codes = (x[:, :, None] > middles * rms[:, None, None]).sum(axis=2)
    near = levels[codes]
    scale = np.sqrt(square / lane_sum(near * near)).astype(np.float16).view(np.uint16)
    return scale, np.zeros(len(x), np.uint16), codes.astype(np.int64)


# ---- hashes ------------------------------------------------------------------------------------------------------------

def hashes(results, d):
    """FNV-1a over words, one hash for each kind of rows: of each group its scale, zero and codes."""
    out = [0xCBF29CE484222325] * N_KINDS
    for scale, zero, codes in results:
        zeros = {np.dtype(np.uint16): 0x8000, np.dtype(np.uint32): 0x80000000}
        scale = np.where(scale == zeros.get(scale.dtype, -1), 0, scale).astype(np.int64)  # a zero has no sign
        zero = np.where(zero == 0x8000, 0, zero).astype(np.int64)
        words = np.concatenate([scale.reshape(-1, 1), zero.reshape(-1, 1), codes.reshape(len(scale), -1)], axis=1)
        words = words.reshape(TILE, -1)
        for r in range(TILE):
            h = out[r % N_KINDS]
            for w in words[r].tolist():
                h = ((h ^ w) * 0x100000001B3) & MASK
            out[r % N_KINDS] = h
    return out


def makers(lib):
    """name -> functions of rows that must all agree."""
    out = {}
    for name in ("q8_0", "q5_0", "q4_0", "q5_1", "q4_1", "iq4_nl"):
        each = [] if name == "iq4_nl" else [lambda x, n=name: by_gguf(n, x)]
        if lib:
            each.append(lambda x, n=name: by_ggml(n, x, lib))
        out[name] = each
        out[name + "-rot"] = [lambda x, f=f: f(rotate_f16(x)) for f in each]
    for kind in ("e4m3", "e5m2"):
        out["fp8" + kind] = [lambda x, k=kind: fp8(x, k, False)]
        out[f"fp8{kind}-row"] = [lambda x, k=kind: fp8(x, k, True)]
    for mode in ("mxfp8", "mxfp4", "nvfp4"):
        out[mode] = [lambda x, m=mode: by_mlx(m, x)]
    for bits in (2, 3, 4):
        out[f"turbo{bits}"] = [lambda x, b=bits: turbo(b, x)]
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ggml")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    known, lines, faults = {}, [], 0
    if os.path.exists(GOLDEN):
        for line in open(GOLDEN):
            if not line.startswith("#"):
                known[tuple(line.split()[:2])] = line.strip()
    tiles = {d: [rows(d, t) for t in range(N_TILES)] for d in SIZES}
    for name, each in makers(load_ggml(args.ggml)).items():
        for d in SIZES:
            key = (name, str(d))
            made = {" ".join(f"{h:016x}" for h in hashes([f(x) for x in tiles[d]], d)) for f in each}
            if len(made) > 1:
                print(f"{name} {d}: libraries disagree")
                faults += 1
            line = f"{name} {d} {made.pop()}" if made else known.get(key)
            if not each:
                print(f"{name} {d}: skipped, its library is missing")
            elif line != known.get(key) and not args.record:
                print(f"{name} {d}: differs from the file")
                faults += 1
            if line:
                lines.append(line)
    if args.record and not faults:
        with open(GOLDEN, "w") as f:
            f.write("# Made by tests/compare/codecs.py --record: codec, head size, a hash for each kind of rows.\n")
            f.write("\n".join(lines) + "\n")
    print(f"{len(lines)} lines, {faults} faults")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
