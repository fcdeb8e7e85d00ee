/* load_wait.c - see load_wait.h. The job is polled on the connection's HTTP thread; the handler's
 * second run is its `work`, on a pool thread. */
#include "api/generate/load_wait.h"

#include "api/generate/api_state.h"
#include "api/generate/gen.h"
#include "api/generate/model_admin.h"
#include "api/http/error.h"
#include "api/http/prepare.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A model may be unloaded again before its request gets to it, but not for ever. */
enum { MAX_WAITS = 8, OUT_MAX_BYTES = 64 << 10 };

struct load_wait {
    struct request *request;
    const struct model_admin *admin;
    uint64_t task;
    bool stream;
    str body;                /* of the request, for the second run */
    struct answer_hold hold; /* of it */
    /* Of a stream that has begun: */
    str out; /* bytes not yet read */
    size_t out_pos;
    bool over; /* they are the last ones */
};

/* The second run must have its model before the daemon learns that this one stopped waiting:
 * until then the model stays (model_host_claims). */
static void wait_end(struct load_wait *w) {
    w->admin->unwatch(w->admin->host, w->task, &w->request->watched);
    answers_hold(&w->request->http->answers, &w->hold, 0);
    str_fini(&w->body);
    str_fini(&w->out);
    free(w);
}

static void wait_free(void *job) {
    wait_end(job);
}

/* JOB_REPLY: *e says why it waits in vain. */
static enum job_status status_of(struct request *r, const struct load_wait *w, err *e) {
    struct model_task t;
    bool known = w->admin->get(w->admin->host, w->task, &t);
    if (r->deadline_ns && clock_now_ns() >= r->deadline_ns) {
        work_error(ERR_DEADLINE, e);
    } else if (known && (t.state == MODEL_TASK_QUEUED || t.state == MODEL_TASK_RUNNING)) {
        return JOB_WAIT;
    } else if (!known || t.state == MODEL_TASK_DONE) {
        return JOB_WORK;
    } else {
        r->never_fits = t.state == MODEL_TASK_FAILED && t.error.code == ERR_NOMEM;
        err_set_param(e, ERR_UNAVAILABLE, "model", "The model '%.96s' could not be loaded: %.600s",
                      t.model, t.state == MODEL_TASK_FAILED ? t.error.msg : "it was cancelled.");
    }
    return JOB_REPLY;
}

static enum job_status wait_poll(struct request *r, void *job) {
    const struct load_wait *w = job;
    err e = {0};
    enum job_status status = status_of(r, w, &e);
    if (status == JOB_REPLY) reply_err(r, &e);
    if (status != JOB_WAIT || !w->stream) return status;
    if (!atomic_load(&r->watched.keepalive_due)) return JOB_WAIT;
    r->reply.status = 200;
    r->reply.stream = true;
    r->reply.content_type = GEN_EVENT_STREAM;
    reply_header(r, "Cache-Control", "no-cache");
    reply_header(r, "X-Accel-Buffering", "no");
    return JOB_REPLY;
}

/* The last event: the error that r's reply has, in its protocol's form. */
static void write_error(struct request *r, struct load_wait *w) {
    const struct protocol *p = request_protocol(r);
    if (p && p->error_event) str_addf(&w->out, "event: %s\n", p->error_event);
    str_add(&w->out, "data: ");
    if (r->reply.data) /* no memory for another one */
        str_add_n(&w->out, r->reply.data, r->reply.n_data);
    else
        str_add_n(&w->out, str_cstr(&r->reply.body), r->reply.body.len);
    str_add(&w->out, "\n\n");
    w->over = true;
}

static ssize_t wait_read(struct request *r, void *job, char *buf, size_t max) {
    struct load_wait *w = job;
    if (w->out_pos == w->out.len) {
        err e = {0};
        if (w->over) return JOB_READ_END;
        enum job_status status = status_of(r, w, &e);
        if (status == JOB_WORK) return JOB_READ_WORK;
        str_clear(&w->out);
        w->out_pos = 0;
        if (status == JOB_REPLY) {
            reply_err(r, &e);
            write_error(r, w);
        } else if (atomic_exchange(&r->watched.keepalive_due, false)) {
            str_add(&w->out, ": waiting for the model\n\n");
        }
        if (w->out.failed) return JOB_READ_CUT;
    }
    size_t n = w->out.len - w->out_pos;
    if (n > max) n = max;
    memcpy(buf, w->out.data + w->out_pos, n);
    w->out_pos += n;
    return (ssize_t)n;
}

static const struct job_ops wait_ops;

/* The handler's second run. Of a stream that has begun it attaches the job whose `read` goes on, or
 * leaves a reply, which becomes the last event. */
static void wait_work(struct request *r, void *job) {
    struct load_wait *w = job;
    const bool begun = r->reply.stream;
    r->ops = NULL;
    r->job = NULL;
    str_fini(&r->body);
    r->body = w->body;
    str_init(&w->body, 0);
    if (!begun) atomic_store(&r->watched.quiet_since_ns, 0);
    prepare_again(r);
    if (begun && !r->ops) {
        str_clear(&w->out);
        w->out_pos = 0;
        write_error(r, w);
        r->ops = &wait_ops;
        r->job = w;
        return;
    }
    wait_end(w);
}

static const struct job_ops wait_ops = {
    .poll = wait_poll, .read = wait_read, .work = wait_work, .free = wait_free};

int load_wait_start(struct request *r, bool stream, err *e) {
    if (r->n_waits == MAX_WAITS) return e ? e->code : ERR_UNAVAILABLE;
    struct load_wait *w = mem_new(1, sizeof *w);
    if (!w) return err_no_memory(e);
    w->request = r;
    w->admin = r->api->config.admin;
    w->task = r->waits_for;
    w->stream = stream;
    str_init(&w->out, OUT_MAX_BYTES);
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
    if (stream && !r->reply.stream) atomic_store(&r->watched.quiet_since_ns, clock_now_ns());
    r->n_waits++;
    w->body = r->body;
    str_init(&r->body, w->body.max_bytes);
    r->ops = &wait_ops;
    r->job = w;
    return 0;
}
