/* launch_int.h - kernel launches and CUDA graphs. Enqueuing does not wait for the device. */
#ifndef INFERD_CUDA_LAUNCH_INT_H
#define INFERD_CUDA_LAUNCH_INT_H

#include "core/backend/cuda/state_int.h"

/* ---- launch.c ---- */

struct cuda_launch {
    const void *kernel; /* host stub of a __global__ function with one struct argument */
    const char *name;   /* static storage; names its counters */
    const void *args;   /* the struct */
    size_t args_bytes;
    uint32_t grid[3], threads; /* 0 in grid means 1 */
    uint32_t shared;           /* bytes of dynamic shared memory */
    uint64_t read, written;    /* bytes of device memory, computed from the shapes */
    bool no_overlap;           /* waits for the previous launch, which is not one of our kernels */
};
/* Enqueues a kernel. 0 or ERR_DEVICE. */
int cuda_launch(struct cuda_backend *c, const struct cuda_launch *l);
/* Counts what another library enqueued: kernel is any address that stands for it. */
void cuda_count(struct cuda_backend *c, const struct cuda_launch *l);
/* Adds n launches and their bytes to the counters of kernel (an index of them). */
void cuda_add_counts(struct cuda_backend *c, uint32_t kernel, uint64_t n, uint64_t read,
                     uint64_t written);
int cuda_flush(backend *be, err *e);

/* ---- graph.c: the steps that the backend captures (backend.h) ---- */

int cuda_capture_begin(backend *be, uint64_t key, err *e);
int cuda_capture_end(backend *be, err *e);
int cuda_graph_launch(backend *be, err *e);
void cuda_graph_discard(backend *be);
void cuda_graphs_free(struct cuda_backend *c);

#endif
