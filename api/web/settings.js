// The sampling parameters as forms. An empty field is not sent: the server's default applies.
import { h } from "./dom.js";

const INTEGER = /^[+-]?\d+$/;

const FIELDS = {
  system: { label: "System prompt", kind: "text", rows: 4, wide: true, hint: "Tells the model how to answer." },
  temperature: { label: "Temperature", min: 0, max: 2, hint: "0 always takes the likeliest token." },
  top_p: {
    label: "Top p",
    min: 0,
    max: 1,
    hint: "Samples from the most likely tokens whose probabilities sum to this.",
  },
  top_k: {
    label: "Top k",
    min: -1,
    max: 2147483647,
    integer: true,
    hint: "Samples from this many most likely tokens; 0 disables it.",
  },
  min_p: { label: "Min p", min: 0, max: 1, hint: "Excludes tokens below this fraction of the highest probability." },
  max_tokens: { label: "Max tokens", min: 1, max: 2147483647, integer: true, hint: "Maximum length of the answer." },
  seed: {
    label: "Seed",
    integer: true,
    big: true,
    min: -(2n ** 63n),
    max: 2n ** 63n - 1n,
    hint: "The same seed gives the same answer.",
  },
  presence_penalty: { label: "Presence penalty", min: -2, max: 2, hint: "Penalizes tokens that occur already." },
  frequency_penalty: { label: "Frequency penalty", min: -2, max: 2, hint: "Penalizes tokens by how often they occur." },
  repetition_penalty: { label: "Repetition penalty", min: 0.01, max: 10, hint: "1 disables it." },
  stop: { label: "Stop strings", kind: "lines", rows: 2, wide: true, hint: "One per line; \\n is a line break." },
};

export const CHAT_FIELDS = Object.keys(FIELDS);
export const PLAY_FIELDS = ["temperature", "max_tokens", "seed"];

// Text of a field -> {value} or {error}.
function parse(field, text) {
  if (field.kind === "text") return { value: text };
  if (field.kind === "lines")
    return {
      value: text
        .split("\n")
        .filter(Boolean)
        .map((l) => l.replaceAll("\\n", "\n").replaceAll("\\t", "\t")),
    };
  const trimmed = text.trim();
  if (field.integer && !INTEGER.test(trimmed)) return { error: "an integer" };
  const value = field.big ? BigInt(trimmed) : Number(trimmed);
  if (!field.big && !Number.isFinite(value)) return { error: "a number" };
  if (value < field.min || value > field.max) return { error: `from ${field.min} to ${field.max}` };
  return { value: field.big ? value.toString() : value };
}

export class SettingsForm {
  constructor(names, prefix, onChange) {
    this.inputs = new Map();
    this.notes = new Map();
    this.el = h("div", { class: "fields" }, ...names.map((name) => this.row(name, prefix)));
    this.el.addEventListener("input", () => {
      this.check();
      onChange?.();
    });
  }

  row(name, prefix) {
    const field = FIELDS[name],
      id = `${prefix}-${name.replaceAll("_", "-")}`;
    const common = {
      id,
      "aria-describedby": `${id}-hint`,
      autocomplete: "off",
      spellcheck: field.kind === "text" ? null : "false",
    };
    const input = field.kind
      ? h("textarea", { ...common, rows: field.rows, placeholder: "none" })
      : h("input", {
          ...common,
          type: "text",
          inputmode: field.integer ? "numeric" : "decimal",
          placeholder: "default",
        });
    const hint = h("small", { id: `${id}-hint` }, field.hint);
    this.inputs.set(name, input);
    this.notes.set(name, hint);
    return h("div", { class: field.wide ? "field wide" : "field" }, h("label", { for: id }, field.label), input, hint);
  }

  set(values) {
    for (const [name, input] of this.inputs) input.value = values[name] ?? "";
    this.check();
  }

  // The texts as typed, without the empty ones.
  get() {
    return Object.fromEntries(
      [...this.inputs].map(([name, input]) => [name, input.value]).filter(([, text]) => text !== ""),
    );
  }

  // Marks invalid fields; returns the name of the first, or null.
  check() {
    let bad = null;
    for (const [name, input] of this.inputs) {
      const { error } = input.value.trim() ? parse(FIELDS[name], input.value) : {};
      input.setAttribute("aria-invalid", String(Boolean(error)));
      this.notes.get(name).textContent = error ? `Must be ${error}.` : FIELDS[name].hint;
      if (error) bad ??= name;
    }
    return bad;
  }

  focus(name) {
    this.inputs.get(name)?.focus();
  }

  label(name) {
    return FIELDS[name].label;
  }

  // The request's fields.
  params() {
    const out = {};
    for (const [name, input] of this.inputs) {
      if (!input.value.trim()) continue;
      const { value } = parse(FIELDS[name], input.value);
      if (value !== undefined && value.length !== 0) out[name] = value;
    }
    return out;
  }
}
