// Isolation of clients: partitions of the prefix cache, priorities, deadlines.
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { chat, metrics, modelName, post, random, randomPrompt, serving, sse, until, user, whole } from "./server.mjs";

const model = modelName;
const folder = mkdtempSync(join(tmpdir(), "inferd-keys-"));
const keys = join(folder, "keys");
writeFileSync(keys, "sk-alice\nsk-bob\n");
chmodSync(keys, 0o600);
after(() => rmSync(folder, { recursive: true }));
const as = (key) => ({ headers: { Authorization: `Bearer ${key}` } });

// Number of prompt tokens found in the cache.
async function cached(server, prompt, key, more = {}) {
  const response = await post(server, "/v1/completions", { model, prompt, max_tokens: 1, ...more }, key && as(key));
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).usage.prompt_tokens_details.cached_tokens;
}

// An attacker knows the secret except one token, tries several ids for it, and observes for which of
// them more of the prompt is cached.
async function guess(server, secret, at, key, more) {
  const found = [];
  for (const token of [secret[at] + 1, secret[at] + 2, secret[at], secret[at] + 3]) {
    // A different first token would hide what earlier attempts left in the cache.
    const attempt = [...secret.slice(0, at), token, 299];
    found.push(await cached(server, attempt, key, more));
  }
  return found;
}

test("a key cannot guess another key's prompt", async () => {
  await serving(["--api-key-file", keys], async (server) => {
    const rng = random(5);
    for (const at of [5, 16, 21, 32, 40]) {
      const secret = randomPrompt(rng, 48),
        control = randomPrompt(rng, 48);
      assert.equal(await cached(server, secret, "sk-alice"), 0);
      const found = await guess(server, secret, at, "sk-bob");
      // Alice's prompt looks to Bob like one that was never sent.
      assert.deepEqual(found, await guess(server, control, at, "sk-bob"));
      assert.equal(found[0], 0);
      assert.equal(await cached(server, secret, "sk-alice"), 47, "Alice's own prompt is kept");
    }
  });
});

test("with prefix-sharing = all keys share prompts", async () => {
  await serving(["--api-key-file", keys, "--prefix-sharing", "all"], async (server) => {
    const secret = randomPrompt(random(6), 48);
    assert.equal(await cached(server, secret, "sk-alice"), 0);
    assert.equal(await cached(server, secret, "sk-bob"), 47);
    // A salt partitions the requests of all keys.
    assert.equal(await cached(server, secret, "sk-bob", { cache_salt: "s" }), 0);
    assert.equal(await cached(server, secret, "sk-alice", { cache_salt: "s" }), 47);
  });
});

test("cache_salt partitions the requests of one key on endpoints of text; prompt_cache_key does not", async () => {
  await serving(["--api-key-file", keys], async (server) => {
    const secret = randomPrompt(random(7), 48);
    assert.equal(await cached(server, secret, "sk-alice", { cache_salt: "a" }), 0);
    assert.equal(await cached(server, secret, "sk-alice", { cache_salt: "b" }), 0);
    assert.equal(await cached(server, secret, "sk-alice"), 0);
    assert.equal(await cached(server, secret, "sk-bob", { cache_salt: "a" }), 0);
    assert.equal(await cached(server, secret, "sk-alice", { cache_salt: "a" }), 47);
    assert.equal(await cached(server, secret, "sk-alice"), 47);

    const text = "The same question, long enough for more than one block of the cache, comes again and again.";
    const ask = {
      "/v1/chat/completions": [
        { messages: user(text), max_tokens: 1 },
        (b) => b.usage.prompt_tokens_details.cached_tokens,
      ],
      "/v1/responses": [
        { input: text, max_output_tokens: 1, store: false },
        (b) => b.usage.input_tokens_details.cached_tokens,
      ],
      "/v1/messages": [{ messages: user(text), max_tokens: 1 }, (b) => b.usage.cache_read_input_tokens],
    };
    for (const [path, [body, read]] of Object.entries(ask)) {
      const send = async (more) => {
        const response = await post(server, path, { model, ...body, ...more }, as("sk-alice"));
        assert.equal(response.status, 200, await response.clone().text());
        return read(await response.json());
      };
      const salt = { cache_salt: path };
      assert.equal(await send(salt), 0, path);
      const again = await send(salt);
      assert.ok(again >= 16, `${path}: ${again}`);
      assert.equal(await send({ cache_salt: path + "2" }), 0, path);
      if (path === "/v1/messages") continue;
      await send({ prompt_cache_key: "x" });
      assert.ok((await send({ prompt_cache_key: "y" })) >= 16, path);
    }
  });
});

