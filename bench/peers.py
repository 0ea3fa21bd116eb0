#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention of one decode step: kvtile beside MLX and PyTorch, on the same rows, in turn.

    python3 bench/peers.py [--rows N,N...] [--threads N,N...] [--rounds N] [--peer NAME]... [--kv SCHEME]...
        [--json] [--model MODEL.gguf]

32 query heads, 8 KV heads of 128, one query row. Compared are, as their users call them:

  mlx f16        mx.fast.scaled_dot_product_attention on an f16 cache, on the CPU
  mlx 4bit 8bit  mlx-lm's attention over its quantized caches (group 64): quantized_matmul, softmax, quantized_matmul
  torch bf16 f32 scaled_dot_product_attention with enable_gqa
  torch .. folded  the same, the four query heads of a KV head passed as four rows, which needs no copy of the keys
  kvtile         kvtile bench attention

Each round runs every one of them after another, so that a slow phase of the machine hits all; ratios are taken within a round. Each has as
many caches, used in turn, as are together four times as large as the last-level cache. Threads are those that a library is told to
use; MLX has one for most of this, whatever it is told. Every library runs in a process of its own, which sleeps while the others run.
`error` is the output's root mean square error over the result in double precision, on the rows as they were before any rounding.

With --model, bench/engine.py compares whole models with llama-cpp-python afterwards. All that is needed comes from PyPI; what is not
installed is left out and named: python3 -m pip install numpy 'mlx[cpu]' torch llama-cpp-python
"""
import argparse
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
PIP = {"mlx": "'mlx[cpu]'", "torch": "torch", "numpy": "numpy"}


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

class Mlx:
    variants = ("f16", "4bit", "8bit")

    def __init__(self, rows, threads):
        import mlx.core as mx
        mx.set_default_device(mx.cpu)
        self.mx, self.rows = mx, rows
        self.version, self.threads = importlib.metadata.version("mlx"), threads
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

    def __init__(self, rows, threads):
        import torch
        torch.set_num_threads(threads)
        self.torch, self.rows = torch, rows
        self.version = torch.__version__

    def type(self, variant):
        return self.torch.bfloat16 if variant[0] == "b" else self.torch.float32

    def bytes(self, variant, n):
        return 2 * KV_HEADS * n * SIZE * (2 if variant[0] == "b" else 4)

    def make(self, variant, n):
        caches = self.rows.cache(n)
        return [self.torch.from_numpy(self.rows.np.ascontiguousarray(x)[None]).to(self.type(variant)) for x in caches]

    def attend(self, variant, cache):
        torch = self.torch
        folded = variant.endswith("folded")
        shape = (1, KV_HEADS, GQA, SIZE) if folded else (1, HEADS, 1, SIZE)
        q = torch.from_numpy(self.rows.q).reshape(shape).to(self.type(variant))
        with torch.inference_mode():
            return torch.nn.functional.scaled_dot_product_attention(q, *cache, enable_gqa=not folded)

    def array(self, out):
        return out.float().numpy().reshape(HEADS, SIZE)


LIBRARIES = {"mlx": Mlx, "torch": Torch}


def work(name, threads):
    """Answers each line {"variant", "rows", "sample"} with one of times; keeps the caches of the last one."""
    import numpy as np
    rows = Rows(np)
    library = LIBRARIES[name](rows, threads)
    print(json.dumps({"version": library.version}), flush=True)
    made, caches = None, []
    for line in sys.stdin:
        ask = json.loads(line)
        variant, n = ask["variant"], ask["rows"]
        if made != (variant, n):
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
    def __init__(self, name, threads):
        self.name = name
        count = str(threads)
        env = dict(os.environ, OMP_NUM_THREADS=count, OPENBLAS_NUM_THREADS=count, MKL_NUM_THREADS=count)
        command = [sys.executable, os.path.abspath(__file__), "--worker", name, "--threads", count]
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

def run_kvtile(args, what, rows, threads, rounds):
    command = [args.kvtile, "bench", what, "--rows", str(rows), "--threads", str(threads), "--gqa", str(GQA),
               "--kv-heads", str(KV_HEADS), "--head-size", str(SIZE), "--rounds", str(rounds), "--json", "-q"]
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
            for variant in LIBRARIES[name].variants if count == threads else ():
                got = worker.sample(variant, rows)
                add(f"{name} {variant}", got["us"], got["error"], got["bytes"])
        for row in run_kvtile(args, "attention", rows, threads, 15)["rows"]:
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


def start_workers(names, threads):
    workers, missing = {}, []
    for name in names:
        if importlib.util.find_spec(name):
            workers.update({(name, count): Worker(name, count) for count in threads})
        else:
            missing.append(name)
    return workers, missing


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=numbers, default=[1024, 4096, 32768], metavar="N,N...")
    parser.add_argument("--threads", type=numbers, default=[1, 2], metavar="N,N...")
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
        return work(args.worker, args.threads[0])
    if not os.access(args.kvtile, os.X_OK):
        stop(f"there is no {args.kvtile}; build it with: cmake --preset release && cmake --build build/release")
    args.kv = args.kv or ["kivi4g32", "affine4g64", "q8_0"]

    workers, missing = start_workers(args.peer or LIBRARIES, args.threads)
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
        print(f"{HEADS} query heads, {KV_HEADS} KV heads of {SIZE}, one query row; {args.rounds} rounds")
        print(table(results))
    if args.model:
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "engine.py"), args.model, "--depth", "0,1024"], check=False)
    return None


if __name__ == "__main__":
    main()
