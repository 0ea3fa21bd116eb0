#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvtile's own codecs written anew in numpy, from docs/codecs.md alone: hashes of what they make of the rows of
tests/support/codec_rows.c.

    python3 tests/compare/kvt.py            compares with tests/golden/codecs/kvt.txt
    python3 tests/compare/kvt.py --record   writes it

Needs numpy. The C test test_codec_kvt reads the file.
"""
import importlib.util
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("compare_codecs", os.path.join(HERE, "codecs.py"))  # Python has a "codecs" too
shared = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shared)
F, N_TILES, rotate_f16, rows = shared.F, shared.N_TILES, shared.rotate_f16, shared.rows

GOLDEN = os.path.join(HERE, "..", "golden", "codecs", "kvt.txt")
SIZES = (64, 80, 128, 192)


def log_value(e, per):
    return np.exp2(np.asarray(e, np.float64) / per).astype(F)


def log_nearest(x, per):
    with np.errstate(divide="ignore"):
        return np.rint(np.maximum(np.log2(np.asarray(x, np.float64)), -100) * per).astype(np.int64)


def lane_sum(x):
    """Sums of rows: 32 lanes, then halves."""
    n, d = x.shape
    x = np.concatenate([x, np.zeros((n, -d % 32), F)], axis=1)
    lanes = np.zeros((n, 32), F)
    for c in range(0, x.shape[1], 32):
        lanes = lanes + x[:, c:c + 32]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


# ---- values --------------------------------------------------------------------------------------------------------------

SHARES = {2: (1, .75, .55), 3: (1, .9, .8), 4: (1, .93, .86)}


def vu_store(step, zero, top):
    e = np.clip(log_nearest(step, 16), -192, 63)
    lost = top * step
    step = log_value(e, 16)
    span = top * step
    lost = np.maximum(lost - span, F(0))
    r = np.clip(np.rint((zero + F(.5) * lost + F(.5) * span) / span * F(128)), -128, 127)
    return e, r.astype(np.int64), step, step * ((top * (r.astype(F) - F(64))) / F(128))


def vu_group(x, bits):
    """Rows of one group: bytes of step and zero, codes."""
    n, top = F(x.shape[1]), F((1 << bits) - 1)
    lo, hi = x.min(axis=1), x.max(axis=1)
    mean = lane_sum(x) / n
    u = x - mean[:, None]
    best = None

    def take(lo, hi, allowed):
        nonlocal best
        e, r, step, zero = vu_store((hi - lo) / top, lo, top)
        codes = np.clip(np.rint((x - zero[:, None]) * (F(1) / step)[:, None]), F(0), top)
        off = x - (step[:, None] * codes + zero[:, None])
        new = [lane_sum(off * off), e, r, step, zero, codes]
        if best is None:
            best = new
            return
        better = allowed & (new[0] < best[0])
        best = [np.where(better if b.ndim == 1 else better[:, None], a, b) for a, b in zip(new, best)]

    half = F(.5) * (hi - lo)
    for share in SHARES[bits]:
        part = F(share) * half
        take(F(.5) * (lo + hi) - part, F(.5) * (lo + hi) + part, True)
    for _ in range(2):
        codes = best[5]
        total, squares = codes.sum(axis=1), (codes * codes).sum(axis=1)
        spread = squares - total * total / n
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(spread > 0, lane_sum(codes * u) / spread, F(0))
        lo = mean - slope * (total / n)
        take(lo, lo + slope * top, spread > 0)
    _, e, r, step, zero, codes = best
    v = (step[:, None] * codes + zero[:, None]) - mean[:, None]
    uu, uv = lane_sum(u * u), lane_sum(u * v)
    grow = (uu > 0) & (uv > 0)  # and, below, the longest step is not passed
    with np.errstate(divide="ignore", invalid="ignore"):
        k = np.where(grow, np.clip(uu / uv, F(.8), F(1.5)), F(1))
    grow &= ~(step * k > log_value(63, 16))
    e2, r2, _, _ = vu_store(step * k, mean + (zero - mean) * k, top)
    return np.where(grow, e2, e) + 192, np.where(grow, r2, r) & 255, codes.astype(np.int64)


def vu(bits, x):
    """Words of a tile, row by row and group by group: step, zero, codes."""
    x = rotate_f16(x)
    parts = []
    for c in range(0, x.shape[1], 128):
        e, r, codes = vu_group(x[:, c:c + 128], bits)
        parts += [e[:, None], r[:, None], codes]
    return np.concatenate(parts, axis=1).reshape(-1)


# ---- keys ----------------------------------------------------------------------------------------------------------------

def row_sum(x):
    """Sums over rows, one after another."""
    total = np.zeros(x.shape[1:], F)
    for row in x:
        total = total + row
    return total


def half_towards(x, up):
    """The f16 next to x that is not below (up) or not above it, within f16's range."""
    x = np.clip(x, F(-65504), F(65504))
    h = x.astype(np.float16)
    wrong = h.astype(F) < x if up else h.astype(F) > x
    return np.where(wrong, np.nextafter(h, np.float16(np.inf if up else -np.inf)), h)


