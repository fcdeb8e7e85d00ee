// The chats, in IndexedDB: "meta" has a row of the list for each chat, "chats" its messages and settings.
// All rows of the list are in memory. Windows tell each other of changes. Without IndexedDB (some private
// modes) chats last until the page is closed.
import { asBranch, asTree, newId } from "./tree.js";

const LAST = "inferd.last-settings";
const OLD_META = "inferd.meta.",
  OLD_CHAT = "inferd.chat."; // entries of localStorage that this store takes over
const LEFT = "inferd.left."; // an answer that ran when its page was left
const WINDOW = "inferd.window"; // this window's id, which outlives a reload
const ANSWER_MS = 2000; // for another window to say that it runs an answer

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null; // not one of our entries
  }
}

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

const committed = (transaction) =>
  new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });

function openDatabase() {
  const request = indexedDB.open("inferd", 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore("meta", { keyPath: "id" });
    request.result.createObjectStore("chats", { keyPath: "id" });
  };
  return done(request);
}

function windowId() {
  const id = sessionStorage.getItem(WINDOW) ?? newId();
  sessionStorage.setItem(WINDOW, id);
  return id;
}

// Of two windows that have claimed an answer, the later one keeps it.
export const isLater = (a, b) => (a.since === b.since ? a.by > b.by : a.since > b.since);

const rowOf = ({ id, title, named, created, updated, pinned, messages }) => {
  const running = messages.some((m) => m.state === "running");
  return { id, title, named, created, updated, pinned: Boolean(pinned), running };
};
const bodyOf = ({ id, settings, model, messages, next }) => ({ id, settings, model, messages, next: next ?? null });

// A chat of an earlier version of this page, or of a file, in the form of this one.
export function asChat(chat) {
  const messages = chat.messages.every((m) => m.id) ? asTree(chat.messages) : asBranch(chat.messages);
  const now = Date.now();
  return {
    title: "",
    named: false,
    created: now,
    updated: now,
    settings: {},
    next: null,
    ...chat,
    id: chat.id ?? newId(),
    messages,
  };
}

export class ChatStore extends EventTarget {
  static async open() {
    const store = new ChatStore();
    try {
      store.db = await openDatabase();
      for (const row of await done(store.db.transaction("meta").objectStore("meta").getAll()))
        store.rows.set(row.id, row);
      await store.takeOver();
    } catch {
      store.db = null;
    }
    return store;
  }

  constructor() {
    super();
    this.db = null;
    this.rows = new Map();
    this.bodies = new Map(); // only without a database
    this.window = windowId();
    this.claimOf = () => null; // this window's claim() of the answer that it runs in the chat
    this.channel = new BroadcastChannel("inferd.chats");
    this.channel.onmessage = ({ data }) => this.heard(data);
  }

  // Moves the chats of localStorage here.
  async takeOver() {
    for (const key of Object.keys(localStorage).filter((k) => k.startsWith(OLD_META))) {
      const id = key.slice(OLD_META.length),
        chat = read(OLD_CHAT + id);
      if (Array.isArray(chat?.messages)) await this.write(asChat({ ...chat, ...read(key), id }));
      localStorage.removeItem(OLD_CHAT + id);
      localStorage.removeItem(key);
    }
  }

  heard({ changed, row, who, runs }) {
    if (who) return this.claimOf(who) && this.channel.postMessage({ runs: this.claimOf(who) });
    if (runs) return this.dispatchEvent(new CustomEvent("runs", { detail: runs }));
    if (row) this.rows.set(changed, row);
    else this.rows.delete(changed);
    return this.dispatchEvent(new CustomEvent("elsewhere", { detail: changed }));
  }

  // Tells the other windows that this one runs the answer from now on.
  claim(id, message) {
    const runs = { id, message, since: Date.now(), by: this.window };
    this.channel.postMessage({ runs });
    return runs;
  }

