/* activation.h - socket activation: a listening socket that the supervisor opened before this
 * process started. systemd passes it by the protocol of sd_listen_fds(3) (LISTEN_PID, LISTEN_FDS,
 * first descriptor 3), launchd by launch_activate_socket(3) with the name "listeners". Connections
 * wait in the supervisor's socket instead of being refused, so the first of them may start the
 * daemon. */
#ifndef INFERD_ACTIVATION_H
#define INFERD_ACTIVATION_H

#include "core/base/err.h"

struct activation {
    int fd;         /* listening TCP socket, owned; 0: none was passed */
    const char *by; /* "systemd" or "launchd" */
    char host[80];  /* numeric address that it is bound to */
    uint16_t port;
};

/* ERR_INVALID: what was passed cannot be served: several sockets, a socket that does not listen or
 * is not TCP. a then holds none. Main thread. */
int activation_open(struct activation *a, err *e);
void activation_close(struct activation *a);

#endif
