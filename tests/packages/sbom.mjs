// Validates a bill of materials against CycloneDX's own schema (strict), and says whether it has what it must name.
// usage: node sbom.mjs FILE NAME[=LICENCE]...
import { readFile } from "node:fs/promises";
import { Spec, Validation } from "@cyclonedx/cyclonedx-library";

const [file, ...names] = process.argv.slice(2);
const text = await readFile(file, "utf8");
const wrong = await new Validation.JsonStrictValidator(Spec.Version.v1dot5).validate(text);
if (wrong !== null) {
  console.log(JSON.stringify(wrong, null, 1));
  process.exit(1);
}
const bom = JSON.parse(text);
const has = (c, [name, licence]) =>
  c.name === name && (!licence || c.licenses?.some((l) => l.license.id === licence && c.version));
const missing = names.filter((n) => !bom.components.some((c) => has(c, n.split("="))));
if (missing.length) console.log(`no component ${missing.join(", ")}`);
console.log(`${bom.components.length} components`);
process.exit(missing.length ? 1 : 0);
