// Windows that are left, and several windows with one answer: it runs in one of them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ask, ended, hurry, load, noProblems, openPage, otherWindow, skip, slowly } from "./browser_page.mjs";
import { until } from "./server.mjs";

// Enough is kept of an answer that comes faster than a slow page takes it.
const it = openPage(["--resume-buffer-bytes", "4M"]);
const text = (page) => page.locator(".message.assistant .text").last().innerText();
let whole;

// Sends a message whose long answer comes slowly, and waits for its first words.
async function begin(page) {
  await page.click("#new-chat");
  await slowly(page);
  await page.fill("#input", "Tell me a story about a bear.");
  await page.press("#input", "Enter");
  await until(async () => (await text(page)).length > 20, "text appears");
}

test("an answer that nothing disturbs", { skip }, async () => {
  const { page } = it;
  await page.context().route("**/v1/chat/completions", (route) => {
    const body = route.request().postDataJSON();
    route.continue(
      body.messages
        ? { postData: JSON.stringify({ ...body, temperature: 0, ignore_eos: true, max_tokens: 1500 }) }
        : {},
    );
  });
  await load(it);
  await ask(page, "Tell me a story about a bear.");
  whole = await text(page);
  assert.ok(whole.length > 1000);
});

test("an answer that has just ended is there after a reload", { skip }, async () => {
  const { page } = it;
  await begin(page);
  await until(() => page.evaluate(readEvent), "it is saved as it is so far");
  // A slow disk: nothing is written any more before the page is left.
  await page.evaluate(() => {
    const { transaction } = IDBDatabase.prototype;
    IDBDatabase.prototype.transaction = function (names, mode) {
      return mode === "readwrite" ? { objectStore: () => ({ put: () => {} }) } : transaction.call(this, names, mode);
    };
  });
  await hurry(page);
  await ended(page);
  for (let i = 0; i < 2; i++) {
    await load(it);
    assert.equal(await text(page), whole);
    assert.match(await page.locator(".message.assistant .meta").textContent(), /1,500 answer tokens/);
    assert.equal(await page.locator(".error").count(), 0);
    await until(async () => !(await page.evaluate(readEvent)), "it is saved as ended");
  }
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((k) => k.includes(".left."))), []);
});

test("a window that comes back has its answer, though another one hears of it meanwhile", { skip }, async () => {
  const { page } = it;
  await begin(page);
  const { other, asked, heard } = await otherWindow(it);
  const last = await until(async () => (await heard()).findLast((m) => m.row?.running), "the window saves what it has");
  const left = Date.now();
  await page.goto("about:blank");
  // What the window said before it was left arrives late.
  const hear = (m) => other.evaluate((data) => new BroadcastChannel("inferd.chats").postMessage(data), m);
  const asks = async () => Boolean((await heard()).findLast((m) => m.who ?? m.runs)?.who);
  await until(async () => {
    await hear(last);
    return asked.length > 0 || (await asks());
  }, "the other window asks who has the answer");
  assert.equal(asked.length, 0, "it waits for the window that had it");
  await load(it);
  await until(
    async () => (await heard()).some((m) => m.runs && m.runs.since > left),
    "it is told that the window is back",
  );
  assert.equal(await page.locator("#stop").isVisible(), true, "the answer goes on here");
  await hurry(page);
  await ended(page);
  assert.equal(await text(page), whole);
  assert.equal(await page.locator(".error").count(), 0);
  assert.equal(asked.length, 0);
  await other.close();
});

test("an answer whose window was closed goes on in another one", { skip }, async () => {
  const { page } = it,
    closed = await page.context().newPage();
  await load(it, "/", closed);
  await begin(closed);
  const { other, asked, heard, lapse } = await otherWindow(it);
  await until(async () => (await heard()).some((m) => m.runs), "it is told who has the answer");
  await closed.close({ runBeforeUnload: true });
  await until(async () => closed.isClosed(), "the window is gone");
  await load(it, "/", other);
  await until(async () => (await heard()).some((m) => m.who), "it asks who has the answer");
  assert.equal(asked.length, 0);
  await lapse();
  await until(() => asked.length === 1, "no window answers, so it resumes the stream");
  await ended(other);
  assert.equal(await text(other), whole);
  assert.equal(await other.locator(".error").count(), 0);
  await other.close();
});

// A window may be unable to answer for a while: a browser stops those that are not seen for long.
test("of two windows that run an answer, one lets go of it", { skip }, async () => {
  const { page } = it;
  await load(it);
  await begin(page);
  await until(() => page.evaluate(readEvent), "it saves what it has");
  await page.evaluate(() => {
    const { postMessage } = BroadcastChannel.prototype;
    BroadcastChannel.prototype.postMessage = function (message) {
      if (!message.runs) postMessage.call(this, message);
    };
  });
  const { other, asked, heard, lapse } = await otherWindow(it);
  await slowly(other);
  await until(async () => (await heard()).some((m) => m.who), "it asks who has the answer");
  await lapse();
  await until(() => asked.length > 0, "it goes on with the answer");
  await page.locator("#stop").waitFor({ state: "hidden" });
  const before = asked.length;
  const n = (await text(other)).length;
  await until(async () => (await text(other)).length > n + 40, "it grows there");
  // The first window may have asked once before it heard of the other.
  assert.ok(asked.length <= before + 1, "the stream is not taken over repeatedly");
  await hurry(other);
  await ended(other);
  assert.equal(await text(other), whole);
  await until(async () => (await text(page)) === whole, "the first window shows it, too");
  for (const p of [page, other]) assert.equal(await p.locator(".error").count(), 0);
  // Its stream may end before it hears of the other window.
  it.problems = it.problems.filter((p) => !/ERR_INCOMPLETE_CHUNKED_ENCODING/.test(p));
  await other.close();
});

// Is there an answer in the database that can be gone on with?
const readEvent = () =>
  new Promise((resolve) => {
    indexedDB.open("inferd").onsuccess = ({ target: { result: db } }) => {
      db.transaction("chats").objectStore("chats").getAll().onsuccess = ({ target }) => {
        db.close();
        resolve(target.result.some((c) => c.messages.some((m) => m.event)));
      };
    };
  });

noProblems(it);
