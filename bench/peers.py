#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention: kvtile beside llama.cpp, MLX and PyTorch, on the same rows, in turn.

    python3 bench/peers.py [--rows N,N...] [--queries N] [--threads N,N...] [--rounds N] [--peer NAME]... [--kv SCHEME]...
        [--json] [--model MODEL.gguf]

32 query heads, 8 KV heads of 128; one query row, or --queries of them (prefill), the last rows, each of which sees all rows up to
its own. Compared are, as their users call them:

  llama_cpp f16 q8_0 q4_0  llama.cpp's flash attention (ggml_flash_attn_ext on the CPU), by its types of caches

  mlx f16        mx.fast.scaled_dot_product_attention on an f16 cache, on the CPU
  mlx 4bit 8bit  mlx-lm's attention over its quantized caches (group 64): quantized_matmul, softmax, quantized_matmul
  torch bf16 f32 scaled_dot_product_attention with enable_gqa
  torch .. folded  the same, the four query heads of a KV head passed as four rows, which needs no copy of the keys
  kvtile         kvtile bench attention

Each round runs every one of them after another, so that a slow phase of the machine hits all; ratios are taken within a round. Each has as
many caches, used in turn, as are together four times as large as the last-level cache. Threads are those that a library is told to
use; MLX has one for most of this, whatever it is told. Every library runs in a process of its own, which sleeps while the others run.
`error` is the output's root mean square error over the result in double precision, on the rows as they were before any rounding;
with --queries it is that of the last row, and kvtile's the one it has with a single row.

