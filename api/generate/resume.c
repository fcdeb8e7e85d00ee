/* resume.c - the list of streams that can be resumed, see resume.h. Owns the streams that are kept.
 * A request whose stream still has its old connection (the network cut it, and this side has not
 * noticed) shuts that connection down and waits: a job that looks again when it is notified. */
#include "api/generate/resume.h"

#include "api/generate/gen.h"
#include "core/base/clock.h"
#include "core/base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct resume {
    struct resume_config config;
    pthread_mutex_t lock;
    struct gen *first, *last; /* all streams; kept ones in the order in which they were kept */
    uint32_t n_kept;
};

int resume_open(const struct resume_config *config, resume **out, err *e) {
    resume *s = mem_new(1, sizeof *s);
    if (!s) return err_no_memory(e);
    s->config = *config;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

static void unlink_gen(resume *s, struct gen *g) {
    struct resumable *k = &g->kept;
    *(k->prev ? &k->prev->kept.next : &s->first) = k->next;
    *(k->next ? &k->next->kept.prev : &s->last) = k->prev;
    k->prev = k->next = NULL;
    if (!k->request) s->n_kept--;
}

static void append_gen(resume *s, struct gen *g) {
    struct resumable *k = &g->kept;
    k->prev = s->last;
    k->next = NULL;
    *(s->last ? &s->last->kept.next : &s->first) = g;
    s->last = g;
    if (!k->request) s->n_kept++;
}

/* It has left the list already. */
static void free_gen(struct gen *g) {
    g->resumes = false;
    free(g->kept.key);
    gen_free(g);
}

void resume_close(resume *s) {
    if (!s) return;
    while (s->first) {
        struct gen *g = s->first;
        unlink_gen(s, g);
        free_gen(g);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Takes one that must go out of the list: expired, or one too many. NULL: none. */
static struct gen *take_old(resume *s, uint64_t now) {
    for (struct gen *g = s->first; g; g = g->kept.next) {
        if (g->kept.request || g->kept.waiter) continue;
        if (g->kept.until_ns > now && s->n_kept <= s->config.max_streams) return NULL;
        unlink_gen(s, g);
        return g;
    }
    return NULL;
}

static void drop_old(resume *s) {
    for (;;) {
        pthread_mutex_lock(&s->lock);
        struct gen *g = take_old(s, clock_now_ns());
        pthread_mutex_unlock(&s->lock);
        if (!g) return;
        free_gen(g);
    }
}

bool resume_add(resume *s, struct gen *g) {
    if (!s->config.timeout_s || !s->config.max_streams) return false;
    const char *key = auth_key(g->request);
    g->kept.key = key ? mem_strdup(key) : NULL;
    if (key && !g->kept.key) return false;
    g->kept.request = g->request;
    g->kept.route = g->request->route;
    drop_old(s);
    pthread_mutex_lock(&s->lock);
    append_gen(s, g);
    pthread_mutex_unlock(&s->lock);
    return true;
}

void resume_keep(resume *s, struct gen *g) {
    gen_detach(g);
    pthread_mutex_lock(&s->lock);
    unlink_gen(s, g);
    g->kept.request = NULL;
    g->kept.until_ns = clock_now_ns() + s->config.timeout_s * UINT64_C(1000000000);
    append_gen(s, g);
    if (g->kept.waiter) watch_notify(&g->kept.waiter->watched);
    pthread_mutex_unlock(&s->lock);
    drop_old(s);
}

void resume_leave(resume *s, struct gen *g) {
    pthread_mutex_lock(&s->lock);
    unlink_gen(s, g);
    if (g->kept.waiter) watch_notify(&g->kept.waiter->watched);
    pthread_mutex_unlock(&s->lock);
    free(g->kept.key);
}

/* ---- a request that wants a stream ---- */

struct taker {
    resume *list;
    struct request *request;
    char id[48];
    uint64_t after;
};

/* The route was checked for what a stream needs (a server that drains takes up none), and clients
 * of another protocol could not read it. */
static bool may_take(const struct gen *g, const struct request *r) {
    const char *key = auth_key(r);
    if (g->kept.route != r->route) return false;
    return g->kept.key ? key && strcmp(g->kept.key, key) == 0 : !key;
}

/* The stream, now of the request. NULL: *lives tells whether it is there, with its old connection.
 */
static struct gen *take(const struct taker *w, bool *lives) {
    resume *s = w->list;
    struct gen *g;
    pthread_mutex_lock(&s->lock);
    for (g = s->first; g; g = g->kept.next)
        if (strcmp(g->id, w->id) == 0 && may_take(g, w->request)) break;
    *lives = g != NULL;
    if (g && (g->kept.waiter && g->kept.waiter != w->request)) {
        *lives = false; /* somebody else came first */
        g = NULL;
    } else if (g && g->kept.request) {
        g->kept.waiter = w->request;
        if (g->kept.request->watched.fd >= 0) shutdown(g->kept.request->watched.fd, SHUT_RDWR);
        g = NULL;
    } else if (g) {
        unlink_gen(s, g);
        g->kept.waiter = NULL;
        g->kept.request = w->request;
        append_gen(s, g);
    }
    pthread_mutex_unlock(&s->lock);
    return g;
}

static void taker_free(void *job) {
    struct taker *w = job;
    pthread_mutex_lock(&w->list->lock);
    for (struct gen *g = w->list->first; g; g = g->kept.next)
        if (g->kept.waiter == w->request) g->kept.waiter = NULL;
    pthread_mutex_unlock(&w->list->lock);
    free(w);
}

static void refuse(struct request *r) {
    reply_error(r, &(struct api_error){404, "invalid_request_error", "stream_not_found", NULL,
                                       "There is no stream with this Last-Event-ID any more: send "
                                       "the request again without the header."});
}

static enum job_status taker_poll(struct request *r, void *job) {
    struct taker *w = job;
    bool lives;
    struct gen *g = take(w, &lives);
    if (!g && lives) return JOB_WAIT;
    uint64_t after = w->after;
    resume *s = w->list;
    taker_free(w);
    r->ops = NULL;
    r->job = NULL;
    if (!g) {
        refuse(r);
        return JOB_REPLY;
    }
    err e = {0};
    if (gen_attach(g, r, after, &e)) {
        resume_keep(s, g);
        if (e.code == ERR_NOT_FOUND)
            refuse(r);
        else
            reply_err(r, &e);
        return JOB_REPLY;
    }
    return r->ops->poll(r, r->job);
}

static const struct job_ops taker_ops = {.poll = taker_poll, .free = taker_free};

/* "ID:NUMBER" */
static bool parse_id(const char *text, struct taker *w) {
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (!n || n >= sizeof w->id || !colon[1] ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    errno = 0;
    w->after = strtoull(colon + 1, NULL, 10);
    if (errno) return false;
    memcpy(w->id, text, n);
    w->id[n] = '\0';
    return true;
}

bool resume_request(struct request *r) {
    const char *text = request_header(r, "Last-Event-ID");
    if (!text || !*text) return false;
    drop_old(r->api->resume);
    struct taker *w = mem_new(1, sizeof *w);
    if (!w) {
        err e;
        err_no_memory(&e);
        reply_err(r, &e);
        return true;
    }
    w->list = r->api->resume;
    w->request = r;
    if (!parse_id(text, w)) {
        free(w);
        refuse(r);
        return true;
    }
    r->ops = &taker_ops;
    r->job = w;
    return true;
}
