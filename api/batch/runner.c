/* runner.c - the thread that runs batches. It owns the requests that it makes (local.h) and the
 * batches that it has at hand: the oldest of each owner, up to MOST_ACTIVE. Their lines take turns.
 * What it knows is in the store before anybody is told, so that it can be killed at any moment.
 *
 * An answer 429 or 503 is no result: the line is tried again, when the answer says so. */
#include "api/batch/runner.h"

#include "api/batch/batch_int.h"
#include "api/http/id.h"
#include "api/http/local.h"
#include "api/http/request.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_ACTIVE = 16,
    TICK_MS = 1000,
    RETRY_MS = 1000,
    RETRY_MOST_MS = 30000,
    COMPLAIN_MS = 60000
};
#define MS_NS UINT64_C(1000000)

/* A batch at hand. */
struct active {
    struct batches_row row; /* row.n 0: a free place */
    int fd;                 /* of its input; -1: not open */
    struct batch_check check;
    bool checking;
    uint64_t cursor; /* the last line that was begun */
    bool no_more;    /* no line is behind it */
    uint32_t n_running;
    enum batches_status end; /* how it will end; BATCH_VALIDATING: it goes on */
    uint64_t later_ns;       /* nothing is done before: the store failed */
};

/* A place for a request. */
struct slot {
    batch_runner *runner;
    struct active *batch;     /* NULL: free */
    struct request *request;  /* NULL: it waits for retry_ns */
    struct batches_line line; /* custom_id owned */
    char owner[BATCHES_OWNER_BYTES];
    bool woken; /* guarded by runner.mu */
    bool ends;  /* its batch does not want it any more */
    uint64_t retry_ns;
    str result; /* not stored yet */
    struct batches_result stored;
};

struct batch_runner {
    struct api *api;
    batches *store;
    pthread_t thread;
    atomic_bool stop;
    pthread_mutex_t mu; /* guards kicked and the slots' woken */
    pthread_cond_t cond;
    bool kicked;
    bool has_lease;
    err complaint; /* the last one */
    uint64_t complained_ns;
    struct active batches[MOST_ACTIVE];
    size_t turn;        /* of batches, for the next line */
    struct slot *slots; /* (n_slots) of which live.batch_lines are filled */
    uint32_t n_slots;
};

/* What is tried again every second is logged once a minute. */
static void complain(batch_runner *r, const err *e) {
    const uint64_t now = clock_now_ns();
    if (r->complained_ns && now - r->complained_ns < COMPLAIN_MS * MS_NS &&
        strcmp(e->msg, r->complaint.msg) == 0)
        return;
    log_warn("batches: %s", e->msg);
    r->complaint = *e;
    r->complained_ns = now;
}

static void wake_slot(void *arg) {
    struct slot *s = arg;
    batch_runner *r = s->runner;
    pthread_mutex_lock(&r->mu);
    s->woken = true;
    pthread_cond_signal(&r->cond);
    pthread_mutex_unlock(&r->mu);
}

void batch_runner_wake(batch_runner *r) {
    if (!r) return;
    pthread_mutex_lock(&r->mu);
    r->kicked = true;
    pthread_cond_signal(&r->cond);
    pthread_mutex_unlock(&r->mu);
}

void batch_runner_stop(batch_runner *r) {
    if (!r) return;
    atomic_store(&r->stop, true);
    batch_runner_wake(r);
}

/* ---- lines ---- */

static bool is_owner(void *arg, const char *key_text) {
    const struct slot *s = arg;
    char owner[BATCHES_OWNER_BYTES];
    batches_owner(key_text, owner);
    return strcmp(owner, s->owner) == 0;
}

static void free_slot(struct slot *s) {
    s->batch->n_running--;
    s->batch = NULL;
    s->ends = false;
    s->retry_ns = 0;
    free((char *)s->line.custom_id);
    s->line = (struct batches_line){0};
    str_fini(&s->result);
}

