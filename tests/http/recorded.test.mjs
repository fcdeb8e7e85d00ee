// What clients send by default, as their sources say (tests/data/clients): each body is answered with 200 in the form that
// the client reads, and what is ignored of it is named.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { post, sse, startServer } from "./server.mjs";

const folder = "tests/data/clients";
const files = readdirSync(folder).filter((name) => name.endsWith(".json"));

// One model is served: a body without a model means it. "GPT-4" is a name that a client has built in.
let server;
before(async () => (server = await startServer(["--model-aliases", "GPT-4=inferd-demo"])));
after(() => server.stop());

// Answers by path; `body` is what was sent.
const checks = {
  "/v1/chat/completions": {
    whole(answer, body) {
      const [{ message, finish_reason, logprobs }] = answer.choices;
      assert.equal(message.role, "assistant");
      assert.ok(typeof message.content === "string" || message.tool_calls.length);
      assert.match(finish_reason, /^(stop|length|tool_calls)$/);
      assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
      if (body.logprobs) for (const one of logprobs.content) assert.equal(one.top_logprobs.length, body.top_logprobs);
    },
    stream(events, body) {
      assert.equal(events.pop(), "[DONE]");
      const usage = body.stream_options?.include_usage ? events.pop().usage : { completion_tokens: 1 };
      assert.ok(usage.completion_tokens > 0);
      assert.equal(events[0].choices[0].delta.role, "assistant");
      assert.match(events.at(-1).choices[0].finish_reason, /^(stop|length|tool_calls)$/);
    },
  },
  "/v1/completions": {
    // lm-eval sums token_logprobs of a choice from the context's length on, and compares with the best of top_logprobs.
    whole(answer, body) {
      const prompts = Array.isArray(body.prompt) ? body.prompt : [body.prompt];
      assert.deepEqual(
        answer.choices.map((c) => c.index),
        prompts.map((_, i) => i),
      );
      for (const { text, logprobs, index } of answer.choices) {
        assert.equal(typeof text, "string");
        if (!body.echo) continue;
        const { tokens, token_logprobs, top_logprobs } = logprobs;
        if (Array.isArray(prompts[index])) {
          assert.equal(tokens.length, prompts[index].length + body.max_tokens);
          assert.equal(token_logprobs[0], null);
        } else assert.ok(text.startsWith(prompts[index]));
        assert.equal(top_logprobs.length, token_logprobs.length);
        token_logprobs.slice(1).forEach((one, i) => assert.ok(one <= Math.max(...Object.values(top_logprobs[i + 1]))));
      }
    },
    stream(events, body) {
      assert.equal(events.pop(), "[DONE]");
      if (body.stream_options) assert.ok(events.pop().usage.completion_tokens > 0);
      assert.ok(events.every((e) => typeof e.choices[0].text === "string"));
    },
  },
  "/v1/embeddings": {
    whole(answer, body) {
      assert.equal(answer.data.length, [body.input].flat().length);
      const kind = body.encoding_format === "base64" ? "string" : "object";
      assert.ok(answer.data.every((d) => typeof d.embedding === kind && d.embedding.length > 8));
    },
  },
  "/api/chat": {
    stream(lines) {
      assert.equal(lines.at(-1).done, true);
      assert.equal(lines[0].message.role, "assistant");
    },
  },
};

async function read(response, path) {
  if (path.startsWith("/api/"))
    return (await response.text())
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  const events = [];
  for await (const event of sse(response)) events.push(event);
  return events;
}

for (const file of files) {
  const { client, source, requests } = JSON.parse(readFileSync(`${folder}/${file}`, "utf8"));
  test(client, async (t) => {
    assert.ok(source.length && requests.length);
    for (const { repository, file: path } of source) assert.ok(repository.includes("/") && path);
    for (const { name, path, body, ignored } of requests)
      await t.test(name, async () => {
        const response = await post(server, path, body);
        assert.equal(response.status, 200, await response.clone().text());
        const named = response.headers.get("x-inferd-ignored-fields");
        assert.equal(named ?? "", ignored.join(", "));
        const { whole, stream } = checks[path];
        if (body.stream) stream(await read(response, path), body);
        else whole(await response.json(), body);
      });
  });
}
