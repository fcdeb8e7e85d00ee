/* access.c - see access.h. The descriptor is the thread's: no lock is held while it writes. */
#include "api/http/access.h"

#include "api/http/request.h"
#include "api/http/route.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "core/text/log_line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = 1024,
    BATCH = 32,
    FILE_MODE = 0640,
    TAKE_WAIT_S = 1,
    GATHER_NS = 2000000,
    GATHER_CAPACITY = 1024
};

struct access_record {
    int64_t time_ms; /* clock_wall_ms, at the end */
    const struct route *route;
    const char *method; /* static */
    char key[KEY_PREFIX_BYTES], model[97], id[65];
    struct address client;
    unsigned status;
    bool cut, local;
    uint64_t prompt_tokens, cached_tokens, completion_tokens, bytes_received, bytes_sent;
    uint64_t queue_ns, first_token_ns, total_ns;
};

/* ---- targets ---- */

int access_open(const char *where, bool json, struct access_target *out, err *e) {
    struct stat st;
    *out = (struct access_target){.fd = -1, .json = json};
    if (!where || !*where) return 0;
    bool is_stderr = strcmp(where, "stderr") == 0;
    /* A pipe without a reader would keep open() waiting. */
    out->fd = is_stderr
                  ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)
                  : open(where, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, FILE_MODE);
    if (out->fd < 0)
        return err_set_param(e, ERR_IO, "access_log", "access_log %s: %s", where, strerror(errno));
    if (is_stderr || (!fstat(out->fd, &st) && S_ISREG(st.st_mode))) return 0;
    access_close(out);
    return err_set_param(e, ERR_INVALID, "access_log", "access_log %s is not a regular file",
                         where);
}

void access_close(struct access_target *t) {
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
}

/* ---- the thread ---- */

static size_t format_record(const struct access_record *r, bool json, char line[LINE_BYTES]) {
    char when[LOG_TIME_BYTES], client[ADDRESS_TEXT_BYTES];
    struct log_line l;
    log_line_begin(&l, line, LINE_BYTES, json);
    log_line_text(&l, "time", log_line_time(r->time_ms, when));
    log_line_text(&l, "method", r->method);
    log_line_text(&l, "path", r->route ? route_name(r->route) : "other");
    log_line_number(&l, "status", r->status);
    log_line_flag(&l, "cut_off", r->cut);
    log_line_text(&l, "request", r->id);
    log_line_text(&l, "client", r->local ? "batch" : address_text(&r->client, client));
    log_line_text(&l, "key", r->key);
    log_line_text(&l, "model", r->model);
    log_line_number(&l, "prompt_tokens", (double)r->prompt_tokens);
    log_line_number(&l, "cached_tokens", (double)r->cached_tokens);
    log_line_number(&l, "completion_tokens", (double)r->completion_tokens);
    if (r->queue_ns) log_line_number(&l, "queue_ms", (double)r->queue_ns / 1e6);
    if (r->first_token_ns) log_line_number(&l, "first_token_ms", (double)r->first_token_ns / 1e6);
    log_line_number(&l, "total_ms", (double)r->total_ns / 1e6);
    log_line_number(&l, "bytes_received", (double)r->bytes_received);
    log_line_number(&l, "bytes_sent", (double)r->bytes_sent);
    return log_line_end(&l);
}

static bool write_bytes(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

struct writer {
    struct access_target to;
    bool fails; /* the last batch was not written */
    struct access_record batch[BATCH];
    char lines[BATCH * LINE_BYTES];
};

static void write_batch(struct access *a, struct writer *w, uint32_t n) {
    size_t used = 0;
    for (uint32_t i = 0; i < n; i++)
        used += format_record(&w->batch[i], w->to.json, w->lines + used);
    /* A line that was begun before the disk was full ends here. */
    bool ok =
        (!w->fails || write_bytes(w->to.fd, "\n", 1)) && write_bytes(w->to.fd, w->lines, used);
    if (!ok && !w->fails) log_warn("the access log cannot be written: %s", strerror(errno));
    w->fails = !ok;
    atomic_fetch_add(ok ? &a->n_written : &a->n_not_written, n);
}

static void take_target(struct access *a, struct writer *w) {
    access_close(&w->to);
    w->to = a->next;
    w->fails = false;
    a->next.fd = -1;
    a->has_next = false;
    pthread_cond_broadcast(&a->taken);
}

/* A wake-up and a write for each line would cost as much as a small request: a line waits for
 * others for a moment, unless the queue could be full by then. With the lock, which is left
 * meanwhile. */
static void gather(struct access *a) {
    const struct timespec moment = {.tv_nsec = GATHER_NS};
    if (a->n >= BATCH || a->capacity < GATHER_CAPACITY || a->has_next || a->stops) return;
    pthread_mutex_unlock(&a->mu);
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&a->mu);
}

static void *thread_main(void *arg) {
    struct access *a = arg;
    struct writer *w = mem_new(1, sizeof *w);
    bool stops = w == NULL;
    if (w) w->to.fd = -1;
    while (!stops) {
        uint32_t n = 0;
        pthread_mutex_lock(&a->mu);
        while (!a->n && !a->has_next && !a->stops)
            pthread_cond_wait(&a->more, &a->mu);
        gather(a);
        /* What waits goes to the old file if there is no new one. */
        if (a->has_next && (a->next.fd >= 0 || !a->n)) take_target(a, w);
        for (; n < BATCH && a->n; n++, a->n--) {
            w->batch[n] = a->queue[a->first];
            a->first = (a->first + 1) % a->capacity;
        }
        stops = a->stops && !a->n;
        pthread_mutex_unlock(&a->mu);
        if (n) write_batch(a, w, n);
    }
    if (w) access_close(&w->to);
    free(w);
    return NULL;
}

