/* tracer.c - the queue of finished traces, and the thread that sends them. A batch is sent a second
 * after its first trace came, or when it is full. A batch that fails is tried again, with growing
 * pauses or after the time that the collector asks for, while the queue fills behind it; beyond its
 * bound new traces are dropped. Owns the queue and the thread. */
#include "api/http/trace_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

#define SECOND_NS UINT64_C(1000000000)

enum {
    BATCH_TRACES = 128,   /* of one POST */
    BODY_BYTES = 8 << 20, /* upper bound of its body: a trace has under 40 KB */
    PAUSE_FIRST_MS = 500, /* before the first further try; doubled each time */
    PAUSE_MAX_MS = 30000, /* at most */
    LOG_EVERY_S = 60,     /* between log lines about failures */
    WAIT_MS = 1000,       /* between looks at the time while waiting for a moment */
    IDLE_MS = 50          /* the same, for a flush */
};

/* Traces in the order they came. */
struct trace_list {
    struct trace *first, **end;
    uint32_t n;
};

struct tracer {
    struct trace_origin origin; /* constant */
    pthread_mutex_t mu;         /* guards all below, up to the thread's own */
    pthread_cond_t wake, idle;  /* idle: nothing waits and nothing is sent */
    char *url;                  /* NULL: traces are off */
    uint32_t n_applied;         /* configurations so far */
    double ratio;
    uint32_t max_queue;
    struct trace_list queue;
    uint64_t due_ns;   /* when the first of the queue should be sent */
    bool sending;      /* a batch is with the thread */
    uint64_t flush_ns; /* until when everything should be sent; 0: no thread waits for it */
    bool started, closing;
    struct tracer_stats stats;
    pthread_t thread;
    /* The thread's own. */
    struct trace_post *post;
    uint64_t logged_ns;
    char why[160]; /* of the last log line about a failure; "": the last batch was accepted */
};

/* ---- lists; with mu held ---- */

static void clear_list(struct trace_list *l) {
    *l = (struct trace_list){.end = &l->first};
}

static void append(struct trace_list *l, struct trace *tr) {
    tr->next = NULL;
    *l->end = tr;
    l->end = &tr->next;
    l->n++;
}

static struct trace *take_first(struct trace_list *l) {
    struct trace *tr = l->first;
    l->first = tr->next;
    if (!l->first) l->end = &l->first;
    l->n--;
    return tr;
}

static uint64_t count_spans(const struct trace_list *l) {
    uint64_t n = 0;
    for (const struct trace *tr = l->first; tr; tr = tr->next)
        n += trace_n_spans(tr);
    return n;
}

static void free_list(struct trace_list *l) {
    while (l->n)
        free(take_first(l));
}

static void drop_list(tracer *t, struct trace_list *l, enum trace_drop why) {
    t->stats.dropped[why] += count_spans(l);
    free_list(l);
}

/* ---- the thread ---- */

/* Waits for a moment, or until the thread is woken. With mu held. */
static void wait_until(tracer *t, uint64_t until_ns) {
    const uint64_t look_ns = clock_now_ns() + WAIT_MS * UINT64_C(1000000);
    clock_cond_wait(&t->wake, &t->mu, until_ns < look_ns ? until_ns : look_ns);
}

/* Must the batch be given up? With mu held. */
static bool is_over(const tracer *t) {
    return t->closing || !t->url || (t->flush_ns && clock_now_ns() >= t->flush_ns);
}

static bool stop_transfer(void *arg) {
    tracer *t = arg;
    pthread_mutex_lock(&t->mu);
    bool over = is_over(t);
    pthread_mutex_unlock(&t->mu);
    return over;
}

/* Logs each kind of failure once a minute. */
static void log_result(tracer *t, enum post_result result, const struct post_reply *reply) {
    uint64_t now = clock_now_ns();
    const char *how = result == POST_FAILED ? " yet" : result == POST_ACCEPTED ? " in part" : "";
    if (!*reply->why && *t->why) log_info("traces are sent again");
    if (*reply->why &&
        (strcmp(reply->why, t->why) != 0 || now - t->logged_ns > LOG_EVERY_S * SECOND_NS)) {
        log_warn("traces are not sent%s: %s", how, reply->why);
        t->logged_ns = now;
    }
    memcpy(t->why, reply->why, sizeof t->why);
}

