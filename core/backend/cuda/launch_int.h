/* launch_int.h - kernel launches, CUDA graphs, branches. Enqueuing does not wait for the device. */
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

/* ---- branch.c: launches that do not depend on each other, each in a stream of its own ---- */

/* Creates the streams and events. ERR_DEVICE. */
int cuda_branches_open(struct cuda_backend *c, err *e);
void cuda_branches_close(struct cuda_backend *c);
/* The branches follow what was enqueued before. A fork ends with cuda_join, whatever fails between
 * them. 0 or ERR_DEVICE, as are the results below. */
int cuda_fork(struct cuda_backend *c);
/* What is enqueued from now on goes to branch i (1 to CUDA_BRANCHES - 1, each once in a fork) and
 * runs beside what was enqueued since the fork. Launches of branch 0 come before these calls. */
int cuda_branch(struct cuda_backend *c, uint32_t i);
/* What is enqueued from now on follows all branches. */
int cuda_join(struct cuda_backend *c);

#endif
