// GET /v1/inferd/fields as Markdown: api/FIELDS.md.
// usage: node scripts/fields-doc.mjs http://127.0.0.1:8080 > api/FIELDS.md
import { pathToFileURL } from "node:url";

const cell = (text) => String(text).replaceAll("|", "\\|");
const kind = (row) => {
  if (row.values && row.supported) return row.values.map((v) => `\`${v}\``).join(", ");
  return row.supported ? [row.type].flat().join(" or ") : "";
};
function bounds({ type, minimum, maximum }) {
  if (minimum === null && maximum === null) return "";
  const unit = { string: " characters", array: " items" }[type] ?? "";
  const plain = (n) => (typeof n === "number" && Math.abs(n) > 2 ** 53 ? (n < 0 ? "-2^63" : "2^63 - 1") : n);
  if (maximum === null) return minimum ? (unit && minimum === 1 ? "not empty" : `${plain(minimum)}${unit} or more`) : "";
  return `${plain(minimum)} to ${plain(maximum)}${unit}`;
}
const what = (row) => {
  const accepted = row.values?.length ? ` (accepted: ${row.values.map((v) => `\`${v}\``).join(", ")})` : "";
  if (!row.supported) return `refused: ${row.reason}${accepted}`;
  return [row.required ? "required." : "", row.help ?? ""].filter(Boolean).join(" ");
};

function* lines(rows, prefix) {
  for (const row of rows) {
    const initial = row.default === null ? "" : `\`${JSON.stringify(row.default)}\``;
    yield `| ${[`\`${prefix}${row.name}\``, kind(row), bounds(row), initial, what(row)].map(cell).join(" | ")} |`;
    const below = [row.type].flat().includes("array") ? "[]." : ".";
    if (row.fields) yield* lines(row.fields, prefix + row.name + below);
  }
}

export function fieldsDoc(data) {
  const tables = new Map();
  for (const { endpoint, fields } of data) {
    const key = JSON.stringify(fields);
    tables.set(key, [...(tables.get(key) ?? []), endpoint]);
  }
  const out = [
    "# Fields of requests", "",
    "Made by `scripts/fields-doc.mjs` of `GET /v1/inferd/fields`, that is of the tables that requests are read",
    "by. A field that is not here is refused (`unknown-fields` in the configuration); null is taken where it",
    "says nothing more than leaving the field out.",
  ];
  for (const [fields, endpoints] of tables) {
    out.push("", "## " + endpoints.map((e) => `\`${e}\``).join(", "), "");
    out.push("| field | type | bounds | default | |", "|---|---|---|---|---|", ...lines(JSON.parse(fields), ""));
  }
  return out.join("\n") + "\n";
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { data } = await (await fetch(process.argv[2] + "/v1/inferd/fields")).json();
  process.stdout.write(fieldsDoc(data));
}
