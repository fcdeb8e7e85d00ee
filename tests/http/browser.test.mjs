// The chat tab: send, stream, stop, try again, edit, go on; chats outlive a reload; keyboard alone.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  ask,
  ended,
  expectProblem,
  hurry,
  load,
  newPage,
  noProblems,
  noSidewaysScroll,
  openPage,
  otherWindow,
  scripted,
  skip,
  slowly,
} from "./browser_page.mjs";
import { metrics, modelName, until } from "./server.mjs";

// Enough is kept of an answer that comes faster than a slow page takes it.
const it = openPage(["--resume-buffer-bytes", "4M"]);
const answers = (page = it.page) => page.locator(".message.assistant .text");
const users = (page = it.page) => page.locator(".message.user .text");

// What the page sends with the next request.
const nextBody = async (act, page = it.page) => {
  const [request] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), act()]);
  return request.postDataJSON();
};

test("the page loads and offers the model with its context", { skip }, async () => {
  await load(it);
  const options = await it.page.$$eval("#model option", (all) => all.map((o) => [o.value, o.text]));
  assert.deepEqual(
    options,
    [modelName, "demo"].map((id) => [id, `${id} · 8K`]),
  );
  await it.shot("chat-empty");
});

test("a typed message gets a streamed answer with its figures", { skip }, async () => {
  const { page } = it;
  await page.click("#open-settings");
  await page.fill("#chat-temperature", "0");
  const body = await nextBody(() => ask(page, "Tell me a story about a fox."));
  assert.deepEqual(body, {
    model: modelName,
    messages: [{ role: "user", content: "Tell me a story about a fox." }],
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  });
  assert.match(await answers().first().textContent(), /fox/i);
  const meta = await page.locator(".message.assistant .meta").first().textContent();
  assert.match(meta, /tokens\/s.*first after [\d,]+ ms.*\d+ prompt tokens \(\d+ cached\).*\d+ answer tokens/);
  const meter = page.getByRole("meter", { name: "Context used" });
  assert.equal(await meter.getAttribute("aria-valuemax"), "8192");
  assert.ok(Number(await meter.getAttribute("aria-valuenow")) > 20);
  await it.shot("chat-answered");
});

test("screen readers are told sentences, and the end; never single tokens", { skip }, async () => {
  const { page } = it,
    log = page.locator("#log");
  assert.equal(await log.evaluate((el) => el.closest("[aria-live]")), null);
  const said = await page.$$eval("#announcer p", (all) => all.map((p) => p.textContent));
  assert.equal(said.at(-1), "Answer finished.");
  assert.ok(said.length >= 2 && said.length < 12, `${said.length} announcements`);
  for (const text of said.slice(0, -1)) assert.match(text, /[.!?"'”]$/);
  const whole = (await answers().first().innerText()).replace(/\s+/g, " ");
  assert.ok(whole.includes(said[0].slice(0, 40)));
});

test("empty fields are not sent, typed ones are, bad ones stop the request", { skip }, async () => {
  const { page } = it;
  await page.fill("#chat-system", "Answer briefly.");
  await page.fill("#chat-top-p", "0.9");
  await page.fill("#chat-seed", "9223372036854775807");
  await page.fill("#chat-max-tokens", "8");
  await page.fill("#chat-stop", "###\\n\nEND");
  const [request] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), ask(page, "Hello!")]);
  assert.match(request.postData(), /"seed":9223372036854775807}$/, "all 64 bits");
  const body = request.postDataJSON();
  assert.equal(body.messages[0].role, "system");
  assert.equal(body.messages.length, 4);
  assert.deepEqual([body.top_p, body.max_tokens, body.stop], [0.9, 8, ["###\n", "END"]]);
  assert.equal("top_k" in body, false);
  await page.fill("#chat-top-k", "many");
  await page.fill("#input", "Again?");
  await page.press("#input", "Enter");
  assert.equal(await page.locator("#chat-top-k").getAttribute("aria-invalid"), "true");
  await page.getByText("“Top k” in the settings is not valid.").waitFor();
  assert.equal(await users().count(), 2, "nothing was sent");
  await it.shot("chat-settings");
  for (const name of ["top-k", "top-p", "seed", "stop", "system"]) await page.fill(`#chat-${name}`, "");
  await page.fill("#input", "");
});

