/* thread_start.c - see thread.h. Owns nothing. */
#include "core/base/thread.h"

#include <string.h>

int thread_start(pthread_t *out, void *(*run)(void *), void *arg, const char *work, err *e) {
    const int rc = pthread_create(out, NULL, run, arg);
    if (!rc) return 0;
    return err_set(
        e, ERR_NOMEM,
        "cannot start a thread that %s: %s; the bounds are those on processes and threads "
        "(ulimit -u, systemd's TasksMax, a container's pids limit) and on memory",
        work, strerror(rc));
}
