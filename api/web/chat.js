// The chat tab: the conversation that is open, the composer, and the answers that are running. An
// answer continues while another chat is shown.
import { $, openMenu, saveFile } from "./dom.js";
import { asMarkdown, readChats } from "./import.js";
import { asMessage, newAnswer, runAnswer } from "./answer.js";
import { AssistantMessage, UserMessage } from "./message.js";
import { CHAT_FIELDS, SettingsForm } from "./settings.js";
import { Announcer, notify } from "./notices.js";
import { Attachments, withFiles } from "./attach.js";
import { Presets } from "./presets.js";
import { ChatList, firstWords, titleOf } from "./chat_list.js";
import { isLater } from "./store.js";
import { addMessage, pathOf, removeBranch, showVersion, versionsOf } from "./tree.js";

const SAVE_MS = 1000; // while an answer grows
const LAST_OPEN = "inferd.last-open";

const HOW = {
  done: "Answer finished.",
  stopped: "Answer stopped.",
  cut: "The connection broke.",
  failed: "The request failed.",
};

// The message becomes what its page kept of it when it was left: all of it.
function restored(message, left) {
  for (const name of Object.keys(message)) delete message[name];
  return Object.assign(message, left);
}

export class Chat {
  constructor(store, connection) {
    this.store = store;
    this.connection = connection;
    this.runs = new Map(); // chat id -> {chat, message, controller, view, claim}
    this.unsaved = new Set(); // runs that have ended, until the database has their answers
    this.adopting = new Set(); // ids of chats whose answers may run elsewhere
    this.views = new Map(); // message -> its view
    this.announcer = new Announcer();
    this.form = new SettingsForm(CHAT_FIELDS, "chat", () => this.settingsChanged());
    $("chat-settings").append(this.form.el);
    this.presets = new Presets({
      get: () => this.form.get(),
      set: (settings) => {
        this.form.set(settings);
        this.settingsChanged();
      },
    });
    this.attached = new Attachments({
      button: $("attach"),
      input: $("attach-files"),
      row: $("attached"),
      target: $("conversation"),
      onError: notify,
    });
    this.list = new ChatList(this);
    this.actions = {
      retry: (m) => this.retry(m),
      edit: (m, text) => this.edit(m, text),
      rewrite: (m, text) => this.rewrite(m, text),
      version: (m, at) => this.version(m, at),
      remove: (m) => this.removeMessage(m),
      proceed: (m) => this.proceed(m),
    };
    this.listen();
    store.claimOf = (id) => this.runs.get(id)?.claim;
    this.open(store.create());
  }

  // Opens the chat that was open last.
  async start() {
    const last = sessionStorage.getItem(LAST_OPEN);
    if (!this.store.lasting) notify("This browser keeps no chats here: they last until the page is closed.");
    await this.openId(this.store.has(last) ? last : this.store.list()[0]?.id);
    for (const { id, running } of this.store.list()) {
      if (running && !this.runs.has(id)) this.settled(await this.store.load(id));
      else if (!running) this.store.takeLeft(id); // the database has it
    }
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
    openMenu($("export-chat"), $("export-menu"));
    $("export-json").addEventListener("click", () => this.export([this.chat.id]));
    $("export-markdown").addEventListener("click", () => this.exportMarkdown());
    this.connection.addEventListener("model", () => this.modelChanged());
    this.connection.addEventListener("state", () => this.showComposer());
    this.store.addEventListener("elsewhere", (e) => this.changedElsewhere(e.detail));
    this.store.addEventListener("runs", (e) => this.yieldTo(e.detail));
    // Leaving the page breaks the streams and what the database is writing, so the state before that is kept.
    addEventListener("pagehide", () => {
      for (const { chat, message } of [...this.unsaved, ...this.runs.values()]) this.store.leave(chat.id, message);
      this.leaving = true;
    });
    addEventListener("pageshow", () => {
      for (const { chat } of [...this.unsaved, ...this.runs.values()]) this.store.takeLeft(chat.id);
      this.leaving = false;
    });
  }

  // ---- the chat that is open ----

  open(chat) {
    this.chat = this.runs.get(chat.id)?.chat ?? chat;
    sessionStorage.setItem(LAST_OPEN, chat.id);
    this.form.set(this.chat.settings);
    this.presets.forget();
    if (this.chat.model) this.connection.choose(this.chat.model);
    this.views.clear();
    $("log").replaceChildren();
    this.render();
    this.toEnd();
    this.list.render();
  }

  async openId(id) {
    const opening = (this.opening = Symbol("the last click counts"));
    const chat = this.runs.get(id)?.chat ?? (id && (await this.store.load(id)));
    if (chat && opening === this.opening) this.open(this.settled(chat));
  }

