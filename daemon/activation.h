/* activation.h - the listening socket that a supervisor opened before this process ran: systemd by
 * the protocol of sd_listen_fds(3) (LISTEN_PID, LISTEN_FDS, first descriptor 3), launchd by
 * launch_activate_socket(3) under the name "listeners". While it exists, connections wait in the
 * supervisor's socket instead of being refused, so the daemon may start with the first of them. */
#ifndef INFERD_ACTIVATION_H
#define INFERD_ACTIVATION_H

#include "core/base/err.h"

struct activation {
    int fd;         /* listening TCP socket, ours; 0: nobody handed one over */
    const char *by; /* "systemd" or "launchd" */
    char host[80];  /* numeric address that it is bound to */
    uint16_t port;
};

/* ERR_INVALID: something was handed over that cannot be served: several sockets, a socket that does
 * not listen, no TCP. a then holds none. Main thread. */
int activation_open(struct activation *a, err *e);
void activation_close(struct activation *a);

#endif
