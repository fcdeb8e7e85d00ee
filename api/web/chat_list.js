// The list of chats at the side: open, rename, delete, export.
import { $, h, iconButton } from "./dom.js";

const TITLE_CHARS = 60;

export function titleOf(chat) {
  if (chat.title) return chat.title;
  const first = chat.messages?.find((m) => m.role === "user")?.content ?? "";
  const line = first.trim().split("\n")[0];
  return line.length > TITLE_CHARS ? `${line.slice(0, TITLE_CHARS - 1)}…` : line || "New chat";
}

export class ChatList {
  constructor(chat) {
    this.chat = chat;
    this.el = $("chat-list");
    this.editing = null; // id of the chat whose title is being changed
    $("new-chat").addEventListener("click", () => {
      this.left();
      chat.start();
    });
    $("export-all").addEventListener("click", () => chat.export(chat.store.list().map((c) => c.id)));
  }

  // On a phone the list covers the chat.
  left() {
    document.dispatchEvent(new CustomEvent("close-panels"));
  }

  render() {
    if (this.editing) return;
    const chats = this.chat.store.list(), focused = document.activeElement?.dataset?.chat;
    this.el.replaceChildren(...chats.map((c) => this.row(c)));
    $("no-chats").hidden = chats.length > 0;
    $("export-all").disabled = chats.length === 0;
    if (focused) this.el.querySelector(`[data-chat="${CSS.escape(focused)}"]`)?.focus();
  }

  row(c) {
    const current = c.id === this.chat.chat?.id, running = this.chat.runs.has(c.id);
    const title = titleOf(c);
    const open = () => {
      this.left();
      const chat = this.chat.store.load(c.id);
      if (chat) this.chat.open(chat);
    };
    const li = h(
      "li",
      { class: running ? "busy" : null },
      h("button", { type: "button", class: "open", "data-chat": c.id, "aria-current": current ? "true" : null, title, onclick: open }, title),
      iconButton("edit", `Rename ${title}`, () => this.rename(li, c)),
      iconButton("trash", `Delete ${title}`, () => this.chat.deleteChat(c.id)),
    );
    return li;
  }

  rename(li, c) {
    const box = h("input", { type: "text", "aria-label": "Title of the chat", maxlength: 200 });
    box.value = titleOf(c);
    this.editing = c.id;
    const end = (keep) => {
      if (!this.editing) return;
      this.editing = null;
      if (keep && box.value.trim()) this.chat.rename(c.id, box.value.trim());
      else this.render();
      this.el.querySelector(`[data-chat="${CSS.escape(c.id)}"]`)?.focus();
    };
    box.addEventListener("keydown", (e) => {
      if (e.key === "Enter") end(true);
      if (e.key === "Escape") {
        e.stopPropagation();
        end(false);
      }
    });
    box.addEventListener("blur", () => end(true));
    li.replaceChildren(box);
    box.select();
    box.focus();
  }
}
