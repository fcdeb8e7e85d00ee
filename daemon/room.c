/* room.c - memory for models: which may be loaded, which leave for it. Owns no model; runs on the
 * thread of loads, which is why two of them never count on the same memory.
 *
 * A model needs at least its weights, step buffers and a cache for one context. Room is what
 * memory-budget, the device and max-models leave. If it is too little, and memory-budget or
 * keep-alive is set, models leave that no request has and the key `model` does not name, the
 * longest unused first. If those are not enough, more are hidden from new requests: they leave when
 * their last answer has ended, and what is asked of them meanwhile waits like the load itself. A
 * model is hidden for another only after it was there for as long as its loading took, so that at
 * most half of the time is spent on loading; and not before the requests that waited for it have
 * it. A load that waits longer than load-wait-s fails, and what was hidden is there again. Younger
 * loads pass one that waits only if they leave it its room. */
#include "core/base/clock.h"
#include "core/base/log.h"
#include "daemon/serving_int.h"

#include <stdio.h>
#include <string.h>

#define MS_NS UINT64_C(1000000)

/* What is loaded but for one model. */
struct tally {
    uint64_t used, pinned, idle, draining; /* bytes; idle and draining overlap */
    uint32_t n, n_pinned, n_idle, n_draining;
};

static unsigned long long mib(uint64_t bytes) {
    return (unsigned long long)((bytes + (1 << 20) - 1) >> 20);
}

static bool is_loaded(const struct served *m) {
    return m->state == MODEL_LOADED || m->state == MODEL_UNLOADING;
}

/* Requests that have m or were told that they may take it. With mu held. */
static uint32_t count_users(serving *s, const struct served *m, uint64_t *used_ns) {
    uint32_t n = api_model_use(s->api, m->model.id, m->draining, used_ns);
    return n + model_host_claims(s->host, m->model.id);
}

static struct tally count_all(serving *s, const struct served *but) {
    struct tally t = {0};
    uint64_t used_ns;
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n; i++) {
        const struct served *m = s->rows[i];
        if (m == but || !is_loaded(m)) continue;
        t.used += m->bytes;
        t.n++;
        if (m->pinned) {
            t.pinned += m->bytes;
            t.n_pinned++;
            continue;
        }
        if (m->draining) {
            t.draining += m->bytes;
            t.n_draining++;
        }
        if (s->api && !count_users(s, m, &used_ns)) {
            t.idle += m->bytes;
            t.n_idle++;
        }
    }
    pthread_mutex_unlock(&s->mu);
    return t;
}

/* The engine's needs, once for each load: within what pinned models leave. A group of processes has
 * one model at a time, which it measures together when it opens it (memory_bytes). */
static int measure(serving *s, const struct serving_limits *l, struct served *m,
                   const struct tally *t, err *e) {
    const uint64_t budget = l->memory_budget;
    struct engine_config config;
    if (!l->swaps) {
        m->measured = false; /* it was, before a reload */
        m->need = (struct engine_need){0};
    }
    if (m->measured || !l->swaps || s->group) return 0;
    loader_engine_config(s->config, m->model.path, &config);
    if (budget) config.memory_bytes = budget > t->pinned ? budget - t->pinned : 1;
    int rc = engine_need_find(&config, &m->need, e);
    if (rc == ERR_NOMEM && budget && e) {
        char why[sizeof e->msg];
        snprintf(why, sizeof why, "%s", e->msg);
        err_set(e, rc,
                "%.500s (memory-budget %llu MiB, of which models that the key model names "
                "hold %llu MiB)",
                why, mib(budget), mib(t->pinned));
    }
    if (rc) return rc;
    m->measured = true;
    return 0;
}

/* What the engine may have, and how much of it and how many places are missing. */
struct lack {
    uint64_t left, bytes;
    uint32_t places;
};

static struct lack find_lack(const serving *s, const struct serving_limits *l,
                             const struct served *m, const struct tally *t) {
    const uint64_t budget = l->memory_budget;
    const uint32_t max = l->max_models;
    const bool behind = *s->waiting && strcmp(s->waiting, m->model.id) != 0;
    uint64_t left = budget ? (budget > t->used ? budget - t->used : 0) : UINT64_MAX, kept = 0;
    uint32_t n = t->n;
    if (m->measured && m->need.device_left < left) left = m->need.device_left;
    if (behind) { /* what the older load does not get from those that it waits for */
        kept = s->waiting_bytes > t->draining ? s->waiting_bytes - t->draining : 0;
        n += t->n_draining ? 0 : 1;
    }
    if (left != UINT64_MAX) left = left > kept ? left - kept : 0;
    return (struct lack){.left = left,
                         .bytes = m->need.least > left ? m->need.least - left : 0,
                         .places = n + 1 > max ? n + 1 - max : 0};
}

