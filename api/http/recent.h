/* recent.h - the last requests that started work, for the page's table. A ring of fixed size; any
 * thread. Bodies and answers are not in it. */
#ifndef INFERD_API_HTTP_RECENT_H
#define INFERD_API_HTTP_RECENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct request;
struct route;

enum { RECENT_REQUESTS = 100 };

struct recent_request {
    int64_t end_s;             /* clock_wall_s */
    double ms;                 /* from its first byte to the end of its answer */
    const struct route *route; /* of the server's table */
    char model[97];            /* its id; "": none was found */
    char id[65];
    uint32_t key_number; /* its API key's (key.h) */
    unsigned status;
    bool cut; /* the connection ended before the answer */
    uint64_t prompt_tokens, completion_tokens;
};

struct recent {
    pthread_mutex_t mu; /* guards the rest */
    struct recent_request slots[RECENT_REQUESTS];
    uint64_t n; /* added since the start */
};

void recent_init(struct recent *c);
void recent_fini(struct recent *c);
/* Adds r, which has ended, if its route starts work (ROUTE_WORK). */
void recent_add(struct recent *c, const struct request *r, unsigned status, bool cut);
/* Copies those of an API key (0: no keys are configured), the newest first; returns how many. */
size_t recent_get(struct recent *c, uint32_t key_number,
                  struct recent_request out[RECENT_REQUESTS]);

#endif
