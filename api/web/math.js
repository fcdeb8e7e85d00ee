// LaTeX -> MathML, by KaTeX, which is loaded with the first formula. KaTeX's tree is copied to elements one
// by one, MathML only, so that a formula can neither load nor link anything. What KaTeX refuses is shown as
// its source.
import { h } from "./dom.js";

const MAX_CHARS = 10_000,
  MAX_KEPT = 300;
const OPTIONS = { output: "mathml", throwOnError: true, strict: false, trust: false, maxExpand: 1000, maxSize: 50 };
const ELEMENT = /^(?:math|semantics|annotation|m(?!action|glyph)[a-z]+)$/;
const MATHML = "http://www.w3.org/1998/Math/MathML";

let katex = null,
  loading = null;
const kept = new Map(); // source -> element, to be cloned

// Resolves when formulas can be rendered at once.
export function loadMath() {
  loading ??= import("./vendor/katex.min.js").then(
    () => {
      katex = globalThis.katex;
      for (const el of document.querySelectorAll(".math")) fill(el, el.dataset.tex, "display" in el.dataset);
    },
    () => (loading = null),
  );
  return loading;
}

function copy(node) {
  if (node.text !== undefined) return document.createTextNode(node.text);
  if (!node.type) return document.createTextNode(node.character ?? " ");
  if (!ELEMENT.test(node.type)) throw new Error(`no element of a formula: ${node.type}`);
  const el = document.createElementNS(MATHML, node.type);
  for (const [name, value] of Object.entries(node.attributes)) {
    if (name === "style") el.style.cssText = value;
    else if (!/^(?:xmlns|href|src|on.*)$/.test(name)) el.setAttribute(name, value);
  }
  el.append(...node.children.map(copy));
  return el;
}

function makeFormula(tex, display) {
  if (tex.length > MAX_CHARS) return null;
  try {
    return copy(katex.__renderToDomTree(tex, { ...OPTIONS, displayMode: display }).children[0]);
  } catch {
    return null;
  }
}

function fill(el, tex, display) {
  const key = `${display} ${tex}`;
  if (!kept.has(key)) {
    if (kept.size >= MAX_KEPT) kept.delete(kept.keys().next().value);
    kept.set(key, makeFormula(tex, display));
  }
  const formula = kept.get(key);
  if (formula) el.replaceChildren(formula.cloneNode(true));
}

// `source` is the text with its delimiters.
export function renderMath(tex, source, display) {
  const el = h(
    "span",
    { class: "math", "data-tex": tex, "data-display": display, tabindex: display ? "0" : null },
    h("code", {}, source),
  );
  if (katex) fill(el, tex, display);
  else loadMath();
  return el;
}
