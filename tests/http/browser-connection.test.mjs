// A server that asks for a key, and one that is away for a while.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { ask, expectProblem, load, noProblems, openPage, skip } from "./browser_page.mjs";
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
  await box.fill("wrong-key");
  await box.press("Enter");
  await page.getByText("The one it was given is not right.").waitFor();
  await box.fill("right-key");
  await box.press("Enter");
  await page.locator('#state[data-state="ready"]').waitFor();
  expectProblem(it, /status of 401/);
  assert.equal(await box.isVisible(), false);
  await ask(page, "Hello!");
  assert.equal(await page.locator(".error").count(), 0);
  await load(it, "/#dashboard");
  await until(async () => (await page.locator(".graph .big").first().textContent()) !== "–", "/metrics is read with the key");
  const stored = await page.evaluate(() => [JSON.stringify(localStorage), JSON.stringify(sessionStorage)]);
  assert.equal(stored[0].includes("right-key"), false);
  assert.equal(stored[1].includes("right-key"), true);
});

test("the page finds a server again that was away; what was typed is still there", { skip }, async () => {
  const { page, server } = it, port = new URL(server.url).port;
  await load(it);
  await page.fill("#input", "Hello again!");
  await server.stop();
  await page.press("#input", "Enter");
  await page.getByText("The server cannot be reached.").waitFor();
  await page.locator('#state[data-state="away"]').waitFor();
  assert.equal(await page.locator("#send").isDisabled(), true);
  await it.shot("away");
  it.server = await startServer(["--api-key-file", join(folder, "keys"), "--port", port]);
  await page.locator('#state[data-state="ready"]').waitFor();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator("#stop").waitFor({ state: "hidden" });
  assert.equal(await page.locator(".error").count(), 0);
  assert.ok((await page.locator(".message.assistant .text").last().textContent()).length > 0);
  expectProblem(it, /ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/);
});

noProblems(it);
