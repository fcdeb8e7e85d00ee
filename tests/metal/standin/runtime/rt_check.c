/* rt_check.c - check mode: the __tsan_* hooks that clang's instrumentation calls before each access
 * of shader code (libtsan is not linked). Each access is checked for bounds, initialisation,
 * constness and races. Runs on the single worker of check mode. */
#include "rt_int.h"

#include <string.h>

static inline int inside(uintptr_t a, const void *lo, uintptr_t n) {
    return a - (uintptr_t)lo < n;
}

/* ---- threadgroup memory ---- */

/* Whether accesses of two threads in one barrier interval are ordered: only within a simdgroup, by
 * a simdgroup_barrier between them. */
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
/* how: bits READS, WRITES, ATOMIC. Atomics of one interval do not race with each other. */
enum { READS = 1, WRITES = 2, ATOMIC = 4 };
static const char *how_called(int how) {
    return how & ATOMIC ? "atomic access" : how & WRITES ? "write" : "read";
}
static void check_tg(uint32_t o, uint32_t n, int how) {
    struct worker *w = rt_worker;
    uint32_t me = rt_fiber->pos.tiitg, sep = rt_fiber->g->sep;
    if (o + n > ARENA || !w->tgown[o] || !w->tgown[o + n - 1])
        rt_fail("%s of %u bytes outside every threadgroup allocation (arena offset %u)",
                how_called(how), n, o);
    for (uint32_t i = o; i < o + n; i++) {
        struct tg_cell *c = &w->tgshadow[i];
        if (c->wep == w->ep_tg && c->wtid != me && !(how & ATOMIC && c->watomic) &&
            !(same_simdgroup(c->wtid, me) && c->wsep != sep))
            rt_fail("race on threadgroup memory offset %u: %s after a write by thread %u in the "
                    "same barrier interval",
                    i, how_called(how), c->wtid);
        if (how & READS && (!(how & ATOMIC) || c->wep < w->ep_tg0)) check_tg_read(c, i);
        if (!(how & WRITES)) continue;
        check_tg_write(c, i);
        c->watomic = how & ATOMIC ? 1 : 0;
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
static void check_dev_race(const struct range *r, size_t i, int how) {
    struct worker *w = rt_worker;
    const uint32_t *n = rt_grid.d->ntptg;
    uint32_t nt = n[0] * n[1] * n[2], me = w->tgindex * nt + rt_fiber->pos.tiitg;
    struct dev_cell *c = &r->shadow[i];
    if (c->serial != rt_grid.serial) {
        memset(c, 0, sizeof *c);
        c->serial = rt_grid.serial;
    }
    int ordered = c->wthr == me || (c->wthr / nt == w->tgindex && c->wep < w->ep_dev);
    if (c->wr && !(how & ATOMIC && c->wr > 1) && (!ordered || c->wr == 3))
        fail_race(r, i, how & WRITES ? "write after a write" : "read after a write", c->wthr);
    if (how & WRITES) {
        if (c->rep && (c->rmulti == 2 || c->rthr / nt != w->tgindex ||
                       (c->rep == w->ep_dev && (c->rmulti == 1 || c->rthr != me))))
            fail_race(r, i, "write after a read", c->rthr);
        if (!(how & ATOMIC))
            c->wr = 1;
        else
            c->wr = c->wr == 3 || (c->wr == 2 && c->wthr / nt != w->tgindex) ? 3 : 2;
        c->wthr = me;
        c->wep = (uint16_t)w->ep_dev;
    }
    if (how & ATOMIC || !(how & READS)) return;
    if (c->rep && c->rthr != me) {
        if (c->rthr / nt != w->tgindex)
            c->rmulti = 2;
        else if (c->rmulti < 2)
            c->rmulti = c->rep == w->ep_dev;
    }
    c->rthr = me;
    c->rep = (uint16_t)w->ep_dev;
}
/* Definitions: msl_traffic.h. */
static void meter(struct range *r, size_t offset, uint32_t n, int how) {
    uint32_t window = rt_worker->window;
    uint8_t lane = rt_fiber->lane;
    for (struct traffic_cell *c = &r->traffic[offset]; c < &r->traffic[offset + n]; c++) {
        if (how & WRITES) {
            r->bytes.written++;
            r->bytes.written_once += !c->written;
            c->written = 1;
        }
        if (!(how & READS)) continue;
        r->bytes.read_once += !c->read;
        c->read = 1;
        if (c->window != window) {
            c->window = window;
            c->most = 0;
            c->count = 0;
        }
        if (c->lane != lane) c->count = 0;
        c->lane = lane;
        c->count++;
        if (c->count <= c->most) continue;
        c->most = c->count;
        r->bytes.read++;
    }
}
/* Whether another argument may write where this one is const. */
static int writable_elsewhere(uintptr_t a) {
    for (int i = 0; i < rt_grid.nrg; i++) {
        const struct range *r = &rt_grid.rg[i];
        if (r->writable && a - r->lo < r->hi - r->lo) return 1;
    }
    return 0;
}
static void check_dev(struct range *r, uintptr_t a, uint32_t n, int how) {
    if (a + n > r->hi) {
        char b[256];
        rt_describe(a + n, b, sizeof b);
        rt_fail("%s of %u bytes ends %s", how_called(how), n, b);
    }
    if (how & WRITES && !r->writable && !writable_elsewhere(a))
        rt_fail("write to buffer(%d) '%s', bound const", r->index, r->what);
    if (r->traffic) meter(r, a - r->lo, n, how);
    if (!r->shadow) return;
    for (size_t i = a - r->lo; i < a - r->lo + n; i++)
        check_dev_race(r, i, how);
}
/* A GPU loads a vector only from a multiple of its size. An argument struct set by setBytes counts
 * as aligned at its start, wherever the stand-in stores it. */
static void check_alignment(uintptr_t a, uint32_t align, uint32_t n, int how) {
    if (a & (align - 1))
        rt_fail("misaligned %s of %u bytes: %u past a multiple of %u", how_called(how), n,
                (uint32_t)(a & (align - 1)), align);
}

/* align: of the accessed type, 1 if unknown. */
static void check_access(const volatile void *p, uint32_t n, int how, uint32_t align, void *pc) {
    struct worker *w = rt_worker;
    const msl_dispatch *d = rt_grid.d;
    uintptr_t a = (uintptr_t)p;
    if (!w || !w->in_fiber) return;
    if (how & WRITES) w->st.stores++;
    if (how & READS) w->st.loads++;
    if (inside(a, w->stacks, STACKS_BYTES)) return;
    rt_pc = pc;
    if (inside(a, w->tgbase, ARENA)) {
        check_tg((uint32_t)(a - (uintptr_t)w->tgbase), n, how);
        check_alignment(a, align, n, how);
        rt_pc = NULL;
        return;
    }
    for (int i = 0; i < rt_grid.nrg; i++) {
        struct range *r = &rt_grid.rg[i];
        if (a - r->lo >= r->hi - r->lo) continue;
        check_dev(r, a, n, how);
        check_alignment(r->constant ? a - r->lo : a, align, n, how);
        rt_pc = NULL;
        return;
    }
    if (inside(a, d->dlbase_lo, (uintptr_t)d->dlbase_hi - (uintptr_t)d->dlbase_lo)) {
        if (how & WRITES) rt_fail("write to program-scope data");
    } else if (!inside(a, w, sizeof *w)) { /* the slots of the simdgroups lie in the worker */
        char b[256];
        rt_describe(a, b, sizeof b);
        rt_fail("%s of %u bytes out of bounds: %s", how_called(how), n, b);
    }
    rt_pc = NULL;
}
void msl_rt_atomic(const volatile void *p, uint32_t sz, uint32_t kind, uint32_t line) {
    (void)line; /* the caller's address identifies the line */
    int how = kind == MSL_AT_LOAD ? READS : kind == MSL_AT_STORE ? WRITES : READS | WRITES;
    check_access(p, sz, how | ATOMIC, sz, __builtin_return_address(0));
}

/* ---- the hooks; clang's instrumentation defines their names and signatures ---- */

#define PC __builtin_return_address(0)
#define HOOK(name, n, how, align)                                                                  \
    void __tsan_##name##n(void *p);                                                                \
    void __tsan_##name##n(void *p) {                                                               \
        check_access(p, n, how, align, PC);                                                        \
    }
#define HOOKS(n)                                                                                   \
    HOOK(read, n, READS, n)                                                                        \
    HOOK(write, n, WRITES, n)                                                                      \
    HOOK(read_write, n, READS | WRITES, n)                                                         \
    HOOK(unaligned_read, n, READS, 1)                                                              \
    HOOK(unaligned_write, n, WRITES, 1)                                                            \
    HOOK(unaligned_read_write, n, READS | WRITES, 1)
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
/* Copies of whole structs: clang before 15 does not instrument these calls, so metalcc wraps
 * them. */
#define COPY_HOOKS(prefix)                                                                         \
    void *prefix##memcpy(void *d, const void *s, size_t n);                                        \
    void *prefix##memmove(void *d, const void *s, size_t n);                                       \
    void *prefix##memset(void *d, int c, size_t n);                                                \
    void *prefix##memcpy(void *d, const void *s, size_t n) {                                       \
        check_access(s, (uint32_t)n, READS, 1, PC);                                                \
        check_access(d, (uint32_t)n, WRITES, 1, PC);                                               \
        return memcpy(d, s, n);                                                                    \
    }                                                                                              \
    void *prefix##memmove(void *d, const void *s, size_t n) {                                      \
        check_access(s, (uint32_t)n, READS, 1, PC);                                                \
        check_access(d, (uint32_t)n, WRITES, 1, PC);                                               \
        return memmove(d, s, n);                                                                   \
    }                                                                                              \
    void *prefix##memset(void *d, int c, size_t n) {                                               \
        check_access(d, (uint32_t)n, WRITES, 1, PC);                                               \
        return memset(d, c, n);                                                                    \
    }
COPY_HOOKS(__tsan_)
COPY_HOOKS(__wrap_)
