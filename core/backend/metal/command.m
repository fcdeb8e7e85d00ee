/* command.m - pipelines, dispatches and command buffers. Owns the cache of specialized pipelines
 * and the command buffers in flight; runs on the worker's thread. Encoding does not wait for the
 * GPU. */
#include "core/backend/metal/metal_int.h"

#include "core/base/clock.h"

#include <stdio.h>
#include <string.h>

int metal_fail(struct metal_backend *m, const char *what, NSError *error) {
    if (m->failed.code) return m->failed.code;
    const char *why = error ? [[error localizedDescription] UTF8String] : "no reason given";
    return err_set(&m->failed, ERR_DEVICE, "the Metal device failed: %s: %s", what, why);
}

static int report_failure(const struct metal_backend *m, err *e) {
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

/* The buffers that the kernel may write: bit i is buffer(i); all if the device does not tell. */
static uint32_t written_of(MTLComputePipelineReflection *arguments) {
    uint32_t written = arguments ? 0 : UINT32_MAX;
    for (id<MTLBinding> b in [arguments bindings])
        if ([b type] == MTLBindingTypeBuffer && [b access] != MTLBindingAccessReadOnly)
            written |= 1u << [b index];
    return written;
}

static int compile_pipeline(struct metal_backend *m, const struct metal_launch *l,
                            struct metal_pipeline *p) {
    int rc = 0;
    const uint64_t start = clock_now_ns();
    @autoreleasepool {
        NSError *error = nil;
        id<MTLFunction> function = new_function(m, l, &error);
        MTLComputePipelineReflection *arguments = nil;
        id<MTLComputePipelineState> state =
            function ? [m->device newComputePipelineStateWithFunction:function
                                                              options:MTLPipelineOptionArgumentInfo
                                                           reflection:&arguments
                                                                error:&error]
                     : nil;
        [function release];
        if (!state) {
            rc = metal_fail(m, l->kernel, error);
        } else {
            uint32_t counter = 0;
            while (strcmp(m->base.kernel_names[counter], l->kernel) != 0)
                counter++; /* each function of the libraries has a counter */
            *p = (struct metal_pipeline){
                .kernel = m->base.kernel_names[counter],
                .n_consts = l->n_consts,
                .counter = counter,
                .max_threads = (uint32_t)[state maxTotalThreadsPerThreadgroup],
                .simd_width = (uint32_t)[state threadExecutionWidth],
                .written = written_of(arguments),
                .tg_bytes = (uint32_t)[state staticThreadgroupMemoryLength],
                .compile_ms = (double)(clock_now_ns() - start) * 1e-6,
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
        metal_fail(m, "compiling kernels: more variants than the pipeline cache holds", nil);
        return NULL;
    }
    return compile_pipeline(m, l, &m->pipelines[i]) ? NULL : &m->pipelines[i];
}

uint32_t metal_simd_width(struct metal_backend *m, const struct metal_launch *l) {
    struct metal_pipeline *p = m->failed.code ? NULL : find_pipeline(m, l);
    return p ? p->simd_width : 0;
}

/* ---- command buffers ---- */

/* With a pool for the objects that the framework autoreleases: the worker's thread has none. */
static void end_encoder(struct metal_backend *m) {
    @autoreleasepool {
        [m->encoder endEncoding];
        [m->encoder release];
    }
    m->encoder = nil;
}

/* Waits for the oldest running command buffer, whose error becomes the device's. */
static void wait_oldest(struct metal_backend *m) {
    id<MTLCommandBuffer> oldest = m->running[0];
    @autoreleasepool {
        [oldest waitUntilCompleted];
        if ([oldest status] != MTLCommandBufferStatusCompleted) {
            NSError *error = [oldest error];
            m->gone |= [error code] == MTLCommandBufferErrorDeviceRemoved;
            metal_fail(m, "running a step", error);
        }
        [oldest release];
    }
    m->n_running--;
    memmove(m->running, m->running + 1, m->n_running * sizeof m->running[0]);
    m->running[m->n_running] = nil;
}

static int wait_running(struct metal_backend *m) {
    while (m->n_running)
        wait_oldest(m);
    return m->failed.code;
}

static void add_to(atomic_uint_fast64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static void count_dispatches(struct metal_backend *m, const struct metal_tally *tally) {
    for (uint32_t i = 0; i < m->base.n_kernels; i++) {
        const struct metal_tally *t = &tally[i];
        if (!t->n) continue;
        add_to(&m->base.kernel_counts[i], t->n);
        add_to(&m->base.kernel_read[i], t->read);
        add_to(&m->base.kernel_written[i], t->written);
        add_to(&m->base.kernel_hidden[i], t->hidden);
        add_to(&m->base.kernel_cycles[i], t->cycles);
    }
}

/* Takes next. Only the parts of one step are in flight, plus a step captured and not committed. */
static void commit_buffer(struct metal_backend *m, id<MTLCommandBuffer> next,
                          struct metal_tally *tally) {
    if (!m->in_parts)
        wait_running(m);
    else if (m->n_running == METAL_MAX_PARTS)
        wait_oldest(m);
    int rc = m->failed.code;
    @autoreleasepool {
        if (!rc) metal_residency_use(m);
        if (rc)
            [next release];
        else
            [next commit];
    }
    if (!rc) {
        m->running[m->n_running++] = next;
        count_dispatches(m, tally);
    }
    memset(tally, 0, sizeof m->encoding_tally);
}

static void commit_encoding(struct metal_backend *m) {
    id<MTLCommandBuffer> next = m->encoding;
    end_encoder(m);
    m->encoding = nil;
    m->encoded_s = 0;
    commit_buffer(m, next, m->encoding_tally);
}

/* ---- dispatches ---- */

/* Buffers are freed only when no command buffer uses them (metal_settle), and pipelines when the
 * device is closed, so nothing needs to be retained. */
static int open_encoder(struct metal_backend *m) {
    if (m->encoder) return 0;
    m->encoding = [[m->queue commandBufferWithUnretainedReferences] retain];
    m->encoder =
        [[m->encoding computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent] retain];
    m->n_used = 0;
    return m->encoder ? 0 : metal_fail(m, "opening a command buffer", nil);
}

static void encode_dispatch(id<MTLComputeCommandEncoder> encoder, const struct metal_pipeline *p,
                            const struct metal_launch *l) {
    [encoder setComputePipelineState:p->state];
    [encoder setBytes:l->args length:l->args_bytes atIndex:0];
    for (uint32_t i = 0; i < l->n_binds; i++)
        [encoder setBuffer:l->binds[i].mtl offset:l->binds[i].offset atIndex:i + 1];
    /* Set even if 0: otherwise the previous dispatch's length would stay in force. */
    [encoder setThreadgroupMemoryLength:l->tg_bytes atIndex:0];
    [encoder dispatchThreadgroups:MTLSizeMake(l->groups[0], l->groups[1], l->groups[2])
            threadsPerThreadgroup:MTLSizeMake(l->threads[0], l->threads[1], l->threads[2])];
}

/* Whether the dispatch must wait for one since the last barrier: that one wrote a buffer which this
 * one uses, or used a buffer which this one writes. */
static bool depends(const struct metal_backend *m, const struct metal_pipeline *p,
                    const struct metal_launch *l) {
    for (uint32_t i = 0; i < l->n_binds; i++)
        for (uint32_t k = 0; k < m->n_used; k++)
            if (m->used[k].mtl == l->binds[i].mtl &&
                (m->used[k].written || p->written >> (i + 1) & 1))
                return true;
    return false;
}

/* Dispatches run concurrently between barriers. */
static void put_barrier(struct metal_backend *m, const struct metal_pipeline *p,
                        const struct metal_launch *l) {
    if (m->n_used + l->n_binds > METAL_MAX_USED || depends(m, p, l)) {
        [m->encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
        m->n_used = 0;
    }
    for (uint32_t i = 0; i < l->n_binds; i++)
        m->used[m->n_used++] =
            (struct metal_use){.mtl = l->binds[i].mtl, .written = p->written >> (i + 1) & 1};
}

/* A kernel that needs many registers allows fewer threads than the device. */
static bool fits_pipeline(const struct metal_pipeline *p, const struct metal_launch *l) {
    uint64_t n = (uint64_t)l->threads[0] * l->threads[1] * l->threads[2];
    return n <= p->max_threads && p->simd_width == METAL_SIMD;
}

/* Half of what an M1, the slowest chip, can do: multiplications and bytes a second. */
static const double slow_products = 0.6e12, slow_bytes = 34e9;

/* macOS kills a command buffer that keeps the GPU from the desktop for too long. */
static void commit_if_long(struct metal_backend *m, const struct metal_launch *l) {
    double products_s = (double)l->products / slow_products;
    double bytes_s = (double)(l->read + l->written + l->hidden_read) / slow_bytes;
    m->encoded_s += products_s > bytes_s ? products_s : bytes_s;
    if (m->capturing || m->most_s <= 0 || m->encoded_s < m->most_s) return;
    commit_encoding(m);
    m->in_parts = true;
}

static void tally_dispatch(struct metal_tally *t, const struct metal_launch *l) {
    t->n++, t->read += l->read, t->written += l->written, t->hidden += l->hidden_read;
    t->cycles += metal_cycles(l);
}

/* Runs what is encoded, one dispatch, and counts its time. */
static void time_dispatch(struct metal_backend *m, uint32_t counter) {
    wait_running(m);
    commit_encoding(m);
    if (m->failed.code) return;
    @autoreleasepool {
        id<MTLCommandBuffer> own = m->running[0];
        [own waitUntilCompleted];
        const double seconds = [own GPUEndTime] - [own GPUStartTime];
        if (seconds > 0) add_to(&m->base.kernel_ns[counter], (uint64_t)(seconds * 1e9));
    }
    wait_running(m);
}

int metal_dispatch(struct metal_backend *m, const struct metal_launch *l) {
    if (m->failed.code) return m->failed.code;
    struct metal_pipeline *p = find_pipeline(m, l);
    if (!p) return m->failed.code;
    if (!fits_pipeline(p, l))
        return err_set(&m->failed, ERR_DEVICE,
                       "the Metal device cannot run %s in threadgroups of %u by %u by %u: at "
                       "most %u threads, in simdgroups of %u",
                       l->kernel, l->threads[0], l->threads[1], l->threads[2], p->max_threads,
                       p->simd_width);
    if (m->mode == BACKEND_COMPILES) return 0;
    struct metal_tally *t = &m->encoding_tally[p->counter];
    if (m->mode == BACKEND_COUNTS) {
        tally_dispatch(t, l);
        count_dispatches(m, m->encoding_tally);
        *t = (struct metal_tally){0};
        return 0;
    }
    int rc;
    @autoreleasepool {
        rc = open_encoder(m);
        if (!rc) put_barrier(m, p, l), encode_dispatch(m->encoder, p, l);
    }
    if (rc) return rc;
    tally_dispatch(t, l);
    if (m->mode == BACKEND_TIMES)
        time_dispatch(m, p->counter);
    else
        commit_if_long(m, l);
    return m->failed.code;
}

/* ---- steps ---- */

/* Leaves a step that is being captured alone. */
int metal_flush(backend *be, err *e) {
    struct metal_backend *m = metal_of(be);
    if (m->encoding && !m->capturing) commit_encoding(m);
    m->in_parts = false;
    return report_failure(m, e);
}

void metal_set_mode(backend *be, enum backend_mode mode) {
    metal_of(be)->mode = mode;
}

void backend_metal_set_part_time(backend *be, double seconds) {
    metal_of(be)->most_s = seconds;
}

void metal_settle(struct metal_backend *m) {
    if (m->capturing || m->captured) metal_graph_discard(&m->base);
    if (m->encoding || m->n_running) metal_sync(&m->base, NULL);
}

double backend_metal_encoded_s(const backend *be) {
    return ((const struct metal_backend *)be)->encoded_s;
}

int metal_sync(backend *be, err *e) {
    struct metal_backend *m = metal_of(be);
    metal_flush(be, NULL);
    wait_running(m);
    return report_failure(m, e);
}

/* After an error a queue may ignore what is committed to it, so the next steps get a new one. */
int metal_recover(backend *be, err *e) {
    struct metal_backend *m = metal_of(be);
    metal_graph_discard(be);
    if (m->encoder) end_encoder(m);
    wait_running(m);
    if (m->gone) return report_failure(m, e);
    @autoreleasepool {
        [m->encoding release];
        m->encoding = nil;
        id<MTLCommandQueue> queue = [m->device newCommandQueue];
        if (!queue) return err_set(e, ERR_DEVICE, "the Metal device returned no command queue");
        [m->queue release];
        m->queue = queue;
        metal_residency_requeue(m);
    }
    memset(m->encoding_tally, 0, sizeof m->encoding_tally);
    m->encoded_s = 0;
    m->in_parts = false;
    err_clear(&m->failed);
    return 0;
}

int metal_capture_begin(backend *be, uint64_t key, err *e) {
    struct metal_backend *m = metal_of(be);
    (void)key; /* a command buffer runs once: graphs are not kept */
    if (m->mode == BACKEND_TIMES)
        return err_set(e, ERR_UNSUPPORTED, "kernels that are timed run one by one");
    metal_graph_discard(be);
    int rc = metal_flush(be, e);
    m->capturing = !rc;
    return rc;
}

int metal_capture_end(backend *be, err *e) {
    struct metal_backend *m = metal_of(be);
    if (!m->capturing) return err_set(e, ERR_INVALID, "capture_end without capture_begin");
    m->capturing = false;
    end_encoder(m);
    m->encoded_s = 0;
    m->captured = m->encoding;
    m->encoding = nil;
    memcpy(m->captured_tally, m->encoding_tally, sizeof m->captured_tally);
    memset(m->encoding_tally, 0, sizeof m->encoding_tally);
    return report_failure(m, e);
}

int metal_graph_launch(backend *be, err *e) {
    struct metal_backend *m = metal_of(be);
    if (!m->captured) return err_set(e, ERR_INVALID, "graph_launch without a captured step");
    metal_flush(be, NULL); /* ops that were enqueued earlier */
    id<MTLCommandBuffer> next = m->captured;
    m->captured = nil;
    commit_buffer(m, next, m->captured_tally);
    return report_failure(m, e);
}

void metal_graph_discard(backend *be) {
    struct metal_backend *m = metal_of(be);
    if (m->capturing) metal_capture_end(be, NULL);
    @autoreleasepool {
        [m->captured release];
    }
    m->captured = nil;
}
