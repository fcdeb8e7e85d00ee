// Attacks on keys, logs, names and files.
import { chmodSync, closeSync, openSync, statSync, truncateSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { sleep } from "../../tests/http/server.mjs";
import { ask } from "./wire.mjs";

const normal = { headers: { Authorization: "Bearer sk-normal" } };
const cached = (r) => JSON.parse(r.text).usage?.prompt_tokens_details?.cached_tokens ?? 0;

const story = (c) => ({ model: c.model, prompt: "Once upon a time", max_tokens: 20, temperature: 0 });
const textOf = (answer) => JSON.parse(answer).choices[0].text;

// Is a request answered, and if not, does /readyz report it?
async function served(c, what) {
  const r = await ask(c.url, "/v1/completions", {
    body: { model: c.model, prompt: "Once upon", max_tokens: 8 },
    limitMs: 30_000,
  });
  const ready = await ask(c.url, "/readyz", { limitMs: 10_000 });
  c.note(`${what}: ${r.status || r.error}, /readyz ${ready.status || ready.error}`);
  if (r.status !== 200 && ready.status === 200) c.problem(`${what}: ${r.status || r.error} while /readyz is 200`);
}

export const trust = [
  {
    name: "prompt-guess",
    short: true,
    brief: true,
    keys: true,
    about: "another key's prompt, guessed by cached_tokens",
    async run(c) {
      const secret = Array.from({ length: 200 }, (_, i) => 300 + ((i * 7919) % 3000));
      const prompt = [...secret, 301];
      const first = await c.complete({ prompt, max_tokens: 1 }, normal),
        again = await c.complete({ prompt, max_tokens: 1 }, normal);
      if (cached(again) === 0) c.problem("one key's own prefix is not shared: the attack shows nothing");
      const guess = await c.complete({ prompt: [...secret, 302], max_tokens: 1 });
      for (const r of [first, again, guess]) c.answered(r, "completion");
      if (cached(guess) > 0) c.problem(`another key's prompt: cached_tokens is ${cached(guess)}`);
    },
  },
  {
    name: "response-eviction",
    short: true,
    brief: true,
    keys: true,
    flags: ["--responses-max-bytes", "65536"],
    about: "one key's responses push out another's",
    async run(c) {
      const mine = await c.ask(
        "/v1/responses",
        { model: c.model, input: "remember this", max_output_tokens: 4 },
        normal,
      );
      c.answered(mine, "/v1/responses");
      const { id } = JSON.parse(mine.text);
      for (let i = 0; i < 24; i++)
        c.answered(
          await c.ask("/v1/responses", {
            model: c.model,
            input: `${i}${" the cat sat".repeat(150)}`,
            max_output_tokens: 1,
          }),
          "/v1/responses",
        );
      const stolen = await c.ask(`/v1/responses/${id}`, undefined);
      if (stolen.status !== 404) c.problem(`another key's response: ${stolen.status}`);
      const kept = await c.ask(`/v1/responses/${id}`, undefined, normal);
      if (kept.status !== 200)
        c.problem(`a kept response of the normal key: ${kept.status} after another key stored 24`);
    },
  },
  {
    name: "priority",
    short: true,
    keys: true,
    flags: ["--max-sequences", "8"],
    about: "32 long requests of the highest priority",
    async run(c) {
      await c.crowd(32, async (i) =>
        c.answered(
          await c.complete(
            { prompt: `${i}`, priority: 1000, max_tokens: 500, ignore_eos: true },
            { limitMs: c.seconds * 1000 },
          ),
          "completion",
        ),
      );
    },
  },
  {
    name: "wrong-keys",
    brief: true,
    keys: true,
    about: "keys that are wrong, long, doubled",
    async run(c) {
      const keys = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        `Bearer ${"x".repeat(30_000)}`,
        "Basic c2s6",
        "Bearer sk-normal sk-normal",
        "Bearer sk-norma",
        "bearer  sk-hostile\t",
        "Bearer sk-normal\u00ff",
      ];
      for (const Authorization of keys) {
        const r = await c.ask("/v1/models", undefined, { headers: { Authorization } });
        if (![400, 401, 431].includes(r.status) && !/^bearer +sk-hostile\s*$/.test(Authorization))
          c.problem(`${JSON.stringify(Authorization.slice(0, 30))}: ${r.status || r.error}`);
      }
      for (let i = 0; i < 3000; i++)
        c.refused(
          await c.ask("/v1/models", undefined, { headers: { "x-api-key": `sk-${i}` } }),
          "a guessed key",
          401,
          429,
        );
    },
  },
  {
    name: "rebinding",
    short: true,
    brief: true,
    about: "another site's name as Host, without an Origin",
    async run(c) {
      for (const Host of [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "[::1].evil.example",
        "evil.example#127.0.0.1",
      ])
        for (const path of ["/v1/models", "/metrics", "/"])
          c.refused(await c.ask(path, undefined, { headers: { Host } }), `Host ${Host} at ${path}`, 400, 403, 421);
      for (const Host of ["localhost", "127.0.0.1:1", "[::1]", "LOCALHOST:80"]) {
        const r = await c.ask("/v1/models", undefined, { headers: { Host } });
        if (r.status !== 200) c.problem(`Host ${Host}: ${r.status}`);
      }
    },
  },
  {
    name: "log-forging",
    short: true,
    brief: true,
    about: "paths, ids and names that look like fields or lines of the log",
    async run(c) {
      const forged = "2026-01-01T00:00:00Z info forged";
      const targets = [
        `/a%20200%201.0%20ms%20req_forged%20prompt_tokens=1`,
        `/a%0a${encodeURIComponent(forged)}`,
        "/a%0d%0aforged",
        "/a%1b[31mforged",
        "/a%c2%85forged",
        "/a%ff%80forged",
        "/a\xfforged",
        "/%00forged",
        "/a%7fforged",
        `/a%e2%80%a8forged`,
        `/"forged" x=y`.replaceAll(" ", "%20"),
      ];
      for (const target of targets)
        await c.sockets.exchange(
          `GET ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-request-id: a b=c\r\nConnection: close\r\n\r\n`,
          2000,
        );
      await c.sockets.exchange(`FORGED=1 /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n`, 2000);
      await c.ask("/v1/completions", { model: `x\n${forged}`, prompt: "x" });
      await sleep(200);
    },
    after(c) {
      for (const line of c.server.stderr.split("\n")) {
        if (/^\S*forged|^2026-01-01/.test(line))
          c.problem(`a line of the client's: ${JSON.stringify(line.slice(0, 80))}`);
        // eslint-disable-next-line no-control-regex
        else if (/[\x00-\x08\x0b-\x1f\x7f-\uffff]/.test(line))
          c.problem(`control or 8-bit bytes: ${JSON.stringify(line.slice(0, 80))}`);
        else if (/ \/a 200 /.test(line)) c.problem(`a forged field: ${JSON.stringify(line.slice(0, 80))}`);
      }
    },
  },
  {
    name: "metrics-page",
    short: true,
    brief: true,
    about: "/metrics after every route and method: no sample twice",
    async run(c) {
      for (const path of [
        "/v1/responses/resp_x",
        "/v1/responses/resp_x/input_items",
        "/v1/responses/resp_x/cancel",
        "/v1/models",
        "/tokenize",
        "/v1/tokenize",
        "/nothing",
        "/api/tags",
        "/livez",
      ])
        for (const method of ["GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS"])
          await c.ask(path, method === "POST" ? {} : undefined, { method });
      const { text } = await c.ask("/metrics", undefined),
        seen = new Set();
      for (const line of text.split("\n")) {
        const sample = /^(\S+(?:\{.*\})?) \S+$/.exec(line)?.[1];
        if (sample && seen.has(sample) && !line.startsWith("#")) c.problem(`twice: ${sample}`);
        seen.add(sample);
      }
    },
  },
  {
    name: "sighup",
    short: true,
    brief: true,
    alone: true,
    seconds: 2,
    about: "SIGHUP, SIGUSR1 and SIGPIPE while answers run",
    async run(c) {
      for (const signal of ["SIGHUP", "SIGPIPE", "SIGHUP"]) {
        c.server.child.kill(signal);
        await sleep(300);
      }
    },
  },
  {
    name: "model-overwritten",
    short: true,
    brief: true,
    ownModel: true,
    normalsMayFail: true,
    seconds: 3,
    about: "the model's file is overwritten in place while it is served",
    async run(c) {
      const before = (await ask(c.url, "/v1/completions", { body: story(c) })).text;
      const size = statSync(c.server.modelFile).size,
        file = openSync(c.server.modelFile, "r+"),
        junk = Buffer.alloc(1 << 20, 0xff);
      for (let at = 0; at < size; at += junk.length) writeSync(file, junk, 0, Math.min(junk.length, size - at), at);
      closeSync(file);
      await sleep(500);
      for (let i = 0; i < 3; i++) await served(c, "a request");
      const after = await ask(c.url, "/v1/completions", { body: story(c) });
      if (after.status === 200 && textOf(after.text) !== textOf(before))
        c.problem("the same request has another answer");
      await sleep(1500);
      await served(c, "later");
    },
  },
  {
    name: "model-truncated",
    short: true,
    brief: true,
    ownModel: true,
    normalsMayFail: true,
    seconds: 3,
    about: "the model's file is truncated while it is served",
    async run(c) {
      truncateSync(c.server.modelFile, 4096);
      await sleep(500);
      for (let i = 0; i < 3; i++) await served(c, "a request");
      await sleep(1500);
      await served(c, "later");
    },
  },
  {
    name: "registry-truncated",
    alone: true,
    brief: true,
    seconds: 2,
    about: "the registry's file and folder taken away while responses are kept",
    async run(c) {
      const keep = async () => c.ask("/v1/responses", { model: c.model, input: "x", max_output_tokens: 2 });
      c.answered(await keep(), "/v1/responses");
      truncateSync(`${c.server.folder}/registry.db`, 100);
      const r = await keep();
      c.note(`a response to keep: ${r.status || r.error}`);
      const plain = await c.complete({ prompt: "x", max_tokens: 1 });
      if (plain.status !== 200) c.problem(`a completion: ${plain.status || plain.error}`);
      chmodSync(dirname(`${c.server.folder}/registry.db`), 0o500);
      c.note(`in a folder that cannot be written: ${(await keep()).status}`);
      chmodSync(dirname(`${c.server.folder}/registry.db`), 0o700);
    },
  },
];
