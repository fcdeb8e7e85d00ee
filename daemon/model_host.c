/* model_host.c - see model_host.h. Owns the tasks and the two threads that run them. */
#include "daemon/model_host.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANE_MODELS, LANE_PULLS, N_LANES };
enum { HOST_MAX_TASKS = HOST_MAX_WAITING + N_LANES + MODEL_TASKS_KEPT };
enum { NOTIFY_EVERY_MS = 100, LATER_MS = 20 /* until a load is asked again */ };

struct watcher {
    void (*notify)(void *arg); /* NULL: free */
    void *arg;
};

struct host_task {
    model_host *host;
    struct model_task shown; /* id 0: free */
    char revision[MODEL_WHAT_BYTES], name[API_MODEL_ID_BYTES], alias[API_MODEL_ID_BYTES];
    struct watcher *watchers; /* (host.n_places) the row's */
    uint64_t notified_ns, queued_ns;
    uint64_t again_ns; /* put aside until then; 0: it was not asked yet */
    bool wanted;       /* only by those who watch: while it waits it ends with them */
    bool watched;      /* a client has watched it */
    bool expires;
    atomic_bool stop; /* also read without the mutex */
};

struct lane {
    model_host *host;
    pthread_t thread;
    bool started;
};

struct model_host {
    struct host_ops ops;
    struct watcher *watchers; /* (HOST_MAX_TASKS, HOST_MAX_WATCHERS) */
    struct lane lanes[N_LANES];
    pthread_mutex_t mu; /* guards all below */
    pthread_cond_t wake;
    bool stopping;
    uint32_t max_waiting, max_watchers;
    struct host_task *tasks;  /* (HOST_MAX_TASKS) */
    size_t n_tasks, n_places; /* rows and places for watchers in use: of the largest bounds yet */
    uint64_t last_id;
};

static bool has_ended(const struct host_task *t) {
    return t->shown.state != MODEL_TASK_QUEUED && t->shown.state != MODEL_TASK_RUNNING;
}

static int lane_of(const struct host_task *t) {
    return t->shown.kind == MODEL_TASK_PULL ? LANE_PULLS : LANE_MODELS;
}

/* ---- all below with the mutex held ---- */

static void notify_watchers(struct host_task *t) {
    t->notified_ns = clock_now_ns();
    for (size_t i = 0; i < t->host->n_places; i++)
        if (t->watchers[i].notify) t->watchers[i].notify(t->watchers[i].arg);
}

static struct host_task *find_task(model_host *h, uint64_t id) {
    for (size_t i = 0; id && i < h->n_tasks; i++)
        if (h->tasks[i].shown.id == id) return &h->tasks[i];
    return NULL;
}

static void end_task(struct host_task *t, enum model_task_state state) {
    t->shown.state = state;
    t->shown.ended_s = clock_wall_s();
    notify_watchers(t);
}

/* The oldest task of a lane that waits and is not put aside; NULL: none. */
static struct host_task *next_task(model_host *h, int lane) {
    struct host_task *next = NULL;
    uint64_t now = clock_now_ns();
    for (size_t i = 0; i < h->n_tasks; i++) {
        struct host_task *t = &h->tasks[i];
        if (!t->shown.id || t->shown.state != MODEL_TASK_QUEUED || lane_of(t) != lane) continue;
        if (t->again_ns > now && !atomic_load(&t->stop)) continue;
        if (!next || t->shown.id < next->shown.id) next = t;
    }
    return next;
}

/* Is a task put aside? */
static bool any_aside(const model_host *h) {
    for (size_t i = 0; i < h->n_tasks; i++) {
        const struct host_task *t = &h->tasks[i];
        if (t->shown.id && t->shown.state == MODEL_TASK_QUEUED && t->again_ns) return true;
    }
    return false;
}

static uint32_t count_watchers(const struct host_task *t) {
    uint32_t n = 0;
    for (size_t i = 0; i < t->host->n_places; i++)
        n += t->watchers[i].notify != NULL;
    return n;
}

