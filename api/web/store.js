// The chats, in localStorage: per chat one entry for its row in the list and one for its messages, so
// that two windows do not overwrite each other's list. If the storage or the maximum number is
// exhausted, the least recently used chats are deleted, and a "dropped" event reports it.

const META = "inferd.meta.",
  CHAT = "inferd.chat.",
  LAST = "inferd.last-settings";
const MAX_CHATS = 300;

const newId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, "0")).join("");

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null; // not one of our entries
  }
}

export class ChatStore extends EventTarget {
  constructor() {
    super();
    addEventListener("storage", (e) => {
      if (e.key === null || e.key.startsWith(META))
        this.dispatchEvent(new CustomEvent("elsewhere", { detail: e.key?.slice(META.length) }));
    });
  }

  // [{id, title, updated}], the newest first.
  list() {
    const keys = Object.keys(localStorage).filter((k) => k.startsWith(META));
    const rows = keys.map((k) => ({ ...read(k), id: k.slice(META.length) }));
    return rows.sort((a, b) => (b.updated ?? 0) - (a.updated ?? 0));
  }

  create() {
    const settings = read(LAST) ?? {};
    return { id: newId(), title: "", named: false, created: Date.now(), updated: Date.now(), settings, messages: [] };
  }

  load(id) {
    const chat = read(CHAT + id);
    if (!chat || !Array.isArray(chat.messages)) return null;
    // The page was closed during the answer.
    for (const m of chat.messages) if (m.state === "running") m.state = "cut";
    return { settings: {}, ...chat, ...read(META + id), id };
  }

  // Returns false if the chat does not fit even after deleting all others.
  save(chat, touch = true) {
    if (touch) chat.updated = Date.now();
    const { id, title, named, created, updated, settings, messages } = chat;
    const whole = JSON.stringify({ created, settings, messages });
    const meta = JSON.stringify({ title, named, updated });
    const dropped = this.makeRoom(id);
    for (;;) {
      try {
        localStorage.setItem(CHAT + id, whole);
        localStorage.setItem(META + id, meta);
        break;
      } catch {
        const victim = this.list().findLast((c) => c.id !== id);
        if (!victim) return false;
        this.remove(victim.id);
        dropped.push(victim);
      }
    }
    if (dropped.length) this.dispatchEvent(new CustomEvent("dropped", { detail: dropped }));
    return true;
  }

  makeRoom(id) {
    const others = this.list().filter((c) => c.id !== id);
    const dropped = others.slice(MAX_CHATS - 1);
    for (const c of dropped) this.remove(c.id);
    return dropped;
  }

  remove(id) {
    localStorage.removeItem(META + id);
    localStorage.removeItem(CHAT + id);
  }

  // The settings of a new chat.
  rememberSettings(settings) {
    try {
      localStorage.setItem(LAST, JSON.stringify(settings));
    } catch {
      // then the next chat starts without them
    }
  }

  export(ids) {
    const chats = ids.map((id) => this.load(id)).filter(Boolean);
    return JSON.stringify({ format: "inferd-chats", version: 1, exported: new Date().toISOString(), chats }, null, 2);
  }
}