test("cache_salt partitions the inputs of embeddings", async () => {
  await serving(["--api-key-file", keys], async (server) => {
    const input = "The same question, long enough for more than one block of the cache, comes again and again.";
    const counts = async () => {
      const m = await metrics({ url: server.url, key: "sk-alice" });
      return { hits: m.get("inferd_prefix_cache_hit_tokens_total"), prompts: m.get("inferd_prompt_tokens_total") };
    };
    const embed = async (more) => {
      const before = await counts();
      const response = await post(server, "/v1/embeddings", { model, input, pooling: "last", ...more }, as("sk-alice"));
      assert.equal(response.status, 200);
      const { usage } = await response.json();
      // The engine publishes counters one step after its answers.
      const after = await until(async () => {
        const now = await counts();
        return now.prompts === before.prompts + usage.prompt_tokens && now;
      }, "the prompt is counted");
      return after.hits - before.hits;
    };
    assert.equal(await embed({ cache_salt: "e" }), 0);
    assert.ok((await embed({ cache_salt: "e" })) > 8);
    assert.equal(await embed({ cache_salt: "f" }), 0);
  });
});

test("without keys all clients share prompts", async () => {
  await serving([], async (server) => {
    const prompt = randomPrompt(random(8), 48);
    assert.equal(await cached(server, prompt), 0);
    assert.equal(await cached(server, prompt), 47);
    assert.equal(await cached(server, prompt, "sk-any"), 47);
  });
});

test("a resumed stream keeps its salt", async () => {
  await serving(["--api-key-file", keys], async (server) => {
    const prompt = randomPrompt(random(9), 40);
    const body = { model, prompt, max_tokens: 300, ignore_eos: true, seed: 1, stream: true, cache_salt: "r" };
    const whole = await (await post(server, "/v1/completions", { ...body, stream: false }, as("sk-alice"))).json();
    const cut = new AbortController();
    const response = await post(server, "/v1/completions", body, { ...as("sk-alice"), signal: cut.signal });
    let id,
      text = "",
      buffer = "";
    for await (const bytes of response.body) {
      buffer += new TextDecoder().decode(bytes);
      if (buffer.split("\n\n").length > 5) break;
    }
    cut.abort();
    for (const frame of buffer.split("\n\n").slice(0, -1)) {
      id = /^id: (.*)$/m.exec(frame)[1];
      text += JSON.parse(/^data: (.*)$/m.exec(frame)[1]).choices[0].text;
    }
    const again = await post(server, "/v1/completions", body, {
      headers: { ...as("sk-alice").headers, "Last-Event-ID": id },
    });
    assert.equal(again.status, 200, await again.clone().text());
    for await (const event of sse(again)) text += event.choices?.[0]?.text ?? "";
    assert.equal(text, whole.choices[0].text);
    assert.equal(await cached(server, [...prompt, 299], "sk-alice"), 0, "nothing of it is anybody else's");
    assert.ok((await cached(server, [...prompt, 299], "sk-alice", { cache_salt: "r" })) >= 40);
  });
});

test("priority has the server's limit", async () => {
  const ask = (server, priority) => chat(server, { messages: user("x"), max_tokens: 1, priority });
  await serving([], async (server) => {
    assert.equal((await ask(server, 0)).status, 200);
    assert.equal((await ask(server, -7)).status, 200);
    const response = await ask(server, 1);
    assert.equal(response.status, 400);
    const { error } = await response.json();
    assert.equal(error.param, "priority");
    assert.match(error.message, /expected at most/);
  });
  await serving(["--max-priority", "3"], async (server) => {
    assert.equal((await ask(server, 3)).status, 200);
    assert.equal((await ask(server, 4)).status, 400);
  });
});

// Deadlines are short and answers endless, so that only the deadline can end them.
const endless = { model, prompt: "Once", max_tokens: 3900, ignore_eos: true };
const timeout = (ms) => ({ headers: { "X-Request-Timeout-Ms": String(ms) } });

async function check504(response) {
  assert.equal(response.status, 504);
  assert.equal(response.headers.get("x-should-retry"), "false");
  const { error } = await response.json();
  assert.equal(error.code, "deadline_exceeded");
  assert.equal(error.type, "server_error");
}

