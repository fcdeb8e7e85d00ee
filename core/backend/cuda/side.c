/* side.c - the side stream: copies beside the ops, in batches. Owns its stream, its events and the
 * pinned ring through which copies in go; copies out go to their caller's pinned memory. A batch
 * waits on the device for the ops before it (`behind`), and ops wait for batches only after a join
 * (`ahead`): the host waits for nothing but in cuda_side_wait. */
#include "core/backend/cuda/memory_int.h"

#include "core/base/mem.h"

#include <string.h>

enum { ALIGN = 16 };

void cuda_side_close(struct cuda_backend *c) {
    struct cuda_side *s = &c->side;
    if (s->stream) cudaStreamSynchronize(s->stream);
    for (int i = 0; i < BACKEND_SIDE_BATCHES; i++)
        if (s->done[i]) cudaEventDestroy(s->done[i]);
    if (s->behind) cudaEventDestroy(s->behind);
    if (s->ahead) cudaEventDestroy(s->ahead);
    if (s->stream) cudaStreamDestroy(s->stream);
    if (s->staging) cudaFreeHost(s->staging);
    *s = (struct cuda_side){0};
}

static cudaError_t make_events(struct cuda_side *s) {
    cudaError_t rc = cudaEventCreateWithFlags(&s->behind, cudaEventDisableTiming);
    if (!rc) rc = cudaEventCreateWithFlags(&s->ahead, cudaEventDisableTiming);
    for (int i = 0; i < BACKEND_SIDE_BATCHES && !rc; i++)
        rc = cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming);
    return rc;
}

/* The ring holds two of the largest copies in, so that one is filled while another one runs. */
int cuda_side_open(backend *be, uint64_t most_bytes, err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct cuda_side *s = &c->side;
    uint64_t bytes;
    if (c->failed.code) return cuda_failure(c, e);
    if (s->stream) return err_set(e, ERR_INVALID, "the side stream is open");
    if (!mem_mul(most_bytes / ALIGN + 1, 2 * ALIGN, &bytes)) return err_no_memory(e);
    if (bytes < CUDA_SIDE_STAGING) bytes = CUDA_SIDE_STAGING;
    cudaSetDevice(c->features.ordinal);
    cudaError_t rc = cudaMallocHost((void **)&s->staging, bytes);
    if (rc) {
        cudaGetLastError();
        return err_set(e, ERR_NOMEM, "cannot allocate %llu bytes of pinned memory: %s",
                       (unsigned long long)bytes, cudaGetErrorString(rc));
    }
    s->n_staging = bytes;
    rc = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
    if (!rc) rc = make_events(s);
    if (!rc) return 0;
    cuda_side_close(c);
    return err_set(e, ERR_DEVICE, "cannot create the side stream: %s", cudaGetErrorString(rc));
}

int cuda_side_begin(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct cuda_side *s = &c->side;
    uint64_t n;
    int rc = cuda_side_done(be, &n, e);
    if (rc) return rc;
    if (s->n_ended - n >= BACKEND_SIDE_BATCHES)
        return err_set(e, ERR_INVALID, "%d batches of copies are under way", BACKEND_SIDE_BATCHES);
    cudaError_t crc = cudaEventRecord(s->behind, c->stream);
    if (!crc) crc = cudaStreamWaitEvent(s->stream, s->behind, 0);
    return cuda_check(c, "beginning copies", crc, e);
}

int cuda_side_out(backend *be, const backend_buf *src, uint64_t offset, void *to, uint64_t bytes,
                  err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    return cuda_check(c, "a copy out",
                      cudaMemcpyAsync(to, (const uint8_t *)cuda_at(src) + offset, bytes,
                                      cudaMemcpyDeviceToHost, c->side.stream),
                      e);
}

/* Contiguous bytes of the ring. NULL: copies that have not ended hold them. */
static uint8_t *reserve(struct cuda_side *s, uint64_t bytes) {
    const uint64_t need = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    uint64_t at = s->staged % s->n_staging, skip = at + need > s->n_staging ? s->n_staging - at : 0;
    if (s->staged + skip + need - s->unstaged > s->n_staging) return NULL;
    at = skip ? 0 : at;
    s->staged += skip + need;
    return s->staging + at;
}

int cuda_side_in(backend *be, backend_buf *dst, uint64_t offset, const void *from, uint64_t bytes,
                 err *e) {
    struct cuda_backend *c = cuda_of(be);
    uint64_t n;
    int rc = cuda_side_done(be, &n, e);
    if (rc) return rc;
    if (bytes > c->side.n_staging / 2)
        return err_set(e, ERR_INVALID,
                       "a copy in of %llu bytes: the side stream was opened for %llu",
                       (unsigned long long)bytes, (unsigned long long)c->side.n_staging / 2);
    uint8_t *place = reserve(&c->side, bytes);
    if (!place) return err_set(e, ERR_FULL, "earlier copies have not ended");
    memcpy(place, from, bytes);
    return cuda_check(c, "a copy in",
                      cudaMemcpyAsync((uint8_t *)cuda_at(dst) + offset, place, bytes,
                                      cudaMemcpyHostToDevice, c->side.stream),
                      e);
}

int cuda_side_end(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct cuda_side *s = &c->side;
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    const uint64_t place = s->n_ended % BACKEND_SIDE_BATCHES;
    cudaError_t rc = cudaEventRecord(s->done[place], s->stream);
    if (rc) return cuda_check(c, "ending copies", rc, e);
    s->batch_staged[place] = s->staged;
    s->n_ended++;
    return 0;
}

int cuda_side_done(backend *be, uint64_t *n, err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct cuda_side *s = &c->side;
    *n = s->n_done;
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    for (; s->n_done < s->n_ended; s->n_done++) {
        const uint64_t place = s->n_done % BACKEND_SIDE_BATCHES;
        cudaError_t rc = cudaEventQuery(s->done[place]);
        if (rc == cudaErrorNotReady) {
            cudaGetLastError();
            break;
        }
        if (rc) return cuda_check(c, "copying", rc, e);
        s->unstaged = s->batch_staged[place];
    }
    *n = s->n_done;
    return 0;
}

/* In the middle of a step's launches only the first one after it waits; the others wait for that
 * one, whatever they overlap. */
int cuda_side_join(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    cuda_forget(c);
    cudaError_t rc = cudaEventRecord(c->side.ahead, c->side.stream);
    if (!rc) rc = cudaStreamWaitEvent(c->stream, c->side.ahead, 0);
    c->after_other = true;
    return cuda_check(c, "waiting for copies", rc, e);
}

int cuda_side_wait(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    uint64_t n;
    if (c->failed.code) return cuda_failure(c, e);
    if (!c->side.stream) return 0;
    cuda_enter(c);
    cudaError_t rc = cudaStreamSynchronize(c->side.stream);
    return rc ? cuda_check(c, "copying", rc, e) : cuda_side_done(be, &n, e);
}