/* ---- who leaves ---- */

/* With mu held: may m leave for another? idle: now; otherwise, may it be hidden? */
static bool may_leave(serving *s, const struct served *m, bool idle, uint64_t *used_ns) {
    if (!is_loaded(m) || m->pinned || (m->state == MODEL_UNLOADING && !m->draining)) return false;
    uint32_t users = count_users(s, m, used_ns);
    if (idle) return !users;
    return !m->draining && !model_host_claims(s->host, m->model.id) &&
           (!users || clock_now_ns() - m->loaded_ns >= m->load_ns);
}

/* The one that was unused for the longest time; hidden ones first. */
static struct served *pick(serving *s, const struct served *but, bool idle) {
    struct served *oldest = NULL;
    uint64_t oldest_ns = 0, used_ns;
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n; i++) {
        struct served *m = s->rows[i];
        if (m == but || !may_leave(s, m, idle, &used_ns)) continue;
        if (m->draining) used_ns = 0;
        if (oldest && used_ns >= oldest_ns) continue;
        oldest = m;
        oldest_ns = used_ns;
    }
    pthread_mutex_unlock(&s->mu);
    return oldest;
}

bool room_hide_idle(serving *s, struct served *m) {
    uint64_t used_ns;
    api_hide_model(s->api, m->model.id, true);
    pthread_mutex_lock(&s->mu);
    bool idle = !count_users(s, m, &used_ns), hidden = m->draining;
    pthread_mutex_unlock(&s->mu);
    if (!idle && !hidden) api_hide_model(s->api, m->model.id, false);
    return idle;
}

/* Hides models until those that are hidden or idle make up for what is missing. */
static void hide_more(serving *s, const struct served *m, const struct lack *lack) {
    struct tally t = count_all(s, m);
    while (t.draining < lack->bytes || t.n_draining < lack->places) {
        struct served *next = pick(s, m, false);
        if (!next) return; /* all others are hidden, or it is too early */
        pthread_mutex_lock(&s->mu);
        next->state = MODEL_UNLOADING;
        next->draining = true;
        pthread_mutex_unlock(&s->mu);
        api_hide_model(s->api, next->model.id, true);
        log_info("%s takes no new requests: %s needs its memory", next->model.id, m->model.id);
        t.draining += next->bytes;
        t.n_draining++;
    }
}

/* Requests find hidden models again. */
static void show_all(serving *s) {
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n; i++) {
        struct served *m = s->rows[i];
        if (!m->draining) continue;
        m->draining = false;
        m->state = MODEL_LOADED;
        serving_set_engine(s, m); /* after a reload while it was hidden */
        api_hide_model(s->api, m->model.id, false);
    }
    pthread_mutex_unlock(&s->mu);
}

static void end_wait(serving *s, const struct served *m) {
    if (strcmp(s->waiting, m->model.id) != 0) return;
    s->waiting[0] = '\0';
    show_all(s);
}

/* ---- making room ---- */

static int err_too_many(unsigned max, bool pinned, err *e) {
    if (pinned)
        return err_set_param(e, ERR_NOMEM, "max-models",
                             "%u models are loaded, the maximum, and all of them are named by the "
                             "key model: set max-models",
                             max);
    return err_set_param(e, ERR_UNAVAILABLE, "max-models",
                         "%u models are loaded, the maximum: unload one first, or set max-models",
                         max);
}

/* Can it never fit? Neither memory-budget nor the device may be too small for it and for the models
 * that never leave. */
static int check_ever(const struct serving_limits *l, const struct served *m, const struct tally *t,
                      err *e) {
    const struct {
        const char *param, *text;
        uint64_t bytes; /* 0: no bound */
    } bounds[] = {
        {"memory-budget", "memory-budget is", l->memory_budget},
        {"backend", "the device may hold",
         m->measured && m->need.device_limit != UINT64_MAX ? m->need.device_limit : 0},
    };
    if (t->n_pinned >= l->max_models) return err_too_many(l->max_models, true, e);
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        const uint64_t bytes = bounds[i].bytes;
        if (!bytes || m->need.least <= (bytes > t->pinned ? bytes - t->pinned : 0)) continue;
        return err_set_param(e, ERR_NOMEM, bounds[i].param,
                             "it needs at least %llu MiB (%llu MiB of weights, %llu MiB of step "
                             "buffers, a KV cache for %u tokens), but %s %llu MiB, of "
                             "which models that the key model names hold %llu MiB",
                             mib(m->need.least), mib(m->need.weights), mib(m->need.steps),
                             m->need.context_length, bounds[i].text, mib(bytes), mib(t->pinned));
    }
    return 0;
}

