/* sim_memory.c - device memory, pinned memory, and which copies are allowed. A device allocation
 * lies between two unreadable pages and ends at most 255 bytes before the second one; the rest of
 * its pages is checked when it is freed. Its initial contents are NaN and -1.
 *
 * Memory that another process maps (cudaIpc*) moves into a file without a name, which that process
 * opens through /proc. */
#include "sim_int.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, ALIGN = 256 };

struct memory {
    char *p, *map;
    uint64_t bytes, map_bytes;
    enum sim_where where;
    int device;
    bool registered; /* the caller's own */
    int file;        /* 1 + its descriptor, of memory that others may map */
    bool imported;   /* another process's */
};

static struct {
    struct memory *of;
    size_t n, cap;
    uint64_t used[64]; /* of each device */
    long n_mallocs;
} all;

static inline bool within(const struct memory *m, const char *p) {
    return p >= m->p && p < m->p + m->bytes;
}

static struct memory *find(const void *p) {
    static size_t last; /* usually at the previous one */
    if (last < all.n && within(&all.of[last], p)) return &all.of[last];
    for (size_t i = all.n; i-- > 0;)
        if (within(&all.of[i], p)) return &all.of[last = i];
    return NULL;
}

static cudaError_t keep(struct memory m) {
    if (all.n == all.cap) {
        all.cap = all.cap ? 2 * all.cap : 64;
        all.of = realloc(all.of, all.cap * sizeof *all.of);
        if (!all.of) cudasim_fail("no memory for the stand-in");
    }
    all.of[all.n++] = m;
    if (m.where == SIM_DEVICE)
        sim_counts.device_bytes += m.bytes;
    else
        sim_counts.host_bytes += m.bytes;
    return cudaSuccess;
}

static void drop(struct memory *m) {
    if (!m->registered) SIM_ALLOW(m->map, m->map_bytes);
    if (m->where == SIM_DEVICE) {
        for (char *c = m->map + PAGE; c < m->p; c++)
            if (*c != (char)0xff)
                cudasim_fail("memory at %p (%llu bytes) was written %lld bytes before it",
                             (void *)m->p, (unsigned long long)m->bytes, (long long)(m->p - c));
        for (char *c = m->p + m->bytes; c < m->map + m->map_bytes - PAGE; c++)
            if (*c != (char)0xff)
                cudasim_fail("memory at %p (%llu bytes) was written %lld bytes after its end",
                             (void *)m->p, (unsigned long long)m->bytes,
                             (long long)(c - m->p - (int64_t)m->bytes + 1));
        if (!m->imported) all.used[m->device] -= m->bytes;
        if (m->file) close(m->file - 1);
        sim_counts.device_bytes -= m->bytes;
    } else
        sim_counts.host_bytes -= m->bytes;
    if (!m->registered) munmap(m->map, m->map_bytes);
    *m = all.of[--all.n];
}

