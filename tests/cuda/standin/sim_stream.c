/* sim_stream.c - streams, events, launches, graphs. A stream runs its work at once, or with
 * CUDASIM_LATE when something waits for it; under capture it keeps the work for a graph. */
#include "sim_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum kind { KERNEL, COPY, SET, HOST, RECORD, WAIT, GRAPH };

struct op {
    enum kind kind;
    struct sim_kernel kernel;
    void *dst;
    const void *src;
    void *owned; /* a pageable source's bytes at the time of the call */
    size_t bytes;
    int value;
    cudaHostFn_t fn;
    cudaEvent_t event;
    uint64_t version; /* of event */
    cudaGraphExec_t exec;
    size_t n_done; /* of exec's ops */
};
struct ops {
    struct op *of;
    size_t n, cap, first; /* those before `first` are done */
};

/* Of each stream of a capture: how much of its work something follows. */
enum { MAX_CAPTURING = 8 };
struct clock {
    uint64_t of[MAX_CAPTURING];
};

struct CUgraph_st {
    struct ops ops;
    int n_streams; /* that took part */
    bool invalid, ended;
    enum cudaStreamCaptureMode mode;
};
struct CUgraphExec_st {
    struct ops ops;
    int refs;
};
struct CUevent_st {
    unsigned flags;
    int refs, device;
    cudaStream_t stream;       /* where it was recorded last */
    uint64_t version, reached; /* times recorded; times reached */
    struct timespec at;
    cudaGraph_t graph;  /* recorded under this capture */
    struct clock clock; /* of the stream, then */
};
struct CUstream_st {
    struct CUstream_st *next;
    int device;
    unsigned flags;
    struct ops ops;
    bool running, late;
    cudaGraph_t capture;
    bool origin; /* of the capture */
    int place;   /* in clocks of the capture */
    struct clock clock;
};

static struct CUstream_st *streams, legacy[64];
static long n_launches, n_syncs, n_waits;
static int n_captures_strict;
static __thread size_t next_args_bytes;
/* The thread asks whether a stream is done: it does not wait for other ranks (sim_nccl.c). */
static __thread bool asking, stopped;

static void *must(void *p) {
    if (!p) cudasim_fail("no memory for the stand-in");
    return p;
}

static struct op *push(struct ops *o) {
    if (o->n == o->cap) {
        o->cap = o->cap ? 2 * o->cap : 16;
        o->of = must(realloc(o->of, o->cap * sizeof *o->of));
    }
    return memset(&o->of[o->n++], 0, sizeof *o->of);
}

static void exec_drop(cudaGraphExec_t e);
static void event_drop(cudaEvent_t e) {
    if (--e->refs) return;
    sim_counts.events--;
    free(e);
}

static void op_free(struct op *o) {
    free(o->kernel.args);
    free(o->owned);
    if (o->event) event_drop(o->event);
    if (o->exec) exec_drop(o->exec);
}

static void ops_free(struct ops *o) {
    for (size_t i = o->first; i < o->n; i++)
        op_free(&o->of[i]);
    free(o->of);
    memset(o, 0, sizeof *o);
}

static void exec_drop(cudaGraphExec_t e) {
    if (--e->refs) return;
    sim_counts.graphs--;
    ops_free(&e->ops);
    free(e);
}

/* A copy of an op that owns what it points to. */
static struct op op_copy(const struct op *o) {
    struct op c = *o;
    if (c.kernel.args) {
        c.kernel.args = must(malloc(c.kernel.args_bytes));
        memcpy(c.kernel.args, o->kernel.args, c.kernel.args_bytes);
    }
    if (c.owned) {
        c.owned = must(malloc(c.bytes));
        memcpy(c.owned, o->owned, c.bytes);
    }
    if (c.event) c.event->refs++;
    if (c.exec) c.exec->refs++;
    return c;
}

/* ---- running ---- */

static void flush(cudaStream_t s, cudaEvent_t until, uint64_t version);

static void run_op(struct op *o);

/* Runs some of n > 0 ops in order; returns how many. A deferred kernel may begin before the
 * previous one ends: every second time, so that each kernel is the earlier one in some runs. */
