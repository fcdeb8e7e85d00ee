// A text field for JSON that reports mistakes while the user types.
import { h } from "./dom.js";
import { whyNotJson } from "./json_place.js";

// {value} or {error}.
export function readJson(text) {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { error: whyNotJson(text) };
  }
}

const LINE = 72;

// Formats JSON; what fits on a line stays on one line.
function layOut(value, indent = "") {
  const line = JSON.stringify(value, null, 1).replace(/\n */g, " ");
  if (typeof value !== "object" || value === null || indent.length + line.length <= LINE) return line;
  const inner = `${indent}  `,
    list = Array.isArray(value);
  const rows = list
    ? value.map((v) => layOut(v, inner))
    : Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}: ${layOut(v, inner)}`);
  return `${list ? "[" : "{"}\n${rows.map((r) => inner + r).join(",\n")}\n${indent}${list ? "]" : "}"}`;
}

export class JsonEditor {
  // check(value) returns an error message for parsed JSON, or null.
  constructor({ id, label, rows, hint, check, onChange }) {
    this.check = check;
    this.hint = hint;
    this.box = h("textarea", {
      id,
      rows,
      class: "mono",
      spellcheck: "false",
      autocomplete: "off",
      "aria-describedby": `${id}-note`,
    });
    this.note = h("small", { id: `${id}-note`, "aria-live": "polite" });
    this.el = h("div", { class: "field wide" }, h("label", { for: id }, label), this.box, this.note);
    this.box.addEventListener("input", () => {
      this.read();
      onChange?.(this.value);
    });
  }

  set(value) {
    this.box.value = layOut(value);
    this.read();
  }

  // Is the text valid? Then `value` is the parsed JSON.
  read() {
    const { value, error } = readJson(this.box.value),
      wrong = error ?? this.check?.(value) ?? null;
    this.value = wrong ? undefined : value;
    this.box.setAttribute("aria-invalid", String(Boolean(wrong)));
    const text = error ? `Not JSON: ${error}.` : (wrong ?? this.hint);
    if (this.note.textContent !== text) this.note.textContent = text;
    return !wrong;
  }
}
