// The chat tab: the conversation that is open, the composer, and the answers that are running. An
// answer continues while another chat is shown.
import { $, h, saveFile } from "./dom.js";
import { asMessage, newAnswer, runAnswer } from "./answer.js";
import { AssistantMessage, UserMessage } from "./message.js";
import { CHAT_FIELDS, SettingsForm } from "./settings.js";
import { Announcer, notify } from "./notices.js";
import { ChatList, firstWords, titleOf } from "./chat_list.js";

const SAVE_MS = 1000; // while an answer grows
const LAST_OPEN = "inferd.last-open";

const HOW = {
  done: "Answer finished.",
  stopped: "Answer stopped.",
  cut: "The connection broke.",
  failed: "The request failed.",
};

export class Chat {
  constructor(store, connection) {
    this.store = store;
    this.connection = connection;
    this.runs = new Map(); // chat id -> {chat, message, controller, view}
    this.views = new Map(); // message -> its view
    this.announcer = new Announcer();
    this.form = new SettingsForm(CHAT_FIELDS, "chat", () => this.settingsChanged());
    $("chat-settings").append(this.form.el);
    this.list = new ChatList(this);
    this.actions = {
      retry: (m) => this.retry(m),
      edit: (m, text) => this.edit(m, text),
      remove: (m) => this.removeMessage(m),
      proceed: (m) => this.proceed(m),
    };
    this.listen();
    const last = sessionStorage.getItem(LAST_OPEN) ?? store.list()[0]?.id;
    this.open((last && store.load(last)) || store.create());
  }

  listen() {
    $("composer").addEventListener("submit", (e) => {
      e.preventDefault();
      this.submit();
    });
    const input = $("input");
    input.addEventListener("input", () => this.grow());
    input.addEventListener("keydown", (e) => {
      if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
      e.preventDefault();
      this.submit();
    });
    $("stop").addEventListener("click", () => this.stop());
    $("starters").addEventListener("click", (e) => e.target.closest("button") && this.submit(e.target.textContent));
    $("scroll").addEventListener("scroll", () => this.followed());
    $("to-end").addEventListener("click", () => this.toEnd());
    $("export-chat").addEventListener("click", () => this.export([this.chat.id]));
    this.connection.addEventListener("model", () => this.modelChanged());
    this.connection.addEventListener("state", () => this.showComposer());
    this.store.addEventListener("dropped", (e) => {
      notify(
        `The browser's storage for chats is full: ${e.detail.length === 1 ? `the oldest chat, “${titleOf(e.detail[0])}”, was` : `the ${e.detail.length} oldest chats were`} deleted.`,
      );
      this.list.render();
    });
    this.store.addEventListener("elsewhere", (e) => this.changedElsewhere(e.detail));
    // Leaving the page breaks the streams, so the state before that is saved.
    addEventListener("pagehide", () => {
      this.runs.forEach(({ chat }) => this.store.save(chat));
      this.leaving = true;
    });
    addEventListener("pageshow", () => (this.leaving = false));
  }

  // ---- the chat that is open ----

  open(chat) {
    this.chat = this.runs.get(chat.id)?.chat ?? chat;
    sessionStorage.setItem(LAST_OPEN, chat.id);
    this.form.set(this.chat.settings);
    if (this.chat.model) this.connection.choose(this.chat.model);
    this.render();
    this.list.render();
  }

  start() {
    if (this.chat.messages.length || this.runs.has(this.chat.id)) this.open(this.store.create());
    $("input").focus();
  }

  deleteChat(id) {
    const chat = this.runs.get(id)?.chat ?? this.store.load(id);
    this.runs.get(id)?.controller.abort();
    this.store.remove(id);
    if (this.chat.id === id) this.open(this.store.load(this.store.list()[0]?.id) ?? this.store.create());
    this.list.render();
    const undo = () => {
      this.save(chat, false);
      this.open(chat);
    };
    if (chat) notify(`Deleted “${titleOf(chat)}”.`, { label: "Undo", run: undo });
  }

