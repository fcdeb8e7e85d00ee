/* reload.h - reads the configuration again while the daemon serves, on SIGHUP and for `inferd
 * reload`. Keys that are live (config.h) are applied; of the others the old value stays
 * and the report names them. Files that keys name (API keys, certificates) are read again each
 * time. Anything wrong changes nothing.
 *
 * THREAD SAFETY: reload_run from any thread; the rest from the daemon's main thread. */
#ifndef INFERD_RELOAD_H
#define INFERD_RELOAD_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "daemon/config.h"

typedef struct reload reload;

struct reload_ops {
    /* Fills c, which is empty, from file and flags, as at start. On failure c is empty. */
    int (*read)(void *read_arg, struct config *c, err *e);
    void *read_arg;
    /* Applies c, or nothing. Adds to changed what files have that was not there before. */
    int (*apply)(void *arg, const struct config *c, str *changed, err *e);
    void *arg;
};

/* c: the configuration that the daemon started with; copied. ops is copied. */
int reload_open(const struct config *c, const struct reload_ops *ops, reload **out, err *e);
void reload_close(reload *r); /* NULL is fine */

/* One at a time. Adds keys, "a, b", to applied and to pending: those that need a restart, since the
 * start. Logs what it did. Errors name the file and, where there is one, the line. */
int reload_run(reload *r, str *applied, str *pending, err *e);

/* Adds a name to a list "a, b" if it is not in it. */
void reload_add_name(str *list, const char *name);

#endif
