#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of kvtile's engine beside llama.cpp: the same file, threads and prompt, in turn.

    python3 bench/engine.py MODEL.gguf [--threads N] [--rounds N] [--kv SCHEME]
    python3 bench/engine.py MODEL.gguf --depth 0,1024,3500 [--threads N] [--rounds N] [--kv SCHEME]... [--tokens N]

Without --depth each round runs llama.cpp (through llama-cpp-python, from PyPI) and then kvtile: a prompt of 512 tokens from an empty cache,
then 128 tokens, the likeliest one each time. Neither the loading of the model nor the start of the process is counted; choosing
the token is. The ratio of a round compares two runs that were made one after the other, so a slow phase of the machine hits
both. llama.cpp has a 16-bit cache and rounds activations to 8 bits; kvtile to 16.

With --depth it is decoding alone, with so many tokens in the cache: `kvtile bench model` for kvtile's caches, and for llama.cpp the
types f16, q8_0 and q4_0 for keys and values, with flash attention, which those need. In a round llama.cpp's samples come first, then
kvtile's; a kvtile cache is held against llama.cpp's of the same name, all others against q4_0. kvtile's caches are filled by its own
forward pass. So are llama.cpp's, but by blocks of 512 tokens that do not see each other, moved into one sequence afterwards: its attention over a
long quantized cache takes hours for a whole prompt, and what a step takes does not depend on what the rows hold.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PHASES = ("prefill", "decode")
GOALS = {"prefill": 0.6, "decode": 0.9}


def stop(sentence):
    sys.exit(f"bench/engine.py: {sentence}")


def import_llama():
    try:
        import llama_cpp
        import numpy
    except ImportError as missing:
        stop(f"{missing.name} is missing; in a virtual environment: python3 -m pip install llama-cpp-python numpy\n"
             "(llama-cpp-python is compiled from source there, which needs a C++ compiler and takes a while)")
    return llama_cpp, numpy


class Llama:
    """llama.cpp by its C interface, so that no Python runs between a token's logits and the next decode but the choice."""

    def __init__(self, model, threads, n_tokens):
        self.lib, self.numpy = import_llama()
        quiet = self.lib.llama_log_callback(lambda level, text, data: None)
        self.lib.llama_log_set(quiet, None)
        self.keep = quiet
        self.lib.llama_backend_init()
        self.model = self.lib.llama_model_load_from_file(model.encode(), self.lib.llama_model_default_params())
        if not self.model:
            stop(f"llama.cpp cannot load {model}")
        params = self.lib.llama_context_default_params()
        params.n_ctx = n_tokens
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            stop("llama.cpp cannot make a context")
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        self.n_vocab = self.lib.llama_vocab_n_tokens(self.vocab)

    def tokens(self, text):
        data = text.encode()
        ids = (self.lib.llama_token * (len(data) + 8))()
        n = self.lib.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, False)
        return list(ids[:n])

    def piece(self, token):
        out = (self.lib.ctypes.c_char * 256)()
        n = self.lib.llama_token_to_piece(self.vocab, token, out, len(out), 0, False)
        return out.raw[:max(n, 0)]

    def feed(self, ids):
        array = (self.lib.llama_token * len(ids))(*ids)
        if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(array, len(ids))) != 0:
            stop("llama.cpp failed to decode")
        logits = self.lib.llama_get_logits_ith(self.context, -1)
        return int(self.numpy.ctypeslib.as_array(logits, (self.n_vocab,)).argmax())

    def run(self, ids, n_decode):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        start = time.perf_counter()
        token = self.feed(ids)
        middle = time.perf_counter()
        for _ in range(n_decode - 1):
            token = self.feed([token])
        end = time.perf_counter()
        return {"prefill": len(ids) / (middle - start), "decode": (n_decode - 1) / (end - middle)}


