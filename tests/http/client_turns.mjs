// Three turns of a conversation with a tool, as the tests of several libraries play them: in each the model is made to
// call the tool, gets its result, and answers with a text.
import assert from "node:assert/strict";

export const asks = ["Weather in Rome?", "And in Oslo?", "And in Rome again?"];
export const cities = ["Rome", "Oslo"];
export const sunny = (city) => `sunny in ${city}`;

// The roles of a conversation without system messages: three times a question, a call, its result, a text.
export const rolesOfThreeTurns = (result) => asks.flatMap(() => ["user", "assistant", result, "assistant"]);
export function checkCities(called) {
  assert.equal(called.length, asks.length, "one call a turn");
  for (const city of called) assert.ok(cities.includes(city), city);
}
