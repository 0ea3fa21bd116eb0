#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention of a prompt over packed caches, beside PyTorch's fp16 attention (FlashAttention, cuDNN), in one process on one GPU.

    cmake --build build/cuda --target cuda_bench_prefill && python3 bench/cuda/prefill.py [--quick] [--json FILE]

A prompt of n rows follows m rows that are in the cache; each query row sees all rows before it and itself. kvtile's time is that of
kvt_step_attend: tables, rows brought to f16, attention. Contestants are called in turn, a few times between two events of the device; a time is the
median of the rounds. TFLOP/s count 4 d products for each query head, query row and row that it sees.
"""
import argparse
import ctypes
import json
import os
import statistics
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 8


def library(path):
    lib = ctypes.CDLL(path)
    i, d, p = ctypes.c_int, ctypes.c_double, ctypes.c_void_p
    lib.bench_create.argtypes = [ctypes.c_char_p, i, i, i, i, i, i, i, p]
    lib.bench_error.argtypes = [i, ctypes.POINTER(d), ctypes.POINTER(d)]
    return lib


def microseconds(contestants, calls):
    """Median and spread of one call of each, by name."""
    times = {name: [] for name in contestants}
    for n in range(ROUNDS + 2):
        for name, call in contestants.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            if n >= 2:
                times[name].append(begin.elapsed_time(end) * 1000 / calls)
    return {name: (statistics.median(t), (max(t) - min(t)) / statistics.median(t)) for name, t in times.items()}


def peers(n_before, n_rows, n_heads, group, d):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    length = n_before + n_rows
    k, v = (torch.randn((1, n_heads, length, d), dtype=torch.float16, device="cuda") for _ in range(2))
    q = torch.randn((1, n_heads * group, n_rows, d), dtype=torch.float16, device="cuda")
    calls = {}
    for name, backend in (("FlashAttention", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
        mask = {"is_causal": True} if n_before == 0 else {"attn_mask": causal_lower_right(n_rows, length)}
        def call(backend=backend, mask=mask):
            with sdpa_kernel(backend):
                torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **mask)
        try:
            call()
            torch.cuda.synchronize()
            calls[name] = call
        except RuntimeError as why:
            print(f"  {name}: {str(why).splitlines()[0]}")
    return calls


SHAPES = [  # rows before, rows of the prompt, KV heads, query heads of each, d
    (0, 4096, 8, 4, 128),
    (0, 16384, 8, 4, 128),
    (15872, 512, 8, 4, 128),
    (30720, 2048, 8, 4, 128),
    (0, 4096, 8, 4, 64),
    (0, 4096, 8, 1, 256),
]
KV = ["kivi4g32", "affine4g64", "q8_0", "kvarn4", "f16"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=os.path.join(HERE, "../../build/cuda/libcuda_bench_prefill.so"))
    parser.add_argument("--quick", action="store_true", help="the first two shapes, two caches")
    parser.add_argument("--kv", action="append")
    parser.add_argument("--json")
    args = parser.parse_args()
    lib = library(args.library)
    stream = torch.cuda.Stream()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'rows before + prompt':22} {'d':>3} {'cache':16} {'us':>9} {'spread':>6} {'TFLOP/s':>7} {'x Flash':>7}  error")
    rows = []
    for n_before, n_rows, n_heads, group, d in SHAPES[:2] if args.quick else SHAPES:
        flops = 4 * d * n_heads * group * (n_rows * n_before + n_rows * (n_rows + 1) / 2)
        names = args.kv or (KV[:1] + KV[-1:] if args.quick else KV if n_before == 0 and d == 128 else KV[:1] + KV[-1:])
        with torch.cuda.stream(stream):
            contestants, cases = peers(n_before, n_rows, n_heads, group, d), {}
            for kv in names:
                for sink, tail in ((128, 128), (0, 0)) if kv == "kivi4g32" else ((0, 0),):
                    case = lib.bench_create(kv.encode(), d, n_heads, group, n_before, n_rows, sink, tail, ctypes.c_void_p(stream.cuda_stream))
                    if case < 0 or lib.bench_attend(case):
                        continue
                    cases[kv + ("+16" if sink else "")] = case
                    contestants[kv + ("+16" if sink else "")] = lambda case=case: lib.bench_attend(case) and sys.exit(1)
            times = microseconds(contestants, max(2, min(20, int(2e12 / flops))))
            for name, (us, spread) in times.items():
                row = {"before": n_before, "rows": n_rows, "heads": n_heads, "group": group, "d": d, "name": name, "us": us, "spread": spread,
                       "tflops": flops / us / 1e6}
                error, ratio = "", ""
                if "FlashAttention" in times:
                    row["vs_flash"] = times["FlashAttention"][0] / us
                    ratio = f"{row['vs_flash']:.2f}"
                if name in cases:
                    kernel, codec = ctypes.c_double(), ctypes.c_double()
                    lib.bench_error(cases[name], ctypes.byref(kernel), ctypes.byref(codec))
                    row["kernel_error"], row["codec_error"] = kernel.value, codec.value
                    error = f"{kernel.value / codec.value:.4f} of the codec's" if name != "f16" and codec.value else f"{kernel.value:.1e}"
                print(f"{f'{n_before} + {n_rows}':22} {d:3} {name:16} {us:9.1f} {100 * spread:5.1f}% {row['tflops']:7.1f} {ratio:>7}  {error}", flush=True)
                rows.append(row)
            for case in cases.values():
                lib.bench_free(case)
        torch.cuda.empty_cache()
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"device": torch.cuda.get_device_name(), "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
