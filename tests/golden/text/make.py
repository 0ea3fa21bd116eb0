#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files beside it, for tests/unit/test_text_*.c, with other people's tokenizers and Jinja2:

    python3 -m venv V && V/bin/pip install tokenizers==0.23.1 sentencepiece gguf jinja2 && V/bin/python make.py

split.json   words that each pre-tokenizer cuts our texts into, by Hugging Face's tokenizers and the published expressions
bpe.json     a small byte-level vocabulary and the ids of our texts with each pre-tokenizer, by the same
plain.json   ids of our texts with the vocabulary of models/plain.gguf, by the same
spm.json     a small SentencePiece vocabulary and the ids of our texts, by sentencepiece
chat.json    conversations written by the templates in chat/, by Jinja2
"""
import json
import os
import tempfile

import gguf
import sentencepiece
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Split

from texts import PRACTICE, SAMPLES

HERE = os.path.dirname(os.path.abspath(__file__))

# The expressions as the models' own tokenizer.json have them.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}@| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+@"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*@"
         r"|#| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
         "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
         "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
         "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
         "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
         "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
         "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
         "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
         "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
         "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
EAST = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PASSES = {
    "gpt-2": [GPT2],
    "llama-bpe": [CL100K.replace("@", "{1,3}")],
    "dbrx": [CL100K.replace("@", "{1,3}")],
    "qwen2": [CL100K.replace("@", "")],
    "qwen35": [CL100K.replace("@", "").replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}")],
    "smollm": [r"\p{N}", GPT2],
    "starcoder": [r"\p{N}", GPT2],
    "deepseek-llm": ["[\r\n]", rf"\s?[{CASED}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", EAST, r"\p{N}+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "tekken": [O200K.replace("@", "").replace("#", r"\p{N}")],
    "gpt-4o": [O200K.replace("@", ENDINGS).replace("#", r"\p{N}{1,3}")],
}
WHOLE_WORDS = {"llama-bpe", "tekken"}


def splits(name):
    return [Split(Regex(e), behavior="isolated") for e in PASSES[name]]


def write(name, data):
    with open(os.path.join(HERE, name), "w", encoding="ascii") as f:
        f.write("{\n")
        f.write(",\n".join(f"{json.dumps(k)}: " + (json.dumps(v) if not isinstance(v, list) else
                                                   "[\n" + ",\n".join(json.dumps(x, separators=(",", ":")) for x in v) + "\n]")
                           for k, v in data.items()))
        f.write("\n}\n")


def make_split():
    cases = []
    for name in PASSES:
        pre = pre_tokenizers.Sequence(splits(name))
        lens = [[len(w.encode()) for w, _ in pre.pre_tokenize_str(t)] for t in SAMPLES]
        cases.append({"pre": name, "words": lens})
    write("split.json", {"texts": SAMPLES, "cases": cases})


def byte_level(vocab, merges, name):
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=name in WHOLE_WORDS))
    t.pre_tokenizer = pre_tokenizers.Sequence(splits(name) + [ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t


def make_bpe():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(splits("gpt-4o") + [ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=sorted(ByteLevel.alphabet()), show_progress=False)
    t.train_from_iterator([PRACTICE], trainer)
    made = json.loads(t.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in made["merges"]]
    # Two words that no merge makes: whole words of the vocabulary where that counts.
    vocab = dict(made["vocab"])
    for word in ["\u0120notebook", "12"]:
        vocab.setdefault(word, len(vocab))
    pairs = [tuple(m.split(" ")) for m in merges]
    cases = [{"pre": n, "ids": [byte_level(vocab, pairs, n).encode(s).ids for s in SAMPLES + [PRACTICE]]} for n in PASSES]
    write("bpe.json", {"tokens": sorted(vocab, key=vocab.get), "merges": merges, "texts": SAMPLES + [PRACTICE], "cases": cases})


def make_plain():
    reader = gguf.GGUFReader(os.path.join(HERE, "../../../models/plain.gguf"))
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    t = byte_level({w: i for i, w in enumerate(tokens)}, merges, "gpt-2")
    write("plain.json", {"texts": SAMPLES, "ids": [t.encode(s).ids for s in SAMPLES]})


def make_spm():
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/practice.txt", "w", encoding="utf-8") as f:
            f.write(PRACTICE)
        sentencepiece.SentencePieceTrainer.train(
            input=f"{d}/practice.txt", model_prefix=f"{d}/m", vocab_size=800, model_type="bpe", byte_fallback=True,
            character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True, split_digits=True, minloglevel=2)
        sp = sentencepiece.SentencePieceProcessor(model_file=f"{d}/m.model")
    n = sp.get_piece_size()
    kind = lambda i: 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1
    texts = [t for t in SAMPLES + [PRACTICE] if "\u2581" not in t]
    write("spm.json", {"tokens": [sp.id_to_piece(i) for i in range(n)], "scores": [sp.get_score(i) for i in range(n)],
                       "types": [kind(i) for i in range(n)], "texts": texts, "ids": [sp.encode(t) for t in texts]})


CHATS = [
    ([("user", "Hello")], True),
    ([("user", "  Hello \n")], False),
    ([("user", "")], True),
    ([("system", "Be brief."), ("user", "Hello")], True),
    ([("system", " \nBe brief.\n "), ("user", " Hello\u3000")], True),
    ([("system", ""), ("user", "Hello")], True),
    ([("user", "One"), ("assistant", "Two"), ("user", "Three")], True),
    ([("system", "S"), ("user", "One\ntwo"), ("assistant", "  three\n"), ("user", "four \u00e9 \u65e5\u672c")], True),
    ([("system", "S"), ("user", "One"), ("assistant", "two"), ("user", "three"), ("assistant", "four")], False),
    ([("system", "S"), ("user", "One"), ("assistant", "two")], False),
    ([("user", "One"), ("assistant", "<think>\nhm\n</think>\n\ntwo"), ("user", "three")], True),
    ([("user", "One"), ("assistant", "<think>\nhm\n</think>\n\ntwo")], False),
    ([("user", "One"), ("user", "two")], True),
    ([("user", "One"), ("system", "S"), ("user", "two")], True),
    ([("assistant", "One"), ("user", "two")], True),
    ([("user", "One"), ("assistant", "<think>a<think>\nb\n</think>c</think>\ntwo"), ("assistant", "\nthree")], False),
    ([("user", "One"), ("assistant", "two"), ("assistant", "three")], True),
]
# File, the name it is known by, its BOS and EOS.
TEMPLATES = [
    ("chatml.jinja", "chatml", "", "<|im_end|>"),
    ("chatml_default.jinja", "chatml", "", "<|im_end|>"),
    ("chatml_bos.jinja", "chatml", "<|startoftext|>", "<|im_end|>"),
    ("qwen3.jinja", "qwen3", "", "<|im_end|>"),
    ("qwen3_thinks.jinja", "qwen3", "", "<|im_end|>"),
    ("llama2.jinja", "llama2", "<s>", "</s>"),
    ("llama3.jinja", "llama3", "<|begin_of_text|>", "<|eot_id|>"),
    ("llama3_always.jinja", "llama3", "<|begin_of_text|>", "<|eot_id|>"),
    ("llama31.jinja", "llama3.1", "<|begin_of_text|>", "<|eot_id|>"),
    ("mistral.jinja", "mistral", "<s>", "</s>"),
    ("mistral_v01.jinja", "mistral-v0.1", "<s>", "</s>"),
    ("mistral_v1.jinja", "mistral-v1", "<s>", "</s>"),
    ("mistral_v3.jinja", "mistral-v3", "<s>", "</s>"),
    ("mistral_v3_first.jinja", "mistral-v3", "<s>", "</s>"),
    ("mistral_tekken.jinja", "mistral-tekken", "<s>", "</s>"),
    ("mistral_v7.jinja", "mistral-v7", "<s>", "</s>"),
    ("gemma.jinja", "gemma", "<bos>", "<eos>"),
    ("gemma2.jinja", "gemma2", "<bos>", "<eos>"),
    ("phi3.jinja", "phi3", "<s>", "<|endoftext|>"),
    ("phi3_small.jinja", "phi3-small", "<s>", "<|endoftext|>"),
    ("phi3_first.jinja", "phi3-first", "<s>", "<|endoftext|>"),
    ("deepseek.jinja", "deepseek", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    ("deepseek_coder.jinja", "deepseek-coder", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<|EOT|>"),
    ("deepseek_r1.jinja", "deepseek-r1", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    ("deepseek_v3.jinja", "deepseek-v3", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    ("zephyr.jinja", "zephyr", "<s>", "</s>"),
]


def refuse(message):
    raise ValueError(message)


def make_chat():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)  # as transformers renders
    out = []
    for file, family, bos, eos in TEMPLATES:
        with open(os.path.join(HERE, "chat", file), encoding="utf-8") as f:
            template = env.from_string(f.read())
        texts = []
        for messages, reply in CHATS:
            try:
                text = template.render(messages=[{"role": r, "content": c} for r, c in messages], bos_token=bos, eos_token=eos,
                                       add_generation_prompt=reply, raise_exception=refuse)
            except ValueError:
                texts.append(None)  # the template refuses
                continue
            begins = bool(bos) and text.startswith(bos)
            texts.append(text[len(bos):] if begins else text)
        out.append({"file": file, "family": family, "bos": bool(bos) and begins, "texts": texts})
    write("chat.json", {"chats": [{"messages": m, "reply": r} for m, r in CHATS], "templates": out})


if __name__ == "__main__":
    make_split()
    make_bpe()
    make_plain()
    make_spm()
    make_chat()
