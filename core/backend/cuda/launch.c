/* launch.c - kernel launches and their counters. Enqueuing does not wait for the device.
 *
 * On sm_90 a launch may overlap the end of the previous kernel (programmatic dependent launch):
 * kernels themselves wait, by pdl_wait, before they touch what others wrote. */
#include "core/backend/cuda/launch_int.h"

#include <string.h>
#ifdef INFERD_CUDA_STANDIN
void cudasim_next_args_bytes(size_t n); /* tests/cuda/standin/cudasim.h: a launch does not say */
#endif

enum { DEFAULT_SHARED = 40 << 10 }; /* 48 KiB less what a kernel may declare */

/* ---- counters ---- */

/* Index of a name's counters; a new name gets a new one. Names beyond the table share its last
 * entry.
 */
static uint32_t find_counter(struct cuda_backend *c, const char *name) {
    uint32_t n = c->base.n_kernels, i = 0;
    while (i < n && strcmp(c->base.kernel_names[i], name) != 0)
        i++;
    if (i < n || n == BACKEND_MAX_KERNELS) return i < n ? i : n - 1;
    c->base.kernel_names[n] = name;
    c->base.n_kernels = n + 1;
    return n;
}

/* The entry of a kernel; several kernels may share a name. */
static struct cuda_function *find_function(struct cuda_backend *c, const struct cuda_launch *l) {
    struct cuda_function *f = c->functions;
    while (f < c->functions + c->n_functions && f->kernel != l->kernel)
        f++;
    if (f < c->functions + c->n_functions) return f;
    if (c->n_functions < CUDA_MAX_FUNCTIONS)
        c->n_functions++;
    else
        f--; /* the table is full: replace its last entry */
    /* A multiprocessor runs blocks of two kernels at once only if both use the same carveout of L1
     * and shared memory: all kernels ask for the largest. A hint: may fail. */
    if (l->threads &&
        cudaFuncSetAttribute(l->kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100))
        cudaGetLastError();
    *f = (struct cuda_function){.kernel = l->kernel, .counter = find_counter(c, l->name)};
    return f;
}

/* Dynamic shared memory beyond the default must be enabled. What is enabled belongs to the kernel
 * and the device, which other backends of the process use, too: all enable the most. */
static cudaError_t allow_shared(const struct cuda_backend *c, struct cuda_function *f,
                                const struct cuda_launch *l) {
    struct cudaFuncAttributes attr;
    if (l->shared <= DEFAULT_SHARED || f->allows_shared) return cudaSuccess;
    cudaError_t rc = cudaFuncGetAttributes(&attr, l->kernel);
    if (!rc)
        rc = cudaFuncSetAttribute(l->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)(c->features.shared - (uint32_t)attr.sharedSizeBytes));
    f->allows_shared = !rc;
    return rc;
}

void cuda_add_counts(struct cuda_backend *c, uint32_t kernel, uint64_t n, uint64_t read,
                     uint64_t written) {
    struct backend *be = &c->base;
    atomic_fetch_add_explicit(&be->kernel_counts[kernel], n, memory_order_relaxed);
    atomic_fetch_add_explicit(&be->kernel_read[kernel], read, memory_order_relaxed);
    atomic_fetch_add_explicit(&be->kernel_written[kernel], written, memory_order_relaxed);
}

static void count_launch(struct cuda_backend *c, uint32_t kernel, const struct cuda_launch *l) {
    c->n_launches++;
    if (!c->capturing) {
        cuda_add_counts(c, kernel, 1, l->read, l->written);
        return;
    }
    struct cuda_kernel_count *k = &c->captured[kernel];
    k->n++;
    k->read += l->read;
    k->written += l->written;
}

void cuda_count(struct cuda_backend *c, const struct cuda_launch *l) {
    count_launch(c, find_counter(c, l->name), l);
}

/* ---- launches ---- */

int cuda_launch(struct cuda_backend *c, const struct cuda_launch *l) {
    if (c->failed.code) return c->failed.code;
    cuda_enter(c);
    struct cuda_function *f = find_function(c, l);
    cudaLaunchAttribute early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {
        .gridDim = {l->grid[0] ? l->grid[0] : 1, l->grid[1] ? l->grid[1] : 1,
                    l->grid[2] ? l->grid[2] : 1},
        .blockDim = {l->threads, 1, 1},
        .dynamicSmemBytes = l->shared,
        .stream = c->stream,
        .attrs = &early,
        .numAttrs = c->features.sm >= 90 && !l->no_overlap && !c->after_other,
    };
    void *args[] = {(void *)(uintptr_t)l->args};
#ifdef INFERD_CUDA_STANDIN
    cudasim_next_args_bytes(l->args_bytes);
#endif
    cudaError_t rc = allow_shared(c, f, l);
    if (!rc) rc = cudaLaunchKernelExC(&config, l->kernel, args);
    if (rc) return cuda_fail(c, l->name, rc);
    c->after_other = false;
    count_launch(c, f->counter, l);
    return 0;
}

int cuda_flush(backend *be, err *e) {
    return cuda_failure(cuda_of(be), e); /* launches start on their own */
}
