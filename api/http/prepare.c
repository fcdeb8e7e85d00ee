/* prepare.c - requests in the work pool: budgets, lanes, refusals. Owns nothing: http.c stops and
 * frees the pool. Runs on pool threads, except prepare_put and prepare_step. */
#include "api/http/prepare.h"

#include "api/http/error.h"
#include "api/http/http.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/http/settings.h"
#include "core/base/clock.h"

#include <stddef.h>

enum {
    QUICK_UNITS = 1 << 21,           /* of core/base/work.h, about 10 ns each: 20 ms */
    QUICK_BODY_BYTES = 128 << 10,    /* parsing and tokenizing a larger body takes longer */
    UNITS_PER_SECOND = 100 * 1000000 /* of one core, roughly */
};

static struct request *request_of(struct work_item *item) {
    return (struct request *)(void *)((char *)item - offsetof(struct request, item));
}

static void set_budget(struct request *r, bool quick) {
    r->work = (struct work){.left = quick ? QUICK_UNITS
                                          : r->settings->config.prepare_budget_s *
                                                (uint64_t)UNITS_PER_SECOND,
                            .deadline_ns = r->deadline_ns,
                            .cancelled = &r->watched.gone};
}

/* Back to the state before the handler was called. */
static void reset_reply(struct request *r) {
    str_fini(&r->reply.body);
    r->reply = (struct reply){0};
    str_init(&r->reply.body, REPLY_MAX_BYTES);
    if (r->http->setup.release) r->http->setup.release(r);
    r->prompt_tokens = 0;
}

/* Refuses a request whose deadline passed in the queue. true: the reply is filled. */
static bool refuse_late(struct request *r) {
    err e;
    if (!r->deadline_ns || clock_now_ns() < r->deadline_ns) return false;
    work_error(ERR_DEADLINE, &e);
    reply_err(r, &e);
    return true;
}

static enum work_verdict handle_request(struct request *r) {
    bool quick = r->item.lane == WORK_QUICK;
    if (atomic_load(&r->watched.gone)) { /* while it was queued */
        atomic_fetch_add(&r->http->costs.n_cancelled, 1);
        return WORK_DONE;
    }
    if (refuse_late(r)) return WORK_DONE;
    if (quick && r->body.len > QUICK_BODY_BYTES) return WORK_SLOWER;
    set_budget(r, quick);
    r->route->handle(r);
    if (r->ops) return WORK_DONE;
    if (r->work.reason == ERR_WORK && quick) {
        reset_reply(r);
        return WORK_SLOWER;
    }
    if (r->work.reason == ERR_WORK)
        atomic_fetch_add(&r->http->costs.n_rejected[REJECT_TOO_EXPENSIVE], 1);
    if (r->work.reason == ERR_CANCELLED) {
        atomic_fetch_add(&r->http->costs.n_cancelled, 1);
        reset_reply(r);
    }
    return WORK_DONE;
}

void prepare_again(struct request *r) {
    if (!atomic_load(&r->watched.gone)) {
        set_budget(r, false);
        r->route->handle(r);
    }
    request_drop_body(r);
}

static enum work_verdict run_item(struct work_item *item, uint64_t waited_ns) {
    struct request *r = request_of(item);
    struct costs *c = &r->http->costs;
    uint64_t begin_ns = clock_now_ns();
    enum work_verdict verdict = WORK_DONE;
    atomic_fetch_add(&c->wait_ns[item->lane], waited_ns);
    atomic_fetch_add(&c->n_runs[item->lane], 1);
    if (item->step)
        r->ops->work(r, r->job);
    else
        verdict = handle_request(r);
    uint64_t ns = clock_now_ns() - begin_ns;
    atomic_fetch_add(&c->lane_ns[r->row][item->lane], ns);
    if (r->key.number) atomic_fetch_add(&costs_of_key(r)->prepare_ns, ns);
    return verdict;
}

static void reply_stopping(struct request *r) {
    reply_error(r, &(struct api_error){503, "server_error", "shutting_down", NULL,
                                       "The server is shutting down: no new requests."});
}

static void reply_full(struct request *r) {
    atomic_fetch_add(&r->http->costs.n_rejected[REJECT_PREPARE_QUEUE], 1);
    reply_error(r, &(struct api_error){503, "server_error", "overloaded", NULL,
                                       "Too many requests are being prepared: try again later."});
}

static void finish_item(struct work_item *item, bool refused) {
    struct request *r = request_of(item);
    bool answered = r->reply.status || r->ops;
    if (!answered && atomic_load(&r->http->closing))
        reply_stopping(r);
    else if (refused)
        reply_full(r);
    if (!item->step) request_drop_body(r);
    watch_return(&r->watched);
}

static void cancel_item(struct work_item *item) {
    atomic_store(&request_of(item)->watched.gone, true);
}

int prepare_open(struct http *h, err *e) {
    const struct http_config *c = &h->config;
    return work_pool_open(
        &(struct work_pool_config){
            .n_threads = {[WORK_QUICK] = c->prepare_threads, [WORK_SLOW] = c->prepare_slow_threads},
            .max_items = c->prepare_queue,
            .run = run_item,
            .done = finish_item,
            .cancel = cancel_item},
        &h->pool, e);
}

bool prepare_put(struct request *r) {
    r->active = true;
    atomic_fetch_add(&r->http->n_active, 1);
    watch_lend(&r->watched);
    if (work_pool_put(r->http->pool, &r->item)) return true;
    if (atomic_load(&r->http->closing))
        reply_stopping(r);
    else
        reply_full(r);
    request_drop_body(r);
    watch_return(&r->watched);
    return false;
}

void prepare_step(struct request *r) {
    watch_lend(&r->watched);
    if (work_pool_step(r->http->pool, &r->item)) return;
    r->ops->work(r, r->job);
    watch_return(&r->watched);
}
