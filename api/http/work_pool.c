/* work_pool.c - the pool's queues and threads, see work_pool.h. Knows neither HTTP nor requests.
 *
 * Turns: an item's turn is one more than that of the same client's previous item in the lane, and
 * at least that of the item taken last. A lane is sorted by turns, first in, first out among equal
 * ones. So the head is next, and the tail belongs to the client with the longest line. */
#include "api/http/work_pool.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__APPLE__)
#include <pthread/qos.h>
#endif

enum { SLOW_NICE = 10 };

struct lane {
    struct work_item *first, *last;
    uint64_t turn; /* of the item taken last */
    uint32_t n_queued, n_running;
    pthread_cond_t changed;
};

struct worker {
    work_pool *pool;
    enum work_lane lane;
    pthread_t thread;
    struct work_item *item; /* running, or NULL; guarded by the pool's mutex */
};

struct work_pool {
    struct work_pool_config config;
    struct worker *workers; /* (n_workers) */
    uint32_t n_workers;
    pthread_mutex_t mu; /* guards all below */
    struct lane lanes[WORK_N_LANES];
    uint32_t n_items; /* without steps */
    bool stopping, closing;
};

/* ---- lanes; with the pool's mutex held ---- */

/* The turn that a new item of the client would get. */
static uint64_t turn_of(const struct lane *l, uint64_t client) {
    for (const struct work_item *it = l->last; it; it = it->prev)
        if (it->client == client) return it->turn + 1;
    return l->turn;
}

/* The number of the client's items in a lane, in the lane where it is largest. */
static uint64_t line_of(const work_pool *p, uint64_t client) {
    uint64_t longest = 0;
    for (int i = 0; i < WORK_N_LANES; i++) {
        uint64_t line = turn_of(&p->lanes[i], client) - p->lanes[i].turn;
        if (line > longest) longest = line;
    }
    return longest;
}

static void insert_item(struct lane *l, struct work_item *item) {
    item->turn = turn_of(l, item->client);
    item->since_ns = clock_now_ns();
    struct work_item *before = l->last;
    while (before && before->turn > item->turn)
        before = before->prev;
    LINKED_INSERT(l, before, item);
    l->n_queued++;
    pthread_cond_signal(&l->changed);
}

static void unlink_item(struct lane *l, struct work_item *item) {
    LINKED_REMOVE(l, item);
    l->n_queued--;
}

/* One slow thread is kept for other clients. */
static bool may_run(const work_pool *p, enum work_lane lane, const struct work_item *item) {
    uint32_t n_threads = p->config.n_threads[lane], n = 0;
    if (lane != WORK_SLOW || n_threads == 1) return true;
    for (uint32_t i = 0; i < p->n_workers; i++)
        n += p->workers[i].lane == lane && p->workers[i].item &&
             p->workers[i].item->client == item->client;
    return n + 1 < n_threads;
}

static struct work_item *take_item(work_pool *p, enum work_lane lane) {
    struct lane *l = &p->lanes[lane];
    struct work_item *item = l->first;
    while (item && !may_run(p, lane, item))
        item = item->next;
    if (!item) return NULL;
    unlink_item(l, item);
    if (item->turn > l->turn) l->turn = item->turn;
    return item;
}

/* Unlinks the newest item of a client with a longer line than `line`; NULL: there is none. */
static struct work_item *take_from_longest(work_pool *p, uint64_t line) {
    struct work_item *longest = NULL;
    for (int i = 0; i < WORK_N_LANES; i++) {
        struct work_item *it = p->lanes[i].last;
        while (it && it->step)
            it = it->prev;
        if (!it || it->turn - p->lanes[i].turn <= line) continue;
        line = it->turn - p->lanes[i].turn;
        longest = it;
    }
    if (longest) unlink_item(&p->lanes[longest->lane], longest);
    return longest;
}

/* ---- threads ---- */

static void lower_priority(void) {
#ifdef __linux__
    if (setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), SLOW_NICE))
        log_warn("cannot lower the priority of a thread of the slow lane");
#elif defined(__APPLE__)
    pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
#endif
}

/* Runs one item. The mutex is held before and after. */
static void run_item(struct worker *w, struct work_item *item) {
    work_pool *p = w->pool;
    bool step = item->step;
    w->item = item;
    p->lanes[w->lane].n_running++;
    pthread_mutex_unlock(&p->mu);
    enum work_verdict verdict = p->config.run(item, clock_now_ns() - item->since_ns);
    pthread_mutex_lock(&p->mu);
    w->item = NULL;
    p->lanes[w->lane].n_running--;
    /* Items that waited because of the client's limit may run now. */
    if (w->lane == WORK_SLOW) pthread_cond_broadcast(&p->lanes[WORK_SLOW].changed);
    bool slower = verdict == WORK_SLOWER && !p->stopping;
    if (slower) {
        item->lane = WORK_SLOW;
        insert_item(&p->lanes[WORK_SLOW], item);
        return;
    }
    if (!step) p->n_items--;
    pthread_mutex_unlock(&p->mu);
    p->config.done(item, verdict == WORK_SLOWER);
    pthread_mutex_lock(&p->mu);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    work_pool *p = w->pool;
    if (w->lane == WORK_SLOW) lower_priority();
    pthread_mutex_lock(&p->mu);
    for (;;) {
        struct work_item *item = take_item(p, w->lane);
        if (item)
            run_item(w, item);
        else if (p->closing)
            break;
        else
            pthread_cond_wait(&p->lanes[w->lane].changed, &p->mu);
    }
    pthread_mutex_unlock(&p->mu);
    return NULL;
}

