// A daemon is killed at random moments while batches run: each custom_id is answered once, whatever was interrupted.
// KILLS=n sets how often; the whole set has 120.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import OpenAI, { toFile } from "openai";
import { long, modelName, patience, startServer, until, user } from "./server.mjs";

const KILLS = Number(process.env.KILLS ?? (long ? 120 : 6));
const BATCHES = Math.ceil(KILLS / 3);
const LINES = 40;
const url = "/v1/chat/completions";

// The same numbers in each run.
let state = 12345;
const random = (n) => (state = (state * 1103515245 + 12345) & 0x7fffffff) % n;

test(`${KILLS} kills: every custom_id is answered once, as by a live request`, async () => {
  const server = await startServer(["--max-sequences", "8"]);
  const client = () => new OpenAI({ baseURL: server.url + "/v1", apiKey: "none", maxRetries: 0 });
  const body = (i) => ({
    model: modelName,
    messages: user(`What is ${i}?`),
    max_tokens: i % 7 === 3 ? 1 : 30,
    temperature: i % 9 === 4 ? 9 : 0,
    ignore_eos: true,
  });
  const rows = Array.from({ length: LINES }, (_, i) => ({ custom_id: `r-${i}`, method: "POST", url, body: body(i) }));
  const text = rows.map((r) => JSON.stringify(r) + "\n").join("");
  let kills = 0;
  const seen = {};
  try {
    const wanted = new Map();
    for (const r of rows.filter((r) => r.body.temperature === 0))
      wanted.set(r.custom_id, (await client().chat.completions.create(r.body)).choices[0].message.content);
    for (let b = 0; b < BATCHES; b++) {
      const file = await client().files.create({ file: await toFile(Buffer.from(text), "in.jsonl"), purpose: "batch" });
      let batch = await client().batches.create({ input_file_id: file.id, endpoint: url, completion_window: "24h" });
      for (const end = Date.now() + 120000 * patience; !/completed|failed|expired/.test(batch.status);) {
        assert.ok(Date.now() < end, "the batch ends");
        if (kills < Math.ceil((KILLS * (b + 1)) / BATCHES)) {
          // At once, among lines, or where the files are written.
          const late = kills % 3 === 2;
          for (let i = 0; late && i < 2000 && batch.request_counts.completed < LINES - 20; i++)
            batch = await client().batches.retrieve(batch.id);
          if (kills % 3) await new Promise((r) => setTimeout(r, random(late ? 40 : 120)));
          const { status } = await client().batches.retrieve(batch.id);
          seen[status] = (seen[status] ?? 0) + 1;
          await server.restart("SIGKILL");
          kills++;
        }
        await new Promise((r) => setTimeout(r, 20));
        batch = await client().batches.retrieve(batch.id);
      }
      assert.equal(batch.status, "completed", JSON.stringify(batch));
      const read = async (id) =>
        (await (await client().files.content(id)).text())
          .split("\n")
          .filter(Boolean)
          .map((t) => JSON.parse(t));
      const [output, errors] = [await read(batch.output_file_id), await read(batch.error_file_id)];
      const ids = [...output, ...errors].map((o) => o.custom_id);
      assert.deepEqual([ids.length, new Set(ids).size], [LINES, LINES]);
      for (const o of output) assert.equal(o.response.body.choices[0].message.content, wanted.get(o.custom_id));
      for (const o of errors) assert.equal(o.response.status_code, 400);
      assert.deepEqual(batch.request_counts, { total: LINES, completed: output.length, failed: errors.length });
      const tokens = output.reduce((n, o) => n + o.response.body.usage.completion_tokens, 0);
      assert.equal(batch.usage.output_tokens, tokens);
      for (const id of [file.id, batch.output_file_id, batch.error_file_id]) await client().files.delete(id);
    }
    const db = join(server.folder, "registry.db");
    assert.equal(execFileSync("sqlite3", [db, "PRAGMA integrity_check"], { encoding: "utf8" }).trim(), "ok");
    const count = () => execFileSync("sqlite3", [db, "SELECT count(*) FROM batch_lines"], { encoding: "utf8" }).trim();
    await until(() => count() === "0", "lines of batches that ended are removed");
    const left = readdirSync(db + ".files").filter((n) => n !== "lock");
    // What interrupted ends left goes a day later.
    const old = Date.now() / 1000 - 2 * 86400;
    for (const name of left) utimesSync(join(db + ".files", name), old, old);
    await server.restart();
    assert.deepEqual(readdirSync(db + ".files"), ["lock"]);
    console.log(
      `# ${kills} kills at ${JSON.stringify(seen)}; ${left.length} files of interrupted ends wait to be removed`,
    );
    assert.ok(kills >= KILLS - 1 || kills > 3, `${kills} kills`);
  } finally {
    await server.stop();
  }
});
