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
F, N_TILES, rows = shared.F, shared.N_TILES, shared.rows

GOLDEN = os.path.join(HERE, "..", "golden", "codecs", "kvt.txt")
SIZES = (64, 80, 128, 192, 256)


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


def row_sum(x):
    """Sums over rows, one after another."""
    total = np.zeros(x.shape[1:], F)
    for row in x:
        total = total + row
    return total


def part(a, b):
    """a * b / 2^15 to the nearest whole number, halves up."""
    return (a * b + (1 << 14)) >> 15


def cut(x):
    return np.clip(x, -(1 << 15), (1 << 15) - 1)


def whole(x):
    return np.rint(x).astype(np.int64)


# ---- values --------------------------------------------------------------------------------------------------------------

REACHES = {2: (.8, .3), 3: (.3, .7), 4: (.1, .9)}


def vu_span(x, block):
    """Rows of one span: rotated, as whole numbers, and what 1 is worth in each row."""
    n, d = x.shape
    length = np.maximum(np.sqrt(lane_sum(x * x)), F(2) ** -40)
    scale = F(32000) / np.sqrt(F(block)) / length
    t = whole(x * scale[:, None]).reshape(n, -1, block)
    matrix = np.ones((1, 1), np.int64)
    while len(matrix) < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    t = (t @ matrix).reshape(n, d)
    assert np.abs(t).max() < 1 << 15
    return t, length * (F(1) / F(32000))


def vu_group(t, unit, bits):
    """Rows of one group: bytes of step and zero, codes."""
    n, top = F(t.shape[1]), F((1 << bits) - 1)
    mean = t.sum(axis=1).astype(F) / n
    variance = np.maximum((t * t).sum(axis=1).astype(F) / n - mean * mean, F(0))
    shortest = np.maximum(np.abs(mean) * (F(2.125) / top), F(2) ** -12 / unit)
    deviation, extreme = np.sqrt(variance) * F(REACHES[bits][0]), F(REACHES[bits][1])
    below, above = mean - t.min(axis=1).astype(F), t.max(axis=1).astype(F) - mean
    down, up = np.minimum(deviation + below * extreme, below), np.minimum(deviation + above * extreme, above)
    first = np.maximum((down + up) / top, shortest)
    with np.errstate(divide="ignore"):
        inverse = whole(np.minimum(F(64 * 32768) / first, F(32767)))
    fine = part(cut(t - whole(mean - down)[:, None]), inverse[:, None])
    codes = np.clip(part(fine, 512), 0, (1 << bits) - 1)
    total, products = codes.sum(axis=1).astype(F), (codes * t).sum(axis=1).astype(F)
    shared = products - mean * total
    with np.errstate(divide="ignore", invalid="ignore"):
        step = np.where(shared > 0, np.maximum(variance * n / shared, shortest), first)
    e = np.clip(log_nearest(step * unit, 16), -192, 63)
    middle = mean * unit / log_value(e, 16) - total / n
    shift = np.clip(np.rint(middle * (F(128) / top)) + F(64), -128, 127)
    return e + 192, shift.astype(np.int64) & 255, codes


def vu(bits, x):
    """Words of a tile, row by row and group by group: step, zero, codes."""
    d = x.shape[1]
    block = d & -d
    parts = []
    for c0 in range(0, d, max(block, 128)):
        t, unit = vu_span(x[:, c0:c0 + max(block, 128)], block)
        for c in range(0, t.shape[1], 128):
            e, r, codes = vu_group(t[:, c:c + 128], unit, bits)
            parts += [e[:, None], r[:, None], codes]
    return np.concatenate(parts, axis=1).reshape(-1)


# ---- keys ----------------------------------------------------------------------------------------------------------------

def half_towards(x, up):
    """The f16 next to x that is not below (up) or not above it, within f16's range."""
    x = np.clip(x, F(-65504), F(65504))
    h = x.astype(np.float16)
    wrong = h.astype(F) < x if up else h.astype(F) > x
    return np.where(wrong, np.nextafter(h, np.float16(np.inf if up else -np.inf)), h)


