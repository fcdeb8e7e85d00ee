// Files that are added to a message: their text is read in the page. Text in UTF-8 and, by pdf.js, which is
// loaded with the first one, PDF; scanned pages have no text. The composer's row of files, too.
import { h, iconButton } from "./dom.js";

const MAX_FILES = 10,
  MAX_BYTES = 20 << 20,
  MAX_CHARS = 1_000_000; // text of one file
const PDF = "%PDF-";

async function pdfText(bytes) {
  const pdf = await import("./vendor/pdf.min.mjs");
  pdf.GlobalWorkerOptions.workerSrc ||= new URL("./vendor/pdf.worker.min.mjs", import.meta.url).href;
  const task = pdf.getDocument({ data: bytes, isEvalSupported: false, disableFontFace: true, useSystemFonts: false });
  try {
    const file = await task.promise,
      pages = [];
    for (let i = 1; i <= file.numPages; i++) {
      const { items } = await (await file.getPage(i)).getTextContent();
      pages.push(items.map((item) => item.str + (item.hasEOL ? "\n" : "")).join(""));
    }
    return pages.join("\n\n").trim();
  } finally {
    await task.destroy();
  }
}

// {name, text} of a File; throws an Error that says why not.
async function readFile(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than ${MAX_BYTES >> 20} MiB.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const isPdf = String.fromCharCode(...bytes.subarray(0, PDF.length)) === PDF;
  let text;
  try {
    text = isPdf ? await pdfText(bytes) : new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error(
      isPdf ? `${file.name} cannot be read as a PDF.` : `${file.name} is neither text in UTF-8 nor a PDF.`,
    );
  }
  if (text.includes("\0")) throw new Error(`${file.name} is neither text in UTF-8 nor a PDF.`);
  if (!text.trim()) throw new Error(`${file.name} has no text${isPdf ? ": are its pages scanned?" : "."}`);
  if (text.length > MAX_CHARS) throw new Error(`${file.name} has more than ${MAX_CHARS / 1e6} million characters.`);
  return { name: file.name, text };
}

// A message's text with its files before it, as the model gets it.
export function withFiles({ content, files = [] }) {
  const parts = files.map(({ name, text }) => {
    const ticks = Array.from(text.matchAll(/`{3,}/g), ([run]) => run.length),
      fence = "`".repeat(Math.max(2, ...ticks) + 1);
    return `File ${name}:\n${fence}\n${text}\n${fence}`;
  });
  return [...parts, content].filter(Boolean).join("\n\n");
}

// The files of a message that was sent.
export const fileList = (files = []) =>
  h(
    "div",
    { class: "files" },
    ...files.map(({ name, text }) =>
      h(
        "details",
        { class: "file" },
        h("summary", {}, name),
        h("pre", { tabindex: "0", "aria-label": `Text of ${name}` }, text),
      ),
    ),
  );

// The files of the message that is being written.
export class Attachments {
  // onError(text)
  constructor({ button, input, row, target, onError }) {
    Object.assign(this, { row, onError });
    this.files = [];
    button.addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      const files = [...input.files];
      input.value = "";
      this.add(files);
    });
    target.addEventListener("dragover", (e) => e.dataTransfer.types.includes("Files") && e.preventDefault());
    target.addEventListener("drop", (e) => {
      if (!e.dataTransfer.files.length) return;
      e.preventDefault();
      this.add([...e.dataTransfer.files]);
    });
    target.addEventListener("paste", (e) => {
      if (!e.clipboardData.files.length) return;
      e.preventDefault();
      this.add([...e.clipboardData.files]);
    });
  }

  async add(files) {
    for (const file of files) {
      try {
        const read = await readFile(file);
        if (this.files.length >= MAX_FILES) throw new Error(`A message has at most ${MAX_FILES} files.`);
        this.files.push(read);
      } catch (e) {
        this.onError(e.message);
      }
    }
    this.show();
  }

  show() {
    this.row.replaceChildren(
      ...this.files.map((file) =>
        h(
          "span",
          { class: "chip" },
          h("span", {}, file.name),
          iconButton("close", `Remove ${file.name}`, () => {
            this.files = this.files.filter((f) => f !== file);
            this.show();
          }),
        ),
      ),
    );
    this.row.hidden = !this.files.length;
  }

  // The files, which leave the composer.
  take() {
    const { files } = this;
    this.files = [];
    this.show();
    return files;
  }
}
