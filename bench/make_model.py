#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a model of random weights in the shape of Llama 3 8B, cut to a few layers, to measure speed with: a GGUF file.

    python3 bench/make_model.py OUT.gguf [--layers N] [--type q4_0|q8_0] [--context N]

32 query heads, 8 KV heads of 128, width 4096, 14336 in the feed-forward part. The vocabulary is that of models/plain.gguf, so that the
output matrix is a small part, as it is of a whole model. The text it writes is noise. Needs numpy and gguf, from PyPI.
"""
import argparse
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, FFN, HEADS, KV_HEADS, SIZE = 4096, 14336, 32, 8, 128


def random_blocks(np, rng, kind, n_out, n_in, spread):
    """Rows of random blocks of 32: a 16-bit scale, then codes, such that weights have the standard deviation `spread`."""
    n = n_out * n_in // 32
    if kind == "q4_0":  # codes 1 to 15, of which 8 is 0
        low, high = (rng.integers(1, 16, (n, 16), dtype=np.uint8) for _ in range(2))
        codes, rms = low | high << 4, np.sqrt((15**2 - 1) / 12)
    else:
        codes, rms = rng.integers(-127, 128, (n, 32), dtype=np.int8).view(np.uint8), np.sqrt((255**2 - 1) / 12)
    scale = np.full((n, 1), spread / rms, np.float16).view(np.uint8)
    return np.concatenate([scale, codes], axis=1).reshape(n_out, -1)


def copy_tokenizer(gguf, writer, path):
    reader = gguf.GGUFReader(path)
    for key, field in reader.fields.items():
        if not key.startswith("tokenizer."):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=sub)
    return len(reader.fields["tokenizer.ggml.tokens"].data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT.gguf")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--type", choices=("q4_0", "q8_0"), default="q4_0", help="of all matrices (q4_0)")
    parser.add_argument("--context", type=int, default=40960)
    args = parser.parse_args()
    try:
        import gguf
        import numpy as np
    except ImportError as missing:
        sys.exit(f"bench/make_model.py: {missing.name} is missing; in a virtual environment: python3 -m pip install numpy gguf")

    rng = np.random.default_rng(20261130)
    writer = gguf.GGUFWriter(args.out, "llama")
    writer.add_name(f"random 8B, {args.layers} layers")
    writer.add_block_count(args.layers)
    writer.add_context_length(args.context)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(SIZE)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    n_vocab = copy_tokenizer(gguf, writer, os.path.join(ROOT, "models", "plain.gguf"))
    writer.add_vocab_size(n_vocab)

    def matrix(name, n_out, n_in, gain=1.0):
        kind = gguf.GGMLQuantizationType[args.type.upper()]
        writer.add_tensor(name, random_blocks(np, rng, args.type, n_out, n_in, gain / n_in**0.5), raw_dtype=kind)

    def ones(name):
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    matrix("token_embd.weight", n_vocab, WIDTH, WIDTH**0.5)
    ones("output_norm.weight")
    matrix("output.weight", n_vocab, WIDTH)
    for layer in range(args.layers):
        name = f"blk.{layer}."
        ones(name + "attn_norm.weight")
        ones(name + "ffn_norm.weight")
        for part, n_out in (("q", HEADS * SIZE), ("k", KV_HEADS * SIZE), ("v", KV_HEADS * SIZE)):
            matrix(f"{name}attn_{part}.weight", n_out, WIDTH)
        matrix(name + "attn_output.weight", WIDTH, HEADS * SIZE)
        matrix(name + "ffn_gate.weight", FFN, WIDTH)
        matrix(name + "ffn_up.weight", FFN, WIDTH)
        matrix(name + "ffn_down.weight", WIDTH, FFN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
