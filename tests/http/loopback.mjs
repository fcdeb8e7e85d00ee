// Third-party clients are run in a network namespace that has nothing but loopback: see run.
import assert from "node:assert/strict";
import { networkInterfaces } from "node:os";
import { test } from "node:test";

// Why this process can reach the network, as node's option `skip`.
const { LOOPBACK_ONLY } = process.env;
export const open = LOOPBACK_ONLY === "1" ? false : LOOPBACK_ONLY || "not started by tests/http/run";

export const onlyLoopback = () =>
  test("the client can reach nothing but loopback", { skip: open }, () =>
    assert.deepEqual(Object.keys(networkInterfaces()), ["lo"]),
  );
