// Every architecture of tests/golden/arch, as a Hugging Face folder and, if it is there, as a GGUF file:
// registered, served, several by one daemon, with a streamed chat.
import assert from "node:assert/strict";
import { test } from "node:test";
import { existsSync, readdirSync } from "node:fs";
import { long, startServer, streamed, user } from "./server.mjs";

const golden = "tests/golden/arch",
  together = 4;
const names = readdirSync(golden).filter((name) => !name.includes("."));
const flags = ["--kv-cache-tokens", "512", "--context-length", "64", "--max-sequences", "4"];

const models = (name) =>
  [
    { name: `${name}:folder`, file: `${golden}/${name}/hf` },
    { name: `${name}:gguf`, file: `${golden}/${name}/model.gguf` },
  ].filter((model) => existsSync(model.file));

async function check(server, name) {
  const answers = [];
  for (const model of models(name)) {
    const answer = await streamed(server, {
      model: model.name,
      messages: user("Tell me a story."),
      max_tokens: 20,
      temperature: 0,
      stream_options: { include_usage: true },
    });
    assert.ok(answer.done);
    assert.match(answer.finish, /^(length|stop)$/);
    assert.ok(answer.usage.completion_tokens > 0 && answer.usage.prompt_tokens > 5);
    answers.push(answer);
  }
  for (const answer of answers.slice(1)) {
    assert.equal(answer.text, answers[0].text);
    assert.deepEqual(answer.usage, answers[0].usage);
  }
}

// Otherwise every fourth group: test_arch has the goldens of all.
for (let i = 0; i < names.length; i += long ? together : 4 * together) {
  const some = names.slice(i, i + together);
  test(`a streamed chat, the same from the folder and from the file: ${some.join(", ")}`, async (t) => {
    const server = await startServer(flags, some.flatMap(models));
    t.after(() => server.stop());
    for (const name of some) await t.test(name, () => check(server, name));
  });
}