test("an answer that the limit cut goes on", { skip }, async () => {
  const { page } = it,
    last = answers().last(),
    before = await last.innerText();
  await page.fill("#chat-max-tokens", "20");
  const body = await nextBody(async () => {
    await page.locator(".message.assistant .continue").click();
    await ended(page);
  });
  assert.equal(body.continue_final_message, true);
  assert.equal(body.messages.at(-1).role, "assistant");
  const now = await last.innerText();
  assert.ok(now.startsWith(before) && now.length > before.length, JSON.stringify([before, now]));
  await page.fill("#chat-max-tokens", "");
});

test("an answer grows as it comes; it can be stopped, and the server stops too", { skip }, async () => {
  const { page } = it;
  // Every length that the answer's text has on the page, noted there: it grows faster than we can ask.
  await page.evaluate(() => {
    window.lengths = new Set();
    new MutationObserver(() => {
      const text = document.querySelector(".message.assistant .text");
      if (text?.textContent) window.lengths.add(text.textContent.length);
    }).observe(document.querySelector("#log"), { childList: true, subtree: true, characterData: true });
  });
  // The model would end by itself after a second: let it go on until it is stopped.
  await page.route(
    "**/v1/chat/completions",
    (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true }) }),
    { times: 1 },
  );
  await page.click("#new-chat");
  await page.fill("#input", "Tell me a very long story about two brothers and a dragon.");
  await page.press("#input", "Enter");
  const answer = answers().last();
  await until(() => page.evaluate(() => window.lengths.size > 8), "the text grows in many steps");
  await page.click("#stop");
  await ended(page);
  const text = await answer.textContent();
  assert.match(await page.locator(".message.assistant .meta").last().textContent(), /stopped/);
  await until(
    async () => (await metrics(it.server)).get("inferd_sequences_running") === 0,
    "nothing runs on the server",
  );
  assert.equal(await answer.textContent(), text, "no more text after the stop");
  assert.equal(await page.locator(".message.assistant .continue").count(), 1);
});

test("trying again and editing add branches; each version can be gone back to", { skip }, async () => {
  const { page } = it,
    first = await answers().innerText(),
    versions = () => page.locator(".versions > span").allTextContents();
  await page.getByRole("button", { name: "Regenerate answer" }).click();
  await ended(page);
  assert.equal(await page.locator(".message").count(), 2);
  assert.deepEqual(await versions(), ["Version 2/2"]);
  const second = await answers().innerText();
  await ask(page, "And then?");
  assert.equal(await page.locator(".message").count(), 4);
  await page.getByRole("button", { name: "Previous version" }).click();
  assert.equal(await answers().innerText(), first);
  assert.equal(await page.locator(".message").count(), 2, "what followed belongs to the other version");
  assert.equal(await page.getByRole("button", { name: "Previous version" }).isDisabled(), true);
  await page.getByRole("button", { name: "Next version" }).click();
  assert.equal(await answers().first().innerText(), second);
  assert.equal(await users().last().innerText(), "And then?");
  await page.locator(".message.user").first().hover();
  await page.getByRole("button", { name: "Edit message" }).first().click();
  const box = page.getByRole("textbox", { name: "Edit your message" });
  await box.fill("What is 3 plus 4?");
  await it.shot("chat-edit");
  const body = await nextBody(async () => {
    await box.press("Enter");
    await ended(page);
  });
  assert.deepEqual(body.messages, [{ role: "user", content: "What is 3 plus 4?" }]);
  assert.deepEqual(await users().allTextContents(), ["What is 3 plus 4?"]);
  assert.equal(
    await page.locator("#chat-title").textContent(),
    "What is 3 plus 4?",
    "the title follows until it is chosen",
  );
  assert.match(await answers().last().textContent(), /7/);
  await load(it);
  assert.deepEqual(await users().allTextContents(), ["What is 3 plus 4?"]);
  await page.getByRole("button", { name: "Previous version" }).click();
  assert.equal((await users().allTextContents()).at(-1), "And then?");
  assert.equal(await page.locator(".message").count(), 4);
  await it.shot("chat-branches");
});

test("an edited answer is a version of its own, and the chat goes on from it", { skip }, async () => {
  const { page } = it;
  await page.getByRole("button", { name: "Next version" }).first().click();
  const own = await answers().last().innerText();
  await page.getByRole("button", { name: "Edit answer" }).click();
  await page.getByRole("textbox", { name: "Edit the answer" }).fill("It is *seven*.");
  await page.getByRole("button", { name: "Save" }).click();
  assert.equal(await answers().last().innerHTML(), "<p>It is <em>seven</em>.</p>");
  const body = await nextBody(() => ask(page, "Are you sure?"));
  assert.deepEqual(
    body.messages.map((m) => m.content),
    ["What is 3 plus 4?", "It is *seven*.", "Are you sure?"],
  );
  await page.locator(".message.assistant").first().getByRole("button", { name: "Previous version" }).click();
  assert.equal(await answers().last().innerText(), own);
  assert.equal(await page.locator(".message").count(), 2);
});

