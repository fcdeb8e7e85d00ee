/* quota.h - what an API key may use: requests and tokens a minute and a day, and sequences at once.
 *
 * Each rate is a bucket that holds as much as its limit and fills evenly in its time; a bucket is
 * stored as the moment when it will be full. A request takes 1 when its headers arrive. Its tokens
 * are taken when they are known: those of the prompt once it is submitted, the others as they are
 * read; so a bucket can owe, and further requests wait until it does not. A prompt longer than the
 * limit may start from a full bucket. The process' own requests (local.h) leave half of each limit
 * to those that clients make. The state is of this process: it starts with full buckets.
 *
 * THREAD SAFETY: any thread; a request by the thread that has it. */
#ifndef INFERD_API_HTTP_QUOTA_H
#define INFERD_API_HTTP_QUOTA_H

#include "core/base/err.h"
#include "core/base/key.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http;
struct request;

struct quotas {
    pthread_mutex_t mu; /* guards the rest */
    struct quota {
        uint64_t full_ns[KEY_N_RATES]; /* clock_now_ns when the bucket is full */
        uint64_t n_sequences;          /* now */
    } * all;                           /* (n) by the number of the key - 1 */
    size_t n;
};

void quotas_init(struct quotas *q);
void quotas_fini(struct quotas *q);

/* Takes 1 from the buckets of requests of r's key. false: one is empty, and the reply says so. */
bool quota_take_request(struct request *r, uint64_t now_ns);
/* May r's key use n_prompt more tokens? ERR_QUOTA. */
int quota_check_tokens(struct request *r, uint64_t n_prompt, uint64_t now_ns, err *e);
/* Takes n tokens from the buckets of r's key. */
void quota_take_tokens(struct request *r, uint64_t n, uint64_t now_ns);

/* Sequences of a key that run or wait. Zeroed: none. */
struct quota_hold {
    struct http *http;
    uint32_t key, n;
};
/* h, zeroed, holds n sequences of r's key. ERR_QUOTA: the key has too many. */
int quota_hold(struct request *r, struct quota_hold *h, uint32_t n, err *e);
void quota_release(struct quota_hold *h);

/* x-ratelimit-*, and the headers of r's protocol: of each kind the limit that is nearest. false:
 * the key has no limit of requests, and no header of them was added. */
bool quota_add_headers(struct request *r, uint64_t now_ns);

#endif
