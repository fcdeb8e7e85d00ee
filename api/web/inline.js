// Markdown, the inline half: one paragraph's text -> DOM nodes. HTML in it stays text, a link must lead
// to http, https or mailto, and an image comes from the text itself (data:) or from this server.
import { h } from "./dom.js";
import { renderMath } from "./math.js";

const MAX_DELIMITERS = 1000; // beyond this, stars are text: bounds nesting and time
const MAX_TARGET = 2000,
  MAX_IMAGE = 4 << 20; // characters of a data: address

const PLAIN = /(?:(?!https?:\/\/)[^\\`*_~[\]!<&\n$])+/y;
const URL_TEXT = /https?:\/\/[^\s<>"'`]+/y;
const ANGLE = /<((?:https?:|mailto:)[^\s<>]{1,2000})>/y;
const ENTITY = /&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|(amp|lt|gt|quot|apos|nbsp|copy|mdash|ndash|hellip));/y;
const NAMED = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  copy: "©",
  mdash: "—",
  ndash: "–",
  hellip: "…",
};
const SPACE = /\s/,
  PUNCTUATION = /[\p{P}\p{S}]/u;

function safeUrl(text) {
  if (!URL.canParse(text)) return null; // relative links too: they would lead into this server
  const url = new URL(text);
  return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
}

const DATA_IMAGE = /^data:image\/[a-z0-9.+-]+[;,]/i;

// Nothing is loaded from another host: the page's policy forbids it too.
function imageUrl(text) {
  if (DATA_IMAGE.test(text)) return text;
  if (!URL.canParse(text, document.baseURI)) return null;
  const url = new URL(text, document.baseURI);
  return url.origin === location.origin ? url.href : null;
}

const NOTE = /\[\^([^\]\s]{1,80})\]/y;
let notes = new Set();

// Renders with these labels of footnotes.
export function withNotes(labels, render) {
  const before = notes;
  notes = labels;
  try {
    return render();
  } finally {
    notes = before;
  }
}

const noteReference = (label) =>
  h(
    "sup",
    {},
    h(
      "a",
      { href: "#", class: "note-ref", role: "doc-noteref", "data-note": label, "aria-label": `Footnote ${label}` },
      label,
    ),
  );

const link = (href, title, ...children) =>
  h("a", { href, title, target: "_blank", rel: "noopener noreferrer" }, ...children);

// "(target "title")" at `at`; null when it is not one.
function targetAt(text, at) {
  if (text[at] !== "(") return null;
  const part = text.slice(at, at + (text.startsWith("data:image/", at + 1) ? MAX_IMAGE : MAX_TARGET));
  let i = 1,
    depth = 0;
  while (/[ \n]/.test(part[i] ?? "")) i++;
  const from = i;
  if (part[i] === "<") {
    const end = part.indexOf(">", i);
    if (end < 0) return null;
    return closing(part, end + 1, part.slice(i + 1, end));
  }
  for (; i < part.length && !/\s/.test(part[i]); i++) {
    if (part[i] === "(") depth++;
    if (part[i] === ")" && depth-- === 0) break;
  }
  return closing(part, i, part.slice(from, i));
}

function closing(part, at, url) {
  const end = /\s*(?:"([^"]*)"|'([^']*)')?\s*\)/y;
  end.lastIndex = at;
  const m = end.exec(part);
  return m && { url, title: m[1] ?? m[2], length: at + m[0].length };
}

// May a run of delimiters between these characters open or close emphasis? (CommonMark, 6.2)
function flanking(mark, before, after) {
  const spaceBefore = !before || SPACE.test(before),
    spaceAfter = !after || SPACE.test(after);
  const dotBefore = before && PUNCTUATION.test(before),
    dotAfter = after && PUNCTUATION.test(after);
  const left = !spaceAfter && (!dotAfter || spaceBefore || dotBefore);
  const right = !spaceBefore && (!dotBefore || spaceAfter || dotAfter);
  if (mark !== "_") return { opens: left, closes: right };
  return { opens: left && (!right || dotBefore), closes: right && (!left || dotAfter) };
}

const asNode = (item) => (item.mark ? item.mark.repeat(item.n) : item.bracket ? item.bracket : item);

