#!/usr/bin/env python3
"""kvtile serve with OpenAI's own client: what the client reads, it must find. Needs the openai package; ends "ok: ..." or with what is wrong."""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KVTILE = os.path.join(ROOT, "build/release/kvtile")
MODEL = os.path.join(ROOT, "models/plain.gguf")

try:
    import openai
except ImportError:
    print("openai_client: skipped: the openai package is not there")
    sys.exit(0)


def start(*more):
    server = subprocess.Popen([KVTILE, "serve", MODEL, "--port", "0", "-q", "--template", "chatml", "--api-key", "secret", *more],
                              stdout=subprocess.PIPE, text=True)
    return server, server.stdout.readline().strip()


def check(client):
    model = client.models.list().data[0]
    assert model.id == client.models.retrieve(model.id).id and model.kv_quant["verdict"] == "full", model

    ask = dict(model=model.id, prompt="The old house", max_tokens=24, temperature=0)
    whole = client.completions.create(**ask, logprobs=3)
    text, probs = whole.choices[0].text, whole.choices[0].logprobs
    assert "".join(probs.tokens) == text and len(probs.tokens) == 24 == whole.usage.completion_tokens
    assert all(len(top) == 3 and max(top.values()) == p for top, p in zip(probs.top_logprobs, probs.token_logprobs))
    assert [text[a:].startswith(t) for a, t in zip(probs.text_offset, probs.tokens)] == [True] * 24
    events = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(e.choices[0].text for e in events if e.choices) == text
    assert events[-1].usage.prompt_tokens_details.cached_tokens > 0 and events[-2].choices[0].finish_reason == "length"
    stopped = client.completions.create(**ask, stop=[text[10:14]])
    assert stopped.choices[0].text == text[:text.index(text[10:14])] and stopped.choices[0].finish_reason == "stop"

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me of the house."}]
    chat = client.chat.completions.create(model=model.id, messages=messages, max_tokens=16, temperature=0, logprobs=True, top_logprobs=2)
    content = chat.choices[0].logprobs.content
    assert "".join(c.token for c in content) == chat.choices[0].message.content and chat.choices[0].message.role == "assistant"
    assert all(bytes(c.bytes).decode() == c.token and c.top_logprobs[0].logprob >= c.top_logprobs[1].logprob for c in content)
    pieces = [e.choices[0].delta for e in client.chat.completions.create(model=model.id, messages=messages, max_tokens=16,
                                                                        temperature=0, stream=True)]
    assert pieces[0].role == "assistant" and "".join(p.content or "" for p in pieces) == chat.choices[0].message.content

    with ThreadPoolExecutor(8) as pool:  # more than there are places
        drawn = dict(model=model.id, prompt="It was", max_tokens=12)
        texts = list(pool.map(lambda seed: client.completions.create(**drawn, seed=seed).choices[0].text, [5, 6] * 8))
    assert len(set(texts)) == 2 and len(set(texts[::2])) == 1, texts

    for kind, body in [(openai.BadRequestError, dict(prompt="x", n=2)), (openai.BadRequestError, dict(prompt="x", max_tokens=5000)),
                       (openai.BadRequestError, dict(prompt="x", temperature=-1))]:
        try:
            client.completions.create(model=model.id, **body)
            raise AssertionError(body)
        except kind as error:
            assert error.body["type"] == "invalid_request_error" and error.body["message"], error.body
    try:
        openai.OpenAI(base_url=client.base_url, api_key="wrong").models.list()
        raise AssertionError("any key will do")
    except openai.AuthenticationError:
        pass
    try:
        client.models.retrieve("other")
        raise AssertionError("any name will do")
    except openai.NotFoundError:
        pass


server, url = start("--kv", "kivi4g32")
try:
    check(openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0, timeout=60))
finally:
    server.terminate()
assert server.wait(30) == 0
print("ok: models, completions and chat, whole and streamed, log probabilities, stop, seeds, 8 clients, errors, a key")