static size_t run_some(struct op *o, size_t n) {
    static unsigned turn;
    if (sim_options()->late && n > 1 && o[0].kind == KERNEL && o[1].kind == KERNEL &&
        o[1].kernel.early && turn++ % 3) {
        sim_kernel_run(&o[1].kernel, &o[0].kernel);
        return 2;
    }
    run_op(o);
    return 1;
}

static void run_op(struct op *o) {
    switch (o->kind) {
    case KERNEL:
        sim_kernel_run(&o->kernel, NULL);
        break;
    case COPY:
        memmove(o->dst, o->owned ? o->owned : o->src, o->bytes);
        break;
    case SET:
        memset(o->dst, o->value, o->bytes);
        break;
    case HOST:
        o->fn(o->dst);
        break;
    case RECORD:
        if (o->event->reached < o->version) o->event->reached = o->version;
        clock_gettime(CLOCK_MONOTONIC, &o->event->at);
        break;
    case WAIT:
        if (o->event->reached < o->version) flush(o->event->stream, o->event, o->version);
        break;
    case GRAPH:
        for (size_t n = o->exec->ops.n; o->n_done < n && !stopped;) {
            size_t ran = run_some(&o->exec->ops.of[o->n_done], n - o->n_done);
            if (!stopped) o->n_done += ran;
        }
        if (!stopped) o->n_done = 0;
        break;
    }
}

/* Runs the deferred work of s: all of it, or until the event is reached. */
static void flush(cudaStream_t s, cudaEvent_t until, uint64_t version) {
    while (s->ops.first < s->ops.n && !(until && until->reached >= version)) {
        struct op o[2];
        size_t left = s->ops.n - s->ops.first, n = left < 2 ? left : 2;
        memcpy(o, &s->ops.of[s->ops.first], n * sizeof *o);
        n = run_some(o, n);
        if (stopped) { /* it is run again */
            s->ops.of[s->ops.first].n_done = o[0].n_done;
            return;
        }
        s->ops.first += n;
        for (size_t i = 0; i < n; i++)
            op_free(&o[i]);
    }
    if (s->ops.first == s->ops.n) s->ops.first = s->ops.n = 0;
}

bool sim_stops_asking(void) {
    return stopped = asking;
}

void sim_flush_all(void) {
    for (cudaStream_t s = streams; s; s = s->next)
        flush(s, NULL, 0);
    for (int i = 0; i < 64; i++)
        flush(&legacy[i], NULL, 0);
}

/* The legacy stream waits for all streams that are not non-blocking. */
static void flush_blocking(void) {
    for (cudaStream_t s = streams; s; s = s->next)
        if (!(s->flags & cudaStreamNonBlocking) && s->device == sim_device()) flush(s, NULL, 0);
    flush(&legacy[sim_device()], NULL, 0);
}

/* Of this device; NULL: no such stream. */
static cudaStream_t stream_of(cudaStream_t s) {
    if (!s) {
        legacy[sim_device()].device = sim_device();
        return &legacy[sim_device()];
    }
    for (cudaStream_t i = streams; i; i = i->next)
        if (i == s) return i->device == sim_device() ? i : NULL;
    return NULL;
}

static bool is_legacy(cudaStream_t s) {
    return s == &legacy[sim_device()];
}

/* Takes over what o owns. */
static cudaError_t enqueue(cudaStream_t s, struct op *o) {
    if (is_legacy(s)) flush_blocking();
    if (s->capture) {
        if (s->capture->invalid) {
            op_free(o);
            return cudaErrorStreamCaptureInvalidated;
        }
        *push(&s->capture->ops) = *o;
        s->clock.of[s->place]++;
        return cudaSuccess;
    }
    *push(&s->ops) = *o;
    if ((!sim_options()->late && !s->late) || is_legacy(s)) flush(s, NULL, 0);
    return cudaSuccess;
}

void sim_stream_late(cudaStream_t s) {
    s->late = true;
}

static void begin_capturing(cudaStream_t s, cudaGraph_t g) {
    if (g->n_streams == MAX_CAPTURING) cudasim_fail("more than %d streams capture", MAX_CAPTURING);
    s->capture = g;
    s->place = g->n_streams++;
    s->clock = (struct clock){{0}};
}

