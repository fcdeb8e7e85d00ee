#!/usr/bin/env python3
"""Measures the KV store of a daemon on a GPU, with Python's standard library only.

  kv.py BINARY MODEL [--backend NAME] [--tokens N] [--folder FOLDER]

MODEL is a GGUF file, of scripts/random-model for example; FOLDER is where kv-dir is written. Prints
- the gaps between tokens of 8 streams, alone and while a prompt of 800 tokens each half second evicts
  older ones, without a KV store and with one (kv-keep = all), in turns;
- the time to the first token of the next turn of a chat of N tokens (8000) after other chats took its
  place in the KV cache, restored and computed, alone and while 8 streams decode;
- what nvidia-smi says of the GPU's memory beside what the daemon says, with no model, one and two.
"""
import argparse
import http.client
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

GREEDY = {"temperature": 0, "ignore_eos": True}


def tokens(seed, n):
    rng = random.Random(seed)
    return [rng.randrange(300, 31000) for _ in range(n)]


def record_gaps(port, model, n, out):
    """Runs n streams until SIGTERM, in a process of its own, then writes [time, gap] of each piece."""
    selector, last, gaps, stop = selectors.DefaultSelector(), {}, [], []
    for i in range(n):
        body = json.dumps({"model": model, "prompt": tokens(10 + i, 20), "max_tokens": 4000, "stream": True, **GREEDY})
        s = socket.create_connection(("127.0.0.1", port))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        s.sendall(f"{head}\r\n\r\n{body}".encode())
        selector.register(s, selectors.EVENT_READ, i)
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    while not stop and selector.get_map():
        for key, _ in selector.select(0.2):
            data, now = key.fileobj.recv(1 << 16), time.monotonic()
            if not data:
                selector.unregister(key.fileobj)
            if b'"text"' not in data:
                continue
            if key.data in last:
                gaps.append((now, now - last[key.data]))
            last[key.data] = now
    with open(out, "w") as f:
        json.dump(gaps, f)


class Crowd:
    def __init__(self, server):
        self.out = os.path.join(server.folder, "gaps.json")
        command = [sys.executable, __file__, "--record", str(server.port), "a", "8", self.out]
        self.process = subprocess.Popen(command)
        time.sleep(1)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        with open(self.out) as f:
            self.gaps = json.load(f)

    def show(self, what, begin, end):
        g = sorted(gap * 1e3 for at, gap in self.gaps if begin <= at < end)
        at = lambda part: g[min(len(g) - 1, int(part * len(g)))] if g else float("nan")
        print(f"{what}: n {len(g)}, p50 {at(.5):.2f}, p90 {at(.9):.2f}, p99 {at(.99):.2f}, most {at(1):.2f} ms", flush=True)


class Server:
    def __init__(self, args, folder, flags):
        self.folder = folder
        self.log = open(os.path.join(folder, "log"), "w")
        command = [args.binary, "serve", "--registry", folder + "/registry.db", "--backend", args.backend, "--host",
                   "127.0.0.1", "--port", "0", "--max-sequences", "12", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        found = re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        if not found:
            sys.exit(f"the server did not start: see {self.log.name}")
        self.port = int(found.group(1))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def metrics(self):
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics").read().decode()
        return {k: float(v) for k, v in (l.rsplit(" ", 1) for l in text.splitlines() if l and l[0] != "#")}

    def ask(self, prompt, model="a", n=16, **more):
        """Milliseconds to the first token, and the text."""
        connection, start = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600), time.monotonic()
        body = {"model": model, "prompt": prompt, "max_tokens": n, "stream": True, **GREEDY, **more}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response, first, text = connection.getresponse(), None, ""
        if response.status != 200:
            sys.exit(f"{response.status} {response.read().decode()}")
        for line in response:
            piece = json.loads(line[6:])["choices"] if line.startswith(b"data: {") else []
            if piece and piece[0]["text"]:
                first = first or (time.monotonic() - start) * 1e3
                text += piece[0]["text"]
        connection.close()
        return first, text

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def measure_gaps(server, args, what):
    for i in range(5):  # fills the KV cache
        server.ask(tokens(1000 + i, args.tokens), n=1)
    crowd = Crowd(server)
    begin = time.monotonic()
    time.sleep(2)
    before, evicting = server.metrics(), time.monotonic()
    for i in range(14):
        start = time.monotonic()
        server.ask(tokens(2000 + i, 800), n=1)
        time.sleep(max(0, 0.5 - (time.monotonic() - start)))
    after, end = server.metrics(), time.monotonic()
    crowd.stop()
    name = "inferd_kv_store_written_bytes_total"
    rate = (after.get(name, 0) - before.get(name, 0)) / 1e6 / (end - evicting)
    crowd.show(f"8 streams, {what}", begin, evicting)
    crowd.show(f"8 streams while prompts are evicted, {what}, {rate:.0f} MB/s written", evicting, end)


