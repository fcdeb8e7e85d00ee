/* rt_check.c - check mode: the __tsan_* hooks that clang's instrumentation calls before each
 * access of shader code (libtsan is not linked). Each access is tested for bounds, initialisation,
 * constness and races. Runs on the one worker of check mode. */
#include "rt_int.h"

#include <string.h>

static inline int inside(uintptr_t a, const void *lo, uintptr_t n) {
    return a - (uintptr_t)lo < n;
}

/* ---- threadgroup memory ---- */

/* Are two threads' accesses of one barrier interval ordered? Only in one simdgroup, by a
 * simdgroup_barrier between them. */
static inline int same_simdgroup(uint32_t a, uint32_t b) {
    return a / MSL_SIMD == b / MSL_SIMD;
}

static void check_tg_read(struct tg_cell *c, uint32_t offset) {
    struct worker *w = rt_worker;
    uint32_t me = rt_fiber->pos.tiitg, sep = rt_fiber->g->sep;
    if (c->wep < w->ep_tg0) rt_fail("read of uninitialised threadgroup memory (offset %u)", offset);
    if (c->rep != w->ep_tg)
        c->rmulti = 0;
    else if (c->rtid != me) {
        if (!same_simdgroup(c->rtid, me))
            c->rmulti = 2;
        else if (c->rmulti < 2)
            c->rmulti = c->rsep == sep;
    }
    c->rep = w->ep_tg;
    c->rtid = (uint16_t)me;
    c->rsep = sep;
}
static void check_tg_write(struct tg_cell *c, uint32_t offset) {
    struct worker *w = rt_worker;
    uint32_t me = rt_fiber->pos.tiitg, sep = rt_fiber->g->sep;
    if (c->rep == w->ep_tg && (c->rmulti == 2 || !same_simdgroup(c->rtid, me) ||
                               (c->rsep == sep && (c->rmulti == 1 || c->rtid != me))))
        rt_fail("race on threadgroup memory offset %u: write after a read by thread %u in the same "
                "barrier interval",
                offset, c->rtid);
    c->wep = w->ep_tg;
    c->wtid = (uint16_t)me;
    c->wsep = sep;
}
static void check_tg(uint32_t o, uint32_t n, int wr) {
    struct worker *w = rt_worker;
    uint32_t me = rt_fiber->pos.tiitg, sep = rt_fiber->g->sep;
    if (o + n > ARENA || !w->tgown[o] || !w->tgown[o + n - 1])
        rt_fail("%s of %u bytes outside every threadgroup allocation (arena offset %u)",
                wr ? "write" : "read", n, o);
    for (uint32_t i = o; i < o + n; i++) {
        struct tg_cell *c = &w->tgshadow[i];
        if (c->wep == w->ep_tg && c->wtid != me && !(same_simdgroup(c->wtid, me) && c->wsep != sep))
            rt_fail("race on threadgroup memory offset %u: %s after a write by thread %u in the "
                    "same barrier interval",
                    i, wr ? "write" : "read", c->wtid);
        if (wr)
            check_tg_write(c, i);
        else
            check_tg_read(c, i);
    }
}

/* ---- buffers ---- */

static _Noreturn void fail_race(const struct range *r, size_t byte, const char *what,
                                uint32_t thread) {
    const uint32_t *n = rt_grid.d->ntptg;
    uint32_t nt = n[0] * n[1] * n[2];
    rt_fail("race on buffer(%d) '%s' byte %zu: %s by threadgroup %u thread %u with no barrier "
            "between",
            r->index, r->what, byte, what, thread / nt, thread % nt);
}
static void check_dev(const struct range *r, uintptr_t a, uint32_t n, int wr) {
    struct worker *w = rt_worker;
    if (a + n > r->hi) {
        char b[256];
        rt_describe(a + n, b, sizeof b);
        rt_fail("%s of %u bytes ends %s", wr ? "write" : "read", n, b);
    }
    if (wr && !r->writable) rt_fail("write to buffer(%d) '%s', bound const", r->index, r->what);
    if (!r->shadow) return;
    const uint32_t *nt3 = rt_grid.d->ntptg;
    uint32_t nt = nt3[0] * nt3[1] * nt3[2], me = w->tgindex * nt + rt_fiber->pos.tiitg;
    for (size_t i = a - r->lo; i < a - r->lo + n; i++) {
        struct dev_cell *c = &r->shadow[i];
        if (c->serial != rt_grid.serial) {
            memset(c, 0, sizeof *c);
            c->serial = rt_grid.serial;
        }
        if (c->wr && c->wthr != me && !(c->wthr / nt == w->tgindex && c->wep < w->ep_dev))
            fail_race(r, i, wr ? "write after a write" : "read after a write", c->wthr);
        if (wr) {
            if (c->rep && (c->rmulti == 2 || c->rthr / nt != w->tgindex ||
                           (c->rep == w->ep_dev && (c->rmulti == 1 || c->rthr != me))))
                fail_race(r, i, "write after a read", c->rthr);
            c->wr = 1;
            c->wthr = me;
            c->wep = (uint16_t)w->ep_dev;
            continue;
        }
        if (c->rep && c->rthr != me) {
            if (c->rthr / nt != w->tgindex)
                c->rmulti = 2;
            else if (c->rmulti < 2)
                c->rmulti = c->rep == w->ep_dev;
        }
        c->rthr = me;
        c->rep = (uint16_t)w->ep_dev;
    }
}

