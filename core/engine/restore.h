/* restore.h - chains that are read back from the KV store: see tier.h. Private to core/engine.
 * Worker thread. */
#ifndef INFERD_ENGINE_RESTORE_H
#define INFERD_ENGINE_RESTORE_H

#include "core/engine/engine_int.h"

/* Takes records that have come, at most some MiB if a step ran, and ends what is over. */
void restore_run(engine *en, bool busy);
uint64_t restore_due_ns(const engine *en); /* the earliest deadline; 0: nothing is read */
void restore_drop(engine *en);             /* all, without their blocks */

#endif
