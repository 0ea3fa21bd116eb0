#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What numpy and MLX make of KIVI's eight operations, as hashes of codes and values, over drawn configurations.

    python3 tests/compare/kivi.py           compares with tests/golden/codecs/kivi-parity.txt
    python3 tests/compare/kivi.py --record  draws the configurations and writes it

Minimum, maximum, difference, quotient, quotient, rounding to even, product, sum: each with one rounding in f32, as VeloxQuant-MLX
0.94 and its Metal kernels do them. Both axes, 2 to 8 bits, ragged last groups padded by repeating the last element. Needs numpy and
mlx[cpu] (made with mlx 0.32.4). The C test test_codec_parity reads the file and needs neither.
"""
import os
import random
import sys

import mlx.core as mx
import numpy as np

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden", "codecs", "kivi-parity.txt")
BITS, GROUPS, N_KINDS, N_SHAPES, TILE = (2, 3, 4, 5, 6, 8), (32, 64, 128), 3, 3, 128
F = np.float32


def draws(seed, n):
    """The first n of kvt_rng_u64."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return z ^ z >> np.uint64(31)


def configurations():
    """side, bits, group, rows, elements of a row, kind, seed."""
    draw = random.Random(7)
    out = []
    for side in "KV":
        for bits in BITS:
            for group in GROUPS:
                for i in range(N_KINDS * N_SHAPES):
                    n, d = draw.randrange(1, TILE + 1), 8 * draw.randrange(1, 21)
                    if i >= N_KINDS:  # ragged
                        while side == "K" and n % group == 0:
                            n = draw.randrange(1, TILE + 1)
                        while side == "V" and d % group == 0:
                            d = 8 * draw.randrange(1, 21)
                    out.append((side, bits, group, n, d, i % N_KINDS, draw.randrange(1 << 32)))
    return out


def make(side, bits, group, n, d, kind, seed):
    """fill of tests/unit/test_codec_parity.c. Kind 0: every element on a code or a tie. 1: within rounding of one. 2: uniform; with
    an offset; constant; and below the smallest scale, line by line."""
    u = draws(seed, n * d + 2)
    exponent, offset = int(u[0] % np.uint64(10)) - 6, int(u[1] % np.uint64(8001)) - 4000
    u = u[2:].reshape(n, d)
    r, c = np.arange(n)[:, None], np.arange(d)[None, :]
    at, line = (r % group, c) if side == "K" else (c % group, r)
    top = (1 << bits) - 1
    half_steps = (u % np.uint64(2 * top + 1)).astype(np.int64)
    half_steps = np.where(at == 0, 0, np.where(at == 1, 2 * top, half_steps))
    if kind == 0:
        return (half_steps + offset).astype(F) * F(2.0**exponent)
    if kind == 1:
        return half_steps.astype(F) * F(0.1) + F(offset)
    z = (u >> np.uint64(40)).astype(F) * F(2.0**-23) - F(1)
    return np.choose(np.broadcast_to(line % 4, z.shape), [z, z * F(100) + F(300.1), np.full_like(z, F(-2.3)), z * F(1e-9)])


def by_numpy(x, bits, group, axis):
    n, top = x.shape[axis], F((1 << bits) - 1)
    pad = [(0, 0), (0, 0)]
    pad[axis] = (0, -n % group)
    x = np.moveaxis(np.pad(x, pad, mode="edge"), axis, -1)
    x = x.reshape(x.shape[0], -1, group)
    lo, hi = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
    scale = np.maximum((hi - lo) / top, F(1e-8))
    codes = np.clip(np.rint((x - lo) / scale), F(0), top)
    values = codes * scale + lo
    back = lambda a: np.moveaxis(a.reshape(len(a), -1)[:, :n], -1, axis)
    return back(codes).astype(np.uint64), back(values)


def by_mlx(x, bits, group, axis):
    n, top = x.shape[axis], (1 << bits) - 1
    x = mx.array(x)
    if n % group:
        last = mx.take(x, mx.array([n - 1]), axis=axis)
        x = mx.concatenate([x, mx.repeat(last, -n % group, axis=axis)], axis=axis)
    x = mx.moveaxis(x, axis, -1)
    x = x.reshape(x.shape[0], -1, group)
    lo, hi = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
    scale = mx.maximum((hi - lo) / top, 1e-8)
    codes = mx.clip(mx.round((x - lo) / scale), 0, top)
    values = codes * scale + lo
    back = lambda a: np.array(mx.moveaxis(a.reshape(a.shape[0], -1)[:, :n], -1, axis))
    return back(codes).astype(np.uint64), back(values)


def fnv(words):
    """FNV-1a over the rows' words of each channel, then over the channels' hashes."""
    prime = np.uint64(0x100000001B3)
    h = np.full(words.shape[1], 0xCBF29CE484222325, np.uint64)
    with np.errstate(over="ignore"):
        for row in words:
            h = (h ^ row) * prime
        out = np.full(1, 0xCBF29CE484222325, np.uint64)
        for one in h:
            out = (out ^ one) * prime
    return int(out[0])


def ties(x, bits, group, axis):
    """Elements whose quotient lies halfway between two codes."""
    n = x.shape[axis]
    x = np.moveaxis(x, axis, -1)
    count = 0
    for first in range(0, n, group):
        g = x[:, first:first + group]
        lo, hi = g.min(axis=-1, keepdims=True), g.max(axis=-1, keepdims=True)
        q = (g - lo) / np.maximum((hi - lo) / F((1 << bits) - 1), F(1e-8))
        count += int((q - np.floor(q) == F(0.5)).sum())
    return count


def main():
    mx.set_default_device(mx.cpu)
    lines, faults, n_ties = [], 0, 0
    for config in configurations():
        side, bits, group = config[:3]
        axis, x = 0 if side == "K" else 1, make(*config)
        n_ties += ties(x, bits, group, axis)
        made = [f"{fnv(codes):016x} {fnv(values.view(np.uint32).astype(np.uint64)):016x}"
                for codes, values in (by_numpy(x, bits, group, axis), by_mlx(x, bits, group, axis))]
        if made[0] != made[1]:
            print(*config, "numpy and MLX differ")
            faults += 1
        lines.append(" ".join(str(v) for v in config) + " " + made[0])
    if "--record" in sys.argv[1:] and not faults:
        with open(GOLDEN, "w") as f:
            f.write("# Made by tests/compare/kivi.py --record: side, bits, group, rows, elements of a row, kind, seed, hashes of\n"
                    "# codes and values.\n" + "\n".join(lines) + "\n")
    kept = [line.strip() for line in open(GOLDEN) if not line.startswith("#")]
    faults += sum(a != b for a, b in zip(kept, lines)) + abs(len(kept) - len(lines))
    print(f"{len(lines)} configurations, {n_ties} ties, {faults} faults")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