test("messages are copied and deleted", { skip }, async () => {
  const { page } = it;
  await page.locator(".message.user").hover();
  await page.locator(".message.user").getByRole("button", { name: "Copy message" }).click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "What is 3 plus 4?");
  const kept = await answers().last().innerText();
  await page.getByRole("button", { name: "Next version" }).last().click();
  assert.equal(await page.locator(".message").count(), 4);
  await page.getByRole("button", { name: "Delete answer" }).first().click();
  await page.getByText("3 messages were deleted.").waitFor();
  assert.equal(await answers().innerText(), kept, "the version beside it is shown");
  await page.getByRole("button", { name: "Undo" }).click();
  assert.equal(await page.locator(".message").count(), 4);
  await page.getByRole("button", { name: "Delete answer" }).first().click();
});

test("chats outlive a reload, with their settings", { skip }, async () => {
  const { page } = it;
  await ask(page, "Give me a short list of fruits.");
  const texts = await page.locator(".message .text").allTextContents();
  const titles = await page.locator("#chat-list .open").allTextContents();
  assert.equal(titles.length, 2);
  await load(it);
  assert.deepEqual(await page.locator("#chat-list .open").allTextContents(), titles);
  assert.deepEqual(await page.locator(".message .text").allTextContents(), texts);
  assert.equal(await page.inputValue("#chat-temperature"), "0");
  await page.locator("#chat-list").getByRole("button", { name: "Tell me a story about a fox.", exact: true }).click();
  await until(async () => /fox/i.test(await answers().first().textContent()), "the other chat is shown");
});

test("an answer that a reload interrupts goes on where it was, in the window that has it", { skip }, async () => {
  const { page } = it,
    texts = [];
  assert.equal(await page.inputValue("#chat-temperature"), "0");
  // Several seconds of computing.
  const longer = (route) => {
    const body = route.request().postDataJSON();
    route.continue(body.messages ? { postData: JSON.stringify({ ...body, ignore_eos: true, max_tokens: 3000 }) } : {});
  };
  await page.route("**/v1/chat/completions", longer);
  for (const reloads of [0, 2]) {
    await page.click("#new-chat");
    if (reloads) await slowly(page);
    await page.fill("#input", "Tell me a story about a bear.");
    await page.press("#input", "Enter");
    const grown = async (n) => (await answers().last().innerText()).length > n;
    if (reloads) {
      await until(() => grown(20), "text appears");
      const { other, asked } = await otherWindow(it);
      assert.equal(await page.locator("#stop").isVisible(), true, "the answer still runs here");
      for (let i = 0; i < reloads; i++) {
        const before = (await answers().last().innerText()).length;
        await page.reload();
        await answers().last().waitFor();
        await until(() => grown(before + 20), "what had come is kept, and it goes on");
      }
      await hurry(page);
      await ended(page);
      assert.equal(asked.length, 0, "the other window asks for nothing");
      await other.close();
    }
    await ended(page);
    assert.equal(await page.locator(".error").count(), 0);
    texts.push(await answers().last().innerText());
  }
  await page.unroute("**/v1/chat/completions", longer);
  assert.ok(texts[0].length > 200);
  assert.equal(texts[1], texts[0]);
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((k) => k.includes(".left."))), []);
});

test("chats are renamed, deleted, brought back, exported without the key", { skip }, async () => {
  const { page } = it;
  await page.locator("#chat-list li").first().hover();
  await page.getByRole("button", { name: "Rename Tell me a story about a bear." }).first().click();
  await page.keyboard.type("Bears");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("#chat-title").textContent(), "Bears");
  await page.getByRole("button", { name: "Delete Bears" }).click();
  await page.locator("#chat-list .open", { hasText: "Bears" }).waitFor({ state: "detached" });
  assert.equal((await page.locator("#chat-list .open").allTextContents()).includes("Bears"), false);
  await page.getByRole("button", { name: "Undo" }).click();
  assert.equal(await page.locator("#chat-title").textContent(), "Bears");
  await page.click("#open-settings");
  await page.fill("#api-key", "secret-key-123");
  await page.press("#api-key", "Tab");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export-all")]);
  const text = readFileSync(await download.path(), "utf8"),
    data = JSON.parse(text);
  assert.equal(data.chats.length, 4);
  assert.ok(data.chats.some((c) => c.title === "Bears" && c.messages.length === 2));
  assert.equal(text.includes("secret-key"), false);
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("secret-key")), false);
  await page.fill("#api-key", "");
  await page.press("#api-key", "Tab");
});

