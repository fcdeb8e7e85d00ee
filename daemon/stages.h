/* stages.h - a daemon or command whose model is split by layers over processes: one leads, the
 * others wait for it and follow (core/engine/group.h). Called by ranks.c. */
#ifndef INFERD_DAEMON_STAGES_H
#define INFERD_DAEMON_STAGES_H

#include "core/engine/group.h"
#include "daemon/config.h"

#include <stdbool.h>

/* Is this process one of several stages? */
bool stages_wanted(const struct config *c);
/* Checks c, as ranks_check does. */
int stages_check(struct config *c, err *e);
/* As ranks_join. A stage that follows returns when the first one has left or the group has failed.
 */
int stages_join(const struct config *c, engine_group **out, bool *followed, err *e);

#endif
