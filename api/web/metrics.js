// Prometheus' text format -> values. No DOM.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

const unescape = (text) => text.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));

export class Metrics {
  constructor(text, timeMs) {
    this.timeMs = timeMs;
    this.samples = new Map(); // name -> [{labels, value}]
    for (const line of text.split("\n")) {
      const m = line.startsWith("#") ? null : SAMPLE.exec(line);
      if (!m) continue;
      const labels = Object.fromEntries(Array.from((m[2] ?? "").matchAll(LABEL), ([, k, v]) => [k, unescape(v)]));
      if (!this.samples.has(m[1])) this.samples.set(m[1], []);
      this.samples.get(m[1]).push({ labels, value: Number(m[3]) });
    }
  }

  // Sum of a name's samples that `fits` accepts; null if the name does not exist.
  get(name, fits = () => true) {
    const all = this.samples.get(name);
    return all ? all.filter(({ labels }) => fits(labels)).reduce((sum, { value }) => sum + value, 0) : null;
  }

  all(name) {
    return this.samples.get(name) ?? [];
  }
}

// The value (in seconds) below which the share `q` of a histogram's values lies, between two readings (`before`
// null: since the server's start), linear inside a bucket; null without values. Above the last bound it is that.
export function percentile(before, now, name, q) {
  const count = (m, le) => m?.get(`${name}_bucket`, (l) => l.le === le) ?? 0;
  const buckets = now.all(`${name}_bucket`).map(({ labels, value }) => {
    return { bound: Number(labels.le.replace("+Inf", "Infinity")), n: value - count(before, labels.le) };
  });
  const wanted = q * (buckets.at(-1)?.n ?? 0),
    at = buckets.findIndex(({ n }) => n >= wanted);
  if (!(wanted > 0)) return null;
  const [low, below] = at ? [buckets[at - 1].bound, buckets[at - 1].n] : [0, 0],
    { bound, n } = buckets[at];
  return bound === Infinity ? low : low + ((bound - low) * (wanted - below)) / (n - below);
}

// The change between two readings; null if unknown: no previous reading, or a server
// that was restarted.
export class Change {
  constructor(before, now) {
    this.before = before;
    this.now = now;
    this.seconds = before ? (now.timeMs - before.timeMs) / 1000 : 0;
  }

  of(name, fits) {
    const a = this.before?.get(name, fits) ?? null,
      b = this.now.get(name, fits);
    return a === null || b === null || b < a ? null : b - a;
  }

  rate(name, fits) {
    const delta = this.of(name, fits);
    return delta === null || this.seconds <= 0 ? null : delta / this.seconds;
  }

  // Mean of a histogram's values in between.
  mean(name) {
    const n = this.of(`${name}_count`);
    return n ? this.of(`${name}_sum`) / n : null;
  }
}
