/* serving_limits.c - what a reload changes for models: bounds of memory and time, and how they are
 * pulled. Owns serving.limits and serving.pulls. Any thread. */
#include "core/base/duration.h"
#include "core/base/mem.h"
#include "daemon/kv_tiers.h"
#include "daemon/serving_int.h"

#include <stdlib.h>
#include <string.h>

struct serving_change {
    struct serving_limits limits;
    uint32_t max_tasks, max_load_queue;
    bool load_on_demand;
    struct config pulls;
    struct kvstore_config kv; /* the bounds alone */
};

int serving_limits_read(const struct config *c, struct serving_limits *out, err *e) {
    *out = (struct serving_limits){.memory_budget = c->memory_budget,
                                   .load_wait_s = c->load_wait_s,
                                   .unload_deadline_s = (uint32_t)c->unload_deadline_s,
                                   .max_models = (uint32_t)c->max_models,
                                   .keep_ms = DURATION_FOREVER,
                                   .swaps = c->memory_budget || *c->keep_alive,
                                   .max_queue = (uint32_t)c->max_queue,
                                   .store_idle_s = (uint32_t)c->kv_idle_s,
                                   .store_all = strcmp(c->kv_keep, "all") == 0};
    if (!*c->keep_alive || duration_parse(c->keep_alive, &out->keep_ms)) return 0;
    return err_set_param(e, ERR_INVALID, "keep-alive",
                         "keep-alive = %.60s is not a time: 300, 5m, 1h30m, 0 or -1",
                         c->keep_alive);
}

struct serving_limits serving_limits_now(serving *s) {
    pthread_mutex_lock(&s->mu);
    const struct serving_limits limits = s->limits;
    pthread_mutex_unlock(&s->mu);
    return limits;
}

int serving_pull_config(serving *s, struct config *out, err *e) {
    pthread_mutex_lock(&s->mu);
    int rc = config_clone(out, &s->pulls, e);
    pthread_mutex_unlock(&s->mu);
    return rc;
}

int serving_prepare(const struct config *c, struct serving_change **out, err *e) {
    struct serving_change *change = mem_new(1, sizeof *change);
    *out = NULL;
    if (!change) return err_no_memory(e);
    change->max_tasks = (uint32_t)c->max_model_tasks;
    change->max_load_queue = (uint32_t)c->max_load_queue;
    change->load_on_demand = c->load_on_demand;
    change->kv = kv_tiers_bounds(c);
    int rc = serving_limits_read(c, &change->limits, e);
    if (!rc) rc = config_clone(&change->pulls, c, e);
    if (rc)
        free(change);
    else
        *out = change;
    return rc;
}

void serving_set_engine(serving *s, struct served *m) {
    engine_set_max_queue(m->engine, s->limits.max_queue);
    engine_set_store(m->engine, s->limits.store_idle_s, s->limits.store_all);
}

void serving_apply(serving *s, struct serving_change *change) {
    pthread_mutex_lock(&s->mu);
    s->limits = change->limits;
    for (size_t i = 0; i < s->n; i++) {
        struct served *m = s->rows[i];
        if (!m->keeps_own) m->keep_ms = s->limits.keep_ms;
        if (m->state == MODEL_LOADED) serving_set_engine(s, m);
    }
    const struct config old = s->pulls;
    s->pulls = change->pulls;
    change->pulls = old;
    pthread_mutex_unlock(&s->mu);
    if (s->store) kvstore_set_bounds(s->store, &change->kv);
    model_host_set_bounds(s->host, change->max_tasks, change->max_load_queue);
    atomic_store(&s->admin.max_models, change->limits.max_models);
    atomic_store(&s->admin.load_on_demand, change->load_on_demand);
}

void serving_change_free(struct serving_change *change) {
    if (!change) return;
    config_fini(&change->pulls);
    free(change);
}
