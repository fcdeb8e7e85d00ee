/* transfer.c - copies between host and device, and events in the stream. Owns the pinned staging
 * buffer: small uploads go through it, so that they are enqueued without a wait. It is a ring: its
 * bytes are free again once an event recorded after their copy has been waited for. */
#include "core/backend/cuda/launch_int.h"
#include "core/backend/cuda/memory_int.h"

#include "shaders/cuda/kernels.h"

#include <stdlib.h>
#include <string.h>

int cuda_transfer_open(struct cuda_backend *c, err *e) {
    cudaError_t rc = cudaMallocHost((void **)&c->staging, CUDA_STAGING);
    if (rc)
        return err_set(e, ERR_NOMEM, "cannot allocate pinned memory: %s", cudaGetErrorString(rc));
    for (int i = 0; i < BACKEND_N_EVENTS && !rc; i++)
        rc = cudaEventCreateWithFlags(&c->events[i], cudaEventDisableTiming);
    return rc ? err_set(e, ERR_DEVICE, "cannot create a CUDA event: %s", cudaGetErrorString(rc))
              : 0;
}

void cuda_transfer_close(struct cuda_backend *c) {
    for (int i = 0; i < BACKEND_N_EVENTS; i++)
        if (c->events[i]) cudaEventDestroy(c->events[i]);
    if (c->staging) cudaFreeHost(c->staging);
}

/* Reserves contiguous staging memory, at most CUDA_STAGING bytes. NULL: the device failed. */
static uint8_t *reserve_staging(struct cuda_backend *c, uint64_t bytes, err *e) {
    uint64_t need = (bytes + 15) / 16 * 16, at = c->staged % CUDA_STAGING;
    if (at + need > CUDA_STAGING) {
        c->staged += CUDA_STAGING - at;
        at = 0;
    }
    if (c->staged + need - c->unstaged > CUDA_STAGING && cuda_sync(&c->base, e)) return NULL;
    c->staged += need;
    return c->staging + at;
}

int cuda_upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                err *e) {
    struct cuda_backend *c = cuda_of(be);
    uint8_t *to = (uint8_t *)cuda_at(dst) + offset;
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    cuda_forget(c);
    if (bytes > CUDA_STAGING) {
        cudaError_t rc = cudaMemcpyAsync(to, src, bytes, cudaMemcpyHostToDevice, c->stream);
        if (!rc) rc = cudaStreamSynchronize(c->stream);
        return cuda_check(c, "an upload", rc, e);
    }
    uint8_t *place = reserve_staging(c, bytes, e);
    if (!place) return ERR_DEVICE;
    memcpy(place, src, bytes);
    cudaError_t rc = cudaMemcpyAsync(to, place, bytes, cudaMemcpyHostToDevice, c->stream);
    return cuda_check(c, "an upload", rc, e);
}

_Static_assert((int)CARGS_UPLOADS == (int)BACKEND_MAX_UPLOADS, "one launch takes all uploads");

/* One kernel reads small uploads from the staging buffer: the overhead of one copy each would
 * exceed the copying. Larger ones are copies. */
int cuda_upload_all(backend *be, const struct backend_upload *list, uint32_t n, err *e) {
    enum { LARGE = 128 << 10, THREADS = 256, MOST_BLOCKS = 16 };
    struct cuda_backend *c = cuda_of(be);
    struct cargs_upload args = {.n = 0};
    uint64_t most = 0, all = 0;
    bool small[BACKEND_MAX_UPLOADS];
    for (uint32_t i = 0; i < n; i++) {
        const struct backend_upload *u = &list[i];
        small[i] = u->bytes && u->bytes <= LARGE && u->bytes % 4 == 0;
        int rc = small[i] ? 0 : cuda_upload(be, u->to, u->offset, u->from, u->bytes, e);
        if (rc) return rc;
        if (small[i]) all += (u->bytes + 15) / 16 * 16;
        if (small[i] && u->bytes > most) most = u->bytes;
    }
    uint8_t *place = all ? reserve_staging(c, all, e) : c->staging;
    if (!place) return ERR_DEVICE;
    for (uint32_t i = 0; i < n; i++) {
        const struct backend_upload *u = &list[i];
        if (!small[i]) continue;
        memcpy(place, u->from, u->bytes);
        args.pieces[args.n++] = (struct cargs_upload_piece){
            .from = (const uint32_t *)(const void *)place,
            .to = (uint32_t *)(void *)((uint8_t *)cuda_at(u->to) + u->offset),
            .n = (uint32_t)(u->bytes / 4)};
        place += (u->bytes + 15) / 16 * 16;
    }
    if (!args.n) return cuda_failure(c, e);
    uint32_t blocks = cuda_div_up(most, 4 * THREADS);
    int rc = cuda_launch(
        c, &(struct cuda_launch){.kernel = cuda_upload_kernel(),
                                 .name = "upload",
                                 .args = &args,
                                 .args_bytes = sizeof args,
                                 .grid = {blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS, args.n},
                                 .threads = THREADS,
                                 .no_overlap = true,
                                 .written = all});
    c->after_other = true; /* kernels read positions and tables before pdl_wait (device.cuh) */
    return rc ? cuda_failure(c, e) : 0;
}

