/* model_admin.h - what the daemon does for administrators: models are loaded, unloaded and pulled
 * as tasks, one after another, in the background. The daemon implements it and gives it to
 * api_open.
 *
 * THREAD SAFETY: every function from any thread; those that say so read the registry's file and do
 * not belong on an HTTP thread. */
#ifndef INFERD_API_GENERATE_MODEL_ADMIN_H
#define INFERD_API_GENERATE_MODEL_ADMIN_H

#include "api/generate/config.h"
#include "core/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct model_host model_host; /* the daemon's */

enum model_task_kind { MODEL_TASK_LOAD, MODEL_TASK_UNLOAD, MODEL_TASK_PULL };
enum model_task_state {
    MODEL_TASK_QUEUED,
    MODEL_TASK_RUNNING,
    MODEL_TASK_DONE,
    MODEL_TASK_FAILED, /* why: error */
    MODEL_TASK_CANCELLED
};

enum { MODEL_WHAT_BYTES = 400, MODEL_TASKS_KEPT = 16 };

struct model_task {
    uint64_t id; /* from 1 */
    enum model_task_kind kind;
    enum model_task_state state;
    char what[MODEL_WHAT_BYTES];    /* as it was asked for: a name, or hf:ORG/REPO:FILE */
    char model[API_MODEL_ID_BYTES]; /* the model's name; "": not known (yet) */
    const char *step;               /* static text: "waiting", "downloading", ... */
    char digest[65];      /* SHA-256 of the largest file that is pulled, in hexadecimal; "": none */
    uint64_t done, total; /* bytes of the step; total 0: not known */
    int64_t begun_s, ended_s; /* clock_wall_s; 0: not yet */
    err error;
};

enum model_state { MODEL_UNKNOWN, MODEL_REGISTERED, MODEL_LOADING, MODEL_LOADED, MODEL_UNLOADING };

/* A model that is registered, loaded, or both. Borrowed during the call that gets it. */
struct model_entry {
    const char *id;
    const char *const *aliases; /* (n_aliases) */
    size_t n_aliases;
    enum model_state state;
    bool registered; /* the rest is known; otherwise zero or NULL */
    const char *architecture, *quantization, *sha256;
    uint64_t n_params, context_length, size_bytes;
    const struct model_task
        *task; /* that loads or unloads it, or did so last and failed; or NULL */
};

enum model_reason { MODEL_ASKED, MODEL_EXPIRED, MODEL_ROOM, MODEL_N_REASONS };

/* What the daemon knows of a model that is loaded or was. */
struct model_usage {
    char id[API_MODEL_ID_BYTES];
    bool loaded, pinned;                 /* pinned: it leaves only when it is asked to */
    uint64_t bytes;                      /* of memory; 0: it is not loaded */
    uint64_t n_loads, n_failed, load_ns; /* load_ns: of loads that succeeded */
    uint64_t n_unloads[MODEL_N_REASONS];
    int64_t expires_s; /* clock_wall_s, if nothing asks for it until then; -1: never */
};
enum { MODEL_USAGE_MAX = 2 * API_MAX_MODELS };

struct model_pull {
    const char *what;     /* hf:ORG/REPO or hf:ORG/REPO:FILE, as in registry/hub.h */
    const char *revision; /* NULL: main */
    const char *name;     /* NULL: made from the file's */
    const char *alias;    /* another name for it; NULL: none */
};

struct model_admin {
    model_host *host; /* first argument of every function */
    /* A reload changes them. */
    atomic_uint max_models;
    atomic_bool load_on_demand; /* requests for registered models load them */

    /* Each queues a task and sets *task to its id; a task that would do the same is joined.
     * ERR_NOT_FOUND, ERR_INVALID (param: of the request), ERR_UNAVAILABLE: as many tasks wait as
     * may; ERR_STOPPING. load and pull read the registry. */
    int (*load)(model_host *h, const char *name, uint64_t *task, err *e);
    int (*unload)(model_host *h, const char *name, uint64_t *task, err *e);
    /* As load, for a request that will watch the task: while it waits it ends when none does. */
    int (*want)(model_host *h, const char *name, uint64_t *task, err *e);
    int (*pull)(model_host *h, const struct model_pull *p, uint64_t *task, err *e);
    /* A waiting task, or a running pull, ends as cancelled. false: no such task, or it cannot. */
    bool (*cancel)(model_host *h, uint64_t task);

    /* false: no such task; the last MODEL_TASKS_KEPT that ended are remembered. */
    bool (*get)(model_host *h, uint64_t task, struct model_task *out);
    /* Tasks that wait or run and the last that ended, the newest first; returns how many. */
    size_t (*tasks)(model_host *h, struct model_task *out, size_t max);
    /* notify(arg) is called when the task changes, with a mutex held: it must only hand over.
     * false: no such task, or it has ended, or it has as many watchers as it may. After unwatch it
     * is not called any more; it returns how many others watch. */
    bool (*watch)(model_host *h, uint64_t task, void (*notify)(void *arg), void *arg);
    uint32_t (*unwatch)(model_host *h, uint64_t task, void *arg);

    /* The state of the model with that name or alias, and its id. Reads the registry. */
    enum model_state (*find)(model_host *h, const char *name, char id[API_MODEL_ID_BYTES]);
    /* Sets how long a loaded model stays after its last request; DURATION_FOREVER. 0: it leaves
     * with the last one. Until it is loaded again. false: it is pinned, or not loaded. */
    bool (*keep)(model_host *h, const char *id, int64_t ms);
    /* Of each model that is loaded or was; returns how many. out: (MODEL_USAGE_MAX). *budget: most
     * bytes for all of them, 0: no bound. */
    size_t (*usage)(model_host *h, struct model_usage *out, uint64_t *budget);
    /* Calls each for every model, in order of names, then for loaded ones that are not registered.
     * Reads the registry. */
    int (*list)(model_host *h, void (*each)(void *arg, const struct model_entry *m), void *arg,
                err *e);
};

#endif
