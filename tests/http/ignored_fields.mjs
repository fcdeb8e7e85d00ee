// The table of api/CLIENTS.md that says which fields of whose requests are ignored. What the tests see of a client must
// equal its row.
import { readFileSync } from "node:fs";

const rows = new Map();
const page = readFileSync("api/CLIENTS.md", "utf8");
const [, table] = page.split("**What is ignored** of their requests");
for (const [, client, fields] of table.split("\n\n")[1].matchAll(/^\| ([^|]+) \| ([^|]+) \|$/gm))
  rows.set(client, [...fields.matchAll(/`([^`]+)`/g)].map((m) => m[1]).sort());

// The names in these headers, each once and without indices: "messages[2].name" is "messages[].name".
export const ignoredNames = (headers) => {
  const names = headers.flatMap((h) => (h ?? "").split(", ").filter(Boolean));
  return [...new Set(names.map((name) => name.replace(/\[\d+\]/g, "[]")))].sort();
};
export function listedNames(client) {
  if (!rows.has(client)) throw new Error(`api/CLIENTS.md does not say what is ignored of ${client}`);
  return rows.get(client);
}
