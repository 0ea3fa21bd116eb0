#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What other libraries make of the rows of tests/support/codec_rows.c, as hashes: of scales, zeros and codes, and of the arrays in
which MLX packs them.

    python3 tests/compare/codecs.py [--ggml PATH]           compares with codes.txt and mlx.txt in tests/golden/codecs
    python3 tests/compare/codecs.py [--ggml PATH] --record  writes them

Needs numpy, gguf, ml_dtypes and mlx[cpu] (made with gguf 0.19.0, ml_dtypes 0.6.0, mlx 0.32.4); PATH: llama.cpp's libggml-base.so, by default that of an installed
llama-cpp-python (made with 0.3.36). A codec whose library is missing is skipped, and keeps its line in the file. The C tests
test_codec_golden and test_convert read the files and need none of them.
"""
import argparse
import ctypes
import glob
import importlib.util
import math
import os
import sys

import numpy as np

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden", "codecs")
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


def mlx_arrays(mode, x, bits=None, group=None):
    """Words, scales and biases of mx.quantize; affine's scales have the type of the rows."""
    import mlx.core as mx
    mx.set_default_device(mx.cpu)
    if mode != "affine":
        packed, scales = mx.quantize(mx.array(x), mode=mode)
        return np.array(packed), np.array(scales), np.zeros((len(x), 0), np.uint16)
    packed, scales, biases = mx.quantize(mx.array(x.astype(np.float16)), group_size=group, bits=bits)
    return np.array(packed), np.array(scales).view(np.uint16), np.array(biases).view(np.uint16)


def by_mlx(mode, x, bits=None, group=None):
    packed, scales, biases = mlx_arrays(mode, x, bits, group)
    scales = scales.reshape(-1)
    zeros = biases.reshape(-1) if biases.size else np.zeros(len(scales), np.uint16)
    bits = bits or int(mode[-1])
    codes = np.unpackbits(packed.view(np.uint8), bitorder="little").reshape(-1, bits).astype(np.int64) @ (1 << np.arange(bits))
    return scales, zeros, codes.reshape(len(scales), -1)


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


# ---- no library stores this, or none that runs here: the same steps, written anew in numpy ---------------------------------

def half_away(x):
    whole = np.trunc(x)
    return whole + np.copysign((abs(x - whole) >= F(0.5)).astype(F), x)


