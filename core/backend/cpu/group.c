/* group.c - a group of CPU backends, which exchange through shared memory if they are in one
 * process, and otherwise through a link (linked.c). Owns the barrier of the ranks; starts no
 * thread.
 *
 * An exchange has two barriers: the first when all ranks have published the addresses of their
 * values, the second when all have done their share; after it a rank may overwrite its values.
 * Waiting spins, then sleeps. */
#include "core/backend/cpu/cpu_int.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SPIN_NS = 30000, SPIN_ROUNDS = 64, CACHE_LINE = 64 };

/* A rank's arguments of an exchange. */
struct offer {
    float *x;
    uint64_t n_rows, n_cols;
};

struct cpu_group {
    uint32_t n;
    _Alignas(CACHE_LINE) atomic_uint_fast32_t n_here; /* ranks at this barrier */
    _Alignas(CACHE_LINE) atomic_uint_fast32_t round;  /* barriers passed */
    atomic_bool broken;
    atomic_int n_sleeping;
    pthread_mutex_t mutex; /* guards sleeping and waking, no data */
    pthread_cond_t wake;
    struct offer offers[BACKEND_MAX_RANKS]; /* each written by its rank before the first barrier */
};

static void wake_all(struct cpu_group *g) {
    if (!atomic_load(&g->n_sleeping)) return;
    pthread_mutex_lock(&g->mutex);
    pthread_cond_broadcast(&g->wake);
    pthread_mutex_unlock(&g->mutex);
}

static bool is_over(struct cpu_group *g, uint_fast32_t round) {
    return atomic_load(&g->round) != round || atomic_load(&g->broken);
}

/* Waits for all ranks. ERR_DEVICE: the group is broken. */
static int wait_for_ranks(struct cpu_group *g) {
    uint_fast32_t round = atomic_load(&g->round);
    if (atomic_load(&g->broken)) return ERR_DEVICE;
    if (atomic_fetch_add(&g->n_here, 1) + 1 == g->n) {
        atomic_store(&g->n_here, 0);
        atomic_store(&g->round, round + 1);
        wake_all(g);
        return 0;
    }
    uint64_t until = clock_now_ns() + SPIN_NS;
    do
        for (int i = 0; i < SPIN_ROUNDS && !is_over(g, round); i++)
            pool_pause();
    while (!is_over(g, round) && clock_now_ns() < until);
    if (!is_over(g, round)) {
        pthread_mutex_lock(&g->mutex);
        atomic_fetch_add(&g->n_sleeping, 1);
        while (!is_over(g, round))
            pthread_cond_wait(&g->wake, &g->mutex);
        atomic_fetch_sub(&g->n_sleeping, 1);
        pthread_mutex_unlock(&g->mutex);
    }
    return atomic_load(&g->round) != round ? 0 : ERR_DEVICE;
}

/* Publishes this rank's arguments and waits for the others. ERR_INVALID: the shapes differ. */
static int begin_exchange(struct cpu_backend *c, float *x, uint32_t n_rows, uint32_t n_cols) {
    struct cpu_group *g = c->group;
    struct offer *own = &g->offers[c->base.rank];
    *own = (struct offer){x, n_rows, n_cols};
    int rc = wait_for_ranks(g);
    for (uint32_t r = 0; !rc && r < g->n; r++)
        if (g->offers[r].n_rows != n_rows || g->offers[r].n_cols != n_cols) rc = ERR_INVALID;
    return rc;
}

/* ---- sums ---- */

enum { CHUNK_VALUES = 2048 };

static void sum_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct cpu_sum *r = arg;
    uint64_t at = (uint64_t)chunk * CHUNK_VALUES;
    uint64_t n = r->n - at < CHUNK_VALUES ? r->n - at : CHUNK_VALUES;
    float sum[CHUNK_VALUES];
    (void)thread;
    memcpy(sum, r->from[0] + at, n * sizeof *sum);
    for (uint32_t k = 1; k < r->n_from; k++) {
        const float *x = r->from[k] + at;
        for (uint64_t i = 0; i < n; i++)
            sum[i] += x[i];
    }
    for (uint32_t k = 0; k < r->n_to; k++)
        memcpy(r->to[k] + at, sum, n * sizeof *sum);
}

