/* ranks.h - a daemon or command that mpirun started in several processes: one leads, the others
 * follow it (core/engine/group.h). */
#ifndef INFERD_DAEMON_RANKS_H
#define INFERD_DAEMON_RANKS_H

#include "core/engine/group.h"
#include "daemon/config.h"

#include <stdbool.h>

/* Checks c, and sets what such a daemon has other defaults for. Without a launcher nothing
 * happens. ERR_INVALID, ERR_UNSUPPORTED: it asks for what this mode cannot do. */
int ranks_check(struct config *c, err *e);
/* Meets the other processes, before any thread is started. *out stays NULL without a launcher. On a
 * rank other than 0 it returns when rank 0 has left or the group has failed, with *followed set:
 * the command is over. */
int ranks_join(const struct config *c, engine_group **out, bool *followed, err *e);

#endif
