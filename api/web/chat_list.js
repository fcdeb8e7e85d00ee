// The list of chats at the side: search, open, pin, rename, delete, export.
import { $, h, iconButton } from "./dom.js";

const TITLE_CHARS = 60;

// A chat's title until it is renamed.
export function firstWords(messages) {
  const first = messages.find((m) => m.role === "user"),
    line = (first?.content.trim() || first?.files?.[0]?.name || "").split("\n")[0];
  return line.length > TITLE_CHARS ? `${line.slice(0, TITLE_CHARS - 1)}…` : line;
}

export const titleOf = (chat) => chat.title || "New chat";

const reach = (row, on) => row.querySelectorAll("button").forEach((b) => (b.tabIndex = on ? 0 : -1));

export class ChatList {
  constructor(chat) {
    this.chat = chat;
    this.el = $("chat-list");
    this.editing = null; // id of the chat whose title is being changed
    $("new-chat").addEventListener("click", () => {
      this.left();
      chat.begin();
    });
    this.el.addEventListener("keydown", (e) => this.arrow(e));
    $("export-all").addEventListener("click", () => chat.export(chat.store.list().map((c) => c.id)));
    $("import").addEventListener("click", () => $("import-files").click());
    $("import-files").addEventListener("change", (e) => {
      const files = [...e.target.files];
      e.target.value = ""; // the same file may be chosen again
      chat.import(files);
    });
    this.found = null; // ids of the chats that the search found; null: no search
    $("search").addEventListener("input", () => this.search());
  }

  // Shows what has the text in its title or its messages, as it is found.
  async search() {
    this.searching?.abort();
    const text = $("search").value.trim(),
      { signal } = (this.searching = new AbortController());
    this.found = text ? new Set() : null;
    const found = (id) => {
      this.found.add(id);
      this.render();
    };
    if (text) await this.chat.store.search(text, found, signal);
    if (!signal.aborted) this.render();
  }

  // One row is in the tab order; arrow keys move to the others.
  arrow(e) {
    const rows = [...this.el.children],
      at = rows.indexOf(e.target.closest("li"));
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: rows.length - 1 }[e.key];
    if (e.target.localName === "input" || to === undefined || !rows[to]) return;
    e.preventDefault();
    rows.forEach((row, i) => reach(row, i === to));
    rows[to].querySelector(".open").focus();
  }

  // On a phone the list covers the chat.
  left() {
    document.dispatchEvent(new CustomEvent("close-panels"));
  }

  render() {
    if (this.editing) return;
    const all = this.chat.store.list(),
      chats = this.found ? all.filter((c) => this.found.has(c.id)) : all,
      focused = document.activeElement?.dataset?.chat;
    this.el.replaceChildren(...chats.map((c) => this.row(c)));
    $("no-chats").hidden = all.length > 0;
    $("no-hits").hidden = !this.found || chats.length > 0;
    $("export-all").disabled = all.length === 0;
    const current = chats.findIndex((c) => c.id === this.chat.chat?.id);
    [...this.el.children].forEach((row, i) => reach(row, i === Math.max(0, current)));
    if (focused) this.el.querySelector(`[data-chat="${CSS.escape(focused)}"]`)?.focus();
  }

  row(c) {
    const current = c.id === this.chat.chat?.id,
      running = this.chat.runs.has(c.id);
    const title = titleOf(c);
    const open = () => {
      this.left();
      this.chat.openId(c.id);
    };
    const li = h(
      "li",
      { class: [running && "busy", c.pinned && "pinned"].filter(Boolean).join(" ") || null },
      h(
        "button",
        {
          type: "button",
          class: "open",
          "data-chat": c.id,
          "aria-current": current ? "true" : null,
          title,
          onclick: open,
        },
        title,
      ),
      iconButton(
        "pin",
        c.pinned ? `Unpin ${title}` : `Pin ${title}`,
        () => this.chat.change(c.id, { pinned: !c.pinned }),
        {
          "aria-pressed": String(Boolean(c.pinned)),
        },
      ),
      iconButton("edit", `Rename ${title}`, () => this.rename(li, c)),
      iconButton("trash", `Delete ${title}`, () => this.chat.deleteChat(c.id)),
    );
    return li;
  }

  rename(li, c) {
    const box = h("input", { type: "text", "aria-label": "Title of the chat", maxlength: 200 });
    box.value = titleOf(c);
    this.editing = c.id;
    const end = async (keep) => {
      if (!this.editing) return;
      this.editing = null;
      if (keep && box.value.trim()) await this.chat.change(c.id, { title: box.value.trim(), named: true });
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
