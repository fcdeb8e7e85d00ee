/* rt_fiber.c - one threadgroup: its threads as fibers, simdgroup operations, barriers, and
 * threadgroup variables. A fiber runs until it must wait for others. All of them must wait at the
 * same source line; otherwise the code is divergent, which is reported. Runs on a worker's
 * thread. */
#include "rt_int.h"

#include <string.h>

void msl_switch(void **save, void *to);
void msl_fiber_start(void);

enum { SIMD_BARRIER = 1 << 30 }; /* op of a simdgroup_barrier, with its flags */

__thread struct worker *rt_worker;
__thread struct fiber *rt_fiber;

const msl_threadpos *msl_rt_pos(void) {
    return &rt_fiber->pos;
}

static inline void switch_to(struct fiber *n) {
    struct fiber *me = rt_fiber;
    if (n == me) return;
    rt_fiber = n;
    rt_worker->st.switches++;
    msl_switch(&me->sp, n->sp);
}

/* ---- order of lanes and simdgroups ---- */

static void shuffle_bytes(struct worker *w, uint8_t *a, uint32_t n) {
    for (uint32_t i = n; i-- > 1;) {
        uint32_t j = rt_random(w) % (i + 1);
        uint8_t x = a[i];
        a[i] = a[j];
        a[j] = x;
    }
}
static void order_lanes(struct simdgroup *g) {
    int descending = rt_grid.o.shuffle == 2;
    for (int i = 0; i < MSL_SIMD; i++)
        g->perm[i] = (uint8_t)(descending ? MSL_SIMD - 1 - i : i);
    if (rt_grid.o.shuffle == 1) shuffle_bytes(rt_worker, g->perm, MSL_SIMD);
    for (int i = 0; i < MSL_SIMD; i++)
        g->inv[g->perm[i]] = (uint8_t)i;
}
static void order_simdgroups(struct worker *w) {
    int descending = rt_grid.o.shuffle == 2;
    for (uint32_t i = 0; i < w->nsg; i++)
        w->sgorder[i] = (uint8_t)(descending ? w->nsg - 1 - i : i);
    if (rt_grid.o.shuffle == 1) shuffle_bytes(w, w->sgorder, w->nsg);
    w->cursor = 0;
}
/* A mask of lanes, in the shuffled order. */
static inline uint32_t shuffled(const struct simdgroup *g, uint32_t mask) {
    if (!rt_grid.o.shuffle) return mask;
    uint32_t r = 0;
    for (; mask; mask &= mask - 1)
        r |= 1u << g->inv[__builtin_ctz(mask)];
    return r;
}

/* ---- scheduling ---- */

static inline struct fiber *take_ready(struct simdgroup *g) {
    uint32_t k = (uint32_t)__builtin_ctz(g->ready);
    g->ready &= g->ready - 1;
    return &rt_worker->t[g->index * MSL_SIMD + g->perm[k]];
}
/* All live lanes have arrived: computes the result and makes them ready, except those in minus. */
static void complete_simd(struct simdgroup *g, uint32_t minus) {
    uint32_t p = g->par;
    rt_worker->window++;
    g->rmask[p] = g->wait;
    if (g->fn) g->fn(g->slots[p], g->wait, g->result[p]);
    g->ready = shuffled(g, g->wait & ~minus);
    g->wait = 0;
    g->par ^= 1;
}
static void release_barrier(struct worker *w) {
    w->st.barriers++;
    if (w->bflags & FLAG_THREADGROUP) w->ep_tg++;
    if (w->bflags & FLAG_DEVICE) w->ep_dev++;
    w->nbar = 0;
    for (uint32_t i = 0; i < w->nsg; i++) {
        struct simdgroup *g = &w->sg[i];
        if (rt_grid.o.shuffle == 1) order_lanes(g);
        g->ready = shuffled(g, g->live);
        g->bar = 0;
        g->sep++;
    }
    order_simdgroups(w);
}
/* Called when the running fiber waits or has returned. Returns the next fiber; NULL: all have
 * returned. A simdgroup runs as far as it can before the next one. */
