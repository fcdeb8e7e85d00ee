/* serving_int.h - shared by serving.c (the models' lives) and room.c (who may have memory). */
#ifndef INFERD_SERVING_INT_H
#define INFERD_SERVING_INT_H

#include "core/kvevents/kvevents.h"
#include "daemon/loader.h"
#include "daemon/model_host.h"
#include "daemon/serving.h"

#include <pthread.h>

/* A model that is loaded, comes or goes; or a path of the key `model`, which can be loaded again.
 * State, pinned, keep_ms and bytes are guarded by serving.mu, the rest as serving.h says. */
struct served {
    struct loader_model model;
    engine *engine;
    chat_template *chat;
    enum model_state state;
    bool pinned;
    bool draining; /* UNLOADING, but only so that another finds room, if that is not given up */
    int64_t keep_ms;
    bool keeps_own;              /* keep_ms is not the configuration's */
    uint64_t bytes;              /* engine_bytes; 0: not loaded */
    uint64_t loaded_ns, load_ns; /* when, and how long it took */
    struct engine_need need;     /* while it is loaded and `measured` */
    bool measured;
    uint64_t progress, stuck_ns; /* of serving_stuck_ns */
};

/* What the configuration says about the memory of models; a reload changes it. */
struct serving_limits {
    uint64_t memory_budget; /* 0: no bound */
    uint64_t load_wait_s;
    uint32_t unload_deadline_s, max_models;
    int64_t keep_ms; /* of models without one of their own */
    bool swaps;      /* models leave so that another finds room */
    uint32_t store_idle_s;
    bool store_all; /* both of engine_config */
    uint32_t max_queue;
};

struct serving {
    const struct config *config; /* of the start: for what a reload does not change */
    api *api;
    model_host *host;
    struct model_admin admin;
    char *registry;                                  /* file */
    kvevents *events;                                /* NULL: none */
    kvstore *store;                                  /* NULL: none */
    engine_group *group;                             /* of processes; NULL: none */
    char pinned[API_MAX_MODELS][API_MODEL_ID_BYTES]; /* (n_pinned) constant after serving_open */
    size_t n_pinned;
    /* The load that waits for room, by the thread of loads only; "": none. */
    char waiting[API_MODEL_ID_BYTES];
    uint64_t waiting_bytes;
    pthread_mutex_t mu; /* guards what follows */
    struct serving_limits limits;
    struct config pulls;                     /* by which models are pulled */
    struct served *rows[2 * API_MAX_MODELS]; /* (n) */
    size_t n;
    struct model_usage usage[MODEL_USAGE_MAX]; /* (n_usage) */
    size_t n_usage;
};

/* ---- serving_limits.c ---- */

/* ERR_INVALID: keep-alive. */
int serving_limits_read(const struct config *c, struct serving_limits *out, err *e);
struct serving_limits serving_limits_now(serving *s); /* those in force; without mu */
/* Gives m's engine, which is loaded, what the limits say. With mu held. */
void serving_set_engine(serving *s, struct served *m);
/* A copy of the configuration by which models are pulled; without mu. */
int serving_pull_config(serving *s, struct config *out, err *e);

/* ---- serving.c ---- */

/* Closes m's engine, which no request has; its row goes or rests. On the thread of loads. */
int serving_remove(serving *s, struct served *m, uint32_t drain_s, enum model_reason why,
                   struct host_task *t, err *e);

/* ---- room.c ---- */

/* Makes room for m, whose load t is, or finds that there is some. *left: what its engine may have;
 * 0: there is no bound. HOST_LATER: others use it, and new requests do not find them any more.
 * ERR_NOMEM: it never fits, or what is pinned leaves too little. ERR_UNAVAILABLE: it took too long,
 * or max-models are loaded. After anything but HOST_LATER nothing waits for m's room. */
int room_make(serving *s, struct served *m, struct host_task *t, uint64_t *left, err *e);
/* The same at start, where nothing leaves. */
int room_find(serving *s, struct served *m, uint64_t *left, err *e);
/* m's engine found less memory than was promised: one of the others leaves. false: none can. */
bool room_free_more(serving *s, struct served *m, struct host_task *t);
/* Is it time for m, which is loaded, to leave by itself? With mu held. */
bool room_is_over(serving *s, const struct served *m);
/* If nothing uses m: hides it from requests. false: something does. */
bool room_hide_idle(serving *s, struct served *m);

#endif
