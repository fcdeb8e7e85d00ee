// Whether the server is reachable, and what it serves. Asks /readyz twice a second while the page can be
// seen, so that the header follows the server within a second.
import { $, number } from "./dom.js";
import { fetchModels, fetchReady } from "./api.js";

const EVERY_MS = 500;
const SLOW_MS = 450; // an answer that takes longer is shown as pending
const MODELS_EVERY_MS = 15_000;

// What /readyz says with status 503, in words for people.
const WAITS = { loading: "loading", draining: "shutting down", unhealthy: "engine failed" };

export class Connection extends EventTarget {
  constructor() {
    super();
    this.state = "connecting";
    this.models = [];
    this.picker = $("model");
    this.timer = 0;
    this.listed = -Infinity; // when the models were read
    this.locked = false; // they need a key, or another one
    this.picker.addEventListener("change", () => this.changed());
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    addEventListener("online", () => this.look());
    document.addEventListener("models", () => {
      this.listed = -Infinity; // the panel saw one come or go
      this.look();
    });
  }

  // May a request be sent? A server that is slow to answer may be busy.
  get ready() {
    return (this.state === "ready" || this.state === "slow") && this.models.length > 0;
  }

  // Resolves when a request may be sent, or when `signal` aborts.
  async untilReady(signal) {
    while (!this.ready && !signal.aborted)
      await new Promise((resolve) => {
        this.addEventListener("state", resolve, { once: true });
        signal.addEventListener("abort", resolve, { once: true });
      });
  }

  get model() {
    return this.models.find((m) => m.id === this.picker.value) ?? null;
  }

  // Selects the model of a chat, if it is still served.
  choose(id) {
    if (this.models.some((m) => m.id === id)) this.picker.value = id;
    this.wanted = id;
  }

  changed() {
    this.wanted = this.picker.value;
    this.dispatchEvent(new Event("model"));
  }

  // The API key has changed.
  unlock() {
    this.locked = false;
    this.look();
  }

  // Asks now and again later, not while the page is hidden.
  async look() {
    clearTimeout(this.timer);
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const slow = setTimeout(() => turn === this.turn && this.show({ name: "slow", text: "no answer yet" }), SLOW_MS);
    const found = await this.ask();
    clearTimeout(slow);
    if (turn !== this.turn) return; // a later request has begun
    if (found.models) this.fill(found.models);
    this.show(found);
    if (!document.hidden) this.timer = setTimeout(() => this.look(), EVERY_MS);
  }

  async ask() {
    try {
      await fetchReady();
      const now = performance.now();
      if (this.locked) return { name: "locked", text: "API key needed" };
      if (this.models.length && now - this.listed < MODELS_EVERY_MS) return { name: "ready", text: "ready" };
      const models = await fetchModels();
      this.listed = now;
      return { name: "ready", text: "ready", models };
    } catch (e) {
      this.listed = -Infinity; // a server that returns may have others
      this.locked = e.status === 401;
      if (this.locked) return { name: "locked", text: "API key needed" };
      return { name: "away", text: e.status ? (WAITS[e.message] ?? e.message) : "server away" };
    }
  }

  fill(models) {
    if (JSON.stringify(models) === JSON.stringify(this.models)) return; // unchanged: the list may be open
    this.models = models;
    const options = models.map((m) => {
      const option = new Option(m.context_length ? `${m.id} · ${shortCount(m.context_length)}` : m.id, m.id);
      option.title = m.context_length ? `${number(m.context_length)} tokens of context` : "";
      return option;
    });
    this.picker.replaceChildren(...options);
    this.picker.disabled = !models.length;
    if (this.wanted) this.choose(this.wanted);
  }

  show({ name, text }) {
    if (name !== "locked" && this.state === name && $("state-text").textContent === text) return;
    this.state = name;
    $("state").dataset.state = name;
    $("state-text").textContent = text;
    this.dispatchEvent(new Event("state"));
  }
}

const shortCount = (n) => (n >= 1024 ? `${Math.round(n / 1024)}K` : String(n));
