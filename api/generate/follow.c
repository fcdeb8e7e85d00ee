/* follow.c - see follow.h. follow_start runs on a pool thread, the job on the connection's HTTP
 * thread. */
#include "api/generate/follow.h"

#include "api/generate/api_state.h"
#include "api/http/error.h"
#include "api/http/request.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { OUT_MAX_BYTES = 64 << 10 };

struct follow {
    struct request *request;
    const struct model_admin *admin;
    struct follow_config config;
    struct model_task shown; /* what was written last */
    bool any, ended;
    str out;
    size_t out_pos;
};

static bool is_over(const struct model_task *t) {
    return t->state != MODEL_TASK_QUEUED && t->state != MODEL_TASK_RUNNING;
}

static void follow_free(void *job) {
    struct follow *f = job;
    uint64_t id = f->config.task;
    if (!f->admin->unwatch(f->admin->host, id, &f->request->watched) && f->config.cancels &&
        !is_over(&f->shown))
        f->admin->cancel(f->admin->host, id);
    str_fini(&f->out);
    free(f);
}

/* Only later tasks, many of them, drop one that ended. */
static void read_task(struct follow *f, struct model_task *t) {
    if (f->admin->get(f->admin->host, f->config.task, t)) return;
    *t = f->shown;
    t->state = MODEL_TASK_FAILED;
    err_set(&t->error, ERR_UNAVAILABLE, "the task's result is not kept any more");
}

static err error_of_task(const struct model_task *t) {
    err e = t->error;
    if (t->state == MODEL_TASK_CANCELLED) err_set(&e, ERR_UNAVAILABLE, "It was cancelled.");
    return e;
}

/* A task's errors are meant for the administrator that reads them. */
static struct api_error api_error_of(const err *e) {
    struct api_error error = error_of(e);
    if (error.status != 500) return error;
    error.message = e->msg;
    if (e->code == ERR_NOMEM) {
        error.status = 503;
        error.code = "out_of_memory";
        error.param = e->param;
    }
    return error;
}

static enum job_status follow_poll(struct request *r, void *job) {
    struct follow *f = job;
    str body;
    if (f->config.stream) {
        r->reply.status = 200;
        r->reply.stream = true;
        r->reply.content_type = f->config.writer->content_type;
        reply_header(r, "Cache-Control", "no-cache");
        reply_header(r, "X-Accel-Buffering", "no");
        return JOB_REPLY;
    }
    read_task(f, &f->shown);
    if (!is_over(&f->shown)) return JOB_WAIT;
    if (f->shown.state != MODEL_TASK_DONE) {
        const err e = error_of_task(&f->shown);
        const struct api_error error = api_error_of(&e);
        reply_error(r, &error);
        return JOB_REPLY;
    }
    str_init(&body, OUT_MAX_BYTES);
    f->config.writer->whole(&f->shown, &body);
    reply_json(r, 200, &body);
    return JOB_REPLY;
}

static bool has_changed(const struct model_task *a, const struct model_task *b) {
    return a->state != b->state || a->step != b->step || a->done != b->done ||
           a->total != b->total || strcmp(a->digest, b->digest) != 0 ||
           strcmp(a->model, b->model) != 0;
}

/* Writes what is new, if anything. */
static void write_news(struct follow *f, bool due) {
    struct model_task now;
    read_task(f, &now);
    bool over = is_over(&now);
    if (!f->any || has_changed(&f->shown, &now) || due) {
        if (!over || now.state == MODEL_TASK_DONE) f->config.writer->change(&now, &f->out);
        f->any = true;
    }
    f->shown = now;
    if (!over) return;
    const err e = error_of_task(&now);
    const struct api_error error = api_error_of(&e);
    f->config.writer->end(&now, now.state == MODEL_TASK_DONE ? NULL : &error, &f->out);
    f->ended = true;
}

static ssize_t follow_read(struct request *r, void *job, char *buf, size_t max) {
    struct follow *f = job;
    if (f->out_pos == f->out.len) {
        if (f->ended) return JOB_READ_END;
        str_clear(&f->out);
        f->out_pos = 0;
        write_news(f, atomic_exchange(&r->watched.keepalive_due, false));
        if (f->out.failed) return JOB_READ_CUT;
        if (!f->out.len) return 0;
    }
    size_t n = f->out.len - f->out_pos;
    if (n > max) n = max;
    memcpy(buf, f->out.data + f->out_pos, n);
    f->out_pos += n;
    return (ssize_t)n;
}

static const struct job_ops follow_ops = {
    .poll = follow_poll, .read = follow_read, .free = follow_free};

int follow_start(struct request *r, const struct follow_config *config, err *e) {
    const struct model_admin *admin = r->api->config.admin;
    struct follow *f = mem_new(1, sizeof *f);
    if (!f) return err_no_memory(e);
    *f = (struct follow){.request = r, .admin = admin, .config = *config};
    str_init(&f->out, OUT_MAX_BYTES);
    if (!admin->watch(admin->host, config->task, watch_notify, &r->watched)) {
        read_task(f, &f->shown);
        if (!is_over(&f->shown)) {
            free(f);
            return err_set(e, ERR_UNAVAILABLE, "Too many requests follow this already.");
        }
    }
    r->ops = &follow_ops;
    r->job = f;
    return 0;
}
