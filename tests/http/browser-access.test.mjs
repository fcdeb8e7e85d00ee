// Accessibility, checked by axe-core in every view, light, dark, narrow and with forced colours; and what a
// browser needs to install the page.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { ask, load, newPage, noProblems, openPage, scripted, skip } from "./browser_page.mjs";

const it = openPage();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

// What axe-core objects to, as lines.
async function objections(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 120)} ${n.failureSummary}`));
}

const RICH = [
  { reasoning_content: "Hm." },
  {
    content:
      "# Title\n\n> quote [link](https://example.org) `code`[^1]\n\n- [x] done\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n```c\nint a = 1; /* x */\n```\n\n$$\\frac{a}{b}$$\n\n![icon](/icon.svg)\n\n[^1]: Note.",
  },
  { tool_calls: [{ index: 0, id: "c", type: "function", function: { name: "get", arguments: '{"a":1}' } }] },
];

async function fillChat(page) {
  await page.click("#open-settings");
  await page.fill("#chat-max-tokens", "8");
  await page.click("#open-settings");
  await page.setInputFiles("#attach-files", { name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("text") });
  await page.locator("#attached .chip").waitFor();
  await scripted(page, RICH);
  await ask(page, "Show me everything.");
  await page.locator(".math math").waitFor();
  await page.getByRole("button", { name: "Regenerate answer" }).click();
  await page.locator("#stop").waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Previous version" }).click();
}

test("axe-core finds nothing: every tab, light and dark", { skip }, async () => {
  const { page } = it;
  await load(it);
  assert.deepEqual(await objections(page), [], "an empty chat");
  await page.evaluate(() => document.querySelector("#send").removeAttribute("aria-label"));
  await page.evaluate(() => document.querySelector("#send").removeAttribute("title"));
  assert.match((await objections(page)).join(), /^button-name/, "a planted fault is found");
  await load(it);
  await fillChat(page);
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const tab of ["Playground", "Dashboard", "Chat"]) {
      await page.getByRole("tab", { name: tab }).click();
      assert.deepEqual(await objections(page), [], `${tab}, ${colorScheme}`);
    }
  }
  await page.getByRole("tab", { name: "Playground" }).click();
  await page.getByRole("tab", { name: "Tools" }).click();
  assert.deepEqual(await objections(page), [], "tools of the playground");
  await page.getByRole("tab", { name: "Chat", exact: true }).click();
});

test("axe-core finds nothing in panels, menus, forms and notices", { skip }, async () => {
  const { page } = it;
  await page.click("#open-settings");
  assert.deepEqual(await objections(page), [], "settings");
  await page.click("#open-settings");
  await page.click("#export-chat");
  assert.deepEqual(await objections(page), [], "menu");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Edit answer" }).click();
  assert.deepEqual(await objections(page), [], "editing");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Delete answer" }).click();
  await page.getByRole("button", { name: "Undo" }).waitFor();
  assert.deepEqual(await objections(page), [], "a notice");
  await page.getByRole("button", { name: "Undo" }).click();
});

test("axe-core finds nothing on a phone", { skip }, async () => {
  const { page } = it;
  await page.setViewportSize({ width: 360, height: 640 });
  assert.deepEqual(await objections(page), []);
  await page.click("#open-chats");
  assert.deepEqual(await objections(page), [], "the list of chats");
  await page.keyboard.press("Escape");
  await page.setViewportSize({ width: 1100, height: 760 });
});

// Names of what cannot be told from its surroundings: no border, no outline, and the colour of its parent.
const unmarked = (page, selectors) =>
  page.evaluate((all) => {
    const plain = (el) => {
      const s = getComputedStyle(el);
      const bordered =
        ["borderTopWidth", "outlineWidth"].some((w) => parseFloat(s[w]) > 0) &&
        s.borderTopStyle + s.outlineStyle !== "nonenone";
      const filled =
        s.backgroundColor !== getComputedStyle(document.body).backgroundColor &&
        s.backgroundColor !== "rgba(0, 0, 0, 0)";
      return !bordered && !filled;
    };
    return all.filter((s) => [...document.querySelectorAll(s)].some((el) => el.checkVisibility() && plain(el)));
  }, selectors);

test("with forced colours what is chosen and what can be pressed is still marked", { skip }, async () => {
  const page = await newPage(it, { forcedColors: "active" });
  await load(it, "/", page);
  await fillChat(page);
  const marks = [
    '#tabs [aria-selected="true"]',
    "#chat-list li:has([aria-current])",
    ".message.user .text",
    "#send",
    "#state .dot",
    ".fill",
  ];
  assert.deepEqual(await unmarked(page, marks), []);
  for (const path of ["/", "/#dashboard", "/#playground"]) {
    await load(it, path, page);
    assert.deepEqual(await objections(page), [], path);
  }
  const own = it.page;
  it.page = page;
  await load(it);
  await it.shot("forced-colours");
  it.page = own;
  await page.context().close();
});

test("the page can be installed", { skip }, async () => {
  const { page, server } = it;
  const client = await page.context().newCDPSession(page);
  const { data, errors, url } = await client.send("Page.getAppManifest");
  assert.deepEqual(errors, []);
  assert.equal(url, `${server.url}/manifest.webmanifest`);
  const { icons, display, start_url: start } = JSON.parse(data);
  assert.deepEqual([display, start], ["standalone", "./"]);
  assert.ok(icons.some((i) => i.purpose === "maskable") && icons.some((i) => i.sizes === "512x512" && !i.purpose));
  for (const { src, sizes, type } of icons) {
    const response = await fetch(`${server.url}/${src}`);
    assert.equal(response.headers.get("content-type"), type);
    if (type !== "image/png") continue;
    const bytes = Buffer.from(await response.arrayBuffer());
    assert.equal(`${bytes.readUInt32BE(16)}x${bytes.readUInt32BE(20)}`, sizes, src);
  }
  const { installabilityErrors } = await client.send("Page.getInstallabilityErrors");
  assert.deepEqual(
    installabilityErrors.filter((e) => e.errorId !== "in-incognito"),
    [],
  );
});

noProblems(it);
