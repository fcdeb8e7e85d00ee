// The playground: answers that follow a JSON schema, and tools whose results the reader types.
import { $, h } from "./dom.js";
import { asMessage } from "./answer.js";
import { Bench, field } from "./bench.js";
import { SCHEMAS, TOOLS } from "./examples.js";
import { JsonEditor, readJson } from "./json_editor.js";
import { Tabs } from "./tabs.js";

const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);
const FAILED = { stopped: "Stopped.", cut: "The connection broke.", failed: "The server refused the request." };

class SchemaMode extends Bench {
  constructor(root, connection) {
    const editor = new JsonEditor({
      id: "schema-text",
      label: "JSON schema",
      rows: 14,
      hint: "The answer must follow it.",
      check: (v) => (isObject(v) || typeof v === "boolean" ? null : "A schema must be an object."),
    });
    const name = h("input", { type: "text", maxlength: 64, autocomplete: "off", spellcheck: "false" });
    const strict = h("input", { type: "checkbox", id: "schema-strict" });
    super({
      root,
      connection,
      prefix: "schema",
      examples: SCHEMAS,
      extra: [
        editor.el,
        field("schema-name", "Name of the schema", name),
        h("p", { class: "check" }, strict, h("label", { for: "schema-strict" }, "strict")),
      ],
    });
    Object.assign(this, { editor, name, strict });
    strict.checked = true;
    this.choose(SCHEMAS[0]);
  }

  choose(example) {
    this.fill(example);
    this.editor.set(example.schema);
    this.name.value = example.name
      .toLowerCase()
      .replace(/[^a-z]+/g, "_")
      .replace(/^_|_$/g, "");
  }

  async submit() {
    if (!this.editor.read()) return this.editor.box.focus();
    this.result.replaceChildren();
    const json_schema = { name: this.name.value.trim(), schema: this.editor.value, strict: this.strict.checked };
    const answer = await this.run(
      {
        messages: [{ role: "user", content: this.prompt.value }],
        response_format: { type: "json_schema", json_schema },
      },
      { json: true },
    );
    return this.judge(answer);
  }

  judge(answer) {
    if (answer.state !== "done") return this.say(FAILED[answer.state], "bad");
    const { error } = readJson(answer.content);
    if (!error) return this.say("The answer is valid JSON.", "good");
    const why = answer.finish === "length" ? "it was cut off at the token limit" : error;
    return this.say(`The answer does not parse: ${why}.`, "bad");
  }
}

class ToolsMode extends Bench {
  constructor(root, connection) {
    const editor = new JsonEditor({
      id: "tools-text",
      label: "Tools",
      rows: 14,
      hint: "An array, as in the request field “tools”.",
      check: (v) =>
        Array.isArray(v) && v.length && v.every((t) => isObject(t?.function) && t.function.name)
          ? null
          : "Tools must be an array of objects, each with type and function.",
      onChange: () => this.fillChoices(),
    });
    const choice = h("select", {});
    const parallel = h("input", { type: "checkbox", id: "tools-parallel" });
    super({
      root,
      connection,
      prefix: "tools",
      examples: TOOLS,
      extra: [
        editor.el,
        field(
          "tools-choice",
          "Tool choice",
          choice,
          "When results are sent, “required” and a named tool become “auto”.",
        ),
        h("p", { class: "check" }, parallel, h("label", { for: "tools-parallel" }, "several calls in one answer")),
      ],
    });
    Object.assign(this, { editor, choice, parallel });
    this.choose(TOOLS[0]);
  }

  choose(example) {
    this.fill(example);
    this.editor.set(example.tools);
    this.fillChoices();
    this.choice.value = example.choice;
    this.parallel.checked = false;
  }

  // auto, none, required, and each tool by its name.
  fillChoices() {
    const before = this.choice.value,
      names = (this.editor.value ?? []).map((t) => t.function.name);
    const words = [
      ["", "default (auto)"],
      ["auto", "auto"],
      ["none", "none"],
      ["required", "required"],
    ];
    this.choice.replaceChildren(
      ...[...words, ...names.map((n) => [`function ${n}`, `only ${n}`])].map(([value, text]) =>
        h("option", { value }, text),
      ),
    );
    this.choice.value = before;
    if (this.choice.selectedIndex < 0) this.choice.value = "";
  }

  toolChoice(followUp) {
    const { value } = this.choice;
    if (!value) return {};
    if (followUp && value !== "none") return { tool_choice: "auto" };
    return {
      tool_choice: value.startsWith("function ")
        ? { type: "function", function: { name: value.slice("function ".length) } }
        : value,
    };
  }

  submit() {
    if (!this.editor.read()) return this.editor.box.focus();
    this.messages = [{ role: "user", content: this.prompt.value }];
    this.result.replaceChildren();
    return this.ask(false);
  }

  async ask(followUp) {
    const body = { messages: this.messages, tools: this.editor.value, ...this.toolChoice(followUp) };
    if (!this.parallel.checked) body.parallel_tool_calls = false;
    const answer = await this.run(body);
    if (answer.state !== "done") return this.say(FAILED[answer.state], "bad");
    const calls = answer.tool_calls.filter(Boolean);
    if (!calls.length)
      return this.say(followUp ? "The model has answered." : "The model answered without calling a tool.", "good");
    this.messages = [...this.messages, asMessage(answer)];
    this.result.append(this.resultForm(calls));
    return this.say(
      calls.length === 1
        ? "The model calls a tool: type what it returns."
        : `The model calls ${calls.length} tools: type what they return.`,
      "good",
    );
  }

  // One field for each call; sending them is the round trip.
  resultForm(calls) {
    const boxes = calls.map(() =>
      h("textarea", { rows: 2, class: "mono", placeholder: '{"ok": true}', spellcheck: "false" }),
    );
    const send = h("button", { type: "submit", class: "primary" }, calls.length === 1 ? "Send result" : "Send results");
    const form = h(
      "form",
      { class: "tool-results", "aria-label": "Results of the tools" },
      ...calls.map((call, i) =>
        field(`tool-result-${this.messages.length}-${i}`, `Result of ${call.function.name}`, boxes[i]),
      ),
      h("div", { class: "row" }, send),
    );
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      if (!this.free() || !this.editor.read()) return;
      send.remove();
      for (const box of boxes) box.readOnly = true;
      this.messages = [
        ...this.messages,
        ...calls.map((call, i) => ({ role: "tool", tool_call_id: call.id, content: boxes[i].value })),
      ];
      this.ask(true);
    });
    return form;
  }
}

export function startPlayground(connection) {
  const modes = new Tabs($("modes"));
  modes.show("schema");
  return [new SchemaMode($("panel-schema"), connection), new ToolsMode($("panel-tools"), connection)];
}
