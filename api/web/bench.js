// Shared by both modes of the playground: a form with an example, a prompt and sampling fields; a
// running request that can be stopped.
import { h } from "./dom.js";
import { newAnswer, runAnswer } from "./answer.js";
import { AnswerView } from "./answer_view.js";
import { PLAY_FIELDS, SettingsForm } from "./settings.js";
import { notify } from "./notices.js";

export const field = (id, label, input, hint) => {
  input.id = id;
  return h("div", { class: "field wide" }, h("label", { for: id }, label), input, hint ? h("small", {}, hint) : null);
};

export class Bench {
  // root: the mode's panel; examples: [{name, prompt, max_tokens, ...}]; extra: elements of this mode's own.
  constructor({ root, connection, prefix, examples, extra }) {
    this.connection = connection;
    this.controller = null;
    this.example = h("select", {}, ...examples.map((e, i) => h("option", { value: i }, e.name)));
    this.prompt = h("textarea", { rows: 3 });
    this.sampling = new SettingsForm(PLAY_FIELDS, prefix);
    this.go = h("button", { type: "submit", class: "primary" }, "Run");
    this.end = h("button", { type: "button", hidden: true, onclick: () => this.stop() }, "Stop");
    this.result = h("section", { class: "play-result", "aria-label": "Result" });
    this.status = h("p", { class: "verdict", role: "status" });
    const form = h(
      "form",
      { class: "play-form", "aria-label": "Request" },
      field(`${prefix}-example`, "Example", this.example),
      field(`${prefix}-prompt`, "Prompt", this.prompt),
      ...extra,
      h("details", {}, h("summary", {}, "Sampling"), this.sampling.el),
      h("div", { class: "row" }, this.go, this.end),
    );
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      if (this.free()) this.submit();
    });
    this.example.addEventListener("change", () => this.choose(examples[this.example.value]));
    root.append(form, h("div", { class: "play-out" }, this.status, this.result));
  }

  // What both modes take from an example; temperature and seed stay as they are.
  fill({ prompt, max_tokens }) {
    this.prompt.value = prompt;
    this.sampling.set({ ...this.sampling.get(), max_tokens });
  }

  free() {
    if (this.controller) return false;
    if (!this.connection.ready) {
      notify("The server is not ready. The page keeps trying.");
      return false;
    }
    const bad = this.sampling.check();
    if (bad) notify(`“${this.sampling.label(bad)}” is not valid.`);
    return !bad;
  }

  stop() {
    this.controller?.abort();
  }

  busy(on) {
    const hadFocus = document.activeElement === (on ? this.go : this.end);
    this.go.hidden = on;
    this.end.hidden = !on;
    if (hadFocus) (on ? this.end : this.go).focus();
  }

  // Streams the answer to `body` into the result; returns it when it is complete.
  async run(body, options) {
    const { model } = this.connection,
      answer = newAnswer(),
      view = new AnswerView(answer, model.context_length, options);
    this.controller = new AbortController();
    this.result.append(view.el);
    this.busy(true);
    this.say("Running …", "");
    await runAnswer(answer, { model: model.id, ...body, ...this.sampling.params() }, this.controller.signal, () =>
      view.update(),
    );
    this.controller = null;
    this.busy(false);
    return answer;
  }

  say(text, kind) {
    this.status.textContent = text;
    this.status.dataset.kind = kind;
  }
}
