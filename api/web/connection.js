// Whether the server is reachable, and what it serves. Retries if it was not.
import { $, number } from "./dom.js";
import { fetchModels, fetchReady } from "./api.js";

const CALM_MS = 15_000; // between requests to a healthy server
const FIRST_RETRY_MS = 1000,
  LONGEST_RETRY_MS = 10_000;

export class Connection extends EventTarget {
  constructor() {
    super();
    this.state = "connecting";
    this.models = [];
    this.picker = $("model");
    this.timer = 0;
    this.retryMs = FIRST_RETRY_MS;
    this.picker.addEventListener("change", () => this.changed());
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    addEventListener("online", () => this.look());
  }

  get ready() {
    return this.state === "ready" && this.models.length > 0;
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

  // Asks now and again later; not again if a key is required first.
  async look() {
    clearTimeout(this.timer);
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const found = await this.ask();
    if (turn !== this.turn) return; // a later request has begun
    if (found.models) this.fill(found.models);
    this.show(found);
    const ready = found.name === "ready";
    this.retryMs = ready ? FIRST_RETRY_MS : Math.min(LONGEST_RETRY_MS, this.retryMs * 1.5);
    if (found.name !== "locked") this.timer = setTimeout(() => this.look(), ready ? CALM_MS : this.retryMs);
  }

  async ask() {
    if (document.hidden && this.ready) return { name: "ready", text: "ready" };
    try {
      await fetchReady();
      return { name: "ready", text: "ready", models: await fetchModels() };
    } catch (e) {
      if (e.status === 401) return { name: "locked", text: "API key needed" };
      if (e.status === 503) return { name: "away", text: "not ready yet" };
      return { name: "away", text: e.status ? e.message : "server away" };
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
    this.state = name;
    $("state").dataset.state = name;
    if ($("state-text").textContent !== text) $("state-text").textContent = text;
    this.dispatchEvent(new Event("state"));
  }
}

const shortCount = (n) => (n >= 1024 ? `${Math.round(n / 1024)}K` : String(n));