/* The request's body, from the input file. */
static int read_body(const struct slot *s, str *body, err *e) {
    struct batch_line l;
    struct batch_fault fault;
    uint64_t at = s->line.at;
    bool end;
    str line;
    str_init(&line, (size_t)s->line.n_bytes + 1);
    int rc = batch_read_line(s->batch->fd, &at, &line, &end, e);
    if (!rc && !batch_line_read(str_cstr(&line), line.len, s->batch->row.endpoint, &l, &fault))
        rc = err_set(e, ERR_CHANGED, "line %llu of the input of %s has changed: %s",
                     (unsigned long long)s->line.line, s->batch->row.id, fault.message);
    if (!rc) str_add_n(body, l.body, l.n_body);
    if (!rc && body->failed) rc = err_no_memory(e);
    str_fini(&line);
    return rc;
}

static int send_line(batch_runner *r, struct slot *s, err *e) {
    char id[40];
    str body;
    str_init(&body, (size_t)r->api->http.config.max_body_bytes + BATCH_LINE_MORE);
    int rc = read_body(s, &body, e);
    id_new(id, "req_");
    if (!rc) {
        s->request =
            local_begin(&r->api->http, &(struct local_config){.method = "POST",
                                                              .path = s->batch->row.endpoint,
                                                              .body = &body,
                                                              .id = id,
                                                              .key_id = s->batch->row.key,
                                                              .is_owner = is_owner,
                                                              .wake = wake_slot,
                                                              .arg = s});
        if (!s->request) rc = err_no_memory(e);
    }
    str_fini(&body);
    wake_slot(s); /* the answer may be there already */
    return rc;
}

static void retry_later(struct slot *s, uint64_t ms) {
    if (ms > RETRY_MOST_MS) ms = RETRY_MOST_MS;
    s->retry_ns = clock_now_ns() + ms * MS_NS;
}

/* The batch ends as failed, for this reason. */
static void fail_batch(struct active *a, const char *code, const char *param, const char *why) {
    const struct batch_fault fault = {code, why, param};
    struct batch_check c = {0};
    str_init(&c.errors, 4096);
    batch_add_error(&c, &fault, 0);
    free(a->row.errors);
    a->row.errors = str_take(&c.errors);
    a->end = BATCH_FAILED;
}

/* Starts the line of s, or a further attempt. */
static void begin_line(batch_runner *r, struct slot *s) {
    err e = {0};
    s->retry_ns = 0;
    int rc = send_line(r, s, &e);
    if (!rc) return;
    if (rc == ERR_CHANGED) {
        fail_batch(s->batch, "file_changed", "input_file_id", e.msg);
        free_slot(s);
        return;
    }
    complain(r, &e);
    retry_later(s, RETRY_MS);
}

/* Stores the result of s and frees it, or keeps both for later. */
static void store_result(batch_runner *r, struct slot *s) {
    err e = {0};
    int rc = batches_line_end(r->store, s->batch->row.n, &s->stored, &e);
    if (rc == ERR_FULL && s->batch->end == BATCH_VALIDATING) {
        fail_batch(s->batch, "storage_limit_exceeded", NULL, e.msg);
    } else if (rc && rc != ERR_FULL) {
        complain(r, &e);
        retry_later(s, RETRY_MS);
        return;
    }
    free_slot(s);
}

/* Takes the answer of a request that has one. */
static void take_answer(struct slot *s) {
    const struct request *q = s->request;
    unsigned status = q->reply.status;
    char id[BATCHES_ID_BYTES];
    size_t n;
    const char *body = local_reply(q, &n);
    id_new(id, "batch_req_");
    str_init(&s->result, REPLY_MAX_BYTES + BATCH_LINE_MORE);
    batch_add_answer(id, s->line.custom_id, status, q->id, body, n, &s->result);
    s->stored = (struct batches_result){.line = s->line.line,
                                        .failed = status != 200,
                                        .text = str_cstr(&s->result),
                                        .input_tokens = q->prompt_tokens,
                                        .cached_tokens = q->cached_tokens,
                                        .output_tokens = q->completion_tokens};
}