  // Goes on with what was running when its page was left. If it was this window's, it said so (leave());
  // else another window may still have it, or come back to it.
  settled(chat) {
    const running = chat.messages.filter((m) => m.state === "running");
    if (!running.length || this.runs.has(chat.id)) return chat;
    const left = this.store.takeLeft(chat.id),
      mine = running.find((m) => m.id === left?.id);
    if (mine) this.goOn(chat, restored(mine, left));
    else this.adopt(chat.id);
    return chat;
  }

  async adopt(id) {
    if (this.adopting.has(id)) return;
    this.adopting.add(id);
    const taken = await this.store.runsElsewhere(id);
    this.adopting.delete(id);
    const chat = taken ? null : await this.find(id);
    const left = chat && this.store.takeLeft(id, { ofAny: true });
    for (const m of chat?.messages ?? [])
      if (m.state === "running") this.goOn(chat, left?.id === m.id ? restored(m, left) : m);
    if (chat) this.list.render();
  }

  goOn(chat, message) {
    if (this.runs.has(chat.id)) return;
    if (message.state === "running" && message.event) {
      this.run(chat, message, null);
      return;
    }
    if (message.state === "running") message.state = "cut"; // else it had ended when its page was left
    this.save(chat, false);
    if (chat === this.chat) this.refresh();
  }

  begin() {
    if (this.chat.messages.length || this.runs.has(this.chat.id)) this.open(this.store.create());
    $("input").focus();
  }

  find(id) {
    return this.chat.id === id ? this.chat : (this.runs.get(id)?.chat ?? this.store.load(id));
  }

  async deleteChat(id) {
    const chat = await this.find(id);
    this.runs.get(id)?.controller.abort();
    await this.store.remove(id);
    if (this.chat.id === id) {
      this.open(this.store.create());
      await this.openId(this.store.list()[0]?.id);
    }
    this.list.render();
    const undo = () => {
      this.save(chat, false);
      this.open(chat);
    };
    if (chat) notify(`Deleted “${titleOf(chat)}”.`, { label: "Undo", run: undo });
  }

  // Changes fields of a chat's row in the list.
  async change(id, fields) {
    const chat = await this.find(id);
    if (!chat) return;
    Object.assign(chat, fields);
    const saved = this.save(chat, false);
    this.list.render();
    this.showTitle();
    await saved;
  }

  async export(ids) {
    const stamp = new Date().toISOString().slice(0, 10);
    saveFile(`inferd-chats-${stamp}.json`, "application/json", await this.store.export(ids));
  }

