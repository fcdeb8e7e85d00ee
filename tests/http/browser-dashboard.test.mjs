// The dashboard: its figures move while the server works, and are the server's.
import assert from "node:assert/strict";
import { test } from "node:test";
import { expectProblem, load, noProblems, noSidewaysScroll, openPage, skip } from "./browser_page.mjs";
import { chat, metrics, sleep, until, user } from "./server.mjs";

const it = openPage(["--max-sequences", "2"]);
const graph = (title) => it.page.locator(`section.graph[aria-label="${title}"]`);
const big = (title) => graph(title).locator(".big").textContent();
const value = (title, label) => graph(title).locator("dl div", { hasText: label }).locator("dd").textContent();

test("figures move while answers run", { skip }, async () => {
  const { page, server } = it;
  await load(it, "/#dashboard");
  assert.equal(await page.getByRole("tab", { selected: true }).first().textContent(), "Dashboard");
  const stop = new AbortController();
  const long = {
    messages: user("Tell me a story about a fox and a bear."),
    ignore_eos: true,
    stream: true,
    max_tokens: 7000,
  };
  const runs = Array.from({ length: 3 }, () =>
    chat(server, long, { signal: stop.signal })
      .then((r) => r.text())
      .catch(() => {}),
  );
  await until(async () => (await big("Batch size")) === "2", "two run");
  await until(async () => (await big("Queue length")) === "1", "one waits");
  const speeds = new Set(),
    used = new Set();
  await until(async () => {
    speeds.add(await big("Tokens per second"));
    used.add(await big("KV blocks"));
    return speeds.size > 4 && used.size > 3;
  }, "speed and blocks change");
  assert.match([...used].at(-1), /^[1-9][\d,]* of [\d,]+$/);
  const line = await graph("KV blocks").locator(".line.s0").getAttribute("d");
  assert.ok(line.match(/[ML]/g).length > 3, `the line has points: ${line}`);
  await it.shot("dashboard");
  stop.abort();
  await Promise.all(runs);
  await until(async () => (await big("Batch size")) === "0", "the batch is empty again");
});

test("the texts are what /metrics says", { skip }, async () => {
  const { server, page } = it,
    prompt = user("Tell me a story about a cat who lives in a house by the sea and likes fish.");
  for (let i = 0; i < 3; i++) await (await chat(server, { messages: prompt, max_tokens: 5 })).text();
  assert.equal((await chat(server, { messages: prompt, temperature: 9 })).status, 400);
  const m = await metrics(server),
    shown = (n) => m.get(n).toLocaleString("en-US");
  await until(
    async () =>
      (await value("Prompt tokens from the prefix cache", "cached prompt tokens")) ===
      shown("inferd_prefix_cache_hit_tokens_total"),
    "the dashboard has caught up",
  );
  assert.equal(await value("Tokens per second", "generated in total"), shown("inferd_generated_tokens_total"));
  assert.equal(await value("KV blocks", "total"), shown("inferd_kv_blocks"));
  assert.equal(await value("Preemptions per second", "in all"), shown("inferd_preemptions_total"));
  assert.equal(await value("Requests per second", "400 in all"), "1");
  assert.match(await big("Prompt tokens from the prefix cache"), /^[\d.]+ %$/);
  assert.notEqual(await big("Prompt tokens from the prefix cache"), "0 %");
  const label = await graph("KV blocks").getByRole("img").getAttribute("aria-label");
  assert.match(label, /KV blocks over the last two minutes, now [\d,]+ of [\d,]+/);
  await page.emulateMedia({ colorScheme: "dark" });
  await it.shot("dashboard-dark");
});

test("it asks only while it can be seen", { skip }, async () => {
  const { page } = it;
  let asked = 0;
  page.on("request", (r) => (asked += r.url().endsWith("/metrics")));
  await until(() => asked >= 2, "it asks every second");
  await page.getByRole("tab", { name: "Chat" }).click();
  asked = 0;
  await sleep(2500);
  assert.equal(asked, 0);
  await page.getByRole("tab", { name: "Dashboard" }).click();
  await until(() => asked >= 1, "it asks again");
});

