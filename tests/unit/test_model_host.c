/* test_model_host.c - the queue of loads, unloads and pulls with a loader that only pretends:
 * order, bounds, progress, cancellation, the end of the daemon. */
#include "daemon/model_host.h"

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { WATCHERS = 16 };

/* A loader that records what it is asked, and holds a task while `hold` is set. */
static atomic_bool hold;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static char asked[512];                 /* guarded by mu */
static atomic_int n_running[2], n_both; /* of loads and unloads, of pulls; at once: 0 or 1 each */

static void note(const char *what, const char *name) {
    pthread_mutex_lock(&mu);
    size_t n = strlen(asked); /* what no longer fits is of no interest */
    snprintf(asked + n, sizeof asked - n, "%s%s ", what, name);
    pthread_mutex_unlock(&mu);
}

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

static int resolve(void *arg, enum model_task_kind kind, const char *name,
                   char id[API_MODEL_ID_BYTES], err *e) {
    (void)arg;
    (void)kind;
    if (strcmp(name, "none") == 0) return err_set_param(e, ERR_NOT_FOUND, "model", "no model none");
    strcpy(id, strcmp(name, "alias") == 0 ? "model" : name);
    return 0;
}

static int check_pull(void *arg, const struct model_pull *p, err *e) {
    (void)arg;
    return strncmp(p->what, "hf:", 3) == 0 ? 0 : err_set(e, ERR_INVALID, "expected hf:");
}

static int pretend(struct host_task *t, int lane, const char *step) {
    int rc = 0;
    if (atomic_fetch_add(&n_running[lane], 1)) atomic_fetch_add(&n_both, 1);
    for (uint64_t i = 0; !rc && (i < 4 || atomic_load(&hold)); i++) {
        rc = host_task_progress(t, step, i < 4 ? i : 3, 4);
        if (atomic_load(&hold)) pause_ms(1);
    }
    atomic_fetch_sub(&n_running[lane], 1);
    return rc;
}

static atomic_bool no_room; /* for "late" */
static atomic_int n_later;

static int load(void *arg, const char *id, struct host_task *t, err *e) {
    (void)arg;
    if (strcmp(id, "late") == 0) {
        if (host_task_progress(t, "waiting for room", 0, 0))
            return err_set(e, ERR_CANCELLED, "gone");
        atomic_fetch_add(&n_later, 1);
        if (atomic_load(&no_room)) return HOST_LATER;
    }
    note("load:", id);
    int rc = pretend(t, 0, "loading");
    if (rc) return err_set(e, rc, "stopped");
    return strcmp(id, "big") == 0 ? err_set(e, ERR_NOMEM, "it does not fit") : 0;
}

static int unload(void *arg, const char *id, struct host_task *t, err *e) {
    (void)arg;
    note("unload:", id);
    int rc = pretend(t, 0, "unloading");
    return rc ? err_set(e, rc, "stopped") : 0;
}

static int pull(void *arg, const struct model_pull *p, struct host_task *t, err *e) {
    (void)arg;
    note("pull:", p->what);
    host_task_name(t, "pulled", "abc");
    int rc = pretend(t, 1, "downloading");
    return rc ? err_set(e, rc, "stopped") : 0;
}

static const struct host_ops ops = {
    .resolve = resolve, .check_pull = check_pull, .load = load, .unload = unload, .pull = pull};

static model_host *open_host(uint32_t max_waiting, bool held) {
    model_host *h = NULL;
    err e = {0};
    asked[0] = '\0';
    atomic_store(&hold, held);
    CHECK_MSG(model_host_open(&ops, max_waiting, WATCHERS, &h, &e) == 0, "%s", e.msg);
    return h;
}

static struct model_task get(model_host *h, uint64_t id) {
    struct model_task t = {0};
    CHECK(model_host_get(h, id, &t));
    return t;
}

static void wait_for(model_host *h, uint64_t id, enum model_task_state state) {
    while (get(h, id).state != state)
        pause_ms(1);
}

