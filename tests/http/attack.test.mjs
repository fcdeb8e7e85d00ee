// The short form of scripts/attack: hostile clients beside normal ones. No times are asserted: the
// daemon survives, every block is freed, normal clients get no 5xx and are served, memory is bounded,
// and each attack fails.
import assert from "node:assert/strict";
import { test } from "node:test";
import { runScenario } from "../../scripts/attacks/run.mjs";
import { scenarios } from "../../scripts/attacks/scenarios.mjs";

for (const scenario of scenarios.filter((s) => s.short))
  test(`${scenario.name}: ${scenario.about}`, async () => {
    const { problems } = await runScenario(scenario, { seconds: 0.5 });
    assert.deepEqual(problems, []);
  });
