/* metalsim.h - what only the stand-in has: tests use it, the product never does.
 *
 * Everything here can be set by the environment too, for processes that know nothing of it:
 *   METALSIM_MODE=check     (the default) bounds, races, uninitialised threadgroup memory; =plain:
 * fast METALSIM_WORKERS=N      threads that execute threadgroups in plain mode (default 1; 0:
 * processors) METALSIM_SHUFFLE=0|1|2  order of threadgroups and threads; METALSIM_SEED=N
 *   METALSIM_MATRIX=tree    sums of matrix products in pairs, not as a chain of fma
 *   METALSIM_NOISE=SEED     fast math's functions are up to 2 ULP off (0: they are not)
 *   METALSIM_GUARD=1        a host access to a buffer that the GPU may be writing ends the process
 *                           with status 86; =2 also a host write to one that it may be reading
 *   METALSIM_DELAY_MS=N     a command buffer starts so late: what is read too early is old for sure
 *   METALSIM_FAMILY=NAME    metalsim_set_family; METALSIM_MAX_BUFFER=BYTES, METALSIM_MAX_THREADS=N
 *   METALSIM_FAIL=SPEC      metalsim_set_faults
 *   METALSIM_POISON=1       new buffers hold 0xFF bytes
 *   METALSIM_CACHE=dir      compiled shaders; METALSIM_CC=path the compiler driver */
#ifndef METALSIM_H
#define METALSIM_H

#include <stdint.h>

/* Misuse of the API. Without a handler the message is printed and the process aborts, as under
 * Apple's validation layer. May be called from any thread. Returns the handler before. */
typedef void (*metalsim_handler)(const char *message);
metalsim_handler metalsim_set_violation_handler(metalsim_handler handler);

/* Of dispatches from now on, and of libraries compiled from now on. workers 0: one a processor. */
void metalsim_set_options(int check, int workers, int shuffle, uint64_t seed);

/* Which GPU: apple7 (M1), apple8 (M2), apple9 (M3, M4; the default), apple10 (M5) or mac2 (an Intel
 * Mac: no simdgroup matrices). A source that uses what the family or the language version lacks is
 * refused when its library is made. -1: no such family. */
int metalsim_set_family(const char *name);

/* 0: the family's own. max_threads: of a threadgroup, as pipelines with many registers have it.
 * simd_width: what pipelines say theirs is; shaders run with 32 all the same. */
struct metalsim_limits {
    uint64_t max_buffer_bytes, working_set_bytes;
    uint32_t max_threads, simd_width;
};
void metalsim_set_limits(const struct metalsim_limits *limits); /* NULL: all the family's own */

/* What fails, separated by commas; counts start anew, NULL or "": nothing does. -1: not understood.
 *   command=N:KIND   the Nth command buffer that runs ends in an error, its last half undone. KIND:
 *                    oom, timeout, pagefault, internal, or lost (and all later ones too)
 *   buffer=N, library=N, pipeline=N, queue=N   the Nth that is asked for is nil
 *   nodevice         there is no device */
int metalsim_set_faults(const char *spec);

/* How late command buffers start from now on. */
void metalsim_set_delay_ms(unsigned ms);

enum metalsim_kind {
    METALSIM_DEVICE,
    METALSIM_QUEUE,
    METALSIM_BUFFER,
    METALSIM_LIBRARY,
    METALSIM_FUNCTION,
    METALSIM_PIPELINE,
    METALSIM_COMMAND_BUFFER,
    METALSIM_ENCODER,
    METALSIM_COMPILE_OPTIONS,
    METALSIM_CONSTANTS,
    METALSIM_N_KINDS
};
const char *metalsim_kind_name(enum metalsim_kind kind);

/* Objects of a kind that are allocated and not yet deallocated; of all kinds. */
long metalsim_live(enum metalsim_kind kind);
long metalsim_live_all(void);

#endif
