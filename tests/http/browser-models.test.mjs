// The panel of models: loads, unloads, pulls and cancels where the key may, and says what went wrong.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { expectProblem, load, newPage, noProblems, noSidewaysScroll, openPage, skip } from "./browser_page.mjs";
import { startHub } from "./hub.mjs";
import { binary, modelFile, startServer, until } from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "inferd-panel-"));
let hub;
const it = openPage(async () => {
  hub = await startHub(folder, { "tiny.gguf": readFileSync(modelFile) });
  const small = ["--kv-cache-tokens", "4096", "--max-models", "2"];
  return [...small, "--models-dir", join(folder, "models"), "--hf-endpoint", hub.url];
});
after(() => {
  hub?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const row = (name, page = it.page) =>
  page.getByRole("region", { name: "Models: table" }).locator("tbody tr", { hasText: name });
const state = (name) => row(name).locator("td").nth(1).innerText();
const becomes = (name, wanted) => until(async () => (await state(name)) === wanted, `${name} is ${wanted}`);
const choices = () => it.page.locator("#model option").allTextContents();

test("a model is loaded and unloaded", { skip }, async () => {
  const { page, server } = it;
  const file = join(server.folder, "second.gguf");
  copyFileSync(modelFile, file);
  const registry = join(server.folder, "registry.db");
  execFileSync(binary, ["models", "add", file, "--name", "second", "--registry", registry]);
  await load(it, "/#dashboard");
  await becomes("second", "not loaded");
  await page.getByText("1 of at most 2 are loaded.").waitFor();
  await page.getByRole("button", { name: "Load second" }).click();
  await becomes("second", "loaded");
  await until(async () => (await choices()).length === 3, "the header's list has it at once");
  await it.shot("models-loaded");
  await page.getByRole("button", { name: "Unload second" }).click();
  await becomes("second", "not loaded");
  await until(async () => (await choices()).length === 2, "and has it no more");
});

test("a model is pulled with progress, cancelled, and pulled again", { skip }, async () => {
  const { page } = it;
  hub.onFile = (request, response, bytes) => {
    response.writeHead(200, { "Content-Length": bytes.length });
    response.write(bytes.subarray(0, bytes.length >> 1));
    return true;
  };
  await page.getByLabel("From the Hugging Face Hub").fill("hf:org/tiny");
  await page.getByRole("button", { name: "Pull", exact: true }).click();
  const bar = page.getByRole("progressbar", { name: "Pulling hf:org/tiny" });
  await until(async () => Number(await bar.getAttribute("value")) > 0.3, "the bar moves");
  await it.shot("models-pulling");
  await page.getByRole("button", { name: "Cancel pulling hf:org/tiny" }).click();
  await bar.waitFor({ state: "detached" });
  hub.onFile = null;
  await page.getByLabel("From the Hugging Face Hub").fill("hf:org/tiny");
  await page.getByLabel("From the Hugging Face Hub").press("Enter");
  await becomes("tiny", "not loaded");
});

test("errors are shown, of the request and of the task", { skip }, async () => {
  const { page } = it;
  const source = page.getByLabel("From the Hugging Face Hub");
  await source.fill("llama3");
  await source.press("Enter");
  await page.getByText(/expected hf:ORG\/REPO/).waitFor();
  expectProblem(it, /status of 400/);
  await source.fill("hf:org/none");
  await source.press("Enter");
  await page.getByText(/Pulling hf:org\/none failed: .*no such model/).waitFor();
  for (const name of ["second", "tiny"]) await page.getByRole("button", { name: `Load ${name}` }).click();
  await page.getByText(/failed: 2 models are loaded, the maximum: unload one first/).waitFor();
  await page.setViewportSize({ width: 360, height: 640 });
  assert.ok(await noSidewaysScroll(page));
  await it.shot("models-errors");
});

test("a key that may not change models sees only the served ones", { skip }, async (t) => {
  const keys = join(folder, "keys");
  writeFileSync(keys, "user-key\n", { mode: 0o600 });
  const server = await startServer(["--kv-cache-tokens", "4096", "--api-key-file", keys]);
  t.after(() => server.stop());
  const page = await newPage(it);
  await page.addInitScript(() => sessionStorage.setItem("inferd.api-key", "user-key"));
  await page.goto(`${server.url}/#dashboard`);
  await page.getByText("Only an administrator's key loads and unloads models.").waitFor();
  assert.equal(await row("inferd-demo", page).locator("td").last().innerText(), "–");
  assert.equal(await page.getByRole("button", { name: "Pull", exact: true }).count(), 0);
  expectProblem(it, /status of 403/);
  await page.close();
});

noProblems(it);