  rename(id, title) {
    const chat = this.chat.id === id ? this.chat : (this.runs.get(id)?.chat ?? this.store.load(id));
    if (!chat) return;
    Object.assign(chat, { title, named: true });
    this.save(chat, false);
    this.list.render();
    this.showTitle();
  }

  export(ids) {
    const stamp = new Date().toISOString().slice(0, 10);
    saveFile(`inferd-chats-${stamp}.json`, "application/json", this.store.export(ids));
  }

  save(chat, touch = true) {
    if (this.store.save(chat, touch)) return;
    if (!this.saidFull) notify("This chat does not fit into the browser's storage: it will be lost on reload.");
    this.saidFull = true;
  }

  changedElsewhere(id) {
    this.list.render();
    if (id !== this.chat.id || this.runs.has(id)) return;
    const chat = this.store.load(id);
    if (chat) this.open(chat);
  }

  settingsChanged() {
    this.chat.settings = this.form.get();
    this.store.rememberSettings(this.chat.settings);
    if (this.chat.messages.length) this.save(this.chat, false);
  }

  modelChanged() {
    this.chat.model = this.connection.model?.id;
    if (this.chat.messages.length) this.save(this.chat, false);
  }

  // ---- showing ----

  makeView(message) {
    const view =
      message.role === "user"
        ? new UserMessage(message, this.actions)
        : new AssistantMessage(message, this.actions, message.context_length ?? 0);
    this.views.set(message, view);
    const run = this.runs.get(this.chat.id);
    if (run?.message === message) run.view = view;
    return view;
  }

  render() {
    const { messages } = this.chat;
    this.views.clear();
    $("log").replaceChildren(...messages.map((m) => this.makeView(m).el));
    this.refresh();
    this.toEnd();
  }

  // Updates what depends on all messages: buttons of the last one, the welcome, the composer.
  refresh() {
    const { messages } = this.chat;
    for (const m of messages) this.views.get(m).update(m === messages.at(-1));
    $("welcome").hidden = messages.length > 0;
    $("export-chat").disabled = messages.length === 0;
    this.showTitle();
    this.showComposer();
  }

  showTitle() {
    $("chat-title").textContent = titleOf(this.chat);
  }

  showComposer() {
    const running = this.runs.has(this.chat.id),
      stop = $("stop"),
      send = $("send");
    const hadFocus = document.activeElement === (running ? send : stop);
    send.hidden = running;
    stop.hidden = !running;
    send.disabled = !this.connection.ready;
    if (hadFocus) (running ? stop : $("input")).focus();
  }

  grow() {
    const input = $("input");
    input.style.height = "auto";
    input.style.height = `${input.scrollHeight + 2}px`;
  }

  followed() {
    const box = $("scroll");
    this.follows = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
    $("to-end").hidden = this.follows;
  }

  toEnd() {
    const box = $("scroll");
    box.scrollTop = box.scrollHeight;
    this.followed();
  }

  // ---- asking ----

  submit(text = $("input").value.trim()) {
    if (!text || !this.free()) return;
    if (text === $("input").value.trim()) {
      $("input").value = "";
      this.grow();
    }
    this.chat.messages.push({ role: "user", content: text });
    $("log").append(this.makeView(this.chat.messages.at(-1)).el);
    this.answer();
  }

  // An invalid field stops the request: it is never omitted silently.
  valid() {
    const bad = this.form.check();
    if (!bad) return true;
    notify(`“${this.form.label(bad)}” in the settings is not valid.`);
    document.dispatchEvent(new CustomEvent("open-settings"));
    this.form.focus(bad);
    return false;
  }

