#!/usr/bin/env python3
"""Runs a mixed load through a whole daemon, with Python's standard library only: for a machine with a
GPU and little else.

  load.py BINARY MODEL [--backend NAME] [--requests N] [--clients N] [--seconds N] [-- FLAGS OF THE SERVER]

Starts the server on a free port of 127.0.0.1. Requests of all kinds run at once: streamed or not, chats
and completions, short and long prompts, with and without common prefixes, greedy and sampled, several
choices, log-probabilities, schemas, stop strings; some clients disconnect in the middle. Each answer is
checked. Some requests are first run alone: under load they must get the same text. At the end nothing
runs, no block of the KV cache is missing, the pool's own check finds no error, the device holds as much
memory as before, and the server exits when asked. Prints "N passed, N failed, 0 skipped".
"""
import argparse
import http.client
import json
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

WORDS = ("the a fox king river house of and in with old small tree ran saw said to it was day night moon "
         "sun red blue green over under never always why because story garden little wind fire snow").split()

failures, passed = [], 0
lock = threading.Lock()


def check(ok, text):
    global passed
    with lock:
        if ok:
            passed += 1
        elif len(failures) < 40:
            failures.append(text)
            print("FAIL", text, flush=True)
        else:
            failures.append("")
    return ok


class Server:
    def __init__(self, args):
        self.folder = tempfile.TemporaryDirectory(prefix="inferd-load-")
        self.log = open(self.folder.name + "/log", "w+")
        command = [args.binary, "serve", "--model", args.model, "--backend", args.backend, "--host",
                   "127.0.0.1", "--port", "0", "--registry", self.folder.name + "/registry.db", *args.flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        # One that hangs must not outlive the test.
        self.limit = threading.Timer(args.seconds, self.process.kill)
        self.limit.daemon = True
        self.limit.start()
        line = self.process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        if not found:
            self.process.wait()
            sys.exit(f"the server did not start:\n{self.text()}\n0 passed, 1 failed, 0 skipped")
        self.port = int(found.group(1))
        self.model = self.get("/v1/models")["data"][0]["id"]

    def text(self):
        self.log.flush()
        with open(self.log.name) as f:
            return f.read()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def get(self, path, as_json=True):
        c = self.connect()
        c.request("GET", path)
        r = c.getresponse()
        body = r.read()
        c.close()
        return json.loads(body) if as_json else (r.status, body.decode())

    def metrics(self):
        found = {}
        for line in self.get("/metrics", False)[1].splitlines():
            if line and line[0] != "#":
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            rc = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            rc = None
        self.limit.cancel()
        return rc


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def make_request(rng, i, beginning):
    """One of all kinds: (path, body, after how many chunks the client goes away or None)."""
    n = rng.choice((1, 3, 8, 20, 60, 200, 400))
    text = (beginning + " " if rng.random() < 0.3 else "") + words(rng, n)
    body = {"max_tokens": rng.choice((1, 2, 5, 16, 32, 64, 96)), "seed": i}
    kind = rng.random()
    body["temperature"] = 0 if kind < 0.3 else rng.choice((0.7, 1.0, 1.3))
    if rng.random() < 0.3:
        body["top_p"] = rng.choice((0.5, 0.9, 0.95))
    if rng.random() < 0.2:
        body["top_k"] = rng.choice((1, 5, 40))
    if rng.random() < 0.15:
        body["frequency_penalty"] = 0.5
    if rng.random() < 0.15:
        body["stop"] = [rng.choice(WORDS) + " "]
    if rng.random() < 0.1:
        body["n"] = rng.choice((2, 3))
    chat = rng.random() < 0.5
    if chat:
        body["messages"] = [{"role": "user", "content": text}]
        if rng.random() < 0.1:
            body["logprobs"], body["top_logprobs"] = True, rng.choice((0, 3))
        if rng.random() < 0.08:
            body.pop("stop", None)
            body["max_tokens"] = 96
            schema = {"type": "object", "properties": {"a": {"type": "boolean"}, "n": {"enum": [1, 2, 3]}},
                      "required": ["a", "n"], "additionalProperties": False}
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}}
    else:
        body["prompt"] = text
        if rng.random() < 0.3:
            body["ignore_eos"] = True
        if rng.random() < 0.1:
            body["logprobs"] = rng.choice((1, 4))
    leaves = None
    if rng.random() < 0.5:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        if rng.random() < 0.2:
            leaves = rng.choice((0, 1, 2, 5, 10))
    return "/v1/chat/completions" if chat else "/v1/completions", body, leaves


