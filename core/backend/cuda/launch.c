/* launch.c - kernels and recorded steps. Owns the graphs. Enqueuing does not wait for the device.
 *
 * Every launch allows the kernel before it to be still running (programmatic stream serialization):
 * kernels wait themselves, by pdl_wait, before they touch what others wrote. */
#include "core/backend/cuda/cuda_int.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>
#ifdef INFERD_CUDA_STANDIN
void cudasim_next_args_bytes(size_t n); /* tests/cuda/standin/cudasim.h: a launch does not say */
#endif

enum { DEFAULT_SHARED = 40 << 10 }; /* 48 KiB less what a kernel may declare */

static int refuse(const struct cuda_backend *c, err *e) {
    if (e) *e = c->failed;
    return c->failed.code;
}

/* ---- counters ---- */

/* The counter of a name; a new one gets one. Those beyond the table share its last entry. */
static uint32_t counter_of(struct cuda_backend *c, const char *name) {
    uint32_t n = c->base.n_kernels, i = 0;
    while (i < n && strcmp(c->base.kernel_names[i], name) != 0)
        i++;
    if (i < n || n == BACKEND_MAX_KERNELS) return i < n ? i : n - 1;
    c->base.kernel_names[n] = name;
    c->base.n_kernels = n + 1;
    return n;
}

/* What is known of a kernel, of which several may have one name. */
static struct cuda_function *function_of(struct cuda_backend *c, const struct cuda_launch *l) {
    struct cuda_function *f = c->functions;
    while (f < c->functions + c->n_functions && f->kernel != l->kernel)
        f++;
    if (f < c->functions + c->n_functions) return f;
    if (c->n_functions < CUDA_MAX_FUNCTIONS)
        c->n_functions++;
    else
        f--; /* its last entry is whose turn it is */
    /* A multiprocessor runs blocks of two kernels beside each other only where they divide its
     * memory alike: all take as much of it as shared memory as there is. A hint: may fail. */
    if (l->threads &&
        cudaFuncSetAttribute(l->kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100))
        cudaGetLastError();
    *f = (struct cuda_function){.kernel = l->kernel, .counter = counter_of(c, l->name)};
    return f;
}

/* More shared memory than the default has to be asked for. */
static cudaError_t allow_shared(struct cuda_function *f, const struct cuda_launch *l) {
    if (l->shared <= DEFAULT_SHARED || l->shared <= f->allowed_shared) return cudaSuccess;
    f->allowed_shared = l->shared;
    return cudaFuncSetAttribute(l->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)l->shared);
}

static void count(struct cuda_backend *c, uint32_t kernel, uint64_t n, uint64_t read,
                  uint64_t written) {
    struct backend *be = &c->base;
    atomic_fetch_add_explicit(&be->kernel_counts[kernel], n, memory_order_relaxed);
    atomic_fetch_add_explicit(&be->kernel_read[kernel], read, memory_order_relaxed);
    atomic_fetch_add_explicit(&be->kernel_written[kernel], written, memory_order_relaxed);
}

static void tally(struct cuda_backend *c, uint32_t kernel, const struct cuda_launch *l) {
    c->n_launches++;
    if (!c->capturing) {
        count(c, kernel, 1, l->read, l->written);
        return;
    }
    struct cuda_tally *t = &c->captured[kernel];
    t->n++;
    t->read += l->read;
    t->written += l->written;
}

void cuda_count(struct cuda_backend *c, const struct cuda_launch *l) {
    tally(c, counter_of(c, l->name), l);
}

/* ---- launches ---- */

int cuda_launch(struct cuda_backend *c, const struct cuda_launch *l) {
    if (c->failed.code) return c->failed.code;
    cuda_enter(c);
    struct cuda_function *f = function_of(c, l);
    cudaLaunchAttribute early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {
        .gridDim = {l->grid[0] ? l->grid[0] : 1, l->grid[1] ? l->grid[1] : 1,
                    l->grid[2] ? l->grid[2] : 1},
        .blockDim = {l->threads, 1, 1},
        .dynamicSmemBytes = l->shared,
        .stream = c->stream,
        .attrs = &early,
        .numAttrs = c->features.sm >= 90 && !l->behind && !c->uploading,
    };
    void *args[] = {(void *)(uintptr_t)l->args};
#ifdef INFERD_CUDA_STANDIN
    cudasim_next_args_bytes(l->args_bytes);
#endif
    cudaError_t rc = allow_shared(f, l);
    if (!rc) rc = cudaLaunchKernelExC(&config, l->kernel, args);
    if (rc) return cuda_fail(c, l->name, rc);
    c->uploading = false;
    tally(c, f->counter, l);
    return 0;
}