  requestBody(messages) {
    const { system, ...params } = this.form.params();
    const said = messages.filter((m) => m.role === "user" || m.content || m.tool_calls?.length);
    return {
      model: this.connection.model.id,
      messages: [
        ...(system ? [{ role: "system", content: system }] : []),
        ...said.map((m) => (m.role === "user" ? { role: "user", content: m.content } : asMessage(m))),
      ],
      ...params,
    };
  }

  answer() {
    const { chat } = this,
      message = { ...newAnswer(), context_length: this.connection.model.context_length };
    const body = this.requestBody(chat.messages);
    chat.messages.push(message);
    $("log").append(this.makeView(message).el);
    this.follows = true;
    return this.run(message, body);
  }

  async run(message, body) {
    const { chat } = this,
      run = { chat, message, controller: new AbortController(), view: this.views.get(message) };
    chat.model = body.model;
    if (!chat.named) chat.title = firstWords(chat.messages);
    message.state = "running";
    this.runs.set(chat.id, run);
    this.announcer.reset();
    this.save(chat);
    this.refresh();
    this.list.render();
    this.toEnd();
    let saved = performance.now();
    await runAnswer(message, body, run.controller.signal, () => {
      this.grew(run);
      if (performance.now() - saved < SAVE_MS) return;
      saved = performance.now();
      this.keep(run);
    });
    this.ended(run);
  }

  // Not if the chat was deleted meanwhile.
  keep({ chat, controller }) {
    if (this.leaving) return;
    if (!controller.signal.aborted || this.store.load(chat.id)) this.save(chat);
  }

  grew(run) {
    run.view.update();
    if (run.chat !== this.chat) return;
    this.announcer.progress(run.message.content);
    if (this.follows) requestAnimationFrame(() => this.follows && this.toEnd());
  }

  ended(run) {
    const { chat, message } = run;
    this.runs.delete(chat.id);
    this.keep(run);
    this.list.render();
    if (message.state === "cut" || message.error?.status === 401) this.connection.look();
    if (chat !== this.chat) return;
    this.refresh();
    if (this.follows) this.toEnd();
    this.announcer.end(message.content, HOW[message.state]);
  }

  stop() {
    this.runs.get(this.chat.id)?.controller.abort();
  }

  // ---- actions of a message's buttons ----

  // Deletes `n` messages from the i-th on; if they are more than `replaced`, this can be undone.
  cut(i, n, replaced) {
    const { chat } = this,
      before = [...chat.messages];
    for (const m of chat.messages.splice(i, n)) {
      this.views.get(m)?.el.remove();
      this.views.delete(m);
    }
    const lost = before.length - chat.messages.length - replaced;
    if (lost <= 0) return;
    const undo = () => {
      this.runs.get(chat.id)?.controller.abort();
      chat.messages = before;
      this.save(chat);
      this.open(chat);
    };
    notify(lost === 1 ? "One message was deleted." : `${lost} messages were deleted.`, { label: "Undo", run: undo });
  }

  free() {
    if (this.runs.has(this.chat.id)) return false;
    if (this.connection.ready) return this.valid();
    notify("The server is not ready. The page keeps trying.");
    this.connection.look();
    return false;
  }

  retry(message) {
    if (!this.free()) return;
    this.cut(this.chat.messages.indexOf(message), Infinity, 1);
    this.answer();
    $("input").focus();
  }

  edit(message, text) {
    if (!this.free()) return;
    this.cut(this.chat.messages.indexOf(message), Infinity, 2);
    this.submit(text);
    $("input").focus();
  }

  removeMessage(message) {
    if (this.runs.has(this.chat.id)) return;
    this.cut(this.chat.messages.indexOf(message), 1, 0);
    this.save(this.chat);
    this.refresh();
    $("input").focus();
  }

  proceed(message) {
    if (!this.free()) return;
    const body = this.requestBody(this.chat.messages);
    this.run(message, { ...body, continue_final_message: true, add_generation_prompt: false });
    $("input").focus();
  }
}
