/* command.m - pipelines, dispatches and command buffers. Owns the cache of specialised pipelines
 * and the command buffers in flight; the worker's thread runs it. Encoding does not wait for the
 * GPU. */
#include "core/backend/metal/metal_int.h"

#include <stdio.h>
#include <string.h>

int metal_fail(struct metal_backend *m, const char *what, NSError *error) {
    if (m->failed.code) return m->failed.code;
    const char *why = error ? [[error localizedDescription] UTF8String] : "no reason given";
    return err_set(&m->failed, ERR_DEVICE, "the Metal device failed: %s: %s", what, why);
}

static int refuse(const struct metal_backend *m, err *e) {
    if (e) *e = m->failed;
    return m->failed.code;
}

/* ---- pipelines ---- */

static uint32_t hash_of(const struct metal_launch *l) {
    uint64_t h = 14695981039346656037u;
    for (const char *p = l->kernel; *p; p++)
        h = (h ^ (uint8_t)*p) * 1099511628211u;
    for (uint32_t i = 0; i < l->n_consts; i++)
        h = (h ^ l->consts[i].index) * 1099511628211u,
        h = (h ^ l->consts[i].value) * 1099511628211u;
    return (uint32_t)(h ^ h >> 32);
}

static bool is_pipeline(const struct metal_pipeline *p, const struct metal_launch *l) {
    return p->n_consts == l->n_consts && strcmp(p->kernel, l->kernel) == 0 &&
           memcmp(p->consts, l->consts, l->n_consts * sizeof l->consts[0]) == 0;
}

static id<MTLFunction> new_function(struct metal_backend *m, const struct metal_launch *l,
                                    NSError **error) {
    MTLFunctionConstantValues *values = [[MTLFunctionConstantValues new] autorelease];
    NSString *name = [NSString stringWithUTF8String:l->kernel];
    for (uint32_t i = 0; i < l->n_consts; i++)
        [values setConstantValue:&l->consts[i].value
                            type:MTLDataTypeUInt
                         atIndex:l->consts[i].index];
    for (uint32_t i = 0; i < m->n_libraries; i++)
        if ([[m->libraries[i] functionNames] containsObject:name])
            return [m->libraries[i] newFunctionWithName:name constantValues:values error:error];
    return nil;
}

static int compile(struct metal_backend *m, const struct metal_launch *l,
                   struct metal_pipeline *p) {
    int rc = 0;
    @autoreleasepool {
        NSError *error = nil;
        id<MTLFunction> function = new_function(m, l, &error);
        id<MTLComputePipelineState> state =
            function ? [m->device newComputePipelineStateWithFunction:function error:&error] : nil;
        [function release];
        if (!state) {
            rc = metal_fail(m, l->kernel, error);
        } else {
            uint32_t counter = 0;
            while (strcmp(m->base.kernel_names[counter], l->kernel) != 0)
                counter++; /* every function of the libraries has one */
            *p = (struct metal_pipeline){.kernel = m->base.kernel_names[counter],
                                         .n_consts = l->n_consts,
                                         .counter = counter,
                                         .max_threads =
                                             (uint32_t)[state maxTotalThreadsPerThreadgroup],
                                         .simd_width = (uint32_t)[state threadExecutionWidth],
                                         .state = state};
            memcpy(p->consts, l->consts, l->n_consts * sizeof l->consts[0]);
            m->n_pipelines++;
        }
    }
    return rc;
}

static struct metal_pipeline *find_pipeline(struct metal_backend *m, const struct metal_launch *l) {
    uint32_t i = hash_of(l) % METAL_MAX_PIPELINES;
    for (; m->pipelines[i].state; i = (i + 1) % METAL_MAX_PIPELINES)
        if (is_pipeline(&m->pipelines[i], l)) return &m->pipelines[i];
    if (m->n_pipelines + 1 == METAL_MAX_PIPELINES) {
        metal_fail(m, "too many kernel variants", nil);
        return NULL;
    }
    return compile(m, l, &m->pipelines[i]) ? NULL : &m->pipelines[i];
}

uint32_t metal_simd_width(struct metal_backend *m, const struct metal_launch *l) {
    struct metal_pipeline *p = m->failed.code ? NULL : find_pipeline(m, l);
    return p ? p->simd_width : 0;
}

/* ---- dispatches ---- */

static int open_encoder(struct metal_backend *m) {
    if (m->encoder) return 0;
    m->encoding = [[m->queue commandBuffer] retain];
    m->encoder = [[m->encoding computeCommandEncoder] retain];
    return m->encoder ? 0 : metal_fail(m, "a command buffer", nil);
}

static void encode(id<MTLComputeCommandEncoder> encoder, const struct metal_pipeline *p,
                   const struct metal_launch *l) {
    [encoder setComputePipelineState:p->state];
    [encoder setBytes:l->args length:l->args_bytes atIndex:0];
    for (uint32_t i = 0; i < l->n_binds; i++)
        [encoder setBuffer:l->binds[i].mtl offset:l->binds[i].offset atIndex:i + 1];
    /* Also 0: the length of the dispatch before would stay, and count beside this kernel's own. */
    [encoder setThreadgroupMemoryLength:l->tg_bytes atIndex:0];
    [encoder dispatchThreadgroups:MTLSizeMake(l->groups[0], l->groups[1], l->groups[2])
            threadsPerThreadgroup:MTLSizeMake(l->threads[0], l->threads[1], l->threads[2])];
}

