/* sim_block.c - one block: its threads as fibers on the launching thread, warp functions, barriers,
 * asynchronous copies, shared memory. A thread runs until it waits for others; threads that never
 * wait run one after the other on one stack. Divergence that is undefined on a GPU is reported. */
#include "sim_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* tests/metal/standin/runtime/msl_switch.S */
void msl_switch(void **save, void *to);
void msl_fiber_start(void);

enum { STACK = 256 << 10, GUARD = 4096 };

/* A thread's copies in flight: group n is the n-th committed one. */
struct copy {
    void *to;
    const void *from;
    uint32_t bytes, fill, group;
};
struct copies {
    struct copy *of;
    uint32_t n, cap, groups;
};

/* A copy that arrives at a barrier, or (arrives) an arrival after copies. */
struct bulk {
    void *to;
    const void *from;
    uint32_t bytes, fill; /* fill: zeros after them */
    uint64_t *bar;        /* NULL: the bytes are not counted */
    bool arrives;
};

struct cudasim_thread {
    uint3 idx;
    void *sp; /* NULL: not started */
    char *stack;
    uint16_t index;
    uint8_t lane, warp;
    bool ended, pdl;
    int predicate;
    struct copies copies;
    const uint64_t *mbar; /* waits for the end of its phase */
};

/* Lanes of a warp that wait for each other: those that passed the same mask. */
struct meeting {
    uint32_t mask, here;
    enum cudasim_op op;
    const char *file;
    int line;
};
struct warp {
    uint32_t live, ready, barrier, sync;
    uint32_t n_meetings;
    struct meeting m[SIM_WARP];
    struct cudasim_lane *io[SIM_WARP];
    uint8_t order[SIM_WARP]; /* lane at each place; ready has places */
    uint8_t place[SIM_WARP];
};

/* Two: while a block of one kernel waits in pdl_wait, the previous kernel runs. */
static struct block {
    const struct sim_kernel *k;
    const struct sim_function *f;
    const struct sim_kernel *before; /* runs when all threads of this block are in pdl_wait */
    struct cudasim_thread t[SIM_MAX_THREADS], *now;
    struct warp w[SIM_MAX_WARPS];
    uint8_t order[SIM_MAX_WARPS];
    uint32_t n_threads, n_warps, cursor, n_ended, n_barrier, n_predicate, predicates;
    const char *file;
    int line;
    struct bulk *bulk; /* (n_bulk) under way */
    uint32_t n_bulk, cap_bulk;
    void *main_sp;
    char *stacks[SIM_MAX_THREADS];
    uint32_t n_stacks, n_made;
    char *shared; /* end of the mapping: an unreadable page follows */
} blocks[2], *s = blocks;
static uint32_t epoch; /* one more at each barrier and block */

const uint3 *cudasim_thread_idx;
uint3 cudasim_block_idx;
dim3 cudasim_block_dim, cudasim_grid_dim;
void *cudasim_shared_bytes;

void cudasim_fail(const char *format, ...) {
    fflush(stdout);
    fprintf(stderr, "cudasim: ");
    if (s->k) {
        fprintf(stderr, "kernel %s, block (%u, %u, %u)", s->f->name, cudasim_block_idx.x,
                cudasim_block_idx.y, cudasim_block_idx.z);
        if (s->now)
            fprintf(stderr, ", thread (%u, %u, %u)", s->now->idx.x, s->now->idx.y, s->now->idx.z);
        fprintf(stderr, ": ");
    }
    va_list ap;
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

static void *must(void *p) {
    if (!p) cudasim_fail("no memory for the stand-in");
    return p;
}

static void *map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) cudasim_fail("no memory for the stand-in");
    return p;
}

static bool same_place(const char *file, int line, const char *file2, int line2) {
    return line == line2 && (file == file2 || !strcmp(file, file2));
}

/* ---- choice of the next thread ---- */

