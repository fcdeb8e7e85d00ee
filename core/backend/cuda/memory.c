/* memory.c - allocation of device memory. Owns the count of what the process holds on each device:
 * the limit is one for all backends there. */
#include "core/backend/cuda/launch_int.h"
#include "core/backend/cuda/memory_int.h"

#include "core/base/mem.h"
#include "shaders/cuda/kernels.h"

#include <stdlib.h>

/* The driver allocates in units of 2 MiB, which only small allocations share, at multiples of 512
 * bytes. */
uint64_t cuda_memory_taken(uint64_t bytes) {
    uint64_t unit = bytes >= 1 << 20 ? 2 << 20 : 512;
    return (bytes + unit - 1) / unit * unit;
}

/* By device; several backends may be open at once, each on a thread of its own. */
static atomic_uint_fast64_t held[64];

static atomic_uint_fast64_t *held_of(const struct cuda_backend *c) {
    return &held[(unsigned)c->features.ordinal % (sizeof held / sizeof held[0])];
}

uint64_t cuda_memory_held(const struct cuda_backend *c) {
    return atomic_load_explicit(held_of(c), memory_order_relaxed);
}

int cuda_memory_new(struct cuda_backend *c, uint64_t bytes, void **out, err *e) {
    size_t unused = 0, total = 0;
    *out = NULL;
    cudaSetDevice(c->features.ordinal);
    cudaError_t rc = cudaMalloc(out, bytes ? bytes : 1);
    if (!rc) {
        atomic_fetch_add_explicit(held_of(c), cuda_memory_taken(bytes), memory_order_relaxed);
        if (c->opening) c->opened_with += cuda_memory_taken(bytes);
        return 0;
    }
    cudaGetLastError();
    if (rc != cudaErrorMemoryAllocation) return cuda_check(c, "allocating memory", rc, e);
    cudaMemGetInfo(&unused, &total);
    return err_set(e, ERR_NOMEM,
                   "out of GPU memory: %llu MiB needed, %llu of %llu MiB free, inferd holds %llu "
                   "MiB",
                   (unsigned long long)cuda_div_up(bytes, 1 << 20),
                   (unsigned long long)unused >> 20, (unsigned long long)total >> 20,
                   (unsigned long long)cuda_memory_held(c) >> 20);
}

void cuda_memory_free(struct cuda_backend *c, void *p, uint64_t bytes) {
    if (!p) return;
    cuda_enter(c);
    cudaFree(p);
    atomic_fetch_sub_explicit(held_of(c), cuda_memory_taken(bytes), memory_order_relaxed);
    if (c->opening) c->opened_with -= cuda_memory_taken(bytes);
}

int cuda_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct cuda_buf *b = mem_new(1, sizeof *b);
    if (!b) return err_no_memory(e);
    b->base = (backend_buf){.be = be, .bytes = bytes};
    int rc = cuda_memory_new(c, bytes, &b->dev, e);
    if (rc) {
        free(b);
        return rc;
    }
    cuda_forget(c);
    cudaError_t crc = cudaMemsetAsync(b->dev, 0, bytes ? bytes : 1, c->stream);
    if (crc) {
        rc = cuda_check(c, "clearing memory", crc, e);
        cuda_buf_free(&b->base);
        return rc;
    }
    *out = &b->base;
    return 0;
}

/* cudaFree waits for the device. */
void cuda_buf_free(backend_buf *buf) {
    struct cuda_buf *b = (struct cuda_buf *)buf;
    if (!b) return;
    cuda_memory_free(cuda_of(buf->be), b->dev, buf->bytes);
    free(b);
}

int cuda_scratch_new(struct cuda_backend *c, enum cuda_scratch which, uint64_t bytes, err *e) {
    if (!bytes) return 0;
    int rc = cuda_buf_new(&c->base, bytes, &c->scratch[which], e);
    if (!rc) c->scratch_bytes[which] = bytes;
    return rc;
}

int cuda_random_fill(struct cuda_backend *c, void *values, uint64_t bytes) {
    const struct cargs_lt_fill args = {.values = values, .n = bytes / 2};
    return cuda_launch(c, &(struct cuda_launch){.kernel = cuda_lt_fill_kernel(),
                                                .name = "lt_fill",
                                                .args = &args,
                                                .args_bytes = sizeof args,
                                                .grid = {1024},
                                                .threads = 256,
                                                .written = bytes});
}
