/* lifecycle.h - start and stop of the daemon. */
#ifndef INFERD_LIFECYCLE_H
#define INFERD_LIFECYCLE_H

#include "core/engine/group.h"
#include "daemon/config.h"

#include <stdbool.h>

/* Resolves the models, opens HTTP (so that /livez answers while weights load), loads the engines,
 * serves until SIGTERM or SIGINT, then lets running answers finish within shutdown-deadline-s. A
 * second signal ends them at once. SIGHUP
 * reads the configuration again (reload.h). until_stdin_ends: the end of standard input stops it,
 * too.
 * ERR_DEVICE: a device failed for good, and what ran elsewhere has finished likewise. 0 after an
 * orderly stop. Main thread; frees everything. */
struct lifecycle_options {
    bool until_stdin_ends;
    engine_group *group; /* of processes, led by this one, or NULL; borrowed */
    int (*read)(void *arg, struct config *c, err *e); /* as struct reload_ops has it */
    void *arg;
};
int lifecycle_serve(const struct config *c, const struct lifecycle_options *o, err *e);

#endif
