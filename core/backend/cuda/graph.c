/* graph.c - captured steps: CUDA graphs, kept under the model's keys. Owns them. */
#include "core/backend/cuda/launch_int.h"

#include <stdlib.h>
#include <string.h>

static void destroy_graph(struct cuda_graph *g) {
    if (g->exec) cudaGraphExecDestroy(g->exec);
    free(g->counts);
    *g = (struct cuda_graph){0};
}

void cuda_graphs_free(struct cuda_backend *c) {
    for (int i = 0; i < CUDA_MAX_GRAPHS; i++)
        destroy_graph(&c->graphs[i]);
}

/* The graph of a key, or the entry to use for it: a free one, else the least recently used. */
static struct cuda_graph *find_graph(struct cuda_backend *c, uint64_t key) {
    struct cuda_graph *oldest = &c->graphs[0];
    for (int i = 0; i < CUDA_MAX_GRAPHS; i++) {
        struct cuda_graph *g = &c->graphs[i];
        if (g->key == key) return g;
        if (oldest->key && (!g->key || g->used < oldest->used)) oldest = g;
    }
    return oldest;
}

int cuda_capture_begin(backend *be, uint64_t key, err *e) {
    struct cuda_backend *c = cuda_of(be);
    if (c->failed.code) return cuda_failure(c, e);
    if (!key) return err_set(e, ERR_INVALID, "a captured step needs a key other than 0");
    cuda_enter(c);
    cuda_forget(c);
    if (c->capturing) cuda_graph_discard(be);
    struct cuda_graph *g = find_graph(c, key);
    c->graph = g;
    if (g->key == key) return 1;
    if (g->key) cudaStreamSynchronize(c->stream); /* it may be running */
    destroy_graph(g);
    cudaError_t rc = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
    if (rc) return cuda_check(c, "capturing a step", rc, e);
    g->key = key;
    c->capturing = true;
    c->n_captures++;
    memset(c->captured, 0, sizeof c->captured);
    return 0;
}

/* Keeps the captured launches' counts with the graph. */
static int keep_counts(struct cuda_backend *c, struct cuda_graph *g) {
    uint32_t n = 0, n_kernels = c->base.n_kernels;
    for (uint32_t i = 0; i < n_kernels; i++)
        n += c->captured[i].n > 0;
    g->counts = calloc(n ? n : 1, sizeof *g->counts); /* per graph, not per step */
    if (!g->counts) return ERR_NOMEM;
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (!c->captured[i].n) continue;
        g->counts[g->n_counts] = c->captured[i];
        g->counts[g->n_counts++].kernel = i;
    }
    return 0;
}

int cuda_capture_end(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct cuda_graph *g = c->graph;
    cudaGraph_t graph = NULL;
    if (!c->capturing || !g) return err_set(e, ERR_INVALID, "no step is being captured");
    cuda_enter(c);
    cuda_forget(c);
    if (c->end_capture) c->end_capture(c); /* a failure is c->failed */
    c->capturing = false;
    cudaError_t rc = cudaStreamEndCapture(c->stream, &graph);
    if (!rc && !c->failed.code) rc = cudaGraphInstantiate(&g->exec, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (rc) cuda_fail(c, "capturing a step", rc);
    if (c->failed.code || keep_counts(c, g)) {
        destroy_graph(g);
        c->graph = NULL;
        return c->failed.code ? cuda_failure(c, e) : err_no_memory(e);
    }
    return 0;
}

int cuda_graph_launch(backend *be, err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct cuda_graph *g = c->graph;
    if (c->failed.code) return cuda_failure(c, e);
    if (!g || !g->exec) return err_set(e, ERR_INVALID, "no captured step was chosen");
    if (cuda_group_is_broken(c)) return cuda_sync(be, e);
    cuda_enter(c);
    cuda_forget(c);
    c->graph = NULL;
    g->used = ++c->clock;
    cudaError_t rc = cudaGraphLaunch(g->exec, c->stream);
    if (rc) return cuda_check(c, "starting a step", rc, e);
    for (uint32_t i = 0; i < g->n_counts; i++)
        cuda_add_counts(c, g->counts[i].kernel, g->counts[i].n, g->counts[i].read,
                        g->counts[i].written);
    return 0;
}

void cuda_graph_discard(backend *be) {
    struct cuda_backend *c = cuda_of(be);
    cuda_forget(c);
    if (c->capturing) {
        cudaGraph_t graph = NULL;
        c->deferred.args.x = c->outgoing.x = NULL;
        c->put_off.args.y = NULL;
        c->capturing = false;
        cudaStreamEndCapture(c->stream, &graph);
        if (graph) cudaGraphDestroy(graph);
        if (c->graph) destroy_graph(c->graph);
    }
    c->graph = NULL;
}
