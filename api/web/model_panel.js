// The models of the server: those that it serves and, where the key may change that, those of its registry,
// with buttons that load, unload, pull and cancel, and how far each is.
import { h, number } from "./dom.js";
import { changeModels, fetchAllModels, getKey } from "./api.js";
import { bytes, table } from "./table.js";

const BUSY_MS = 500; // between looks while something is loaded, unloaded or pulled
const VERBS = { load: "Loading", unload: "Unloading", pull: "Pulling" };
const ENDS = { done: "done", failed: "failed", cancelled: "cancelled" };

const isBusy = (task) => task.state === "queued" || task.state === "running";
const percent = (t) => (t.total_bytes ? ` ${Math.floor((100 * t.done_bytes) / t.total_bytes)} %` : "");

// What can be done to a model in that state.
const ACTIONS = { loaded: ["unload", "Unload"], registered: ["load", "Load"] };

function stateText(m) {
  if (m.state === "loading" && m.task) return `loading${percent(m.task)}`;
  if (m.state !== "registered") return m.state;
  if (m.task?.state === "queued") return "waiting";
  return m.task?.state === "failed" ? "not loaded: failed" : "not loaded";
}

export class ModelPanel {
  constructor() {
    this.note = h("p", { class: "soft" });
    this.models = table(
      "Models",
      [["Model"], ["State"], ["Context", "n"], ["Running", "n"], ["Waiting", "n"], ["Also called"], ["Change"]],
      this.note,
    );
    this.said = h("p", { class: "model-said", role: "status" });
    this.tasks = h("ul", { class: "model-tasks", "aria-label": "Loads, unloads and pulls" });
    this.source = h("input", {
      id: "pull-source",
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "hf:ORG/REPO:Q4_K_M",
      maxlength: "390",
    });
    this.form = h(
      "form",
      { class: "model-pull", hidden: true, "aria-label": "Pull a model" },
      h("label", { for: "pull-source" }, "From the Hugging Face Hub"),
      h("div", { class: "pair" }, this.source, h("button", { type: "submit" }, "Pull")),
    );
    this.form.addEventListener("submit", (e) => {
      e.preventDefault();
      if (this.source.value.trim()) this.change("pull", { model: this.source.value.trim() });
    });
    this.el = this.models.el;
    this.el.append(this.form, this.tasks, this.said);
    this.drawn = "";
    this.denied = null; // the key that may not change models
    this.timer = 0;
  }

  // health, served: of /health and /v1/models.
  async show(health, served) {
    clearTimeout(this.timer);
    this.last = [health, served];
    const all = await this.readAll();
    const loads = new Map(health.models.map((m) => [m.id, m]));
    const known = new Map(served.map((m) => [m.id, m]));
    const rows = all
      ? all.data
      : served.filter((m) => !m.parent).map((m) => ({ ...m, state: loads.has(m.id) ? "loaded" : "loading" }));
    this.note.textContent = all
      ? `${all.loaded} of at most ${all.max_loaded} are loaded.`
      : "Only an administrator's key loads and unloads models.";
    this.form.hidden = !all;
    this.draw(rows, all?.tasks ?? [], loads, known);
    const ids = rows.filter((m) => m.state === "loaded").map((m) => m.id);
    if (this.ids && this.ids !== ids.join()) document.dispatchEvent(new Event("models"));
    this.ids = ids.join();
    if (all?.tasks.some(isBusy)) this.timer = setTimeout(() => this.again(), BUSY_MS);
  }

  hide() {
    clearTimeout(this.timer);
  }

  again() {
    this.show(...this.last).catch((e) => this.say(e.message));
  }

  // null: the key may not see it.
  async readAll() {
    if (this.denied === getKey()) return null;
    try {
      return await fetchAllModels();
    } catch (e) {
      if (![400, 401, 403, 404].includes(e.status)) throw e;
      this.denied = getKey();
      return null;
    }
  }

  draw(rows, tasks, loads, known) {
    const shown = tasks.filter((t) => isBusy(t) || t.state === "failed").slice(0, 8);
    const now = JSON.stringify([rows, shown, [...loads]]);
    if (now === this.drawn) return; // a button may have the focus
    this.drawn = now;
    const focused = document.activeElement?.dataset?.change;
    this.models.fill(
      rows.map((m) => {
        const context = known.get(m.id)?.context_length ?? m.context_length;
        return [
          m.id,
          stateText(m),
          context ? number(context) : "–",
          number(loads.get(m.id)?.running ?? 0),
          number(loads.get(m.id)?.waiting ?? 0),
          m.aliases?.join(", ") || "–",
          this.form.hidden ? "–" : this.button(m),
        ];
      }),
    );
    this.tasks.replaceChildren(...shown.map((t) => this.task(t)));
    if (focused) [...this.el.querySelectorAll("[data-change]")].find((b) => b.dataset.change === focused)?.focus();
  }

  button(m) {
    const [what, text] = ACTIONS[m.state] ?? [];
    if (!what || (m.task && isBusy(m.task))) return "–";
    return h(
      "button",
      {
        type: "button",
        "data-change": m.id,
        "aria-label": `${text} ${m.id}`,
        onclick: () => this.change(what, { model: m.id }),
      },
      text,
    );
  }

  task(t) {
    const name = t.kind === "pull" ? t.source : t.model;
    const label = `${VERBS[t.kind]} ${name}`;
    if (!isBusy(t)) return h("li", { class: "failed" }, `${label} ${ENDS[t.state]}: ${t.error ?? ""}`);
    const size = t.total_bytes ? ` · ${bytes(t.done_bytes)} of ${bytes(t.total_bytes)}` : "";
    return h(
      "li",
      {},
      h("span", {}, `${label}: ${t.step}${percent(t)}${size}`),
      h("progress", {
        "aria-label": label,
        max: "1",
        value: t.total_bytes ? String(t.done_bytes / t.total_bytes) : null,
      }),
      (t.kind !== "unload" || t.state === "queued") &&
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            "data-change": `task ${t.id}`,
            "aria-label": `Cancel ${label.toLowerCase()}`,
            onclick: () => this.change("cancel", { task: t.id }),
          },
          "Cancel",
        ),
    );
  }

  say(text) {
    this.said.textContent = text;
  }

  async change(what, body) {
    try {
      await changeModels(what, body);
      this.say("");
      if (what === "pull") this.source.value = "";
    } catch (e) {
      this.say(e.message);
    }
    this.again();
  }
}
