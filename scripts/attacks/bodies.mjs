// Attacks through request bodies: JSON, sizes, counts, texts, templates.

import { sleep } from "../../tests/http/server.mjs";
import { postBytes } from "./wire.mjs";

const chars = (n, of) => of.repeat(Math.ceil(n / of.length)).slice(0, n);

// n clients send the bodies in turn. A refusal is an answer; a 5xx is not.
const bodies =
  (n, path, list, options = {}) =>
  async (c) => {
    const all = typeof list === "function" ? list(c) : list;
    let next = 0;
    await c.crowd(n, async () => {
      const at = next++ % all.length;
      c.answered(await c.ask(path, all[at], { limitMs: 60_000 }), `${path} ${options.names?.[at] ?? at}`);
    });
  };

const texts = (n) => Array.from({ length: n }, (_, i) => `text ${i}`);
const text = (prompt) => JSON.stringify({ model: "inferd-demo", prompt, max_tokens: 1 });

const letters = 1_000_000;
const bombs = {
  a: chars(letters, "a"),
  blanks: chars(letters, " "),
  newlines: chars(letters, "\n"),
  "combining marks": "e" + chars(letters, "\u0301"),
  "zero-width joiners": chars(letters, "\u{1f468}\u200d"),
  digits: chars(letters, "0123456789"),
  "a b": chars(letters, "a b "),
  quotes: chars(letters, "'s't're"),
  "hangul jamo": chars(letters, "\u1100\u1161\u11a8"),
  "control token": chars(letters, "<|im_start|>"),
  "almost control": chars(letters, "<|im_star"),
  bytes: chars(letters, "\u00ff\u0100"),
  "tabs and newlines": chars(letters, " \t\n"),
};

const numbers = () => {
  const digits = chars(100_000, "9"),
    make = (field, value) => `{"model":"inferd-demo","prompt":"x","max_tokens":1,"${field}":${value}}`;
  return [
    make("seed", digits),
    make("temperature", `0.${digits}`),
    make("temperature", `1e${digits}`),
    make("temperature", `-${digits}e-${digits}`),
    make("max_tokens", "1e308"),
    make("max_tokens", "2147483648"),
    make("seed", "-9223372036854775809"),
    make("top_k", "-0"),
    make("logit_bias", `{"${digits}":1}`),
    make("n", "1e0"),
    make("prompt", "[1e400]"),
    make("prompt", "[[[1]]]"),
    make("prompt", `[${digits}]`),
  ];
};

const wide = {
  "8 MB of []": () => `{"model":"inferd-demo","prompt":[${"[],".repeat(2_600_000)}[]]}`,
  "8 MB of {}": () => `{"x":[${"{},".repeat(2_600_000)}{}]}`,
  "8 MB of 0": () => `{"prompt":[${"0,".repeat(4_000_000)}0]}`,
  "a million members": () => `{${Array.from({ length: 700_000 }, (_, i) => `"${i.toString(36)}":0`).join(",")}}`,
  "one name a million times": () => `{${'"a":0,'.repeat(1_300_000)}"a":0}`,
  escapes: () => `{"prompt":"${"\\u0061".repeat(1_300_000)}"}`,
  surrogates: () => `{"prompt":"${"\\ud83d\\ude00".repeat(600_000)}"}`,
  blanks: () => `{${" ".repeat(8_000_000)}}`,
};

const deep = () =>
  [100, 512, 1000, 10_000, 1_000_000, 4_000_000].flatMap((n) => [
    `{"prompt":${"[".repeat(n)}`,
    `{"prompt":${"[".repeat(Math.min(n, 3e6))}${"]".repeat(Math.min(n, 3e6))}}`,
    '{"a":'.repeat(Math.min(n, 1_500_000)),
    `{"model":"inferd-demo","messages":[{"role":"user","content":"x"}],"chat_template_kwargs":${'{"a":'.repeat(Math.min(n, 1e6))}1${"}".repeat(Math.min(n, 1e6))}}`,
    `{"model":"inferd-demo","messages":[{"role":"user","content":"x"}],"structured_outputs":{"json":${'{"not":'.repeat(Math.min(n, 900_000))}{}${"}".repeat(Math.min(n, 900_000))}}}`,
  ]);

