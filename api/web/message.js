// One message of a chat on the page, with its buttons. The chat implements their actions:
// `actions` has retry, edit, copy, remove and proceed, each called with the message.
import { h, icon, iconButton, copyText } from "./dom.js";
import { AnswerView } from "./answer_view.js";

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

export class UserMessage {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.text = h("div", { class: "text" }, message.content);
    this.tools = h(
      "div",
      { class: "tools" },
      copyButton(() => message.content),
      iconButton("edit", "Edit message", () => this.edit()),
      iconButton("trash", "Delete message", () => actions.remove(message)),
    );
    this.el = h("article", { class: "message user", "aria-label": "You" }, this.text, this.tools);
  }

  update() {}

  // Replaces the text by a field; sending it deletes the messages after it.
  edit() {
    const box = h("textarea", {
      "aria-label": "Edit your message",
      rows: Math.min(12, this.message.content.split("\n").length + 1),
    });
    box.value = this.message.content;
    const close = () => {
      form.replaceWith(this.text, this.tools);
      this.tools.children[1].focus();
    };
    const save = (e) => {
      e.preventDefault();
      if (box.value.trim()) this.actions.edit(this.message, box.value.trim());
    };
    const form = h(
      "form",
      { class: "edit", onsubmit: save },
      box,
      h(
        "div",
        { class: "row" },
        h("small", {}, "Messages after it will be replaced."),
        h("button", { type: "button", onclick: close }, "Cancel"),
        h("button", { type: "submit", class: "primary" }, "Send"),
      ),
    );
    box.addEventListener("keydown", (e) => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) save(e);
      if (e.key === "Escape") {
        e.stopPropagation();
        close();
      }
    });
    this.text.remove();
    this.tools.replaceWith(form);
    box.focus();
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
    this.update();
  }

  update(last = this.last) {
    this.last = last;
    const { message } = this,
      running = message.state === "running";
    this.el.classList.toggle("running", running);
    this.el.setAttribute("aria-busy", String(running));
    this.view.update();
    const key = `${message.state} ${message.finish} ${last}`;
    if (key === this.shown) return;
    this.shown = key;
    this.tools.replaceChildren(...(running ? [] : this.buttons(last)));
  }

  buttons(last) {
    const { message, actions } = this,
      broken = message.state === "failed" || message.state === "cut";
    const out = [];
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
}