  // Does another window run an answer of this chat?
  runsElsewhere(id) {
    return new Promise((resolve) => {
      const end = (e) => {
        if (e && e.detail.id !== id) return;
        this.removeEventListener("runs", end);
        resolve(Boolean(e));
      };
      this.addEventListener("runs", end);
      setTimeout(end, ANSWER_MS);
      this.channel.postMessage({ who: id });
    });
  }

  get lasting() {
    return this.db !== null;
  }

  has(id) {
    return this.rows.has(id);
  }

  // The rows: pinned chats first, then the newest first.
  list() {
    return [...this.rows.values()].sort(
      (a, b) => Number(b.pinned ?? false) - Number(a.pinned ?? false) || (b.updated ?? 0) - (a.updated ?? 0),
    );
  }

  create() {
    return asChat({ settings: read(LAST) ?? {}, messages: [] });
  }

  async load(id) {
    if (!this.rows.has(id)) return null;
    const body = this.db
      ? await done(this.db.transaction("chats").objectStore("chats").get(id))
      : structuredClone(this.bodies.get(id));
    return body ? { ...body, ...this.rows.get(id) } : null;
  }

  // Keeps a message of a page that is being left, when the database would be too slow.
  leave(id, message) {
    try {
      localStorage.setItem(LEFT + id, JSON.stringify({ ...message, left_by: this.window }));
    } catch {
      // then what the database has of it counts
    }
  }

  // What leave() kept of a chat in this window before it was reloaded, or in any. Once, but two windows may
  // both get it at the same moment.
  takeLeft(id, { ofAny = false } = {}) {
    const { left_by, ...message } = read(LEFT + id) ?? {};
    if (!ofAny && left_by !== this.window) return null;
    localStorage.removeItem(LEFT + id);
    return message;
  }

  async write(chat) {
    const row = rowOf(chat),
      body = bodyOf(chat);
    this.rows.set(chat.id, row);
    if (!this.db) return this.bodies.set(chat.id, structuredClone(body));
    const t = this.db.transaction(["meta", "chats"], "readwrite");
    t.objectStore("chats").put(body);
    t.objectStore("meta").put(row);
    await committed(t);
    return this.channel.postMessage({ changed: chat.id, row });
  }

  // Resolves to false if the browser does not keep it.
  async save(chat, touch = true) {
    if (touch) chat.updated = Date.now();
    try {
      await this.write(chat);
      return this.db !== null;
    } catch {
      return false;
    }
  }

  // Adds a chat of a file; false if it is here already, unchanged. A changed one becomes another chat.
  async add(chat) {
    const here = this.rows.get(chat.id);
    if (here?.updated === chat.updated) return false;
    if (!(await this.save(here ? { ...chat, id: newId() } : chat, false)) && this.lasting)
      throw new Error("The browser's storage is full.");
    return true;
  }

  async remove(id) {
    this.rows.delete(id);
    this.bodies.delete(id);
    if (!this.db) return;
    const t = this.db.transaction(["meta", "chats"], "readwrite");
    t.objectStore("chats").delete(id);
    t.objectStore("meta").delete(id);
    await committed(t).catch(() => {});
    this.channel.postMessage({ changed: id, row: null });
  }

  // Calls `found` with the id of each chat whose title or messages contain the text, until `signal` aborts.
  async search(text, found, signal) {
    const wanted = text.toLocaleLowerCase();
    for (const { id, title } of this.list()) {
      if (signal.aborted) return;
      const has = (s) => typeof s === "string" && s.toLocaleLowerCase().includes(wanted);
      const hit = has(title) || (await this.load(id))?.messages.some((m) => has(m.content));
      if (hit && !signal.aborted) found(id);
    }
  }

  // The settings of a new chat.
  rememberSettings(settings) {
    try {
      localStorage.setItem(LAST, JSON.stringify(settings));
    } catch {
      // then the next chat starts without them
    }
  }

  async export(ids) {
    const chats = (await Promise.all(ids.map((id) => this.load(id)))).filter(Boolean);
    for (const chat of chats) delete chat.running;
    return JSON.stringify({ format: "inferd-chats", version: 2, exported: new Date().toISOString(), chats }, null, 2);
  }
}
