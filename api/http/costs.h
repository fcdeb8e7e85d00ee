/* costs.h - what requests cost, summed for /metrics: by route, by lane of the work pool, by kind of
 * work, by API key. Sums since the start; any thread adds. */
#ifndef INFERD_API_HTTP_COSTS_H
#define INFERD_API_HTTP_COSTS_H

#include "api/http/work_pool.h"

#include <stdatomic.h>
#include <stdint.h>

struct request;

/* The kinds of work that prepare a request. */
enum request_part { PART_JSON, PART_TEMPLATE, PART_TOKENIZE, PART_GRAMMAR, N_REQUEST_PARTS };

enum reject_reason {
    REJECT_PREPARE_QUEUE, /* the pool's queue was full */
    REJECT_TOO_EXPENSIVE, /* beyond prepare_budget_s */
    REJECT_BODY_BYTES,    /* too many large bodies at once */
    REJECT_ANSWER_BYTES,  /* too many large answers at once */
    REJECT_KEY_QUOTA,     /* the key has used up what it may use (quota.h) */
    N_REJECT_REASONS
};

enum { COST_ROUTES = 96, COST_KEYS = 64 /* further keys share the last row */ };

/* Rows of routes: request.row. */
struct costs {
    atomic_uint_least64_t http_ns[COST_ROUTES]; /* on HTTP threads, which also write the streams */
    atomic_uint_least64_t lane_ns[COST_ROUTES][WORK_N_LANES];
    atomic_uint_least64_t part_ns[COST_ROUTES][N_REQUEST_PARTS];
    atomic_uint_least64_t wait_ns[WORK_N_LANES], n_runs[WORK_N_LANES];
    atomic_uint_least64_t n_rejected[N_REJECT_REASONS];
    atomic_uint_least64_t n_cancelled; /* preparations that ended because the client left */
    struct key_costs {
        atomic_uint_least64_t n_requests, prepare_ns, prompt_tokens, completion_tokens;
    } keys[COST_KEYS];
};

/* Adds the time since since_ns (clock_now_ns) to r's work of that kind. */
void costs_add_part(struct request *r, enum request_part part, uint64_t since_ns);
/* The sums of r's key; r->key.number is set. */
struct key_costs *costs_of_key(const struct request *r);

#endif