int cuda_flush(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    return c->failed.code ? refuse(c, e) : 0; /* a launch begins by itself */
}

int cuda_sync(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return refuse(c, e);
    cuda_enter(c);
    cudaError_t rc = cudaStreamSynchronize(c->stream);
    if (rc) cuda_fail(c, "running a step", rc);
    if (!rc && cuda_group_is_broken(c))
        err_set(&c->failed, ERR_DEVICE, "another rank of the group failed");
    if (c->failed.code) return refuse(c, e);
    c->unstaged = c->staged;
    return 0;
}

/* ---- recorded steps ---- */

static void forget(struct cuda_graph *g) {
    if (g->exec) cudaGraphExecDestroy(g->exec);
    free(g->tally);
    *g = (struct cuda_graph){0};
}

void cuda_graphs_free(struct cuda_backend *c) {
    for (int i = 0; i < CUDA_MAX_GRAPHS; i++)
        forget(&c->graphs[i]);
}

/* The graph of a key, or the place for it: a free one, or that which ran least recently. */
static struct cuda_graph *place_of(struct cuda_backend *c, uint64_t key) {
    struct cuda_graph *oldest = &c->graphs[0];
    for (int i = 0; i < CUDA_MAX_GRAPHS; i++) {
        struct cuda_graph *g = &c->graphs[i];
        if (g->key == key) return g;
        if (oldest->key && (!g->key || g->used < oldest->used)) oldest = g;
    }
    return oldest;
}

int cuda_record(backend *be, uint64_t key, err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return refuse(c, e);
    if (!key) return err_set(e, ERR_INVALID, "a recording needs a key");
    cuda_enter(c);
    if (c->capturing) cuda_drop_recorded(be);
    struct cuda_graph *g = place_of(c, key);
    c->recorded = g;
    if (g->key == key) return 1;
    if (g->key) cudaStreamSynchronize(c->stream); /* it may be running */
    forget(g);
    cudaError_t rc = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
    if (rc) {
        cuda_fail(c, "recording a step", rc);
        return refuse(c, e);
    }
    g->key = key;
    c->capturing = true;
    memset(c->captured, 0, sizeof c->captured);
    return 0;
}

/* Keeps what was counted beside the graph. */
static int keep_tally(struct cuda_backend *c, struct cuda_graph *g) {
    uint32_t n = 0, n_kernels = c->base.n_kernels;
    for (uint32_t i = 0; i < n_kernels; i++)
        n += c->captured[i].n > 0;
    g->tally = calloc(n ? n : 1, sizeof *g->tally); /* once a graph, not once a step */
    if (!g->tally) return ERR_NOMEM;
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (!c->captured[i].n) continue;
        g->tally[g->n_tally] = c->captured[i];
        g->tally[g->n_tally++].kernel = i;
    }
    return 0;
}

int cuda_record_end(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct cuda_graph *g = c->recorded;
    cudaGraph_t graph = NULL;
    if (!c->capturing || !g) return err_set(e, ERR_INVALID, "nothing is being recorded");
    c->capturing = false;
    cudaError_t rc = cudaStreamEndCapture(c->stream, &graph);
    if (!rc && !c->failed.code) rc = cudaGraphInstantiate(&g->exec, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (rc) cuda_fail(c, "recording a step", rc);
    if (c->failed.code || keep_tally(c, g)) {
        forget(g);
        c->recorded = NULL;
        return c->failed.code ? refuse(c, e) : err_no_memory(e);
    }
    return 0;
}

int cuda_run_recorded(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct cuda_graph *g = c->recorded;
    if (c->failed.code) return refuse(c, e);
    if (!g || !g->exec) return err_set(e, ERR_INVALID, "nothing was recorded");
    if (cuda_group_is_broken(c)) return cuda_sync(be, e);
    cuda_enter(c);
    c->recorded = NULL;
    g->used = ++c->clock;
    cudaError_t rc = cudaGraphLaunch(g->exec, c->stream);
    if (rc) {
        cuda_fail(c, "starting a step", rc);
        return refuse(c, e);
    }
    for (uint32_t i = 0; i < g->n_tally; i++)
        count(c, g->tally[i].kernel, g->tally[i].n, g->tally[i].read, g->tally[i].written);
    return 0;
}

void cuda_drop_recorded(backend *be) {
    struct cuda_backend *c = cuda_of(be);
    if (c->capturing) {
        cudaGraph_t graph = NULL;
        c->capturing = false;
        cudaStreamEndCapture(c->stream, &graph);
        if (graph) cudaGraphDestroy(graph);
        if (c->recorded) forget(c->recorded);
    }
    c->recorded = NULL;
}
