/* own_daemon.h - a daemon that a command starts for itself: on loopback, at a free port, not
 * reached by the terminal's Ctrl-C, and gone when the command is, even if that is killed. Main
 * thread. */
#ifndef INFERD_DAEMON_COMMANDS_OWN_DAEMON_H
#define INFERD_DAEMON_COMMANDS_OWN_DAEMON_H

#include "core/base/err.h"

#include <sys/types.h>

struct own_daemon {
    pid_t pid;    /* 0: none */
    int to, from; /* pipes to its standard input, which it watches, and from its output */
    int log;      /* its standard error, a file without a name */
    char url[256];
};

/* Starts the daemon and waits until it serves model, at most half an hour. flags: further arguments
 * of `inferd serve`, at most OWN_DAEMON_FLAGS, ended by NULL; NULL: none. An error is the daemon's
 * own; ERR_STOPPING: Ctrl-C. */
enum { OWN_DAEMON_FLAGS = 16 };
int own_daemon_start(struct own_daemon *d, const char *model, const char *const *flags, err *e);
void own_daemon_stop(struct own_daemon *d); /* waits for its end; pid 0 is fine */

#endif