static void shuffle(uint8_t *a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        a[i] = (uint8_t)i;
    if (!sim_options()->shuffle) return;
    for (uint32_t i = n; i-- > 1;) {
        uint32_t j = (uint32_t)(sim_random() % (i + 1));
        uint8_t x = a[i];
        a[i] = a[j];
        a[j] = x;
    }
}

static void make_ready(struct warp *w, uint32_t lanes) {
    if (!sim_options()->shuffle) {
        w->ready |= lanes;
        return;
    }
    for (; lanes; lanes &= lanes - 1)
        w->ready |= 1u << w->place[__builtin_ctz(lanes)];
}

static struct cudasim_thread *take(struct warp *w) {
    uint32_t place = (uint32_t)__builtin_ctz(w->ready);
    w->ready &= w->ready - 1;
    return &s->t[(w - s->w) * SIM_WARP + w->order[place]];
}

/* All live lanes of a meeting have arrived: computes the result and resumes them, except those of
 * minus. */
static void complete(struct warp *w, struct meeting *m, uint32_t minus) {
    struct meeting done = *m;
    *m = w->m[--w->n_meetings];
    if (done.op >= CUDASIM_MMA_F16 && done.here != 0xffffffffu)
        cudasim_fail("%s:%d: %s by lanes %08x: all 32 must be there", done.file, done.line,
                     sim_op_name(done.op), done.here);
    sim_counts.warp_ops++;
    w->sync += done.op == CUDASIM_SYNCWARP;
    sim_warp_run(done.op, done.here, (uint32_t)(w - s->w) * SIM_WARP, w->io);
    make_ready(w, done.here & ~minus);
}

static void report_stuck(void) {
    char text[2048];
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_warps && n < sizeof text - 200; i++) {
        struct warp *w = &s->w[i];
        for (uint32_t j = 0; j < w->n_meetings && n < sizeof text - 200; j++)
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  "\n  warp %u: lanes %08x wait at %s, %s:%d, for lanes %08x", i,
                                  w->m[j].here, sim_op_name(w->m[j].op), w->m[j].file, w->m[j].line,
                                  w->m[j].mask & ~w->m[j].here);
        if (w->barrier && (w->n_meetings || w->barrier != w->live))
            n +=
                (size_t)snprintf(text + n, sizeof text - n, "\n  warp %u: lanes %08x wait at %s:%d",
                                 i, w->barrier, s->file, s->line);
    }
    for (uint32_t i = 0; i < s->n_threads && n < sizeof text - 100; i++)
        if (s->t[i].mbar)
            n +=
                (size_t)snprintf(text + n, sizeof text - n, "\n  thread %u waits at the barrier %p",
                                 i, (const void *)s->t[i].mbar);
    s->now = NULL;
    cudasim_fail("threads wait for others that never come: divergence%.*s", (int)n, text);
}

/* ---- barriers in shared memory: the layout of their eight bytes ---- */

enum { MBAR_MADE = 0x5a, MBAR_MAX_TX = (1 << 20) - 1 /* PTX ISA */ };
struct mbar {
    uint64_t made : 8, parity : 1, count : 11, pending : 11, unused : 1;
    int64_t tx : 32;
};
_Static_assert(sizeof(struct mbar) == 8, "an mbarrier's size");

static struct mbar *mbar_of(uint64_t *bar, const char *file, int line) {
    struct mbar *m = (struct mbar *)bar;
    if ((uintptr_t)bar % 8 || m->made != MBAR_MADE || m->unused)
        cudasim_fail("%s:%d: no barrier was made here", file, line);
    return m;
}

/* The phase ends when all arrivals and bytes are there: to the check of races, a barrier of the
 * whole block. */
static void mbar_settle(struct mbar *m) {
    if (m->pending || m->tx) return;
    m->parity = !m->parity;
    m->pending = m->count;
    epoch++;
    for (uint32_t i = 0; i < s->n_threads; i++)
        if (s->t[i].mbar == (uint64_t *)m) {
            s->t[i].mbar = NULL;
            make_ready(&s->w[s->t[i].warp], 1u << s->t[i].lane);
        }
    s->cursor = 0;
}

