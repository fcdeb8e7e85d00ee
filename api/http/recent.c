/* recent.c - see recent.h. Owns nothing. */
#include "api/http/recent.h"

#include "api/http/request.h"
#include "api/http/route.h"
#include "core/base/clock.h"

#include <string.h>

void recent_init(struct recent *c) {
    pthread_mutex_init(&c->mu, NULL);
}

void recent_fini(struct recent *c) {
    pthread_mutex_destroy(&c->mu);
}

void recent_add(struct recent *c, const struct request *r, unsigned status, bool cut) {
    if (!r->route || !(r->route->flags & ROUTE_WORK)) return;
    struct recent_request one = {.end_s = clock_wall_s(),
                                 .ms = (double)(clock_now_ns() - r->start_ns) / 1e6,
                                 .route = r->route,
                                 .key_number = r->key.number,
                                 .status = status,
                                 .cut = cut,
                                 .prompt_tokens = r->prompt_tokens,
                                 .completion_tokens = r->completion_tokens};
    memcpy(one.id, r->id, sizeof one.id);
    memcpy(one.model, r->model_id, sizeof one.model);
    pthread_mutex_lock(&c->mu);
    c->slots[c->n++ % RECENT_REQUESTS] = one;
    pthread_mutex_unlock(&c->mu);
}

size_t recent_get(struct recent *c, uint32_t key_number,
                  struct recent_request out[RECENT_REQUESTS]) {
    size_t n = 0;
    pthread_mutex_lock(&c->mu);
    uint64_t kept = c->n < RECENT_REQUESTS ? c->n : RECENT_REQUESTS;
    for (uint64_t i = 1; i <= kept; i++) {
        const struct recent_request *one = &c->slots[(c->n - i) % RECENT_REQUESTS];
        if (one->key_number == key_number) out[n++] = *one;
    }
    pthread_mutex_unlock(&c->mu);
    return n;
}
