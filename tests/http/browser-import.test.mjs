// Chats of files: the page's own export and back, Open WebUI's and ChatGPT's; Markdown.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ask, ended, load, noProblems, openPage, skip } from "./browser_page.mjs";
import { until } from "./server.mjs";

const it = openPage();
const texts = () => it.page.locator(".message .text").allInnerTexts();
const shows = (expected) =>
  until(async () => JSON.stringify(await texts()) === JSON.stringify(expected), `the page shows ${expected}`);
const titles = () => it.page.locator("#chat-list .open").allTextContents();

const take = async (name, content) => {
  await it.page.setInputFiles("#import-files", {
    name,
    mimeType: "application/json",
    buffer: Buffer.from(typeof content === "string" ? content : JSON.stringify(content)),
  });
};
const said = (text) => it.page.getByText(text).last().waitFor();
const open = (title) => it.page.locator("#chat-list").getByRole("button", { name: title, exact: true }).click();

async function download(act) {
  const [file] = await Promise.all([it.page.waitForEvent("download"), act()]);
  return { name: file.suggestedFilename(), text: readFileSync(await file.path(), "utf8") };
}

const exportAs = (how) =>
  download(async () => {
    await it.page.click("#export-chat");
    await it.page.getByRole("button", { name: how }).click();
  });

test("an export comes back whole: branches, settings, reasoning; twice it adds nothing", { skip }, async () => {
  const { page } = it;
  await load(it);
  await page.click("#open-settings");
  await page.fill("#chat-temperature", "0");
  await ask(page, "What is 3 plus 4?");
  await page.getByRole("button", { name: "Regenerate answer" }).click();
  await ended(page);
  await ask(page, "Hello!");
  const before = await texts();
  const file = await exportAs("As JSON");
  assert.match(file.name, /^inferd-chats-.*\.json$/);
  await take("same.json", file.text);
  await said("0 chats were imported, 1 were here already.");
  await page.getByRole("button", { name: /^Delete What/ }).click();
  await page.locator(".message").first().waitFor({ state: "detached" });
  await take("back.json", file.text);
  await said("1 chat was imported, 0 were here already.");
  await open("What is 3 plus 4?");
  await shows(before);
  assert.equal(await page.inputValue("#chat-temperature"), "0");
  await page.getByRole("button", { name: "Previous version" }).click();
  assert.equal(await page.locator(".message").count(), 2);
  await page.getByRole("button", { name: "Next version" }).click();
});

test("a chat as Markdown has what is shown of it", { skip }, async () => {
  const shown = await texts();
  await it.page.click("#export-chat");
  await it.shot("export-menu");
  await it.page.keyboard.press("Escape");
  const { name, text } = await exportAs("As Markdown");
  assert.equal(name, "What-is-3-plus-4.md");
  assert.equal(
    text.replace(/\s+/g, " "),
    `# What is 3 plus 4? ## You ${shown[0]} ## Answer ${shown[1]} ## You ${shown[2]} ## Answer ${shown[3]} `.replace(
      /\s+/g,
      " ",
    ),
  );
});

test("the first version of the export, a list of messages, is read", { skip }, async () => {
  const messages = [
    { role: "user", content: "Old question" },
    { role: "assistant", content: "Old *answer*", reasoning: "Hm.", state: "running", tool_calls: [] },
  ];
  await take("v1.json", {
    format: "inferd-chats",
    version: 1,
    chats: [{ id: "a", title: "Version one", settings: {}, messages }],
  });
  await said("1 chat was imported, 0 were here already.");
  await open("Version one");
  await shows(["Old question", "Old answer"]);
});

// As Open WebUI 0.6 writes "Export chats": a list of rows of its table.
const webui = [
  {
    id: "5a0c",
    user_id: "u",
    title: "Capitals",
    chat: {
      title: "Capitals",
      models: ["m"],
      params: { system: "Be brief." },
      history: {
        currentId: "a2",
        messages: {
          u1: {
            id: "u1",
            parentId: null,
            childrenIds: ["a1", "a2"],
            role: "user",
            content: "Capital of Norway?",
            timestamp: 1,
          },
          a1: {
            id: "a1",
            parentId: "u1",
            childrenIds: [],
            role: "assistant",
            content: "Bergen.",
            model: "m",
            done: true,
          },
          a2: {
            id: "a2",
            parentId: "u1",
            childrenIds: [],
            role: "assistant",
            content:
              '<details type="reasoning" done="true" duration="1">\n<summary>Thought for 1 second</summary>\n> The user\n> asks.\n</details>\nOslo.',
          },
        },
      },
    },
    updated_at: 1700000000,
    created_at: 1690000000,
    share_id: null,
    archived: false,
    pinned: false,
  },
];

