// The page in headless Chromium: type, send, see streamed text, stop it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { metrics, startServer, until } from "./server.mjs";

const executablePath = execFileSync("scripts/find-chromium").toString().trim();
const skip = executablePath ? false : "no Chromium on this machine";
// Where to keep screenshots; none are taken without it.
const shots = process.env.SCREENSHOTS;

let server, browser, page;
const problems = [];
before(async () => {
  if (skip) return;
  server = await startServer();
  browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  page = await browser.newPage({ viewport: { width: 1000, height: 720 } });
  page.on("console", (m) => m.type() === "error" && problems.push(m.text()));
  page.on("pageerror", (e) => problems.push(String(e)));
  if (shots) mkdirSync(shots, { recursive: true });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

async function shot(name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
}

test("the page loads and offers the model", { skip }, async () => {
  await page.goto(server.url + "/");
  await page.waitForFunction(() => document.querySelector("#model").options.length > 0);
  const ids = await page.$$eval("#model option", (options) => options.map((o) => o.value));
  assert.ok(ids.includes("inferd-demo"));
  await shot("empty");
});

test("a typed message gets a streamed answer", { skip }, async () => {
  // Every length that the answer's text has on the page, noted there: it grows faster than we can ask.
  await page.evaluate(() => {
    window.lengths = [];
    new MutationObserver(() => {
      const text = document.querySelector(".message.assistant .text");
      if (text?.textContent) window.lengths.push(text.textContent.length);
    }).observe(document.querySelector("#log"), { childList: true, subtree: true, characterData: true });
  });
  await page.click("#settings summary");
  await page.fill("#temperature", "0");
  await page.fill("#input", "Tell me a story about a fox.");
  await page.keyboard.press("Enter");
  const answer = page.locator(".message.assistant .text").first();
  await until(async () => {
    return (await answer.textContent()) && (await page.locator(".message.running").count()) === 0;
  }, "the answer ends");
  const steps = new Set(await page.evaluate(() => window.lengths));
  assert.ok(steps.size > 10, `it grew in ${steps.size} steps`);
  assert.match(await answer.textContent(), /fox/i);
  assert.match(await page.locator(".message.assistant .meta").first().textContent(), /tokens\/s/);
  await shot("answered");
});

test("an answer can be stopped, and the server stops too", { skip }, async () => {
  // The model would end by itself after a second: let it go on until it is stopped.
  await page.route("**/v1/chat/completions", (route) =>
    route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true }) }),
  );
  await page.fill("#input", "Tell me a very long story about two brothers and a dragon.");
  await page.keyboard.press("Enter");
  const answer = page.locator(".message.assistant .text").nth(1);
  await until(async () => (await answer.textContent()).length > 0, "text appears");
  await page.click("#stop");
  await page.locator(".message.running").waitFor({ state: "detached" });
  const text = await answer.textContent();
  assert.match(await page.locator(".message.assistant .meta").nth(1).textContent(), /stopped/);
  await until(async () => (await metrics(server)).get("inferd_sequences_running") === 0, "nothing runs on the server");
  assert.equal(await answer.textContent(), text, "no more text after the stop");
  await shot("stopped");
});

test("a phone's width has no sideways scroll, dark mode works", { skip }, async () => {
  await page.setViewportSize({ width: 360, height: 640 });
  await page.emulateMedia({ colorScheme: "dark" });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await shot("phone-dark");
});

test("no errors in the console", { skip }, () => {
  assert.deepEqual(problems, []);
});