def kq_classes(range_, weight):
    d = len(range_)
    order = np.argsort(-(range_ * range_ * weight), kind="stable")
    classes = np.zeros(d, np.int64)
    classes[order[d // 4:]] = 1
    classes[order[d // 4 + d // 2:]] = 2
    return order, classes


def kq_fine_codes(t, inverse, offset, top, parts):
    fine = cut(part(t, inverse) + offset)
    return fine, np.clip(part(fine, 32768 // parts), 0, top)


def kq_line(t, top, bits):
    """By channel, the line of least squares through the first codes and elements."""
    n, parts = t.shape[0], 1 << (13 - bits)
    if bits == 4:
        codes = part(t, top)
    else:
        inverse = (top * parts * 10 + 4) // 9
        codes = kq_fine_codes(t, inverse, -((inverse - top * parts) // 2), top, parts)[1]
    total, squares = codes.sum(axis=0), (codes * codes).sum(axis=0)
    mean, products = t.sum(axis=0).astype(F) / F(n), (codes * t).sum(axis=0).astype(F)
    spread = (n * squares - total * total).astype(F)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(spread > 0, (products - mean * total.astype(F)) * F(n) / spread, F(0))
    return slope, mean - slope * (total.astype(F) / F(n))


class Survey:
    """What kq finds out before there are codes: weights, classes, scales and zeros by channel."""

    def __init__(self, bits, x, squares):
        d = x.shape[1]
        self.bits, self.parts = bits, 1 << (13 - bits)
        lo, range_ = x.min(axis=0), x.max(axis=0) - x.min(axis=0)
        known = squares is not None and squares.max() > 0
        self.weight = squares / squares.max() if known else np.ones(d, F)
        self.order, self.classes = kq_classes(range_, self.weight)
        self.top = (1 << (bits + 1 - self.classes)) - 1
        widest = np.array([range_[self.classes == k].max() / F((1 << (bits + 1 - k)) - 1) for k in range(3)], F)
        self.most = half_towards(widest, True)
        largest = self.most.astype(F)[self.classes]
        with np.errstate(divide="ignore"):
            self.t = whole((x - lo) * np.where(range_ >= F(2) ** -100, F(32767) / range_, F(0)))
        slope, start = kq_line(self.t, self.top, bits)
        unit = range_ * (F(1) / F(32767))
        with np.errstate(divide="ignore", invalid="ignore"):
            self.scale = np.clip(np.where(largest > 0, -log_nearest(slope * unit / largest, 32), 0), 0, 255)
        self.step = largest * log_value(-self.scale, 32)
        self.zero = half_towards(start * unit + lo, False)
        with np.errstate(divide="ignore"):
            per = np.where(self.step > 0, F(self.parts) / self.step, F(0))
        self.inverse = whole(np.minimum(unit * per * F(32768), F(32767)))
        self.offset = whole(np.clip((lo - self.zero.astype(F)) * per, F(-32767), F(32767)))

    def words(self, own, shared, codes):
        """Words of a tile: largest scales, classes by channel, then by place scale and zero, factors, codes by place and row."""
        good = (own > 0) & (shared > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(good, np.clip(log_nearest(np.where(good, own / shared, F(1)), 64), -37, 37), 0)
        place = np.argsort(self.classes, kind="stable")
        stored = np.stack([self.scale[place], self.zero[place].view(np.uint16)], 1).reshape(-1)
        return np.concatenate([self.most.view(np.uint16), self.classes, stored, factor & 255, codes[:, place].T.reshape(-1)])


def kq(bits, x, squares=None):
    """squares: by channel the sum of squared queries."""
    s = Survey(bits, x, squares)
    fine, codes = kq_fine_codes(s.t, s.inverse, s.offset, s.top, s.parts)
    own, shared = np.zeros(len(x), F), np.zeros(len(x), F)
    for c in range(0, x.shape[1], 128):
        a = slice(c, c + 128)
        worth = s.weight[a] * (s.step[a] * s.step[a])
        total = lane_sum(worth[None, :])[0]
        w = whole(worth * (F(32767) / total if total >= F(2) ** -100 else F(0)))
        u = cut(fine[:, a] - s.top[a] * s.parts // 2)
        p = part(u, w)
        own = own + (p * u).sum(axis=1).astype(F) * total
        shared = shared + (p * (codes[:, a] * s.parts - s.top[a] * s.parts // 2)).sum(axis=1).astype(F) * total
    return s.words(own, shared, codes)


# ---- keys with error feedback --------------------------------------------------------------------------------------------

def damped_moments(q):
    """Second moments of queries, half of the mean diagonal added to the diagonal; that mean."""
    c = row_sum(q[:, :, None] * q[:, None, :])
    mean = row_sum(np.diagonal(c)) / F(len(c))
    return c + np.diag(np.full(len(c), F(0.5) * mean, F)), mean


def inverse_root(c, mean):
    """L^-1 with L^T L = c and L lower triangular, from the last row of L to the first; then its inverse from the first row on."""
    rest, root, inverse = c.copy(), np.zeros_like(c), np.zeros_like(c)
    for k in range(len(c) - 1, -1, -1):
        left = rest[k, k] if rest[k, k] > 0 else mean if mean > 0 else F(1)
        root[k, k] = np.sqrt(left)
        root[k, :k] = rest[k, :k] / root[k, k]
        rest[:k, :k] = rest[:k, :k] - root[k, :k, None] * root[k, None, :k]
    for j in range(len(c)):
        known = row_sum(-root[j, :j, None] * inverse[:j]) if j else np.zeros(len(c), F)
        inverse[j] = known / root[j, j]
        inverse[j, j] = F(1) / root[j, j]
    return inverse


def kq_feedback(bits, x, queries):
    """queries: one at each row."""
    s = Survey(bits, x, row_sum(queries * queries))
    if not queries.any():
        return kq(bits, x)
    c, mean = damped_moments(queries[:, s.order])
    inverse = inverse_root(c, mean)
    step, zero, top = s.step[s.order], s.zero.astype(F)[s.order], s.top[s.order]
    with np.errstate(divide="ignore"):
        per = np.where(step > 0, F(1) / step, F(0))
    w = x[:, s.order].T.copy()
    u = w - (zero + step * (top.astype(F) / F(2)))[:, None]
    v, ranked = np.zeros_like(w), np.zeros(w.shape, np.int64)
    for i in range(len(w)):
        code = np.clip(np.rint((w[i] - zero[i]) * per[i]), F(0), F(top[i]))
        v[i] = step[i] * (code - F(top[i]) / F(2))
        ranked[i] = code.astype(np.int64)
        error = w[i] - (zero[i] + step[i] * code)
        w[i + 1:] = w[i + 1:] + (-inverse[i + 1:, i] / inverse[i, i])[:, None] * error
    products = np.zeros_like(w)
    for j in range(len(w)):
        products = products + c[:, j, None] * u[j]
    codes = np.zeros(x.shape, np.int64)
    codes[:, s.order] = ranked.T
    return s.words(row_sum(u * products), row_sum(v * products), codes)


# ---- hashes --------------------------------------------------------------------------------------------------------------

def fnv(words):
    h = 0xCBF29CE484222325
    for w in words.tolist():
        h = ((h ^ w) * 0x100000001B3) & ((1 << 64) - 1)
    return h


def queries_of(kind, d):
    q = rows(d, N_TILES)
    if kind == "equal":
        return np.repeat(q[:1], len(q), axis=0)
    if kind == "zero":
        return np.zeros_like(q)
    if kind == "tiny":
        return q * F(2) ** -100
    if kind == "one":
        return np.where(np.arange(d) == d // 3, q, F(0))
    if kind == "few":
        return q[:, np.arange(d) % 8] + q * F(0.25)
    return q


def lines():
    for d in SIZES:
        tiles = [rows(d, t) for t in range(N_TILES)]
        for bits in (2, 3, 4):
            queries = row_sum(rows(d, N_TILES) ** 2)
            yield f"kq{bits} {d} " + " ".join(f"{fnv(kq(bits, x)):016x}" for x in tiles)
            yield f"kq{bits}+queries {d} " + " ".join(f"{fnv(kq(bits, x, queries)):016x}" for x in tiles)
            yield f"vu{bits} {d} " + " ".join(f"{fnv(vu(bits, x)):016x}" for x in tiles)
            for kind in ("drawn", "few", "equal", "one", "tiny", "zero"):
                queries, keys = queries_of(kind, d), [tiles[0], np.clip(tiles[1], F(-8), F(8))]
                hashes = [fnv(kq_feedback(bits, x, queries)) for x in keys]
                yield f"kq{bits}-feedback+{kind} {d} " + " ".join(f"{h:016x}" for h in hashes)


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