test("a request's deadline ends it with 504, or its stream with an error frame", async () => {
  await serving(["--keepalive-ms", "50"], async (server) => {
    await check504(await post(server, "/v1/completions", endless, timeout(300)));
    const stream = await post(server, "/v1/completions", { ...endless, stream: true }, timeout(1500));
    if (stream.status !== 200)
      await check504(stream); // a machine so busy that no token came
    else {
      const events = [];
      for await (const event of sse(stream)) events.push(event);
      const failed = events.find((e) => e.error);
      assert.equal(failed.error.code, "deadline_exceeded");
      assert.ok(events.indexOf(failed) >= events.length - 2, "the stream ends there");
      assert.ok(events[0].choices[0].text.length, "tokens came before it");
    }
    const anthropic = await post(
      server,
      "/v1/messages",
      { model, messages: user("x"), max_tokens: 3900, top_k: 50, temperature: 1 },
      timeout(1),
    );
    assert.equal(anthropic.status, 504);
    assert.equal((await anthropic.json()).error.type, "timeout_error");
    await check504(
      await post(server, "/v1/embeddings", { model, input: Array(500).fill("many words ".repeat(50)) }, timeout(50)),
    );
    await until(
      async () =>
        (await metrics(server)).get("inferd_kv_blocks_free") === (await metrics(server)).get("inferd_kv_blocks"),
      "all is free",
    );
    assert.ok((await metrics(server)).get("inferd_overdue_total") >= 1);
    await until(
      async () =>
        (await metrics(server)).get('inferd_http_requests_total{route="/v1/completions",method="POST",code="504"}') >=
        1,
      "it is counted",
    );
    const ok = await post(server, "/v1/completions", { ...endless, max_tokens: 2 }, timeout(60000));
    assert.equal(ok.status, 200);
  });
});

test("request-timeout-s limits requests with and without the header", async () => {
  await serving(["--request-timeout-s", "1"], async (server) => {
    await check504(await post(server, "/v1/completions", endless));
    await check504(await post(server, "/v1/completions", endless, timeout(10 ** 9)));
    await check504(await post(server, "/v1/completions", endless, timeout("9".repeat(40))));
  });
});

test("queued requests have a deadline, too", async () => {
  await serving(["--max-sequences", "1"], async (server) => {
    const cut = new AbortController();
    const long = post(server, "/v1/completions", { ...endless, stream: true }, { signal: cut.signal });
    assert.equal((await long).status, 200);
    await check504(await post(server, "/v1/completions", { ...endless, max_tokens: 1 }, timeout(200)));
    cut.abort();
  });
});

test("a wrong timeout is refused", async () => {
  await serving([], async (server) => {
    for (const bad of ["0", "1.5", "-1", "10s", "abc"]) {
      const response = await post(server, "/v1/completions", { ...endless, max_tokens: 1 }, timeout(bad));
      assert.equal(response.status, 400, bad);
      assert.equal((await response.json()).error.param, "X-Request-Timeout-Ms");
    }
  });
});

// Each letter has a hundred parses that stay open until the end, so computing the next letters costs
// some 50 steps. Each letter may be followed by `then`.
const ways = Array.from({ length: 100 }, (_, i) => `w${i}`);
const dear = (then) => ({
  messages: user("x0"),
  max_tokens: 400,
  seed: 0,
  structured_outputs: {
    grammar: [`root ::= ${ways.join(" | ")}`, ...ways.map((w, i) => `${w} ::= [a-z ] ${w} ${then} | "~${i}"`)].join(
      "\n",
    ),
  },
});

test("a grammar with expensive masks does not delay other requests", async () => {
  await serving([], async (server) => {
    let stop = false,
      n = 0;
    const cut = new AbortController();
    const other = (async () => {
      for (let seed = 0; !stop; seed++) {
        const body = { ...endless, prompt: "Once " + seed, seed, stream: true };
        for await (const event of sse(await post(server, "/v1/completions", body, { signal: cut.signal })))
          n += event.choices ? 1 : 0;
      }
    })().catch((e) => e.name === "AbortError" || Promise.reject(e));
    try {
      await until(() => n > 5, "the other stream runs");
      const before = n;
      let mine = 0;
      for await (const event of sse(await chat(server, { ...dear(""), stream: true }))) {
        if (event.choices?.[0]?.delta?.content) mine++;
        if (mine === 8) break;
      }
      assert.ok(n > before, "the other stream goes on");
      const m = await metrics(server);
      assert.ok(m.get("inferd_grammar_masks_deferred_total") > 0);
      assert.ok(m.get('inferd_grammar_mask_seconds_total{thread="background"}') > 0);
    } finally {
      stop = true;
      cut.abort();
      await other;
    }
  });
});

test("an answer that the grammar's matcher cannot follow ends with 400", { skip: whole }, async () => {
  await serving(["--grammar-work-s", "0"], async (server) => {
    const response = await chat(server, dear('"x"'));
    assert.equal(response.status, 400);
    assert.equal((await response.json()).error.code, "unsupported_value");
  });
});

test("a grammar that stays too expensive ends its request", { skip: whole }, async () => {
  await serving(["--grammar-work-s", "1"], async (server) => {
    const response = await chat(server, dear(""));
    assert.equal(response.status, 400);
    const { error } = await response.json();
    assert.equal(error.code, "work_limit_exceeded");
    assert.match(error.message, /more work than this server allows/);
    // The engine publishes its counters after the step in which the answer ended.
    await until(async () => (await metrics(server)).get("inferd_grammar_masks_given_up_total") === 1, "it is counted");
    assert.equal((await chat(server, { messages: user("x"), max_tokens: 3 })).status, 200);
  });
});