// The number of delimiters of the two runs that pair; 0 if they do not.
function pairs(opener, closer) {
  if (opener.mark !== closer.mark) return 0;
  if (opener.mark === "~") return opener.n === closer.n && opener.n <= 2 ? opener.n : 0;
  const both = (opener.closes || closer.opens) && (opener.whole + closer.whole) % 3 === 0;
  if (both && (opener.whole % 3 || closer.whole % 3)) return 0;
  return opener.n >= 2 && closer.n >= 2 ? 2 : 1;
}

function wrap(mark, n, inner) {
  return h(mark === "~" ? "del" : n === 2 ? "strong" : "em", {}, ...inner.map(asNode));
}

// Pairs the delimiters among the items; unpaired ones become text.
function emphasise(items) {
  const out = [];
  let openers = []; // indices into out
  for (const item of items) {
    if (!item.mark) {
      out.push(item);
      continue;
    }
    let at = item.closes ? openers.length - 1 : -1;
    while (at >= 0 && item.n > 0) {
      const opener = out[openers[at]],
        n = pairs(opener, item);
      if (!n) {
        at--;
        continue;
      }
      const inner = out.splice(openers[at] + 1);
      opener.n -= n;
      item.n -= n;
      openers = openers.slice(0, at + (opener.n > 0 ? 1 : 0));
      if (opener.n === 0) out.pop();
      out.push(wrap(item.mark, n, inner));
      at = openers.length - 1;
    }
    if (item.n > 0) {
      if (item.opens) openers.push(out.length);
      out.push(item);
    }
  }
  return out.map(asNode);
}

