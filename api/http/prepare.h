/* prepare.h - a request's way through the work pool, and what it cost. Private to api/.
 *
 * A route's handler runs on a pool thread, with r->work as its budget; it must leave nothing behind
 * when it fails, for it may run twice: a request whose quick budget was not enough starts over in
 * the slow lane. Meanwhile the connection is suspended (watch_lend).
 *
 * THREAD SAFETY: put, step on the connection's HTTP thread; spent on the thread that has the
 * request. */
#ifndef INFERD_API_HTTP_PREPARE_H
#define INFERD_API_HTTP_PREPARE_H

#include "api/http/work_pool.h"
#include "core/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct api;
struct request;

/* What a request's preparation consists of, in metrics. */
enum request_part { PART_JSON, PART_TEMPLATE, PART_TOKENIZE, PART_GRAMMAR, N_REQUEST_PARTS };

enum reject_reason {
    REJECT_PREPARE_QUEUE, /* the pool's queue was full */
    REJECT_TOO_EXPENSIVE, /* beyond prepare_budget_s */
    REJECT_BODY_BYTES,    /* too many large bodies at once */
    REJECT_ANSWER_BYTES,  /* too many large answers at once */
    N_REJECT_REASONS
};

enum { COST_ROUTES = 65, COST_KEYS = 64 /* more share the last row */ };

/* Sums since start; any thread adds. Rows of routes as in n_requests. */
struct costs {
    atomic_uint_least64_t http_ns[COST_ROUTES]; /* on threads that write tokens */
    atomic_uint_least64_t lane_ns[COST_ROUTES][WORK_N_LANES];
    atomic_uint_least64_t part_ns[COST_ROUTES][N_REQUEST_PARTS];
    atomic_uint_least64_t wait_ns[WORK_N_LANES], n_runs[WORK_N_LANES];
    atomic_uint_least64_t n_rejected[N_REJECT_REASONS];
    atomic_uint_least64_t n_cancelled; /* preparations that ended because the client left */
    struct key_costs {
        atomic_uint_least64_t n_requests, prepare_ns, prompt_tokens, completion_tokens;
    } keys[COST_KEYS];
};

int prepare_open(struct api *a, err *e);
/* Hands r over: its handler will fill the reply or attach a job. false: the queue is full, and the
 * reply says so. */
bool prepare_put(struct request *r);
/* Hands r over for its job's `work`. */
void prepare_step(struct request *r);

/* What r's handler did since `since_ns` (clock_now_ns) was that. */
void prepare_spent(struct request *r, enum request_part part, uint64_t since_ns);

#endif