  exportMarkdown() {
    const title = titleOf(this.chat),
      name = title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "");
    saveFile(`${name || "chat"}.md`, "text/markdown", asMarkdown(this.chat, title));
  }

  async import(files) {
    let added = 0,
      known = 0;
    for (const file of files) {
      try {
        for (const chat of readChats(await file.text())) {
          if (await this.store.add(chat)) added++;
          else known++;
        }
      } catch (e) {
        notify(`${file.name}: ${e.message}`);
      }
    }
    if (added + known)
      notify(`${added} ${added === 1 ? "chat was" : "chats were"} imported, ${known} were here already.`);
    this.list.render();
  }

  async save(chat, touch = true) {
    const kept = await this.store.save(chat, touch);
    if (kept || this.saidFull || !this.store.lasting) return;
    this.saidFull = true;
    notify("The browser's storage is full: this chat is lost on reload. Export and delete old chats.");
  }

  async changedElsewhere(id) {
    this.list.render();
    if (id === this.chat.id && !this.runs.has(id)) await this.openId(id);
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

  // Shows the chat's path; what is shown already stays.
  render() {
    const path = pathOf(this.chat),
      shown = [...this.views.keys()];
    let same = 0;
    while (same < path.length && shown[same] === path[same]) same++;
    for (const m of shown.slice(same)) {
      this.views.get(m).el.remove();
      this.views.delete(m);
    }
    $("log").append(...path.slice(same).map((m) => this.makeView(m).el));
    this.refresh();
  }

  // Updates what depends on all messages: their buttons, the welcome, the composer.
  refresh() {
    const path = [...this.views.keys()];
    for (const m of path) {
      const versions = versionsOf(this.chat, m);
      const where = { last: m === path.at(-1), versions: { at: versions.indexOf(m), n: versions.length } };
      this.views.get(m).update(where);
    }
    $("welcome").hidden = path.length > 0;
    $("export-chat").disabled = path.length === 0;
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
    if ((!text && !this.attached.files.length) || !this.free()) return;
    if (text === $("input").value.trim()) {
      $("input").value = "";
      this.grow();
    }
    this.answer(addMessage(this.chat, pathOf(this.chat).at(-1), this.userMessage(text, this.attached.take())));
  }

  userMessage(content, files) {
    return { role: "user", content, ...(files?.length && { files }) };
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
        ...said.map((m) => (m.role === "user" ? { role: "user", content: withFiles(m) } : asMessage(m))),
      ],
      ...params,
    };
  }

  // Adds an answer below `parent`.
  answer(parent) {
    const { chat } = this;
    showVersion(chat, parent);
    const path = pathOf(chat),
      body = this.requestBody(path.slice(0, path.indexOf(parent) + 1));
    const message = addMessage(chat, parent, {
      ...newAnswer(),
      context_length: this.connection.model.context_length,
    });
    this.render();
    this.follows = true;
    return this.run(chat, message, body);
  }

  // Without a body: the rest of an answer that the server has kept.
  async run(chat, message, body) {
    const run = { chat, message, controller: new AbortController(), view: this.views.get(message) },
      { signal } = run.controller;
    run.claim = this.store.claim(chat.id, message.id);
    if (body) chat.model = body.model;
    else message.resuming = true;
    if (!chat.named) chat.title = firstWords(pathOf(chat));
    message.state = "running";
    this.runs.set(chat.id, run);
    if (chat === this.chat) this.announcer.reset();
    this.save(chat, Boolean(body));
    if (chat === this.chat) this.refresh();
    this.list.render();
    if (chat === this.chat) this.toEnd();
    if (!body) await this.connection.untilReady(signal);
    let saved = performance.now();
    await runAnswer(message, body, signal, () => {
      this.grew(run);
      if (performance.now() - saved < SAVE_MS) return;
      saved = performance.now();
      this.keep(run);
    });
    if (!run.lost) this.ended(run);
  }

  // Another window has begun to run this answer, too: its request has ended this one's stream. Two windows
  // that both go on would take the answer from each other again and again.
  yieldTo(claim) {
    const run = this.runs.get(claim.id);
    if (run?.message.id !== claim.message || !isLater(claim, run.claim)) return;
    run.lost = true;
    this.runs.delete(claim.id);
    run.controller.abort();
    if (run.chat === this.chat) this.refresh();
    this.list.render();
  }

  // Not if the chat was deleted meanwhile.
  async keep({ chat, lost }) {
    if (!lost && !this.leaving && this.store.has(chat.id)) await this.save(chat);
  }

  grew(run) {
    if (run.lost) {
      run.message.state = "running"; // elsewhere
      return;
    }
    run.view?.update();
    if (run.chat !== this.chat) return;
    this.announcer.progress(run.message.content);
    if (this.follows) requestAnimationFrame(() => this.follows && this.toEnd());
  }

  ended(run) {
    const { chat, message } = run;
    this.runs.delete(chat.id);
    this.unsaved.add(run);
    this.keep(run).then(() => this.unsaved.delete(run));
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

  free() {
    if (this.runs.has(this.chat.id)) return false;
    if (this.chat.messages.some((m) => m.state === "running")) {
      notify("Another window receives an answer of this chat.");
      return false;
    }
    if (this.connection.ready) return this.valid();
    notify("The server is not ready. The page keeps trying.");
    this.connection.look();
    return false;
  }

  parentOf(message) {
    return this.chat.messages.find((m) => m.id === message.parent) ?? null;
  }

  // Another answer to the same message; one that failed without a word is replaced.
  retry(message) {
    const parent = this.parentOf(message);
    if (!parent || !this.free()) return;
    if (!message.content && !message.tool_calls?.length && !message.reasoning) removeBranch(this.chat, message);
    this.answer(parent);
    $("input").focus();
  }

  // Another version of a message of the user, and an answer to it.
  edit(message, text) {
    if (!this.free()) return false;
    this.answer(addMessage(this.chat, this.parentOf(message), this.userMessage(text, message.files)));
    $("input").focus();
    return true;
  }

  // Another version of an answer, in the user's words.
  rewrite(message, content) {
    if (this.runs.has(this.chat.id)) return false;
    if (content === message.content.trim()) return true;
    const { reasoning, context_length } = message;
    const version = { ...newAnswer(), content, reasoning, context_length, state: "done", edited: true };
    addMessage(this.chat, this.parentOf(message), version);
    this.changed();
    return true;
  }

  version(message, at) {
    showVersion(this.chat, versionsOf(this.chat, message)[at]);
    this.changed(false);
    this.announcer.say(`Version ${at + 1} of ${versionsOf(this.chat, message).length}.`);
  }

  // After a change of the tree.
  changed(touch = true) {
    if (!this.chat.named) this.chat.title = firstWords(pathOf(this.chat));
    this.save(this.chat, touch);
    this.render();
    this.list.render();
  }

  // Deletes a message with the branch below it.
  removeMessage(message) {
    if (this.runs.has(this.chat.id)) return;
    const { chat } = this,
      { n, undo } = removeBranch(chat, message);
    this.changed();
    const back = () => {
      undo();
      this.save(chat);
      this.open(chat);
    };
    notify(n === 1 ? "One message was deleted." : `${n} messages were deleted.`, { label: "Undo", run: back });
    $("input").focus();
  }

  proceed(message) {
    if (!this.free()) return;
    const body = this.requestBody(pathOf(this.chat));
    this.run(this.chat, message, { ...body, continue_final_message: true, add_generation_prompt: false });
    $("input").focus();
  }
}
