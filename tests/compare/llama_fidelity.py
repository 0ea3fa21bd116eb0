#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's cache types scored by llama.cpp itself, beside `kvtile fidelity`: the same model file, the same ids.

    tests/compare/llama_fidelity.py [--chunks N] [--kvtile build/release/kvtile] [--shared ../shared] [plain] [biased]

Each chunk of 512 ids of shared/text/hound.ids is fed to llama.cpp in one batch of 511, to a context with an f16 cache and to one with
the cache under test, and the logits of all positions are held against each other as docs/fidelity.md defines it. That is done

  with the weights in 32 bits (the file's own, dequantized into a temporary file), where only the cache is rounded. A row agrees where
  kvtile's mean KL is within 7.5 % of llama.cpp's and its flips within 1.5 points, on fewer than 4 chunks the more the fewer (15 % and
  3 points on one). Where keys have 8 bits kvtile's may be 25 % lower still: llama.cpp rounds the query to 8 bits as well, which costs
  a quarter of what those keys do (q8_0,f16; f16,q8_0 has nothing of it);
  with the file as it is, where llama.cpp rounds activations to 8 bits. These rows are shown and not judged.

"floor" is the KL of two f16 caches in llama.cpp that differ in the order of sums alone: nothing below it can be measured there.
`-rot` are rows rotated as llama.cpp does by default, the others with LLAMA_ATTN_ROT_DISABLE=1. Ends with status 1 if a row does not agree.
Needs numpy, gguf and llama-cpp-python (made with 0.3.36); without one, or without shared or kvtile, it is skipped.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHUNK = 512
KL_TOLERANCE, FLIP_TOLERANCE, TOLERANCE_CHUNKS = 0.075, 0.015, 4
QUERY_ROUNDING = 0.25
CACHES = ("q8_0", "q8_0,f16", "f16,q8_0", "q8_0-rot", "q4_0", "q4_0-rot")
DEFAULTS = ("q8_0-rot", "q4_0-rot")

Score = collections.namedtuple("Score", "kl flips ppl")


def skip(why):
    print(f"llama_fidelity.py: skipped: {why}")
    sys.exit(0)


def import_packages():
    try:
        import gguf
        import llama_cpp
        import numpy
    except ImportError as missing:
        skip(f"{missing.name} is missing: python3 -m pip install numpy gguf llama-cpp-python "
             "(the last is compiled from source, which takes a C++ compiler and minutes)")
    return gguf, llama_cpp, numpy


def write_f32(gguf, source, path):
    """The same model with every tensor in 32 bits."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, field.types[1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Model:
    """A file loaded into llama.cpp through its C interface."""

    def __init__(self, lib, numpy, path, threads):
        self.lib, self.numpy, self.threads = lib, numpy, threads
        self.model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama_fidelity.py: llama.cpp cannot load {path}")
        self.n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))

    def context(self, cache, flash=True):
        lib, params = self.lib, self.lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = CHUNK
        params.n_threads = params.n_threads_batch = self.threads
        k, v = (cache.removesuffix("-rot").upper().split(",") * 2)[:2]
        params.type_k, params.type_v = getattr(lib, f"GGML_TYPE_{k}"), getattr(lib, f"GGML_TYPE_{v}")
        params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        os.environ["LLAMA_ATTN_ROT_DISABLE"] = "0" if cache.endswith("-rot") else "1"  # read when the context is made
        context = lib.llama_init_from_model(self.model, params)
        if not context:
            sys.exit(f"llama_fidelity.py: llama.cpp cannot make a context with a {cache} cache")
        return context

    def log_probabilities(self, context, ids):
        """Of each position of ids but the last, in double, [position][vocabulary]."""
        lib, np, n = self.lib, self.numpy, len(ids) - 1
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        batch = lib.llama_batch_init(n, 0, 1)
        batch.n_tokens = n
        for i in range(n):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = ids[i], i, 1, 0, 1
        if lib.llama_decode(context, batch) != 0:
            sys.exit("llama_fidelity.py: llama.cpp failed to decode")
        logits = np.ctypeslib.as_array(lib.llama_get_logits(context), (n, self.n_vocab)).astype(np.float64)
        lib.llama_batch_free(batch)
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def score(self, chunks, caches):
        """The score of each cache against f16, and of f16 without flash attention as "floor"."""
        np, lib = self.numpy, self.lib
        reference = self.context("f16")
        tests = {name: self.context(name) for name in caches} | {"floor": self.context("f16", flash=False)}
        sums = {name: np.zeros(3) for name in tests}
        for ids in chunks:
            p = self.log_probabilities(reference, ids)
            weight, best = np.exp(p), p.argmax(axis=1)
            for name, context in tests.items():
                q = self.log_probabilities(context, ids)
                sums[name] += ((weight * (p - q)).sum(), (q.argmax(axis=1) != best).sum(),
                               -q[np.arange(len(ids) - 1), ids[1:]].sum())
        for context in (reference, *tests.values()):
            lib.llama_free(context)
        n = len(chunks) * (CHUNK - 1)
        return {name: Score(s[0] / n, s[1] / n, float(np.exp(s[2] / n))) for name, s in sums.items()}


def kvtile_scores(args, model):
    command = [args.kvtile, "fidelity", str(model), "--ids", str(args.shared / "text" / "hound.ids"), "--chunk", str(CHUNK),
               "--chunks", str(args.chunks), "--json", "--quiet"]
    for cache in CACHES:
        command += ["--kv", cache]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {s["kv"]: Score(s["kl"]["mean"], s["flips"], s["ppl"]) for s in report["schemes"]}


def show(title, n_chunks, theirs, ours, judged):
    failures, wider = 0, max(1, TOLERANCE_CHUNKS / n_chunks) ** 0.5
    for cache, score in theirs.items():
        mine = ours.get(cache)
        line = f"{title:<16}{cache:<11}{score.kl:>11.4g}"
        if not mine:
            print(f"{line}{'':>19}{100 * score.flips:>8.2f}{'':>16}{score.ppl:>10.4f}")
            continue
        kl_off, flips_off = mine.kl / score.kl - 1, mine.flips - score.flips
        below = KL_TOLERANCE * wider + QUERY_ROUNDING * cache.startswith("q8_0")
        agrees = -below <= kl_off <= KL_TOLERANCE * wider and abs(flips_off) <= FLIP_TOLERANCE * wider
        failures += judged and not agrees
        verdict = "" if not judged else "  agrees" if agrees else "  differs"
        print(f"{line}{mine.kl:>11.4g}{100 * kl_off:>+7.1f}%{100 * score.flips:>8.2f}{100 * mine.flips:>8.2f}"
              f"{100 * flips_off:>+8.2f}{score.ppl:>10.4f}{mine.ppl:>10.4f}{verdict}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["plain", "biased"])
    parser.add_argument("--chunks", type=int, default=1, metavar="N", help="chunks of 512 ids (default 1; hound.ids has 40)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, metavar="N", help="of llama.cpp")
    parser.add_argument("--kvtile", default=str(ROOT / "build" / "release" / "kvtile"))
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    args = parser.parse_args()
    text = args.shared / "text" / "hound.ids"
    for needed in (text, pathlib.Path(args.kvtile)):
        if not needed.exists():
            skip(f"there is no {needed}")
    gguf, lib, numpy = import_packages()
    ids = [int(line) for line in text.read_text().splitlines()[:args.chunks * CHUNK]]
    chunks = [numpy.array(ids[i:i + CHUNK]) for i in range(0, len(ids) - CHUNK + 1, CHUNK)]
    quiet = lib.llama_log_callback(lambda level, message, data: None)
    lib.llama_log_set(quiet, None)
    lib.llama_backend_init()
    failures = 0
    print(f"{len(chunks)} chunks of {CHUNK}, llama-cpp-python {lib.__version__}; KL mean, flips in %, perplexity: llama.cpp's, kvtile's")
    print(f"{'model, weights':<16}{'cache':<11}{'KL':>11}{'kvtile':>11}{'off':>8}{'flips':>8}{'kvtile':>8}{'off':>8}"
          f"{'ppl':>10}{'kvtile':>10}")
    for name in args.models:
        path = ROOT / "models" / f"{name}.gguf"
        ours = kvtile_scores(args, path)
        with tempfile.TemporaryDirectory() as folder:
            wide = pathlib.Path(folder) / f"{name}-f32.gguf"
            write_f32(gguf, path, wide)
            theirs = Model(lib, numpy, wide, args.threads).score(chunks, CACHES)
        failures += show(f"{name}, 32 bits", len(chunks), theirs, ours, True)
        theirs = Model(lib, numpy, path, args.threads).score(chunks, DEFAULTS)
        show(f"{name}, file's", len(chunks), theirs, ours, False)
    print(f"{failures} rows differ" if failures else "all rows agree")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