void cudasim_mbar_init(uint64_t *bar, uint32_t count, const char *file, int line) {
    if ((uintptr_t)bar % 8 || !count || count > SIM_MAX_THREADS)
        cudasim_fail("%s:%d: a barrier at %p for %u arrivals", file, line, (void *)bar, count);
    *(struct mbar *)bar = (struct mbar){.made = MBAR_MADE, .count = count, .pending = count};
}

void cudasim_mbar_arrive(uint64_t *bar, const char *file, int line) {
    struct mbar *m = mbar_of(bar, file, line);
    sim_settle();
    if (!m->pending) cudasim_fail("%s:%d: one arrival too many", file, line);
    m->pending--;
    mbar_settle(m);
}

void cudasim_bulk_expect(uint64_t *bar, uint32_t bytes, const char *file, int line) {
    struct mbar *m = mbar_of(bar, file, line);
    if (m->tx + (int64_t)bytes > MBAR_MAX_TX)
        cudasim_fail("%s:%d: more bytes expected than a barrier counts", file, line);
    m->tx += bytes;
}

static void bulk_add(struct bulk b) {
    if (s->n_bulk == s->cap_bulk) {
        s->cap_bulk = s->cap_bulk ? 2 * s->cap_bulk : 64;
        s->bulk = must(realloc(s->bulk, s->cap_bulk * sizeof *s->bulk));
    }
    s->bulk[s->n_bulk++] = b;
}

/* From now on the thread's copies belong to the barrier. */
void cudasim_async_arrive(uint64_t *bar, const char *file, int line) {
    struct copies *c = &s->now->copies;
    mbar_of(bar, file, line);
    for (uint32_t i = 0; i < c->n; i++)
        bulk_add(
            (struct bulk){c->of[i].to, c->of[i].from, c->of[i].bytes, c->of[i].fill, NULL, false});
    c->n = 0;
    bulk_add((struct bulk){.bar = bar, .arrives = true});
}

void cudasim_bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *bar,
                       const char *file, int line) {
    mbar_of(bar, file, line);
    if ((uintptr_t)shared % 16 || (uintptr_t)global % 16 || bytes % 16 || !bytes)
        cudasim_fail("%s:%d: copy of %u bytes from %p to %p: not aligned", file, line, bytes,
                     global, shared);
    sim_access(shared, bytes, SIM_COPY, SIM_ME, __builtin_return_address(0));
    sim_access(global, bytes, SIM_READ, SIM_ME, __builtin_return_address(0));
    bulk_add((struct bulk){shared, global, bytes, 0, bar, false});
    memset(shared, 0xff, bytes); /* it may arrive at any time from now on */
}

/* map: the output of the stand-in's cuTensorMapEncodeTiled, the plain form of
 * shaders/cuda/tensor_map.h. */
void cudasim_tensor_copy(void *shared, const uint64_t map[16], uint32_t row, uint32_t group,
                         uint32_t box_rows, uint32_t box_groups, uint64_t *bar, const char *file,
                         int line) {
    enum { UNITS = 8 };
    const uint32_t bytes = box_groups * box_rows * UNITS * 16;
    mbar_of(bar, file, line);
    if (!map[0] || !map[3]) cudasim_fail("%s:%d: no tensor map", file, line);
    if (map[4] && (map[4] != box_rows || map[5] != box_groups)) /* none before sm_90 */
        cudasim_fail("%s:%d: a box of %u x %u, the tensor map's is %u x %u", file, line, box_rows,
                     box_groups, (unsigned)map[4], (unsigned)map[5]);
    if ((uintptr_t)shared % 1024)
        cudasim_fail("%s:%d: tensor copy to %p: not aligned to 1024", file, line, shared);
    sim_access(shared, bytes, SIM_COPY, SIM_ME, __builtin_return_address(0));
    memset(shared, 0xff, bytes);
    for (uint32_t i = 0; i < bytes / 16; i++) {
        uint32_t u = i % UNITS, r = i / UNITS % box_rows, z = i / UNITS / box_rows;
        const char *from =
            (const char *)(uintptr_t)map[0] + (row + r) * map[1] + (group + z) * 128 + u * 16;
        bool there = row + r < map[2] && group + z < map[3];
        if (there) sim_access(from, 16, SIM_READ, SIM_ME, __builtin_return_address(0));
        bulk_add((struct bulk){(char *)shared + z * box_rows * 128 + r * 128 + (u ^ r % 8) * 16,
                               there ? from : NULL, there ? 16 : 0, there ? 0 : 16, bar, false});
    }
}