test("errors of the server are shown with the field; a stream that ends early says so", { skip }, async () => {
  const { page } = it;
  await page.click("#new-chat");
  await page.route(
    "**/v1/chat/completions",
    (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), top_p: 7 }) }),
    { times: 1 },
  );
  await ask(page, "Hello!");
  const box = page.locator(".error");
  assert.match(await box.textContent(), /top_p.*Field: top_p.*Status 400/s);
  expectProblem(it, /status of 400/);
  await it.shot("chat-error");
  await scripted(page, [{ role: "assistant", content: "" }, { content: "Once upon" }], "");
  await page.getByRole("button", { name: "Try again" }).click();
  await ended(page);
  assert.match(await box.textContent(), /ended before the answer was complete/);
  assert.equal(await answers().last().innerText(), "Once upon");
  await page.getByRole("button", { name: "Try again" }).click();
  await ended(page);
  assert.equal(await page.locator(".error").count(), 0);
});

test("reasoning folds, tool calls are cards", { skip }, async () => {
  const { page } = it;
  await page.click("#new-chat");
  await scripted(page, [
    { reasoning_content: "The user wants " },
    { reasoning_content: "**weather**." },
    { content: "Let me look." },
    { tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "get_weather", arguments: "" } }] },
    { tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '"Oslo"}' } }] },
  ]);
  await ask(page, "Weather in Oslo?");
  const details = page.locator("details.reasoning");
  assert.equal(await details.getAttribute("open"), null);
  await details.locator("summary").click();
  assert.equal(await details.locator(".markdown").innerText(), "The user wants weather.");
  const card = page.getByRole("region", { name: "Call of get_weather" });
  assert.equal(await card.locator("code").textContent(), '{\n  "city": "Oslo"\n}');
  await it.shot("chat-tools");
});

test("chats of localStorage move to the database and stay readable", { skip }, async () => {
  const page = await newPage(it);
  await load(it, "/", page);
  await page.evaluate(() => {
    const messages = [
      { role: "user", content: "What is old?" },
      { role: "assistant", content: "This chat.", state: "done" },
    ];
    for (let i = 0; i < 3; i++) {
      localStorage.setItem(`inferd.chat.old${i}`, JSON.stringify({ settings: { temperature: "0.5" }, messages }));
      localStorage.setItem(
        `inferd.meta.old${i}`,
        JSON.stringify({ title: `Old ${i}`, named: true, updated: 1000 + i }),
      );
    }
  });
  for (let i = 0; i < 2; i++) {
    await load(it, "/", page);
    assert.deepEqual(await page.locator("#chat-list .open").allTextContents(), ["Old 2", "Old 1", "Old 0"]);
    await page.getByRole("button", { name: "Old 1", exact: true }).click();
    await page.locator("#chat-title", { hasText: "Old 1" }).waitFor();
    assert.deepEqual(await page.locator(".message .text").allInnerTexts(), ["What is old?", "This chat."]);
    assert.equal(await page.inputValue("#chat-temperature"), "0.5");
    assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((k) => /old/.test(k))), []);
  }
  await ask(page, "And you?");
  assert.equal(await page.locator(".message").count(), 4);
  await page.context().close();
});