class LlamaDeep:
    """A context whose cache has the given type and is filled block by block."""
    BLOCK = 512

    def __init__(self, llama, kind, threads, n_tokens):
        self.lib, self.vocab = llama.lib, llama.n_vocab
        params = self.lib.llama_context_default_params()
        params.n_ctx = -(-n_tokens // 256) * 256
        params.n_batch = params.n_ubatch = self.BLOCK
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = getattr(self.lib, f"GGML_TYPE_{kind.upper()}")
        params.flash_attn_type = self.lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.kv_unified, params.n_seq_max = True, 2
        self.context = self.lib.llama_init_from_model(llama.model, params)
        if not self.context:
            stop(f"llama.cpp cannot make a context with a {kind} cache")
        self.memory, self.depth = self.lib.llama_get_memory(self.context), 0
        self.batch = self.lib.llama_batch_init(self.BLOCK, 0, 1)

    def feed(self, ids, position, sequence):
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position + i, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, i == len(ids) - 1
        if self.lib.llama_decode(self.context, batch) != 0:
            stop("llama.cpp failed to decode")
        return self.lib.llama_get_logits_ith(self.context, -1)[0]  # which waits for it

    def token(self, i):
        return i * 7919 % self.vocab

    def fill(self, depth):
        while self.depth < depth:
            n = min(self.BLOCK, depth - self.depth)
            self.feed([self.token(self.depth + i) for i in range(n)], self.depth, 1)
            self.lib.llama_memory_seq_cp(self.memory, 1, 0, -1, -1)
            self.lib.llama_memory_seq_rm(self.memory, 1, -1, -1)
            self.depth += n

    def sample(self, n):
        """Tokens per second of n steps from the depth on."""
        start = time.perf_counter()
        for i in range(self.depth, self.depth + n):
            self.feed([self.token(i)], i, 0)
        speed = n / (time.perf_counter() - start)
        self.lib.llama_memory_seq_rm(self.memory, 0, self.depth, -1)
        return speed


def run_kvtile(args, prompt_file, n_prompt):
    command = [args.kvtile, "run", args.model, "-f", prompt_file, "-n", str(args.decode), "--temp", "0",
               "-t", str(args.threads), "-c", str(args.prompt + args.decode + 8), "--kv", args.kv]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        stop(f"'{' '.join(command)}' ended with status {done.returncode}:\n{done.stderr}")
    prompt = re.search(r"^prompt +(\d+) tokens, ([0-9.]+) tokens/s", done.stderr, re.M)
    decode = re.search(r"^generated +(\d+) tokens, ([0-9.]+) tokens/s", done.stderr, re.M)
    if not prompt or not decode:
        stop(f"kvtile's summary has no speeds:\n{done.stderr}")
    if abs(int(prompt[1]) - n_prompt) > 1:
        stop(f"the prompt has {prompt[1]} tokens in kvtile and {n_prompt} in llama.cpp")
    return {"prefill": float(prompt[2]), "decode": float(decode[2])}, int(decode[1])


def cut_text(llama, n_prompt):
    """A text of n_prompt tokens, and its tokens."""
    with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as file:
        text = re.sub(r"\s+", " ", file.read()).strip()
    ids = llama.tokens(text)
    while len(ids) < n_prompt:
        text += " " + text
        ids = llama.tokens(text)
    cut = b"".join(llama.piece(i) for i in ids[:n_prompt]).decode("utf-8", "ignore").lstrip()
    return cut, llama.tokens(cut)


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} .. {max(values):.1f})"


# ---- decoding at a depth -----------------------------------------------------------------------------------------------

THEIRS = ("f16", "q8_0", "q4_0")


class Paced:
    """kvtile bench model --paced: takes a round when told to."""

    def __init__(self, args):
        command = [args.kvtile, "bench", "model", args.model, "--depth", args.depth, "-n", str(args.tokens), "-t",
                   str(args.threads), "--rounds", str(args.rounds), "-b", "1024", "--paced", "--json", "-q"]
        for kv in args.kv:
            command += ["--kv", kv]
        self.command = " ".join(command)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self):
        """Waits until it is ready for a round, or keeps the first line of its result."""
        self.line = self.process.stdout.readline()
        if not self.line:
            stop(f"'{self.command}' ended with status {self.process.wait()}")

    def round(self):
        print(file=self.process.stdin, flush=True)
        self.answer()

    def result(self):
        return json.loads(self.line + self.process.stdout.read())


def counterpart(kv):
    return kv if kv in THEIRS else "q4_0"


def measure_depths(args):
    """kvtile's result, and llama.cpp's samples by depth and type."""
    depths = [int(d) for d in args.depth.split(",")]
    ours = Paced(args)
    llama = Llama(args.model, args.threads, 64)
    deep = {kind: LlamaDeep(llama, kind, args.threads, depths[-1] + args.tokens) for kind in THEIRS}
    theirs = {(depth, kind): [] for depth in depths for kind in THEIRS}
    for depth in depths:
        for context in deep.values():
            context.fill(depth)
            context.sample(args.tokens)  # not counted: it warms up
        for i in range(args.rounds):
            for kind in THEIRS[i % len(THEIRS):] + THEIRS[:i % len(THEIRS)]:
                theirs[depth, kind].append(deep[kind].sample(args.tokens))
            ours.round()
    return ours.result(), theirs, llama.lib.__version__


