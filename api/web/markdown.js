// Markdown -> DOM, whole or as it streams in. Elements are made one by one from the parsed blocks, so
// that a model's text can never become unintended markup.
import { h, copyText, icon, morphChildren } from "./dom.js";
import { footnotesOf, parseBlocks, splitLines } from "./blocks.js";
import { highlight, languageName } from "./highlight.js";
import { renderInline, withNotes } from "./inline.js";
import { renderMath } from "./math.js";

const QUICK_MS = 6;

const RENDER = {
  heading: (b) => h(`h${Math.min(6, b.level + 2)}`, { class: `md-h${b.level}` }, ...renderInline(b.text)),
  paragraph: (b) => h("p", {}, ...renderInline(b.text)),
  rule: () => h("hr"),
  quote: (b) => h("blockquote", {}, ...b.blocks.map(renderBlock)),
  code: (b) => codeBlock(b.text, b.lang),
  list: (b) =>
    h(
      b.ordered ? "ol" : "ul",
      { start: b.ordered && b.start !== 1 ? b.start : null },
      ...b.items.map((item) => listItem(item, b.loose)),
    ),
  table: renderTable,
  formula: (b) => h("div", { class: "formula" }, renderMath(b.tex, b.source, true)),
  footnote: (b) =>
    h(
      "aside",
      { class: "footnote", role: "doc-footnote", "data-note": b.label, tabindex: "-1" },
      h(
        "a",
        {
          href: "#",
          class: "note-back",
          role: "doc-backlink",
          "data-note": b.label,
          "aria-label": `Back to the text of footnote ${b.label}`,
        },
        b.label,
      ),
      h("div", {}, ...b.blocks.map(renderBlock)),
    ),
};

const renderBlock = (block) => RENDER[block.kind](block);

export function codeBlock(text, lang) {
  const name = languageName(lang);
  return h(
    "figure",
    { class: "code" },
    h(
      "figcaption",
      {},
      h("span", {}, name || "text"),
      h(
        "button",
        { type: "button", class: "copy-code", "aria-label": `Copy ${name || "code"}` },
        icon("copy"),
        h("span", {}, "Copy"),
      ),
    ),
    h("pre", { tabindex: "0", "aria-label": `${name || "text"} code` }, h("code", {}, ...highlight(text, lang))),
  );
}

function listItem(item, loose) {
  const tick = item.task === null ? null : taskBox(item.task);
  const [first, ...rest] = item.blocks;
  const tight = first?.kind === "paragraph" && !loose;
  const head = tight ? renderInline(first.text) : first ? [renderBlock(first)] : [];
  return h(
    "li",
    { class: tick ? "task" : null },
    tick,
    ...head,
    ...rest.map((b) => (b.kind === "paragraph" && !loose ? h("p", {}, ...renderInline(b.text)) : renderBlock(b))),
  );
}

const taskBox = (checked) =>
  h("span", { class: "tick", role: "img", "aria-label": checked ? "done:" : "open:" }, checked ? "☑" : "☐");

function renderTable(b) {
  const cell = (tag, text, i) =>
    h(
      tag,
      { class: b.align[i] ? `align-${b.align[i]}` : null, scope: tag === "th" ? "col" : null },
      ...renderInline(text),
    );
  return h(
    "div",
    { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...b.head.map((text, i) => cell("th", text, i)))),
      h("tbody", {}, ...b.rows.map((row) => h("tr", {}, ...row.map((text, i) => cell("td", text, i))))),
    ),
  );
}

// Goes from a footnote's number to the footnote, and back.
function followNote(e) {
  const from = e.target.closest?.(".note-ref, .note-back");
  if (!from) return;
  e.preventDefault();
  const wanted = from.matches(".note-ref") ? ".footnote" : ".note-ref",
    to = from.closest(".markdown").querySelector(`${wanted}[data-note="${CSS.escape(from.dataset.note)}"]`);
  to?.scrollIntoView({ block: "nearest" });
  to?.focus();
}

// One listener for all copy buttons and footnotes below `root`: streaming replaces the elements themselves.
export function listenForClicks(root) {
  root.addEventListener("click", followNote);
  root.addEventListener("click", async (e) => {
    const button = e.target.closest?.(".copy-code");
    if (!button) return;
    const label = button.querySelector("span");
    const done = await copyText(button.closest(".code").querySelector("code").textContent);
    label.textContent = done ? "Copied" : "Copying failed";
    setTimeout(() => (label.textContent = "Copy"), 1500);
  });
}

// Shows a growing text in `root`. Blocks that cannot change any more are rendered once; the last two
// at most once per frame, and less often if that takes long.
export class MarkdownStream {
  constructor(root) {
    this.root = root;
    this.source = "";
    this.done = 0; // characters of the source in finished blocks
    this.nDone = 0; // finished children of root
    this.timer = 0;
    this.pause = 0;
  }

  update(source) {
    this.source = source;
    if (this.timer) return;
    this.timer = setTimeout(() => requestAnimationFrame(() => this.frame()), this.pause);
  }

  frame() {
    if (!this.timer) return;
    this.timer = 0;
    const start = performance.now();
    this.render();
    // Quick updates are drawn in every frame; otherwise drawing takes at most a fifth of the time.
    const cost = performance.now() - start;
    this.pause = cost < QUICK_MS ? 0 : Math.min(1000, 4 * cost);
  }

  // Shows all of the source now.
  finish(source) {
    clearTimeout(this.timer);
    this.timer = 0;
    this.source = source;
    // Footnotes come last, but their numbers stand in blocks that were finished before.
    if (footnotesOf(source).size) this.done = this.nDone = 0;
    this.render();
  }

  render() {
    const lines = splitLines(this.source.slice(this.done));
    const blocks = parseBlocks(lines);
    const fresh = withNotes(footnotesOf(this.source), () => blocks.map(renderBlock));
    morphChildren(this.root, fresh, this.root.childNodes[this.nDone] ?? null);
    const keep = blocks.length - 2;
    if (keep <= 0) return;
    this.done = this.offsetOfLine(blocks[keep].from);
    this.nDone += keep;
  }

  offsetOfLine(n) {
    let at = this.done;
    for (let i = 0; i < n; i++) at = this.source.indexOf("\n", at) + 1;
    return at;
  }
}
