// Attacks below the level of requests: connections, framing, slowness, hang-ups.
import { sleep } from "../../tests/http/server.mjs";
import { postBytes } from "./wire.mjs";

const body = { prompt: "Once upon a time", max_tokens: 400, ignore_eos: true };

// Requests after which no second one may be read: [title, bytes, statuses; 0: closed without an
// answer]. The canary after them is what an upstream proxy may have taken for a body.
const canary = "GET /livez?canary HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
const get = (head, target = "/livez") => `GET ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\n${head}\r\n`;
const json = '{"prompt":"x"}';
const send = (head, text = json) =>
  `POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n${head}\r\n${text}`;
const chunked = (text) => send("Transfer-Encoding: chunked\r\n", text);

export const framings = [
  ["blank before the colon of Content-Length", send(`Content-Length : ${canary.length}\r\n`, canary), [400]],
  ["blank before the colon of Transfer-Encoding", send("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), [400]],
  [
    "two Transfer-Encodings",
    send("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"),
    [400, 501],
  ],
  ["chunked twice", send("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), [400, 501]],
  [
    "Transfer-Encoding and Content-Length",
    send(`Transfer-Encoding: chunked\r\nContent-Length: ${json.length}\r\n`, `e\r\n${json}\r\n0\r\n\r\n`),
    [400],
  ],
  ["an unknown coding", send("Transfer-Encoding: gzip\r\n", "0\r\n\r\n"), [400, 501]],
  ["xchunked", send("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), [400, 501]],
  ["chunked before gzip", send("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"), [400, 501]],
  ["chunked after a tab and VT", send("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), [400, 501]],
  // libmicrohttpd 0.9 silently reads these three as CR LF: then the connection must end.
  ["bare LF after a chunk's size", chunked(`e\n${json}\r\n0\r\n\r\n`), [200, 400]],
  ["bare LF after a chunk", chunked(`e\r\n${json}\n0\r\n\r\n`), [200, 400]],
  ["bare LF after the last chunk", chunked(`e\r\n${json}\r\n0\n\n`), [200, 400]],
  ["a chunk's size in 0x", chunked(`0xe\r\n${json}\r\n0\r\n\r\n`), [400]],
  ["a chunk's size with a sign", chunked(`+e\r\n${json}\r\n0\r\n\r\n`), [400]],
  ["a chunk's size with a minus", chunked(`-e\r\n${json}\r\n0\r\n\r\n`), [400]],
  ["a chunk's size of 2^64 + 14", chunked(`1000000000000000e\r\n${json}\r\n0\r\n\r\n`), [400, 413]],
  ["an empty chunk size", chunked(`\r\n${json}\r\n0\r\n\r\n`), [400]],
  ["a chunk longer than its size", chunked(`2\r\n${json}\r\n0\r\n\r\n`), [400]],
  ["a chunk extension of 300 KB", chunked(`e;${"x".repeat(300_000)}\r\n${json}\r\n0\r\n\r\n`), [400, 413, 431]],
  ["a bare CR in a value", get("X-A: a\rb\r\n"), [400]],
  ["a NUL in a value", get("X-A: a\0b\r\n"), [400]],
  ["a NUL in a name", get("X-\0A: a\r\n"), [400]],
  ["a folded header", get("X-A: a\r\n b\r\n"), [400]],
  ["a header before the first that is folded", "GET /livez HTTP/1.1\r\n Host: 127.0.0.1\r\n\r\n", [400]],
  ["a header without a colon", get("X-A\r\n"), [400]],
  ["a header without a name", get(": a\r\n"), [400]],
  ["a blank in a name", get("X A: a\r\n"), [400]],
  ["no Host", "GET /livez HTTP/1.1\r\n\r\n", [400]],
  ["two Hosts", get("Host: 127.0.0.2\r\n"), [400]],
  ["a Host with a blank", "GET /livez HTTP/1.1\r\nHost: a b\r\n\r\n", [400, 403]],
  ["a NUL in the path", get("", "/livez%00.html"), [400, 404]],
  ["a raw NUL in the path", get("", "/livez\0.html"), [400, 404]],
  ["two Content-Lengths", send(`Content-Length: ${json.length}\r\nContent-Length: 0\r\n`), [400]],
  ["a list of Content-Lengths", send(`Content-Length: ${json.length}, ${json.length}\r\n`), [400]],
  ["a Content-Length with a plus", send(`Content-Length: +${json.length}\r\n`), [400]],
  ["a Content-Length with a minus", send(`Content-Length: -1\r\n`), [400]],
  ["a Content-Length in hexadecimal", send("Content-Length: 0xe\r\n"), [400]],
  ["a Content-Length with a unit", send(`Content-Length: ${json.length}b\r\n`), [400]],
  ["an empty Content-Length", send("Content-Length:\r\n"), [400, 411]],
  ["a Content-Length of 2^64 + 14", send("Content-Length: 18446744073709551630\r\n"), [400, 413]],
  ["no digits in Content-Length", send("Content-Length: x\r\n"), [400]],
  ["a version that is not HTTP/1", "GET /livez HTTP/3.7\r\nHost: 127.0.0.1\r\n\r\n", [400, 505]],
  ["a version in small letters", "GET /livez http/1.1\r\nHost: 127.0.0.1\r\n\r\n", [400, 505]],
  ["a request line of one word", "GET\r\nHost: 127.0.0.1\r\n\r\n", [400, 0]],
];

const statuses = (text) => [...text.matchAll(/HTTP\/1\.[01] (\d{3})/g)].map((m) => Number(m[1]));

async function framing(c) {
  await Promise.all(
    framings.map(async ([what, bytes, wanted], i) => {
      await sleep(i * 5);
      const { text, closed } = await c.sockets.exchange(bytes + canary, 4000);
      const got = statuses(text);
      if (got.length > 1 || !wanted.includes(got[0] ?? 0) || !closed)
        c.problem(
          `${what}: ${got.join(" and ") || "no answer"} instead of ${wanted.join(" or ")}${closed ? "" : ", left open"}`,
        );
    }),
  );
}

// Requests that must be served: the strictness above must not refuse real clients.
async function lawful(c) {
  const cases = [
    ["a plain GET", get("")],
    ["HTTP/1.0 without a Host", "GET /livez HTTP/1.0\r\n\r\n"],
    ["an empty header", get("X-A:\r\n")],
    ["a tab before a value", get("X-A:\ta\r\n")],
    ["blanks around a value", get("X-A:   a  \r\n")],
    ["8-bit bytes in a value", get("X-A: \xe4\xff\r\n")],
    ["a chunk extension", chunked(`e;a=b\r\n${json}\r\n0\r\n\r\n`)],
    ["a chunk extension with quotes", chunked(`E;a="b c"\r\n${json}\r\n0\r\n\r\n`)],
    ["leading zeros of a chunk", chunked(`000e\r\n${json}\r\n0\r\n\r\n`)],
    ["a trailer", chunked(`e\r\n${json}\r\n0\r\nX-T: 1\r\n\r\n`)],
    ["Chunked", send("Transfer-Encoding: Chunked\r\n", `e\r\n${json}\r\n0\r\n\r\n`)],
    ["an empty line before the request", `\r\n${get("")}`],
    ["an IPv6 Host", "GET /livez HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"],
    ["an absolute target", "GET http://127.0.0.1/livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"],
    [
      "40 headers of a proxy",
      get(Array.from({ length: 40 }, (_, i) => `X-Forwarded-${i}: 10.0.0.${i}, 10.1.0.1; proto=https\r\n`).join("")),
    ],
  ];
  for (const [what, bytes] of cases) {
    const socket = await c.sockets.open();
    socket?.write(Buffer.from(bytes, "latin1"));
    for (let i = 0; i < 200 && socket && !statuses(socket.text).length && !socket.over; i++) await sleep(10);
    const [got] = statuses(socket?.text ?? "");
    if (got !== 200) c.problem(`${what}: ${got ?? "no answer"} instead of 200`);
    socket?.destroy();
  }
}

// n sockets; each sends a byte of its head from time to time, or none, until the time is over.
const holders = (n, bytes) => async (c) => {
  let opened = 0,
    refused = 0;
  const one = async () => {
    while (c.on) {
      const socket = await c.sockets.open();
      if (!socket) {
        refused++;
        await sleep(500);
        continue;
      }
      opened++;
      for (let i = 0; c.on && !socket.over; i++) {
        if (bytes) socket.write(bytes[i % bytes.length]);
        await sleep(bytes ? 1000 : 200);
      }
      await sleep(100);
    }
  };
  await Promise.all(Array.from({ length: n }, one));
  c.note(`${opened} opened, ${refused} refused`);
};

// Requests that are aborted after some ms, in every stage that this time reaches.
const hangUps = (make, delays) => async (c) => {
  let n = 0;
  await c.crowd(24, async (i, round) => {
    const socket = await c.sockets.open();
    if (!socket) return sleep(20);
    socket.write(make(i, round));
    await sleep(delays[(i + round) % delays.length]);
    if ((i + round) % 3 === 0) socket.resetAndDestroy();
    else socket.destroy();
    n++;
  });
  c.note(`${n} hang-ups`);
};

export const wires = [
  {
    name: "slow-senders",
    short: true,
    seconds: 8,
    flags: ["--max-connections", "64", "--idle-timeout-s", "3"],
    about: "80 sockets that send a byte of their head each second; 64 connections are allowed",
    run: holders(80, "GET /livez HTTP/1.1\r\nX-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
  },
  {
    name: "idle-sockets",
    seconds: 8,
    flags: ["--max-connections", "1500"],
    about: "2,000 sockets that ask nothing; 1,500 connections are allowed",
    run: holders(2000),
  },
  {
    name: "slow-bodies",
    seconds: 8,
    flags: ["--max-connections", "64", "--idle-timeout-s", "3"],
    about: "80 requests whose bodies come a byte a second",
    run: holders(80, [
      postBytes("/v1/completions", { model: "inferd-demo", prompt: "x" }).slice(0, -25),
      ..."aaaaaaaaaaaaaaaaaaaa",
    ]),
  },
  {
    name: "framing",
    short: true,
    brief: true,
    seconds: 6,
    about: "requests that a proxy may frame differently, each followed by a second request",
    run: framing,
  },
  { name: "lawful-framing", short: true, brief: true, about: "unusual requests that are in order", run: lawful },
  {
    name: "hang-ups",
    short: true,
    about: "clients that hang up in heads, bodies, queue, prefill, decode and whole answers",
    run(c) {
      const kinds = [
        () => "POST /v1/comp",
        () => postBytes("/v1/completions", { model: c.model, ...body }).slice(0, -9),
        () => postBytes("/v1/completions", { model: c.model, ...body }),
        () => postBytes("/v1/completions", { model: c.model, ...body, stream: true }),
        (i) =>
          postBytes("/v1/completions", {
            model: c.model,
            prompt: Array.from({ length: 3000 }, (_, k) => 300 + ((i * 977 + k * 31) % 3000)),
            max_tokens: 8,
          }),
        () => postBytes("/v1/completions", { model: c.model, ...body, n: 16 }),
        () => postBytes("/v1/embeddings", { model: c.model, input: Array.from({ length: 64 }, (_, k) => `text ${k}`) }),
        () => postBytes("/v1/responses", { model: c.model, input: "hello", max_output_tokens: 200, stream: true }),
        () =>
          postBytes("/v1/chat/completions", {
            model: c.model,
            messages: [{ role: "user", content: "x" }],
            response_format: { type: "json_object" },
            stream: true,
          }),
      ];
      return hangUps((i, round) => kinds[(i + round) % kinds.length](i * 100 + round), [0, 1, 5, 20, 60, 150])(c);
    },
  },
  {
    name: "half-open",
    about: "clients that end their sending side and wait, at each stage",
    async run(c) {
      await c.crowd(16, async (i, round) => {
        const socket = await c.sockets.open({ allowHalfOpen: true });
        if (!socket) return sleep(20);
        const bytes = postBytes("/v1/completions", { model: c.model, ...body, stream: round % 2 === 0 });
        socket.write(round % 3 ? bytes : bytes.slice(0, 40 + ((i * 7) % 100)));
        socket.end();
        for (let k = 0; k < 20 && !socket.over && c.on; k++) await sleep(50);
        socket.destroy();
      });
    },
  },
  {
    name: "pipelined",
    about: "500 requests in one write, answers not awaited",
    async run(c) {
      await c.crowd(4, async () => {
        const { text } = await c.sockets.exchange(
          get("").repeat(400) +
            postBytes("/tokenize", { prompt: "x" }).repeat(100) +
            "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
          5000,
        );
        if (statuses(text).some((s) => s >= 500)) c.problem(`an answer is ${statuses(text).find((s) => s >= 500)}`);
      });
    },
  },
  {
    name: "expect",
    about: "Expect: 100-continue that is never followed by a body, and unknown expectations",
    async run(c) {
      await c.crowd(40, async (i) => {
        const socket = await c.sockets.open();
        if (!socket) return sleep(20);
        const length = [10, 8 << 20, 1e15, 0][i % 4];
        socket.write(
          `POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\nExpect: ${i % 5 ? "100-continue" : "x"}\r\n\r\n`,
        );
        for (let k = 0; k < 10 && !socket.over; k++) await sleep(100);
        socket.destroy();
      });
    },
  },
  {
    name: "tiny-chunks",
    about: "8 bodies of chunks of one byte",
    memoryMb: 400,
    async run(c) {
      const tiny = "1\r\nx\r\n".repeat(20_000);
      await c.crowd(8, async () => {
        const socket = await c.sockets.open();
        if (!socket) return sleep(20);
        socket.write(
          "POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        for (let k = 0; k < 50 && !socket.over && c.on; k++)
          if (!socket.write(tiny)) await new Promise((done) => socket.once("drain", done).once("close", done));
        socket.destroy();
      });
    },
  },
  {
    name: "big-heads",
    about: "heads of many headers, long ones and long paths",
    async run(c) {
      const heads = [
        get("X-A: b\r\n".repeat(3000)),
        get(`X-A: ${"b".repeat(31_000)}\r\n`),
        get(`X-A: ${"b".repeat(900_000)}\r\n`),
        get("", `/${"a".repeat(30_000)}`),
        get("", `/livez?${"a=b&".repeat(7000)}`),
        get("", `/%${"41%".repeat(9000)}41`),
        get(`Cookie: ${"a=b; ".repeat(6000)}\r\n`),
      ];
      await c.crowd(16, async (i, round) => {
        const { text } = await c.sockets.exchange(heads[(i + round) % heads.length], 3000);
        if (statuses(text).some((s) => s >= 500)) c.problem(`an answer is ${statuses(text).find((s) => s >= 500)}`);
      });
    },
  },
  {
    name: "slow-readers",
    short: true,
    about: "12 streams that are not read, each of four long choices",
    async run(c) {
      await c.crowd(12, async (i) => {
        const socket = await c.sockets.open();
        if (!socket) return sleep(20);
        socket.pause();
        socket.write(
          postBytes("/v1/completions", {
            model: c.model,
            ...body,
            max_tokens: 4000,
            n: 4,
            stream: true,
            logprobs: 5,
            seed: i,
          }),
        );
        while (c.on && !socket.over) await sleep(50);
        socket.destroy();
      });
    },
  },
  {
    name: "unread-answers",
    short: true,
    about: "24 clients that do not read answers of 20 MB",
    memoryMb: 300,
    async run(c) {
      const bytes = postBytes("/tokenize", { prompt: "a b ".repeat(250_000), with_pieces: true });
      await Promise.all(
        Array.from({ length: 24 }, async () => {
          const socket = await c.sockets.open();
          if (!socket) return;
          socket.pause();
          socket.write(bytes);
          while (c.on && !socket.over) await sleep(50);
          socket.destroy();
        }),
      );
    },
  },
];
