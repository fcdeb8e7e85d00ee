// The lower half of the dashboard: the last hour, as the server kept it, the models it serves, and the
// requests of this key. Read every five seconds while it can be seen.
import { h, number } from "./dom.js";
import { fetchHealth, fetchHistory, fetchModels } from "./api.js";
import { Graph } from "./graph.js";
import { ModelPanel } from "./model_panel.js";
import { bytes, table } from "./table.js";

const EVERY_MS = 5000;
const HOUR = { spanMs: 3_600_000, gapMs: 25_000, span: "hour" };

const count = (v) => (v >= 10 || Number.isInteger(v) ? number(Math.round(v)) : v.toFixed(1));
const ms = (v) => (v < 10_000 ? `${number(Math.round(v))} ms` : `${(v / 1000).toFixed(1)} s`);

// The growth of a sum from the sample before, null across a restart.
const growth = (name) => (s, before) => (before && s[name] >= before[name] ? s[name] - before[name] : null);
const rate = (name) => (s, before) => {
  const by = growth(name)(s, before);
  return by === null ? null : by / (s.time - before.time);
};
const firstToken = (s, before) => {
  const n = growth("first_tokens")(s, before);
  return n ? (1000 * growth("first_token_seconds")(s, before)) / n : null;
};

const GRAPHS = [
  {
    title: "Tokens per second, last hour",
    series: [{ label: "generated" }, { label: "prompt" }],
    format: count,
    read: [rate("generated_tokens"), rate("prompt_tokens")],
  },
  {
    title: "Sequences, last hour",
    series: [{ label: "running" }, { label: "waiting" }],
    format: count,
    read: [(s) => s.running, (s) => s.waiting],
  },
  {
    title: "KV blocks used, last hour",
    series: [{ label: "used" }],
    format: count,
    read: [(s) => s.kv_blocks_used],
    top: (s) => s.kv_blocks,
  },
  {
    title: "Memory, last hour",
    series: [{ label: "process" }, { label: "device" }],
    format: bytes,
    read: [(s) => s.memory_bytes || null, (s) => s.device_bytes || null],
  },
  {
    title: "Mean time to first token, last hour",
    series: [{ label: "mean" }],
    bars: true,
    format: ms,
    read: [firstToken],
  },
];

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

export class LastHour {
  constructor() {
    this.graphs = GRAPHS.map((spec) => ({ spec, graph: new Graph({ ...spec, ...HOUR }) }));
    this.note = h("p", { class: "soft", role: "status" });
    this.models = new ModelPanel();
    this.requests = table(
      "Requests",
      [
        ["Time"],
        ["Endpoint"],
        ["Model"],
        ["Status"],
        ["Duration", "n"],
        ["Prompt tokens", "n"],
        ["Answer tokens", "n"],
      ],
      h("p", { class: "soft" }, "The last 100 of this API key, as they ended."),
    );
    this.el = h(
      "div",
      { class: "last-hour" },
      h("div", { class: "dash-head" }, h("h2", {}, "The last hour"), this.note),
      h("div", { class: "graphs" }, ...this.graphs.map(({ graph }) => graph.el)),
      this.models.el,
      this.requests.el,
    );
    this.timer = 0;
  }

  show(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.read(), EVERY_MS) : 0;
    if (!on) this.models.hide();
    if (on) this.read();
  }

  async read() {
    try {
      const [history, health, models] = await Promise.all([fetchHistory(), fetchHealth(), fetchModels()]);
      this.showHistory(history);
      await this.models.show(health, models);
      this.note.textContent = `A sample every ${history.interval_s} seconds, kept by the server.`;
    } catch (e) {
      this.note.textContent = `No history: ${e.message}`;
    }
  }

  showHistory({ samples, requests }) {
    for (const { spec, graph } of samples.length ? this.graphs : []) {
      const points = samples.map((s, i) => ({
        timeMs: s.time * 1000,
        values: spec.read.map((f) => f(s, samples[i - 1])),
      }));
      graph.fill(points, { top: spec.top?.(samples.at(-1)) || null });
    }
    this.requests.fill(
      requests.map((r) => [
        clock(r.time),
        r.route,
        r.model ?? "–",
        r.cut ? `${r.status}, cut off` : String(r.status),
        ms(r.ms),
        number(r.prompt_tokens),
        number(r.completion_tokens),
      ]),
    );
  }
}
