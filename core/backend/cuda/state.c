/* state.c - failures and the end of the stream's work: what every layer above needs. */
#include "core/backend/cuda/state_int.h"

int cuda_fail(struct cuda_backend *c, const char *what, cudaError_t rc) {
    if (c->failed.code) return c->failed.code;
    return err_set(&c->failed, ERR_DEVICE, "the CUDA device failed: %s: %s (%s)", what,
                   cudaGetErrorString(rc), cudaGetErrorName(rc));
}

int cuda_failure(const struct cuda_backend *c, err *e) {
    if (c->failed.code && e) *e = c->failed;
    return c->failed.code;
}

int cuda_check(struct cuda_backend *c, const char *what, cudaError_t rc, err *e) {
    if (rc) cuda_fail(c, what, rc);
    return cuda_failure(c, e);
}

void cuda_await_sums(struct cuda_backend *c) {
    cudaError_t rc = cudaStreamWaitEvent(c->stream, c->summed[c->pending.n_parts - 1], 0);
    if (rc) cuda_fail(c, "waiting for a sum", rc);
    c->pending.x = NULL;
    c->after_other = true;
}

void cuda_begin_deferred(struct cuda_backend *c) {
    const struct cargs_peer args = c->deferred.args;
    c->deferred.args.x = NULL;
    c->deferred.begin(c, &args); /* a failure is c->failed */
}

void cuda_begin_put_off(struct cuda_backend *c) {
    const struct cargs_apply_epilogue args = c->put_off.args;
    c->put_off.args.y = NULL;
    c->put_off.begin(c, &args); /* a failure is c->failed */
}

int cuda_sync(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    cudaError_t rc = cudaStreamSynchronize(c->stream);
    if (rc) cuda_fail(c, "running a step", rc);
    if (!rc && cuda_group_is_broken(c))
        err_set(&c->failed, ERR_DEVICE, "another rank of the group failed");
    if (c->failed.code) return cuda_failure(c, e);
    c->unstaged = c->staged;
    return 0;
}