/* Did everybody leave who wanted it? */
static bool is_abandoned(const struct host_task *t) {
    return t->wanted && t->watched && !count_watchers(t);
}

/* Ends a task that waits: at once, or, if it was asked, as soon as its op has heard of it. */
static void stop_waiting(model_host *h, struct host_task *t) {
    atomic_store(&t->stop, true);
    if (!t->again_ns) {
        end_task(t, MODEL_TASK_CANCELLED);
        if (is_abandoned(t)) t->shown.id = 0; /* no client asks how it went */
    }
    pthread_cond_broadcast(&h->wake);
}

/* A free row, else that of the task that ended first. There is one: see model_host_open. */
static struct host_task *take_row(model_host *h) {
    struct host_task *row = NULL;
    for (size_t i = 0; i < h->n_tasks; i++) {
        struct host_task *t = &h->tasks[i];
        if (!t->shown.id) return t;
        if (has_ended(t) && (!row || t->shown.id < row->shown.id)) row = t;
    }
    return row;
}

static struct host_task *find_same(model_host *h, const struct host_task *like) {
    for (size_t i = 0; i < h->n_tasks; i++) {
        struct host_task *t = &h->tasks[i];
        if (t->shown.id && !has_ended(t) && t->shown.kind == like->shown.kind &&
            !atomic_load(&t->stop) && strcmp(t->shown.what, like->shown.what) == 0 &&
            strcmp(t->name, like->name) == 0 && strcmp(t->revision, like->revision) == 0)
            return t;
    }
    return NULL;
}

static int put_task(model_host *h, const struct host_task *like, uint64_t *id, err *e) {
    uint32_t n_waiting = 0;
    struct host_task *same = find_same(h, like);
    if (h->stopping) return err_set(e, ERR_STOPPING, "the server is shutting down");
    if (same) {
        same->wanted = same->wanted && like->wanted;
        same->expires = same->expires && like->expires;
        *id = same->shown.id;
        return 0;
    }
    for (size_t i = 0; i < h->n_tasks; i++)
        n_waiting += h->tasks[i].shown.id && h->tasks[i].shown.state == MODEL_TASK_QUEUED;
    if (n_waiting >= h->max_waiting)
        return err_set(e, ERR_UNAVAILABLE,
                       "%u loads, unloads and pulls are waiting already (configuration key "
                       "max-model-tasks): try again later",
                       n_waiting);
    struct host_task *t = take_row(h);
    struct watcher *watchers = t->watchers;
    memset(watchers, 0, h->n_places * sizeof *watchers);
    *t = *like;
    t->watchers = watchers;
    t->host = h;
    t->queued_ns = clock_now_ns();
    t->shown.id = *id = ++h->last_id;
    t->shown.state = MODEL_TASK_QUEUED;
    t->shown.step = "waiting";
    atomic_init(&t->stop, false);
    pthread_cond_broadcast(&h->wake);
    return 0;
}

/* ---- threads ---- */

static int run_task(model_host *h, struct host_task *t, err *e) {
    const struct host_ops *o = &h->ops;
    const struct model_pull pull = {.what = t->shown.what,
                                    .revision = *t->revision ? t->revision : NULL,
                                    .name = *t->name ? t->name : NULL,
                                    .alias = *t->alias ? t->alias : NULL};
    switch (t->shown.kind) {
    case MODEL_TASK_LOAD:
        return o->load(o->arg, t->shown.what, t, e);
    case MODEL_TASK_UNLOAD:
        return o->unload(o->arg, t->shown.what, t, e);
    default:
        return o->pull(o->arg, &pull, t, e);
    }
}

static const char *const kind_names[] = {"load", "unload", "pull"};

/* Until there is news, or a task that was put aside is due. With the mutex held. */
static void wait_for_task(model_host *h) {
    if (any_aside(h))
        clock_cond_wait(&h->wake, &h->mu, clock_now_ns() + LATER_MS * UINT64_C(1000000));
    else
        pthread_cond_wait(&h->wake, &h->mu);
}

