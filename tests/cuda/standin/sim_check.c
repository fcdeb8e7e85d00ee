/* sim_check.c - checks every memory access of a kernel, in a build with CUDA_CHECK=1: the compiler
 * calls __tsan_readN or __tsan_writeN before each access (ThreadSanitizer's instrumentation; its
 * library is not linked). It reports accesses outside device memory, the launch's shared memory and
 * the thread's own memory, writes to device memory before pdl_wait(), and races in shared memory:
 * two accesses by different threads, one of them a write that changes bytes, without a
 * __syncthreads between them, or within a warp a __syncwarp. Shuffles and votes do not order
 * memory. */
#include "sim_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef CUDASIM_CHECK
/* The last write and the last reads of a byte of shared memory. An epoch ends at each barrier and
 * each block's end, a sync at each __syncwarp of the warp. */
struct cell {
    uint32_t w_epoch, w_sync, r_epoch, r_sync;
    uint16_t w_thread, r_thread,
        r_foreign; /* r_foreign: a reader of another warp than r_thread's */
    uint8_t w_atomic, has_foreign;
};
static struct cell *cells; /* SIM_SHARED_MAX of dynamic shared memory, as many of static */

struct access {
    uintptr_t at;
    uint32_t n;
    enum sim_access how;
    void *pc;
};

/* A write over another thread's write. It may store the same bytes, so it is checked afterwards. */
static struct {
    struct access a;
    uint32_t with;
    uint8_t was[16];
} unsettled;

static const char *source_line(void *pc) {
    static char line[512];
    char command[128];
    snprintf(command, sizeof command, "addr2line -Cfpie /proc/%d/exe 0x%lx 2>/dev/null",
             (int)getpid(), (unsigned long)((uintptr_t)pc - 1 - sim_program_bias()));
    FILE *f = popen(command, "r");
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    line[n] = 0;
    if (f) pclose(f);
    return line;
}

static void fail(const struct access *a, const char *what) {
    cudasim_fail("%s of %u bytes at %p: %s\n  %s", a->how == SIM_READ ? "read" : "write", a->n,
                 (void *)a->at, what, a->pc ? source_line(a->pc) : "");
}

static void race(const struct access *a, const char *with, uint32_t thread) {
    char what[160];
    snprintf(what, sizeof what,
             "shared memory: a race with a %s by thread %u (linear) of the block", with, thread);
    fail(a, what);
}

void sim_settle(void) {
    struct access a = unsettled.a;
    unsettled.a.n = 0;
    if (a.n && memcmp(unsettled.was, (const void *)a.at, a.n)) race(&a, "write", unsettled.with);
}

static bool apart(const struct sim_now *me, uint32_t thread, uint32_t sync) {
    return thread != me->thread && (thread / SIM_WARP != me->thread / SIM_WARP || sync == me->sync);
}

static void check_cell(struct cell *c, const struct access *a, const struct sim_now *me) {
    bool atomic = a->how == SIM_ATOMIC;
    if (c->w_epoch == me->epoch && !(atomic && c->w_atomic) && apart(me, c->w_thread, c->w_sync)) {
        if (a->how != SIM_WRITE || c->w_atomic || a->n > sizeof unsettled.was)
            race(a, c->w_atomic ? "atomic operation" : "write", c->w_thread);
        unsettled.a = *a;
        unsettled.with = c->w_thread;
        memcpy(unsettled.was, (const void *)a->at, a->n);
    }
    if (a->how == SIM_READ) {
        if (c->r_epoch != me->epoch)
            c->has_foreign = 0;
        else if (c->r_thread / SIM_WARP != me->thread / SIM_WARP) {
            c->r_foreign = c->r_thread;
            c->has_foreign = 1;
        }
        c->r_epoch = me->epoch;
        c->r_sync = me->sync;
        c->r_thread = (uint16_t)me->thread;
        return;
    }
    if (c->r_epoch == me->epoch) {
        if (apart(me, c->r_thread, c->r_sync)) race(a, "read", c->r_thread);
        if (c->has_foreign && c->r_foreign / SIM_WARP != me->thread / SIM_WARP)
            race(a, "read", c->r_foreign);
    }
    c->w_epoch = me->epoch;
    c->w_sync = me->sync;
    c->w_thread = (uint16_t)me->thread;
    c->w_atomic = atomic;
}