/* Pauses before the next try, at most until the configuration changes. false: the batch must be
 * given up. */
static bool pause_sending(tracer *t, uint64_t pause_ns) {
    uint64_t until_ns = clock_now_ns() + pause_ns;
    pthread_mutex_lock(&t->mu);
    const uint32_t n_applied = t->n_applied;
    while (!is_over(t) && t->n_applied == n_applied && clock_now_ns() < until_ns)
        wait_until(t, until_ns);
    bool over = is_over(t);
    t->stats.retries += !over;
    pthread_mutex_unlock(&t->mu);
    return !over;
}

/* Twice as long each time, of which up to a half is random so that daemons do not keep step. */
static uint64_t pause_of(uint32_t n_tries) {
    uint64_t ms = (uint64_t)PAUSE_FIRST_MS << (n_tries < 7 ? n_tries : 7);
    uint32_t random = 0;
    if (ms > PAUSE_MAX_MS) ms = PAUSE_MAX_MS;
    if (getentropy(&random, sizeof random)) random = 0;
    return (ms - random % (ms / 2)) * UINT64_C(1000000);
}

/* Sends the batch, until it is accepted, refused or given up. */
static enum post_result send_body(tracer *t, const str *body, struct post_reply *reply) {
    for (uint32_t n_tries = 0;; n_tries++) {
        pthread_mutex_lock(&t->mu);
        char *url = is_over(t) ? NULL : mem_strdup(t->url);
        pthread_mutex_unlock(&t->mu);
        if (!url) return POST_STOPPED;
        enum post_result result = trace_post_send(t->post, url, body, stop_transfer, t, reply);
        free(url);
        if (result == POST_STOPPED) return result;
        log_result(t, result, reply);
        if (result != POST_FAILED) return result;
        if (!pause_sending(t, reply->retry_ns ? reply->retry_ns : pause_of(n_tries)))
            return POST_STOPPED;
    }
}

static int64_t wall_offset(void) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * (int64_t)SECOND_NS + wall.tv_nsec - (int64_t)clock_now_ns();
}

static void send_batch(tracer *t, struct trace_list *batch) {
    struct post_reply reply = {0};
    str body;
    str_init(&body, BODY_BYTES);
    trace_add_request(&body, &t->origin, batch->first, wall_offset());
    bool made = !body.failed;
    enum post_result result = made ? send_body(t, &body, &reply) : POST_REFUSED;
    str_fini(&body);
    uint64_t n = count_spans(batch);
    if (reply.n_rejected > n) reply.n_rejected = n;
    pthread_mutex_lock(&t->mu);
    if (result == POST_ACCEPTED) {
        t->stats.sent += n - reply.n_rejected;
        t->stats.dropped[TRACE_REFUSED] += reply.n_rejected;
    } else {
        t->stats.dropped[!made                    ? TRACE_NO_MEMORY
                         : result == POST_STOPPED ? TRACE_UNSENT
                                                  : TRACE_REFUSED] += n;
    }
    pthread_mutex_unlock(&t->mu);
    free_list(batch);
}

/* With mu held: is it time for a batch? */
static bool is_due(const tracer *t) {
    return t->queue.n && (t->flush_ns || t->queue.n >= BATCH_TRACES || clock_now_ns() >= t->due_ns);
}

static void *run_tracer(void *arg) {
    tracer *t = arg;
    thread_enter_background();
    pthread_mutex_lock(&t->mu);
    while (!t->closing) {
        if (!is_due(t)) {
            if (!t->queue.n) pthread_cond_broadcast(&t->idle);
            if (t->queue.n)
                wait_until(t, t->due_ns);
            else
                pthread_cond_wait(&t->wake, &t->mu);
            continue;
        }
        struct trace_list batch;
        clear_list(&batch);
        while (t->queue.n && batch.n < BATCH_TRACES)
            append(&batch, take_first(&t->queue));
        t->sending = true;
        pthread_mutex_unlock(&t->mu);
        send_batch(t, &batch);
        pthread_mutex_lock(&t->mu);
        t->sending = false;
    }
    pthread_mutex_unlock(&t->mu);
    return NULL;
}

/* ---- opening ---- */

