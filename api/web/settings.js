// The sampling parameters as forms. An empty field is not sent: the server's default applies. Bounds are the server's
// (GET /v1/inferd/fields); until they have arrived it alone checks them.
import { fetchFields } from "./api.js";
import { h } from "./dom.js";

const INTEGER = /^[+-]?\d+$/;

const FIELDS = {
  system: { label: "System prompt", kind: "text", rows: 4, wide: true, hint: "Tells the model how to answer." },
  temperature: { label: "Temperature", hint: "0 always takes the likeliest token." },
  top_p: {
    label: "Top p",
    hint: "Samples from the most likely tokens whose probabilities sum to this.",
  },
  top_k: {
    label: "Top k",
    integer: true,
    hint: "Samples from this many most likely tokens; 0 disables it.",
  },
  min_p: { label: "Min p", hint: "Excludes tokens below this fraction of the highest probability." },
  max_tokens: { label: "Max tokens", integer: true, hint: "Maximum length of the answer." },
  seed: {
    label: "Seed",
    integer: true,
    big: true,
    hint: "The same seed gives the same answer.",
  },
  presence_penalty: { label: "Presence penalty", hint: "Penalizes tokens that occur already." },
  frequency_penalty: { label: "Frequency penalty", hint: "Penalizes tokens by how often they occur." },
  repetition_penalty: { label: "Repetition penalty", hint: "1 disables it." },
  stop: { label: "Stop strings", kind: "lines", rows: 2, wide: true, hint: "One per line; \\n is a line break." },
};

export const CHAT_FIELDS = Object.keys(FIELDS);
export const PLAY_FIELDS = ["temperature", "max_tokens", "seed"];

let bounds = null; // name -> {minimum, maximum}
let asking = null;

// Resolves once the bounds are there, or cannot be had for now.
async function loadBounds() {
  if (bounds) return;
  asking ??= fetchFields().finally(() => (asking = null));
  const chat = (await asking.catch(() => null))?.find((one) => one.endpoint === "POST /v1/chat/completions");
  if (chat) bounds = Object.fromEntries(chat.fields.map((field) => [field.name, field]));
}

// Text of a field -> {value} or {error}.
function parse(name, text) {
  const field = FIELDS[name];
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
  if (field.big && BigInt.asIntN(64, value) !== value) return { error: "an integer of 64 bits" };
  const { minimum, maximum } = (!field.big && bounds?.[name]) || {};
  if (value < (minimum ?? value) || value > (maximum ?? value)) return { error: `from ${minimum} to ${maximum}` };
  return { value: field.big ? value.toString() : value };
}

export class SettingsForm {
  constructor(names, prefix, onChange) {
    this.inputs = new Map();
    this.notes = new Map();
    this.el = h("div", { class: "fields" }, ...names.map((name) => this.row(name, prefix)));
    this.el.addEventListener("input", () => {
      this.check();
      if (!bounds) this.bound(); // not earlier: the page may have no key yet
      onChange?.();
    });
  }

  // Checks again when the bounds have arrived.
  async bound() {
    await loadBounds();
    if (bounds) this.check();
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
      const { error } = input.value.trim() ? parse(name, input.value) : {};
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
      const { value } = parse(name, input.value);
      if (value !== undefined && value.length !== 0) out[name] = value;
    }
    return out;
  }
}