/* ---- for the server ---- */

void access_init(struct access *a, uint32_t capacity) {
    a->capacity = capacity;
    a->next.fd = -1;
    pthread_mutex_init(&a->mu, NULL);
    pthread_cond_init(&a->more, NULL);
    clock_cond_init(&a->taken);
}

int access_prepare(struct access *a, const struct access_target *t, err *e) {
    if (t->fd < 0 || a->running) return 0;
    if (!a->queue) a->queue = mem_new(a->capacity, sizeof *a->queue);
    if (!a->queue) return err_no_memory(e);
    int rc = thread_start(&a->thread, thread_main, a, "writes the access log", e);
    a->running = !rc;
    return rc;
}

void access_set(struct access *a, const struct access_target *t) {
    atomic_store(&a->on, t->fd >= 0);
    if (!a->running) return;
    const uint64_t end_ns = clock_now_ns() + TAKE_WAIT_S * UINT64_C(1000000000);
    pthread_mutex_lock(&a->mu);
    access_close(&a->next);
    a->next = *t;
    a->has_next = true;
    pthread_cond_signal(&a->more);
    while (a->has_next && clock_now_ns() < end_ns)
        clock_cond_wait(&a->taken, &a->mu, end_ns);
    pthread_mutex_unlock(&a->mu);
}

int access_apply(struct access *a, const char *where, bool json, err *e) {
    struct access_target t;
    int rc = access_open(where, json, &t, e);
    if (!rc) rc = access_prepare(a, &t, e);
    if (rc)
        access_close(&t);
    else
        access_set(a, &t);
    return rc;
}

static uint64_t since(uint64_t from_ns, uint64_t to_ns) {
    return from_ns && to_ns > from_ns ? to_ns - from_ns : 0;
}

/* The line in the daemon's log. */
static void log_request(const struct request *r, unsigned status, bool cut, bool has_own) {
    char path[512], client[ADDRESS_TEXT_BYTES];
    const char *method = request_method(r);
    /* Supervisors and the page ask every second or more often. */
    bool quiet = (r->route && (r->route->flags & ROUTE_HEALTH) && status < 400) || has_own;
    double ms = (double)(clock_now_ns() - r->start_ns) / 1e6;
    log_field(path, sizeof path, r->path);
    const struct log_value values[] = {
        {.name = "method", .text = method, .said = true},
        {.name = "path", .text = path, .said = true},
        {.name = "status", .number = status, .said = true},
        {.name = "total_ms", .number = ms, .said = true},
        {.name = "request", .text = r->id, .said = true},
        {.name = "prompt_tokens", .number = (double)r->prompt_tokens},
        {.name = "completion_tokens", .number = (double)r->completion_tokens},
        {.name = "key", .text = r->key.name, .said = !*r->key.name},
        {.name = "client", .text = r->local ? "batch" : address_text(request_client(r), client)}};
    log_write_values(quiet ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, values,
                     sizeof values / sizeof *values, "%s %s %u%s %.1f ms %s", method, path, status,
                     cut ? " (cut off)" : "", ms, r->id);
}

void access_add(struct access *a, const struct request *r, unsigned status, bool cut) {
    bool on = atomic_load(&a->on);
    log_request(r, status, cut, on);
    if (!on) return;
    const struct request_times *t = &r->times;
    struct access_record one = {.time_ms = clock_wall_ms(),
                                .route = r->route,
                                .method = request_method(r),
                                .client = *request_client(r),
                                .status = status,
                                .cut = cut,
                                .local = r->local != NULL,
                                .prompt_tokens = r->prompt_tokens,
                                .cached_tokens = r->cached_tokens,
                                .completion_tokens = r->completion_tokens,
                                .bytes_received = r->body_bytes,
                                .bytes_sent = r->sent_bytes,
                                .queue_ns = since(t->submit_ns, t->admit_ns),
                                .first_token_ns = since(r->start_ns, t->first_token_ns),
                                .total_ns = since(r->start_ns, clock_now_ns())};
    memcpy(one.key, r->key.name, sizeof one.key);
    memcpy(one.model, r->model_id, sizeof one.model);
    memcpy(one.id, r->id, sizeof one.id);
    pthread_mutex_lock(&a->mu);
    bool fits = a->queue && a->n < a->capacity;
    if (fits) a->queue[(a->first + a->n++) % a->capacity] = one;
    if (fits && a->n == 1) pthread_cond_signal(&a->more); /* it may wait for the first */
    pthread_mutex_unlock(&a->mu);
    if (!fits) atomic_fetch_add(&a->n_queue_full, 1);
}

void access_fini(struct access *a) {
    if (!a->capacity) return;
    if (a->running) {
        pthread_mutex_lock(&a->mu);
        a->stops = true;
        pthread_cond_signal(&a->more);
        pthread_mutex_unlock(&a->mu);
        pthread_join(a->thread, NULL);
    }
    access_close(&a->next);
    free(a->queue);
    pthread_cond_destroy(&a->more);
    pthread_cond_destroy(&a->taken);
    pthread_mutex_destroy(&a->mu);
    a->capacity = 0;
}
