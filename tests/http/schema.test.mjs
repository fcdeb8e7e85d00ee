// JSON Schema: the recorded cases of tests/data/schema; with the shared data also the whole JSON Schema Test Suite and
// published schemas.
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { check, nothing, read, report } from "./schema.mjs";
import { long, whole } from "./server.mjs";

const own = "tests/data/schema",
  suite = "../shared/data/json-schema-test-suite/tests",
  real = "../shared/data/json-schemas-real";

// test_grammar_schema has the verdicts of all of them.
for (const file of readdirSync(own).filter((name) => (long ? name.endsWith(".json") : name === "keywords.json")))
  test(`recorded cases: ${file}`, (t) => {
    const totals = nothing();
    check(file, read(join(own, file)), totals);
    assert.ok(totals.compiled > 70 && totals.generated > 300);
    report(t, totals);
  });

// What the suite expects and this engine does otherwise, all said in CONTRIBUTING's table: format is enforced, not
// only noted; a label in Punycode is not decoded; what a string encodes is not looked into. And numbers of more
// digits than JavaScript has are written with an exponent there, which no whole number has here.
const otherwise = (file) => (description, what, text) =>
  file === "format.json" ||
  (file === "optional/bignum.json" && /e\+/.test(text)) ||
  file === "optional/content.json" ||
  (/optional\/format\/(idn-)?hostname/.test(file) && /A-label|Punycode|punycode/.test(`${description} ${what}`));

// A schema of draft 7 must declare it.
const ofDraft = (draft, schema) =>
  draft === "draft7" && schema && typeof schema === "object" && !schema.$schema
    ? { $schema: "http://json-schema.org/draft-07/schema#", ...schema }
    : schema;

for (const draft of ["draft2020-12", "draft7"])
  test(
    `the JSON Schema Test Suite: ${draft}`,
    { skip: whole || (existsSync(suite) ? false : "no shared data") },
    (t) => {
      const all = nothing();
      for (const file of readdirSync(join(suite, draft), { recursive: true })
        .filter((name) => name.endsWith(".json"))
        .sort()) {
        const totals = nothing();
        check(
          file,
          read(join(suite, draft, file)).map((c) => ({ ...c, schema: ofDraft(draft, c.schema) })),
          totals,
          otherwise(file),
        );
        t.diagnostic(
          `${file.replace(".json", "")}: ${totals.compiled} compiled, ${totals.refused.length} refused, ${totals.verdicts} verdicts`,
        );
        for (const key of ["compiled", "verdicts", "generated"]) all[key] += totals[key];
        all.refused.push(...totals.refused);
      }
      assert.ok(all.compiled > 150 && all.refused.length < 25);
      report(t, all);
    },
  );

test("published schemas", { skip: whole || (existsSync(real) ? false : "no shared data") }, (t) => {
  const totals = nothing();
  for (const file of readdirSync(real).sort()) check(file, [read(join(real, file))], totals);
  assert.ok(totals.compiled > 130);
  report(t, totals);
});
