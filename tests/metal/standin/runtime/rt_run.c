/* rt_run.c - a dispatch: binds its arguments, distributes its threadgroups over the workers, waits.
 * Workers are created on demand and live as long as the process. The framework's queue threads call
 * msl_rt_run; the calling thread is the first worker. */
#define _GNU_SOURCE
#include "rt_int.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALTSTACK = 64 << 10 };

struct grid rt_grid = {.mu = PTHREAD_MUTEX_INITIALIZER,
                       .run_mu = PTHREAD_MUTEX_INITIALIZER,
                       .go = PTHREAD_COND_INITIALIZER,
                       .done = PTHREAD_COND_INITIALIZER};
msl_stats msl_rt_stats;

/* ---- workers ---- */

static void *map(size_t bytes, int prot) {
    void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
static void unmap(void *p, size_t bytes) {
    if (p) munmap(p, bytes);
}
/* NULL: out of memory. */
static struct worker *worker_new(int index) {
    struct worker *w = aligned_alloc(64, (sizeof *w + 63) / 64 * 64);
    if (!w) return NULL;
    memset(w, 0, sizeof *w);
    w->rng = 0x9E3779B97F4A7C15ULL * (uint64_t)(index + 1);
    uint8_t *stacks = map((size_t)STACKS_BYTES + STACK_MARGIN, PROT_NONE);
    uint8_t *arena = map(ARENA + 2 * PAGE, PROT_NONE);
    w->tgshadow = map(ARENA * sizeof *w->tgshadow, PROT_READ | PROT_WRITE);
    w->altstack = malloc(ALTSTACK);
    if (!stacks || !arena || !w->tgshadow || !w->altstack) {
        unmap(stacks, (size_t)STACKS_BYTES + STACK_MARGIN);
        unmap(arena, ARENA + 2 * PAGE);
        unmap(w->tgshadow, ARENA * sizeof *w->tgshadow);
        free(w->altstack);
        free(w);
        return NULL;
    }
    w->stacks = stacks + STACK_MARGIN;
    mprotect(w->stacks, STACKS_BYTES, PROT_READ | PROT_WRITE);
    for (size_t k = 0; k < MSL_MAX_THREADS; k++)
        mprotect(w->stacks + k * STACK, STACK_GUARD, PROT_NONE);
    w->tgbase = arena + PAGE;
    mprotect(w->tgbase, ARENA, PROT_READ | PROT_WRITE);
    return w;
}
/* Buffers, grid and threadgroup memory of the dispatch, as seen by this worker's threads. */
static void bind_launch(struct worker *w, const msl_dispatch *d) {
    msl_launch *l = &w->launch;
    uint32_t o = 0;
    memcpy(l->buf, d->buf, sizeof l->buf);
    for (int i = 0; i < 3; i++) {
        l->ntg[i] = d->ntg[i];
        l->dntptg[i] = d->ntptg[i];
        l->grid[i] = d->grid[i] ? d->grid[i] : d->ntg[i] * d->ntptg[i];
    }
    w->tgdynbytes = 0;
    if (rt_grid.o.check) memset(w->tgown, 0, sizeof w->tgown);
    for (int i = 0; i < MSL_MAX_TG; i++) {
        if (!d->tglen[i]) continue;
        l->tg[i] = w->tgbase + o;
        if (rt_grid.o.check) memset(w->tgown + o, 1, d->tglen[i]);
        w->tgdynbytes += rt_align16(d->tglen[i]);
        o += rt_align16(d->tglen[i]) + REDZONE;
    }
    w->tgdyn = w->tghi = o;
    w->tgmost = w->tgdynbytes;
    memset(w->tgbase, 0xFF, ARENA);
}
static void run_groups(struct worker *w) {
    stack_t ss = {.ss_sp = w->altstack, .ss_size = ALTSTACK};
    sigaltstack(&ss, NULL); /* a fiber's stack overflow is handled on another stack */
    rt_worker = w;
    bind_launch(w, rt_grid.d);
    if (rt_grid.o.seed) w->rng ^= rt_grid.o.seed * 0xD1342543DE82EF95ULL | 1;
    memset(&w->st, 0, sizeof w->st);
    rt_watchdog_start(w);
    for (;;) {
        uint32_t i = __atomic_fetch_add(&rt_grid.next, 1, __ATOMIC_RELAXED);
        if (i >= rt_grid.total || __atomic_load_n(&rt_grid.nerr, __ATOMIC_RELAXED)) break;
        rt_run_group(w,
                     rt_grid.stride ? (uint32_t)((uint64_t)i * rt_grid.stride % rt_grid.total) : i);
    }
    rt_watchdog_stop(w);
    pthread_mutex_lock(&rt_grid.mu);
    if (rt_grid.tg_dynamic < w->tgdynbytes) rt_grid.tg_dynamic = w->tgdynbytes;
    if (rt_grid.tg_static + w->tgdynbytes < w->tgmost)
        rt_grid.tg_static = w->tgmost - w->tgdynbytes;
    pthread_mutex_unlock(&rt_grid.mu);
    uint64_t *sum = (uint64_t *)&msl_rt_stats, *mine = (uint64_t *)&w->st;
    for (size_t i = 0; i < sizeof w->st / sizeof *mine; i++)
        __atomic_fetch_add(&sum[i], mine[i], __ATOMIC_RELAXED);
    rt_worker = NULL;
}
static void *worker_main(void *p) {
    uint64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&rt_grid.mu);
        while (rt_grid.gen == seen || !rt_grid.want) {
            seen = rt_grid.gen;
            pthread_cond_wait(&rt_grid.go, &rt_grid.mu);
        }
        seen = rt_grid.gen;
        rt_grid.want--;
        rt_grid.busy++;
        pthread_mutex_unlock(&rt_grid.mu);
        run_groups(p);
        pthread_mutex_lock(&rt_grid.mu);
        if (!--rt_grid.busy) pthread_cond_signal(&rt_grid.done);
        pthread_mutex_unlock(&rt_grid.mu);
    }
    return NULL;
}
/* Creates workers up to n; returns how many exist. Called with mu held. */
static int have_workers(int n) {
    while (rt_grid.nw < n) {
        struct worker *w = worker_new(rt_grid.nw);
        pthread_t th;
        if (!w) break;
        rt_grid.w[rt_grid.nw] = w;
        if (rt_grid.nw && pthread_create(&th, NULL, worker_main, w)) break;
        if (rt_grid.nw) pthread_detach(th);
        rt_grid.nw++;
    }
    return rt_grid.nw;
}

