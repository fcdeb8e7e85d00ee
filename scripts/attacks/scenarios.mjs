// All attacks: {name, about, run(context)} and options: short: also runs in the tests; seconds; flags of
// the daemon; keys: the daemon has two API keys; ownModel: it serves a copy of the model, which the attack
// may damage; memoryMb: limit of added memory; brief: ends with run(); alone: needs its own daemon;
// normalsMayFail: failures of normal clients do not count. run.mjs defines the context.
import { bodyAttacks } from "./bodies.mjs";
import { grammars } from "./grammars.mjs";
import { trust } from "./trust.mjs";
import { wires } from "./wires.mjs";

export const scenarios = [...grammars, ...wires, ...bodyAttacks, ...trust];
