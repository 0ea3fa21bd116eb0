#!/usr/bin/env python3
"""A load test of kvtile serve: many clients that ask, read slowly, or go away in the middle, for minutes; every answer is checked.

    python3 bench/serve_load.py [--minutes M] [--clients N] [--model FILE] [--kv K] [-- SERVER-OPTION...]

Each client asks one of a few questions again and again, whole or streamed, and holds the answer against the one that the server gave when it
was idle: a lost, mixed or changed answer is an error. A tenth of the clients go away after a few bytes, a tenth read slowly, and all
begin with whatever prefixes are kept (--exact-prefixes, so that answers are comparable to the byte). Memory is looked at
throughout. Ends with status 1 where an answer was wrong, the server failed, or memory grew.
"""
import argparse
import collections
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORDS = ("the old house stood at the end of a long lane and nobody had lived there since the winter when the river rose and took the "
         "bridge with two carts and a grey horse which was the finest in the county").split()


def questions(n, rng):
    """Texts of mixed lengths, half of which begin alike; what is asked of each."""
    shared = " ".join(rng.choice(WORDS) for _ in range(450))
    out = []
    for i in range(n):
        own = " ".join(rng.choice(WORDS) for _ in range(rng.choice([3, 20, 90, 300])))
        out.append({"prompt": shared + " " + own if i % 2 else own, "max_tokens": rng.choice([2, 16, 48, 120]), "ignore_eos": True,
                    "temperature": rng.choice([0, 0.8]), "seed": i})
    return out


class Gone(Exception):
    pass


def ask(address, body, stream, pace=0.0, leave_after=None):
    """The answer's text. A client of its own, since it reads as slowly and leaves as early as it likes."""
    data = json.dumps({**body, "stream": stream}).encode()
    with socket.create_connection(address, timeout=120) as s:
        if pace:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        got = b""
        while True:
            piece = s.recv(512 if pace else 65536)
            if not piece:
                break
            got += piece
            if leave_after is not None and len(got) > leave_after:
                raise Gone
            if pace:
                time.sleep(pace)
    head, _, rest = got.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if b"chunked" in head.lower():
        whole = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            whole, rest = whole + rest[:n], rest[n + 2:]
        rest = whole
    if status != 200:
        return status, json.loads(rest)["error"]["message"]
    if not stream:
        return status, json.loads(rest)["choices"][0]["text"]
    events = [e[6:] for e in rest.decode().split("\n\n") if e.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return 0, "the stream has no end"
    return status, "".join(json.loads(e)["choices"][0]["text"] for e in events[:-1])


def metrics_of(url):
    with urllib.request.urlopen(url + "/metrics", timeout=60) as response:
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in response.read().decode().splitlines() if line[0] != "#")}


def anonymous(pid):
    """MiB of a process that are not pages of files."""
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:")) / 1024


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Load:
    def __init__(self, address, cases, until):
        self.address, self.cases, self.until = address, cases, until
        self.lock, self.counts, self.wrong = threading.Lock(), collections.Counter(), []

    def count(self, what, wrong=None):
        with self.lock:
            self.counts[what] += 1
            if wrong:
                self.wrong.append(wrong)

    def client(self, number):
        rng = random.Random(number)
        kind = {0: "leaves", 1: "slow"}.get(number % 10, "plain")
        while time.monotonic() < self.until:
            body, text = rng.choice(self.cases)
            stream = kind != "plain" or rng.random() < 0.5
            try:
                status, answer = ask(self.address, body, stream, 0.02 if kind == "slow" else 0,
                                     rng.choice([0, 300, 3000]) if kind == "leaves" else None)
            except Gone:
                self.count("left")
                continue
            except (OSError, ValueError) as error:
                self.count("lost", f"{type(error).__name__}: {error}")
                continue
            if status == 503:
                self.count("refused")
                time.sleep(rng.random())
            elif status != 200:
                self.count("failed", f"{status}: {answer}")
            elif answer != text:
                self.count("changed", f"{body['prompt'][:40]!r}: {answer[:60]!r}, not {text[:60]!r}")
            else:
                self.count("right")


def main():
    parser = argparse.ArgumentParser(description="a load test of kvtile serve")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--questions", type=int, default=24)
    parser.add_argument("--kvtile", default=os.path.join(ROOT, "build/release/kvtile"))
    parser.add_argument("--model", default=os.path.join(ROOT, "models/plain.gguf"))
    parser.add_argument("--kv", default="kivi4g32")
    parser.add_argument("server", nargs="*", help="more options of the server")
    args = parser.parse_args()
    server = subprocess.Popen([args.kvtile, "serve", args.model, "--port", "0", "--kv", args.kv, "--exact-prefixes", "-q", *args.server],
                              stdout=subprocess.PIPE, text=True)
    url = server.stdout.readline().strip()
    address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
    cases = []
    for body in questions(args.questions, random.Random(7)):
        status, text = ask(address, {**body, "cache_prompt": False}, False)
        assert status == 200, text
        cases.append((body, text))
    load = Load(address, cases, time.monotonic() + 60 * args.minutes)
    threads = [threading.Thread(target=load.client, args=(i,), daemon=True) for i in range(args.clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    memory, beside = [], []  # all of it; what is neither weights nor pages of the cache
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(10, max(1, 3 * args.minutes)))
        memory.append(resident(server.pid))
        pages = metrics_of(url)["kvtile_cache_pool_bytes"] / 2**20
        beside.append(anonymous(server.pid) - pages)
        done = dict(load.counts)
        print(f"{time.monotonic() - began:6.0f} s  {memory[-1]:7.1f} MiB, pages {pages:6.1f}, beside {beside[-1]:6.1f}  {done}", flush=True)
        if server.poll() is not None or time.monotonic() > load.until + 180:
            break
    alive = sum(thread.is_alive() for thread in threads)
    metrics = metrics_of(url)
    server.terminate()
    code = server.wait(60)
    seconds = time.monotonic() - began
    cancelled = metrics['kvtile_requests_total{status="cancelled"}']
    def halves(samples):
        return max(samples[len(samples) // 4:len(samples) // 2] or samples), max(samples[len(samples) // 2:])
    early, late = halves(memory)
    for what in load.wrong[:10]:
        print("wrong:", what)
    print(f"{args.clients} clients, {seconds:.0f} s: {dict(load.counts)}; {metrics['kvtile_generated_tokens_total'] / seconds:.0f} tokens/s; "
          f"{metrics['kvtile_cached_tokens_total']:.0f} of {metrics['kvtile_cached_tokens_total'] + metrics['kvtile_prompt_tokens_total']:.0f} "
          f"prompt tokens were kept; cancelled {cancelled:.0f}")
    print(f"memory: {early:.1f} MiB in the second quarter, {late:.1f} in the second half, of which beside weights and pages {halves(beside)[0]:.1f} and "
          f"{halves(beside)[1]:.1f}; load {os.getloadavg()[0]:.1f}")
    ok = not load.wrong and alive == 0 and code == 0 and load.counts["right"] > 0 and late <= early * 1.05 + 8
    print("ok" if ok else f"NOT ok: {len(load.wrong)} wrong, {alive} clients without an end, status {code}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