test("Open WebUI's chats come with their branches, reasoning and system prompt", { skip }, async () => {
  const { page } = it;
  await take("chat-export-1.json", webui);
  await said("1 chat was imported, 0 were here already.");
  await open("Capitals");
  await shows(["Capital of Norway?", "Oslo."]);
  await page.locator("details.reasoning summary").click();
  assert.match(await page.locator("details.reasoning .markdown").innerText(), /^The user\s+asks\.$/);
  await page.getByRole("button", { name: "Previous version" }).click();
  await shows(["Capital of Norway?", "Bergen."]);
  assert.equal(await page.inputValue("#chat-system"), "Be brief.");
  await take("chat-export-2.json", webui);
  await said("0 chats were imported, 1 were here already.");
});

const node = (id, parent, children, role, content, more = {}) => ({
  id,
  parent,
  children,
  message: role && { id, author: { role, name: null, metadata: {} }, content, weight: 1, metadata: {}, ...more },
});
const gptText = (...parts) => ({ content_type: "text", parts });
const gpt = [
  {
    title: "Planets",
    create_time: 1700000000.25,
    update_time: 1700000100.5,
    current_node: "a2",
    conversation_id: "c-1",
    mapping: Object.fromEntries(
      [
        node("root", null, ["sys"], null),
        node("sys", "root", ["u1"], "system", gptText(""), { weight: 0 }),
        node("u1", "sys", ["t1"], "user", {
          content_type: "multimodal_text",
          parts: [{ content_type: "image_asset_pointer" }, "Largest planet?"],
        }),
        node("t1", "u1", ["a1"], "assistant", { content_type: "thoughts", thoughts: [] }),
        node("a1", "t1", ["u2"], "assistant", gptText("Jupiter.")),
        node("u2", "a1", ["a2", "a3"], "user", gptText("And the smallest?")),
        node("a2", "u2", [], "assistant", gptText("Mercury.")),
        node("a3", "u2", [], "assistant", gptText("Pluto.")),
      ].map((n) => [n.id, n]),
    ),
  },
];

test("ChatGPT's conversations.json: messages and branches, without what is no message", { skip }, async () => {
  const { page } = it;
  await take("conversations.json", gpt);
  await said("1 chat was imported, 0 were here already.");
  await open("Planets");
  await shows(["Largest planet?", "Jupiter.", "And the smallest?", "Mercury."]);
  await page.getByRole("button", { name: "Next version" }).click();
  await until(async () => (await texts()).at(-1) === "Pluto.", "the other branch");
  await ask(page, "Sure?");
  assert.equal(await page.locator(".message").count(), 6);
});

test("other files are refused with what was expected; hostile ones do no harm", { skip }, async () => {
  const n = (await titles()).length;
  await take("a.json", "{ not json");
  await said("a.json: The file is not JSON.");
  await take("b.json", [{ role: "user" }]);
  await said("b.json: The file is none of");
  const loop = {
    u: { id: "u", parentId: "v", role: "user", content: "x" },
    v: { id: "v", parentId: "u", role: "user", content: 7 },
  };
  await take("c.json", [{ id: "loop", chat: { history: { messages: loop, currentId: "u" } } }]);
  const messages = [
    {
      id: "x",
      parent: "x",
      role: "system",
      content: { toString: 1 },
      state: "running",
      tool_calls: [7, { function: 3 }],
      stats: { ttft_ms: "<b>" },
    },
    { id: "y", parent: "gone", next: 4, role: "user", content: "still <b>here</b>", files: "no" },
    { id: "y", parent: "y", role: "user", content: "twice" },
  ];
  await take("d.json", {
    format: "inferd-chats",
    version: 2,
    chats: [{ id: 7, title: 9, settings: { top_k: {} }, messages }],
  });
  await until(async () => (await titles()).length === n + 1, "what could be read is there");
  await it.page.locator("#chat-list .open").first().click();
  await shows(["still <b>here</b>"]);
});

noProblems(it);
