/* metalsim.h - the stand-in's own interface: tests use it, the product does not.
 *
 * Every option can also be set in the environment, for processes that do not call this interface:
 *  METALSIM_MODE=check: (default) reports accesses out of bounds, races, uninitialised threadgroup
 *    memory; =plain: faster
 *  METALSIM_WORKERS=N: threads that run threadgroups in plain mode (default 1; 0: one per
 *    processor)
 *  METALSIM_SHUFFLE=0|1|2: order of threadgroups and threads; METALSIM_SEED=N
 *  METALSIM_MATRIX=ORDER: metalsim_set_matrix
 *  METALSIM_HALVES=KIND: metalsim_set_halves
 *  METALSIM_NOISE=SEED: fast math functions are off by up to 2 ULP (0: exact)
 *  METALSIM_GUARD=1: a host access to a buffer that the GPU may write ends the process with status
 *    86; =2: also a host write to one that the GPU may read
 *  METALSIM_DELAY_MS=N: command buffers start this late, so that a premature read returns old data
 *  METALSIM_FAMILY=NAME: metalsim_set_family; METALSIM_MAX_BUFFER=BYTES, METALSIM_MAX_THREADS=N
 *  METALSIM_FAIL=SPEC: metalsim_set_faults
 *  METALSIM_POISON=1: new buffers are filled with 0xFF
 *  METALSIM_CACHE=dir: compiled shaders; METALSIM_CC=path: the compiler driver */
#ifndef METALSIM_H
#define METALSIM_H

#include <stdint.h>

/* Called for misuse of the API. Without a handler the message is printed and the process aborts, as
 * under Apple's validation layer. May be called on any thread. Returns the previous handler. */
typedef void (*metalsim_handler)(const char *message);
metalsim_handler metalsim_set_violation_handler(metalsim_handler handler);

/* Applies to later dispatches and to libraries compiled later. workers 0: one per processor. */
void metalsim_set_options(int check, int workers, int shuffle, uint64_t seed);

/* How simdgroup matrices add, from the next dispatch on. chain: (default) as a chain of fma over k;
 * tree: products in pairs (sums over a simdgroup, too); halves: likewise, only where a matrix has
 * halves. */
void metalsim_set_matrix(const char *order);

/* Halves below 2^-14, from the next dispatch on. ieee: (default) subnormal; flush: zero, where
 * as_type makes them. (Halves that are loaded or rounded as such are IEEE's.) */
void metalsim_set_halves(const char *kind);

/* Selects the GPU: apple7 (M1), apple8 (M2), apple9 (M3, M4; the default), apple10 (M5) or mac2 (an
 * Intel Mac: no simdgroup matrices). Creating a library fails if its source uses what the family or
 * the language version lacks. Returns -1 for an unknown name. */
int metalsim_set_family(const char *name);

/* 0: the family's own limit. max_threads: of a threadgroup, as for pipelines that use many
 * registers. simd_width: the width that pipelines report; shaders run with 32 anyway. */
struct metalsim_limits {
    uint64_t max_buffer_bytes, working_set_bytes;
    uint32_t max_threads, simd_width;
};
void metalsim_set_limits(const struct metalsim_limits *limits); /* NULL: all limits of the family */

/* Injects failures, separated by commas; counts restart. NULL or "": none. Returns -1 if spec is
 * malformed.
 *   command=N:KIND   the Nth command buffer that runs ends in an error; its second half is not
 *     executed, and later ones of its queue are ignored. KIND: oom, timeout, pagefault, internal,
 *     revoked, denied, resource, memoryless, stack, or lost (which fails all later ones)
 *   buffer=N, library=N, pipeline=N, queue=N, residency=N   the Nth object of this kind is nil
 *   nodevice         there is no device */
int metalsim_set_faults(const char *spec);

/* How often residency was requested, of all sets. */
unsigned long metalsim_residency_requests(void);

/* Barriers of concurrent encoders, and those for which the next dispatch need not have waited: it
 * shares no memory that either writes with a dispatch since the barrier before. Counted when that
 * dispatch is encoded. */
unsigned long metalsim_barriers(void);
unsigned long metalsim_needless_barriers(void);

/* Delay before each later command buffer starts. */
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
    METALSIM_RESIDENCY_SET,
    METALSIM_BINDING,
    METALSIM_N_KINDS
};
const char *metalsim_kind_name(enum metalsim_kind kind);

/* Live objects of a kind; of all kinds. */
long metalsim_live(enum metalsim_kind kind);
long metalsim_live_all(void);

#endif