/* ---- the pool ---- */

int work_pool_open(const struct work_pool_config *config, work_pool **out, err *e) {
    uint32_t n = config->n_threads[WORK_QUICK] + config->n_threads[WORK_SLOW];
    work_pool *p = mem_new(1, sizeof *p);
    *out = NULL;
    if (!p) return err_no_memory(e);
    p->config = *config;
    pthread_mutex_init(&p->mu, NULL);
    for (int i = 0; i < WORK_N_LANES; i++)
        pthread_cond_init(&p->lanes[i].changed, NULL);
    p->workers = mem_new(n, sizeof *p->workers);
    int rc = p->workers ? 0 : err_no_memory(e);
    /* Workers look at each other, so all are initialized before the first one runs. */
    for (uint32_t i = 0; !rc && i < n; i++)
        p->workers[i] = (struct worker){
            .pool = p, .lane = i < config->n_threads[WORK_QUICK] ? WORK_QUICK : WORK_SLOW};
    while (!rc && p->n_workers < n) {
        struct worker *w = &p->workers[p->n_workers];
        pthread_mutex_lock(&p->mu);
        rc = thread_start(&w->thread, worker_main, w, "prepares requests", e);
        if (!rc) p->n_workers++;
        pthread_mutex_unlock(&p->mu);
    }
    if (rc) {
        work_pool_close(p);
        work_pool_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

bool work_pool_put(work_pool *p, struct work_item *item) {
    struct work_item *victim = NULL;
    item->lane = WORK_QUICK;
    item->step = false;
    pthread_mutex_lock(&p->mu);
    struct lane *l = &p->lanes[WORK_QUICK];
    bool room = p->n_items < p->config.max_items;
    if (!room && !p->stopping) victim = take_from_longest(p, line_of(p, item->client));
    bool taken = !p->stopping && (room || victim);
    if (taken) insert_item(l, item);
    if (taken && room) p->n_items++;
    pthread_mutex_unlock(&p->mu);
    if (victim) p->config.done(victim, true);
    return taken;
}

bool work_pool_step(work_pool *p, struct work_item *item) {
    item->lane = WORK_QUICK;
    item->step = true;
    pthread_mutex_lock(&p->mu);
    bool taken = !p->closing;
    if (taken) insert_item(&p->lanes[WORK_QUICK], item);
    pthread_mutex_unlock(&p->mu);
    return taken;
}

void work_pool_stop(work_pool *p) {
    struct work_item *refused = NULL, *next;
    pthread_mutex_lock(&p->mu);
    p->stopping = true;
    for (int i = 0; i < WORK_N_LANES; i++)
        for (struct work_item *it = p->lanes[i].first; it; it = next) {
            next = it->next;
            if (it->step) continue;
            unlink_item(&p->lanes[i], it);
            it->next = refused;
            refused = it;
            p->n_items--;
        }
    for (uint32_t i = 0; i < p->n_workers; i++)
        if (p->workers[i].item && !p->workers[i].item->step) p->config.cancel(p->workers[i].item);
    pthread_mutex_unlock(&p->mu);
    for (; refused; refused = next) {
        next = refused->next;
        p->config.done(refused, true);
    }
}

void work_pool_close(work_pool *p) {
    if (!p) return;
    pthread_mutex_lock(&p->mu);
    p->closing = true;
    for (int i = 0; i < WORK_N_LANES; i++)
        pthread_cond_broadcast(&p->lanes[i].changed);
    pthread_mutex_unlock(&p->mu);
    for (uint32_t i = 0; i < p->n_workers; i++)
        pthread_join(p->workers[i].thread, NULL);
    p->n_workers = 0;
}

void work_pool_free(work_pool *p) {
    if (!p) return;
    for (int i = 0; i < WORK_N_LANES; i++)
        pthread_cond_destroy(&p->lanes[i].changed);
    pthread_mutex_destroy(&p->mu);
    free(p->workers);
    free(p);
}

void work_pool_stats(work_pool *p, struct work_pool_stats *out) {
    pthread_mutex_lock(&p->mu);
    for (int i = 0; i < WORK_N_LANES; i++) {
        out->n_queued[i] = p->lanes[i].n_queued;
        out->n_running[i] = p->lanes[i].n_running;
    }
    pthread_mutex_unlock(&p->mu);
}