static int err_busy(const struct serving_limits *l, const struct served *m, const struct tally *t,
                    err *e) {
    return err_set_param(e, ERR_UNAVAILABLE, "model",
                         "there was no room for %llu seconds: it needs at least %llu MiB, and %u "
                         "models in use hold %llu MiB; try again later",
                         (unsigned long long)l->load_wait_s, mib(m->need.least), t->n,
                         mib(t->used));
}

/* One that leaves. *gone: it did, and m's device has its memory. */
static int evict(serving *s, struct served *m, struct served *next, struct host_task *t, err *e) {
    const uint64_t bytes = next->bytes;
    if (!room_hide_idle(s, next)) return 0; /* it is used again */
    int rc = serving_remove(s, next, serving_limits_now(s).unload_deadline_s, MODEL_ROOM, t, e);
    if (!rc && m->need.device_left != UINT64_MAX) m->need.device_left += bytes;
    return rc;
}

static int make_room(serving *s, struct served *m, struct host_task *t, uint64_t *left, err *e) {
    const bool behind = *s->waiting && strcmp(s->waiting, m->model.id) != 0;
    for (;;) {
        const struct serving_limits l = serving_limits_now(s);
        struct tally all = count_all(s, m);
        int rc = measure(s, &l, m, &all, e);
        if (rc) return rc;
        struct lack lack = find_lack(s, &l, m, &all);
        if (!lack.bytes && !lack.places) {
            *left = lack.left == UINT64_MAX ? 0 : lack.left;
            return 0;
        }
        if (!l.swaps) return err_too_many(l.max_models, false, e);
        rc = check_ever(&l, m, &all, e);
        if (rc) return rc;
        if (host_task_age_ms(t) >= l.load_wait_s * 1000) return err_busy(&l, m, &all, e);
        if (behind) return HOST_LATER;
        struct served *next =
            all.idle >= lack.bytes && all.n_idle >= lack.places ? pick(s, m, true) : NULL;
        if (next) {
            host_task_progress(t, "unloading others", 0, 0);
            rc = evict(s, m, next, t, e);
            if (rc) return rc;
            continue;
        }
        snprintf(s->waiting, sizeof s->waiting, "%s", m->model.id);
        s->waiting_bytes = m->need.least;
        hide_more(s, m, &lack);
        return HOST_LATER;
    }
}

int room_make(serving *s, struct served *m, struct host_task *t, uint64_t *left, err *e) {
    int rc = host_task_progress(t, "waiting for room", 0, 0);
    if (rc)
        err_set(e, rc, "no request waits for it any more");
    else
        rc = make_room(s, m, t, left, e);
    if (rc != HOST_LATER) end_wait(s, m);
    return rc;
}

int room_find(serving *s, struct served *m, uint64_t *left, err *e) {
    const struct serving_limits l = serving_limits_now(s);
    const struct tally all = count_all(s, m);
    int rc = l.memory_budget ? measure(s, &l, m, &all, e) : 0;
    if (!rc && l.memory_budget) rc = check_ever(&l, m, &all, e);
    if (rc) return err_prefix(e, "model %s: ", m->model.id);
    const struct lack lack = find_lack(s, &l, m, &all);
    *left = lack.left == UINT64_MAX ? 0 : lack.left;
    return 0;
}

bool room_free_more(serving *s, struct served *m, struct host_task *t) {
    const struct serving_limits l = serving_limits_now(s);
    struct served *next = l.swaps ? pick(s, m, true) : NULL;
    return next && room_hide_idle(s, next) &&
           !serving_remove(s, next, l.unload_deadline_s, MODEL_ROOM, t, NULL);
}

bool room_is_over(serving *s, const struct served *m) {
    uint64_t used_ns;
    if (m->state != MODEL_LOADED || m->pinned || m->keep_ms < 0) return false;
    if (count_users(s, m, &used_ns)) return false;
    return clock_now_ns() - used_ns >= (uint64_t)m->keep_ms * MS_NS;
}