def affine(x, bits, group, metal):
    """MLX's quantize of rows in f16, by its CPU or its Metal arithmetic."""
    g = x.astype(np.float16).astype(F).reshape(-1, group)
    rounded, top = half_away if metal else np.rint, F((1 << bits) - 1)
    lo, hi = g.min(axis=1), g.max(axis=1)
    hi = np.maximum(hi, F(0)) if metal else hi
    low_side = abs(lo) > abs(hi)
    scale = np.maximum((hi - lo) / top, F(1e-7))
    scale = np.where(low_side, scale, -scale)
    edge = np.where(low_side, lo, hi)
    q0 = rounded(edge / scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale, zero = np.where(q0 == 0, scale, edge / q0), np.where(q0 == 0, F(0), edge)
    codes = np.clip(rounded((g - zero[:, None]) / scale[:, None]), F(0), top)
    return scale.astype(np.float16).view(np.uint16), zero.astype(np.float16).view(np.uint16), codes.astype(np.int64)


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


def array_hash(words):
    """FNV-1a over the words of each column, then over the columns' hashes."""
    start, prime = 0xCBF29CE484222325, np.uint64(0x100000001B3)
    h = np.full(words.shape[1], start, np.uint64)
    with np.errstate(over="ignore"):
        for row in words.astype(np.uint64):
            h = (h ^ row) * prime
    out = start
    for one in h.tolist():
        out = ((out ^ one) * 0x100000001B3) & MASK
    return out


# ---- what is compared ----------------------------------------------------------------------------------------------------

AFFINE = [(f"affine{bits}g{group}", bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
MODES = [(mode, None, None) for mode in ("mxfp8", "mxfp4", "nvfp4")]


def makers(lib):
    """name -> functions of rows that must all agree."""
    out = {}
    for name, bits, group in AFFINE:
        out[name] = [lambda x, b=bits, g=group: by_mlx("affine", x, b, g), lambda x, b=bits, g=group: affine(x, b, g, False)]
        out[name + "-metal"] = [lambda x, b=bits, g=group: affine(x, b, g, True)]
    for name in ("q8_0", "q5_0", "q4_0", "q5_1", "q4_1", "iq4_nl"):
        each = [] if name == "iq4_nl" else [lambda x, n=name: by_gguf(n, x)]
        if lib:
            each.append(lambda x, n=name: by_ggml(n, x, lib))
        out[name] = each
        out[name + "-rot"] = [lambda x, f=f: f(rotate_f16(x)) for f in each]
    for kind in ("e4m3", "e5m2"):
        out["fp8" + kind] = [lambda x, k=kind: fp8(x, k, False)]
        out[f"fp8{kind}-row"] = [lambda x, k=kind: fp8(x, k, True)]
    for mode, _, _ in MODES:
        out[mode] = [lambda x, m=mode: by_mlx(m, x)]
    for bits in (2, 3, 4):
        out[f"turbo{bits}"] = [lambda x, b=bits: turbo(b, x)]
    return out


def read_golden(name):
    path = os.path.join(GOLDEN, name)
    lines = open(path).read().splitlines() if os.path.exists(path) else []
    return {tuple(line.split()[:2]): line.strip() for line in lines if not line.startswith("#")}


def write_golden(name, comment, lines):
    with open(os.path.join(GOLDEN, name), "w") as f:
        f.write(f"# Made by tests/compare/codecs.py --record: {comment}.\n" + "\n".join(lines) + "\n")


def compare_codes(tiles, lib, known, record):
    lines, faults = [], 0
    for name, each in makers(lib).items():
        for d in SIZES:
            if "affine" in name and d % int(name.split("-")[0].split("g")[1]):
                continue
            key = (name, str(d))
            made = {" ".join(f"{h:016x}" for h in hashes([f(x) for x in tiles[d]], d)) for f in each}
            if len(made) > 1:
                print(f"{name} {d}: libraries disagree")
                faults += 1
            line = f"{name} {d} {made.pop()}" if made else known.get(key)
            if not each:
                print(f"{name} {d}: skipped, its library is missing")
            elif line != known.get(key) and not record:
                print(f"{name} {d}: differs from the file")
                faults += 1
            if line:
                lines.append(line)
    return lines, faults


def compare_arrays(tiles, known, record):
    lines, faults = [], 0
    for name, bits, group in AFFINE + MODES:
        for d in SIZES:
            if d % (group or 32):
                continue
            each = [mlx_arrays("affine" if group else name, x, bits, group) for x in tiles[d]]
            line = f"{name} {d} " + " ".join(f"{array_hash(np.concatenate(arrays)):016x}" for arrays in zip(*each))
            if line != known.get((name, str(d))) and not record:
                print(f"{name} {d}: MLX's arrays differ from the file")
                faults += 1
            lines.append(line)
    return lines, faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ggml")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    tiles = {d: [rows(d, t) for t in range(N_TILES)] for d in SIZES}
    codes, faults = compare_codes(tiles, load_ggml(args.ggml), read_golden("codes.txt"), args.record)
    arrays, more = compare_arrays(tiles, read_golden("mlx.txt"), args.record)
    faults += more
    if args.record and not faults:
        write_golden("codes.txt", "codec, head size, a hash for each kind of rows", codes)
        write_golden("mlx.txt", "codec, head size, hashes of MLX's words, scales and biases", arrays)
    print(f"{len(codes) + len(arrays)} lines, {faults} faults")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
