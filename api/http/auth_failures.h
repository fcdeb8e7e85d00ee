/* auth_failures.h - wrong API keys: counted by reason, and limited by the client's network. Each
 * network has a bucket of as many failures as it may have in a minute, which fills again at that
 * rate; while it is empty, keys that a person may have chosen are not compared at all.
 *
 * THREAD SAFETY: any thread. */
#ifndef INFERD_API_HTTP_AUTH_FAILURES_H
#define INFERD_API_HTTP_AUTH_FAILURES_H

#include "api/http/address.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum auth_failure {
    AUTH_MISSING, /* no key was given */
    AUTH_UNKNOWN,
    AUTH_EXPIRED,
    AUTH_REVOKED,
    AUTH_SCOPE,   /* a valid key that lacks the scope */
    AUTH_LIMITED, /* its network had too many failures */
    AUTH_N_FAILURES
};

enum { AUTH_FAILURE_SLOTS = 1024, AUTH_FAILURE_WAYS = 8 };

struct auth_failures {
    atomic_uint per_minute; /* 0: no limit */
    uint64_t seed;          /* constant: of the slots */
    atomic_uint_least64_t counts[AUTH_N_FAILURES];
    pthread_mutex_t mu; /* guards slots */
    struct failure_slot {
        struct client_network from;
        uint64_t full_ns; /* when its bucket is full again */
    } slots[AUTH_FAILURE_SLOTS];
};

extern const char *const auth_failure_names[AUTH_N_FAILURES]; /* in metrics */

void auth_failures_init(struct auth_failures *f, uint32_t per_minute);
void auth_failures_fini(struct auth_failures *f);
/* Seconds until another failure is allowed to that client; 0: now. */
uint32_t auth_failures_wait_s(struct auth_failures *f, const struct address *client,
                              uint64_t now_ns);
/* Counts a failure of why; those of unknown, expired and revoked keys empty the bucket. */
void auth_failures_add(struct auth_failures *f, enum auth_failure why, const struct address *client,
                       uint64_t now_ns);

#endif