/* (guard page, pages that end where the bytes rounded up end, guard page) */
static cudaError_t alloc(void **out, size_t bytes, enum sim_where where) {
    uint64_t round = ((uint64_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
    uint64_t pages = (round + PAGE - 1) / PAGE * PAGE;
    char *map =
        mmap(NULL, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return cudaErrorMemoryAllocation;
    if (mprotect(map + PAGE, pages, PROT_READ | PROT_WRITE)) {
        munmap(map, pages + 2 * PAGE);
        return cudaErrorMemoryAllocation;
    }
    char *p = map + PAGE + pages - round;
    memset(map + PAGE, 0xff, (size_t)(p - map - PAGE));
    memset(p, 0xff, bytes < 64 << 20 ? bytes : 64 << 20);
    memset(p + bytes, 0xff, round - bytes);
    SIM_FORBID(map + PAGE, (size_t)(p - map - PAGE));
    SIM_FORBID(p + bytes, round - bytes);
    *out = p;
    return keep((struct memory){.p = p,
                                .map = map,
                                .bytes = bytes,
                                .map_bytes = pages + 2 * PAGE,
                                .where = where,
                                .device = sim_device()});
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!p) return sim_leave(cudaErrorInvalidValue);
    *p = NULL;
    if (sim_capture_forbids()) return sim_leave(cudaErrorStreamCaptureUnsupported);
    if (!bytes) return sim_leave(cudaSuccess);
    uint64_t *used = &all.used[sim_device()];
    if (sim_fails(sim_options()->fail_malloc, &all.n_mallocs) ||
        bytes > sim_options()->memory - *used)
        return sim_leave(cudaErrorMemoryAllocation);
    rc = alloc(p, bytes, SIM_DEVICE);
    if (!rc) *used += bytes;
    return sim_leave(rc);
}

static cudaError_t release(void *p, enum sim_where where, bool registered) {
    cudaError_t rc = sim_enter();
    if (!p) return sim_leave(rc);
    struct memory *m = find(p);
    if (!m || m->p != p || m->where != where || m->registered != registered || m->imported)
        return sim_leave(registered ? cudaErrorHostMemoryNotRegistered : cudaErrorInvalidValue);
    if (!rc && sim_capture_forbids()) return sim_leave(cudaErrorStreamCaptureUnsupported);
    if (!rc) sim_flush_all(); /* because cudaFree waits for the device */
    drop(find(p));
    return sim_leave(rc);
}

/* ---- memory of other processes ---- */

struct handle { /* in a cudaIpcMemHandle_t */
    int pid, file, device;
    uint64_t bytes;
};

static uint64_t pages_of(const struct memory *m) {
    return m->map_bytes - 2 * PAGE;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *p) {
    cudaError_t rc = sim_enter();
    struct memory *m = find(p);
    if (!rc && (!m || m->p != p || m->where != SIM_DEVICE)) rc = cudaErrorInvalidValue;
    if (rc) return sim_leave(rc);
    if (!m->file) {
        int fd = memfd_create("cudasim", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)pages_of(m)) ||
            pwrite(fd, m->map + PAGE, pages_of(m), 0) != (ssize_t)pages_of(m) ||
            mmap(m->map + PAGE, pages_of(m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                 0) == MAP_FAILED)
            return sim_leave(cudaErrorMemoryAllocation);
        m->file = fd + 1;
    }
    const struct handle h = {getpid(), m->file - 1, m->device, m->bytes};
    memset(out, 0, sizeof *out);
    memcpy(out->reserved, &h, sizeof h);
    return sim_leave(cudaSuccess);
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned int flags) {
    struct handle h;
    char path[64];
    cudaError_t rc = sim_enter();
    memcpy(&h, handle.reserved, sizeof h);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.file);
    int fd = rc || flags != cudaIpcMemLazyEnablePeerAccess ? -1 : open(path, O_RDWR | O_CLOEXEC);
    *out = NULL;
    if (fd < 0) return sim_leave(rc ? rc : cudaErrorInvalidValue);
    rc = alloc(out, h.bytes, SIM_DEVICE);
    if (!rc) {
        struct memory *m = find(*out);
        m->imported = true;
        if (mmap(m->map + PAGE, pages_of(m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                 0) == MAP_FAILED)
            cudasim_fail("cannot map memory of process %d", h.pid);
    }
    close(fd);
    return sim_leave(rc);
}

cudaError_t cudaIpcCloseMemHandle(void *p) {
    sim_enter();
    struct memory *m = find(p);
    const bool ok = m && m->p == p && m->imported;
    if (ok) {
        sim_flush_all();
        drop(find(p));
    }
    return sim_leave(ok ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaFree(void *p) {
    return release(p, SIM_DEVICE, false);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned int flags) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    *p = NULL;
    if (flags > 7) return sim_leave(cudaErrorInvalidValue);
    if (sim_capture_forbids()) return sim_leave(cudaErrorStreamCaptureUnsupported);
    return sim_leave(bytes ? alloc(p, bytes, SIM_PINNED) : cudaSuccess);
}

cudaError_t cudaMallocHost(void **p, size_t bytes) {
    return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *p) {
    return release(p, SIM_PINNED, false);
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned int flags) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!p || !bytes || flags > 15) return sim_leave(cudaErrorInvalidValue);
    for (size_t i = 0; i < all.n; i++)
        if ((char *)p < all.of[i].p + all.of[i].bytes && all.of[i].p < (char *)p + bytes)
            return sim_leave(cudaErrorHostMemoryAlreadyRegistered);
    return sim_leave(keep((struct memory){
        .p = p, .bytes = bytes, .where = SIM_PINNED, .device = sim_device(), .registered = true}));
}

cudaError_t cudaHostUnregister(void *p) {
    return p ? release(p, SIM_PINNED, true) : cudaErrorInvalidValue;
}

cudaError_t cudaHostGetDevicePointer(void **out, void *host, unsigned int flags) {
    cudaError_t rc = sim_enter();
    struct memory *m = find(host);
    if (!rc && (flags || !m || m->where != SIM_PINNED)) rc = cudaErrorInvalidValue;
    *out = rc ? NULL : host;
    return sim_leave(rc);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    cudaError_t rc = sim_enter();
    *total = sim_options()->memory;
    *free = sim_options()->memory - all.used[sim_device()];
    return sim_leave(rc);
}

void sim_memory_reset(int device) {
    for (size_t i = all.n; i-- > 0;)
        if (all.of[i].where == SIM_DEVICE && all.of[i].device == device) drop(&all.of[i]);
}

enum sim_where sim_where(const void *p, uint64_t *left) {
    struct memory *m = find(p);
    *left = m ? (uint64_t)(m->p + m->bytes - (const char *)p) : UINT64_MAX;
    return m ? m->where : SIM_PAGEABLE;
}

static cudaError_t bad(const char *call, const char *what, const void *p, size_t bytes) {
    fprintf(stderr, "cudasim: %s: %s (%p, %zu bytes)\n", call, what, p, bytes);
    return cudaErrorInvalidValue;
}

cudaError_t sim_set_check(const char *call, void *dst, size_t bytes) {
    uint64_t left;
    if (!bytes) return cudaSuccess;
    enum sim_where w = sim_where(dst, &left);
    if (w == SIM_PAGEABLE) return bad(call, "not memory of the device", dst, bytes);
    return bytes > left ? bad(call, "longer than what is allocated there", dst, bytes)
                        : cudaSuccess;
}

cudaError_t sim_copy_check(const char *call, void *dst, const void *src, size_t bytes,
                           enum cudaMemcpyKind kind) {
    uint64_t to_left, from_left;
    if (!bytes) return cudaSuccess;
    if ((unsigned)kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (!dst || !src) return bad(call, "a null pointer", NULL, bytes);
    bool to = sim_where(dst, &to_left) == SIM_DEVICE;
    bool from = sim_where(src, &from_left) == SIM_DEVICE;
    if (bytes > to_left) return bad(call, "longer than what is allocated there", dst, bytes);
    if (bytes > from_left) return bad(call, "longer than what is allocated there", src, bytes);
    if (kind == cudaMemcpyDefault) return cudaSuccess;
    if (to != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice))
        return bad(call, "the destination is not of the direction's kind", dst, bytes);
    if (from != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))
        return bad(call, "the source is not of the direction's kind", src, bytes);
    return cudaSuccess;
}