/* Every thread waits: the copies in flight arrive. */
static void bulk_arrives(void) {
    uint32_t n = s->n_bulk;
    s->n_bulk = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct bulk b = s->bulk[i];
        struct mbar *m = (struct mbar *)b.bar;
        if (b.bytes) memcpy(b.to, b.from, b.bytes);
        if (b.fill) memset((char *)b.to + b.bytes, 0, b.fill);
        if (!m) continue;
        if (b.arrives && !m->pending) cudasim_fail("one arrival too many after copies");
        if (b.arrives) m->pending--;
        m->tx -= b.bytes + b.fill;
        if (m->tx < 0) cudasim_fail("more bytes came than a barrier was told to expect");
        mbar_settle(m);
    }
}

static const char in_pdl_wait[] = "pdl_wait";

/* Runs the previous kernel, without changing this kernel's state. */
static void run_before(void) {
    struct block *me = s;
    const struct sim_kernel *before = me->before;
    const uint3 *thread = cudasim_thread_idx;
    uint3 block = cudasim_block_idx;
    dim3 block_dim = cudasim_block_dim, grid_dim = cudasim_grid_dim;
    void *shared = cudasim_shared_bytes;
    char *statics = must(malloc(me->f->static_bytes + 1)), *p = statics;
    for (size_t i = 0; i < me->f->n_statics; p += me->f->statics[i++].bytes)
        memcpy(p, me->f->statics[i].at, me->f->statics[i].bytes);
    me->before = NULL;
    s = me == blocks ? blocks + 1 : blocks;
    sim_kernel_run(before, NULL);
    s = me;
    p = statics;
    for (size_t i = 0; i < me->f->n_statics; p += me->f->statics[i++].bytes)
        memcpy(me->f->statics[i].at, p, me->f->statics[i].bytes);
    free(statics);
    cudasim_thread_idx = thread;
    cudasim_block_idx = block;
    cudasim_block_dim = block_dim;
    cudasim_grid_dim = grid_dim;
    cudasim_shared_bytes = shared;
}

static void release_barrier(void) {
    if (s->before && s->file == in_pdl_wait) run_before();
    if (s->n_ended)
        cudasim_fail("%s:%d: %u threads wait in __syncthreads, %u have ended", s->file, s->line,
                     s->n_barrier, s->n_ended);
    sim_counts.barriers++;
    epoch++;
    s->predicates = s->n_predicate;
    s->n_barrier = s->n_predicate = s->cursor = 0;
    for (uint32_t i = 0; i < s->n_warps; i++) {
        make_ready(&s->w[i], s->w[i].barrier);
        s->w[i].barrier = 0;
    }
    shuffle(s->order, s->n_warps);
}