def measure_restore(server, args):
    chat, turn, name = tokens(1, args.tokens), tokens(4, 64), "inferd_kv_restored_tokens_total"
    server.ask(chat)
    time.sleep(3)  # kv-idle-s
    for loaded in (False, True):
        for i in range(5):
            server.ask(tokens(500 + 10 * loaded + i, args.tokens), n=1)
        time.sleep(3)
        crowd = Crowd(server) if loaded else None
        start, before = time.monotonic(), server.metrics()[name]
        restored, text = server.ask(chat + turn)
        middle, n = time.monotonic(), server.metrics()[name] - before
        computed, other = server.ask(chat + turn, cache_salt=f"computed {loaded}")
        end = time.monotonic()
        print(f"next turn of {args.tokens} tokens{' while 8 streams decode' if loaded else ''}: {restored:.0f} ms, "
              f"{n:.0f} tokens restored; computed {computed:.0f} ms; {'same' if text == other else 'ANOTHER'} text", flush=True)
        if loaded:
            crowd.stop()
            crowd.show("8 streams while it is restored", start, middle)
            crowd.show("8 streams while it is computed", middle, end)


def measure_memory(args, folder):
    def used():
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
        try:
            return float(subprocess.run(command, capture_output=True, text=True).stdout)
        except (OSError, ValueError):
            return float("nan")
    before = used()
    flags = ["--load-on-demand", "on", "--context-length", "4096", "--kv-cache-tokens", "4096"]
    server = Server(args, folder, flags)
    for model in (None, "a", "b"):
        if model:
            server.ask(tokens(1, 100), model=model)
        m = server.metrics()
        models = sum(v for k, v in m.items() if k.startswith("inferd_model_bytes"))
        print(f"memory in MiB with {model or 'no model'}: nvidia-smi {used() - before:.0f} more than before, daemon "
              f"{m['inferd_device_allocated_bytes'] / 2**20:.0f}, of models {models / 2**20:.0f}", flush=True)
    server.stop()


def main():
    if sys.argv[1:2] == ["--record"]:
        return record_gaps(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="inferd-kv-", dir=args.folder) as folder:
        for name in ("a", "b"):
            file = f"{folder}/{name}.gguf"
            os.symlink(os.path.abspath(args.model), file)
            command = [args.binary, "models", "add", file, "--name", name, "--registry", folder + "/registry.db"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        flags = ["--model", "a", "--context-length", str(args.tokens + 448), "--kv-cache-tokens", str(5 * args.tokens + 1024)]
        store = ["--kv-dir", folder + "/kv", "--kv-memory-bytes", "12G", "--kv-keep", "all", "--kv-idle-s", "1"]
        for turn in range(4):
            server = Server(args, folder, flags + store * (turn % 2))
            server.ask(tokens(99, 32))
            measure_gaps(server, args, "with a store" if turn % 2 else "without a store")
            if turn == 1:
                measure_restore(server, args)
            server.process.kill()  # nothing is stored at the end
            server.process.wait()
            subprocess.run(["rm", "-rf", folder + "/kv"], check=True)
        measure_memory(args, folder)


main()