int cuda_download(backend *be, const backend_buf *src, uint64_t offset, void *dst, uint64_t bytes,
                  err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    cudaError_t rc = cudaMemcpyAsync(dst, (const uint8_t *)cuda_at(src) + offset, bytes,
                                     cudaMemcpyDeviceToHost, c->stream);
    if (!rc) rc = cudaStreamSynchronize(c->stream);
    if (!rc) c->unstaged = c->staged;
    return cuda_check(c, "a download", rc, e);
}

/* ---- overlapping steps ---- */

int cuda_host_new(backend *be, uint64_t bytes, void **out, err *e) {
    struct cuda_backend *c = cuda_of(be);
    cuda_enter(c);
    cudaError_t rc = cudaMallocHost(out, bytes ? bytes : 1);
    if (rc) {
        cudaGetLastError();
        return err_set(e, ERR_NOMEM, "cannot allocate %llu bytes of pinned memory: %s",
                       (unsigned long long)bytes, cudaGetErrorString(rc));
    }
    memset(*out, 0, bytes);
    return 0;
}

void cuda_host_free(backend *be, void *p) {
    cuda_enter(cuda_of(be));
    cudaFreeHost(p);
}

int cuda_download_later(backend *be, const backend_buf *src, uint64_t offset, void *to,
                        uint64_t bytes, err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    return cuda_check(c, "a download",
                      cudaMemcpyAsync(to, (const uint8_t *)cuda_at(src) + offset, bytes,
                                      cudaMemcpyDeviceToHost, c->stream),
                      e);
}

int cuda_event_record(backend *be, uint32_t event, err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    c->event_staged[event] = c->staged;
    return cuda_check(c, "recording an event", cudaEventRecord(c->events[event], c->stream), e);
}

int cuda_event_wait(backend *be, uint32_t event, err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return cuda_failure(c, e);
    cuda_enter(c);
    cudaError_t rc = cudaEventSynchronize(c->events[event]);
    if (!rc && cuda_group_is_broken(c)) return cuda_sync(be, e); /* which says so */
    if (!rc && c->event_staged[event] > c->unstaged) c->unstaged = c->event_staged[event];
    return cuda_check(c, "running a step", rc, e);
}

/* ---- bandwidth ---- */

enum { COPIES = 9 };
#define COPY_BYTES (UINT64_C(512) << 20) /* several times any cache */

static cudaError_t time_copy(struct cuda_backend *c, void *to, const void *from, cudaEvent_t at[2],
                             float *ms) {
    cudaError_t rc = cudaEventRecord(at[0], c->stream);
    if (!rc) rc = cudaMemcpyAsync(to, from, COPY_BYTES, cudaMemcpyDeviceToDevice, c->stream);
    if (!rc) rc = cudaEventRecord(at[1], c->stream);
    if (!rc) rc = cudaEventSynchronize(at[1]);
    return rc ? rc : cudaEventElapsedTime(ms, at[0], at[1]);
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int cuda_copy_bandwidth(backend *be, double *bytes_per_s, err *e) {
    struct cuda_backend *c = cuda_of(be);
    void *from, *to = NULL;
    cudaEvent_t at[2] = {NULL, NULL};
    float ms[COPIES], first;
    int rc = cuda_memory_new(c, COPY_BYTES, &from, e);
    if (!rc) rc = cuda_memory_new(c, COPY_BYTES, &to, e);
    if (!rc) {
        cudaError_t crc = cudaEventCreateWithFlags(&at[0], 0);
        if (!crc) crc = cudaEventCreateWithFlags(&at[1], 0);
        if (!crc) crc = time_copy(c, to, from, at, &first);
        for (int i = 0; i < COPIES && !crc; i++)
            crc = time_copy(c, to, from, at, &ms[i]);
        rc = cuda_check(c, "copying memory", crc, e);
    }
    if (!rc) {
        qsort(ms, COPIES, sizeof ms[0], compare_floats);
        *bytes_per_s = ms[COPIES / 2] > 0 ? 2e3 * (double)COPY_BYTES / ms[COPIES / 2] : 0;
    }
    for (int i = 0; i < 2; i++)
        if (at[i]) cudaEventDestroy(at[i]);
    cuda_memory_free(c, to, COPY_BYTES);
    cuda_memory_free(c, from, COPY_BYTES);
    return rc;
}