/* The running thread waits or has ended: returns the next one to run; NULL: all have ended. */
static struct cudasim_thread *pick(void) {
    struct warp *w = &s->w[s->now->warp];
    if (w->ready) return take(w);
    for (;;) {
        for (; s->cursor < s->n_warps; s->cursor++)
            if (s->w[s->order[s->cursor]].ready) return take(&s->w[s->order[s->cursor]]);
        if (s->n_ended == s->n_threads) return NULL;
        if (s->n_barrier + s->n_ended == s->n_threads) {
            release_barrier();
            continue;
        }
        if (!s->n_bulk) report_stuck();
        bulk_arrives();
        s->cursor = 0;
    }
}

static void go_on(struct cudasim_thread *t) {
    s->now = t;
    cudasim_thread_idx = &t->idx;
}

/* A lane has ended: others may wait for it alone. */
static void end_thread(struct cudasim_thread *t) {
    struct warp *w = &s->w[t->warp];
    sim_settle();
    if (!t->pdl) cudasim_fail("the thread ended without pdl_wait()");
    t->ended = true;
    s->n_ended++;
    w->live &= ~(1u << t->lane);
    for (uint32_t i = 0; i < w->n_meetings;) {
        struct meeting *m = &w->m[i];
        if (m->here == (m->mask & w->live))
            complete(w, m, 0);
        else
            i++;
    }
}

static void fiber_main(void) {
    for (;;) {
        struct cudasim_thread *t = s->now;
        ((void (*)(const void *))s->k->fn)(s->k->args);
        end_thread(t);
        struct cudasim_thread *n = pick();
        if (n && !n->sp) { /* not started: it takes this stack */
            n->stack = t->stack;
            go_on(n);
            continue;
        }
        s->stacks[s->n_stacks++] = t->stack;
        void *dead;
        if (n) go_on(n);
        msl_switch(&dead, n ? n->sp : s->main_sp);
        __builtin_unreachable();
    }
}

/* The initial stack that msl_switch pops; each starts at another offset of its page, to spread over
 * the cache's sets. */
static void start(struct cudasim_thread *t) {
    if (!s->n_stacks) {
        char *low = map(STACK);
        if (mprotect(low, GUARD, PROT_NONE)) cudasim_fail("no guard page");
        s->stacks[s->n_stacks++] = low + STACK - s->n_made++ * 320 % 4096 / 64 * 64;
    }
    t->stack = s->stacks[--s->n_stacks];
    uintptr_t *sp = (uintptr_t *)t->stack;
    *--sp = 0;
    *--sp = 0;
    *--sp = (uintptr_t)msl_fiber_start;
    *--sp = 0;                     /* rbp */
    *--sp = (uintptr_t)fiber_main; /* rbx */
    t->sp = sp - 4;                /* r12-r15 */
    memset(t->sp, 0, 4 * sizeof *sp);
}

static void wait_for_others(void) {
    struct cudasim_thread *me = s->now, *n = pick();
    if (n == me) return;
    if (!n->sp) start(n);
    sim_counts.switches++;
    go_on(n);
    msl_switch(&me->sp, n->sp);
}

/* ---- functions that kernels call ---- */

void cudasim_warp(enum cudasim_op op, uint32_t mask, struct cudasim_lane *l, const char *file,
                  int line) {
    struct cudasim_thread *t = s->now;
    struct warp *w = &s->w[t->warp];
    uint32_t bit = 1u << t->lane;
    sim_settle();
    if (!(mask & bit))
        cudasim_fail("%s:%d: %s: the mask %08x lacks the calling lane %u", file, line,
                     sim_op_name(op), mask, t->lane);
    struct meeting *m = w->m;
    while (m < w->m + w->n_meetings && m->mask != mask)
        m++;
    if (m == w->m + w->n_meetings) {
        for (struct meeting *o = w->m; o < m; o++)
            if (o->mask & bit)
                cudasim_fail("%s:%d: %s with mask %08x: lanes %08x wait for this lane at %s, "
                             "%s:%d, with mask %08x",
                             file, line, sim_op_name(op), mask, o->here, sim_op_name(o->op),
                             o->file, o->line, o->mask);
        w->n_meetings++;
        *m = (struct meeting){.mask = mask, .op = op, .file = file, .line = line};
    } else if (m->op != op || !same_place(m->file, m->line, file, line))
        cudasim_fail("%s:%d: %s: divergence: lanes %08x of the warp are at %s, %s:%d", file, line,
                     sim_op_name(op), m->here, sim_op_name(m->op), m->file, m->line);
    l->pc = __builtin_return_address(0);
    w->io[t->lane] = l;
    m->here |= bit;
    if (m->here == (mask & w->live))
        complete(w, m, bit);
    else
        wait_for_others();
}

