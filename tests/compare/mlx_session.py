#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prompt caches between kvtile and mlx-lm, on a model that both run: mlx-lm's Llama gets the weights of a GGUF file of ours.

    python3 tests/compare/mlx_session.py [--kvtile build/release/kvtile] [--mlx-lm FOLDER]

kvtile's cache of a text, exported, is the one that mlx-lm computes (up to rounding: kvtile multiplies by quantized weights as they are), and mlx-lm
goes on from it with the same distribution; mlx-lm's cache, imported, comes back bit by bit, and kvtile goes on from it as from its own.
For f16 with mlx-lm's order of keys, and for affine codes with GGUF's (rope_traditional). Needs numpy, gguf and mlx[cpu]; without those, mlx-lm or the
program it is skipped.
"""
import argparse
import os
import subprocess
import sys
import tempfile

from prompt_cache import ROOT, load_mlx_lm, skip

TEXT = "The old house stood at the end of the road, and nobody had lived in it for years. The hound barked at"
CASES = (  # model, cache, GGUF's order of keys, how far rows may be off, divergence after a token more
    ("plain", "f16", False, 0.005, 1e-4), ("plain", "affine4g64", True, 0, 0.1),
    ("biased", "f16", False, 0.005, 1e-4), ("biased", "affine8g64", True, 0, 5e-3),
)


def read_model(path):
    """Numbers of the metadata and dequantized tensors."""
    import gguf
    reader = gguf.GGUFReader(path)
    number = {}
    for name, field in reader.fields.items():
        if len(field.types) == 1 and name.startswith("llama."):
            number[name[6:]] = field.parts[field.data[0]][0].item()
    return number, {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}


def make_mlx(mx, np, llama, number, tensors, traditional):
    """mlx-lm's Llama with these weights; unless traditional, in the order in which models are published."""
    heads, kv_heads, head = number["attention.head_count"], number["attention.head_count_kv"], number["attention.key_length"]

    def ours_to_theirs(w, n):
        if traditional:
            return w
        return w.reshape(n, head // 2, 2, -1).transpose(0, 2, 1, 3).reshape(w.shape)

    args = llama.ModelArgs(
        model_type="llama", hidden_size=number["embedding_length"], num_hidden_layers=number["block_count"],
        intermediate_size=number["feed_forward_length"], num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head,
        rms_norm_eps=number["attention.layer_norm_rms_epsilon"], vocab_size=tensors["token_embd.weight"].shape[0],
        rope_theta=number["rope.freq_base"], rope_traditional=traditional, attention_bias="blk.0.attn_q.bias" in tensors)
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj"}
    weights = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"]}
    for name, tensor in tensors.items():
        if not name.startswith("blk."):
            continue
        _, layer, part, kind = name.split(".")
        n = {"attn_q": heads, "attn_k": kv_heads}.get(part)
        weights[f"model.layers.{layer}.{names[part]}.{kind}"] = ours_to_theirs(tensor, n) if n else tensor
    if args.attention_bias:  # mlx-lm has one for the output too
        for layer in range(args.num_hidden_layers):
            weights.setdefault(f"model.layers.{layer}.self_attn.o_proj.bias", np.zeros(args.hidden_size, np.float32))
    model = llama.Model(args)
    model.load_weights([(k, mx.array(v.astype(np.float32))) for k, v in weights.items()])
    return model


def feed(mx, model, cache, ids):
    """Log-probabilities after the last token."""
    logits = model(mx.array([ids]), cache=cache)[0, -1].astype(mx.float32)
    return logits - mx.logsumexp(logits)


def to_f16(mx, cache):
    for layer in cache:
        layer.keys, layer.values = layer.keys.astype(mx.float16), layer.values.astype(mx.float16)
    return cache


def arrays_of(np, caches, n):
    out = []
    for layer in caches:
        for side in (layer.keys, layer.values):
            out += [np.array(part)[:, :, :n] for part in (side if isinstance(side, (tuple, list)) else (side,))]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtile", default=os.path.join(ROOT, "build", "release", "kvtile"))
    parser.add_argument("--mlx-lm", metavar="FOLDER")
    args = parser.parse_args()
    try:
        import gguf  # noqa: F401
        import mlx.core as mx
        import numpy as np
    except ImportError as missing:
        skip(f"{missing.name} is missing: python3 -m pip install numpy gguf 'mlx[cpu]'")
    if not os.path.exists(args.kvtile):
        skip(f"there is no {args.kvtile}: cmake --preset release && cmake --build build/release")
    cache = load_mlx_lm(args.mlx_lm)
    import mlx_lm.models.llama as llama
    mx.set_default_device(mx.cpu)

    def run(*words):
        done = subprocess.run([args.kvtile, *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"mlx_session.py: kvtile {' '.join(words)}: {done.stderr}")
        return done.stdout

    def layout_of_theirs():
        one = cache.KVCache()
        one.update_and_fetch(mx.zeros((1, 1, 1, 64), mx.float16), mx.zeros((1, 1, 1, 64), mx.float16))
        with tempfile.TemporaryDirectory() as folder:
            cache.save_prompt_cache(os.path.join(folder, "one.safetensors"), [one], {})
            return "old" if "old layout" in run("cache", "show", os.path.join(folder, "one.safetensors")) else "new"

    layout = layout_of_theirs()

    def check(path, kv, traditional, folder):
        """Returns the largest difference of the rows, relative to their largest, and the divergence after a token more."""
        number, tensors = read_model(path)
        model = make_mlx(mx, np, llama, number, tensors, traditional)
        order = ["--gguf-order"] if traditional else []
        ours, out, theirs, back = (os.path.join(folder, name) for name in ("ours.kvt", "ours.safetensors", "theirs.safetensors", "back.kvt"))
        words = ["run", path, "-p", TEXT, "-n", "12", "--temp", "0", "-q", "--kv", kv]
        text = run(*words, "--prompt-cache", ours)
        run("cache", "export", path, ours, out, "--layout", layout, *order)
        loaded, entries = cache.load_prompt_cache(out, return_metadata=True)
        ids = [int(word) for word in entries["tokens"].split()]
        own = cache.make_prompt_cache(model)
        feed(mx, model, own, ids[:-1])
        next_own = feed(mx, model, own, ids[-1:])
        own = to_f16(mx, own)
        if kv != "f16":
            bits, group = int(kv[6]), int(kv[8:])
            own = [layer.to_quantized(group_size=group, bits=bits) for layer in own]
        # What kvtile computed.
        off = 0.0
        for a, b in zip(arrays_of(np, loaded, len(ids)), arrays_of(np, own, len(ids))):
            assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape)
            if a.dtype == np.float16 and kv == "f16":
                a, b = a.astype(np.float32), b.astype(np.float32)
                off = max(off, float(np.abs(a - b).max() / np.abs(b).max()))
        after = [feed(mx, model, c, [int(mx.argmax(next_own))]) for c in (loaded, own)]
        kl = float((mx.exp(after[1]) * (after[1] - after[0])).sum())
        for layer in own:  # as it was
            layer.trim(1)
        # What mlx-lm computed, there and back.
        cache.save_prompt_cache(theirs, own, {"model": "ours"})
        tokens = os.path.join(folder, "ids")
        with open(tokens, "w") as file:
            file.write("\n".join(map(str, ids)))
        run("cache", "import", path, theirs, back, "--ids", tokens, *order)
        run("cache", "export", path, back, out, "--layout", layout, *order)
        for a, b in zip(arrays_of(np, cache.load_prompt_cache(out), len(ids)), arrays_of(np, own, len(ids))):
            assert a.dtype == b.dtype and (a == b).all(), "an array changed on its way through kvtile"
        from_theirs = run(*words, "--prompt-cache", back, "--prompt-cache-ro")
        n = len(os.path.commonprefix([text, from_theirs]))
        return off, kl, n / len(text)

    for name, kv, traditional, off_max, kl_max in CASES:
        with tempfile.TemporaryDirectory() as folder:
            off, kl, same = check(os.path.join(ROOT, "models", f"{name}.gguf"), kv, traditional, folder)
        print(f"{name} {kv}{' in GGUF order' if traditional else ''}: rows within {off:.4f}, KL {kl:.2g}, same text {same:.2f}")
        assert off <= off_max and kl <= kl_max and same == 1
    print(f"{len(CASES)} caches agree both ways, layout {layout}")


if __name__ == "__main__":
    main()
