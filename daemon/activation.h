/* activation.h - socket activation: listening sockets that the supervisor opened before this
 * process started. systemd passes them by the protocol of sd_listen_fds(3) (LISTEN_PID, LISTEN_FDS,
 * first descriptor 3), launchd by launch_activate_socket(3) with the name "listeners". Connections
 * wait in the supervisor's sockets instead of being refused, so the first of them may start the
 * daemon, and none is lost while one process ends and the next one begins. */
#ifndef INFERD_ACTIVATION_H
#define INFERD_ACTIVATION_H

#include "core/base/err.h"

#include <stddef.h>

enum { ACTIVATION_MAX = 8 };

struct activation {
    int fds[ACTIVATION_MAX]; /* (n) listening TCP or Unix sockets, owned */
    size_t n;                /* 0: none was passed */
    const char *by;          /* "systemd" or "launchd" */
};

/* ERR_INVALID: what was passed cannot be served: too many sockets, one that does not listen or is
 * of another kind. a then holds none. Main thread. */
int activation_open(struct activation *a, err *e);
void activation_close(struct activation *a);

#endif