/* Does origin follow all work of the streams that joined its capture? */
static bool has_joined(cudaStream_t origin) {
    for (cudaStream_t s = streams; s; s = s->next)
        if (s->capture == origin->capture && origin->clock.of[s->place] < s->clock.of[s->place])
            return false;
    return true;
}

/* Waiting for a stream under capture ends the capture. */
static cudaError_t not_captured(cudaStream_t s) {
    if (!s->capture) return cudaSuccess;
    s->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

bool sim_capture_forbids(void) {
    if (!n_captures_strict) return false;
    for (cudaStream_t s = streams; s; s = s->next)
        if (s->capture && s->capture->mode != cudaStreamCaptureModeRelaxed)
            s->capture->invalid = true;
    return true;
}

static cudaError_t synced(cudaError_t rc) {
    if (rc) return rc;
    while (sim_fails(sim_options()->hang_sync, &n_waits)) /* a device that stops */
        pause();
    return sim_fails(sim_options()->fail_sync, &n_syncs) ? sim_lose(cudaErrorECCUncorrectable)
                                                         : cudaSuccess;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags) {
    cudaError_t rc = sim_enter();
    *out = NULL;
    if (rc || flags > 1) return sim_leave(rc ? rc : cudaErrorInvalidValue);
    struct CUstream_st *s = must(calloc(1, sizeof *s));
    *s = (struct CUstream_st){.next = streams, .device = sim_device(), .flags = flags};
    *out = streams = s;
    sim_counts.streams++;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority) {
    (void)priority;
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return sim_leave(sim_enter());
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    cudaError_t rc = sim_enter();
    if (!s) return sim_leave(rc ? rc : cudaErrorInvalidResourceHandle);
    for (struct CUstream_st **p = &streams; *p; p = &(*p)->next) {
        if (*p != s) continue;
        if (!rc) flush(s, NULL, 0);
        *p = s->next;
        ops_free(&s->ops);
        free(s);
        sim_counts.streams--;
        return sim_leave(rc);
    }
    return sim_leave(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!(s = stream_of(s))) return sim_leave(cudaErrorInvalidResourceHandle);
    if ((rc = not_captured(s))) return sim_leave(rc);
    flush(s, NULL, 0);
    return sim_leave(synced(cudaSuccess));
}

cudaError_t cudaDeviceSynchronize(void) {
    cudaError_t rc = sim_enter();
    if (!rc && sim_capture_forbids()) rc = cudaErrorStreamCaptureUnsupported;
    if (!rc) sim_flush_all();
    return sim_leave(synced(rc));
}

cudaError_t cudaStreamQuery(cudaStream_t s) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!(s = stream_of(s))) return sim_leave(cudaErrorInvalidResourceHandle);
    if ((rc = not_captured(s))) return sim_leave(rc);
    bool busy = s->ops.n > s->ops.first;
    asking = true;
    stopped = false;
    flush(s, NULL, 0); /* it is done when one asks again */
    asking = stopped = false;
    return sim_leave(busy ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *data) {
    cudaError_t rc = sim_enter();
    if (!rc && !(s = stream_of(s))) rc = cudaErrorInvalidResourceHandle;
    if (!rc && !fn) rc = cudaErrorInvalidValue;
    return sim_leave(rc ? rc : enqueue(s, &(struct op){.kind = HOST, .fn = fn, .dst = data}));
}

/* ---- copies ---- */

