/* prepare.c - requests in the work pool: budgets, lanes, refusals, and the sums of what they cost.
 * Owns nothing: http.c opens, stops and frees the pool. Runs on pool threads but for prepare_put
 * and prepare_step. */
#include "api/api_int.h"

#include "core/base/clock.h"

#include <stddef.h>

enum {
    QUICK_UNITS = 1 << 21,           /* of core/base/work.h, which take about 10 ns: 20 ms */
    QUICK_BODY_BYTES = 128 << 10,    /* larger bodies are slow in parsing and tokenizing alone */
    UNITS_PER_SECOND = 100 * 1000000 /* of one core, about */
};

static struct request *request_of(struct work_item *item) {
    return (struct request *)(void *)((char *)item - offsetof(struct request, item));
}

void prepare_spent(struct request *r, enum request_part part, uint64_t since_ns) {
    atomic_fetch_add(&r->api->costs.part_ns[route_row(r->route)][part], clock_now_ns() - since_ns);
}

static void set_budget(struct request *r) {
    bool quick = r->item.lane == WORK_QUICK;
    r->work = (struct work){
        .left = quick ? QUICK_UNITS : r->api->config.prepare_budget_s * (uint64_t)UNITS_PER_SECOND,
        .deadline_ns = r->deadline_ns,
        .cancelled = &r->watched.gone};
}

/* As if the handler had never been called. */
static void forget_reply(struct request *r) {
    str_fini(&r->reply.body);
    r->reply = (struct reply){0};
    str_init(&r->reply.body, REPLY_MAX_BYTES);
    r->model = NULL;
    r->prompt_tokens = 0;
}

/* Its time was over in the queue. */
static bool is_late(struct request *r) {
    err e;
    if (!r->deadline_ns || clock_now_ns() < r->deadline_ns) return false;
    work_error(ERR_DEADLINE, &e);
    reply_err(r, &e);
    return true;
}

static enum work_verdict handle(struct request *r) {
    bool quick = r->item.lane == WORK_QUICK;
    if (atomic_load(&r->watched.gone)) { /* while it was queued */
        atomic_fetch_add(&r->api->costs.n_cancelled, 1);
        return WORK_DONE;
    }
    if (is_late(r)) return WORK_DONE;
    if (quick && r->body.len > QUICK_BODY_BYTES) return WORK_SLOWER;
    set_budget(r);
    r->route->handle(r);
    if (r->ops) return WORK_DONE;
    if (r->work.reason == ERR_WORK && quick) {
        forget_reply(r);
        return WORK_SLOWER;
    }
    if (r->work.reason == ERR_WORK)
        atomic_fetch_add(&r->api->costs.n_rejected[REJECT_TOO_EXPENSIVE], 1);
    if (r->work.reason == ERR_CANCELLED) {
        atomic_fetch_add(&r->api->costs.n_cancelled, 1);
        forget_reply(r);
    }
    return WORK_DONE;
}

static enum work_verdict run(struct work_item *item, uint64_t waited_ns) {
    struct request *r = request_of(item);
    struct costs *c = &r->api->costs;
    uint64_t begin_ns = clock_now_ns();
    enum work_verdict verdict = WORK_DONE;
    atomic_fetch_add(&c->wait_ns[item->lane], waited_ns);
    atomic_fetch_add(&c->n_runs[item->lane], 1);
    if (item->step)
        r->ops->work(r, r->job);
    else
        verdict = handle(r);
    uint64_t ns = clock_now_ns() - begin_ns;
    atomic_fetch_add(&c->lane_ns[route_row(r->route)][item->lane], ns);
    if (r->key_number) atomic_fetch_add(&request_key_costs(r)->prepare_ns, ns);
    return verdict;
}

static void reply_stopping(struct request *r) {
    reply_error(r, &(struct api_error){503, "server_error", "shutting_down", NULL,
                                       "The server is shutting down: no new requests."});
}

static void reply_full(struct request *r) {
    atomic_fetch_add(&r->api->costs.n_rejected[REJECT_PREPARE_QUEUE], 1);
    reply_error(r, &(struct api_error){503, "server_error", "overloaded", NULL,
                                       "The server has more requests than it can prepare: try "
                                       "again later."});
}

static void done(struct work_item *item, bool refused) {
    struct request *r = request_of(item);
    bool answered = r->reply.status || r->ops;
    if (!answered && atomic_load(&r->api->closing))
        reply_stopping(r);
    else if (refused)
        reply_full(r);
    if (!item->step) request_drop_body(r);
    watch_return(&r->watched);
}

static void cancel(struct work_item *item) {
    atomic_store(&request_of(item)->watched.gone, true);
}

int prepare_open(struct api *a, err *e) {
    const struct api_config *c = &a->config;
    return work_pool_open(
        &(struct work_pool_config){
            .n_threads = {[WORK_QUICK] = c->prepare_threads, [WORK_SLOW] = c->prepare_slow_threads},
            .max_items = c->prepare_queue,
            .run = run,
            .done = done,
            .cancel = cancel},
        &a->pool, e);
}

bool prepare_put(struct request *r) {
    r->active = true;
    atomic_fetch_add(&r->api->n_active, 1);
    watch_lend(&r->watched);
    if (work_pool_put(r->api->pool, &r->item)) return true;
    if (atomic_load(&r->api->closing))
        reply_stopping(r);
    else
        reply_full(r);
    request_drop_body(r);
    watch_return(&r->watched);
    return false;
}

void prepare_step(struct request *r) {
    watch_lend(&r->watched);
    if (work_pool_step(r->api->pool, &r->item)) return;
    r->ops->work(r, r->job);
    watch_return(&r->watched);
}
