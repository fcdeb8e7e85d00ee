// The page in headless Chromium, beside a real server. What the console complains about, and every
// violation of the content security policy, is a problem that the test file's last test reports.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { patience, startServer } from "./server.mjs";

const executablePath = execFileSync("scripts/find-chromium", { stdio: ["ignore", "pipe", "ignore"] })
  .toString()
  .trim();
export const skip = executablePath ? false : "no Chromium on this machine";
// Where to keep screenshots; none are taken without it.
const shots = process.env.SCREENSHOTS;

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

// One server, one browser and one page for the tests of a file: {server, page, problems, late}. flags: the server's, or
// a function that makes them.
export function openPage(flags = []) {
  const it = { problems: [], late: [], server: null, browser: null, page: null };
  before(async () => {
    if (skip) return;
    it.server = await startServer(typeof flags === "function" ? await flags() : flags);
    it.browser = await chromium.launch({ executablePath, args: FLAGS });
    it.page = await newPage(it);
    if (shots) mkdirSync(shots, { recursive: true });
  });
  after(async () => {
    await it.browser?.close();
    await it.server?.stop();
  });
  it.shot = async (name) => {
    if (shots) await it.page.screenshot({ path: `${shots}/${name}.png` });
  };
  return it;
}

export async function newPage(it, options = {}) {
  const context = await it.browser.newContext({
    viewport: { width: 1100, height: 760 },
    permissions: ["clipboard-read", "clipboard-write"],
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000 * patience);
  page.on("console", (m) => m.type() === "error" && it.problems.push(`${m.text()} ${m.location().url}`));
  page.on("pageerror", (e) => it.problems.push(String(e)));
  await page.addInitScript(() =>
    addEventListener("securitypolicyviolation", (e) =>
      console.error(`policy violated: ${e.effectiveDirective} ${e.blockedURI}`),
    ),
  );
  return page;
}

// The server and its models are known to the page.
export async function load(it, path = "/", page = it.page) {
  await page.goto(it.server.url + path);
  await page.locator('#state[data-state="ready"]').waitFor();
}

export async function ask(page, text) {
  await page.fill("#input", text);
  await page.press("#input", "Enter");
  await ended(page);
}

export async function ended(page) {
  // Slow where other suites share the processors.
  await page.locator("#stop").waitFor({ state: "hidden", timeout: 60000 });
}

// Answers the page's next chat request with these deltas, as one stream; `tail` ends it.
export async function scripted(page, deltas, tail = "data: [DONE]\n\n") {
  const chunk = (delta, finish = null) =>
    `data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const body = deltas.map((d) => chunk(d)).join("") + (tail ? chunk({}, "stop") + tail : "");
  await page.route(
    "**/v1/chat/completions",
    (route) => route.fulfill({ status: 200, contentType: "text/event-stream", body }),
    { times: 1 },
  );
}

// Answers come slowly to a page, also after a reload, until hurry(): none ends while a test does something meanwhile.
// What the page does not take stays in the sockets' buffers.
export async function slowly(page) {
  const slow = () => {
    const { fetch } = window,
      isSlow = () => sessionStorage.getItem("test.slow") !== null,
      wait = () => new Promise((resolve) => setTimeout(resolve, 50));
    window.fetch = async (path, options) => {
      const response = await fetch(path, options);
      if (!String(path).endsWith("chat/completions") || !response.ok || !isSlow()) return response;
      const reader = response.body.getReader();
      let bytes = new Uint8Array(0);
      const body = new ReadableStream({
        // A break is known at once.
        start: (to) => void reader.closed.catch((e) => to.error(e)),
        async pull(to) {
          if (!bytes.length) {
            const { value, done } = await reader.read();
            if (done) return to.close();
            bytes = value;
          }
          if (isSlow()) await wait();
          to.enqueue(bytes.slice(0, 512));
          bytes = bytes.subarray(512);
        },
        cancel: (why) => reader.cancel(why),
      });
      return new Response(body, response);
    };
  };
  await page.addInitScript(slow);
  await page.evaluate(slow);
  await page.evaluate(() => sessionStorage.setItem("test.slow", ""));
}
export const hurry = (page) => page.evaluate(() => sessionStorage.removeItem("test.slow"));

// Another window with the page's chats. What it would do after a second or more it does when told to: lapse().
// asked: the requests for answers that it sends; heard(): what windows have told each other since it opened.
export async function otherWindow(it, page = it.page) {
  const other = await page.context().newPage(),
    asked = [];
  other.on("request", (r) => r.url().endsWith("/chat/completions") && asked.push(r));
  await other.addInitScript(() => {
    const { setTimeout } = window;
    window.late = [];
    window.setTimeout = (f, ms, ...args) => (ms >= 1000 ? (window.late.push(f), 0) : setTimeout(f, ms, ...args));
    window.heard = [];
    new BroadcastChannel("inferd.chats").onmessage = ({ data }) => window.heard.push(data);
  });
  await load(it, "/", other);
  const heard = () => other.evaluate(() => window.heard),
    lapse = () => other.evaluate(() => window.late.splice(0).forEach((f) => f()));
  return { other, asked, heard, lapse };
}

// Problems that a test means to cause are taken out by it. late: the console may tell more of them later, as a
// busy machine's does of requests to a server that was away.
export function expectProblem(it, pattern, { late = false } = {}) {
  const at = it.problems.findIndex((p) => pattern.test(p));
  assert.ok(at >= 0, `the console says ${pattern}: ${JSON.stringify(it.problems)}`);
  it.problems = it.problems.filter((p) => !pattern.test(p));
  if (late) it.late.push(pattern);
}

export function noProblems(it) {
  test("no errors in the console, nothing against the policy", { skip }, () =>
    assert.deepEqual(
      it.problems.filter((p) => !it.late.some((pattern) => pattern.test(p))),
      [],
    ),
  );
}

export const noSidewaysScroll = (page) =>
  page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth);