static void advance_slot(batch_runner *r, struct slot *s) {
    struct request *q = s->request;
    if (s->ends) {
        if (local_end(q)) {
            s->request = NULL;
            free_slot(s);
        }
        return;
    }
    if (!local_advance(q)) return;
    unsigned status = q->reply.status;
    bool again = !status || status == 429 || (status == 503 && !q->never_fits);
    if (!again) take_answer(s);
    uint64_t wait_ms = q->retry_after_ms ? q->retry_after_ms : RETRY_MS;
    if (!local_end(q)) return; /* cannot be: it was answered */
    s->request = NULL;
    if (!again && !s->result.failed) {
        store_result(r, s);
    } else {
        str_fini(&s->result);
        str_init(&s->result, 0);
        retry_later(s, wait_ms);
    }
}

static bool take_woken(batch_runner *r, struct slot *s) {
    pthread_mutex_lock(&r->mu);
    bool woken = s->woken;
    s->woken = false;
    pthread_mutex_unlock(&r->mu);
    return woken;
}

/* Goes on with what runs. */
static void advance_slots(batch_runner *r) {
    uint64_t now = clock_now_ns();
    for (uint32_t i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slots[i];
        if (!s->batch) continue;
        if (s->request) {
            if (take_woken(r, s)) advance_slot(r, s);
        } else if (s->result.len && now >= s->retry_ns) {
            store_result(r, s);
        } else if (s->ends) {
            free_slot(s);
        } else if (now >= s->retry_ns) {
            begin_line(r, s);
        }
    }
}

/* The next batch in turn that has a line to do. */
static struct active *next_batch(batch_runner *r, struct batches_line *line) {
    for (size_t i = 0; i < MOST_ACTIVE; i++) {
        struct active *a = &r->batches[r->turn++ % MOST_ACTIVE];
        err e = {0};
        if (!a->row.n || a->row.status != BATCH_IN_PROGRESS || a->end != BATCH_VALIDATING ||
            a->no_more || a->fd < 0 || clock_now_ns() < a->later_ns)
            continue;
        int rc = batches_line_next(r->store, a->row.n, a->cursor, line, &e);
        if (!rc) return a;
        a->no_more = rc == ERR_NOT_FOUND;
        if (rc == ERR_NOT_FOUND) continue;
        complain(r, &e);
        a->later_ns = clock_now_ns() + RETRY_MS * MS_NS;
    }
    return NULL;
}

static void fill_slots(batch_runner *r) {
    const uint32_t most = atomic_load(&r->api->live.batch_lines);
    for (uint32_t i = 0; i < r->n_slots && i < most; i++) {
        struct slot *s = &r->slots[i];
        struct batches_line line;
        if (s->batch) continue;
        struct active *a = next_batch(r, &line);
        if (!a) return;
        s->batch = a;
        s->line = line;
        memcpy(s->owner, a->row.owner, sizeof s->owner);
        str_init(&s->result, 0);
        a->cursor = line.line;
        a->n_running++;
        begin_line(r, s);
    }
}

/* ---- batches ---- */

static void drop_batch(struct active *a) {
    if (a->fd >= 0) close(a->fd);
    str_fini(&a->check.errors);
    batches_row_fini(&a->row);
    *a = (struct active){.fd = -1};
}

/* The lines of a that run are not wanted any more. */
static void end_lines(batch_runner *r, const struct active *a) {
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->slots[i].batch == a && !r->slots[i].ends) {
            r->slots[i].ends = true;
            wake_slot(&r->slots[i]);
        }
}

/* Its end is in the store, and the place is free. */
static int finish_batch(batch_runner *r, struct active *a, err *e) {
    int64_t now_s = clock_wall_s();
    struct batches_row *row = &a->row;
    if (a->end == BATCH_COMPLETED && row->status != BATCH_FINALIZING) {
        row->status = BATCH_FINALIZING;
        row->finalizing_s = now_s;
        int rc = batches_finish(r->store, row, NULL, NULL, now_s, e);
        if (rc) return rc;
    }
    if (!row->in_progress_s) { /* its lines were not all known yet */
        int rc = batches_lines_clear(r->store, row->n, e);
        if (rc) return rc;
    }
    row->status = a->end;
    *(a->end == BATCH_COMPLETED ? &row->completed_s
      : a->end == BATCH_FAILED  ? &row->failed_s
      : a->end == BATCH_EXPIRED ? &row->expired_s
                                : &row->cancelled_s) = now_s;
    int rc = batch_write_results(r->store, row, now_s, e);
    if (rc) return rc;
    log_info("batch %s is %s", row->id, batches_status_name(row->status));
    if (batches_lines_clear(r->store, row->n, e)) complain(r, e); /* the next start does it */
    drop_batch(a);
    return 0;
}

