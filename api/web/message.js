// One message of a chat on the page, with its buttons. The chat implements their actions:
// `actions` has retry, edit, rewrite, remove, proceed and version, each called with the message.
import { h, icon, iconButton, copyText } from "./dom.js";
import { AnswerView } from "./answer_view.js";
import { fileList } from "./attach.js";

function copyButton(read) {
  const button = iconButton("copy", "Copy message", async () => {
    const done = await copyText(read());
    button.replaceChildren(icon(done ? "check" : "close"));
    button.setAttribute("aria-label", done ? "Copied" : "Copying failed");
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.setAttribute("aria-label", "Copy message");
    }, 1500);
  });
  return button;
}

// Goes through the versions of a message; nothing if there is only one.
function versionButtons(message, actions, { at, n }) {
  if (n < 2) return [];
  const step = (by, name, label) =>
    iconButton(name, label, () => actions.version(message, at + by), { disabled: at + by < 0 || at + by >= n });
  return [
    h(
      "span",
      { class: "versions", role: "group", "aria-label": "Versions" },
      step(-1, "previous", "Previous version"),
      h("span", {}, h("span", { class: "visually-hidden" }, "Version "), `${at + 1}/${n}`),
      step(1, "next", "Next version"),
    ),
  ];
}

// A form in place of `shown` (elements beside each other) until it is saved or given up.
function editInPlace(shown, { text, label, note, action, save }) {
  const box = h("textarea", { "aria-label": label, rows: Math.min(16, text.split("\n").length + 1) });
  box.value = text;
  const close = () => form.replaceWith(...shown);
  const send = (e) => {
    e.preventDefault();
    if (!box.value.trim()) return;
    if (save(box.value.trim()) !== false) close();
  };
  const form = h(
    "form",
    { class: "edit", onsubmit: send },
    box,
    h(
      "div",
      { class: "row" },
      h("small", {}, note),
      h("button", { type: "button", onclick: close }, "Cancel"),
      h("button", { type: "submit", class: "primary" }, action),
    ),
  );
  box.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) send(e);
    if (e.key === "Escape") {
      e.stopPropagation();
      close();
    }
  });
  for (const el of shown.slice(1)) el.remove();
  shown[0].replaceWith(form);
  box.focus();
}

export class UserMessage {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.text = h("div", { class: "text" }, message.content);
    this.tools = h("div", { class: "tools" });
    this.el = h(
      "article",
      { class: "message user", "aria-label": "You" },
      fileList(message.files),
      this.text,
      this.tools,
    );
  }

  update({ versions }) {
    const key = `${versions.at} ${versions.n}`;
    if (key === this.shown) return;
    this.shown = key;
    const { message, actions } = this;
    this.tools.replaceChildren(
      ...versionButtons(message, actions, versions),
      copyButton(() => message.content),
      iconButton("edit", "Edit message", () => this.edit()),
      iconButton("trash", "Delete message", () => actions.remove(message)),
    );
  }

  edit() {
    editInPlace([this.text, this.tools], {
      text: this.message.content,
      label: "Edit your message",
      note: "Starts another branch; this one is kept.",
      action: "Send",
      save: (text) => this.actions.edit(this.message, text),
    });
  }
}

export class AssistantMessage {
  constructor(message, actions, contextLength) {
    this.message = message;
    this.actions = actions;
    this.view = new AnswerView(message, contextLength);
    this.tools = h("div", { class: "tools" });
    this.el = h("article", { class: "message assistant", "aria-label": "Answer" }, this.view.el, this.tools);
    this.shown = "";
  }

  // where: {last: is it the last message, versions: {at, n}}.
  update(where = this.where) {
    this.where = where;
    const { message } = this,
      running = message.state === "running";
    this.el.classList.toggle("running", running);
    this.el.setAttribute("aria-busy", String(running));
    this.view.update();
    if (!where) return;
    const key = `${message.state} ${message.finish} ${where.last} ${where.versions.at} ${where.versions.n}`;
    if (key === this.shown) return;
    this.shown = key;
    this.tools.replaceChildren(...(running ? [] : this.buttons(where)));
  }

  buttons({ last, versions }) {
    const { message, actions } = this,
      broken = message.state === "failed" || message.state === "cut";
    const out = versionButtons(message, actions, versions);
    if (broken)
      out.push(
        h(
          "button",
          { type: "button", class: "retry", onclick: () => actions.retry(message) },
          icon("retry"),
          "Try again",
        ),
      );
    if (message.content) out.push(copyButton(() => message.content));
    if (!broken) out.push(iconButton("retry", "Regenerate answer", () => actions.retry(message)));
    if (message.content) out.push(iconButton("edit", "Edit answer", () => this.edit()));
    if (last && message.content && (message.state !== "done" || message.finish === "length"))
      out.push(
        h(
          "button",
          { type: "button", class: "continue", onclick: () => actions.proceed(message) },
          icon("more"),
          "Continue",
        ),
      );
    out.push(iconButton("trash", "Delete answer", () => actions.remove(message)));
    return out;
  }

  edit() {
    editInPlace([this.view.el, this.tools], {
      text: this.message.content,
      label: "Edit the answer",
      note: "Adds a version; the model's own is kept.",
      action: "Save",
      save: (text) => this.actions.rewrite(this.message, text),
    });
  }
}