static cudaError_t enqueue_copy(cudaStream_t s, void *dst, const void *src, size_t bytes) {
    struct op o = {.kind = COPY, .dst = dst, .src = src, .bytes = bytes};
    uint64_t left;
    if (sim_where(src, &left) == SIM_PAGEABLE) { /* staged within the call */
        o.owned = must(malloc(bytes));
        memcpy(o.owned, src, bytes);
    }
    cudaError_t rc = enqueue(s, &o);
    /* Copies to pageable memory have ended when the call returns. */
    if (!rc && !s->capture && sim_where(dst, &left) == SIM_PAGEABLE) flush(s, NULL, 0);
    return rc;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
    cudaError_t rc = sim_enter();
    if (!rc && !(s = stream_of(s))) rc = cudaErrorInvalidResourceHandle;
    if (!rc) rc = sim_copy_check("cudaMemcpyAsync", dst, src, bytes, kind);
    if (!rc && bytes) rc = enqueue_copy(s, dst, src, bytes);
    return sim_leave(rc);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind) {
    cudaError_t rc = sim_enter();
    if (!rc && sim_capture_forbids()) rc = cudaErrorStreamCaptureUnsupported;
    if (!rc) rc = sim_copy_check("cudaMemcpy", dst, src, bytes, kind);
    if (rc) return sim_leave(rc);
    flush_blocking();
    memmove(dst, src, bytes);
    return sim_leave(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s) {
    cudaError_t rc = sim_enter();
    if (!rc && !(s = stream_of(s))) rc = cudaErrorInvalidResourceHandle;
    if (!rc) rc = sim_set_check("cudaMemsetAsync", dst, bytes);
    if (!rc && bytes)
        rc = enqueue(s, &(struct op){.kind = SET, .dst = dst, .value = value, .bytes = bytes});
    return sim_leave(rc);
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes) {
    cudaError_t rc = sim_enter();
    if (!rc && sim_capture_forbids()) rc = cudaErrorStreamCaptureUnsupported;
    if (!rc) rc = sim_set_check("cudaMemset", dst, bytes);
    if (rc) return sim_leave(rc);
    flush_blocking();
    memset(dst, value, bytes);
    return sim_leave(cudaSuccess);
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags) {
    cudaError_t rc = sim_enter();
    *out = NULL;
    if (rc || flags > 7) return sim_leave(rc ? rc : cudaErrorInvalidValue);
    struct CUevent_st *e = must(calloc(1, sizeof *e));
    *e = (struct CUevent_st){.flags = flags, .refs = 1, .device = sim_device()};
    *out = e;
    sim_counts.events++;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    cudaError_t rc = sim_enter();
    if (!e) return sim_leave(cudaErrorInvalidResourceHandle);
    event_drop(e);
    return sim_leave(rc);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!e || !(s = stream_of(s)) || e->device != s->device)
        return sim_leave(cudaErrorInvalidResourceHandle);
    e->graph = s->capture;
    if (s->capture) { /* calls run in order anyway */
        e->clock = s->clock;
        return sim_leave(cudaSuccess);
    }
    e->stream = s;
    e->refs++;
    struct op o = {.kind = RECORD, .event = e, .version = ++e->version};
    return sim_leave(enqueue(s, &o));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned int flags) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!e || !(s = stream_of(s))) return sim_leave(cudaErrorInvalidResourceHandle);
    if (flags) return sim_leave(cudaErrorInvalidValue);
    if (e->graph) { /* s joins the capture */
        if (s->capture && s->capture != e->graph) return sim_leave(cudaErrorStreamCaptureMerge);
        if (!s->capture) begin_capturing(s, e->graph);
        for (int i = 0; i < MAX_CAPTURING; i++)
            if (s->clock.of[i] < e->clock.of[i]) s->clock.of[i] = e->clock.of[i];
        return sim_leave(cudaSuccess);
    }
    if (s->capture) {
        s->capture->invalid = true;
        return sim_leave(cudaErrorStreamCaptureIsolation);
    }
    if (!e->version) return sim_leave(cudaSuccess);
    e->refs++;
    return sim_leave(enqueue(s, &(struct op){.kind = WAIT, .event = e, .version = e->version}));
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!e) return sim_leave(cudaErrorInvalidResourceHandle);
    if (e->graph) return sim_leave(cudaErrorCapturedEvent);
    bool busy = e->reached < e->version;
    if (busy) flush(e->stream, e, e->version); /* it is done when one asks again */
    return sim_leave(busy ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!e) return sim_leave(cudaErrorInvalidResourceHandle);
    if (e->graph) return sim_leave(cudaErrorCapturedEvent);
    if (e->reached < e->version) flush(e->stream, e, e->version);
    return sim_leave(synced(cudaSuccess));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!start || !end || !start->version || !end->version ||
        ((start->flags | end->flags) & cudaEventDisableTiming))
        return sim_leave(cudaErrorInvalidResourceHandle);
    if (start->reached < start->version || end->reached < end->version)
        return sim_leave(cudaErrorNotReady);
    *ms = (float)((double)(end->at.tv_sec - start->at.tv_sec) * 1e3 +
                  (double)(end->at.tv_nsec - start->at.tv_nsec) * 1e-6);
    return sim_leave(cudaSuccess);
}

