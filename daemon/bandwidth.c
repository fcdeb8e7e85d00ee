/* bandwidth.c - plain sequential reads, one contiguous share a thread. */
#include "daemon/bandwidth.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 256 << 20, PASSES = 5, LANES = 8, THREADS_MAX = 256 };

struct share {
    pthread_t thread;
    const uint64_t *data;
    size_t n; /* a multiple of LANES */
    uint64_t sum;
};

/* Lanes keep the additions from waiting for each other. */
static void *read_share(void *arg) {
    struct share *s = arg;
    uint64_t lanes[LANES] = {0};
    for (size_t i = 0; i < s->n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += s->data[i + (size_t)lane];
    for (int lane = 0; lane < LANES; lane++)
        s->sum += lanes[lane];
    return NULL;
}

/* Seconds of one pass; 0 when a thread could not be made. */
static double pass(struct share *shares, int n) {
    int started = 0;
    uint64_t begin_ns = clock_now_ns();
    while (started < n &&
           !pthread_create(&shares[started].thread, NULL, read_share, &shares[started]))
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(shares[i].thread, NULL);
    return started == n ? (double)(clock_now_ns() - begin_ns) * 1e-9 : 0;
}

int bandwidth_measure(int n_threads, double *bytes_per_s, err *e) {
    int n = n_threads < THREADS_MAX ? n_threads : THREADS_MAX;
    uint64_t *data = mem_new_aligned(BUFFER_BYTES);
    struct share *shares = mem_new((uint64_t)n, sizeof *shares);
    int rc = 0;
    *bytes_per_s = 0;
    if (!data || !shares) {
        rc = err_set(e, ERR_NOMEM, "no memory to measure the memory's bandwidth");
        goto end;
    }
    size_t each = BUFFER_BYTES / sizeof *data / (size_t)n / LANES * LANES;
    memset(data, 1, BUFFER_BYTES); /* real pages, not one zero page many times */
    for (int i = 0; i < n; i++)
        shares[i] = (struct share){.data = data + (size_t)i * each, .n = each};
    for (int i = 0; i < PASSES && !rc; i++) {
        double seconds = pass(shares, n);
        double rate = seconds > 0 ? (double)(each * sizeof *data) * n / seconds : 0;
        if (seconds <= 0) rc = err_set(e, ERR_IO, "cannot start %d threads", n);
        if (rate > *bytes_per_s) *bytes_per_s = rate;
    }
end:
    free(shares);
    free(data);
    return rc;
}
