// A titled table that scrolls, and how figures are written in it.
import { h, number } from "./dom.js";

export const bytes = (v) =>
  v >= 1 << 30 ? `${(v / 2 ** 30).toFixed(1)} GiB` : `${number(Math.round(v / 2 ** 20))} MiB`;

// heads: [text, class]; fill(rows) takes rows of texts or elements.
export function table(label, heads, note) {
  const body = h("tbody", {}),
    head = heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text));
  const el = h(
    "section",
    { class: "listing", "aria-label": label },
    h("div", { class: "dash-head" }, h("h2", {}, label), note),
    h(
      "div",
      { class: "table", tabindex: "0", role: "region", "aria-label": `${label}: table` },
      h("table", {}, h("thead", {}, h("tr", {}, ...head)), body),
    ),
  );
  const fill = (rows) =>
    body.replaceChildren(
      ...rows.map((cells) => h("tr", {}, ...cells.map((c, i) => h("td", { class: heads[i][1] }, c)))),
    );
  return { el, fill };
}