/* A random UUID (RFC 9562, version 4). */
static int set_origin(struct trace_origin *o, const char *version, err *e) {
    uint8_t bytes[16];
    char hex[33];
    if (getentropy(bytes, sizeof bytes))
        return err_set(e, ERR_IO, "the system provides no random numbers");
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
    trace_hex(bytes, sizeof bytes, hex);
    snprintf(o->instance, sizeof o->instance, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
             hex + 16, hex + 20);
    snprintf(o->version, sizeof o->version, "%s", version);
    return 0;
}

int tracer_open(const struct tracer_config *c, tracer **out, err *e) {
    tracer *t = mem_new(1, sizeof *t);
    *out = NULL;
    if (!t) return err_no_memory(e);
    pthread_mutex_init(&t->mu, NULL);
    clock_cond_init(&t->wake);
    clock_cond_init(&t->idle);
    clear_list(&t->queue);
    int rc = set_origin(&t->origin, c->version, e);
    if (!rc) rc = tracer_apply(t, c, e);
    if (rc) {
        tracer_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

static int start_thread(tracer *t, err *e) {
    if (t->started) return 0;
    int rc = t->post ? 0 : trace_post_open(&t->post, e);
    if (!rc) rc = thread_start(&t->thread, run_tracer, t, "sends traces", e);
    t->started = !rc;
    return rc;
}

int tracer_apply(tracer *t, const struct tracer_config *c, err *e) {
    char *url = NULL, *old;
    if (c->endpoint && *c->endpoint) {
        int rc = trace_post_url(c->endpoint, &url, e);
        if (!rc) rc = start_thread(t, e);
        if (rc) {
            free(url);
            return rc;
        }
    }
    pthread_mutex_lock(&t->mu);
    old = t->url;
    t->url = url;
    t->n_applied++;
    t->ratio = c->ratio;
    t->max_queue = c->max_queue;
    if (!url) drop_list(t, &t->queue, TRACE_UNSENT);
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mu);
    free(old);
    return 0;
}

void tracer_close(tracer *t) {
    if (!t) return;
    pthread_mutex_lock(&t->mu);
    t->closing = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mu);
    if (t->started) pthread_join(t->thread, NULL);
    drop_list(t, &t->queue, TRACE_UNSENT);
    uint64_t lost = 0;
    for (int i = 0; i < TRACE_N_DROPS; i++)
        lost += t->stats.dropped[i];
    if (lost) log_warn("%llu spans of traces were dropped", (unsigned long long)lost);
    trace_post_close(t->post);
    pthread_mutex_destroy(&t->mu);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->idle);
    free(t->url);
    free(t);
}

/* ---- requests ---- */

bool tracer_ratio(tracer *t, double *ratio) {
    pthread_mutex_lock(&t->mu);
    bool on = t->url != NULL;
    *ratio = t->ratio;
    pthread_mutex_unlock(&t->mu);
    return on;
}

void tracer_put(tracer *t, struct trace *tr) {
    pthread_mutex_lock(&t->mu);
    enum trace_drop why = t->url ? TRACE_QUEUE_FULL : TRACE_UNSENT;
    bool room = t->url && t->queue.n < t->max_queue;
    if (room) {
        if (!t->queue.n) t->due_ns = clock_now_ns() + SECOND_NS;
        append(&t->queue, tr);
        if (t->queue.n == 1 || t->queue.n == BATCH_TRACES) pthread_cond_signal(&t->wake);
    } else {
        t->stats.dropped[why] += trace_n_spans(tr);
    }
    pthread_mutex_unlock(&t->mu);
    if (!room) free(tr);
}

void tracer_lose(tracer *t) {
    pthread_mutex_lock(&t->mu);
    t->stats.dropped[TRACE_NO_MEMORY]++;
    pthread_mutex_unlock(&t->mu);
}

void tracer_flush(tracer *t, uint64_t deadline_ns) {
    pthread_mutex_lock(&t->mu);
    t->flush_ns = deadline_ns;
    pthread_cond_signal(&t->wake);
    while (t->started && (t->queue.n || t->sending) && clock_now_ns() < deadline_ns)
        clock_cond_wait(&t->idle, &t->mu, clock_now_ns() + IDLE_MS * UINT64_C(1000000));
    pthread_mutex_unlock(&t->mu);
}

void tracer_stats_get(tracer *t, struct tracer_stats *out) {
    pthread_mutex_lock(&t->mu);
    *out = t->stats;
    out->queued = t->queue.n;
    pthread_mutex_unlock(&t->mu);
}