def piece(choice):
    return (choice.get("delta") or {}).get("content") or choice.get("text") or ""


def read_stream(response, leaves):
    """(texts by choice, finishes by choice, usage, done), or None: the client went away."""
    texts, finishes, usage, done, chunks = {}, {}, None, False, 0
    if leaves == 0:
        return None
    for line in response:
        line = line.decode()
        if not line.startswith("data: "):
            continue
        if line.strip() == "data: [DONE]":
            done = True
            break
        event = json.loads(line[6:])
        if "error" in event:
            raise ValueError(f"an error in the stream: {event['error']}")
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            at = choice["index"]
            texts[at] = texts.get(at, "") + piece(choice)
            if choice.get("finish_reason"):
                finishes[at] = choice["finish_reason"]
        chunks += 1
        if chunks == leaves:
            return None
    return texts, finishes, usage, done


def ask(server, path, body, leaves=None):
    """The texts of the answer's choices, or None: the client went away."""
    c = server.connect()
    try:
        c.request("POST", path, json.dumps({"model": server.model, **body}), {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            raise ValueError(f"status {r.status}: {r.read()[:300]}")
        n = body.get("n", 1)
        if body.get("stream"):
            got = read_stream(r, leaves)
            if got is None:
                return None
            texts, finishes, usage, done = got
            if not done:
                raise ValueError("no [DONE]")
        else:
            answer = json.loads(r.read())
            usage = answer["usage"]
            texts = {x["index"]: (x["message"]["content"] or "") if "message" in x else x["text"] for x in answer["choices"]}
            finishes = {x["index"]: x["finish_reason"] for x in answer["choices"]}
            for x in answer["choices"]:
                if body.get("logprobs") and not x.get("logprobs"):
                    raise ValueError("no logprobs")
        if sorted(texts) != list(range(n)) and sorted(finishes) != list(range(n)):
            raise ValueError(f"choices {sorted(texts)} of {n}")
        for i in range(n):
            if finishes.get(i) not in ("stop", "length"):
                raise ValueError(f"finish {finishes.get(i)}")
            for stop in body.get("stop", ()):
                if stop in texts.get(i, ""):
                    raise ValueError("a stop string in the text")
            if "response_format" in body and finishes[i] == "stop":
                value = json.loads(texts[i])
                if not isinstance(value["a"], bool) or value["n"] not in (1, 2, 3) or len(value) != 2:
                    raise ValueError(f"not of the schema: {texts[i]}")
        if not 0 <= usage["completion_tokens"] <= n * body["max_tokens"]:
            raise ValueError(f"{usage} of {body['max_tokens']}")
        if n == 1 and finishes[0] == "length" and usage["completion_tokens"] != body["max_tokens"]:
            raise ValueError(f"{usage}: not {body['max_tokens']}")
        return [texts.get(i, "") for i in range(n)]
    finally:
        c.close()


def worker(server, jobs, counts, alone):
    while True:
        try:
            i, (path, body, leaves), again = jobs.get_nowait()
        except queue.Empty:
            return
        try:
            texts = ask(server, path, body, leaves)
            with lock:
                counts["streamed" if body.get("stream") else "whole"] += 1
                counts["left"] += texts is None
            if again is None:
                check(True, "")
            else:
                check(texts == alone[again], f"request {i}: {texts} under load, {alone[again]} alone: {body}")
                counts["again"] += 1
        except Exception as e:  # a finding, whatever it is
            check(False, f"request {i}: {type(e).__name__}: {e}")


def wait_quiet(server, seconds=60):
    end = time.monotonic() + seconds
    while True:
        m = server.metrics()
        quiet = m["inferd_sequences_running"] + m["inferd_sequences_waiting"] == 0
        if (quiet and m["inferd_pool_checks_total"] > 0) or time.monotonic() > end:
            return m
        time.sleep(0.1)


def arguments():
    own, flags = sys.argv[1:], []
    if "--" in own:
        flags = own[own.index("--") + 1:]
        own = own[:own.index("--")]
    p = argparse.ArgumentParser()
    p.add_argument("binary")
    p.add_argument("model")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--requests", type=int, default=1000)
    p.add_argument("--clients", type=int, default=96)
    p.add_argument("--alone", type=int, default=24)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--seconds", type=int, default=540, help="then the server is killed")
    args = p.parse_args(own)
    args.flags = flags or ["--max-sequences", "64", "--max-queue", "512", "--kv-cache-tokens", "8192",
                           "--context-length", "1024"]
    return args


def main():
    args = arguments()
    rng = random.Random(args.seed)
    server = Server(args)
    beginning = words(rng, 120)
    singles = []
    while len(singles) < args.alone:
        path, body, leaves = make_request(rng, 10000 + len(singles), beginning)
        if leaves is None:
            singles.append((path, body, None))
    alone = [ask(server, *single) for single in singles]
    before = wait_quiet(server)
    jobs = queue.Queue()
    for i in range(args.requests):
        if i % 8 == 7:
            again = rng.randrange(len(singles))
            jobs.put((i, singles[again], again))
        else:
            jobs.put((i, make_request(rng, i, beginning), None))
    counts = {"streamed": 0, "whole": 0, "left": 0, "again": 0}
    start = time.monotonic()
    threads = [threading.Thread(target=worker, args=(server, jobs, counts, alone)) for _ in range(args.clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seconds = time.monotonic() - start
    m = wait_quiet(server)
    error = m.get('inferd_sequences_finished_total{reason="error"}')
    check(m["inferd_sequences_running"] + m["inferd_sequences_waiting"] == 0, "sequences are still there")
    check(m["inferd_kv_blocks_free"] == m["inferd_kv_blocks"], f"{m['inferd_kv_blocks_free']} of {m['inferd_kv_blocks']} blocks are free")
    check(m["inferd_pool_checks_total"] > 0 and m["inferd_pool_check_failures_total"] == 0, "the pool's check")
    check(error == 0, f"{error} sequences ended in an error")
    check(m["inferd_device_allocated_bytes"] == before["inferd_device_allocated_bytes"],
          f"the device held {before['inferd_device_allocated_bytes']} bytes, holds {m['inferd_device_allocated_bytes']}")
    check(server.get("/readyz", False)[0] == 200, "/readyz is not green")
    check(sum(counts[k] for k in ("streamed", "whole")) == args.requests, f"{counts}")
    rc = server.stop()
    check(rc == 0, f"the server ended with {rc}:\n{server.text()[-2000:]}")
    generated = m["inferd_generated_tokens_total"] - before["inferd_generated_tokens_total"]
    print(f"load: {args.requests} requests of {args.clients} clients in {seconds:.1f} s: {counts['streamed']} streamed, "
          f"{counts['left']} left, {counts['again']} asked again; {generated:.0f} tokens, {generated / seconds:.0f} a second; "
          f"{m['inferd_steps_total']:.0f} steps, {m['inferd_steps_ahead_total']:.0f} of them recorded before; "
          f"{m['inferd_preemptions_total']:.0f} preemptions, {m['inferd_prefix_cache_hit_tokens_total']:.0f} tokens from the prefix cache")
    print(f"{passed} passed, {len(failures)} failed, 0 skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
