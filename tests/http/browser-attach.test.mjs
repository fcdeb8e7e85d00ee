// Files added to messages, and presets of settings.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ask, ended, load, newPage, noProblems, openPage, skip } from "./browser_page.mjs";
import { until } from "./server.mjs";

const it = openPage();
const chips = () => it.page.locator("#attached .chip").allInnerTexts();
const attach = (...files) =>
  it.page.setInputFiles(
    "#attach-files",
    files.map(([name, content]) => ({ name, mimeType: "application/octet-stream", buffer: Buffer.from(content) })),
  );
const sent = async (act) => {
  const [request] = await Promise.all([it.page.waitForRequest("**/v1/chat/completions"), act()]);
  await ended(it.page);
  return request.postDataJSON().messages;
};

// A PDF with one line of text on each page.
function pdf(lines) {
  const streams = lines.map((line) => `BT /F1 24 Tf 72 700 Td (${line}) Tj ET`);
  const kids = lines.map((_, i) => `${4 + 2 * i} 0 R`).join(" ");
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    `<< /Type /Pages /Kids [${kids}] /Count ${lines.length} >>`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ...streams.flatMap((s, i) => [
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${5 + 2 * i} 0 R /Resources << /Font << /F1 3 0 R >> >> >>`,
      `<< /Length ${s.length} >>\nstream\n${s}\nendstream`,
    ]),
  ];
  let out = "%PDF-1.4\n";
  const at = objects.map((o, i) => {
    const from = out.length;
    out += `${i + 1} 0 obj\n${o}\nendobj\n`;
    return from;
  });
  const xref = out.length;
  const rows = at.map((n) => `${String(n).padStart(10, "0")} 00000 n \n`).join("");
  out += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${rows}`;
  return `${out}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${xref}\n%%EOF\n`;
}

test("text files go with the message, by name, and stay with it when it is edited", { skip }, async () => {
  const { page } = it;
  await load(it);
  await page.click("#open-settings");
  await page.fill("#chat-max-tokens", "8");
  await page.click("#open-settings");
  await attach(["notes.md", "# Notes\n```js\nlet a;\n```"], ["größe.txt", "Äpfel"], ["gone.txt", "x"]);
  await until(async () => (await chips()).length === 3, "three files are attached");
  await page.getByRole("button", { name: "Remove gone.txt" }).click();
  assert.deepEqual(await chips(), ["notes.md", "größe.txt"]);
  await it.shot("attach");
  const want = "File notes.md:\n````\n# Notes\n```js\nlet a;\n```\n````\n\nFile größe.txt:\n```\nÄpfel\n```\n\nHello!";
  assert.deepEqual(await sent(() => ask(page, "Hello!")), [{ role: "user", content: want }]);
  assert.deepEqual(await chips(), []);
  await load(it);
  assert.deepEqual(await page.locator(".message .file summary").allInnerTexts(), ["notes.md", "größe.txt"]);
  await page.locator(".message .file summary").first().click();
  assert.match(await page.locator(".message .file pre").first().innerText(), /^# Notes/);
  await it.shot("attached");
  await page.locator(".message.user").hover();
  await page.getByRole("button", { name: "Edit message" }).click();
  await page.getByRole("textbox", { name: "Edit your message" }).fill("Goodbye!");
  const edited = await sent(() => page.keyboard.press("Enter"));
  assert.deepEqual(edited, [{ role: "user", content: want.replace("Hello!", "Goodbye!") }]);
});

test("the text of a PDF is read, page by page", { skip }, async () => {
  const { page } = it;
  await page.click("#new-chat");
  await attach(["paper.pdf", pdf(["Foxes sleep at noon.", "Bears do not."])]);
  await until(async () => (await chips()).length === 1, "the PDF is attached");
  const messages = await sent(() => page.click("#send"));
  assert.equal(messages[0].content, "File paper.pdf:\n```\nFoxes sleep at noon.\n\nBears do not.\n```");
  assert.equal(await page.locator("#chat-title").textContent(), "paper.pdf");
});

test("what has no text is refused with the reason", { skip }, async () => {
  const { page } = it;
  await attach(
    ["a.png", Uint8Array.of(137, 80, 78, 71, 255)],
    ["empty.txt", " \n"],
    ["broken.pdf", "%PDF-1.4 nothing"],
  );
  await page.getByText("a.png is neither text in UTF-8 nor a PDF.").waitFor();
  await page.getByText("empty.txt has no text.").waitFor();
  await page.getByText("broken.pdf cannot be read as a PDF.").waitFor();
  await attach(["scan.pdf", pdf([""])]);
  await page.getByText("scan.pdf has no text: are its pages scanned?").waitFor();
  await attach(["long.txt", "x".repeat(1_000_001)]);
  await page.getByText("long.txt has more than 1 million characters.").waitFor();
  assert.deepEqual(await chips(), []);
});

test("a file can be dropped", { skip }, async () => {
  const { page } = it;
  await page.evaluate(() => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(["dropped text"], "dropped.txt"));
    document
      .querySelector("#scroll")
      .dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
  });
  await until(async () => (await chips()).join() === "dropped.txt", "the file is attached");
  await page.getByRole("button", { name: "Remove dropped.txt" }).click();
});

test("presets keep system prompt and sampling for other chats and days", { skip }, async () => {
  const { page } = it;
  await page.click("#new-chat");
  await page.click("#open-settings");
  await page.fill("#chat-system", "You are a pirate.");
  await page.fill("#chat-temperature", "0.25");
  await page.fill("#preset-name", "Pirate");
  await page.press("#preset-name", "Enter");
  assert.equal(await page.inputValue("#preset"), "Pirate");
  await it.shot("presets");
  await page.fill("#chat-system", "");
  await page.fill("#chat-temperature", "");
  await load(it);
  await page.click("#open-settings");
  await page.selectOption("#preset", "Pirate");
  assert.equal(await page.inputValue("#chat-temperature"), "0.25");
  const [system] = await sent(() => ask(page, "Hello!"));
  assert.deepEqual(system, { role: "system", content: "You are a pirate." });
  const other = await page.context().newPage();
  await load(it, "/", other);
  await page.click("#preset-delete");
  await page.getByText("Deleted the preset “Pirate”.").waitFor();
  await until(async () => (await other.locator("#preset option").count()) === 1, "gone in the other window");
  await page.getByRole("button", { name: "Undo" }).click();
  assert.equal(await page.inputValue("#preset"), "Pirate");
  await other.close();
});

test("composer and settings fit a phone", { skip }, async () => {
  const page = await newPage(it, { viewport: { width: 360, height: 640 }, colorScheme: "dark" });
  await load(it, "/", page);
  await page.setInputFiles("#attach-files", {
    name: "a-file-with-a-very-long-name-that-does-not-fit-anywhere.txt",
    mimeType: "text/plain",
    buffer: Buffer.from("text"),
  });
  await page.locator("#attached .chip").waitFor();
  const box = await page.locator("#composer").boundingBox();
  assert.ok(box.x >= 0 && box.x + box.width <= 360, JSON.stringify(box));
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  const before = it.page;
  it.page = page;
  await it.shot("phone-attach-dark");
  await page.click("#open-settings");
  await it.shot("phone-presets-dark");
  it.page = before;
  await page.context().close();
});

noProblems(it);
