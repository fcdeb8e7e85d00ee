// A server that asks for a key, and one that is away for a while.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { ask, expectProblem, load, newPage, noProblems, openPage, skip } from "./browser_page.mjs";
import { startServer, until } from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "inferd-key-"));
writeFileSync(join(folder, "keys"), "right-key\n", { mode: 0o600 });
after(() => rmSync(folder, { recursive: true, force: true }));
const it = openPage(["--api-key-file", join(folder, "keys")]);

test("a key is asked for, tried, and kept for this browser tab only", { skip }, async () => {
  const { page, server } = it;
  await page.goto(server.url);
  const box = page.getByRole("textbox", { name: "API key" }).first();
  await box.waitFor();
  await until(() => box.evaluate((el) => el === document.activeElement), "the field has the focus");
  await it.shot("key");
  await page.waitForResponse((r) => r.url().endsWith("/readyz"));
  assert.equal(it.problems.filter((p) => /status of 401/.test(p)).length, 1, "it asks for the models once");
  await box.fill("wrong-key");
  await box.press("Enter");
  await page.getByText("The key was not accepted.").waitFor();
  await box.fill("right-key");
  await box.press("Enter");
  await page.locator('#state[data-state="ready"]').waitFor();
  expectProblem(it, /status of 401/);
  assert.equal(await box.isVisible(), false);
  await ask(page, "Hello!");
  assert.equal(await page.locator(".error").count(), 0);
  await load(it, "/#dashboard");
  await until(
    async () => (await page.locator(".graph .big").first().textContent()) !== "–",
    "/metrics is read with the key",
  );
  const stored = await page.evaluate(() => [JSON.stringify(localStorage), JSON.stringify(sessionStorage)]);
  assert.equal(stored[0].includes("right-key"), false);
  assert.equal(stored[1].includes("right-key"), true);
});

test("the page finds a server again that was away; what was typed is still there", { skip }, async () => {
  const { page, server } = it,
    port = new URL(server.url).port;
  await load(it);
  await page.fill("#input", "Hello again!");
  // The page must not notice before the message is sent: then it would not send it.
  await page.route("**/readyz", () => {}); // until unroute()
  await page.waitForRequest("**/readyz");
  await server.stop();
  await page.press("#input", "Enter");
  await page.getByText("The server cannot be reached.").waitFor();
  await page.unroute("**/readyz");
  await page.locator('#state[data-state="away"]').waitFor();
  assert.equal(await page.locator("#send").isDisabled(), true);
  await it.shot("away");
  it.server = await startServer(["--api-key-file", join(folder, "keys"), "--port", port]);
  await page.locator('#state[data-state="ready"]').waitFor();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator("#stop").waitFor({ state: "hidden" });
  assert.equal(await page.locator(".error").count(), 0);
  assert.ok((await page.locator(".message.assistant .text").last().textContent()).length > 0);
  expectProblem(it, /ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|status of 503/, { late: true });
});

test("within a second the header says that the server has gone, and that it is back", { skip }, async () => {
  const page = await newPage(it),
    port = new URL(it.server.url).port,
    state = (name) => page.locator(`#state[data-state="${name}"]`).waitFor();
  await page.clock.install();
  await page.goto(it.server.url);
  await state("locked");
  await page.fill("#key-input", "right-key");
  await page.press("#key-input", "Enter");
  await state("ready");
  await page.clock.pauseAt(Date.now() + 5000);
  await it.server.stop("SIGKILL");
  // The page's clock stands still: it moves by one second, which must be enough.
  await page.clock.runFor(1000);
  await page.locator("#state", { hasText: "server away" }).waitFor();
  await state("away");
  it.server = await startServer(["--api-key-file", join(folder, "keys"), "--port", port]);
  await page.clock.runFor(1000);
  await state("ready");
  expectProblem(it, /ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|status of (401|503)/, {
    late: true,
  });
  await page.context().close();
});

test("an answer that the server has not kept says that it is incomplete", { skip }, async () => {
  const { page } = it,
    port = new URL(it.server.url).port;
  await load(it);
  await page.route(
    "**/v1/chat/completions",
    (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true }) }),
    { times: 1 },
  );
  await page.click("#new-chat");
  await page.fill("#input", "Tell me a story about a bear.");
  await page.press("#input", "Enter");
  const answer = page.locator(".message.assistant .text").last();
  await until(async () => (await answer.textContent()).length > 20, "text appears");
  await page.goto("about:blank");
  await it.server.stop();
  it.server = await startServer(["--api-key-file", join(folder, "keys"), "--port", port]);
  await load(it);
  await page.getByText("This answer is incomplete").waitFor();
  assert.ok((await answer.textContent()).length > 0, "what had come is kept");
  expectProblem(it, /status of 404/);
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator("#stop").waitFor({ state: "hidden" });
  assert.equal(await page.locator(".error").count(), 0);
});

