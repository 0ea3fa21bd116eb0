#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mlx-quant-fidelity's own paired scoring beside `kvtile fidelity`: the same model file, the same ids.

    tests/compare/mlx_fidelity.py [--chunks N] [--packages FOLDER] [--kvtile build/release/kvtile] [--shared ../shared] [plain] [biased]

Each model is dequantized to 32 bits into mlx-lm's llama, with the file's order of channels, and given with chunks of 512 ids of
shared/text/hound.ids to the tool's score_kv_config, as it is. Its methods are `stock` (mlx-lm's QuantizedKVCache, held against kvtile's
KL) and `affine:K:V`. Of stock it also gives a control lane, dequantized rows in plain attention, which is what kvtile's
`--numerics` calls the quantizer. A row agrees where kvtile's mean KL is within 7.5 % of the tool's and its flips within 1.5 points, on
fewer than 4 chunks the more the fewer (15 % and 3 points on one). What is expected to differ: a model in 32 bits makes mlx keep
rows, scales and biases in 32 bits, where kvtile, like mlx-lm with a model in 16, rounds them to 16; and a rounding in the
last place flips codes, which moves means by some percent (table D of shared/reference/golden.md).

Ends with status 1 if a row does not agree. Needs numpy, gguf and mlx[cpu], and in FOLDER or installed mlx-quant-fidelity (made with 0.10.0)
and mlx-lm 0.31.3, the version that it works with:

    pip install --no-deps --target FOLDER mlx-quant-fidelity==0.10.0 mlx-lm==0.31.3

Without one of them, or without shared or kvtile, it is skipped.
"""
import argparse
import ctypes
import ctypes.util
import importlib.metadata
import importlib.util
import json
import pathlib
import subprocess
import sys
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHUNK = 512
KL_TOLERANCE, FLIP_TOLERANCE, TOLERANCE_CHUNKS = 0.075, 0.015, 4

# kvtile's name of a cache, and the tool's.
METHODS = {
    "affine8g64": "stock:8:64",
    "affine4g64": "stock:4:64",
    "affine8g64,affine4g64": "affine:8:4:64",
}

# mlx-lm's names of the parts of a GGUF model.
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def skip(why):
    print(f"mlx_fidelity.py: skipped: {why}")
    sys.exit(0)


def import_packages(folder):
    """mlx, gguf, mlx-lm's llama and the tool. mlx_lm's own __init__ wants transformers, which nothing here does: it is left out.
    mlx's matrix products go to OpenBLAS where there is one: those that its wheel for Linux brings take 60 times as long."""
    sys.path.insert(0, str(folder))
    blas = ctypes.util.find_library("openblas")
    if blas:
        ctypes.CDLL(blas, ctypes.RTLD_GLOBAL)
    try:
        import gguf
        import mlx.core as mx
        root = importlib.util.find_spec("mlx_lm")
        if not root:
            raise ModuleNotFoundError(name="mlx_lm")
        sys.modules["mlx_lm"] = types.ModuleType("mlx_lm")
        sys.modules["mlx_lm"].__path__ = list(root.submodule_search_locations)
        from mlx_lm.models import llama
        from mlx_quant_fidelity.corpora import provenance
        from mlx_quant_fidelity.probes import kv, kv_methods
    except ImportError as missing:
        skip(f"{missing.name} is missing: pip install numpy gguf 'mlx[cpu]'; "
             f"pip install --no-deps --target {folder} mlx-quant-fidelity==0.10.0 mlx-lm==0.31.3")
    mx.set_default_device(mx.cpu)
    return mx, gguf, llama, types.SimpleNamespace(
        score=kv.score_kv_config, parse=kv_methods.parse_method_spec, stock=kv_methods.StockKVMethod, Corpus=provenance.Corpus,
        Provenance=provenance.CorpusProvenance)


def load_model(mx, gguf, llama, path):
    """A GGUF file of architecture llama in 32 bits. The file has the channels in interleaved order, which is RoPE's "traditional"."""
    reader = gguf.GGUFReader(path)

    def field(name):
        return reader.get_field(f"llama.{name}").contents()

    tensors = {t.name: mx.array(gguf.quants.dequantize(t.data, t.tensor_type).astype("float32")) for t in reader.tensors}
    biased = "blk.0.attn_q.bias" in tensors
    model = llama.Model(llama.ModelArgs(
        model_type="llama", hidden_size=field("embedding_length"), num_hidden_layers=field("block_count"),
        intermediate_size=field("feed_forward_length"), num_attention_heads=field("attention.head_count"),
        num_key_value_heads=field("attention.head_count_kv"), head_dim=field("attention.key_length"),
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"), vocab_size=field("vocab_size"), rope_theta=field("rope.freq_base"),
        rope_traditional=True, attention_bias=biased, tie_word_embeddings=True))
    weights = {}
    for name, value in tensors.items():
        part, kind = name.rsplit(".", 1)
        if part.startswith("blk."):
            _, layer, part = part.split(".")
            weights[f"model.layers.{layer}.{LAYER[part]}.{kind}"] = value
        else:
            weights[f"{NAMES[part]}.{kind}"] = value
    if biased:  # mlx-lm's has one on the output as well
        for layer in range(field("block_count")):
            weights[f"model.layers.{layer}.self_attn.o_proj.bias"] = mx.zeros(field("embedding_length"))
    model.load_weights(list(weights.items()), strict=True)
    model.eval()
    return model


