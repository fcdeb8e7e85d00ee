/* branch.c - streams that fork from the ops' stream and join it again within an op, for launches
 * that do not depend on each other; in a captured step they are parallel branches of its graph.
 * Owns these streams and their events.
 *
 * The first launch in a branch, and the first one after the join, follow a wait: they overlap
 * nothing, because a kernel may do before pdl_wait only what the launch before it in the same
 * stream allows (shaders/cuda/device.cuh). */
#include "core/backend/cuda/launch_int.h"

void cuda_branches_close(struct cuda_backend *c) {
    struct cuda_branches *b = &c->branches;
    for (int i = 1; i < CUDA_BRANCHES; i++) {
        if (b->streams[i]) cudaStreamSynchronize(b->streams[i]);
        if (b->ended[i]) cudaEventDestroy(b->ended[i]);
        if (b->streams[i]) cudaStreamDestroy(b->streams[i]);
    }
    if (b->forked) cudaEventDestroy(b->forked);
    *b = (struct cuda_branches){0};
}

int cuda_branches_open(struct cuda_backend *c, err *e) {
    struct cuda_branches *b = &c->branches;
    cudaError_t rc = cudaEventCreateWithFlags(&b->forked, cudaEventDisableTiming);
    for (int i = 1; i < CUDA_BRANCHES && !rc; i++) {
        rc = cudaStreamCreateWithFlags(&b->streams[i], cudaStreamNonBlocking);
        if (!rc) rc = cudaEventCreateWithFlags(&b->ended[i], cudaEventDisableTiming);
    }
    return rc ? err_set(e, ERR_DEVICE, "cannot create a stream: %s", cudaGetErrorString(rc)) : 0;
}

/* The next launch follows a wait; what was launched last is not the previous one of its stream. */
static void after_wait(struct cuda_backend *c) {
    c->after_other = true;
    c->n_launches_tile = 0;
}

int cuda_fork(struct cuda_backend *c) {
    if (c->failed.code) return c->failed.code;
    cuda_enter(c); /* what it enqueues belongs before the fork */
    cudaError_t rc = cudaEventRecord(c->branches.forked, c->stream);
    return rc ? cuda_fail(c, "forking", rc) : c->failed.code;
}

int cuda_join(struct cuda_backend *c) {
    struct cuda_branches *b = &c->branches;
    const uint32_t i = b->at;
    if (!i) return c->failed.code;
    cudaError_t rc = cudaEventRecord(b->ended[i], c->stream);
    c->stream = b->trunk;
    b->at = 0;
    if (!rc) rc = cudaStreamWaitEvent(c->stream, b->ended[i], 0);
    after_wait(c);
    return rc ? cuda_fail(c, "joining", rc) : c->failed.code;
}

int cuda_branch(struct cuda_backend *c, uint32_t i) {
    struct cuda_branches *b = &c->branches;
    const int failed = cuda_join(c); /* the previous branch: this one does not wait for it */
    if (failed) return failed;
    cudaError_t rc = cudaStreamWaitEvent(b->streams[i], b->forked, 0);
    if (rc) return cuda_fail(c, "beginning a branch", rc);
    b->trunk = c->stream;
    c->stream = b->streams[i];
    b->at = i;
    after_wait(c);
    return 0;
}
