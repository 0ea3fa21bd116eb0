#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prompt caches of mlx-lm: what it saves loads into kvtile, and what kvtile saves loads into it, with the same numbers.

    python3 tests/compare/prompt_cache.py [--library build/release/libkvtile.so] [--mlx-lm FOLDER] [--record]

The layout is that of the mlx-lm that is installed, or lies in FOLDER (pip install --no-deps --target FOLDER mlx-lm==0.31.3; made with 0.31.3
and 0.32.2). --record writes tests/golden/mlx/LAYOUT.safetensors, which the C test test_mlx_cache reads. Needs numpy and mlx[cpu].
Without those, mlx-lm or the library it is skipped.
"""
import argparse
import ctypes
import importlib.util
import os
import sys
import tempfile
import types

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GOLDEN = os.path.join(ROOT, "tests", "golden", "mlx")
HEADS, K_SIZE, V_SIZE, ROWS, BITS, GROUP = 2, 64, 32, 130, 4, 32
ENTRIES = {"model": 'made "up"', "tokenizer_config": '{"a": "\u00e9\\n"}'}


def skip(why):
    print(f"prompt_cache.py: skipped: {why}")
    sys.exit(0)


def load_mlx_lm(folder):
    """mlx_lm.models.cache alone: the package itself imports much that is not needed here."""
    if folder:
        sys.path.insert(0, folder)
    root = importlib.util.find_spec("mlx_lm")
    if not root:
        skip("mlx-lm is missing: python3 -m pip install --no-deps mlx-lm")
    for name, path in (("mlx_lm", ""), ("mlx_lm.models", "models")):
        module = types.ModuleType(name)
        module.__path__ = [os.path.join(root.submodule_search_locations[0], path)]
        sys.modules[name] = module
    import mlx_lm.models.cache as cache
    return cache


def make(mx, np, cache):
    """A layer of f16 and one of 4 bits, which grew by one row after another chunk."""
    rng = np.random.default_rng(7)
    plain, packed = cache.KVCache(), cache.QuantizedKVCache(group_size=GROUP, bits=BITS)
    for layer in (plain, packed):
        for n in (ROWS - 1, 1):
            k, v = (mx.array(rng.standard_normal((1, HEADS, n, d)).astype(np.float16)) for d in (K_SIZE, V_SIZE))
            layer.update_and_fetch(k, v)
    return [plain, packed]


def arrays_of(np, caches):
    """All numbers of the first ROWS rows."""
    out = []
    for layer in caches:
        for side in (layer.keys, layer.values):
            parts = side if isinstance(side, (tuple, list)) else (side,)
            out += [np.array(part)[:, :, :ROWS] for part in parts]
    return out


class Layer(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("n_kv_heads", "k_size", "v_size", "window")]


class Shape(ctypes.Structure):
    _fields_ = [("n_layers", ctypes.c_int), ("layers", ctypes.POINTER(Layer))]


class PlanOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kv", ctypes.c_char_p), ("sink", ctypes.c_int), ("tail", ctypes.c_int),
                ("start", ctypes.c_int64), ("rolling", ctypes.c_int64)]


class PoolOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("backend", ctypes.c_char_p), ("level", ctypes.c_char_p),
                ("byte_limit", ctypes.c_uint64), ("allocator", ctypes.c_void_p), ("parallel", ctypes.c_void_p)]


class Entry(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Error(ctypes.Structure):
    _fields_ = [("room", ctypes.c_char * 1024)]


class Kvtile:
    def __init__(self, path):
        self.lib, self.error = ctypes.CDLL(path), Error()
        self.lib.kvt_mlx_cache_entry.restype = self.lib.kvt_mlx_cache_layer.restype = ctypes.c_char_p

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args, ctypes.byref(self.error))
        if status != 0:
            sys.exit(f"prompt_cache.py: {name} fails with status {status}: {bytes(self.error)[4:].split(bytes(1))[0].decode()}")

    def load(self, path):
        """A sequence with what a file holds, and its layout."""
        cache, plan, pool, seq = (ctypes.c_void_p() for _ in range(4))
        self.call("kvt_mlx_cache_open", ctypes.byref(cache), path.encode(), None)
        n = self.lib.kvt_mlx_cache_n_layers(cache)
        layers = (Layer * n)()
        names = [self.lib.kvt_mlx_cache_layer(cache, l, ctypes.byref(layers[l])).decode() for l in range(n)]
        assert names == ["f16", f"affine{BITS}g{GROUP}"], names
        assert {key: self.lib.kvt_mlx_cache_entry(cache, key.encode()).decode() for key in ENTRIES} == ENTRIES
        options = PlanOptions(ctypes.sizeof(PlanOptions), f"{names[0]}:1={names[1]}".encode())
        self.call("kvt_plan_create", ctypes.byref(plan), ctypes.byref(Shape(n, layers)), ctypes.byref(options), None)
        pool_options = PoolOptions(ctypes.sizeof(PoolOptions))
        self.call("kvt_pool_create", ctypes.byref(pool), plan, ctypes.byref(pool_options))
        self.call("kvt_mlx_cache_load", ctypes.byref(seq), pool, cache, ctypes.c_int64(4096), 0)
        return seq, self.lib.kvt_mlx_cache_layout(cache)

    def save(self, seq, path, layout):
        entries = (Entry * len(ENTRIES))(*(Entry(k.encode(), v.encode()) for k, v in ENTRIES.items()))
        self.call("kvt_mlx_cache_save", seq, path.encode(), layout, 0, entries, len(ENTRIES))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=os.path.join(ROOT, "build", "release", "libkvtile.so"))
    parser.add_argument("--mlx-lm", metavar="FOLDER")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    try:
        import mlx.core as mx
        import numpy as np
    except ImportError as missing:
        skip(f"{missing.name} is missing: python3 -m pip install numpy 'mlx[cpu]'")
    if not os.path.exists(args.library):
        skip(f"there is no {args.library}: cmake --preset release && cmake --build build/release")
    cache = load_mlx_lm(args.mlx_lm)
    mx.set_default_device(mx.cpu)
    caches = make(mx, np, cache)
    want = arrays_of(np, caches)
    kvtile = Kvtile(args.library)
    with tempfile.TemporaryDirectory() as folder:
        theirs = os.path.join(folder, "theirs.safetensors")
        cache.save_prompt_cache(theirs, caches, ENTRIES)
        seq, layout = kvtile.load(theirs)
        name = ("old", "new")[layout]
        if args.record:
            os.makedirs(GOLDEN, exist_ok=True)
            with open(theirs, "rb") as source, open(os.path.join(GOLDEN, f"{name}.safetensors"), "wb") as golden:
                golden.write(source.read())
        ours = os.path.join(folder, "ours.safetensors")
        kvtile.save(seq, ours, layout)
        loaded, entries = cache.load_prompt_cache(ours, return_metadata=True)
        assert entries == ENTRIES, entries
        got = arrays_of(np, loaded)
        assert [type(c) for c in loaded] == [type(c) for c in caches] and all(c.offset == ROWS for c in loaded)
        assert loaded[1].bits == BITS and loaded[1].group_size == GROUP
        assert len(got) == len(want) and all(a.dtype == b.dtype and (a == b).all() for a, b in zip(got, want))
        k, v = (mx.array(np.ones((1, HEADS, 1, d), np.float16)) for d in (K_SIZE, V_SIZE))
        for layer in loaded:
            layer.update_and_fetch(k, v)  # it goes on
        other = os.path.join(folder, "other.safetensors")
        kvtile.save(seq, other, 1 - layout)
        again, _ = kvtile.load(other)
        back = os.path.join(folder, "back.safetensors")
        kvtile.save(again, back, layout)
        with open(back, "rb") as a, open(ours, "rb") as b:
            assert a.read() == b.read()
    print(f"layout {name}: {len(want)} arrays agree both ways")


if __name__ == "__main__":
    main()
