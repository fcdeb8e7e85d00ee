/* rt_int.h - private to runtime/: a worker with its current threadgroup, and the grid.
 *
 * The executor has process-wide state (one pool of workers; the worker of a thread), because shader
 * code has no context argument: it calls msl_rt_* like instructions of a GPU. */
#ifndef MSL_RT_INT_H
#define MSL_RT_INT_H
#include "msl_rt.h"
#include "msl_traffic.h"

#include <pthread.h>
#include <setjmp.h>
#include <time.h>

enum {
    STACK = 29 * 4096, /* of a fiber; not a power of two, so that fibers do not share cache sets */
    STACK_GUARD = 4096,
    STACK_MARGIN = 8 << 20, /* below the first stack, so that a large frame reaches no mapping */
    STACKS_BYTES = MSL_MAX_THREADS * STACK,
    SLOT = 64,        /* bytes that a lane can publish */
    ARENA = 64 << 10, /* threadgroup memory with red zones between the allocations */
    REDZONE = 64,
    MAX_WORKERS = 64
};
enum { FLAG_DEVICE = 1, FLAG_THREADGROUP = 2 }; /* bits of mem_flags, as in the shader headers */

/* Shadow of one byte of threadgroup memory (check mode): the last write and read, each with its
 * barrier interval (ep) and simdgroup_barrier interval (sep). */
struct tg_cell {
    uint32_t wep, wsep, rep, rsep;
    uint16_t wtid, rtid;
    uint8_t rmulti;  /* readers besides rtid: 1 in its simdgroup, 2 in another */
    uint8_t watomic; /* the write was atomic */
};
/* The same for a byte of a writable buffer; serial is that of the run. */
struct dev_cell {
    uint32_t serial, wthr, rthr;
    uint16_t wep, rep;
    uint8_t wr, rmulti; /* wr: 1 a write, 2 an atomic one, 3 atomic ones of several threadgroups */
};
/* The traffic meter's cell for a byte of a buffer: reads in the current window, in which a
 * simdgroup runs from one synchronization point to the next. */
struct traffic_cell {
    uint32_t window;
    uint16_t count, most; /* reads by the current lane; maximum of any lane */
    uint8_t lane, read, written;
};

struct simdgroup {
    uint32_t live, wait, bar, ready; /* masks of lanes; ready is in the shuffled order */
    uint32_t line, op, sz;           /* of the operation that lanes wait at */
    uint32_t par;                    /* which of the two sets of slots is being filled */
    uint32_t sep, rmask[2];
    msl_reduce_fn fn;
    uint8_t perm[MSL_SIMD], inv[MSL_SIMD], index;
    _Alignas(64) uint8_t slots[2][MSL_SIMD][SLOT];
    _Alignas(64) uint8_t result[2][SLOT];
};
struct fiber {
    void *sp;
    msl_threadpos pos;
    struct simdgroup *g;
    uint32_t tgvar, tgbytes; /* arena offset of the next variable; bytes taken so far */
    uint8_t lane;
};
struct worker {
    msl_launch launch;
    struct fiber t[MSL_MAX_THREADS];
    struct simdgroup sg[MSL_MAX_THREADS / MSL_SIMD];
    uint8_t sgorder[MSL_MAX_THREADS / MSL_SIMD];
    uint32_t nthr, nsg, cursor, nbar, ndone;
    uint32_t bline, bflags; /* of the barrier that threads wait at */
    uint32_t tgindex, ep_tg, ep_tg0, ep_dev;
    void *mainsp;
    sigjmp_buf jb;
    uint8_t *stacks;
    uint8_t *tgbase;            /* ARENA bytes between guard pages */
    uint32_t tgdyn, tgdynbytes; /* arena offset after / bytes of setThreadgroupMemoryLength */
    uint32_t tghi;              /* highest arena offset in use */
    uint32_t tgmost;            /* maximum bytes of a threadgroup */
    uint32_t window;            /* of the traffic meter, never 0 */
    uint8_t tgown[ARENA];       /* check mode: 0 is red zone */
    struct tg_cell *tgshadow;
    uint64_t rng;
    int in_fiber, failing;
    timer_t timer; /* the watchdog's; ticks without progress */
    int has_timer, ticks;
    uint64_t seen_threads;
    msl_stats st;
    void *altstack;
};

/* A bound buffer of the running dispatch. */
struct range {
    uintptr_t lo, hi;
    const char *what; /* label, or name of the argument, for reports */
    const char *name, *label;
    int index, writable, constant;
    struct dev_cell *shadow;      /* one per byte; check mode, if any argument is writable */
    struct traffic_cell *traffic; /* one per byte; check mode with the meter on */
    struct metalsim_bytes bytes;
};

/* The running dispatch and the pool of workers. mu guards want, busy, gen and the report;
 * msl_rt_run (under run_mu) writes the rest while no worker runs, and workers only read it. */
struct grid {
    pthread_mutex_t mu, run_mu;
    pthread_cond_t go, done;
    struct worker *w[MAX_WORKERS];
    int nw, want, busy;
    uint64_t gen;
    const msl_dispatch *d;
    msl_opts o;
    uint32_t next, total, stride, serial;
    struct range rg[MSL_MAX_BUF];
    int nrg;
    uint32_t tg_dynamic, tg_static; /* bytes of a threadgroup, maximum so far */
    char *err;
    size_t errlen;
    int nerr;
};
extern struct grid rt_grid;
extern __thread struct worker *rt_worker; /* of this thread while it runs threadgroups */
extern __thread struct fiber *rt_fiber;   /* the running fiber */
extern __thread void *rt_pc;              /* of the access being checked, or NULL */

static inline uint32_t rt_random(struct worker *w) {
    uint64_t x = w->rng;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    w->rng = x;
    return (uint32_t)(x * 0x2545F4914F6CDD1DULL >> 32);
}
static inline uint32_t rt_align16(uint32_t n) {
    return (n + 15) & ~15u;
}

/* Reports and abandons the threadgroup. Called on a fiber; does not return. */
_Noreturn void rt_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Describes the position of an address that belongs to no buffer. */
void rt_describe(uintptr_t a, char *b, size_t n);
void rt_install_fault_handler(void);
void rt_watchdog_install(void);
void rt_watchdog_start(struct worker *w);
void rt_watchdog_stop(struct worker *w);
int rt_traffic_on(void);
/* Adds the finished dispatch. Called with run_mu held. */
void rt_traffic_add(const msl_stats *before);
void rt_run_group(struct worker *w, uint32_t index);
#endif