def compare_depths(args):
    ours, theirs, version = measure_depths(args)
    rows = []
    for row in ours["rows"]:
        other = theirs[row["depth"], counterpart(row["kv"])]
        ratios = [a / b for a, b in zip(row["samples"], other)]
        rows.append({**row, "counterpart": counterpart(row["kv"]), "llama.cpp": other, "ratios": ratios,
                     "ratio": statistics.median(ratios)})
    if args.json:
        print(json.dumps({"model": os.path.basename(args.model), "machine": ours["machine"], "threads": args.threads,
                          "tokens": args.tokens, "llama_cpp_python": version, "load": os.getloadavg()[0], "rows": rows}))
        return
    print(f"{ours['machine']}, level {ours['level']}, load {os.getloadavg()[0]:.1f}\n{os.path.basename(args.model)}, {args.threads} threads, "
          f"{args.tokens} tokens, {args.rounds} rounds, llama-cpp-python {version}")
    for row in rows:
        if row["kv"] == "f16" and row["depth_share"] is not None:
            shallow = statistics.median(theirs[min(depth for depth, _ in theirs), "f16"])
            share = 1 - statistics.median(theirs[row["depth"], "f16"]) / shallow
            print(f"depth {row['depth']}: attention over it is {100 * row['depth_share']:.0f} % of kvtile's f16 step and {100 * share:.0f} % of "
                  f"llama.cpp's: a cache that takes no time makes them {1 / (1 - row['depth_share']):.2f} and {1 / (1 - share):.2f} times faster")
    print(f"{'depth, cache, tokens/s':24} {'kvtile':>26} {'llama.cpp':>32}  ratio (min .. max), ratio of the best samples")
    for row in rows:
        print(f"{row['depth']:8} {row['kv']:15} {spread(row['samples']):>26} {row['counterpart']:>5} {spread(row['llama.cpp']):>26}  "
              f"{row['ratio']:.2f} ({min(row['ratios']):.2f} .. {max(row['ratios']):.2f}), best {max(row['samples']) / max(row['llama.cpp']):.2f}")


# ---- prompt and text ---------------------------------------------------------------------------------------------------

def compare_texts(args):
    llama = Llama(args.model, args.threads, args.prompt + args.decode + 8)
    text, ids = cut_text(llama, args.prompt)
    rounds, n_decoded = [], args.decode
    with tempfile.TemporaryDirectory() as folder:
        prompt_file = os.path.join(folder, "prompt.txt")
        with open(prompt_file, "w", encoding="utf-8") as file:
            file.write(text)
        for i in range(args.rounds + 1):  # the first round warms caches and is not counted
            theirs = llama.run(ids, args.decode)
            ours, n = run_kvtile(args, prompt_file, len(ids))
            n_decoded = min(n_decoded, n)
            if i > 0:
                rounds.append((theirs, ours))
    if n_decoded < args.decode:
        print(f"note: kvtile's text ended after {n_decoded} of {args.decode} tokens", file=sys.stderr)

    figures = {}
    for phase in PHASES:
        ratios = [ours[phase] / theirs[phase] for theirs, ours in rounds]
        figures[phase] = {"llama.cpp": [r[0][phase] for r in rounds], "kvtile": [r[1][phase] for r in rounds],
                          "ratios": ratios, "ratio": statistics.median(ratios), "goal": GOALS[phase]}
    if args.json:
        print(json.dumps({"model": os.path.basename(args.model), "threads": args.threads, "prompt": len(ids),
                          "decode": args.decode, "kv": args.kv, "llama_cpp_python": llama.lib.__version__,
                          "figures": figures}))
        return
    print(f"{os.path.basename(args.model)}, {args.threads} threads, {len(ids)} + {args.decode} tokens, cache {args.kv}, "
          f"{args.rounds} rounds, llama-cpp-python {llama.lib.__version__}")
    print(f"{'tokens/s: median (min .. max)':30} {'llama.cpp':>28} {'kvtile':>28}  ratio")
    for phase, f in figures.items():
        print(f"{phase:30} {spread(f['llama.cpp']):>28} {spread(f['kvtile']):>28}  {f['ratio']:.2f} "
              f"({min(f['ratios']):.2f} .. {max(f['ratios']):.2f}), goal {f['goal']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompt", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--decode", type=int, default=128, metavar="TOKENS")
    parser.add_argument("--kv", action="append", help="kvtile's cache (f16); with --depth again and again (q8_0, kivi4g32, kvarn4 and f16)")
    parser.add_argument("--depth", metavar="N,N...", help="time decoding with so many tokens in the cache, ascending")
    parser.add_argument("--tokens", type=int, default=32, metavar="N", help="tokens of a sample at a depth (32)")
    parser.add_argument("--kvtile", default=os.path.join(ROOT, "build", "release", "kvtile"), help="the program")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    if not os.access(args.kvtile, os.X_OK):
        stop(f"there is no {args.kvtile}; build it with: cmake --preset release && cmake --build build/release")
    if min(args.threads, args.rounds, args.prompt) < 1 or args.decode < 2:
        stop("threads, rounds and prompt are at least 1, decode at least 2")

    if args.depth:
        args.kv = args.kv or ["q8_0", "kivi4g32", "kvarn4"]
        compare_depths(args)
        return
    if args.kv and len(args.kv) > 1:
        stop("--kv is given once, but with --depth")
    args.kv = args.kv[0] if args.kv else "f16"
    compare_texts(args)


if __name__ == "__main__":
    main()