static struct fiber *pick(void) {
    struct worker *w = rt_worker;
    struct simdgroup *g = rt_fiber->g;
    if (g->ready) return take_ready(g);
    if (g->wait) {
        if (g->wait != g->live)
            rt_fail("line %u: divergent simdgroup operation: lanes %08x wait at a simdgroup "
                    "operation on line %u, lanes %08x at a threadgroup_barrier on line %u",
                    g->line, g->wait, g->line, g->bar, w->bline);
        complete_simd(g, 0); /* the last lane that it waited for has returned */
        return take_ready(g);
    }
    for (;;) {
        while (w->cursor < w->nsg && !w->sg[w->sgorder[w->cursor]].ready)
            w->cursor++;
        if (w->cursor < w->nsg) {
            w->window++;
            return take_ready(&w->sg[w->sgorder[w->cursor]]);
        }
        if (w->ndone == w->nthr) return NULL;
        if (w->ndone)
            rt_fail("line %u: divergent threadgroup_barrier: %u of %u threads wait at it, %u have "
                    "returned",
                    w->bline, w->nbar, w->nthr, w->ndone);
        release_barrier(w);
    }
}
static void fiber_main(void) {
    void *dead; /* never resumed */
    rt_grid.d->k->entry(&rt_worker->launch);
    rt_worker->ndone++;
    rt_fiber->g->live &= ~(1u << rt_fiber->lane);
    struct fiber *n = pick();
    if (n) {
        rt_fiber = n;
        rt_worker->st.switches++;
    }
    msl_switch(&dead, n ? n->sp : rt_worker->mainsp);
    __builtin_unreachable();
}

/* ---- called by shader code ---- */

const void *msl_rt_simd(const void *in, uint32_t sz, msl_reduce_fn fn, uint32_t op, uint32_t line,
                        uint32_t *mask) {
    struct fiber *t = rt_fiber;
    struct simdgroup *g = t->g;
    uint32_t par = g->par, bit = 1u << t->lane;
    memcpy(g->slots[par][t->lane], in, sz <= SLOT ? sz : SLOT);
    if (!g->wait) {
        g->line = line;
        g->op = op;
        g->sz = sz;
        g->fn = fn;
    } else if (g->line != line || g->op != op || g->sz != sz)
        rt_fail("line %u: divergent simdgroup operation: other lanes (%08x) of the simdgroup are "
                "at line %u",
                line, g->wait, g->line);
    g->wait |= bit;
    if (g->wait == g->live) {
        if (op & SIMD_BARRIER)
            rt_worker->st.simd_barriers++;
        else
            rt_worker->st.simd_ops++;
        rt_worker->st.matrix_products += op == MSL_OP_MATRIX_PRODUCT;
        complete_simd(g, bit);
    } else
        switch_to(pick());
    if (mask) *mask = g->rmask[par];
    return fn ? (const void *)g->result[par] : (const void *)g->slots[par];
}
void msl_rt_simd_barrier(uint32_t flags, uint32_t line) {
    char nothing = 0;
    struct simdgroup *g = rt_fiber->g;
    msl_rt_simd(&nothing, 1, NULL, SIMD_BARRIER | flags, line, NULL);
    /* Orders threadgroup memory among the lanes: the first lane to leave advances the interval. */
    if ((flags & FLAG_THREADGROUP) && g->rmask[g->par ^ 1]) {
        g->rmask[g->par ^ 1] = 0;
        g->sep++;
    }
}
void msl_rt_barrier(uint32_t flags, uint32_t line) {
    struct worker *w = rt_worker;
    struct fiber *t = rt_fiber;
    if (!w->nbar) {
        w->bline = line;
        w->bflags = flags;
    } else if (w->bline != line)
        rt_fail("line %u: divergent threadgroup_barrier: other threads wait at the barrier on line "
                "%u",
                line, w->bline);
    w->nbar++;
    t->g->bar |= 1u << t->lane;
    switch_to(pick());
}
void *msl_rt_tgvar(uint32_t size, uint32_t align, uint32_t line) {
    struct worker *w = rt_worker;
    struct fiber *t = rt_fiber;
    if (align < 16) align = 16;
    uint32_t o = (t->tgvar + align - 1) & ~(align - 1);
    t->tgbytes += rt_align16(size);
    if (t->tgbytes > MSL_TG_BYTES)
        rt_fail("line %u: threadgroup memory: %u bytes, the limit is %u", line, t->tgbytes,
                MSL_TG_BYTES);
    t->tgvar = o + size + REDZONE;
    if (w->tgmost < t->tgbytes) w->tgmost = t->tgbytes;
    if (w->tghi < o + size) w->tghi = o + size;
    if (rt_grid.o.check && !w->tgown[o]) memset(w->tgown + o, 2, size);
    return w->tgbase + o;
}