// Passes connections on to the server; cuts as many streams as told, each inside its fourth event.
async function startProxy(port) {
  const proxy = { cuts: 0, sockets: new Set() };
  proxy.server = createServer((client) => {
    const server = connect(port, "127.0.0.1");
    let events = 0;
    for (const s of [client, server]) proxy.sockets.add(s.on("error", () => {}));
    server.on("data", (bytes) => {
      const text = bytes.toString("latin1");
      if (text.startsWith("HTTP/1.1 ")) events = 0; // a connection serves many requests
      const at = [...text.matchAll(/data: \{"id"/g)][3 - events]?.index;
      events += text.split('data: {"id"').length - 1;
      if (!proxy.cuts || at === undefined) return client.write(bytes);
      proxy.cuts--;
      client.write(bytes.subarray(0, at + 20));
      server.pause();
      // A browser drops what it has not handed out yet when a connection ends in the middle.
      return setTimeout(() => server.destroy(), 300);
    });
    client.on("data", (bytes) => server.write(bytes)).on("close", () => server.destroy());
    server.on("close", () => client.destroy());
  });
  await new Promise((resolve) => proxy.server.listen(0, "127.0.0.1", resolve));
  proxy.url = `http://127.0.0.1:${proxy.server.address().port}`;
  proxy.stop = () => {
    for (const s of proxy.sockets) s.destroy();
    proxy.server.close();
  };
  return proxy;
}

test("an answer whose connection breaks goes on where it was", { skip }, async () => {
  const { page } = it,
    proxy = await startProxy(new URL(it.server.url).port);
  after(() => proxy.stop());
  await page.goto(proxy.url);
  await page.fill("#key-input", "right-key");
  await page.press("#key-input", "Enter");
  await page.locator('#state[data-state="ready"]').waitFor();
  expectProblem(it, /status of 401/);
  await page.click("#open-settings");
  await page.fill("#chat-temperature", "0");
  const story = "Tell me a story about a fox.",
    texts = [];
  for (const cuts of [0, 2]) {
    proxy.cuts = cuts;
    await page.click("#new-chat");
    await ask(page, story);
    texts.push(await page.locator(".message.assistant .text").innerText());
    assert.equal(proxy.cuts, 0, "the connection was cut");
    assert.equal(await page.locator(".error").count(), 0);
  }
  assert.ok(texts[0].length > 200);
  assert.equal(texts[1], texts[0]);
  expectProblem(it, /ERR_CONNECTION_RESET|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE/);
});

test("a page that is left while its connection is broken goes on where it was", { skip }, async () => {
  const { page } = it,
    proxy = await startProxy(new URL(it.server.url).port),
    answer = page.locator(".message.assistant .text");
  after(() => proxy.stop());
  await page.goto(proxy.url);
  await page.fill("#key-input", "right-key");
  await page.press("#key-input", "Enter");
  await page.locator('#state[data-state="ready"]').waitFor();
  await page.click("#open-settings");
  await page.fill("#chat-temperature", "0");
  await ask(page, "Tell me a story about a fox.");
  const whole = await answer.innerText();
  const away = (route) => (route.request().headers()["last-event-id"] ? route.abort() : route.continue());
  await page.route("**/v1/chat/completions", away);
  proxy.cuts = 1;
  await page.click("#new-chat");
  await page.fill("#input", "Tell me a story about a fox.");
  await page.press("#input", "Enter");
  await page.locator(".meta", { hasText: "resuming after a break" }).waitFor();
  await page.goto("about:blank");
  await page.unroute("**/v1/chat/completions", away);
  await page.goto(proxy.url);
  await until(async () => (await answer.count()) && (await answer.innerText()) === whole, "the whole answer is there");
  await page.locator("#stop").waitFor({ state: "hidden" });
  assert.equal(await answer.innerText(), whole);
  assert.equal(await page.locator(".error").count(), 0);
  it.problems = it.problems.filter(
    (p) => !/ERR_(FAILED|CONNECTION_RESET|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)|status of 401/.test(p),
  );
});

// The dashboard asks for the models that administrators manage; this server's key is not one of theirs.
test("what only administrators may see is refused", { skip }, () => {
  it.problems = it.problems.filter((p) => !/403 .*\/v1\/inferd\/models$/.test(p));
});
noProblems(it);
