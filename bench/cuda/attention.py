#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode attention over packed caches, beside PyTorch's on fp16 rows (cuDNN, FlashAttention) and FlashInfer's on pages of fp16 and fp8, in one
process on one GPU.

    cmake --build build/cuda --target cuda_bench_attention && python3 bench/cuda/attention.py [--quick] [--json FILE]

First a device copy is measured: the ceiling. Every contestant runs in CUDA graphs of 24 launches over rotated sets of memory that are larger than
the device's cache together, replayed in turn; a time is the median of 10 replays. Bytes are those of the tiles that are read, scales included. `loss` is what
rounding the cache does to the output (root mean square, as a share of the output's own), `kernel` what the kernel adds to it, as a share of that
(16-bit rows: as a share of the output). FlashInfer takes part where it is installed (flashinfer-python; it compiles its kernels at first use).
"""
import argparse
import ctypes
import importlib
import json
import os
import statistics
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
LAUNCHES, REPLAYS = 24, 10


def library(path):
    lib = ctypes.CDLL(path)
    i, d, p = ctypes.c_int, ctypes.c_double, ctypes.c_void_p
    lib.bench_create.argtypes = [ctypes.c_char_p, i, i, i, i, i, ctypes.POINTER(i), i, i, i, i]
    lib.bench_launch.argtypes = [i, i, p]
    lib.bench_bytes.restype = d
    lib.bench_error.argtypes = [i, ctypes.POINTER(d), ctypes.POINTER(d), ctypes.POINTER(d)]
    return lib


def graph_of(launch, stream):
    """A graph of LAUNCHES launches; launch(i, stream)."""
    with torch.cuda.stream(stream):
        for n in range(3):
            launch(n)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for n in range(LAUNCHES):
            launch(n)
    return graph


def microseconds(graphs):
    """Median and spread of one launch of each graph, replayed in turn."""
    times = [[] for _ in graphs]
    for _ in range(3):
        for graph in graphs:
            graph.replay()
    for _ in range(REPLAYS):
        for graph, into in zip(graphs, times):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            into.append(begin.elapsed_time(end) * 1000 / LAUNCHES)
    return [(statistics.median(t), (max(t) - min(t)) / statistics.median(t)) for t in times]


def copy_bandwidth():
    """Bytes read and written a second by a copy of a gigabyte. Not in a graph, where the driver copies slower."""
    x = torch.randint(0, 100, (1 << 30,), dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    times = []
    for _ in range(3 + REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(4):
            y.copy_(x)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 4 * 1e-3)
    return 2 * x.numel() / statistics.median(times[3:])


def peers(n_seqs, length, n_heads, group, n_queries, d, stream):
    """Graphs of PyTorch's attention over f16 rows, by name; for several query rows without a mask: the same work."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shape = (n_seqs, n_heads, length, d)
    n_sets = max(2, int(400e6 / (4 * n_seqs * n_heads * length * d)) + 1)
    k = [torch.randn(shape, dtype=torch.float16, device="cuda") for _ in range(n_sets)]
    v = [torch.randn(shape, dtype=torch.float16, device="cuda") for _ in range(n_sets)]
    q = torch.randn((n_seqs, n_heads * group, n_queries, d), dtype=torch.float16, device="cuda")
    graphs = {}
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FlashAttention", SDPBackend.FLASH_ATTENTION)):
        def launch(n):
            with sdpa_kernel(backend):
                torch.nn.functional.scaled_dot_product_attention(q, k[n % n_sets], v[n % n_sets], enable_gqa=group > 1)
        try:
            graphs[name] = graph_of(launch, stream)
        except RuntimeError as why:
            print(f"  {name}: {str(why).splitlines()[0]}")
    return graphs, (k, v, q)


def flashinfer_peers(flashinfer, n_seqs, length, n_heads, group, d, stream):
    """Graphs of FlashInfer's decode attention over pages of 16 rows, by name, with the output's loss; its kernels with and without tensor cores."""
    page, n_pages = 16, n_seqs * (length // 16)
    cuda_int = {"dtype": torch.int32, "device": "cuda"}
    first = torch.arange(0, n_pages + 1, length // page, **cuda_int)
    order, last = torch.randperm(n_pages, device="cuda").int(), torch.full((n_seqs,), page, **cuda_int)
    q = torch.randn((n_seqs, n_heads * group, d), dtype=torch.float16, device="cuda")
    graphs, losses, keep = {}, {}, []
    for kind, dtype in (("f16", torch.float16), ("fp8", torch.float8_e4m3fn)):
        rows = torch.randn((n_pages, 2, n_heads, page, d), dtype=torch.float16, device="cuda")
        n_sets = max(2, int(400e6 / (rows.numel() * dtype.itemsize)) + 1)
        sets = [rows.to(dtype) for _ in range(n_sets)]
        for cores in (False, True):
            name = f"FlashInfer {kind}{' mma' if cores else ''}"
            try:
                wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                    torch.empty(256 << 20, dtype=torch.uint8, device="cuda"), "HND", use_cuda_graph=True, use_tensor_cores=cores,
                    paged_kv_indptr_buffer=first.clone(), paged_kv_indices_buffer=order.clone(), paged_kv_last_page_len_buffer=last.clone())
                wrapper.plan(first, order, last, n_heads * group, n_heads, d, page, q_data_type=torch.float16, kv_data_type=dtype)
                out = torch.empty_like(q)
                wrapper.run(q, sets[0], out=out)
                k, v = rows[order[: length // page].long(), :, 0].double().transpose(0, 1).reshape(2, length, d)
                exact = torch.softmax(q[0, :group].double() @ k.T / d**0.5, -1) @ v
                losses[name] = ((out[0, :group].double() - exact).square().mean() / exact.square().mean()).sqrt().item()
                graphs[name] = graph_of(lambda n, w=wrapper, s=sets, o=out: w.run(q, s[n % len(s)], out=o), stream)
                keep.append((wrapper, sets, out))
            except Exception as why:  # whatever it finds missing is named, and the others go on
                print(f"  {name}: {(str(why) or repr(why)).splitlines()[0]}")
        del rows
    return graphs, losses, (keep, q)


SHAPES = [  # name, sequences' lengths, KV heads, query heads of each, query rows
    ("8 x 32K", [32768] * 8, 8, 4, 1),
    ("32 x 8K", [8192] * 32, 8, 4, 1),
    ("1 x 128K", [131072], 8, 4, 1),
    ("1 x 32K", [32768], 8, 4, 1),
    ("8 x 32K, GQA 8", [32768] * 8, 8, 8, 1),
    ("8 x 32K, 4 rows", [32768] * 8, 8, 4, 4),
    ("ragged, 256K in all", [65536, 49152, 40960, 32768, 28672, 24576, 12288, 8192], 8, 4, 1),
]
KV = ["kivi4g32", "kivi4g64", "kivi8g32", "kivi2g32", "affine4g64", "q8_0", "q4_0", "kvarn4", "f16", "kvt4", "kvt3", "kvt2", "fp8e4m3", "mxfp8",
      "nvfp4", "iq4_nl", "turbo4", "f16,kivi4g32"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=os.path.join(HERE, "../../build/cuda/libcuda_bench_attention.so"))
    parser.add_argument("--quick", action="store_true", help="the first shape, without peers")
    parser.add_argument("--kv", action="append")
    parser.add_argument("--blocks", type=int, default=0)
    parser.add_argument("--json")
    args = parser.parse_args()
    lib = library(args.library)
    stream = torch.cuda.Stream()
    try:
        flashinfer = None if args.quick else importlib.import_module("flashinfer")
    except (ImportError, OSError, RuntimeError) as why:
        flashinfer = None
        print(f"FlashInfer (python3 -m pip install flashinfer-python) is left out: {why}")
    copy = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; a copy moves {copy / 1e12:.2f} TB/s, read and written")
    print(f"{'shape':20} {'kv':18} {'MB':>6} {'us':>8} {'spread':>6} {'TB/s':>5} {'of copy':>7} {'x f16 peer':>10} {'loss':>8}  kernel")
    rows = []

    def show(shape, kv, size, time, peer=None, loss=None, kernel=None):
        us, spread = time
        share, ratio = size / us * 1e6 / copy, peer / us if peer else None
        print(f"{shape:20} {kv:18} {size / 1e6:6.0f} {us:8.1f} {100 * spread:5.1f}% {size / us / 1e6:5.2f} {share:7.2f}"
              f" {'' if ratio is None else format(ratio, '.2f'):>10} {'' if loss is None else format(loss, '.2g'):>8}"
              f"  {'' if kernel is None else format(kernel, '.2g')}".rstrip(), flush=True)
        rows.append({"shape": shape, "kv": kv, "us": us, "spread": spread, "bytes": size, "of_copy": share, "vs_peer": ratio, "loss": loss,
                     "kernel": kernel})

    for name, lengths, n_heads, group, n_queries in SHAPES[:1] if args.quick else SHAPES:
        longest, equal = max(lengths), len(set(lengths)) == 1
        graphs, losses, keep = {}, {}, []
        if equal and not args.quick:
            graphs, used = peers(len(lengths), longest, n_heads, group, n_queries, 128, stream)
            keep.append(used)
            if n_queries == 1 and flashinfer:
                more, losses, used = flashinfer_peers(flashinfer, len(lengths), longest, n_heads, group, 128, stream)
                graphs.update(more)
                keep.append(used)
        names = list(graphs)
        best = None
        if names:
            times = dict(zip(names, microseconds([graphs[n] for n in names])))
            best = min((n for n in names if "fp8" not in n), key=lambda n: times[n][0])
            for n in names:
                show(name, n, sum(lengths) * n_heads * 128 * (2 if "fp8" in n else 4), times[n], times[best][0], losses.get(n))
        for kv in args.kv or (KV if name == "8 x 32K" else KV[:4] + ["f16"]):
            for sink, tail in ((128, 128), (0, 0)) if kv == "kivi4g32" else ((0, 0),):
                each = sum(lengths) * n_heads * 128
                n_sets = max(2, int(400e6 / (each * (4 if kv == "f16" else 0.6))) + 1)
                case = lib.bench_create(kv.encode(), 128, n_heads, group, n_queries, len(lengths), (ctypes.c_int * len(lengths))(*lengths), sink, tail,
                                        n_sets, args.blocks)
                if case < 0:
                    continue
                def launch(n):
                    error = lib.bench_launch(case, n, ctypes.c_void_p(stream.cuda_stream))
                    if error:
                        sys.exit(f"launch: CUDA error {error}")
                graph = graph_of(launch, stream)
                ours, *peer = microseconds([graph] + ([graphs[best]] if best else []))
                kernel, codec, output = ctypes.c_double(), ctypes.c_double(), ctypes.c_double()
                lib.bench_error(case, ctypes.byref(kernel), ctypes.byref(codec), ctypes.byref(output))
                over = output if kv == "f16" else codec
                show(name, kv + ("+16" if sink else ""), lib.bench_bytes(case), ours, peer[0][0] if peer else None, codec.value / output.value,
                     kernel.value / over.value if over.value else None)
                del graph
                lib.bench_free(case)
        del graphs, keep
        torch.cuda.empty_cache()
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"device": torch.cuda.get_device_name(), "copy": copy, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
