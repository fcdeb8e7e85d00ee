/* model_host.h - the queue of what administrators ask for: models are loaded, unloaded and pulled
 * as tasks. Loads and unloads run one after another on one thread, pulls on a second, so that a
 * download delays no load. A load that cannot begin yet is put aside and asked again; meanwhile
 * others go on. It knows what a task is, not what it does: that is host_ops.
 *
 * Bounded: max_waiting tasks wait, two run, the last MODEL_TASKS_KEPT that ended are remembered,
 * each with max_watchers watchers. Memory for the largest bounds is reserved when it is opened, and
 * touched as far as the bounds say.
 *
 * THREAD SAFETY: model_host_open, stop and close from the daemon's main thread; the rest from any.
 * The host's one mutex guards all tasks; watchers are notified while it is held, and nothing else
 * is called. */
#ifndef INFERD_MODEL_HOST_H
#define INFERD_MODEL_HOST_H

#include "api/api.h"
#include "core/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct host_task; /* a running task, for the functions below */

enum { HOST_LATER = 1 /* of host_ops.load: it is asked again soon */ };
enum { HOST_MAX_WAITING = 64, HOST_MAX_WATCHERS = 4096 }; /* largest bounds */

/* What tasks do. Called without a lock; load, unload and pull on the host's threads. */
struct host_ops {
    void *arg;
    /* The id of the model that name stands for; before a task is queued. */
    int (*resolve)(void *arg, enum model_task_kind kind, const char *name,
                   char id[API_MODEL_ID_BYTES], err *e);
    int (*check_pull)(void *arg, const struct model_pull *p, err *e); /* the same */
    /* HOST_LATER: not now. Once that was returned it is called until it returns something else. */
    int (*load)(void *arg, const char *id, struct host_task *t, err *e);
    int (*unload)(void *arg, const char *id, struct host_task *t, err *e);
    int (*pull)(void *arg, const struct model_pull *p, struct host_task *t, err *e);
};

int model_host_open(const struct host_ops *ops, uint32_t max_waiting, uint32_t max_watchers,
                    model_host **out, err *e);
/* Other bounds, from any thread. Tasks that wait and those who watch stay, also if they are more.
 */
void model_host_set_bounds(model_host *h, uint32_t max_waiting, uint32_t max_watchers);
/* Refuses new tasks, cancels those that wait and asks running ones to stop. Returns at once. */
void model_host_stop(model_host *h);
/* Waits until no task runs any more, after model_host_stop. NULL is fine. */
void model_host_join(model_host *h);
/* Stops, joins and frees. No API may use the host any more. NULL is fine. */
void model_host_close(model_host *h);
void *model_host_arg(const model_host *h); /* of its ops */

/* ---- functions of struct model_admin ---- */

int model_host_load(model_host *h, const char *name, uint64_t *task, err *e);
int model_host_want(model_host *h, const char *name, uint64_t *task, err *e);
int model_host_unload(model_host *h, const char *name, uint64_t *task, err *e);
int model_host_pull(model_host *h, const struct model_pull *p, uint64_t *task, err *e);
bool model_host_cancel(model_host *h, uint64_t task);
bool model_host_get(model_host *h, uint64_t task, struct model_task *out);
size_t model_host_tasks(model_host *h, struct model_task *out, size_t max);
bool model_host_watch(model_host *h, uint64_t task, void (*notify)(void *arg), void *arg);
uint32_t model_host_unwatch(model_host *h, uint64_t task, void *arg);

/* ---- for the daemon ---- */

/* Queues an unload that no client asked for: host_task_expires. A full queue drops it. */
void model_host_expire(model_host *h, const char *id);
/* Who still watches loads of that model that are done: a request takes its model only after it was
 * told, and does not watch any more once it has it. */
uint32_t model_host_claims(model_host *h, const char *id);

/* ---- for ops, about the task that they run ---- */

/* Says how far it is: step is static text. Nonzero: it was cancelled and should end with
 * ERR_CANCELLED or ERR_STOPPING. */
int host_task_progress(struct host_task *t, const char *step, uint64_t done, uint64_t total);
void host_task_name(struct host_task *t, const char *model,
                    const char *digest);              /* NULL: as before */
bool host_task_expires(const struct host_task *t);    /* of model_host_expire */
uint64_t host_task_age_ms(const struct host_task *t); /* since it was queued */
/* Set when it should end; valid while it runs. */
const atomic_bool *host_task_stop(const struct host_task *t);

#endif
