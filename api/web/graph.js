// A small line graph of the last minutes, drawn as SVG, with its values as text beside it.
import { h, svg } from "./dom.js";

const WIDTH = 300,
  HEIGHT = 90;

// Rounds up to 1, 2, 5, 10, 20, ..., so that the scale does not jitter.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value) ?? value;
}

export class Graph {
  // series: [{label}]; stacked: the second on top of the first; bars: separate readings, for values
  // that do not exist every second. Readings further apart than gapMs are not joined.
  constructor({
    title,
    series,
    stacked = false,
    bars = false,
    format,
    spanMs = 120_000,
    gapMs = 3500,
    span = "two minutes",
  }) {
    Object.assign(this, { title, series, stacked, bars, format, spanMs, gapMs, span });
    this.points = []; // {timeMs, values: number|null of each series}
    this.big = h("output", { class: "big" }, "–");
    this.areas = series.map((_, i) => svg("path", { class: `area s${i}` }));
    this.lines = series.map((_, i) => svg("path", { class: `line s${i}` }));
    this.topLabel = h("span", { class: "top-label", "aria-hidden": "true" });
    this.drawing = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title },
      svg("path", { class: "grid", d: `M0 .5H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT - 0.5}H${WIDTH}` }),
      ...this.areas,
      ...this.lines,
    );
    this.values = h("dl", {});
    this.el = h(
      "section",
      { class: "graph", "aria-label": title },
      h("h3", {}, title),
      this.big,
      h("div", { class: "plot" }, this.drawing, this.topLabel),
      this.values,
    );
  }

  // facts: [[label, text]], shown without a graph.
  push(timeMs, values, rest) {
    this.fill([...this.points.filter((p) => p.timeMs > timeMs - this.spanMs), { timeMs, values }], rest);
  }

  // Shows these points, the oldest first, at least one.
  fill(points, { top = null, facts = [], big } = {}) {
    this.points = points;
    const { timeMs, values } = points.at(-1);
    const scale = top ?? this.scale();
    this.big.textContent = big ?? this.text(values[0]);
    this.topLabel.textContent = this.format(scale);
    this.series.forEach((_, i) => this.draw(i, timeMs, scale));
    const named = this.series.length > 1 ? this.series.map((s, i) => [s.label, this.text(values[i]), i]) : [];
    this.show([...named, ...facts]);
    this.drawing.setAttribute(
      "aria-label",
      `${this.title} over the last ${this.span}, now ${this.big.textContent}, scale to ${this.format(scale)}`,
    );
  }

  text(value) {
    return value === null ? "–" : this.format(value);
  }

  height(p, i) {
    if (p.values[i] === null) return null;
    return this.stacked ? p.values.slice(0, i + 1).reduce((sum, v) => sum + (v ?? 0), 0) : p.values[i];
  }

  scale() {
    const highest = Math.max(...this.points.flatMap((p) => p.values.map((_, i) => this.height(p, i) ?? 0)));
    return highest > 0 ? roundUp(highest) : 1;
  }

  draw(i, now, scale) {
    const runs = [[]]; // runs of joined readings
    let last = -Infinity;
    for (const p of this.points) {
      const v = this.height(p, i);
      if (v === null || this.bars || p.timeMs - last > this.gapMs) runs.push([]);
      last = p.timeMs;
      const x = WIDTH * (1 - (now - p.timeMs) / this.spanMs),
        y = HEIGHT - 1 - (Math.min(v, scale) / scale) * (HEIGHT - 2);
      if (v !== null) runs.at(-1).push(`${x.toFixed(1)} ${y.toFixed(1)}`);
    }
    const full = runs.filter((run) => run.length);
    const x = (point) => point.split(" ")[0];
    // A single reading is a vertical line.
    const line = (run) => (run.length > 1 ? `M${run.join("L")}` : `M${x(run[0])} ${HEIGHT}L${run[0]}`);
    this.lines[i].setAttribute("d", full.map(line).join(""));
    this.areas[i].setAttribute(
      "d",
      full.map((run) => `M${x(run[0])} ${HEIGHT}L${run.join("L")}L${x(run.at(-1))} ${HEIGHT}Z`).join(""),
    );
  }

  show(rows) {
    this.values.replaceChildren(
      ...rows.map(([label, text, i]) =>
        h("div", { class: i === undefined ? null : `key s${i}` }, h("dt", {}, label), h("dd", {}, text)),
      ),
    );
  }
}
