// All attacks: {name, about, run(context)} and what is special about them: short: in the tests, too;
// seconds; flags of the daemon; keys: it has two API keys; ownModel: it serves a copy of the model that
// may be spoiled; memoryMb: that the attack may add; brief: over when run() is; alone: not for a daemon
// that others use; normalsMayFail: normal clients are not judged. run.mjs has the context.
import { bodyAttacks } from "./bodies.mjs";
import { grammars } from "./grammars.mjs";
import { trust } from "./trust.mjs";
import { wires } from "./wires.mjs";

export const scenarios = [...grammars, ...wires, ...bodyAttacks, ...trust];