/* With the mutex held, which is free while the op runs. */
static void run_one(model_host *h, struct host_task *t) {
    bool again = t->again_ns != 0;
    if (is_abandoned(t)) atomic_store(&t->stop, true);
    t->shown.state = MODEL_TASK_RUNNING;
    if (!again) {
        t->shown.begun_s = clock_wall_s();
        notify_watchers(t);
    }
    pthread_mutex_unlock(&h->mu);
    err e = {0};
    int rc = run_task(h, t, &e); /* the row is this thread's until the task ends */
    bool stopped = rc < 0 && atomic_load(&t->stop);
    if (rc < 0 && !stopped) log_warn("%s %s: %s", kind_names[t->shown.kind], t->shown.what, e.msg);
    pthread_mutex_lock(&h->mu);
    if (rc == HOST_LATER) {
        t->shown.state = MODEL_TASK_QUEUED;
        t->again_ns = clock_now_ns() + LATER_MS * UINT64_C(1000000);
        return;
    }
    t->shown.error = e;
    end_task(t, stopped ? MODEL_TASK_CANCELLED : rc ? MODEL_TASK_FAILED : MODEL_TASK_DONE);
    if (stopped && is_abandoned(t)) t->shown.id = 0;
}

static void *lane_main(void *arg) {
    const struct lane *lane = arg;
    model_host *h = lane->host;
    pthread_mutex_lock(&h->mu);
    for (;;) {
        struct host_task *t = next_task(h, (int)(lane - h->lanes));
        if (t)
            run_one(h, t);
        else if (h->stopping)
            break;
        else
            wait_for_task(h);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

int model_host_open(const struct host_ops *ops, uint32_t max_waiting, uint32_t max_watchers,
                    model_host **out, err *e) {
    model_host *h = mem_new(1, sizeof *h);
    if (!h) return err_no_memory(e);
    pthread_mutex_init(&h->mu, NULL);
    clock_cond_init(&h->wake);
    h->ops = *ops;
    h->tasks = mem_new(HOST_MAX_TASKS, sizeof *h->tasks);
    h->watchers = mem_new(HOST_MAX_TASKS * HOST_MAX_WATCHERS, sizeof *h->watchers);
    int rc = h->tasks && h->watchers ? 0 : err_no_memory(e);
    for (size_t i = 0; i < HOST_MAX_TASKS && !rc; i++)
        h->tasks[i].watchers = h->watchers + i * HOST_MAX_WATCHERS;
    model_host_set_bounds(h, max_waiting, max_watchers);
    for (int i = 0; i < N_LANES && !rc; i++) {
        struct lane *lane = &h->lanes[i];
        lane->host = h;
        rc = thread_start(&lane->thread, lane_main, lane, "loads models", e);
        lane->started = !rc;
    }
    if (rc) {
        model_host_close(h);
        return rc;
    }
    *out = h;
    return 0;
}

void model_host_set_bounds(model_host *h, uint32_t max_waiting, uint32_t max_watchers) {
    pthread_mutex_lock(&h->mu);
    h->max_waiting = max_waiting < HOST_MAX_WAITING ? max_waiting : HOST_MAX_WAITING;
    h->max_watchers = max_watchers < HOST_MAX_WATCHERS ? max_watchers : HOST_MAX_WATCHERS;
    const size_t n_tasks = (size_t)h->max_waiting + N_LANES + MODEL_TASKS_KEPT;
    if (n_tasks > h->n_tasks) h->n_tasks = n_tasks;
    if (h->max_watchers > h->n_places) h->n_places = h->max_watchers;
    pthread_mutex_unlock(&h->mu);
}

void model_host_stop(model_host *h) {
    if (!h) return;
    pthread_mutex_lock(&h->mu);
    h->stopping = true;
    for (size_t i = 0; i < h->n_tasks && h->tasks; i++) {
        struct host_task *t = &h->tasks[i];
        if (!t->shown.id || has_ended(t)) continue;
        if (t->shown.state == MODEL_TASK_QUEUED)
            stop_waiting(h, t);
        else
            atomic_store(&t->stop, true);
    }
    pthread_cond_broadcast(&h->wake);
    pthread_mutex_unlock(&h->mu);
}

void model_host_join(model_host *h) {
    for (int i = 0; h && i < N_LANES; i++) {
        if (h->lanes[i].started) pthread_join(h->lanes[i].thread, NULL);
        h->lanes[i].started = false;
    }
}

void model_host_close(model_host *h) {
    if (!h) return;
    model_host_stop(h);
    model_host_join(h);
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->mu);
    free(h->tasks);
    free(h->watchers);
    free(h);
}

void *model_host_arg(const model_host *h) {
    return h->ops.arg;
}

/* ---- tasks ---- */

static int add_task(model_host *h, const struct host_task *like, uint64_t *task, err *e) {
    pthread_mutex_lock(&h->mu);
    int rc = put_task(h, like, task, e);
    pthread_mutex_unlock(&h->mu);
    return rc;
}

/* like: kind and marks. */
static int add_model_task(model_host *h, struct host_task like, const char *name, uint64_t *task,
                          err *e) {
    char id[API_MODEL_ID_BYTES];
    int rc = h->ops.resolve(h->ops.arg, like.shown.kind, name, id, e);
    if (rc) return rc;
    snprintf(like.shown.what, sizeof like.shown.what, "%s", id);
    snprintf(like.shown.model, sizeof like.shown.model, "%s", id);
    return add_task(h, &like, task, e);
}

int model_host_load(model_host *h, const char *name, uint64_t *task, err *e) {
    return add_model_task(h, (struct host_task){.shown = {.kind = MODEL_TASK_LOAD}}, name, task, e);
}

int model_host_want(model_host *h, const char *name, uint64_t *task, err *e) {
    return add_model_task(h, (struct host_task){.shown = {.kind = MODEL_TASK_LOAD}, .wanted = true},
                          name, task, e);
}

int model_host_unload(model_host *h, const char *name, uint64_t *task, err *e) {
    return add_model_task(h, (struct host_task){.shown = {.kind = MODEL_TASK_UNLOAD}}, name, task,
                          e);
}

void model_host_expire(model_host *h, const char *id) {
    const struct host_task like = {.shown = {.kind = MODEL_TASK_UNLOAD}, .expires = true};
    uint64_t task;
    add_model_task(h, like, id, &task, NULL);
}

uint32_t model_host_claims(model_host *h, const char *id) {
    uint32_t n = 0;
    pthread_mutex_lock(&h->mu);
    for (size_t i = 0; i < h->n_tasks; i++) {
        const struct host_task *t = &h->tasks[i];
        if (!t->shown.id || t->shown.kind != MODEL_TASK_LOAD || t->shown.state != MODEL_TASK_DONE ||
            strcmp(t->shown.what, id) != 0)
            continue;
        n += count_watchers(t);
    }
    pthread_mutex_unlock(&h->mu);
    return n;
}

/* text NULL: "". */
static int copy_text(char *to, size_t n, const char *text, const char *param, err *e) {
    int len = snprintf(to, n, "%s", text ? text : "");
    if (len >= 0 && (size_t)len < n) return 0;
    return err_set_param(e, ERR_INVALID, param, "Invalid value for '%s': more than %zu bytes.",
                         param, n - 1);
}

int model_host_pull(model_host *h, const struct model_pull *p, uint64_t *task, err *e) {
    struct host_task like = {.shown = {.kind = MODEL_TASK_PULL}};
    int rc = h->ops.check_pull(h->ops.arg, p, e);
    if (!rc) rc = copy_text(like.shown.what, sizeof like.shown.what, p->what, "model", e);
    if (!rc) rc = copy_text(like.revision, sizeof like.revision, p->revision, "revision", e);
    if (!rc) rc = copy_text(like.name, sizeof like.name, p->name, "name", e);
    if (!rc) rc = copy_text(like.alias, sizeof like.alias, p->alias, "model", e);
    return rc ? rc : add_task(h, &like, task, e);
}

bool model_host_cancel(model_host *h, uint64_t id) {
    pthread_mutex_lock(&h->mu);
    struct host_task *t = find_task(h, id);
    bool can = t && !has_ended(t) &&
               (t->shown.state == MODEL_TASK_QUEUED || t->shown.kind != MODEL_TASK_UNLOAD);
    if (can && t->shown.state == MODEL_TASK_QUEUED)
        stop_waiting(h, t);
    else if (can)
        atomic_store(&t->stop, true);
    pthread_mutex_unlock(&h->mu);
    return can;
}

bool model_host_get(model_host *h, uint64_t id, struct model_task *out) {
    pthread_mutex_lock(&h->mu);
    const struct host_task *t = find_task(h, id);
    if (t) *out = t->shown;
    pthread_mutex_unlock(&h->mu);
    return t != NULL;
}

size_t model_host_tasks(model_host *h, struct model_task *out, size_t max) {
    size_t n = 0;
    pthread_mutex_lock(&h->mu);
    for (uint64_t before = UINT64_MAX; n < max; before = out[n++].id) {
        const struct host_task *newest = NULL;
        for (size_t i = 0; i < h->n_tasks; i++) {
            const struct host_task *t = &h->tasks[i];
            if (t->shown.id && t->shown.id < before && (!newest || t->shown.id > newest->shown.id))
                newest = t;
        }
        if (!newest) break;
        out[n] = newest->shown;
    }
    pthread_mutex_unlock(&h->mu);
    return n;
}

bool model_host_watch(model_host *h, uint64_t id, void (*notify)(void *arg), void *arg) {
    bool ok = false;
    pthread_mutex_lock(&h->mu);
    struct host_task *t = find_task(h, id);
    if (t && (has_ended(t) || count_watchers(t) >= h->max_watchers)) t = NULL;
    for (size_t i = 0; t && !ok; i++) {
        if (t->watchers[i].notify) continue;
        t->watchers[i] = (struct watcher){notify, arg};
        t->watched = ok = true;
    }
    pthread_mutex_unlock(&h->mu);
    return ok;
}

uint32_t model_host_unwatch(model_host *h, uint64_t id, void *arg) {
    uint32_t n_left = 0;
    pthread_mutex_lock(&h->mu);
    struct host_task *t = find_task(h, id);
    for (size_t i = 0; t && i < h->n_places; i++) {
        if (t->watchers[i].arg == arg) t->watchers[i] = (struct watcher){0};
        n_left += t->watchers[i].notify != NULL;
    }
    if (t && t->shown.state == MODEL_TASK_QUEUED && is_abandoned(t)) stop_waiting(h, t);
    pthread_mutex_unlock(&h->mu);
    return n_left;
}

/* ---- for ops ---- */

int host_task_progress(struct host_task *t, const char *step, uint64_t done, uint64_t total) {
    pthread_mutex_lock(&t->host->mu);
    bool now = t->shown.step != step || (total && done == total) ||
               clock_now_ns() - t->notified_ns >= NOTIFY_EVERY_MS * UINT64_C(1000000);
    t->shown.step = step;
    t->shown.done = done;
    t->shown.total = total;
    if (now) notify_watchers(t);
    pthread_mutex_unlock(&t->host->mu);
    return atomic_load(&t->stop) ? ERR_CANCELLED : 0;
}

void host_task_name(struct host_task *t, const char *model, const char *digest) {
    pthread_mutex_lock(&t->host->mu);
    if (model) snprintf(t->shown.model, sizeof t->shown.model, "%s", model);
    if (digest) snprintf(t->shown.digest, sizeof t->shown.digest, "%s", digest);
    pthread_mutex_unlock(&t->host->mu);
}

bool host_task_expires(const struct host_task *t) {
    pthread_mutex_lock(&t->host->mu);
    bool expires = t->expires;
    pthread_mutex_unlock(&t->host->mu);
    return expires;
}

uint64_t host_task_age_ms(const struct host_task *t) {
    return (clock_now_ns() - t->queued_ns) / 1000000;
}

const atomic_bool *host_task_stop(const struct host_task *t) {
    return &t->stop;
}