int cudasim_barrier(int predicate, const char *file, int line) {
    struct cudasim_thread *t = s->now;
    sim_settle();
    if (!s->n_barrier) {
        s->file = file;
        s->line = line;
    } else if (!same_place(s->file, s->line, file, line))
        cudasim_fail("%s:%d: divergence: other threads are in __syncthreads at %s:%d", file, line,
                     s->file, s->line);
    s->n_barrier++;
    s->n_predicate += predicate != 0;
    s->w[t->warp].barrier |= 1u << t->lane;
    wait_for_others();
    return (int)s->predicates;
}

void cudasim_mbar_wait(uint64_t *bar, uint32_t parity, const char *file, int line) {
    struct mbar *m = mbar_of(bar, file, line);
    sim_settle();
    if (parity > 1) cudasim_fail("%s:%d: parity %u", file, line, parity);
    if (m->parity != parity) return;
    s->now->mbar = bar;
    wait_for_others();
}

void cudasim_pdl_wait(void) {
    s->now->pdl = true;
    if (s->before) cudasim_barrier(0, in_pdl_wait, 0);
}

/* ---- asynchronous copies: the bytes arrive when a thread waits for them, not before ---- */

void cudasim_copy16(void *shared, const void *global, size_t bytes, size_t from, const char *file,
                    int line) {
    struct copies *c = &s->now->copies;
    if ((uintptr_t)shared % bytes || (from && (uintptr_t)global % bytes))
        cudasim_fail("%s:%d: copy of %zu bytes from %p to %p: not aligned", file, line, bytes,
                     global, shared);
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 64;
        c->of = must(realloc(c->of, c->cap * sizeof *c->of));
    }
    sim_access(shared, bytes, SIM_COPY, SIM_ME, __builtin_return_address(0));
    sim_access(global, from, SIM_READ, SIM_ME, __builtin_return_address(0));
    c->of[c->n++] =
        (struct copy){shared, global, (uint32_t)from, (uint32_t)(bytes - from), c->groups};
    memset(shared, 0xff, bytes); /* it may arrive at any time from now on */
}

void cudasim_commit(void) {
    s->now->copies.groups++;
}

void cudasim_wait(int n) {
    struct copies *c = &s->now->copies;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        struct copy *p = &c->of[i];
        if (p->group + (uint32_t)n >= c->groups) {
            c->of[kept++] = *p;
            continue;
        }
        sim_access(p->to, p->bytes + p->fill, SIM_COPY, SIM_ME, __builtin_return_address(0));
        memcpy(p->to, p->from, p->bytes);
        memset((char *)p->to + p->bytes, 0, p->fill);
    }
    c->n = kept;
}

bool sim_now(struct sim_now *out, uint32_t thread) {
    const struct cudasim_thread *t = s->now;
    if (!t) return false;
    if (thread != SIM_ME) t = &s->t[thread];
    *out = (struct sim_now){
        .f = s->f,
        .thread = t->index,
        .epoch = epoch,
        .sync = s->w[t->warp].sync,
        .pdl = t->pdl,
        .stack_low = (uintptr_t)s->now->stack - STACK,
        .stack_high = (uintptr_t)s->now->stack,
        .args = (uintptr_t)s->k->args,
        .args_end = (uintptr_t)s->k->args + s->k->args_bytes,
        .shared_low = s->shared - SIM_SHARED_MAX,
        .shared_bytes = s->k->shared,
    };
    return true;
}