def kq_codes(x, step, zero, top):
    with np.errstate(divide="ignore"):
        inverse = np.where(step > 0, F(1) / step, F(0))
    y = x - zero
    codes = np.clip(np.rint(y * inverse), F(0), top)
    off = y - step * codes
    return codes, row_sum(off * off)


def kq(bits, x, queries=None):
    """Words of a tile: largest scales, classes by channel, then by place scale and zero, factors, codes by place and row."""
    n, d = x.shape
    lo, hi = x.min(axis=0), x.max(axis=0)
    weight = np.ones(d, F)
    if queries is not None and queries.max() > 0:
        weight = queries / queries.max()
        centred = x - row_sum(x) / F(n)
        worth = row_sum(centred * centred) * weight
    else:
        worth = hi - lo
    order = np.argsort(-worth, kind="stable")
    classes = np.zeros(d, np.int64)
    classes[order[d // 4:]] = 1
    classes[order[d // 4 + d // 2:]] = 2
    width = bits + 1 - classes
    top = ((1 << width) - 1).astype(F)
    first = (hi - lo) / top
    most = half_towards(np.array([first[classes == k].max() for k in range(3)], F), True)
    largest = most.astype(F)[classes]

    def store(step, zero):
        with np.errstate(divide="ignore", invalid="ignore"):
            below = np.where(largest > 0, -log_nearest(step / largest, 32), 0)
        below = np.clip(below, 0, 255)
        return below, largest * log_value(-below, 32), half_towards(zero, False)

    scale, step, zero = store(first, lo)
    codes, error = kq_codes(x, step, zero.astype(F), top)
    for _ in range(2):
        y = x - zero.astype(F)
        total, squares, products = row_sum(codes), row_sum(codes * codes), row_sum(codes * y)
        mean = row_sum(y) / F(n)
        spread = squares - total * total / F(n)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(spread > 0, (products - total * mean) / spread, F(0))
        new = store(slope, zero.astype(F) + (mean - slope * (total / F(n))))
        new_codes, new_error = kq_codes(x, new[1], new[2].astype(F), top)
        better = (spread > 0) & (new_error < error)
        scale, step, zero = (np.where(better, a, b) for a, b in zip(new, (scale, step, zero)))
        codes, error = np.where(better, new_codes, codes), np.where(better, new_error, error)
    half = top / F(2)
    middle = zero.astype(F) + step * half
    u = x - middle
    own, shared = lane_sum((weight * u) * u), lane_sum((weight * u) * (step * (codes - half)))
    good = (own > 0) & (shared > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(good, np.clip(log_nearest(np.where(good, own / shared, F(1)), 64), -37, 37), 0)
    place = np.argsort(classes, kind="stable")
    return np.concatenate([most.view(np.uint16), classes, np.stack([scale[place], zero[place].view(np.uint16)], 1).reshape(-1),
                           factor & 255, codes[:, place].T.reshape(-1).astype(np.int64)])


# ---- hashes --------------------------------------------------------------------------------------------------------------

def fnv(words):
    h = 0xCBF29CE484222325
    for w in words.tolist():
        h = ((h ^ w) * 0x100000001B3) & ((1 << 64) - 1)
    return h


def lines():
    for d in SIZES:
        tiles = [rows(d, t) for t in range(N_TILES)]
        for bits in (2, 3, 4):
            queries = row_sum(rows(d, N_TILES) ** 2)
            yield f"kq{bits} {d} " + " ".join(f"{fnv(kq(bits, x)):016x}" for x in tiles)
            yield f"kq{bits}+queries {d} " + " ".join(f"{fnv(kq(bits, x, queries)):016x}" for x in tiles)
            yield f"vu{bits} {d} " + " ".join(f"{fnv(vu(bits, x)):016x}" for x in tiles)


def main():
    made = "# Made by tests/compare/kvt.py --record: codec, head size, a hash for each tile.\n" + "\n".join(lines()) + "\n"
    if "--record" in sys.argv:
        with open(GOLDEN, "w") as f:
            f.write(made)
    with open(GOLDEN) as f:
        same = f.read() == made
    print(f"{made.count(chr(10)) - 1} lines, {'as recorded' if same else 'not as recorded'}")
    return not same


if __name__ == "__main__":
    sys.exit(main())