static void check_access(const void *p, uint32_t n, int wr, void *pc) {
    struct worker *w = rt_worker;
    const msl_dispatch *d = rt_grid.d;
    uintptr_t a = (uintptr_t)p;
    if (!w || !w->in_fiber) return;
    rt_pc = pc;
    if (wr)
        w->st.stores++;
    else
        w->st.loads++;
    if (inside(a, w->stacks, STACKS_BYTES)) {
        rt_pc = NULL;
        return;
    }
    if (inside(a, w->tgbase, ARENA)) {
        check_tg((uint32_t)(a - (uintptr_t)w->tgbase), n, wr);
        rt_pc = NULL;
        return;
    }
    for (int i = 0; i < rt_grid.nrg; i++) {
        const struct range *r = &rt_grid.rg[i];
        if (a - r->lo >= r->hi - r->lo) continue;
        check_dev(r, a, n, wr);
        rt_pc = NULL;
        return;
    }
    if (inside(a, d->dlbase_lo, (uintptr_t)d->dlbase_hi - (uintptr_t)d->dlbase_lo)) {
        if (wr) rt_fail("write to program-scope data");
    } else if (!inside(a, w, sizeof *w)) { /* the simdgroups' slots lie in the worker */
        char b[256];
        rt_describe(a, b, sizeof b);
        rt_fail("%s of %u bytes out of bounds: %s", wr ? "write" : "read", n, b);
    }
    rt_pc = NULL;
}

/* ---- the hooks. Their names and signatures are the instrumentation's. ---- */

#define PC __builtin_return_address(0)
#define HOOK(name, n, rd, wr)                                                                      \
    void __tsan_##name##n(void *p);                                                                \
    void __tsan_##name##n(void *p) {                                                               \
        if (rd) check_access(p, n, 0, PC);                                                         \
        if (wr) check_access(p, n, 1, PC);                                                         \
    }
#define HOOKS(n)                                                                                   \
    HOOK(read, n, 1, 0)                                                                            \
    HOOK(write, n, 0, 1)                                                                           \
    HOOK(read_write, n, 1, 1)                                                                      \
    HOOK(unaligned_read, n, 1, 0)                                                                  \
    HOOK(unaligned_write, n, 0, 1)                                                                 \
    HOOK(unaligned_read_write, n, 1, 1)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_init(void);
void __tsan_func_entry(void *p);
void __tsan_func_exit(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *p) {
    (void)p;
}
void __tsan_func_exit(void) {}
/* Copies of whole structs: calls that clang before 15 leaves as they are, which metalcc has
 * wrapped.
 */
#define COPY_HOOKS(prefix)                                                                         \
    void *prefix##memcpy(void *d, const void *s, size_t n);                                        \
    void *prefix##memmove(void *d, const void *s, size_t n);                                       \
    void *prefix##memset(void *d, int c, size_t n);                                                \
    void *prefix##memcpy(void *d, const void *s, size_t n) {                                       \
        check_access(s, (uint32_t)n, 0, PC);                                                       \
        check_access(d, (uint32_t)n, 1, PC);                                                       \
        return memcpy(d, s, n);                                                                    \
    }                                                                                              \
    void *prefix##memmove(void *d, const void *s, size_t n) {                                      \
        check_access(s, (uint32_t)n, 0, PC);                                                       \
        check_access(d, (uint32_t)n, 1, PC);                                                       \
        return memmove(d, s, n);                                                                   \
    }                                                                                              \
    void *prefix##memset(void *d, int c, size_t n) {                                               \
        check_access(d, (uint32_t)n, 1, PC);                                                       \
        return memset(d, c, n);                                                                    \
    }
COPY_HOOKS(__tsan_)
COPY_HOOKS(__wrap_)