void cpu_sum_run(struct cpu_backend *c, const struct cpu_sum *sum) {
    pool_run(c->pool, (uint32_t)((sum->n + CHUNK_VALUES - 1) / CHUNK_VALUES), sum_chunk, sum);
}

int cpu_all_reduce(backend *be, const struct op_all_reduce *a) {
    struct cpu_backend *c = cpu_of(be);
    uint64_t n = (uint64_t)a->n_rows * a->n_cols, n_ranks = be->n_ranks;
    const uint64_t first = n * be->rank / n_ranks, end = n * (be->rank + 1) / n_ranks;
    if (be->link) return cpu_linked_reduce(c, a);
    int rc = begin_exchange(c, a->x->host, a->n_rows, a->n_cols);
    if (rc) return rc;
    /* Each value is summed by one rank and written into the memory of all: the same bits. */
    struct cpu_sum sum = {.n = end - first, .n_from = c->group->n, .n_to = c->group->n};
    for (uint32_t k = 0; k < sum.n_from; k++)
        sum.from[k] = sum.to[k] = c->group->offers[k].x + first;
    cpu_sum_run(c, &sum);
    cpu_count(c, &cpu_isa_generic, CPU_ALL_REDUCE);
    return wait_for_ranks(c->group);
}

/* ---- columns ---- */

struct gather_run {
    const struct cpu_group *g;
    const struct op_all_gather *a;
};

static void gather_row(const void *arg, uint32_t row, int thread) {
    const struct gather_run *r = arg;
    uint32_t n_cols = r->a->n_cols, share = backend_share(n_cols, r->g->n);
    float *out = (float *)r->a->out->host + (uint64_t)row * n_cols;
    (void)thread;
    for (uint32_t k = 0, first = 0; first < n_cols; k++, first += share) {
        uint32_t n = n_cols - first < share ? n_cols - first : share;
        memcpy(out + first, r->g->offers[k].x + (uint64_t)row * n, n * sizeof *out);
    }
}

int cpu_all_gather(backend *be, const struct op_all_gather *a) {
    struct cpu_backend *c = cpu_of(be);
    struct gather_run run = {c->group, a};
    if (be->link) return cpu_linked_gather(c, a);
    int rc = begin_exchange(c, a->part->host, a->n_rows, a->n_cols);
    if (rc) return rc;
    if (a->out) pool_run(c->pool, a->n_rows, gather_row, &run);
    cpu_count(c, &cpu_isa_generic, CPU_ALL_GATHER);
    return wait_for_ranks(c->group);
}

/* ---- the group ---- */

int cpu_group_join(backend *const *ranks, uint32_t n, err *e) {
    if (ranks[0]->link) return cpu_linked_join(cpu_of(ranks[0]), e);
    struct cpu_group *g = mem_new_aligned(sizeof *g);
    if (!g) return err_no_memory(e);
    g->n = n;
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->wake, NULL);
    for (uint32_t r = 0; r < n; r++)
        cpu_of(ranks[r])->group = g;
    return 0;
}

void cpu_group_part(backend *be) {
    if (be->link) {
        cpu_linked_part(cpu_of(be));
        return;
    }
    struct cpu_group *g = cpu_of(be)->group;
    pthread_cond_destroy(&g->wake);
    pthread_mutex_destroy(&g->mutex);
    free(g);
}

void cpu_group_break(backend *be) {
    if (be->link) {
        backend_link_break(be->link, "a step failed on this rank");
        return;
    }
    struct cpu_group *g = cpu_of(be)->group;
    atomic_store(&g->broken, true);
    wake_all(g);
}
