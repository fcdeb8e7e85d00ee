/* costs.c - sums of what requests cost. Owns nothing; any thread. */
#include "api/http/costs.h"

#include "api/http/http.h"
#include "api/http/request.h"
#include "core/base/clock.h"

void costs_add_part(struct request *r, enum request_part part, uint64_t since_ns) {
    atomic_fetch_add(&r->http->costs.part_ns[r->row][part], clock_now_ns() - since_ns);
}

struct key_costs *costs_of_key(const struct request *r) {
    uint32_t i = r->key.number - 1;
    return &r->http->costs.keys[i < COST_KEYS ? i : COST_KEYS - 1];
}
