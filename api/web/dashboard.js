// The dashboard: graphs of /metrics, read once a second while they can be seen.
import { $, h, number } from "./dom.js";
import { fetchMetrics } from "./api.js";
import { Graph } from "./graph.js";
import { LastHour } from "./last_hour.js";
import { Change, Metrics, percentile } from "./metrics.js";

const EVERY_MS = 1000;

const short = (v) => (v >= 100 || Number.isInteger(v) ? number(Math.round(v)) : v >= 10 ? v.toFixed(1) : v.toFixed(2));
const percent = (v) => `${(v * 100).toFixed(v > 0 && v < 0.1 ? 1 : 0)} %`;
const ms = (v) =>
  v < 10 ? `${v.toFixed(1)} ms` : v < 10_000 ? `${number(Math.round(v))} ms` : `${(v / 1000).toFixed(1)} s`;
const known = (v, format = short) => (v === null ? "–" : format(v));
const share = (part, whole) => (whole ? part / whole : null);
const thousandfold = (v) => (v === null ? null : v * 1000);

const SPAN_MS = 120_000;
const SHARES = [0.5, 0.95, 0.99];

// Percentiles of a histogram of seconds, of the graph's two minutes and since the server's start.
const percentiles = (c, m, name) => {
  const text = (before) => SHARES.map((q) => known(thousandfold(percentile(before, m, name, q)), ms)).join(" · ");
  return [
    ["p50 · p95 · p99, two minutes", c.oldest ? text(c.oldest) : "–"],
    ["p50 · p95 · p99, since the start", text(null)],
  ];
};

const REQUESTS = "inferd_http_requests_total";
// The page's own requests would hide the rest.
const OWN = ["/metrics", "/readyz"];
const asked =
  (codes) =>
  ({ route, code }) =>
    !OWN.includes(route) && (codes === undefined || code.startsWith(codes));

// Mean since the server's start of a histogram of seconds.
const overAll = (m, name) => known(thousandfold(share(m.get(`${name}_sum`), m.get(`${name}_count`))), ms);

function byCode(m) {
  const sums = new Map();
  for (const { labels, value } of m.all(REQUESTS))
    if (asked()(labels)) sums.set(labels.code, (sums.get(labels.code) ?? 0) + value);
  return [...sums].sort(([a], [b]) => a.localeCompare(b)).map(([code, n]) => [`${code} in all`, number(n)]);
}