test("chats are searched by title and text, and pinned", { skip }, async () => {
  const { page } = it,
    titles = () => page.locator("#chat-list .open").allTextContents(),
    all = await titles(),
    search = page.getByRole("searchbox", { name: "Search chats" });
  await search.fill("OSLO");
  await until(async () => (await titles()).length === 1, "one chat is found");
  assert.deepEqual(await titles(), ["Weather in Oslo?"]);
  await search.fill("let me LOOK");
  await until(async () => (await titles()).length === 1, "found by an answer's text");
  await search.fill("no such text anywhere");
  await page.getByText("No chat has this text.").waitFor();
  // A search that another one has replaced finds nothing more.
  const late = await page.evaluate(async () => {
    const { ChatStore } = await import("/store.js"),
      store = new ChatStore(),
      searching = new AbortController(),
      found = [];
    store.rows.set("x", { id: "x", title: "" });
    store.load = async () => {
      searching.abort();
      return { messages: [{ content: "let me look" }] };
    };
    await store.search("look", (id) => found.push(id), searching.signal);
    store.channel.close();
    return found;
  });
  assert.deepEqual(late, []);
  await search.fill("");
  await until(async () => (await titles()).length === all.length, "all are shown again");
  await page.locator("#chat-list li").last().hover();
  await page.getByRole("button", { name: `Pin ${all.at(-1)}`, exact: true }).click();
  await until(async () => (await titles())[0] === all.at(-1), "the pinned chat is the first");
  await load(it);
  assert.equal((await titles())[0], all.at(-1));
  await it.shot("chat-pinned");
  await page.getByRole("button", { name: `Unpin ${all.at(-1)}`, exact: true }).click();
  await until(async () => (await titles())[0] === all[0], "back in its place");
});

test("a browser that has no room says so, and the chat goes on", { skip }, async () => {
  const page = await newPage(it);
  await page.addInitScript(() => {
    IDBObjectStore.prototype.put = () => {
      throw new DOMException("no room", "QuotaExceededError");
    };
  });
  await load(it, "/", page);
  await ask(page, "Hello!");
  await page.getByText("The browser's storage is full").waitFor();
  await ask(page, "Hello again!");
  assert.equal(await page.locator(".message").count(), 4);
  await page.context().close();
});

test("two windows show the same chats", { skip }, async () => {
  const { page } = it,
    other = await it.page.context().newPage();
  await load(it, "/", other);
  const title = await page.locator("#chat-list .open").first().textContent();
  await page.getByRole("button", { name: title, exact: true }).click();
  await other.getByRole("button", { name: title, exact: true }).click();
  await until(async () => (await page.locator("#chat-title").textContent()) === title, "the chat is shown");
  await ask(page, "Seen by both?");
  await other.locator(".message.user", { hasText: "Seen by both?" }).waitFor();
  const n = await other.locator("#chat-list li").count();
  await page.getByRole("button", { name: `Delete ${title}` }).click();
  await until(async () => (await other.locator("#chat-list li").count()) === n - 1, "gone in the other window too");
  await page.getByRole("button", { name: "Undo" }).click();
  await until(async () => (await other.locator("#chat-list li").count()) === n, "and back");
  await other.close();
});

test("the keyboard alone is enough", { skip }, async () => {
  const page = await newPage(it);
  await load(it, "/", page);
  const tabTo = async (selector) => {
    for (let i = 0; i < 40; i++) {
      if (await page.evaluate((s) => document.activeElement?.matches(s), selector)) return;
      await page.keyboard.press("Tab");
      const visible = await page.evaluate(
        () =>
          document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== "none",
      );
      assert.ok(
        visible,
        `focus can be seen at ${await page.evaluate(() => document.activeElement.outerHTML.slice(0, 80))}`,
      );
    }
    assert.fail(`Tab does not reach ${selector}`);
  };
  assert.equal(
    await page.evaluate(() => document.activeElement.id),
    "input",
    "the composer has the focus at the start",
  );
  await page.keyboard.type("Hello!");
  await page.keyboard.press("Enter");
  await ended(page);
  assert.equal(await page.evaluate(() => document.activeElement.id), "input", "the focus comes back");
  await tabTo("#tab-chat");
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.getByRole("tab", { selected: true }).first().textContent(), "Playground");
  await page.keyboard.press("Home");
  assert.equal(await page.getByRole("tab", { selected: true }).first().textContent(), "Chat");
  await page.keyboard.press("Tab");
  await tabTo("#skip");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "input");
  await tabTo("#new-chat");
  await page.keyboard.press("Enter");
  await page.keyboard.type("Hello again!");
  await page.keyboard.press("Enter");
  await ended(page);
  await tabTo("#chat-list .open");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.locator("#chat-title", { hasText: /^Hello!$/ }).waitFor();
  assert.deepEqual(await users(page).allTextContents(), ["Hello!"]);
  await tabTo("#open-settings");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("#settings").isVisible(), true);
  await tabTo("#chat-temperature");
  await page.keyboard.type("0.5");
  await tabTo("#input");
  await page.keyboard.type("A story");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("about a cat, please.");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  await ended(page);
  assert.equal(await users(page).last().textContent(), "A story\nabout a cat, please.");
  await page.context().close();
});