static void check_shared(size_t offset, const struct access *a, const struct sim_now *me) {
    if (!cells && !(cells = calloc(2 * SIM_SHARED_MAX, sizeof *cells)))
        cudasim_fail("no memory for the stand-in");
    for (uint32_t i = 0; i < a->n; i++)
        check_cell(&cells[offset + i], a, me);
}

static bool in_shared(const struct access *a, const struct sim_now *me) {
    uintptr_t low = (uintptr_t)me->shared_low, at = (uintptr_t)cudasim_shared_bytes;
    if (a->at >= low && a->at < low + SIM_SHARED_MAX + 4096) {
        if (a->at < at || a->at + a->n > at + me->shared_bytes)
            fail(a, "outside the dynamic shared memory of the launch");
        check_shared(a->at - low, a, me);
        return true;
    }
    size_t offset = SIM_SHARED_MAX;
    for (size_t i = 0; i < me->f->n_statics; i++) {
        at = (uintptr_t)me->f->statics[i].at;
        if (a->at >= at && a->at < at + me->f->statics[i].bytes) {
            if (a->at + a->n > at + me->f->statics[i].bytes)
                fail(a, "beyond a __shared__ variable");
            check_shared(offset + a->at - at, a, me);
            return true;
        }
        offset += me->f->statics[i].bytes;
    }
    return false;
}

void sim_access(const void *p, size_t n, enum sim_access how, uint32_t thread, void *pc) {
    struct sim_now me;
    sim_settle();
    if (!n || !sim_now(&me, thread)) return;
    struct access a = {(uintptr_t)p, (uint32_t)n, how, pc};
    if (a.at >= me.stack_low && a.at < me.stack_high) return;
    if (in_shared(&a, &me)) return;
    uint64_t left;
    if (sim_where(p, &left) != SIM_PAGEABLE) {
        if (n > left) fail(&a, "beyond the end of the allocation");
        if (how != SIM_READ && !me.pdl) fail(&a, "device memory is written before pdl_wait()");
        return;
    }
    if (how == SIM_READ && (sim_in_program(p) || (a.at >= me.args && a.at + n <= me.args_end)))
        return;
    fail(&a, "not memory of the device");
}

void cudasim_access(const void *p, size_t n, int atomic) {
    sim_access(p, n, atomic ? SIM_ATOMIC : SIM_READ, SIM_ME, __builtin_return_address(0));
}

#define READ(name, n)                                                                              \
    void name(void *p);                                                                            \
    void name(void *p) {                                                                           \
        sim_access(p, n, SIM_READ, SIM_ME, __builtin_return_address(0));                           \
    }
#define WRITE(name, n)                                                                             \
    void name(void *p);                                                                            \
    void name(void *p) {                                                                           \
        sim_access(p, n, SIM_WRITE, SIM_ME, __builtin_return_address(0));                          \
    }
#define BOTH(n)                                                                                    \
    READ(__tsan_read##n, n)                                                                        \
    READ(__tsan_unaligned_read##n, n)                                                              \
    WRITE(__tsan_write##n, n)                                                                      \
    WRITE(__tsan_unaligned_write##n, n)
BOTH(1)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)

void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *p);
void __tsan_func_entry(void *p) {
    (void)p;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **p, void *v);
void __tsan_vptr_update(void **p, void *v) {
    (void)p, (void)v;
}
void __tsan_read_range(void *p, size_t n);
void __tsan_read_range(void *p, size_t n) {
    sim_access(p, n, SIM_READ, SIM_ME, __builtin_return_address(0));
}
void __tsan_write_range(void *p, size_t n);
void __tsan_write_range(void *p, size_t n) {
    sim_access(p, n, SIM_WRITE, SIM_ME, __builtin_return_address(0));
}
#else
void sim_settle(void) {}
void sim_access(const void *p, size_t n, enum sim_access how, uint32_t thread, void *pc) {
    (void)p, (void)n, (void)how, (void)thread, (void)pc;
}
#endif
