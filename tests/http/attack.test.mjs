// The short form of scripts/attack: hostile clients beside normal ones. Judged is what has no time
// in it: the daemon lives, every block comes back, normal clients get no 5xx and are not shut out,
// memory is bounded, and what each attack must not get.
import assert from "node:assert/strict";
import { test } from "node:test";
import { runScenario } from "../../scripts/attacks/run.mjs";
import { scenarios } from "../../scripts/attacks/scenarios.mjs";

for (const scenario of scenarios.filter((s) => s.short))
  test(`${scenario.name}: ${scenario.about}`, async () => {
    const { problems } = await runScenario(scenario, { seconds: scenario.testSeconds ?? 1 });
    assert.deepEqual(problems, []);
  });