static void tasks_run_in_order_and_tell_how_it_went(void) {
    model_host *h = open_host(8, false);
    struct model_task list[8];
    uint64_t a, b, c;
    err e = {0};
    CHECK(model_host_load(h, "none", &a, &e) == ERR_NOT_FOUND);
    CHECK(model_host_load(h, "alias", &a, &e) == 0);
    CHECK(model_host_load(h, "big", &b, &e) == 0);
    CHECK(model_host_unload(h, "model", &c, &e) == 0);
    wait_for(h, c, MODEL_TASK_DONE);
    CHECK_STR(asked, "load:model load:big unload:model ");
    struct model_task done = get(h, a), failed = get(h, b);
    CHECK(done.state == MODEL_TASK_DONE && done.done == 3 && done.total == 4 && done.ended_s);
    CHECK_STR(done.model, "model");
    CHECK(failed.state == MODEL_TASK_FAILED && failed.error.code == ERR_NOMEM);
    CHECK_STR(failed.error.msg, "it does not fit");
    CHECK(model_host_tasks(h, list, 8) == 3 && list[0].id == c && list[2].id == a);
    CHECK(model_host_tasks(h, list, 1) == 1 && list[0].id == c);
    CHECK(!model_host_cancel(h, a) && !model_host_get(h, 99, &done));
    model_host_close(h);
}

static void a_pull_delays_no_load_and_the_queue_is_bounded(void) {
    model_host *h = open_host(2, true);
    const struct model_pull what = {.what = "hf:org/tiny"}, bad = {.what = "llama3"};
    uint64_t p, again, id, first;
    err e = {0};
    CHECK(model_host_pull(h, &bad, &p, &e) == ERR_INVALID);
    CHECK(model_host_pull(h, &what, &p, &e) == 0);
    CHECK(model_host_load(h, "a", &first, &e) == 0);
    wait_for(h, p, MODEL_TASK_RUNNING);
    wait_for(h, first, MODEL_TASK_RUNNING);
    CHECK(model_host_pull(h, &what, &again, &e) == 0 && again == p); /* joined */
    CHECK(model_host_load(h, "b", &id, &e) == 0 && model_host_load(h, "c", &id, &e) == 0);
    CHECK(model_host_load(h, "d", &again, &e) == ERR_UNAVAILABLE);
    CHECK(strstr(e.msg, "max-model-tasks") != NULL);
    CHECK(model_host_cancel(h, id) && get(h, id).state == MODEL_TASK_CANCELLED);
    CHECK(model_host_cancel(h, p));
    wait_for(h, p, MODEL_TASK_CANCELLED);
    CHECK_STR(get(h, p).digest, "abc");
    CHECK(get(h, first).state == MODEL_TASK_RUNNING);
    atomic_store(&hold, false);
    wait_for(h, first, MODEL_TASK_DONE);
    CHECK(atomic_load(&n_both) == 0);
    model_host_close(h);
}

static atomic_int n_told;

