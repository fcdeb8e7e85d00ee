// Markdown, the block half: lines -> a tree of blocks. Pure, no DOM. CommonMark with GitHub's tables,
// task lists and footnotes, and formulas between $$ or \\[ \\]; HTML is text. Depth is bounded, so that parsing hostile text takes no longer than
// parsing plain text of the same length.

const MAX_DEPTH = 16;

const FENCE = /^( {0,3})(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const MARKER = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;
const UNDERLINE = /^ {0,3}(?:=+|-+)[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const FORMULA = /^ {0,3}(\$\$|\\\[)/;
const FOOTNOTE = /^ {0,3}\[\^([^\]\s]{1,80})\]:[ \t]*/;
const FORMULA_LINES = 200;
const TASK = /^\[([ xX])\][ \t]+/;

const isBlank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;

function isRule(line) {
  const bare = line.replace(/[ \t]/g, "");
  return indentOf(line) < 4 && bare.length >= 3 && "-*_".includes(bare[0]) && bare === bare[0].repeat(bare.length);
}

function markerOf(line) {
  const m = MARKER.exec(line);
  if (!m || isRule(line)) return null;
  const [whole, before, sign, after] = m;
  const wide = after.length > 4; // more than four spaces: the item begins with indented code
  return {
    indent: before.length,
    width: wide ? before.length + sign.length + 1 : Math.max(whole.length, before.length + sign.length + 1),
    kind: sign.at(-1),
    start: sign.length > 1 ? Number.parseInt(sign, 10) : null,
    empty: whole.length === line.length,
  };
}

// Does this line end a paragraph before it?
function interrupts(line) {
  if (FORMULA.test(line) || FOOTNOTE.test(line)) return true;
  if (FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || isRule(line)) return true;
  const m = markerOf(line);
  return m !== null && !m.empty && (m.start === null || m.start === 1);
}

// The cells of a table's row.
function cellsOf(line) {
  const cells = [];
  let cell = "";
  const text = line.trim().replace(/^\|/, "");
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\" && text[i + 1] === "|") {
      cell += "|";
      i++;
    } else if (text[i] === "|") {
      cells.push(cell.trim());
      cell = "";
    } else {
      cell += text[i];
    }
  }
  if (cell.trim() || !cells.length) cells.push(cell.trim());
  return cells;
}

function alignments(line) {
  if (!line || !line.includes("-") || !/^[|:\- \t]+$/.test(line)) return null;
  const cells = cellsOf(line);
  if (!cells.every((c) => /^:?-+:?$/.test(c))) return null;
  return cells.map((c) =>
    c.endsWith(":") ? (c.startsWith(":") ? "center" : "right") : c.startsWith(":") ? "left" : "",
  );
}

class Scanner {
  constructor(lines, depth) {
    this.lines = lines;
    this.depth = depth;
    this.i = 0;
  }

  get line() {
    return this.lines[this.i];
  }

  more() {
    return this.i < this.lines.length;
  }

  block() {
    if (this.depth >= MAX_DEPTH) return this.paragraph(true);
    return (
      this.fence() ??
      this.heading() ??
      this.rule() ??
      this.quote() ??
      this.list() ??
      this.formula() ??
      this.footnote() ??
      this.table() ??
      this.indented() ??
      this.paragraph(false)
    );
  }