// The graphs: c is the change since the previous reading, m the current reading.
const GRAPHS = [
  {
    title: "Tokens per second",
    series: [{ label: "generated" }, { label: "prompt" }],
    format: short,
    read: (c, m) => ({
      values: [c.rate("inferd_generated_tokens_total"), c.rate("inferd_prompt_tokens_total")],
      facts: [["generated in total", known(m.get("inferd_generated_tokens_total"))]],
    }),
  },
  {
    title: "KV blocks",
    series: [{ label: "used" }, { label: "cached" }],
    stacked: true,
    format: short,
    read: (c, m) => {
      const total = m.get("inferd_kv_blocks"),
        free = m.get("inferd_kv_blocks_free");
      const used = total === null ? null : total - free;
      return {
        values: [used, m.get("inferd_kv_blocks_cached")],
        top: total || null,
        big: total ? `${short(used)} of ${short(total)}` : "–",
        facts: [
          ["total", known(total)],
          ["evicted in all", known(m.get("inferd_kv_evictions_total"))],
        ],
      };
    },
  },
  {
    title: "Batch size",
    series: [{ label: "running" }],
    format: short,
    read: (c, m) => ({
      values: [m.get("inferd_sequences_running")],
      facts: [["steps per second", known(c.rate("inferd_steps_total"))]],
    }),
  },
  {
    title: "Queue length",
    series: [{ label: "waiting" }],
    format: short,
    read: (c, m) => ({
      values: [m.get("inferd_sequences_waiting")],
      facts: [["refused in total (queue full)", known(m.get("inferd_rejected_total"))]],
    }),
  },
  {
    title: "Prompt tokens from the prefix cache",
    series: [{ label: "share" }],
    bars: true,
    format: percent,
    read: (c, m) => {
      const hits = "inferd_prefix_cache_hit_tokens_total",
        prompt = "inferd_prompt_tokens_total";
      const all = share(m.get(hits), m.get(prompt));
      return {
        values: [share(c.of(hits), c.of(prompt))],
        top: 1,
        big: known(all, percent),
        facts: [
          ["now", known(share(c.of(hits), c.of(prompt)), percent)],
          ["cached prompt tokens", known(m.get(hits))],
          ["prompt tokens", known(m.get(prompt))],
        ],
      };
    },
  },
  {
    title: "Preemptions per second",
    series: [{ label: "preemptions" }],
    format: short,
    read: (c, m) => ({
      values: [c.rate("inferd_preemptions_total")],
      facts: [["in all", known(m.get("inferd_preemptions_total"))]],
    }),
  },
  {
    title: "Requests per second",
    series: [{ label: "2xx and 3xx" }, { label: "4xx" }, { label: "5xx" }],
    format: short,
    read: (c, m) => {
      const good = c.rate(REQUESTS, (l) => asked("2")(l) || asked("3")(l));
      return { values: [good, c.rate(REQUESTS, asked("4")), c.rate(REQUESTS, asked("5"))], facts: byCode(m) };
    },
  },
  {
    title: "Mean time to first token",
    series: [{ label: "mean" }],
    bars: true,
    format: ms,
    read: (c, m) => ({
      values: [thousandfold(c.mean("inferd_time_to_first_token_seconds"))],
      big: overAll(m, "inferd_time_to_first_token_seconds"),
      facts: [
        ["now", known(thousandfold(c.mean("inferd_time_to_first_token_seconds")), ms)],
        ...percentiles(c, m, "inferd_time_to_first_token_seconds"),
        ["in the queue, of all", overAll(m, "inferd_queue_time_seconds")],
      ],
    }),
  },
  {
    title: "Mean time between tokens",
    series: [{ label: "mean" }],
    format: ms,
    read: (c, m) => ({
      values: [thousandfold(c.mean("inferd_inter_token_latency_seconds"))],
      big: overAll(m, "inferd_inter_token_latency_seconds"),
      facts: [
        ["now", known(thousandfold(c.mean("inferd_inter_token_latency_seconds")), ms)],
        ...percentiles(c, m, "inferd_inter_token_latency_seconds"),
        ["a step now", known(thousandfold(c.mean("inferd_step_time_seconds")), ms)],
      ],
    }),
  },
];

export class Dashboard {
  constructor(root) {
    this.rows = GRAPHS.map((spec) => ({ spec, graph: new Graph(spec) }));
    this.hour = new LastHour();
    this.readings = []; // of the last two minutes
    this.note = h("p", { class: "soft", role: "status" });
    root.append(
      h("div", { class: "dash-head" }, h("h2", {}, "Live metrics"), this.note),
      h("div", { class: "graphs" }, ...this.rows.map(({ graph }) => graph.el)),
      this.hour.el,
    );
    this.shown = false;
    this.timer = 0;
    this.before = null;
    document.addEventListener("visibilitychange", () => this.turn());
  }

  show(shown) {
    this.shown = shown;
    this.turn();
  }

  turn() {
    const on = this.shown && !document.hidden;
    if (on === Boolean(this.timer)) return;
    this.hour.show(on);
    if (on) this.timer = setInterval(() => this.read(), EVERY_MS);
    else clearInterval(this.timer);
    if (on) this.read();
    else this.timer = 0;
  }

  async read() {
    if (this.reading) return;
    this.reading = true;
    try {
      const text = await fetchMetrics();
      this.take(new Metrics(text, performance.now()));
      this.say("Read from /metrics every second; the graphs show the last two minutes.");
    } catch (e) {
      this.before = null;
      this.say(`No metrics: ${e.message}`);
    }
    this.reading = false;
  }

  take(m) {
    // Of a server that was restarted, the readings before count no more.
    if (this.before === null) this.readings = [];
    this.readings = [...this.readings.filter((r) => r.timeMs > m.timeMs - SPAN_MS), m];
    const change = new Change(this.before, m);
    change.oldest = this.readings.length > 1 ? this.readings[0] : null;
    for (const { spec, graph } of this.rows) {
      const { values, ...rest } = spec.read(change, m);
      graph.push(m.timeMs, values, rest);
    }
    this.before = m;
  }

  say(text) {
    if (this.note.textContent !== text) this.note.textContent = text;
  }
}
