/* test_history.c - the ring of samples: bounded, the oldest are dropped first. */
#include "api/generate/history.h"

#include "check.h"

static struct history h;
static struct history_sample out[HISTORY_SAMPLES];

static void add_until(uint64_t end) {
    while (h.n < end)
        history_add(&h, &(struct history_sample){.time_s = (int64_t)h.n * HISTORY_EVERY_S});
}

static void the_oldest_go_first(void) {
    metrics_history_init(&h);
    CHECK(metrics_history_get(&h, out) == 0);
    add_until(3);
    CHECK(metrics_history_get(&h, out) == 3 && out[0].time_s == 0 && out[2].time_s == 20);
    add_until(HISTORY_SAMPLES);
    CHECK(metrics_history_get(&h, out) == HISTORY_SAMPLES && out[0].time_s == 0);
    add_until(1000);
    CHECK(metrics_history_get(&h, out) == HISTORY_SAMPLES);
    CHECK(out[HISTORY_SAMPLES - 1].time_s == 999 * HISTORY_EVERY_S);
    CHECK(out[HISTORY_SAMPLES - 1].time_s - out[0].time_s == 3600);
    history_fini(&h);
}

int main(void) {
    RUN(the_oldest_go_first);
    return check_done();
}