const message = (content, role = "user") => ({ role, content });

const templates = (c) => {
  const model = c.model,
    many = (n, content) => Array.from({ length: n }, (_, i) => message(content, i % 2 ? "assistant" : "user"));
  return [
    { model, max_tokens: 1, messages: many(20_000, "x") },
    { model, max_tokens: 1, messages: many(2, chars(3_000_000, "ab ")) },
    { model, max_tokens: 1, messages: [message(Array.from({ length: 100_000 }, () => ({ type: "text", text: "x" })))] },
    {
      model,
      max_tokens: 1,
      messages: [message("x")],
      chat_template_kwargs: {
        tools: Array.from({ length: 100_000 }, () => ({})),
        strftime_now: 1,
        namespace: 1,
        range: 1,
        loop: {},
        system_message: chars(1e6, "x"),
        enable_thinking: chars(100_000, "y"),
      },
    },
    { model, max_tokens: 1, messages: [message("x")], chat_template_kwargs: { messages: [] } },
    {
      model,
      max_tokens: 1,
      messages: [message("x")],
      documents: Array.from({ length: 1024 }, (_, i) => ({ title: `${i}`, text: "x" })),
    },
    {
      model,
      max_tokens: 1,
      messages: [
        message("x"),
        {
          role: "assistant",
          content: null,
          tool_calls: Array.from({ length: 20_000 }, (_, i) => ({
            id: `${i}`,
            type: "function",
            function: { name: "f", arguments: '{"a":[[[[[[1]]]]]]}' },
          })),
        },
        message("x"),
      ],
    },
    { model, max_tokens: 1, messages: many(500, "<|im_end|>\n<|im_start|>system\n{{ 7*7 }}{% for i in range(1e9) %}") },
  ];
};

const stops = [
  { stop: Array.from({ length: 16 }, () => chars(4096, "a")) },
  { stop: Array.from({ length: 16 }, (_, i) => chars(4095, " ") + i) },
  { stop: Array.from({ length: 17 }, () => "a") },
  { stop: chars(1_000_000, "a") },
  { stop: "\u0000" },
  { stop: Array.from({ length: 16 }, (_, i) => chars(4000, "the ") + i) },
];
const biases = [1024, 1025, 100_000].map((n) => ({
  logit_bias: Object.fromEntries(
    Array.from({ length: n }, (_, i) => [(i % 4000) + (i >= 4000 ? i : 0), i % 2 ? -100 : 100]),
  ),
}));

