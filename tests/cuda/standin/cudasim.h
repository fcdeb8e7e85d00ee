/* cudasim.h - the stand-in for the CUDA runtime: what the backend's host code and the kernels'
 * language (device.h) call beyond CUDA's own interface, and the options.
 *
 * Environment, read once at the first call:
 *   CUDASIM_DEVICES=n    devices (1); 0: none. All share the CPU.
 *   CUDASIM_SM=n         compute capability (90)
 *   CUDASIM_MEMORY=n     bytes of a device (16 GiB)
 *   CUDASIM_SHUFFLE=seed blocks, warps and lanes run in random orders
 *   CUDASIM_LATE=1       work of a stream runs only when something waits for it, and a kernel that
 *                        is launched with programmatic stream serialization often begins, up to
 *                        pdl_wait(), before the previous kernel
 *   CUDASIM_LT=1         there is a cuBLASLt (lt.c)
 *   CUDASIM_FAIL=malloc:N | launch:N | sync:N
 *                        the N-th such call (counted from 1) and everything after it fail:
 *                        cudaErrorMemoryAllocation from cudaMalloc; cudaErrorIllegalAddress or
 *                        cudaErrorECCUncorrectable from every call, as on a lost device
 *
 * A fault of a kernel (see README.md) prints one message with the kernel, block and thread, then
 * calls abort(). */
#ifndef CUDASIM_H
#define CUDASIM_H

#include "include/vector_types.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Size of the argument struct of the next launch of this thread: cudaLaunchKernelExC does not say.
 */
void cudasim_next_args_bytes(size_t n);

/* Launches that ran since the start (captured ones count when they run), and live objects. */
struct cudasim_counts {
    uint64_t launches, blocks, threads, warp_ops, barriers, switches;
    uint64_t device_bytes, host_bytes;
    uint64_t streams, events, graphs; /* with their executable forms */
};
void cudasim_counts_get(struct cudasim_counts *out);

/* A test calls this in its own process or before the first call of the runtime: sets one of the
 * options above as the environment would ("CUDASIM_FAIL", "launch:3"), and restarts the counts of
 * failures. */
void cudasim_option_set(const char *name, const char *value);

/* ---- used by device.h ---- */

enum cudasim_op {
    CUDASIM_SYNCWARP,
    CUDASIM_SHFL,
    CUDASIM_SHFL_UP,
    CUDASIM_SHFL_DOWN,
    CUDASIM_SHFL_XOR,
    CUDASIM_BALLOT,
    CUDASIM_ANY,
    CUDASIM_ALL,
    CUDASIM_MATCH_ANY,
    CUDASIM_ADD,
    CUDASIM_MIN_U,
    CUDASIM_MAX_U,
    CUDASIM_MIN_S,
    CUDASIM_MAX_S,
    CUDASIM_AND,
    CUDASIM_OR,
    CUDASIM_XOR,
    CUDASIM_MMA_F16,
    CUDASIM_MMA_BF16,
    CUDASIM_LDMATRIX,
    CUDASIM_LDMATRIX_TRANS
};

/* Arguments and result of one lane in a warp function. */
struct cudasim_lane {
    const void *at;        /* ldmatrix: this lane's row */
    void *pc;              /* the call site */
    uint64_t v;            /* in and out: the value */
    uint32_t lane, width;  /* shuffles: source lane, delta or mask; width */
    const uint32_t *a, *b; /* mma */
    float *d;
    uint32_t m[4]; /* ldmatrix: out */
    uint64_t out;
};

struct cudasim_thread;
extern const uint3 *cudasim_thread_idx;
extern uint3 cudasim_block_idx;
extern dim3 cudasim_block_dim, cudasim_grid_dim;
extern void *cudasim_shared_bytes;

void cudasim_warp(enum cudasim_op op, uint32_t mask, struct cudasim_lane *l, const char *file,
                  int line);
/* Returns the number of threads with a predicate. */
int cudasim_barrier(int predicate, const char *file, int line);
void cudasim_pdl_wait(void);
void cudasim_copy16(void *shared, const void *global, size_t bytes, size_t from, const char *file,
                    int line);
void cudasim_commit(void);
void cudasim_wait(int n);
void cudasim_mbar_init(uint64_t *bar, uint32_t count, const char *file, int line);
void cudasim_mbar_arrive(uint64_t *bar, const char *file, int line);
void cudasim_mbar_wait(uint64_t *bar, uint32_t parity, const char *file, int line);
void cudasim_async_arrive(uint64_t *bar, const char *file, int line);
void cudasim_bulk_expect(uint64_t *bar, uint32_t bytes, const char *file, int line);
void cudasim_bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *bar,
                       const char *file, int line);
void cudasim_tensor_copy(void *shared, const uint64_t map[16], uint32_t row, uint32_t group,
                         uint32_t box_rows, uint32_t box_groups, uint64_t *bar, const char *file,
                         int line);
void cudasim_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* An access that the compiler does not instrument: an atomic operation, or a special load. */
#ifdef CUDASIM_CHECK
void cudasim_access(const void *p, size_t n, int atomic);
#else
static inline void cudasim_access(const void *p, size_t n, int atomic) {
    (void)p, (void)n, (void)atomic;
}
#endif

#ifdef __cplusplus
}
#endif

#endif
