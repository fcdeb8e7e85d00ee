/* load_wait.c - see load_wait.h. The job is polled on the connection's HTTP thread; the handler's
 * second run is its `work`, on a pool thread. */
#include "api/generate/load_wait.h"

#include "api/generate/api_state.h"
#include "api/generate/model_admin.h"
#include "api/http/error.h"
#include "api/http/prepare.h"
#include "api/http/request.h"
#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdlib.h>

/* A model may be unloaded again before its request gets to it, but not for ever. */
enum { MAX_WAITS = 3 };

struct load_wait {
    struct request *request;
    const struct model_admin *admin;
    uint64_t task;
    str body;                /* of the request, for the second run */
    struct answer_hold hold; /* of it */
};

static void wait_free(void *job) {
    struct load_wait *w = job;
    w->admin->unwatch(w->admin->host, w->task, &w->request->watched);
    answers_hold(&w->request->http->answers, &w->hold, 0);
    str_fini(&w->body);
    free(w);
}

static enum job_status wait_poll(struct request *r, void *job) {
    const struct load_wait *w = job;
    struct model_task t;
    err e = {0};
    bool known = w->admin->get(w->admin->host, w->task, &t);
    if (r->deadline_ns && clock_now_ns() >= r->deadline_ns) {
        work_error(ERR_DEADLINE, &e);
    } else if (known && (t.state == MODEL_TASK_QUEUED || t.state == MODEL_TASK_RUNNING)) {
        return JOB_WAIT;
    } else if (!known || t.state == MODEL_TASK_DONE) {
        return JOB_WORK;
    } else {
        err_set_param(&e, ERR_UNAVAILABLE, "model", "The model '%.96s' could not be loaded: %.300s",
                      t.model, t.state == MODEL_TASK_FAILED ? t.error.msg : "it was cancelled.");
    }
    reply_err(r, &e);
    return JOB_REPLY;
}

static void wait_work(struct request *r, void *job) {
    struct load_wait *w = job;
    r->ops = NULL;
    r->job = NULL;
    r->body = w->body;
    str_init(&w->body, 0);
    wait_free(w);
    prepare_again(r);
}

static const struct job_ops wait_ops = {.poll = wait_poll, .work = wait_work, .free = wait_free};

int load_wait_start(struct request *r, err *e) {
    if (r->n_waits == MAX_WAITS) return e ? e->code : ERR_UNAVAILABLE;
    struct load_wait *w = mem_new(1, sizeof *w);
    if (!w) return err_no_memory(e);
    w->request = r;
    w->admin = r->api->config.admin;
    w->task = r->waits_for;
    if (!answers_hold(&r->http->answers, &w->hold, r->body.len)) {
        free(w);
        return err_set(e, ERR_UNAVAILABLE,
                       "Too many requests wait for models to be loaded: try again later.");
    }
    /* Without a place among the watchers it would not hear of the end, unless that has come. */
    struct model_task t = {0};
    if (!w->admin->watch(w->admin->host, w->task, watch_notify, &r->watched) &&
        w->admin->get(w->admin->host, w->task, &t) &&
        (t.state == MODEL_TASK_QUEUED || t.state == MODEL_TASK_RUNNING)) {
        answers_hold(&r->http->answers, &w->hold, 0);
        free(w);
        return err_set(e, ERR_UNAVAILABLE,
                       "Too many requests wait for this model to be loaded: try again later.");
    }
    r->n_waits++;
    w->body = r->body;
    str_init(&r->body, w->body.max_bytes);
    r->ops = &wait_ops;
    r->job = w;
    return 0;
}