/* ---- a block, a grid ---- */

static void init_threads(void) {
    const dim3 *b = &s->k->block;
    for (uint32_t i = 0; i < s->n_threads; i++) {
        struct cudasim_thread *t = &s->t[i];
        struct copies copies = t->copies;
        copies.n = copies.groups = 0;
        *t = (struct cudasim_thread){
            .idx = {i % b->x, i / b->x % b->y, i / b->x / b->y},
            .index = (uint16_t)i,
            .lane = (uint8_t)(i % SIM_WARP),
            .warp = (uint8_t)(i / SIM_WARP),
            .copies = copies,
        };
    }
    for (uint32_t i = 0; i < s->n_warps; i++) {
        struct warp *w = &s->w[i];
        uint32_t n = s->n_threads - i * SIM_WARP;
        w->live = n >= SIM_WARP ? 0xffffffffu : (1u << n) - 1;
        w->ready = w->barrier = w->n_meetings = w->sync = 0;
        shuffle(w->order, SIM_WARP);
        for (uint32_t j = 0; j < SIM_WARP; j++)
            w->place[w->order[j]] = (uint8_t)j;
        make_ready(w, w->live);
    }
    shuffle(s->order, s->n_warps);
}

static void run_block(uint64_t index) {
    const dim3 *g = &s->k->grid;
    cudasim_block_idx = (uint3){(uint32_t)(index % g->x), (uint32_t)(index / g->x % g->y),
                                (uint32_t)(index / g->x / g->y)};
    s->n_ended = s->n_barrier = s->n_predicate = s->cursor = 0;
    memset(cudasim_shared_bytes, 0xff, s->k->shared); /* NaN, -1 */
    for (size_t i = 0; i < s->f->n_statics; i++)
        memset(s->f->statics[i].at, 0xff, s->f->statics[i].bytes);
    init_threads();
    sim_counts.blocks++;
    epoch++;
    sim_counts.threads += s->n_threads;
    struct cudasim_thread *t = take(&s->w[s->order[0]]);
    start(t);
    go_on(t);
    msl_switch(&s->main_sp, t->sp);
    if (s->n_bulk) cudasim_fail("the block has ended before copies that it began");
    s->now = NULL;
}

void sim_kernel_run(const struct sim_kernel *k, const struct sim_kernel *before) {
    s->before = before;
    s->f = sim_function(k->fn);
    s->k = k;
    s->n_threads = k->block.x * k->block.y * k->block.z;
    s->n_warps = (s->n_threads + SIM_WARP - 1) / SIM_WARP;
    if (!s->shared) {
        s->shared = (char *)map(SIM_SHARED_MAX + GUARD) + SIM_SHARED_MAX;
        if (mprotect(s->shared, GUARD, PROT_NONE)) cudasim_fail("no guard page");
    }
    cudasim_shared_bytes = s->shared - (k->shared + 15) / 16 * 16;
    SIM_ALLOW(s->shared - SIM_SHARED_MAX, SIM_SHARED_MAX);
    SIM_FORBID((char *)cudasim_shared_bytes + k->shared, -k->shared % 16);
    cudasim_block_dim = k->block;
    cudasim_grid_dim = k->grid;
    uint64_t n = (uint64_t)k->grid.x * k->grid.y * k->grid.z, add = 0, step = 1;
    if (sim_options()->shuffle) { /* a permutation: steps of a length coprime to n */
        add = sim_random() % n;
        step = sim_random() % n | 1;
        for (uint64_t a = step, b = n;; step++, a = step, b = n) {
            while (b) {
                uint64_t r = a % b;
                a = b;
                b = r;
            }
            if (a == 1) break;
        }
    }
    for (uint64_t i = 0; i < n; i++)
        run_block((i % n * (step % n) + add) % n);
    sim_counts.launches++;
    s->k = NULL;
}