/* Registers may leave a kernel fewer threads than the device has. */
static bool fits(const struct metal_pipeline *p, const struct metal_launch *l) {
    uint64_t n = (uint64_t)l->threads[0] * l->threads[1] * l->threads[2];
    return n <= p->max_threads && p->simd_width == METAL_SIMD;
}

int metal_dispatch(struct metal_backend *m, const struct metal_launch *l) {
    if (m->failed.code) return m->failed.code;
    struct metal_pipeline *p = find_pipeline(m, l);
    if (!p) return m->failed.code;
    if (!fits(p, l))
        return err_set(&m->failed, ERR_DEVICE,
                       "the Metal device cannot run %s in threadgroups of %u by %u by %u: it takes "
                       "%u threads, in simdgroups of %u",
                       l->kernel, l->threads[0], l->threads[1], l->threads[2], p->max_threads,
                       p->simd_width);
    int rc;
    @autoreleasepool {
        rc = open_encoder(m);
        if (!rc) encode(m->encoder, p, l);
    }
    if (rc) return rc;
    struct metal_tally *t = &m->encoded[p->counter];
    t->n++, t->read += l->read, t->written += l->written;
    return 0;
}

/* ---- command buffers ---- */

/* What the framework autoreleases is freed here: the threads that compute have no pool of their
 * own. */
static void end_encoder(struct metal_backend *m) {
    @autoreleasepool {
        [m->encoder endEncoding];
        [m->encoder release];
    }
    m->encoder = nil;
}

/* Waits for what runs; its error, if any, is the device's. */
static int wait_running(struct metal_backend *m) {
    if (!m->running) return m->failed.code;
    @autoreleasepool {
        [m->running waitUntilCompleted];
        if ([m->running status] != MTLCommandBufferStatusCompleted)
            metal_fail(m, "a step did not complete", [m->running error]);
        [m->running release];
    }
    m->running = nil;
    return m->failed.code;
}

static void count(struct metal_backend *m, const struct metal_tally *tally) {
    for (uint32_t i = 0; i < m->base.n_kernels; i++) {
        const struct metal_tally *t = &tally[i];
        atomic_fetch_add_explicit(&m->base.kernel_counts[i], t->n, memory_order_relaxed);
        atomic_fetch_add_explicit(&m->base.kernel_read[i], t->read, memory_order_relaxed);
        atomic_fetch_add_explicit(&m->base.kernel_written[i], t->written, memory_order_relaxed);
    }
}

/* Takes next. One command buffer is in flight at a time, and perhaps one encoded behind it. */
static void commit(struct metal_backend *m, id<MTLCommandBuffer> next, struct metal_tally *tally) {
    int rc = wait_running(m);
    @autoreleasepool {
        if (rc)
            [next release];
        else
            [next commit];
    }
    if (!rc) {
        m->running = next;
        count(m, tally);
    }
    memset(tally, 0, sizeof m->encoded);
}

/* What is being recorded is not for now. */
int metal_flush(backend *be, err *e) {
    struct metal_backend *m = metal_of(be);
    if (m->encoding && !m->recording) {
        id<MTLCommandBuffer> next = m->encoding;
        end_encoder(m);
        m->encoding = nil;
        commit(m, next, m->encoded);
    }
    return refuse(m, e);
}

int metal_sync(backend *be, err *e) {
    struct metal_backend *m = metal_of(be);
    metal_flush(be, NULL);
    wait_running(m);
    return refuse(m, e);
}

int metal_record(backend *be, uint64_t key, err *e) {
    struct metal_backend *m = metal_of(be);
    (void)key; /* a command buffer runs once: nothing is kept */
    metal_drop_recorded(be);
    int rc = metal_flush(be, e);
    m->recording = !rc;
    return rc;
}

int metal_record_end(backend *be, err *e) {
    struct metal_backend *m = metal_of(be);
    if (!m->recording) return err_set(e, ERR_INVALID, "no step is being recorded");
    m->recording = false;
    end_encoder(m);
    m->recorded = m->encoding;
    m->encoding = nil;
    memcpy(m->ahead, m->encoded, sizeof m->ahead);
    memset(m->encoded, 0, sizeof m->encoded);
    return refuse(m, e);
}

int metal_run_recorded(backend *be, err *e) {
    struct metal_backend *m = metal_of(be);
    if (!m->recorded) return err_set(e, ERR_INVALID, "no step is recorded");
    metal_flush(be, NULL); /* enqueued before */
    id<MTLCommandBuffer> next = m->recorded;
    m->recorded = nil;
    commit(m, next, m->ahead);
    return refuse(m, e);
}

void metal_drop_recorded(backend *be) {
    struct metal_backend *m = metal_of(be);
    if (m->recording) metal_record_end(be, NULL);
    @autoreleasepool {
        [m->recorded release];
    }
    m->recorded = nil;
}