  fence() {
    const m = FENCE.exec(this.line);
    if (!m) return null;
    const [, indent, marks, info] = m;
    const text = [];
    let closed = false;
    for (this.i++; this.more() && !closed; this.i++) {
      const end = this.line.trim();
      closed = end.length >= marks.length && end === marks[0].repeat(end.length) && indentOf(this.line) < 4;
      if (!closed) text.push(this.line.slice(Math.min(indent.length, indentOf(this.line))));
    }
    return { kind: "code", lang: info.trim().split(/[\s{]/)[0], text: text.join("\n"), closed };
  }

  heading() {
    const m = HEADING.exec(this.line);
    if (!m) return null;
    this.i++;
    const text = (m[2] ?? "").trim();
    const bare = text.replace(/#+$/, "");
    return { kind: "heading", level: m[1].length, text: bare === "" || /[ \t]$/.test(bare) ? bare.trim() : text };
  }

  rule() {
    if (!isRule(this.line)) return null;
    this.i++;
    return { kind: "rule" };
  }

  quote() {
    if (!QUOTE.test(this.line)) return null;
    const inner = [];
    let open = false; // a paragraph that continues without the marker
    for (; this.more(); this.i++) {
      const marked = QUOTE.test(this.line);
      if (!marked && (!open || isBlank(this.line) || interrupts(this.line))) break;
      const line = marked ? this.line.replace(QUOTE, "") : this.line;
      open = !isBlank(line) && !FENCE.test(line);
      inner.push(line);
    }
    return { kind: "quote", blocks: parseBlocks(inner, this.depth + 1) };
  }

  list() {
    const first = markerOf(this.line);
    if (!first) return null;
    const list = { kind: "list", ordered: first.start !== null, start: first.start, loose: false, items: [] };
    for (;;) {
      const item = this.item(markerOf(this.line));
      list.items.push(item);
      list.loose ||= item.blocks.some((b, i) => i > 0 && b.from > item.blocks[i - 1].to);
      const blank = this.more() && isBlank(this.line);
      const next = this.nextFull();
      const m = next < this.lines.length ? markerOf(this.lines[next]) : null;
      if (!m || m.kind !== first.kind) break;
      list.loose ||= blank;
      this.i = next;
    }
    return list;
  }

  nextFull() {
    let j = this.i;
    while (j < this.lines.length && isBlank(this.lines[j])) j++;
    return j;
  }

  item(marker) {
    const inner = [this.line.slice(marker.width)];
    this.i++;
    while (this.more()) {
      const blank = isBlank(this.line);
      const at = blank ? this.nextFull() : this.i;
      if (at === this.lines.length || !this.belongs(this.lines[at], marker, blank)) break;
      for (; this.i < at; this.i++) inner.push("");
      inner.push(this.line.slice(Math.min(marker.width, indentOf(this.line))));
      this.i++;
    }
    const task = TASK.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    return { task: task ? task[1] !== " " : null, blocks: parseBlocks(inner, this.depth + 1) };
  }

  // Is `line` part of the item? Models indent inner lists by two columns under any marker.
  belongs(line, marker, afterBlank) {
    const indent = indentOf(line);
    if (indent >= marker.width) return true;
    if (indent >= marker.indent + 2 && markerOf(line.trimStart())) return true;
    return !afterBlank && !interrupts(line) && !markerOf(line);
  }

  table() {
    if (!this.line.includes("|")) return null;
    const align = alignments(this.lines[this.i + 1]);
    const head = align && cellsOf(this.line);
    if (!head || head.length !== align.length) return null;
    const rows = [];
    for (this.i += 2; this.more() && !isBlank(this.line) && this.line.includes("|"); this.i++) {
      const cells = cellsOf(this.line).slice(0, head.length);
      while (cells.length < head.length) cells.push("");
      rows.push(cells);
    }
    return { kind: "table", align, head, rows };
  }

  // Ends where the closing delimiter ends a line; without it, it is a paragraph.
  formula() {
    const open = FORMULA.exec(this.line)?.[1];
    if (!open) return null;
    const close = open === "$$" ? "$$" : "\\]",
      text = [this.line.trimStart().slice(open.length)];
    for (let j = this.i; ; text.push(this.lines[++j])) {
      const end = text.at(-1).indexOf(close);
      if (
        end >= 0 &&
        text
          .at(-1)
          .slice(end + close.length)
          .trim()
      )
        return null;
      if (end < 0 && (j + 1 >= this.lines.length || text.length >= FORMULA_LINES)) return null;
      if (end < 0) continue;
      text[text.length - 1] = text.at(-1).slice(0, end);
      this.i = j + 1;
      const tex = text.join("\n");
      return tex.trim() ? { kind: "formula", tex: tex.trim(), source: open + tex + close } : null;
    }
  }

  // [^label]: text, with the indented lines that follow.
  footnote() {
    const m = FOOTNOTE.exec(this.line);
    if (!m) return null;
    const inner = [this.line.slice(m[0].length)];
    for (this.i++; this.more(); this.i++) {
      const next = isBlank(this.line) ? this.lines[this.nextFull()] : this.line;
      const goesOn = next !== undefined && (indentOf(next) >= 2 || (!isBlank(this.line) && !interrupts(next)));
      if (!goesOn) break;
      inner.push(this.line.slice(Math.min(4, indentOf(this.line))));
    }
    return { kind: "footnote", label: m[1], blocks: parseBlocks(inner, this.depth + 1) };
  }

  indented() {
    if (indentOf(this.line) < 4) return null;
    const text = [];
    for (; this.more() && (isBlank(this.line) || indentOf(this.line) >= 4); this.i++) text.push(this.line.slice(4));
    return { kind: "code", lang: "", text: text.join("\n").trimEnd(), closed: true };
  }

  paragraph(plain) {
    const text = [this.line.trimStart()];
    for (this.i++; this.more() && !isBlank(this.line); this.i++) {
      if (!plain && UNDERLINE.test(this.line)) {
        const level = this.line.trim()[0] === "=" ? 1 : 2;
        this.i++;
        return { kind: "heading", level, text: text.join("\n") };
      }
      if (!plain && interrupts(this.line)) break;
      text.push(this.line.trimStart());
    }
    return { kind: "paragraph", text: text.join("\n").trimEnd() };
  }
}

// Blocks with the lines that they cover: [from, to).
export function parseBlocks(lines, depth = 0) {
  const scanner = new Scanner(lines, depth),
    blocks = [];
  while (scanner.more()) {
    if (isBlank(scanner.line)) {
      scanner.i++;
      continue;
    }
    const from = scanner.i;
    blocks.push({ ...scanner.block(), from, to: scanner.i });
  }
  return blocks;
}

export const splitLines = (text) =>
  text
    .split("\n")
    .map((l) => (l.endsWith("\r") ? l.slice(0, -1) : l).replace(/^[ \t]+/, (s) => s.replaceAll("\t", "    ")));

// The labels of the footnotes that a text defines.
export const footnotesOf = (text) => new Set(Array.from(text.matchAll(/^ {0,3}\[\^([^\]\s]{1,80})\]:/gm), (m) => m[1]));