static void told(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void watchers_are_told_and_bounded(void) {
    model_host *h = open_host(8, true);
    uint64_t id;
    err e = {0};
    int marks[WATCHERS];
    CHECK(model_host_load(h, "a", &id, &e) == 0);
    CHECK(model_host_watch(h, id, told, &n_told));
    for (int i = 1; i < WATCHERS; i++)
        CHECK(model_host_watch(h, id, told, (memset(&marks[i], 0, sizeof marks[i]), &marks[i])));
    CHECK(!model_host_watch(h, id, told, &marks[0]));
    for (int i = 1; i < WATCHERS; i++)
        CHECK(model_host_unwatch(h, id, &marks[i]) == (uint32_t)(WATCHERS - i));
    atomic_store(&hold, false);
    wait_for(h, id, MODEL_TASK_DONE);
    CHECK(atomic_load(&n_told) > 0);
    CHECK(model_host_unwatch(h, id, &n_told) == 0);
    CHECK(!model_host_watch(h, id, told, &n_told)); /* it has ended */
    model_host_close(h);
}

/* A load without room is asked again, others pass it, and it ends with the last that wants it. */
static void a_load_without_room_waits_for_those_who_want_it(void) {
    model_host *h = open_host(8, false);
    struct model_task t;
    uint64_t late, other;
    err e = {0};
    int a, b;
    atomic_store(&no_room, true);
    CHECK(model_host_want(h, "late", &late, &e) == 0);
    CHECK(model_host_watch(h, late, told, &n_told));
    while (atomic_load(&n_later) < 3)
        pause_ms(1);
    CHECK(model_host_load(h, "a", &other, &e) == 0);
    wait_for(h, other, MODEL_TASK_DONE);
    CHECK_STR(asked, "load:a ");
    CHECK(model_host_claims(h, "late") == 0); /* of what is done */
    CHECK(model_host_unwatch(h, late, &n_told) == 0);
    while (model_host_get(h, late, &t)) /* it leaves nothing */
        pause_ms(1);
    CHECK(model_host_want(h, "late", &late, &e) == 0);
    CHECK(model_host_watch(h, late, told, (memset(&a, 0, sizeof a), &a)));
    CHECK(model_host_watch(h, late, told, (memset(&b, 0, sizeof b), &b)));
    CHECK(model_host_unwatch(h, late, &a) == 1);
    atomic_store(&no_room, false);
    wait_for(h, late, MODEL_TASK_DONE);
    CHECK(model_host_claims(h, "late") == 1);
    CHECK(model_host_unwatch(h, late, &b) == 0 && model_host_claims(h, "late") == 0);
    /* What an administrator asks for, too, goes on without watchers, until it is cancelled. */
    atomic_store(&no_room, true);
    CHECK(model_host_want(h, "late", &late, &e) == 0);
    CHECK(model_host_watch(h, late, told, &a));
    CHECK(model_host_load(h, "late", &other, &e) == 0 && other == late);
    CHECK(model_host_unwatch(h, late, &a) == 0);
    int n = atomic_load(&n_later);
    while (atomic_load(&n_later) < n + 3)
        pause_ms(1);
    CHECK(model_host_cancel(h, late));
    wait_for(h, late, MODEL_TASK_CANCELLED);
    model_host_close(h);
}

static void bounds_change_while_tasks_wait(void) {
    model_host *h = open_host(1, true);
    atomic_int more = 0;
    uint64_t first, waits, id;
    err e = {0};
    CHECK(model_host_load(h, "a", &first, &e) == 0);
    wait_for(h, first, MODEL_TASK_RUNNING);
    CHECK(model_host_load(h, "b", &waits, &e) == 0);
    CHECK(model_host_load(h, "c", &id, &e) == ERR_UNAVAILABLE);
    model_host_set_bounds(h, 40, WATCHERS + 1);
    for (int i = 0; i < 39; i++) {
        const char name[] = {'c', (char)('A' + i), '\0'};
        CHECK(model_host_load(h, name, &id, &e) == 0);
    }
    CHECK(model_host_load(h, "d", &id, &e) == ERR_UNAVAILABLE);
    for (int i = 0; i < WATCHERS; i++)
        CHECK(model_host_watch(h, waits, told, &n_told));
    CHECK(model_host_watch(h, waits, told, &more));
    CHECK(!model_host_watch(h, waits, told, &n_told));
    model_host_set_bounds(h, 1, 1); /* who waits and watches stays */
    CHECK(!model_host_watch(h, waits, told, &n_told));
    CHECK(model_host_load(h, "d", &id, &e) == ERR_UNAVAILABLE);
    CHECK(model_host_unwatch(h, waits, &n_told) == 1 && !model_host_watch(h, waits, told, &n_told));
    atomic_store(&hold, false);
    wait_for(h, waits, MODEL_TASK_DONE);
    CHECK(atomic_load(&more) >= 2); /* it began, and it ended */
    model_host_close(h);
}

static void ended_tasks_are_forgotten_in_order(void) {
    model_host *h = open_host(1, false);
    struct model_task t;
    uint64_t first = 0, id = 0;
    err e = {0};
    for (int i = 0; i < 100; i++) {
        CHECK_MSG(model_host_load(h, "a", &id, &e) == 0, "%s", e.msg);
        if (!first) first = id;
        wait_for(h, id, MODEL_TASK_DONE);
    }
    CHECK(!model_host_get(h, first, &t) && model_host_get(h, id - MODEL_TASKS_KEPT + 1, &t));
    model_host_close(h);
}

static void the_end_cancels_what_runs_and_waits(void) {
    model_host *h = open_host(4, true);
    uint64_t a, b, c;
    err e = {0};
    CHECK(model_host_load(h, "a", &a, &e) == 0 && model_host_load(h, "b", &b, &e) == 0);
    CHECK(model_host_pull(h, &(struct model_pull){.what = "hf:org/x"}, &c, &e) == 0);
    wait_for(h, a, MODEL_TASK_RUNNING);
    wait_for(h, c, MODEL_TASK_RUNNING);
    model_host_stop(h);
    CHECK(model_host_load(h, "c", &c, &e) == ERR_STOPPING);
    model_host_join(h);
    CHECK(get(h, a).state == MODEL_TASK_CANCELLED && get(h, b).state == MODEL_TASK_CANCELLED);
    CHECK(strstr(asked, "load:b") == NULL);
    model_host_close(h);
}

int main(void) {
    RUN(tasks_run_in_order_and_tell_how_it_went);
    RUN(a_pull_delays_no_load_and_the_queue_is_bounded);
    RUN(watchers_are_told_and_bounded);
    RUN(a_load_without_room_waits_for_those_who_want_it);
    RUN(bounds_change_while_tasks_wait);
    RUN(ended_tasks_are_forgotten_in_order);
    RUN(the_end_cancels_what_runs_and_waits);
    return check_done();
}
