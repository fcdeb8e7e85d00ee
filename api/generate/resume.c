/* resume.c - the list of streams that can be resumed, see resume.h. Owns the streams that are kept.
 * If the wanted stream still has its old connection (the network cut it and this side has not
 * noticed), the request shuts that connection down and waits: a job that looks again when it is
 * notified. Of several requests the latest gets the stream: it shuts down that of one that waits,
 * too, whose client then tries again if it is still there. */
#include "api/generate/resume.h"

#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/request.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct resume {
    pthread_mutex_t lock; /* guards all */
    struct resume_config config;
    struct resumable *first,
        *last; /* all streams; kept ones in the order in which they were kept */
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

void resume_set(resume *s, const struct resume_config *config) {
    pthread_mutex_lock(&s->lock);
    s->config = *config;
    pthread_mutex_unlock(&s->lock);
}

static void unlink_stream(resume *s, struct resumable *k) {
    LINKED_REMOVE(s, k);
    if (!k->request) s->n_kept--;
}

static void append_stream(resume *s, struct resumable *k) {
    LINKED_APPEND(s, k);
    if (!k->request) s->n_kept++;
}

/* The stream has left the list already. */
static void free_stream(struct resumable *k) {
    free(k->key);
    k->ops->free(k);
}

void resume_close(resume *s) {
    if (!s) return;
    while (s->first) {
        struct resumable *k = s->first;
        unlink_stream(s, k);
        free_stream(k);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Unlinks a stream that must go: expired, or one too many. NULL: none. */
static struct resumable *take_old(resume *s, uint64_t now) {
    for (struct resumable *k = s->first; k; k = k->next) {
        if (k->request || k->waiter) continue;
        if (k->until_ns > now && s->n_kept <= s->config.max_streams) return NULL;
        unlink_stream(s, k);
        return k;
    }
    return NULL;
}

void resume_drop_old(resume *s) {
    for (;;) {
        pthread_mutex_lock(&s->lock);
        struct resumable *k = take_old(s, clock_now_ns());
        pthread_mutex_unlock(&s->lock);
        if (!k) return;
        free_stream(k);
    }
}

void resume_drop_model(resume *s, const struct api_model *m) {
    for (;;) {
        pthread_mutex_lock(&s->lock);
        struct resumable *k = s->first;
        while (k && (k->model != m || k->request || k->waiter))
            k = k->next;
        if (k) unlink_stream(s, k);
        pthread_mutex_unlock(&s->lock);
        if (!k) return;
        free_stream(k);
    }
}

bool resume_add(resume *s, struct resumable *k, struct request *r) {
    pthread_mutex_lock(&s->lock);
    const bool keeps = s->config.timeout_s && s->config.max_streams;
    pthread_mutex_unlock(&s->lock);
    if (!keeps) return false;
    const char *key = auth_key(r);
    k->key = key ? mem_strdup(key) : NULL;
    if (key && !k->key) return false;
    k->request = r;
    k->route = r->route;
    resume_drop_old(s);
    pthread_mutex_lock(&s->lock);
    append_stream(s, k);
    pthread_mutex_unlock(&s->lock);
    return true;
}

void resume_keep(resume *s, struct resumable *k) {
    k->ops->detach(k);
    pthread_mutex_lock(&s->lock);
    unlink_stream(s, k);
    k->request = NULL;
    k->until_ns = clock_now_ns() + s->config.timeout_s * UINT64_C(1000000000);
    append_stream(s, k);
    if (k->waiter) watch_notify(&k->waiter->watched);
    pthread_mutex_unlock(&s->lock);
    resume_drop_old(s);
}

void resume_leave(resume *s, struct resumable *k) {
    pthread_mutex_lock(&s->lock);
    unlink_stream(s, k);
    if (k->waiter) watch_notify(&k->waiter->watched);
    pthread_mutex_unlock(&s->lock);
    free(k->key);
}

/* ---- a request that wants a stream ---- */

struct taker {
    resume *list;
    struct request *request;
    char id[48];
    uint64_t after;
    bool waits; /* has become the stream's waiter; a later request may replace it */
};

/* Only at the same route: it was checked for what the stream needs (a draining server resumes
 * none), and clients of another protocol could not read the stream. */
static bool may_take(const struct resumable *k, const struct request *r) {
    const char *key = auth_key(r);
    if (k->route != r->route) return false;
    return k->key ? key && strcmp(k->key, key) == 0 : !key;
}

static void shut_down(const struct request *r) {
    if (r->watched.fd >= 0) shutdown(r->watched.fd, SHUT_RDWR);
}

/* The stream, now attached to the request. NULL: *lives tells whether it exists and still has its
 * old connection. */
static struct resumable *take_stream(struct taker *w, bool *lives) {
    resume *s = w->list;
    struct resumable *k;
    pthread_mutex_lock(&s->lock);
    for (k = s->first; k; k = k->next)
        if (strcmp(k->id, w->id) == 0 && may_take(k, w->request)) break;
    if (k && w->waits && k->waiter != w->request) k = NULL; /* a later request came */
    *lives = k != NULL;
    if (k && !w->waits && k->waiter) {
        shut_down(k->waiter);
        watch_notify(&k->waiter->watched);
    }
    if (k && k->request) {
        if (!w->waits)
            log_info("request %s takes over the stream of request %s, whose connection is closed",
                     w->request->id, k->request->id);
        k->waiter = w->request;
        w->waits = true;
        shut_down(k->request);
        k = NULL;
    } else if (k) {
        unlink_stream(s, k);
        k->waiter = NULL;
        k->request = w->request;
        append_stream(s, k);
    }
    pthread_mutex_unlock(&s->lock);
    return k;
}

static void taker_free(void *job) {
    struct taker *w = job;
    pthread_mutex_lock(&w->list->lock);
    for (struct resumable *k = w->list->first; k; k = k->next)
        if (k->waiter == w->request) k->waiter = NULL;
    pthread_mutex_unlock(&w->list->lock);
    free(w);
}

static void reply_not_found(struct request *r) {
    reply_error(r,
                &(struct api_error){404, "invalid_request_error", "stream_not_found", NULL,
                                    "The stream of this Last-Event-ID is not kept any more: send "
                                    "the request again without the header."});
}

static enum job_status taker_poll(struct request *r, void *job) {
    struct taker *w = job;
    bool lives;
    struct resumable *k = take_stream(w, &lives);
    if (!k && lives) return JOB_WAIT;
    uint64_t after = w->after;
    resume *s = w->list;
    taker_free(w);
    r->ops = NULL;
    r->job = NULL;
    if (!k) {
        reply_not_found(r);
        return JOB_REPLY;
    }
    err e = {0};
    if (k->ops->attach(k, r, after, &e)) {
        resume_keep(s, k);
        if (e.code == ERR_NOT_FOUND)
            reply_not_found(r);
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

bool resume_request(resume *s, struct request *r) {
    const char *text = request_header(r, "Last-Event-ID");
    if (!text || !*text) return false;
    resume_drop_old(s);
    struct taker *w = mem_new(1, sizeof *w);
    if (!w) {
        err e;
        err_no_memory(&e);
        reply_err(r, &e);
        return true;
    }
    w->list = s;
    w->request = r;
    if (!parse_id(text, w)) {
        free(w);
        reply_not_found(r);
        return true;
    }
    r->ops = &taker_ops;
    r->job = w;
    return true;
}