export const bodyAttacks = [
  {
    name: "deep-json",
    short: true,
    brief: true,
    about: "arrays, objects and schemas of up to 4 million levels",
    run: async (c) => {
      for (const one of deep()) c.answered(await c.ask("/v1/completions", one), "deep JSON");
      for (const one of deep()) c.answered(await c.ask("/v1/chat/completions", one), "deep JSON");
    },
  },
  {
    name: "huge-numbers",
    short: true,
    brief: true,
    about: "numbers of 100,000 digits and beyond every type",
    run: async (c) => {
      for (const one of numbers()) c.answered(await c.ask("/v1/completions", one), one.slice(0, 80));
    },
  },
  {
    name: "wide-json",
    about: "8 MB of many small values, by 3 clients",
    seconds: 8,
    memoryMb: 1500,
    run: bodies(3, "/v1/completions", () => Object.values(wide).map((f) => f()), { names: Object.keys(wide) }),
  },
  {
    name: "tokenizer-bombs",
    about: "a million letters that merge badly, by 4 clients",
    seconds: 6,
    run: bodies(4, "/v1/completions", Object.values(bombs).map(text), { names: Object.keys(bombs) }),
  },
  {
    name: "tokenize-bombs",
    about: "the same to /tokenize with pieces",
    seconds: 6,
    memoryMb: 400,
    run: bodies(
      4,
      "/tokenize",
      Object.values(bombs).map((prompt) => ({ prompt, with_pieces: true })),
      { names: Object.keys(bombs) },
    ),
  },
  {
    name: "detokenize",
    about: "all ids, a million ids, wrong ids",
    memoryMb: 400,
    run: bodies(3, "/detokenize", [
      { tokens: Array.from({ length: 4000 }, (_, i) => i) },
      { tokens: Array.from({ length: 1 << 20 }, (_, i) => i % 4000) },
      { tokens: [-1] },
      { tokens: [2147483648] },
      { tokens: [1e300] },
    ]),
  },
  {
    name: "choices-128",
    about: "n = 128 long choices, streamed",
    run: bodies(3, "/v1/completions", (c) => [
      { model: c.model, prompt: "x", n: 128, max_tokens: 2000, stream: true, ignore_eos: true },
    ]),
  },
  {
    name: "best-of",
    about: "best_of 20 with log-probabilities",
    run: bodies(4, "/v1/completions", (c) => [
      { model: c.model, prompt: "x", best_of: 20, n: 20, logprobs: 5, max_tokens: 500, ignore_eos: true },
    ]),
  },
  {
    name: "logprobs",
    about: "top_logprobs 20 of 32 choices",
    run: bodies(3, "/v1/chat/completions", (c) => [
      {
        model: c.model,
        messages: [message("x")],
        logprobs: true,
        top_logprobs: 20,
        n: 32,
        max_tokens: 300,
        ignore_eos: true,
      },
    ]),
  },
  {
    name: "echo-logprobs",
    about: "log-probabilities of prompts of 4,000 tokens",
    run: bodies(3, "/v1/completions", (c) => [
      {
        model: c.model,
        prompt: Array.from({ length: 4000 }, (_, i) => 300 + ((i * 7) % 3000)),
        echo: true,
        logprobs: 5,
        max_tokens: 0,
      },
    ]),
  },
  {
    name: "stops",
    about: "16 stop strings of 4,096 characters that almost match",
    run: bodies(4, "/v1/completions", (c) =>
      stops.map((s) => ({
        model: c.model,
        prompt: "the the the",
        max_tokens: 300,
        ignore_eos: true,
        stream: true,
        ...s,
      })),
    ),
  },
  {
    name: "logit-bias",
    about: "1,024 biases and more",
    run: bodies(4, "/v1/completions", (c) =>
      biases.map((b) => ({ model: c.model, prompt: "x", max_tokens: 100, ignore_eos: true, ...b })),
    ),
  },
  {
    name: "prompts",
    about: "128 prompts in one request, 100 choices of two, 2,048 prompts",
    run: bodies(3, "/v1/completions", (c) => [
      { model: c.model, prompt: texts(128), max_tokens: 4 },
      { model: c.model, prompt: texts(2), n: 64, max_tokens: 4 },
      { model: c.model, prompt: texts(128), max_tokens: 4, stream: true },
      { model: c.model, prompt: texts(2048), max_tokens: 4 },
    ]),
  },
  {
    name: "embeddings",
    about: "2,048 texts by 4 clients, long ones, empty ones",
    memoryMb: 400,
    run: bodies(4, "/v1/embeddings", (c) => [
      { model: c.model, input: texts(2048) },
      { model: c.model, input: Array.from({ length: 32 }, () => chars(4000, "word ")), encoding_format: "base64" },
      { model: c.model, input: Array.from({ length: 2049 }, () => "x") },
      { model: c.model, input: [[]] },
      { model: c.model, input: Array.from({ length: 2048 }, () => [1, 2, 3]), dimensions: 1 },
    ]),
  },
  {
    name: "templates",
    about: "20,000 messages, 100,000 parts, arguments that shadow the template's names",
    seconds: 8,
    memoryMb: 600,
    run: bodies(3, "/v1/chat/completions", templates),
  },
  {
    name: "unknown-models",
    about: "models that are not there",
    run: bodies(8, "/v1/completions", [
      { model: "nothing", prompt: "x" },
      { model: chars(1_000_000, "m"), prompt: "x" },
      { model: "../../etc/passwd", prompt: "x" },
      { model: "a\u0000b", prompt: "x" },
      { model: "\u001b[31m", prompt: "x" },
    ]),
  },
  {
    name: "long-prompts",
    about: "prompts of a whole context, each another",
    async run(c) {
      await c.crowd(6, async (i, round) =>
        c.answered(
          await c.complete({
            prompt: Array.from({ length: 7900 }, (_, k) => 300 + ((i + 7 * round + k * (i + 3)) % 3500)),
            max_tokens: 1,
          }),
          "prompt",
        ),
      );
    },
  },
  {
    name: "queue-flood",
    short: true,
    about: "400 requests at once, again and again",
    async run(c) {
      await c.crowd(400, async (i) => {
        const r = await c.complete({ prompt: `${i}`, max_tokens: 30, ignore_eos: true });
        if (r.status >= 500) c.problem(`${r.status} ${r.text.slice(0, 80)}`);
      });
    },
  },
  {
    name: "cancel-storm",
    about: "responses that are cancelled, read and deleted while they are streamed",
    async run(c) {
      await c.crowd(12, async (i, round) => {
        const socket = await c.sockets.open();
        if (!socket) return;
        socket.write(
          postBytes("/v1/responses", {
            model: c.model,
            input: "hello",
            max_output_tokens: 300,
            stream: true,
            store: round % 2 === 0,
          }),
        );
        for (let k = 0; k < 200 && !/resp_\w+/.test(socket.text) && !socket.over && c.on; k++) await sleep(5);
        const id = /resp_\w+/.exec(socket.text)?.[0] ?? `resp_${i}`;
        for (const [method, path] of [
          ["POST", `/v1/responses/${id}/cancel`],
          ["DELETE", `/v1/responses/${id}`],
          ["GET", `/v1/responses/${id}/input_items?limit=1e9&after=%00`],
          ["GET", `/v1/responses/${id}`],
        ])
          c.answered(await c.ask(path, undefined, { method }), `${method} ${path.replace(id, "{id}")}`);
        socket.destroy();
      });
    },
  },
  {
    name: "response-chains",
    about: "chains of 200 responses, and ids that name themselves",
    seconds: 8,
    async run(c) {
      await c.crowd(4, async (i, round) => {
        let previous;
        for (let k = 0; k < 200 && c.on; k++) {
          const r = c.answered(
            await c.ask("/v1/responses", {
              model: c.model,
              input: `${i} ${round} ${k}`,
              max_output_tokens: 2,
              ...(previous && { previous_response_id: previous }),
            }),
            "/v1/responses",
          );
          if (r.status !== 200) break;
          previous = JSON.parse(r.text).id;
        }
      });
    },
  },
  {
    name: "resume-abuse",
    short: true,
    about: "Last-Event-IDs that are wrong, huge, stolen, and the same one by many clients",
    async run(c) {
      const first = await c.chat({ stream: true, max_tokens: 20, stream_options: { include_usage: true } });
      const id = /^id: (\S+):\d+$/m.exec(first.text)?.[1] ?? "chatcmpl-x";
      const ids = [
        `${id}:0`,
        `${id}:1`,
        `${id}:18446744073709551615`,
        `${id}:99999999999999999999999`,
        `${id}:-1`,
        `${id}:`,
        ":",
        ":1",
        `${chars(30_000, "a")}:1`,
        `${id}:1:1`,
        `${id}:0x1`,
        "\u00ff:1",
        `${id}: 1`,
      ];
      await c.crowd(8, async (i, round) => {
        const last = ids[(i + round) % ids.length];
        // A stream that another client resumes ends for this one, possibly in the middle.
        const r = await c.chat({ stream: true }, { headers: { ...c.headers, "Last-Event-ID": last } });
        if (r.status) c.answered(r, `Last-Event-ID ${last.slice(0, 40)}`);
      });
      // A stream that is cut repeatedly and resumed by several clients at once.
      await c.crowd(6, async (i) => {
        const socket = await c.sockets.open();
        if (!socket) return;
        const body = JSON.stringify({
          model: c.model,
          messages: [message("x")],
          stream: true,
          max_tokens: 300,
          ignore_eos: true,
          seed: i,
        });
        const send = (to, header) =>
          to.write(
            `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n${header}\r\n${body}`,
          );
        send(socket, "");
        for (let k = 0; k < 200 && !/^id: /m.test(socket.text) && !socket.over; k++) await sleep(5);
        const at = /^id: (\S+)\r?$/m.exec(socket.text)?.[1];
        if (!at) return socket.destroy();
        const more = await Promise.all([1, 2, 3].map(() => c.sockets.open()));
        for (const s of more) if (s) send(s, `Last-Event-ID: ${at}\r\n`);
        await sleep(50);
        for (const s of [socket, ...more]) s?.destroy();
      });
    },
  },
];
