/* test_work_pool.c - the pool that prepares requests: turns of clients, moves to the slow lane,
 * evictions from a full queue, and that no item is lost when it stops. */
#include "api/http/work_pool.h"

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

/* A request: runs as long as its gate is closed. */
struct job {
    struct work_item item; /* first */
    const char *name;
    bool expensive; /* does not fit the quick lane */
    atomic_bool open, cancelled;
    atomic_int n_quick, n_slow, n_done, n_refused;
};

static pthread_mutex_t order_lock = PTHREAD_MUTEX_INITIALIZER;
static char order[256]; /* names in the order in which they ran */

static void pause_a_little(void) {
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Waits up to twenty seconds. */
static bool reaches(atomic_int *count, int want) {
    for (int i = 0; i < 20000 && atomic_load(count) < want; i++)
        pause_a_little();
    return atomic_load(count) == want;
}

static enum work_verdict run(struct work_item *item, uint64_t waited_ns) {
    struct job *j = (struct job *)item;
    bool quick = item->lane == WORK_QUICK;
    (void)waited_ns;
    atomic_fetch_add(quick ? &j->n_quick : &j->n_slow, 1);
    if (quick && j->expensive) return WORK_SLOWER;
    pthread_mutex_lock(&order_lock);
    strcat(order, j->name);
    pthread_mutex_unlock(&order_lock);
    while (!atomic_load(&j->open) && !atomic_load(&j->cancelled))
        pause_a_little();
    return WORK_DONE;
}

static void done(struct work_item *item, bool refused) {
    struct job *j = (struct job *)item;
    atomic_fetch_add(refused ? &j->n_refused : &j->n_done, 1);
}

static void cancel(struct work_item *item) {
    atomic_store(&((struct job *)item)->cancelled, true);
}

static work_pool *open_pool(uint32_t n_quick, uint32_t n_slow, uint32_t max_items) {
    work_pool *p = NULL;
    const struct work_pool_config c = {.n_threads = {n_quick, n_slow},
                                       .max_items = max_items,
                                       .run = run,
                                       .done = done,
                                       .cancel = cancel};
    order[0] = '\0';
    CHECK(work_pool_open(&c, &p, NULL) == 0);
    return p;
}

static void close_pool(work_pool *p) {
    work_pool_stop(p);
    work_pool_close(p);
    work_pool_free(p);
}

#define JOB(who, what, is_open)                                                                    \
    { .item = {.client = (who)}, .name = (what), .open = (is_open) }

static void clients_take_turns(void) {
    work_pool *p = open_pool(1, 1, 100);
    struct job first = JOB(9, "_", false);
    struct job jobs[] = {JOB(1, "a", true), JOB(1, "b", true), JOB(1, "c", true), JOB(1, "d", true),
                         JOB(2, "x", true), JOB(2, "y", true), JOB(3, "z", true)};
    enum { N = sizeof jobs / sizeof *jobs };
    CHECK(work_pool_put(p, &first.item) && reaches(&first.n_quick, 1));
    for (int i = 0; i < N; i++)
        CHECK(work_pool_put(p, &jobs[i].item));
    atomic_store(&first.open, true);
    for (int i = 0; i < N; i++)
        CHECK(reaches(&jobs[i].n_done, 1));
    CHECK_STR(order, "_axzbycd");
    close_pool(p);
}

/* Expensive requests of one client leave a slow thread to others, and do not occupy the quick
 * lane. */
static void expensive_ones_wait_for_each_other(void) {
    work_pool *p = open_pool(1, 2, 100);
    struct job a = JOB(1, "a", false), b = JOB(1, "b", false), other = JOB(2, "o", true),
               common = JOB(1, "q", true);
    a.expensive = b.expensive = other.expensive = true;
    CHECK(work_pool_put(p, &a.item) && reaches(&a.n_slow, 1));
    CHECK(work_pool_put(p, &b.item) && work_pool_put(p, &other.item));
    CHECK(work_pool_put(p, &common.item));
    CHECK(reaches(&other.n_done, 1) && reaches(&common.n_done, 1));
    CHECK(atomic_load(&b.n_quick) == 1 && atomic_load(&b.n_slow) == 0);
    atomic_store(&a.open, true);
    CHECK(reaches(&b.n_slow, 1));
    atomic_store(&b.open, true);
    CHECK(reaches(&a.n_done, 1) && reaches(&b.n_done, 1));
    CHECK(atomic_load(&a.n_quick) == 1 && atomic_load(&a.n_slow) == 1);
    close_pool(p);
}

static void a_full_queue_drops_the_longest_line(void) {
    work_pool *p = open_pool(1, 1, 4);
    struct job many[] = {JOB(1, "a", false), JOB(1, "b", true), JOB(1, "c", true),
                         JOB(1, "d", true), JOB(1, "e", true)};
    struct job one = JOB(2, "x", true), two = JOB(2, "y", true), three = JOB(2, "z", true);
    CHECK(work_pool_put(p, &many[0].item) && reaches(&many[0].n_quick, 1));
    for (int i = 1; i < 4; i++)
        CHECK(work_pool_put(p, &many[i].item));
    CHECK(!work_pool_put(p, &many[4].item)); /* no other queue is longer */
    CHECK(work_pool_put(p, &one.item) && atomic_load(&many[3].n_refused) == 1);
    CHECK(work_pool_put(p, &two.item) == false); /* both lines have two turns now */
    CHECK(work_pool_step(p, &three.item));       /* was admitted before */
    atomic_store(&many[0].open, true);
    CHECK(reaches(&many[2].n_done, 1) && reaches(&one.n_done, 1) && reaches(&three.n_done, 1));
    CHECK(atomic_load(&many[3].n_quick) == 0 && atomic_load(&many[4].n_refused) == 0);
    CHECK(work_pool_put(p, &two.item) && reaches(&two.n_done, 1)); /* there is room again */
    close_pool(p);
}

/* A key's queue in the slow lane counts as its queue. */
static void a_key_does_not_displace_itself(void) {
    work_pool *p = open_pool(1, 1, 3);
    struct job mine[] = {JOB(1, "a", false), JOB(1, "b", true), JOB(1, "c", true),
                         JOB(1, "d", true)};
    struct job other = JOB(2, "x", true);
    for (int i = 0; i < 3; i++) {
        mine[i].expensive = true;
        CHECK(work_pool_put(p, &mine[i].item) && reaches(&mine[i].n_quick, 1));
    }
    CHECK(reaches(&mine[0].n_slow, 1));
    for (int i = 0; i < 5000; i++) { /* the last one reached its lane */
        struct work_pool_stats s;
        work_pool_stats(p, &s);
        if (s.n_queued[WORK_SLOW] == 2) break;
        pause_a_little();
    }
    CHECK(!work_pool_put(p, &mine[3].item));
    CHECK(work_pool_put(p, &other.item) && reaches(&other.n_done, 1));
    CHECK(atomic_load(&mine[2].n_refused) == 1);
    atomic_store(&mine[0].open, true);
    CHECK(reaches(&mine[1].n_done, 1));
    close_pool(p);
}

static void stopping_refuses_and_cancels(void) {
    work_pool *p = open_pool(1, 1, 100);
    struct job runs = JOB(1, "a", false), expensive = JOB(1, "b", false),
               queued = JOB(2, "c", true), waits = JOB(1, "d", true), step = JOB(3, "e", true),
               late = JOB(3, "f", true);
    expensive.expensive = waits.expensive = true;
    CHECK(work_pool_put(p, &expensive.item) && reaches(&expensive.n_slow, 1));
    CHECK(work_pool_put(p, &waits.item) && reaches(&waits.n_quick, 1));
    CHECK(work_pool_put(p, &runs.item) && reaches(&runs.n_quick, 1));
    CHECK(work_pool_put(p, &queued.item) && work_pool_step(p, &step.item));
    work_pool_stop(p);
    CHECK(atomic_load(&queued.n_refused) == 1 && atomic_load(&waits.n_refused) == 1);
    CHECK(!work_pool_put(p, &late.item));
    CHECK(reaches(&runs.n_done, 1) && reaches(&expensive.n_done, 1) && reaches(&step.n_done, 1));
    CHECK(atomic_load(&runs.cancelled) && atomic_load(&expensive.cancelled));
    work_pool_close(p);
    CHECK(!work_pool_step(p, &late.item) && atomic_load(&late.n_done) == 0);
    work_pool_free(p);
}

/* Each accepted item is reported exactly once. */
static void none_is_lost(void) {
    enum { N = 4000 };
    work_pool *p = open_pool(3, 2, 50);
    struct job *jobs = calloc(N, sizeof *jobs);
    bool *taken = calloc(N, sizeof *taken);
    for (int i = 0; i < N; i++) {
        jobs[i] = (struct job)JOB((uint64_t)(i * 7 % 5), "", true);
        jobs[i].expensive = i % 3 == 0;
        taken[i] = i % 11 ? work_pool_put(p, &jobs[i].item) : work_pool_step(p, &jobs[i].item);
        if (i % 64 == 0) pause_a_little();
        if (i == N * 3 / 4) work_pool_stop(p);
    }
    work_pool_close(p);
    for (int i = 0; i < N; i++) {
        int told = atomic_load(&jobs[i].n_done) + atomic_load(&jobs[i].n_refused);
        CHECK_MSG(told == taken[i], "%d: %d", i, told);
    }
    struct work_pool_stats s;
    work_pool_stats(p, &s);
    for (int i = 0; i < WORK_N_LANES; i++)
        CHECK(!s.n_queued[i] && !s.n_running[i]);
    work_pool_free(p);
    free(taken);
    free(jobs);
}

int main(void) {
    RUN(clients_take_turns);
    RUN(expensive_ones_wait_for_each_other);
    RUN(a_full_queue_drops_the_longest_line);
    RUN(a_key_does_not_displace_itself);
    RUN(stopping_refuses_and_cancels);
    RUN(none_is_lost);
    return check_done();
}
