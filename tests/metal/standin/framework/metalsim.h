/* metalsim.h - what only the stand-in has: tests use it, the product never does.
 *
 * Everything here can be set by the environment too, for processes that know nothing of it:
 *   METALSIM_CHECK=1        check mode: bounds, races, uninitialised threadgroup memory
 *   METALSIM_WORKERS=N      threads that execute threadgroups (default: 1)
 *   METALSIM_SHUFFLE=0|1|2  order of threadgroups and threads; METALSIM_SEED=N
 *   METALSIM_GUARD=1        a host access to a buffer that the GPU may be writing ends the process
 *                           with status 86; =2 also a host write to one that it may be reading
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