class Inline {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.items = []; // strings, nodes, {mark...}, {bracket}
    this.brackets = []; // indices of open brackets
    this.nDelimiters = 0;
    this.ticks = null; // length of a run of backticks -> its positions
  }

  run() {
    while (this.at < this.text.length) {
      this.take(PLAIN, (m) => this.items.push(m[0])) || this.special(this.text[this.at]);
    }
    return emphasise(this.items);
  }

  // Calls `use` with a match at the current position and advances past it.
  take(regex, use) {
    regex.lastIndex = this.at;
    const m = regex.exec(this.text);
    if (!m || use(m) === false) return false;
    this.at += m[0].length;
    return true;
  }

  push(text, length = text.length) {
    this.items.push(text);
    this.at += length;
  }

  special(c) {
    if (c === "\\") return this.escape();
    if (c === "`") return this.code();
    if (c === "\n") return this.lineBreak();
    if (c === "*" || c === "_" || c === "~") return this.delimiters(c);
    if (c === "$") return this.formula("$$", "$$", true) || this.dollar();
    if (c === "[" && this.take(NOTE, (m) => this.note(m[1]))) return undefined;
    if (c === "[" || (c === "!" && this.text[this.at + 1] === "[")) return this.open(c);
    if (c === "]") return this.close();
    if (c === "<" && this.take(ANGLE, (m) => this.address(m[1], m[1]))) return undefined;
    if (c === "&" && this.take(ENTITY, (m) => this.entity(m))) return undefined;
    if (c === "h" && this.bareUrl()) return undefined;
    return this.push(c);
  }

  note(label) {
    if (!notes.has(label)) return false;
    this.items.push(noteReference(label));
    return true;
  }

  // A formula between delimiters; false if there is none.
  formula(open, close, display) {
    if (!this.text.startsWith(open, this.at) || this.unclosed?.has(close)) return false;
    const from = this.at + open.length,
      end = this.text.indexOf(close, from);
    if (end < 0) (this.unclosed ??= new Set()).add(close); // not searched for again
    const tex = this.text.slice(from, Math.max(from, end));
    if (!tex.trim()) return false;
    this.push(renderMath(tex.trim(), open + tex + close, display), end + close.length - this.at);
    return true;
  }

  // $x$ is a formula unless the signs look like those of amounts: no space inside, no letter or digit outside.
  dollar() {
    const m = /\$((?:[^\s$\\]|\\[^])(?:(?:[^$\\]|\\[^]){0,2000}?[^\s$\\])?|\\[^])\$(?![\p{L}\p{N}])/uy;
    m.lastIndex = this.at;
    const found = /[\p{L}\p{N}]/u.test(this.text[this.at - 1] ?? "") ? null : m.exec(this.text);
    if (!found) return this.push("$");
    return this.push(renderMath(found[1], found[0], false), found[0].length);
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === "(" && this.formula("\\(", "\\)", false)) return;
    if (next === "[" && this.formula("\\[", "\\]", true)) return;
    if (next === "\n") this.push(h("br"), 2);
    else if (next && /[!-/:-@[-`{-~]/.test(next)) this.push(next, 2);
    else this.push("\\");
  }

  lineBreak() {
    if (typeof this.items.at(-1) === "string") this.items[this.items.length - 1] = this.items.at(-1).trimEnd();
    this.push(h("br"), 1);
  }

  entity([, decimal, hex, name]) {
    const code = decimal ? Number(decimal) : hex ? Number.parseInt(hex, 16) : null;
    if (code !== null && (code === 0 || code > 0x10ffff)) return false;
    this.items.push(name ? NAMED[name] : String.fromCodePoint(code));
    return true;
  }

  address(text, target) {
    const href = safeUrl(target);
    if (!href) return false;
    this.items.push(link(href, undefined, text));
    return true;
  }

  bareUrl() {
    URL_TEXT.lastIndex = this.at;
    let text = URL_TEXT.exec(this.text)?.[0];
    if (!text || this.brackets.length) return false;
    text = text.replace(/[.,;:!?*_~\]]+$/, "");
    if (text.endsWith(")") && !text.includes("(")) text = text.slice(0, -1);
    if (!this.address(text, text)) return false;
    this.at += text.length;
    return true;
  }

  code() {
    const run = /`+/y;
    run.lastIndex = this.at;
    const n = run.exec(this.text)[0].length,
      from = this.at + n;
    const end = this.closingTicks(n, from);
    if (end < 0) return this.push("`".repeat(n));
    let text = this.text.slice(from, end).replaceAll("\n", " ");
    if (text.trim() && text.startsWith(" ") && text.endsWith(" ")) text = text.slice(1, -1);
    return this.push(h("code", {}, text), end + n - this.at);
  }

  // Finds all runs once, so that a text of backticks takes linear time.
  closingTicks(n, from) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const m of this.text.matchAll(/`+/g)) {
        if (!this.ticks.has(m[0].length)) this.ticks.set(m[0].length, []);
        this.ticks.get(m[0].length).push(m.index);
      }
      for (const list of this.ticks.values()) list.reverse();
    }
    const list = this.ticks.get(n) ?? [];
    while (list.length && list.at(-1) < from) list.pop();
    return list.at(-1) ?? -1;
  }

  delimiters(mark) {
    let n = 1;
    while (this.text[this.at + n] === mark) n++;
    if (++this.nDelimiters > MAX_DELIMITERS) return this.push(mark.repeat(n));
    const flanks = flanking(mark, this.text[this.at - 1], this.text[this.at + n]);
    return this.push({ mark, n, whole: n, ...flanks }, n);
  }

  open(c) {
    this.brackets.push(this.items.length);
    this.push({ bracket: c === "!" ? "![" : "[" }, c === "!" ? 2 : 1);
  }

  close() {
    const target = this.brackets.length ? targetAt(this.text, this.at + 1) : null;
    const from = this.brackets.pop();
    if (!target) return this.push("]");
    if (this.items[from].bracket === "![" && this.image(from, target)) return undefined;
    const href = safeUrl(target.url);
    // Other targets are shown as written, without a link.
    if (!href) return this.push(this.text.slice(this.at, this.at + 1 + target.length));
    const inner = emphasise(this.items.splice(from + 1));
    const { bracket } = this.items.pop();
    this.at += 1 + target.length;
    if (bracket === "![") inner.unshift(inner.length ? "Image: " : `Image: ${target.url}`);
    this.items.push(link(href, target.title, ...withoutLinks(inner)));
    // Links do not nest: the brackets around this one are text.
    if (bracket === "[") this.brackets = [];
    return undefined;
  }

  image(from, target) {
    const src = imageUrl(target.url);
    if (!src) return false;
    const alt = emphasise(this.items.splice(from + 1)).map((n) => n.textContent ?? n);
    this.items.pop();
    this.items.push(h("img", { src, alt: alt.join(""), title: target.title, loading: "lazy" }));
    this.at += 1 + target.length;
    return true;
  }
}

const withoutLinks = (nodes) => nodes.flatMap((n) => (n instanceof HTMLAnchorElement ? [...n.childNodes] : [n]));

export const renderInline = (text) => new Inline(text).run();