/* ---- kernels ---- */

void cudasim_next_args_bytes(size_t n) {
    next_args_bytes = n;
}

cudaError_t cudaFuncSetAttribute(const void *fn, enum cudaFuncAttribute attr, int value) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!fn) return sim_leave(cudaErrorInvalidDeviceFunction);
    if (attr == cudaFuncAttributePreferredSharedMemoryCarveout)
        return sim_leave(value < -1 || value > 100 ? cudaErrorInvalidValue : cudaSuccess);
    struct sim_function *f = sim_function(fn);
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        (uint32_t)value + f->static_bytes > sim_shared_optin())
        return sim_leave(cudaErrorInvalidValue);
    f->dynamic_max = (uint32_t)value;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *fn) {
    cudaError_t rc = sim_enter();
    if (!rc && !fn) rc = cudaErrorInvalidDeviceFunction;
    if (rc) return sim_leave(rc);
    *attr = (struct cudaFuncAttributes){.maxThreadsPerBlock = SIM_MAX_THREADS,
                                        .numRegs = 64,
                                        .sharedSizeBytes = sim_function(fn)->static_bytes,
                                        .maxDynamicSharedSizeBytes =
                                            (int)sim_function(fn)->dynamic_max};
    return sim_leave(cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *fn,
                                                          int block_size, size_t dynamic) {
    cudaError_t rc = sim_enter();
    if (!rc && !fn) rc = cudaErrorInvalidDeviceFunction;
    if (!rc && (block_size < 1 || !blocks)) rc = cudaErrorInvalidValue;
    if (rc) return sim_leave(rc);
    size_t n = (sim_shared_optin() == 99 << 10 ? 1536u : 2048u) / (unsigned)block_size;
    size_t fits = (sim_shared_optin() + 1024) / (dynamic + sim_function(fn)->static_bytes + 1024);
    *blocks = (int)(n < fits ? n : fits);
    if (*blocks > 32) *blocks = 32;
    if (block_size > SIM_MAX_THREADS) *blocks = 0;
    return sim_leave(cudaSuccess);
}

static cudaError_t check_config(const cudaLaunchConfig_t *c, const void *fn) {
    const dim3 *g = &c->gridDim, *b = &c->blockDim;
    if (!g->x || !g->y || !g->z || g->x > 0x7fffffff || g->y > 65535 || g->z > 65535 || !b->x ||
        !b->y || !b->z || b->x > 1024 || b->y > 1024 || b->z > 64 ||
        (uint64_t)b->x * b->y * b->z > SIM_MAX_THREADS) {
        fprintf(stderr, "cudasim: kernel %s: grid (%u, %u, %u) of blocks (%u, %u, %u)\n",
                sim_function(fn)->name, g->x, g->y, g->z, b->x, b->y, b->z);
        return cudaErrorInvalidConfiguration;
    }
    const struct sim_function *f = sim_function(fn);
    if (c->dynamicSmemBytes > f->dynamic_max) {
        fprintf(stderr, "cudasim: kernel %s: %zu bytes of dynamic shared memory, %u allowed\n",
                f->name, c->dynamicSmemBytes, f->dynamic_max);
        return cudaErrorInvalidValue;
    }
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id != cudaLaunchAttributeIgnore &&
            c->attrs[i].id != cudaLaunchAttributePriority &&
            (c->attrs[i].id != cudaLaunchAttributeProgrammaticStreamSerialization ||
             sim_options()->sm < 90))
            return cudaErrorNotSupported;
    return cudaSuccess;
}

