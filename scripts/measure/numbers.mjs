// Statistics of a few samples, and Markdown.

const sorted = (values) => [...values].sort((a, b) => a - b);

export function median(values) {
  const s = sorted(values),
    half = s.length >> 1;
  return s.length === 0 ? NaN : s.length % 2 ? s[half] : (s[half - 1] + s[half]) / 2;
}

// Nearest rank: the smallest value that at least the share q of all does not exceed.
export function percentile(values, q) {
  const s = sorted(values);
  return s.length === 0 ? NaN : s[Math.max(0, Math.ceil(q * s.length) - 1)];
}

export const digits = (x) =>
  !Number.isFinite(x) ? "-" : x >= 1000 ? x.toFixed(0) : x >= 100 ? x.toFixed(1) : x.toFixed(2);

export function markdown(head, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}