/* ---- the dispatch ---- */

static uint32_t gcd(uint32_t a, uint32_t b) {
    while (b) {
        uint32_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}
/* Random order of threadgroups: steps with a stride that is coprime to their number. */
static uint32_t pick_stride(uint32_t total, uint64_t seed) {
    uint32_t s = (uint32_t)(seed * 7919 + 3) % total;
    while (!s || gcd(s, total) != 1)
        s = (s + 1) % total;
    return s;
}
/* Ranges in descending order of their start: if several arguments lie in one buffer, an address
 * belongs to the one with the greatest start at or below it. */
static void bind_ranges(const msl_dispatch *d) {
    rt_grid.nrg = 0;
    for (uint32_t i = 0; i < d->k->nargs; i++) {
        const msl_arg_desc *a = &d->k->args[i];
        if (a->kind != MSL_A_BUFFER) continue;
        uintptr_t lo = (uintptr_t)d->buf[a->index];
        int at = 0;
        while (at < rt_grid.nrg && rt_grid.rg[at].lo > lo)
            at++;
        struct range *r = &rt_grid.rg[at];
        if (at == rt_grid.nrg || r->lo != lo) {
            const char *label = d->buflabel[a->index];
            memmove(r + 1, r, (size_t)(rt_grid.nrg++ - at) * sizeof *r);
            *r = (struct range){.lo = lo,
                                .hi = lo + d->buflen[a->index],
                                .what = label ? label : a->name,
                                .name = a->name,
                                .label = label ? label : "",
                                .constant = (a->is_const & 2) != 0,
                                .index = a->index};
        }
        if (!a->is_const) r->writable = 1;
    }
}
static int may_be_written(const struct range *r) {
    for (int i = 0; i < rt_grid.nrg; i++) {
        const struct range *o = &rt_grid.rg[i];
        if (o->writable && o->lo < r->hi && r->lo < o->hi) return 1;
    }
    return 0;
}
/* -1: out of memory. */
static int map_shadows(void) {
    for (int j = 0; rt_grid.o.check && j < rt_grid.nrg; j++) {
        struct range *r = &rt_grid.rg[j];
        size_t n = r->hi - r->lo;
        if (may_be_written(r) && !(r->shadow = map(n * sizeof *r->shadow, PROT_READ | PROT_WRITE)))
            return -1;
        if (rt_traffic_on() && !(r->traffic = map(n * sizeof *r->traffic, PROT_READ | PROT_WRITE)))
            return -1;
    }
    return 0;
}
static void unmap_shadows(void) {
    for (int j = 0; j < rt_grid.nrg; j++) {
        struct range *r = &rt_grid.rg[j];
        unmap(r->shadow, (r->hi - r->lo) * sizeof *r->shadow);
        unmap(r->traffic, (r->hi - r->lo) * sizeof *r->traffic);
    }
}
static void report(const char *text) {
    rt_grid.nerr++;
    if (rt_grid.err) strncpy(rt_grid.err, text, rt_grid.errlen - 1);
}
static void run_on_workers(void) {
    int nw = rt_grid.o.check ? 1 : rt_grid.o.workers;
    if (nw < 1) nw = 1;
    if (nw > MAX_WORKERS) nw = MAX_WORKERS;
    if ((uint32_t)nw > rt_grid.total) nw = (int)rt_grid.total;
    pthread_mutex_lock(&rt_grid.mu);
    int have = have_workers(nw);
    if (nw > have) nw = have;
    rt_grid.want = nw - 1;
    rt_grid.gen++;
    if (nw > 1) pthread_cond_broadcast(&rt_grid.go);
    if (!nw) report("no memory for a worker");
    pthread_mutex_unlock(&rt_grid.mu);
    if (nw) run_groups(rt_grid.w[0]);
    pthread_mutex_lock(&rt_grid.mu);
    rt_grid.want = 0;
    while (rt_grid.busy)
        pthread_cond_wait(&rt_grid.done, &rt_grid.mu);
    pthread_mutex_unlock(&rt_grid.mu);
}

static void install_handlers(void) {
    rt_install_fault_handler();
    rt_watchdog_install();
}
int msl_rt_run(const msl_dispatch *d, const msl_opts *o, char *err, size_t errlen) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_handlers);
    pthread_mutex_lock(&rt_grid.run_mu);
    rt_grid.d = d;
    rt_grid.o = *o;
    rt_grid.err = errlen ? err : NULL;
    rt_grid.errlen = errlen;
    rt_grid.nerr = 0;
    rt_grid.next = 0;
    if (rt_grid.err) memset(err, 0, errlen);
    rt_grid.total = d->ntg[0] * d->ntg[1] * d->ntg[2];
    rt_grid.serial++;
    rt_grid.stride = o->shuffle == 1 && rt_grid.total > 2 ? pick_stride(rt_grid.total, o->seed) : 0;
    rt_grid.tg_dynamic = rt_grid.tg_static = 0;
    bind_ranges(d);
    msl_stats before = msl_rt_stats;
    if (map_shadows() == 0)
        run_on_workers();
    else
        report("no memory for the shadow of the buffers");
    unmap_shadows();
    if (rt_traffic_on() && !rt_grid.nerr) rt_traffic_add(&before);
    int rc = rt_grid.nerr;
    pthread_mutex_unlock(&rt_grid.run_mu);
    return rc;
}
