// The short form of scripts/attack: hostile clients beside normal ones. No times are asserted: the
// daemon survives, every block is freed, normal clients get no 5xx and are served, memory is bounded,
// and each attack fails.
import assert from "node:assert/strict";
import { test } from "node:test";
import { runScenario } from "../../scripts/attacks/run.mjs";
import { scenarios } from "../../scripts/attacks/scenarios.mjs";
import { long } from "./server.mjs";

// Without LONG=1: one or two of each kind.
const some = "deep-json queue-flood bad-grammars regex-compile prompt-guess sighup model-truncated";
const wires = "framing hang-ups slow-readers";
const names = `${some} ${wires}`.split(" ");
const chosen = scenarios.filter((s) => (long ? s.short : names.includes(s.name)));
assert.ok(long || chosen.length === names.length);
for (const scenario of chosen)
  test(`${scenario.name}: ${scenario.about}`, async () => {
    const { problems } = await runScenario(scenario, { seconds: 0.5 });
    assert.deepEqual(problems, []);
  });