static cudaError_t launched(cudaStream_t s, cudaError_t rc) {
    if (rc || s->capture) return rc;
    return sim_fails(sim_options()->fail_launch, &n_launches) ? sim_lose(cudaErrorIllegalAddress)
                                                              : cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *fn, void **args) {
    size_t bytes = next_args_bytes;
    next_args_bytes = 0;
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!fn) return sim_leave(cudaErrorInvalidDeviceFunction);
    if (!c || !args || !args[0]) return sim_leave(cudaErrorInvalidValue);
    cudaStream_t s = stream_of(c->stream);
    if (!s) return sim_leave(cudaErrorInvalidResourceHandle);
    if ((rc = launched(s, check_config(c, fn)))) return sim_leave(rc);
    if (!bytes || bytes > 4096) /* CUDA's limit before sm_70's 32764 */
        cudasim_fail("launch of %s: %zu bytes of arguments (cudasim_next_args_bytes)",
                     sim_function(fn)->name, bytes);
    struct op o = {.kind = KERNEL};
    o.kernel =
        (struct sim_kernel){fn, c->gridDim, c->blockDim, c->dynamicSmemBytes, NULL, bytes, false};
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            o.kernel.early = c->attrs[i].val.programmaticStreamSerializationAllowed;
    o.kernel.args = must(malloc(bytes));
    memcpy(o.kernel.args, args[0], bytes);
    return sim_leave(enqueue(s, &o));
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (!s) return sim_leave(cudaErrorStreamCaptureUnsupported); /* the legacy stream */
    if (!(s = stream_of(s))) return sim_leave(cudaErrorInvalidResourceHandle);
    if (s->capture) return sim_leave(cudaErrorIllegalState);
    begin_capturing(s, must(calloc(1, sizeof *s->capture)));
    s->capture->mode = mode;
    s->origin = true;
    if (mode != cudaStreamCaptureModeRelaxed) n_captures_strict++;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out) {
    cudaError_t rc = sim_enter();
    *out = NULL;
    if (!s || !(s = stream_of(s))) return sim_leave(rc ? rc : cudaErrorInvalidResourceHandle);
    cudaGraph_t g = s->capture;
    if (!g) return sim_leave(rc ? rc : cudaErrorIllegalState);
    if (!s->origin) return sim_leave(rc ? rc : cudaErrorStreamCaptureUnmatched);
    const bool joined = has_joined(s);
    for (cudaStream_t i = streams; i; i = i->next)
        if (i->capture == g) {
            i->capture = NULL;
            i->origin = false;
        }
    if (g->mode != cudaStreamCaptureModeRelaxed) n_captures_strict--;
    if (!rc && g->invalid) rc = cudaErrorStreamCaptureInvalidated;
    if (!rc && !joined) rc = cudaErrorStreamCaptureUnjoined;
    if (rc) {
        ops_free(&g->ops);
        free(g);
        return sim_leave(rc);
    }
    sim_counts.graphs++;
    *out = g;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
    cudaError_t rc = sim_enter();
    if (!rc && !(s = stream_of(s))) rc = cudaErrorInvalidResourceHandle;
    *status = rc || !s->capture     ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return sim_leave(rc);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags) {
    cudaError_t rc = sim_enter();
    *out = NULL;
    if (rc || !g || flags > 15) return sim_leave(rc ? rc : cudaErrorInvalidValue);
    struct CUgraphExec_st *e = must(calloc(1, sizeof *e));
    e->refs = 1;
    for (size_t i = 0; i < g->ops.n; i++)
        *push(&e->ops) = op_copy(&g->ops.of[i]);
    sim_counts.graphs++;
    *out = e;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t e, cudaStream_t s) {
    cudaError_t rc = sim_enter();
    if (!rc && (!e || !stream_of(s))) rc = cudaErrorInvalidValue;
    return sim_leave(rc);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
    cudaError_t rc = sim_enter();
    if (!rc && (!e || !(s = stream_of(s)))) rc = cudaErrorInvalidValue;
    if (!rc) rc = launched(s, cudaSuccess);
    if (rc) return sim_leave(rc);
    e->refs++;
    return sim_leave(enqueue(s, &(struct op){.kind = GRAPH, .exec = e}));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
    cudaError_t rc = sim_enter();
    if (!e) return sim_leave(cudaErrorInvalidValue);
    exec_drop(e);
    return sim_leave(rc);
}

cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    cudaError_t rc = sim_enter();
    if (!g) return sim_leave(cudaErrorInvalidValue);
    sim_counts.graphs--;
    ops_free(&g->ops);
    free(g);
    return sim_leave(rc);
}