test("a phone's width", { skip }, async () => {
  const { page } = it;
  await page.setViewportSize({ width: 360, height: 640 });
  assert.ok(await noSidewaysScroll(page));
  assert.ok(await page.locator("#panel-dashboard").evaluate((el) => el.scrollWidth <= el.clientWidth));
  await it.shot("phone-dashboard-dark");
});

test("percentiles are those of the histogram", { skip }, async () => {
  const { page } = it;
  const found = await page.evaluate(async () => {
    const { Metrics, percentile } = await import("/metrics.js");
    const text = (counts) =>
      ["0.1", "0.2", "0.4", "+Inf"].map((le, i) => `x_bucket{le="${le}"} ${counts[i]}`).join("\n") + "\n";
    const before = new Metrics(text([10, 10, 10, 10]), 0),
      now = new Metrics(text([10, 14, 18, 20]), 1);
    return [
      [0.5, 0.9, 0.99].map((q) => percentile(before, now, "x", q)),
      percentile(null, now, "x", 0.25),
      percentile(now, now, "x", 0.5),
      percentile(null, now, "y", 0.5),
    ];
  });
  // Of ten values since: four from 0.1 to 0.2, four to 0.4, two above.
  assert.deepEqual(
    found[0].map((v) => v.toFixed(3)),
    ["0.250", "0.400", "0.400"],
  );
  assert.deepEqual(found.slice(1), [0.05, null, null]);
  const all = await value("Mean time to first token", "since the start");
  assert.match(all, /^[\d.,]+ m?s · [\d.,]+ m?s · [\d.,]+ m?s$/);
});

test("the last hour, the models and the requests are the server's", { skip }, async () => {
  const { page, server } = it;
  await page.setViewportSize({ width: 1400, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
  await load(it, "/#dashboard");
  const history = async () => (await fetch(`${server.url}/v1/inferd/history`)).json();
  await until(async () => (await history()).samples.length > 1, "two samples");
  await (await chat(server, { messages: user("Hello!"), max_tokens: 5, ignore_eos: true })).text();
  const rows = page.getByRole("region", { name: "Requests: table" }).locator("tbody tr");
  await until(async () => (await rows.count()) === (await history()).requests.length, "all requests are listed");
  const { requests, samples } = await history();
  assert.deepEqual((await rows.first().locator("td").allInnerTexts()).slice(1, 4), [
    requests[0].route,
    requests[0].model,
    "200",
  ]);
  assert.equal(await rows.first().locator("td").last().innerText(), "5");
  const models = await page.getByRole("region", { name: "Models: table" }).locator("tbody tr").allInnerTexts();
  assert.deepEqual(
    models.map((m) => m.split("\t")),
    [["inferd-demo", "loaded", "8,192", "0", "0", "demo", "Unload"]],
  );
  if (samples.at(-1).memory_bytes) assert.match(await big("Memory, last hour"), /^[\d,.]+ [MG]iB$/);
  const line = await graph("Sequences, last hour").locator(".line.s0").getAttribute("d");
  assert.ok(line.match(/[ML]/g).length >= 2, line);
  await page.locator(".last-hour").scrollIntoViewIfNeeded();
  await it.shot("dashboard-hour");
  await page.getByRole("region", { name: "Requests: table" }).scrollIntoViewIfNeeded();
  await it.shot("dashboard-requests");
});

test("a server that goes away is said to be away", { skip }, async () => {
  const { page } = it;
  await it.server.stop();
  await page.getByText("No metrics: The server cannot be reached.").waitFor();
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await page.locator('#state[data-state="away"]').waitFor();
  expectProblem(it, /ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|status of 503/, { late: true });
  it.server = null;
});

noProblems(it);
