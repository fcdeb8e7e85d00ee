/* sim_int.h - shared by the files of the stand-in. */
#ifndef CUDASIM_SIM_INT_H
#define CUDASIM_SIM_INT_H

#include "cudasim.h"
#include "include/cuda_runtime_api.h"

#include <pthread.h>
#include <stdbool.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define SIM_FORBID(p, n) __asan_poison_memory_region(p, n)
#define SIM_ALLOW(p, n)  __asan_unpoison_memory_region(p, n)
#else
#define SIM_FORBID(p, n) ((void)(p), (void)(n))
#define SIM_ALLOW(p, n)  ((void)(p), (void)(n))
#endif

enum { SIM_WARP = 32, SIM_MAX_THREADS = 1024, SIM_MAX_WARPS = SIM_MAX_THREADS / SIM_WARP };

struct sim_options {
    int n_devices, sm, late;
    uint64_t memory, shuffle; /* shuffle 0: in order */
    long fail_malloc, fail_launch, fail_sync, hang_sync;
};
const struct sim_options *sim_options(void);
extern struct cudasim_counts sim_counts;

/* One launch, its arguments owned by its holder. */
struct sim_kernel {
    const void *fn;
    dim3 grid, block;
    size_t shared;
    void *args;
    size_t args_bytes;
    bool early; /* may start before the previous kernel has ended */
};
/* Runs the launch to its end on this thread; one at a time in the process. With before: that launch
 * runs first, after one block of k has run up to pdl_wait(). */
void sim_kernel_run(const struct sim_kernel *k, const struct sim_kernel *before);

uint64_t sim_random(void);

/* ---- calls of the runtime. One lock: sim_enter takes it and returns the error with which every
 * call fails now; sim_leave keeps the error for cudaGetLastError, releases the lock and returns the
 * error. ---- */
cudaError_t sim_enter(void);
cudaError_t sim_leave(cudaError_t rc);
/* The device is lost: from now on sim_enter says so. */
cudaError_t sim_lose(cudaError_t rc);
/* Counts a call that CUDASIM_FAIL may name: true from the N-th on. */
bool sim_fails(long nth, long *count);
/* Releases the lock while it waits; it must be held once. */
void sim_wait(pthread_cond_t *changed);
int sim_device(void);
uint32_t sim_shared_optin(void);

/* A call that is forbidden while a stream captures (cudaMalloc and others). */
bool sim_capture_forbids(void);
/* From now on the work of s is deferred, as with CUDASIM_LATE. */
void sim_stream_late(cudaStream_t s);
/* For a host function that would wait: true if the thread only asks whether its stream is done.
 * Then it returns at once, and is called again later. */
bool sim_stops_asking(void);
/* Runs all deferred work. */
void sim_flush_all(void);

enum sim_where { SIM_PAGEABLE, SIM_PINNED, SIM_DEVICE };
/* The kind of memory of p; *left: bytes from it to the allocation's end. */
enum sim_where sim_where(const void *p, uint64_t *left);
/* Is this copy allowed? */
cudaError_t sim_copy_check(const char *call, void *dst, const void *src, size_t bytes,
                           enum cudaMemcpyKind kind);
cudaError_t sim_set_check(const char *call, void *dst, size_t bytes);
void sim_memory_reset(int device);

/* For the lanes in mask, all at the same warp function; lane 0 is thread `first` of the block. */
void sim_warp_run(enum cudasim_op op, uint32_t mask, uint32_t first,
                  struct cudasim_lane *const io[SIM_WARP]);
const char *sim_op_name(enum cudasim_op op);

/* A kernel. */
enum { SIM_SHARED = 48 << 10 }; /* bytes of shared memory available without an attribute */
struct sim_function {
    const void *fn;
    char name[512];
    struct {
        void *at;
        size_t bytes;
    } statics[32]; /* its __shared__ variables */
    size_t n_statics;
    uint32_t static_bytes, dynamic_max;
};
struct sim_function *sim_function(const void *fn);

/* ---- sim_check.c: accesses of kernels ---- */
enum sim_access { SIM_READ, SIM_WRITE, SIM_ATOMIC, SIM_COPY };
enum { SIM_SHARED_MAX = 256 << 10, SIM_ME = 0xffff };
/* By thread (its number in the block; SIM_ME: the running one). No effect while no kernel runs. */
void sim_access(const void *p, size_t n, enum sim_access how, uint32_t thread, void *pc);
/* The running thread has proceeded past its last access. */
void sim_settle(void);

struct sim_now {
    const struct sim_function *f;
    uint32_t thread, epoch, sync;
    bool pdl;
    uintptr_t stack_low, stack_high, args, args_end;
    const char
        *shared_low; /* of SIM_SHARED_MAX bytes; the launch's begin at cudasim_shared_bytes */
    size_t shared_bytes;
};
/* false: no kernel runs. */
bool sim_now(struct sim_now *out, uint32_t thread);
bool sim_in_program(const void *p);
uintptr_t sim_program_bias(void);

#endif