/* All lines are checked: the batch runs, or has failed. */
static int end_check(batch_runner *r, struct active *a, err *e) {
    a->checking = false;
    if (!a->check.n_errors) {
        int rc = batches_begin(r->store, &a->row, clock_wall_s(), e);
        if (rc) return rc;
        a->row.status = BATCH_IN_PROGRESS;
        a->row.in_progress_s = clock_wall_s();
        a->row.n_total = a->check.n_found;
        return 0;
    }
    int rc = batches_lines_clear(r->store, a->row.n, e);
    if (rc) return rc;
    free(a->row.errors);
    a->row.errors = str_take(&a->check.errors);
    a->end = BATCH_FAILED;
    return a->row.errors ? 0 : err_no_memory(e);
}

static int step_batch(batch_runner *r, struct active *a, err *e) {
    bool closes = a->end != BATCH_VALIDATING;
    if (!closes && a->row.cancelling_s) a->end = BATCH_CANCELLED;
    if (!closes && clock_wall_s() >= a->row.expires_s) a->end = BATCH_EXPIRED;
    if (a->row.status == BATCH_IN_PROGRESS && a->no_more && !a->n_running && !closes)
        a->end = BATCH_COMPLETED;
    if (a->row.status == BATCH_FINALIZING) a->end = BATCH_COMPLETED;
    if (a->end != BATCH_VALIDATING) {
        end_lines(r, a);
        return a->n_running ? 0 : finish_batch(r, a, e);
    }
    if (a->fd < 0) {
        int rc = batches_file_open(r->store, a->row.input_file, &a->fd, e);
        if (rc == ERR_NOT_FOUND) {
            fail_batch(a, "file_not_found", "input_file_id", e->msg);
            return 0;
        }
        if (rc) return rc;
    }
    if (a->row.status != BATCH_VALIDATING) return 0;
    if (!a->checking) {
        str_fini(&a->check.errors);
        a->check = (struct batch_check){.fd = a->fd};
        a->checking = true;
    }
    int rc = batch_check_step(r->api, &a->row, &a->check, e);
    return !rc && a->check.ended ? end_check(r, a, e) : rc;
}

/* true: a batch has more to do at once. */
static bool step_batches(batch_runner *r) {
    bool more = false;
    for (size_t i = 0; i < MOST_ACTIVE; i++) {
        struct active *a = &r->batches[i];
        err e = {0};
        if (!a->row.n || clock_now_ns() < a->later_ns) continue;
        int rc = step_batch(r, a, &e);
        if (rc == ERR_CHANGED) {
            a->end = BATCH_VALIDATING;
            a->row.status = BATCH_CANCELLING;
            a->row.finalizing_s = 0;
            batch_runner_wake(r); /* to learn when it was cancelled */
        } else if (rc) {
            complain(r, &e);
            a->checking = false;
            a->later_ns = clock_now_ns() + RETRY_MS * MS_NS;
        }
        more = more || (a->row.n && a->checking);
    }
    return more;
}

static struct active *find_active(batch_runner *r, int64_t n) {
    for (size_t i = 0; i < MOST_ACTIVE; i++)
        if (r->batches[i].row.n == n) return &r->batches[i];
    return NULL;
}