With --model, bench/engine.py compares whole models with llama-cpp-python afterwards. All that is needed comes from PyPI; what is not
installed is left out and named: python3 -m pip install numpy 'mlx[cpu]' torch llama-cpp-python
"""
import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADS, KV_HEADS, SIZE = 32, 8, 128
GQA = HEADS // KV_HEADS
SAMPLES, SECONDS = 9, 0.5  # of one variant in one round: at most so many, and no more after so long
KVTILE = ("kivi4g32", "f16")  # what ratios are taken to
PIP = {"llama_cpp": "llama-cpp-python", "mlx": "'mlx[cpu]'", "torch": "torch", "numpy": "numpy"}


def stop(sentence):
    sys.exit(f"bench/peers.py: {sentence}")


def cache_bytes():
    """Of the last-level cache, or 32 MiB."""
    try:
        folder = "/sys/devices/system/cpu/cpu0/cache"
        sizes = [open(os.path.join(folder, i, "size"), encoding="ascii").read() for i in os.listdir(folder) if i[:5] == "index"]
        return max(int(s.strip().rstrip("K")) * 1024 for s in sizes)
    except (OSError, ValueError):
        return 32 << 20


# ---- the rows ----------------------------------------------------------------------------------------------------------

class Rows:
    """The rows of kvtile's benches: normal, keys with a bias in each channel; 1024 different ones, over and over."""
    N, SEED = 1024, 20261130

    def __init__(self, np):
        self.np, self.at = np, 0
        row = KV_HEADS * SIZE
        bias = self.normal(row)
        self.k = self.normal(self.N * row).reshape(self.N, KV_HEADS, SIZE) + bias.reshape(KV_HEADS, SIZE)
        self.v = self.normal(self.N * row).reshape(self.N, KV_HEADS, SIZE)
        self.q = self.normal(row * 16)[:HEADS * SIZE].reshape(HEADS, SIZE)

    def normal(self, n):
        """The next n of kvt_rng_normal: twelve draws of splitmix64 each."""
        np, out = self.np, []
        for start in range(0, n, 1 << 16):
            m = min(1 << 16, n - start) * 12
            with np.errstate(over="ignore"):
                z = np.uint64(self.SEED) + np.arange(self.at + 1, self.at + m + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
                z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
                z = z ^ z >> np.uint64(31)
            self.at += m
            out.append(((z >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(-1, 12).sum(axis=1) - 6)
        return np.concatenate(out).astype(np.float32)

    def cache(self, n):
        """K and V as [KV heads, n, SIZE]."""
        take = self.np.arange(n) % self.N
        return self.k[take].transpose(1, 0, 2), self.v[take].transpose(1, 0, 2)

    def exact(self, n):
        """Attention over n rows in double precision, [HEADS, SIZE]."""
        np = self.np
        times = np.bincount(np.arange(n) % self.N, minlength=self.N)  # that each row occurs
        out = np.empty((HEADS, SIZE))
        for h in range(HEADS):
            k, v = self.k[:, h // GQA].astype(np.float64), self.v[:, h // GQA].astype(np.float64)
            score = k @ self.q[h].astype(np.float64) / np.sqrt(SIZE)
            weight = np.exp(score - score.max()) * times
            out[h] = weight @ v / weight.sum()
        return out


# ---- the libraries, each in a process of its own -----------------------------------------------------------------------

def sees(np, queries, n):
    """[queries, n]: what each of the last rows sees."""
    return np.arange(n) <= np.arange(n - queries, n)[:, None]


class Llama:
    """ggml by the library that llama-cpp-python brings. Keys and values lie row by row, all heads of a row together, as in its cache."""
    variants = prefill_variants = ("f16", "q8_0", "q4_0")
    TYPES = {"f16": (1, 1, 2), "q8_0": (8, 32, 34), "q4_0": (2, 32, 18)}  # ggml's number, elements and bytes of a block
    F32, F16 = 0, 1

    class Init(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

    class Plan(ctypes.Structure):
        """The beginning of ggml_cplan, with room for what follows."""
        _fields_ = [("work_size", ctypes.c_size_t), ("work", ctypes.c_void_p), ("rest", ctypes.c_byte * 128)]

    class PoolParams(ctypes.Structure):
        """ggml_threadpool_params, with room for more."""
        _fields_ = [("all", ctypes.c_byte * 1024)]

    def __init__(self, rows, threads, queries):
        self.rows, self.threads, self.queries = rows, threads, queries
        self.version = importlib.metadata.version("llama-cpp-python")
        folder = os.path.join(importlib.util.find_spec("llama_cpp").submodule_search_locations[0], "lib")
        self.base, self.cpu = (ctypes.CDLL(os.path.join(folder, f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL)
                               for name in ("ggml-base", "ggml-cpu"))
        pointer, base, cpu = ctypes.c_void_p, self.base, self.cpu
        for function in ("ggml_init", "ggml_new_tensor_3d", "ggml_permute", "ggml_flash_attn_ext", "ggml_new_graph", "ggml_get_data"):
            getattr(base, function).restype = pointer
        base.ggml_init.argtypes = [self.Init]
        base.ggml_new_tensor_3d.argtypes = [pointer, ctypes.c_int] + 3 * [ctypes.c_int64]
        base.ggml_permute.argtypes = [pointer, pointer] + 4 * [ctypes.c_int]
        base.ggml_flash_attn_ext.argtypes = 5 * [pointer] + 3 * [ctypes.c_float]
        base.ggml_build_forward_expand.argtypes = [pointer, pointer]
        base.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer] + 3 * [ctypes.c_int64] + [pointer]
        for function in ("ggml_new_graph", "ggml_get_data", "ggml_free"):
            getattr(base, function).argtypes = [pointer]
        cpu.ggml_threadpool_new.restype, cpu.ggml_threadpool_new.argtypes = pointer, [pointer]
        base.ggml_threadpool_params_default.restype, base.ggml_threadpool_params_default.argtypes = self.PoolParams, [ctypes.c_int]
        cpu.ggml_graph_plan.restype, cpu.ggml_graph_plan.argtypes = self.Plan, [pointer, ctypes.c_int, pointer]
        cpu.ggml_graph_compute.argtypes = [pointer, pointer]
        cpu.ggml_cpu_init()
        params = base.ggml_threadpool_params_default(threads)
        self.pool = cpu.ggml_threadpool_new(ctypes.byref(params))

    def bytes(self, variant, n):
        _, elements, size = self.TYPES[variant]
        return 2 * KV_HEADS * n * SIZE // elements * size

    def tensor(self, context, kind, sizes, array):
        """A tensor of these sizes, the fastest first, holding the array's bytes."""
        out = self.base.ggml_new_tensor_3d(context, kind, *sizes)
        array = self.rows.np.ascontiguousarray(array)
        ctypes.memmove(self.base.ggml_get_data(out), array.ctypes.data, array.nbytes)
        return out

    def packed(self, variant, side):
        """The different rows of a side as bytes, one row of all heads after the other."""
        np, (kind, elements, size) = self.rows.np, self.TYPES[variant]
        if kind == self.F16:
            return side.astype(np.float16)
        side = np.ascontiguousarray(side)
        out = np.empty((len(side), side[0].size // elements * size), dtype=np.uint8)
        self.base.ggml_quantize_chunk(kind, side.ctypes.data, out.ctypes.data, 0, side.size // SIZE, SIZE, None)
        return out

    def make(self, variant, n):
        np, base, kind = self.rows.np, self.base, self.TYPES[variant][0]
        padded = -(-self.queries // 64) * 64
        context = base.ggml_init(self.Init(self.bytes(variant, n) + 2 * n * padded + 8 * HEADS * SIZE * self.queries + (1 << 20), None, False))
        take = np.arange(n) % self.rows.N
        k, v = (base.ggml_permute(context, self.tensor(context, kind, (SIZE, KV_HEADS, n), self.packed(variant, side)[take]), 0, 2, 1, 3)
                for side in (self.rows.k, self.rows.v))
        q = self.tensor(context, self.F32, (SIZE, self.queries, HEADS), np.repeat(self.rows.q[:, None], self.queries, axis=1))
        mask = np.zeros((padded, n), dtype=np.float16)
        mask[:self.queries][~sees(np, self.queries, n)] = -np.inf
        mask = self.tensor(context, self.F16, (n, padded, 1), mask)
        out = base.ggml_flash_attn_ext(context, q, k, v, mask, SIZE**-0.5, 0, 0)
        graph = base.ggml_new_graph(context)
        base.ggml_build_forward_expand(graph, out)
        plan = self.cpu.ggml_graph_plan(graph, self.threads, self.pool)
        work = ctypes.create_string_buffer(plan.work_size + 64)
        plan.work = ctypes.addressof(work)
        return context, graph, plan, work, out

    def attend(self, variant, cache):
        _, graph, plan, _, out = cache
        if self.cpu.ggml_graph_compute(graph, ctypes.byref(plan)) != 0:
            stop("ggml_graph_compute failed")
        return out

    def array(self, out):
        """Of the last row: the output is [query row, head, element]."""
        data = (ctypes.c_float * (self.queries * HEADS * SIZE)).from_address(self.base.ggml_get_data(out))
        return self.rows.np.array(data).reshape(self.queries, HEADS, SIZE)[-1]

    def free(self, cache):
        self.base.ggml_free(cache[0])


class Mlx:
    variants = ("f16", "4bit", "8bit")

    def __init__(self, rows, threads, queries):
        del threads, queries  # the first has no effect here, the second is 1
        import mlx.core as mx
        mx.set_default_device(mx.cpu)
        self.mx, self.rows = mx, rows
        self.version = importlib.metadata.version("mlx")
        self.q = mx.array(rows.q[None, :, None, :]).astype(mx.float16)

    def bytes(self, variant, n):
        bits = {"f16": 16, "4bit": 4.5, "8bit": 8.5}[variant]
        return int(2 * KV_HEADS * n * SIZE * bits / 8)

    def make(self, variant, n):
        mx = self.mx
        caches = [mx.array(x[None].astype("float16")) for x in self.rows.cache(n)]
        if variant != "f16":
            caches = [mx.quantize(x, group_size=64, bits=int(variant[0])) for x in caches]
        mx.eval(caches)
        return caches

    def attend(self, variant, cache):
        mx, scale = self.mx, SIZE**-0.5
        if variant == "f16":
            out = mx.fast.scaled_dot_product_attention(self.q, *cache, scale=scale)
        else:  # mlx_lm.models.base.quantized_scaled_dot_product_attention
            k, v = ([mx.expand_dims(part, -3) for part in side] for side in cache)
            how = {"group_size": 64, "bits": int(variant[0])}
            q = (self.q * scale).reshape(1, KV_HEADS, GQA, 1, SIZE)
            weights = mx.softmax(mx.quantized_matmul(q, *k, transpose=True, **how), axis=-1, precise=True)
            out = mx.quantized_matmul(weights, *v, transpose=False, **how)
        mx.eval(out)
        return out

    def array(self, out):
        return self.rows.np.array(out.astype(self.mx.float32)).reshape(HEADS, SIZE)


class Torch:
    variants = ("bf16", "bf16 folded", "f32", "f32 folded")
    prefill_variants = ("bf16", "f32")

    def __init__(self, rows, threads, queries):
        import torch
        torch.set_num_threads(threads)
        self.torch, self.rows, self.queries = torch, rows, queries
        self.version = torch.__version__

    def type(self, variant):
        return self.torch.bfloat16 if variant[0] == "b" else self.torch.float32

    def bytes(self, variant, n):
        return 2 * KV_HEADS * n * SIZE * (2 if variant[0] == "b" else 4)

    def make(self, variant, n):
        np, torch = self.rows.np, self.torch
        folded = variant.endswith("folded")
        shape = (1, KV_HEADS, GQA, SIZE) if folded else (1, HEADS, 1, SIZE)
        q = torch.from_numpy(self.rows.q).reshape(shape).to(self.type(variant)).repeat(1, 1, self.queries, 1)
        k, v = (torch.from_numpy(np.ascontiguousarray(x)[None]).to(self.type(variant)) for x in self.rows.cache(n))
        mask = torch.from_numpy(sees(np, self.queries, n)) if self.queries > 1 else None
        return q, k, v, mask, not folded

    def attend(self, variant, cache):
        q, k, v, mask, gqa = cache
        with self.torch.inference_mode():
            return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=gqa)

    def array(self, out):
        heads = out if out.shape[1] == KV_HEADS else out[:, :, -1]
        return heads.float().numpy().reshape(HEADS, SIZE)


LIBRARIES = {"llama_cpp": Llama, "mlx": Mlx, "torch": Torch}


def variants(name, queries):
    """What a library is compared with: MLX on the CPU would take minutes for many query rows."""
    library = LIBRARIES[name]
    return library.variants if queries == 1 else getattr(library, "prefill_variants", ())


def work(name, threads, queries):
    """Answers each line {"variant", "rows", "sample"} with one of times; keeps the caches of the last one."""
    import numpy as np
    rows = Rows(np)
    library = LIBRARIES[name](rows, threads, queries)
    print(json.dumps({"version": library.version}), flush=True)
    made, caches = None, []
    for line in sys.stdin:
        ask = json.loads(line)
        variant, n = ask["variant"], ask["rows"]
        if made != (variant, n):
            for cache in caches if hasattr(library, "free") else ():
                library.free(cache)
            caches = []  # gone before others are made
            count = max(2, -(-4 * cache_bytes() // library.bytes(variant, n)))
            caches = [library.make(variant, n) for _ in range(count)]
            made = (variant, n)
            out = library.array(library.attend(variant, caches[0])).astype(np.float64)
        times, start = [], time.perf_counter()
        while len(times) < SAMPLES and (not times or time.perf_counter() - start < SECONDS):
            begin = time.perf_counter()
            library.attend(variant, caches[(len(times) + 1) % len(caches)])
            times.append(1e6 * (time.perf_counter() - begin))
        exact = rows.exact(n)
        error = float(np.sqrt(((out - exact) ** 2).sum() / (exact**2).sum()))
        print(json.dumps({"us": times, "error": error, "bytes": library.bytes(variant, n)}), flush=True)


class Worker:
    def __init__(self, name, threads, queries):
        self.name = name
        count = str(threads)
        env = dict(os.environ, OMP_NUM_THREADS=count, OPENBLAS_NUM_THREADS=count, MKL_NUM_THREADS=count)
        command = [sys.executable, os.path.abspath(__file__), "--worker", name, "--threads", count, "--queries", str(queries)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.version = self.answer()["version"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            stop(f"{self.name} ended with status {self.process.wait()}")
        return json.loads(line)

    def sample(self, variant, rows):
        print(json.dumps({"variant": variant, "rows": rows}), file=self.process.stdin, flush=True)
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- kvtile ------------------------------------------------------------------------------------------------------------

def run_kvtile(args, what, rows, threads, rounds, queries=1):
    command = [args.kvtile, "bench", what, "--rows", str(rows), "--threads", str(threads), "--gqa", str(GQA),
               "--kv-heads", str(KV_HEADS), "--head-size", str(SIZE), "--rounds", str(rounds), "--json", "-q"]
    if queries > 1:
        command += ["--queries", str(queries)]
    for kv in args.kv:
        command += ["--kv", kv]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        stop(f"'{' '.join(command)}' ended with status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def kvtile_errors(args):
    """By cache. Of 2048 rows: they come over and over, so more have the same."""
    return {row["kv"]: row["error"] for row in run_kvtile(args, "step", 2048, 1, 3)["rows"]}


# ---- the comparison ----------------------------------------------------------------------------------------------------

def measure(args, workers, errors, rows, threads):
    """A list of results at one length and number of threads."""
    samples = {}

    def add(name, us, error, size):
        entry = samples.setdefault(name, {"us": [], "rounds": [], "error": error, "bytes": size})
        entry["us"] += us
        entry["rounds"].append(statistics.median(us))

    for i in range(args.rounds):
        if sys.stderr.isatty():
            print(f"\r{rows} rows, {threads} threads, round {i + 1} of {args.rounds} ", end="", file=sys.stderr, flush=True)
        for (name, count), worker in workers.items():
            for variant in variants(name, args.queries) if count == threads else ():
                got = worker.sample(variant, rows)
                add(f"{name} {variant}", got["us"], got["error"], got["bytes"])
        for row in run_kvtile(args, "attention", rows, threads, 15 if args.queries == 1 else 3, args.queries)["rows"]:
            add(f"kvtile {row['kv']}", [row["us"]], errors[row["kv"]], row["bytes"])
    out = []
    for name, s in samples.items():
        row = {"name": name, "rows": rows, "threads": threads, "us": statistics.median(s["us"]), "us_min": min(s["us"]),
               "us_max": max(s["us"]), "bytes": s["bytes"], "error": s["error"]}
        for kv in KVTILE:
            ours = samples.get(f"kvtile {kv}")
            row[f"over_{kv}"] = statistics.median(a / b for a, b in zip(s["rounds"], ours["rounds"])) if ours else None
        out.append(row)
    return out


def table(results):
    def cell(x, form):
        return format(x, form) if x is not None else "-"

    head = f"{'':18} {'rows':>6} {'threads':>7} {'us: median (min .. max)':>34} {'MiB':>7}"
    lines = [head + "".join(f" {'/ ' + kv:>10}" for kv in KVTILE) + f" {'error':>9}"]
    for r in results:
        us = f"{r['us']:.0f} ({r['us_min']:.0f} .. {r['us_max']:.0f})"
        lines.append(f"{r['name']:18} {r['rows']:6} {r['threads']:7} {us:>34} {r['bytes'] / 2**20:7.1f}"
                     + "".join(f" {cell(r[f'over_{kv}'], '.2f'):>10}" for kv in KVTILE) + f" {cell(r['error'], '.2e'):>9}")
    return "\n".join(lines)


def start_workers(names, threads, queries):
    workers, missing = {}, []
    for name in names:
        if not variants(name, queries):
            continue
        if importlib.util.find_spec(name):
            workers.update({(name, count): Worker(name, count, queries) for count in threads})
        else:
            missing.append(name)
    return workers, missing


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=numbers, default=[1024, 4096, 32768], metavar="N,N...")
    parser.add_argument("--threads", type=numbers, default=[1, 2], metavar="N,N...")
    parser.add_argument("--queries", type=int, default=1, metavar="N", help="query rows: 1, or many for prefill")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="append", choices=LIBRARIES, help="what to compare with (all that are installed)")
    parser.add_argument("--kv", action="append", help="kvtile's caches (kivi4g32, affine4g64, q8_0 and f16)")
    parser.add_argument("--kvtile", default=os.path.join(ROOT, "build", "release", "kvtile"), help="the program")
    parser.add_argument("--model", help="compare a whole model with llama-cpp-python too: bench/engine.py")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not importlib.util.find_spec("numpy"):
        stop("numpy is missing; in a virtual environment: python3 -m pip install numpy")
    if args.worker:
        return work(args.worker, args.threads[0], args.queries)
    if not os.access(args.kvtile, os.X_OK):
        stop(f"there is no {args.kvtile}; build it with: cmake --preset release && cmake --build build/release")
    args.kv = args.kv or ["kivi4g32", "affine4g64", "q8_0"]

    if not 1 <= args.queries <= min(args.rows):
        stop(f"--queries {args.queries} is not from 1 to the fewest --rows, {min(args.rows)}")
    workers, missing = start_workers(args.peer or LIBRARIES, args.threads, args.queries)
    errors = kvtile_errors(args)
    results = [row for rows in args.rows for threads in args.threads for row in measure(args, workers, errors, rows, threads)]
    if sys.stderr.isatty():
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr, flush=True)
    versions = {name: worker.version for (name, _), worker in workers.items()}
    for worker in workers.values():
        worker.close()
    for name in missing:
        print(f"{name} is not installed and was left out: python3 -m pip install {PIP[name]}", file=sys.stderr)
    machine = run_kvtile(args, "attention", 128, 1, 3)["machine"]
    load = os.getloadavg()[0]
    if args.json:
        print(json.dumps({"machine": machine, "load": load, "versions": versions, "rows": results}, indent=2))
    else:
        print(f"{machine}; load {load:.1f}; " + ", ".join(f"{name} {v}" for name, v in versions.items()))
        print(f"{HEADS} query heads, {KV_HEADS} KV heads of {SIZE}; query rows: {args.queries}; {args.rounds} rounds")
        print(table(results))
    if args.model:
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "engine.py"), args.model, "--depth", "0,1024"], check=False)
    return None


if __name__ == "__main__":
    main()