def make_corpus(mx, tool, path, n):
    ids = [int(line) for line in path.read_text().splitlines()[:n * CHUNK]]
    chunks = tuple(mx.array(ids[i:i + CHUNK]) for i in range(0, len(ids) - CHUNK + 1, CHUNK))
    return tool.Corpus(chunks=chunks, provenance=tool.Provenance(
        name=path.name, split="", tokenizer_id="", chunk_length=CHUNK, stride=CHUNK, bos_policy="first-chunk",
        final_chunk_policy="drop", normalization="none", n_tokens=len(chunks) * CHUNK))


def make_method(tool, spec):
    if not spec.startswith("stock:"):
        return tool.parse(spec)
    bits, group = spec.split(":")[1:]
    return tool.stock(bits=int(bits), group_size=int(group))


def kvtile_schemes(args, model):
    command = [args.kvtile, "fidelity", str(model), "--ids", str(args.shared / "text" / "hound.ids"), "--chunk", str(CHUNK),
               "--chunks", str(args.chunks), "--numerics", "--json", "--quiet"]
    for cache in METHODS:
        command += ["--kv", cache]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {scheme["kv"]: scheme for scheme in report["schemes"]}


def compare(model, cache, ours, theirs):
    wider = max(1, TOLERANCE_CHUNKS / theirs.n_chunks) ** 0.5
    kl_off, flips_off = ours["kl"]["mean"] / theirs.kl.mean - 1, ours["flips"] - theirs.flip_rate
    agrees = abs(kl_off) <= KL_TOLERANCE * wider and abs(flips_off) <= FLIP_TOLERANCE * wider
    control = f"{theirs.control_kl.mean:>10.4g}" if theirs.control_kl else f"{'':>10}"
    print(f"{model:<8}{cache:<22}{theirs.kl.mean:>10.4g}{ours['kl']['mean']:>10.4g}{100 * kl_off:>+7.1f}%{control}"
          f"{ours['quantizer']:>10.4g}{100 * theirs.flip_rate:>8.2f}{100 * ours['flips']:>8.2f}{100 * flips_off:>+7.2f}"
          f"{theirs.perplexity_quant:>10.4f}{ours['ppl']:>10.4f}{'' if agrees else '  differs'}", flush=True)
    return not agrees


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["plain", "biased"])
    parser.add_argument("--chunks", type=int, default=1, metavar="N", help="chunks of 512 ids (default 1; hound.ids has 40)")
    parser.add_argument("--packages", type=pathlib.Path, default=ROOT / "build" / "mlx-fidelity", metavar="FOLDER")
    parser.add_argument("--kvtile", default=str(ROOT / "build" / "release" / "kvtile"))
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    args = parser.parse_args()
    text = args.shared / "text" / "hound.ids"
    for needed in (text, pathlib.Path(args.kvtile)):
        if not needed.exists():
            skip(f"there is no {needed}")
    mx, gguf, llama, tool = import_packages(args.packages)
    corpus = make_corpus(mx, tool, text, args.chunks)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("mlx-quant-fidelity", "mlx-lm", "mlx"))
    print(f"{len(corpus.chunks)} chunks of {CHUNK}, {versions}; the tool's figures, kvtile's")
    print(f"{'model':<8}{'cache':<22}{'KL':>10}{'kvtile':>10}{'off':>8}{'control':>10}{'kvtile':>10}{'flips %':>8}{'kvtile':>8}"
          f"{'off':>7}{'ppl':>10}{'kvtile':>10}")
    failures, start = 0, time.monotonic()
    for name in args.models:
        path = ROOT / "models" / f"{name}.gguf"
        ours, model = kvtile_schemes(args, path), load_model(mx, gguf, llama, path)
        for cache, spec in METHODS.items():
            theirs = tool.score(model, corpus, model_id=name, method=make_method(tool, spec), control=spec.startswith("stock"))
            failures += compare(name, cache, ours[cache], theirs)
    print(f"{failures} rows differ" if failures else f"all rows agree ({time.monotonic() - start:.0f} s)")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