static __thread const msl_fc_values *fc_values;
static const msl_fc_values fc_none;
const msl_fc_values *msl_rt_fc(void) {
    return fc_values ? fc_values : &fc_none;
}
void msl_rt_set_fc(const msl_fc_values *values) {
    fc_values = values;
}

/* ---- one threadgroup ---- */

/* A new fiber's stack holds what msl_switch pops. Each stack starts at another offset in its page,
 * so that a variable of all fibers does not map to one cache set. */
static void *fiber_stack(struct worker *w, uint32_t i) {
    uintptr_t *sp = (uintptr_t *)(w->stacks + (size_t)(i + 1) * STACK - i * 320 % 4096 / 64 * 64);
    *--sp = 0;
    *--sp = 0;
    *--sp = (uintptr_t)msl_fiber_start;
    *--sp = 0;                     /* rbp */
    *--sp = (uintptr_t)fiber_main; /* rbx */
    return sp - 4;                 /* r12-r15 */
}
static void place_group(struct worker *w, uint32_t index) {
    const msl_dispatch *d = rt_grid.d;
    msl_launch *l = &w->launch;
    w->tgindex = index;
    l->tgpig[0] = index % d->ntg[0];
    l->tgpig[1] = index / d->ntg[0] % d->ntg[1];
    l->tgpig[2] = index / d->ntg[0] / d->ntg[1];
    for (int i = 0; i < 3; i++) {
        l->ntptg[i] = d->ntptg[i];
        if (!d->grid[i]) continue;
        uint32_t left = d->grid[i] - l->tgpig[i] * d->ntptg[i];
        if (left < l->ntptg[i]) l->ntptg[i] = left;
    }
    w->nthr = l->ntptg[0] * l->ntptg[1] * l->ntptg[2];
    w->nsg = (w->nthr + MSL_SIMD - 1) / MSL_SIMD;
}
static void init_fiber(struct worker *w, uint32_t i) {
    struct fiber *t = &w->t[i];
    const uint32_t *n = w->launch.ntptg;
    t->pos.tpitg[0] = i % n[0];
    t->pos.tpitg[1] = i / n[0] % n[1];
    t->pos.tpitg[2] = i / n[0] / n[1];
    t->pos.tiitg = i;
    t->pos.tiisg = i % MSL_SIMD;
    t->pos.sgitg = i / MSL_SIMD;
    t->pos.nsg = w->nsg;
    memcpy(t->pos.tptg, n, sizeof t->pos.tptg);
    t->lane = (uint8_t)(i % MSL_SIMD);
    t->g = &w->sg[i / MSL_SIMD];
    t->tgvar = w->tgdyn;
    t->tgbytes = w->tgdynbytes;
    t->sp = fiber_stack(w, i);
}
void rt_run_group(struct worker *w, uint32_t index) {
    place_group(w, index);
    w->nbar = w->ndone = 0;
    w->failing = 0;
    w->window++;
    w->ep_tg0 = ++w->ep_tg;
    w->ep_dev = 1;
    memset(w->tgbase, 0xFF, w->tghi); /* NaN for half and float, -1 for integers */
    for (uint32_t i = 0; i < w->nthr; i++)
        init_fiber(w, i);
    for (uint32_t i = 0; i < w->nsg; i++) {
        struct simdgroup *g = &w->sg[i];
        uint32_t n = w->nthr - i * MSL_SIMD;
        g->live = n >= MSL_SIMD ? 0xFFFFFFFFu : (1u << n) - 1;
        g->wait = g->bar = g->par = 0;
        g->sep++;
        g->index = (uint8_t)i;
        order_lanes(g);
        g->ready = shuffled(g, g->live);
    }
    order_simdgroups(w);
    w->st.threads += w->nthr;
    if (sigsetjmp(w->jb, 0) == 0) {
        w->in_fiber = 1;
        rt_fiber = take_ready(&w->sg[w->sgorder[0]]);
        msl_switch(&w->mainsp, rt_fiber->sp);
    }
    w->in_fiber = 0;
    rt_fiber = NULL;
}