test("landmarks and names are there for screen readers", { skip }, async () => {
  const { page } = it;
  await load(it);
  await page.click("#new-chat");
  for (const [role, name] of [
    ["banner"],
    ["main"],
    ["tablist", "Views"],
    ["tabpanel", "Chat"],
    ["navigation", "Chats"],
    ["region", "Conversation"],
    ["combobox", "Model"],
    ["textbox", "Message"],
  ])
    if (role !== "region")
      assert.equal(await page.getByRole(role, name ? { name, exact: true } : {}).count(), 1, `${role} ${name ?? ""}`);
  const tree = await page.locator("body").ariaSnapshot();
  assert.match(tree, /- tab "Chat" \[selected\]/);
  assert.doesNotMatch(tree, /- button\s*$/m, "every button has a name");
  assert.doesNotMatch(tree, /- textbox\s*$/m, "every field has a name");
});

test("a phone's width has no sideways scroll, light and dark", { skip }, async () => {
  const { page } = it;
  await page.setViewportSize({ width: 360, height: 640 });
  await load(it);
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    assert.ok(await noSidewaysScroll(page));
    await it.shot(`phone-chat-empty-${colorScheme}`);
  }
  await page.click("#open-chats");
  await it.shot("phone-list-dark");
  await page.locator("#chat-list").getByRole("button", { name: "Tell me a story about a fox.", exact: true }).click();
  await page.locator("#shade").waitFor({ state: "hidden" });
  assert.ok(await noSidewaysScroll(page));
  await it.shot("phone-chat-dark");
  await page.click("#open-settings");
  await it.shot("phone-settings-dark");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#settings").isVisible(), false);
  await page.setViewportSize({ width: 1100, height: 760 });
  await it.shot("chat-dark");
});

// WCAG's ratio, of every text that can be seen, against the background behind it.
const paleTexts = (page) =>
  page.evaluate(() => {
    const dot = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const rgba = (css) => {
      dot.clearRect(0, 0, 1, 1);
      dot.fillStyle = css;
      dot.fillRect(0, 0, 1, 1);
      return dot.getImageData(0, 0, 1, 1).data;
    };
    const light = (css) =>
      [...rgba(css)]
        .slice(0, 3)
        .map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (el) =>
      rgba(getComputedStyle(el).backgroundColor)[3] === 255 || !el.parentElement
        ? getComputedStyle(el).backgroundColor
        : behind(el.parentElement);
    const seen = (el) =>
      el.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
      !el.closest(":disabled, .visually-hidden, #shade");
    const texts = [...document.querySelectorAll("body *")].filter(
      (el) => seen(el) && [...el.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()),
    );
    return texts.flatMap((el) => {
      const [a, b] = [light(getComputedStyle(el).color), light(behind(el))].sort((x, y) => y - x),
        ratio = (a + 0.05) / (b + 0.05);
      return ratio >= 4.5 ? [] : [`${el.outerHTML.slice(0, 90)} ${ratio.toFixed(2)}`];
    });
  });

test("text is dark enough, or light enough, to be read", { skip }, async () => {
  const { page } = it;
  const code = "/* c */ int f(void) { return 0x1F + sizeof(Type) + NULL; }";
  await page.click("#new-chat");
  await scripted(
    page,
    [
      { reasoning_content: "Hm." },
      {
        content: `> quote\n\n[link](https://example.org) \`code\`\n\n- [x] done\n\n\`\`\`c\n#include <x.h>\n${code} "s"\n\`\`\`\n\n\`\`\`diff\n+a\n-b\n@@ c\n\`\`\``,
      },
    ],
    "",
  );
  await ask(page, "Colours?");
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const tab of ["Playground", "Dashboard", "Chat"]) {
      await page.getByRole("tab", { name: tab }).click();
      assert.deepEqual(await paleTexts(page), [], `${tab}, ${colorScheme}`);
    }
  }
});

test("the theme can be chosen and is kept", { skip }, async () => {
  const { page } = it,
    scheme = () => page.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
  await page.emulateMedia({ colorScheme: "dark" });
  await page.click("#theme");
  assert.equal(await scheme(), "light");
  await load(it);
  assert.equal(await scheme(), "light");
  await page.getByRole("button", { name: "Theme: light" }).click();
  assert.equal(await scheme(), "dark");
  await page.getByRole("button", { name: "Theme: dark" }).click();
  assert.equal(await scheme(), "light dark");
  await page.emulateMedia({ colorScheme: "light" });
});

noProblems(it);