/* Learns of new batches, and of those that were cancelled. */
static void look_at_store(batch_runner *r) {
    struct batches_row rows[MOST_ACTIVE];
    err e = {0};
    size_t n = 0;
    int rc = 0;
    if (!r->has_lease) {
        rc = batches_lease(r->store, &e);
        if (rc == ERR_UNAVAILABLE) return;
        if (!rc) rc = batches_lines_sweep(r->store, &e);
        r->has_lease = !rc;
    }
    if (!rc) rc = batches_file_expire(r->store, clock_wall_s(), &e);
    if (!rc) rc = batches_unfinished(r->store, rows, MOST_ACTIVE, &n, &e);
    if (rc) complain(r, &e);
    for (size_t i = 0; i < n; i++) {
        struct active *a = find_active(r, rows[i].n);
        if (a && rows[i].cancelling_s) {
            a->row.cancelling_s = rows[i].cancelling_s;
            a->row.status = rows[i].status;
        } else if (!a && (a = find_active(r, 0))) {
            a->row = rows[i];
            a->fd = -1;
            continue;
        }
        batches_row_fini(&rows[i]);
    }
}

/* ---- the thread ---- */

static uint64_t earliest_retry(const batch_runner *r, uint64_t until_ns) {
    for (uint32_t i = 0; i < r->n_slots; i++) {
        const struct slot *s = &r->slots[i];
        if (s->batch && !s->request && s->retry_ns < until_ns) until_ns = s->retry_ns;
    }
    return until_ns;
}

/* Waits for something to do, up to until_ns. */
static void wait_for_more(batch_runner *r, uint64_t until_ns) {
    bool due = until_ns <= clock_now_ns();
    pthread_mutex_lock(&r->mu);
    for (uint32_t i = 0; i < r->n_slots && !due; i++)
        due = r->slots[i].batch && r->slots[i].woken;
    if (!due && !r->kicked) clock_cond_wait(&r->cond, &r->mu, until_ns);
    pthread_mutex_unlock(&r->mu);
}

static bool take_kick(batch_runner *r) {
    pthread_mutex_lock(&r->mu);
    bool kicked = r->kicked;
    r->kicked = false;
    pthread_mutex_unlock(&r->mu);
    return kicked;
}

/* Ends all requests; what has no result is done by the next process. */
static void end_all(batch_runner *r) {
    for (bool left = true; left;) {
        left = false;
        for (uint32_t i = 0; i < r->n_slots; i++) {
            struct slot *s = &r->slots[i];
            if (!s->batch) continue;
            if (!s->request || local_end(s->request)) {
                s->request = NULL;
                free_slot(s);
            }
            left = left || s->batch;
        }
        if (left) wait_for_more(r, clock_now_ns() + 20 * MS_NS);
        for (uint32_t i = 0; i < r->n_slots; i++)
            take_woken(r, &r->slots[i]);
    }
    for (size_t i = 0; i < MOST_ACTIVE; i++)
        drop_batch(&r->batches[i]);
}

static void *run(void *arg) {
    batch_runner *r = arg;
    uint64_t next_ns = 0;
    while (!atomic_load(&r->stop)) {
        uint64_t now = clock_now_ns();
        if (take_kick(r) || now >= next_ns) {
            look_at_store(r);
            next_ns = now + TICK_MS * MS_NS;
        }
        advance_slots(r);
        bool more = step_batches(r);
        fill_slots(r);
        if (!more) wait_for_more(r, earliest_retry(r, next_ns));
    }
    end_all(r);
    return NULL;
}

int batch_runner_open(struct api *a, batch_runner **out, err *e) {
    batch_runner *r = mem_new(1, sizeof *r);
    if (!r) return err_no_memory(e);
    r->api = a;
    r->store = a->config.batches;
    r->n_slots = API_MAX_BATCH_LINES;
    r->slots = mem_new(r->n_slots, sizeof *r->slots);
    pthread_mutex_init(&r->mu, NULL);
    clock_cond_init(&r->cond);
    for (size_t i = 0; i < MOST_ACTIVE; i++)
        r->batches[i].fd = -1;
    for (uint32_t i = 0; i < r->n_slots && r->slots; i++) {
        r->slots[i].runner = r;
        str_init(&r->slots[i].result, 0);
    }
    int rc = r->slots ? thread_start(&r->thread, run, r, "answers batches", e) : err_no_memory(e);
    if (rc) {
        free(r->slots);
        free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void batch_runner_close(batch_runner *r) {
    if (!r) return;
    batch_runner_stop(r);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->cond);
    pthread_mutex_destroy(&r->mu);
    free(r->slots);
    free(r);
}
