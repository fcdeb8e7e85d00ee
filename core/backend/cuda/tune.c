/* tune.c - measurements at open and at load: which path is the fastest for a weight, and whether
 * wgmma may be used. All paths give the same bits, so the choice changes the speed only. Runs are
 * like those of a step: each reads its weights from memory, not from the L2, where the run before
 * it left its own, and comes after the kernel that makes its input. */
#include "core/backend/cuda/gemm_int.h"

#include "core/base/log.h"
#include "core/base/min_max.h"
#include "shaders/cuda/kernels.h"

#include <stdlib.h>
#include <string.h>

enum {
    TIMED_RUNS = 4,
    TIMED_KEY = 1, /* of the graph that is timed */
    LEAST_TIMED = 256,
    MOST_SKINNY_ROWS = 128 /* the skinny GEMM reads weights once for 32 rows */
};

uint32_t cuda_cold_copies(uint64_t bytes) {
    enum { COLD_BYTES = 160 << 20 /* more than any GPU's L2 */, MOST_COPIES = 256 };
    if (bytes >= COLD_BYTES) return 1;
    return bytes ? min_u32(cuda_div_up(COLD_BYTES, (uint32_t)bytes), MOST_COPIES) : MOST_COPIES;
}

/* In a graph, because a small kernel takes less time than its launch. */
float cuda_time_runs(struct cuda_backend *c, bool (*run)(struct cuda_backend *, void *), void *of) {
    backend *be = &c->base;
    cudaEvent_t begin = NULL, end = NULL;
    float ms = -1;
    err e;
    if (cuda_capture_begin(be, TIMED_KEY, &e)) return -1;
    for (int i = 0; i < TIMED_RUNS; i++)
        if (!run(c, of)) {
            cuda_graph_discard(be);
            return -1;
        }
    const bool ready = !cuda_capture_end(be, &e) && !cuda_graph_launch(be, &e) &&
                       cuda_capture_begin(be, TIMED_KEY, &e) == 1 && !cudaEventCreate(&begin) &&
                       !cudaEventCreate(&end);
    if (!ready || cudaEventRecord(begin, c->stream) || cuda_graph_launch(be, &e) ||
        cudaEventRecord(end, c->stream) || cudaEventSynchronize(end) ||
        cudaEventElapsedTime(&ms, begin, end))
        ms = -1;
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
    cuda_graphs_free(c);
    return ms < 0 ? -1 : ms / TIMED_RUNS;
}

/* Copies of a weight's matrix, which the runs take in turns with the matrix itself. */
struct copies {
    void *memory; /* (n, bytes); NULL: there was none */
    uint64_t bytes;
    uint32_t n, next;
    struct cuda_weight w, pair; /* of the next run */
};

static const void *next_copy(struct copies *k, const struct cuda_weight *w) {
    const uint32_t i = k->next;
    if (!k->memory) return w->product;
    k->next = (i + 1) % (k->n + 1);
    return i < k->n ? (const uint8_t *)k->memory + i * k->bytes : w->product;
}

static void copies_free(struct cuda_backend *c, struct copies *k) {
    cuda_memory_free(c, k->memory, k->n * k->bytes);
}

static void copies_new(struct cuda_backend *c, const struct cuda_weight *w, struct copies *k) {
    err e = {0};
    *k = (struct copies){.bytes = (w->product_bytes + 255) / 256 * 256,
                         .n = cuda_cold_copies(w->product_bytes),
                         .w = *w,
                         .pair = *w};
    if (cuda_memory_new(c, k->n * k->bytes, &k->memory, &e)) return;
    for (uint32_t i = 0; i < k->n; i++)
        if (cudaMemcpyAsync((uint8_t *)k->memory + i * k->bytes, w->product, w->product_bytes,
                            cudaMemcpyDeviceToDevice, c->stream)) {
            cudaGetLastError();
            copies_free(c, k);
            k->memory = NULL;
            return;
        }
}

/* The product of the next run. */
static struct cuda_product next_run(struct copies *k, const struct cuda_product *p) {
    struct cuda_product run = *p;
    k->w.product = next_copy(k, p->w);
    run.w = &k->w;
    if (!p->pair) return run;
    k->pair.product = next_copy(k, p->pair);
    run.pair = &k->pair;
    return run;
}

/* Runs one path, after its input. false: it cannot compute this product. */
static bool run_path(struct cuda_backend *c, const struct cuda_product *p, int path) {
    const enum cuda_path was = c->force.path;
    struct cuda_buf x = {.dev = p->y};
    bool done = true;
    int rc = cuda_input(c, &(struct op_input){.x = &x.base}, p->n_rows, (uint32_t)p->w->base.n_in,
                        CUDA_IN_F16, NULL);
    if (rc) return false;
    c->n_launches_tile = 0; /* no overlap with the previous run */
    if (path < CUDA_TILE_KERNELS) return !cuda_tile_product_by(c, p, path);
    if (path == CUDA_BEST_SKINNY && p->n_rows > MOST_SKINNY_ROWS) return false;
    c->force.path = path == CUDA_BEST_SKINNY ? CUDA_PATH_SKINNY : CUDA_PATH_LARGE;
    if (path == CUDA_BEST_SKINNY)
        rc = cuda_product(c, p);
    else
        done = cuda_large_product(c, p, &rc);
    c->force.path = was;
    return done && !rc;
}

struct run {
    struct copies *copies;
    const struct cuda_product *p;
    int path;
};

static bool run_once(struct cuda_backend *c, void *of) {
    const struct run *r = of;
    const struct cuda_product p = next_run(r->copies, r->p);
    return run_path(c, &p, r->path);
}

static int find_fastest(struct cuda_backend *c, const struct cuda_product *p, struct copies *k) {
    float least = 0;
    int best = CUDA_BEST_UNKNOWN;
    for (int path = 0; path < CUDA_BEST_UNKNOWN; path++) {
        struct run r = {k, p, path};
        const float ms = cuda_time_runs(c, run_once, &r);
        if (ms < 0) continue;
        if (best == CUDA_BEST_UNKNOWN || ms < least) best = path, least = ms;
    }
    log_debug("cuda: format %d, %u x %u%s, %u rows: path %d, %.1f us", p->w->format,
              (unsigned)p->w->base.n_out, (unsigned)p->w->base.n_in, p->pair ? " pair" : "",
              p->n_rows, best, (double)least * 1e3);
    return best;
}

/* Measures products with w, and with w as a pair, for every bucket of rows. */
static void measure_paths(struct cuda_backend *c, const struct cuda_weight *w) {
    struct cuda_product p = {.w = w, .y = cuda_scratch(c, CUDA_SCRATCH_IN32)};
    struct copies k;
#ifdef INFERD_CUDA_STANDIN
    return; /* its times say nothing about a GPU's */
#endif
    if (c->failed.code || c->n_tile_plans + 2 > CUDA_MAX_TILE_PLANS || !p.y ||
        w->base.n_out < LEAST_TIMED || w->base.n_in < LEAST_TIMED ||
        cuda_pitch((uint32_t)w->base.n_in) > cuda_pitch(c->base.max_cols) ||
        c->base.max_rows <= CUDA_SKINNY_ROWS)
        return;
    for (uint32_t i = 0; i < c->n_tile_plans; i++) {
        const struct cuda_tile_plan *plan = &c->tile_plans[i];
        if (plan->format == w->format && plan->n_out == w->base.n_out && plan->n_in == w->base.n_in)
            return;
    }
    copies_new(c, w, &k);
    for (int pair = 0; pair < 2; pair++) {
        struct cuda_tile_plan plan = {.format = w->format,
                                      .pair = pair,
                                      .n_out = (uint32_t)w->base.n_out,
                                      .n_in = (uint32_t)w->base.n_in};
        p.pair = pair ? w : NULL;
        p.act = pair ? BACKEND_ACT_SILU : BACKEND_ACT_NONE;
        for (uint32_t i = 0; i < CUDA_TILE_BUCKETS; i++) {
            p.n_rows = CUDA_TILE_LEAST_BUCKET << i;
            if (p.n_rows > c->base.max_rows) p.n_rows = c->base.max_rows;
            uint64_t bytes = (uint64_t)p.n_rows * plan.n_out * 4;
            bool fits = bytes <= c->scratch_bytes[CUDA_SCRATCH_IN32];
            plan.best[i] = fits ? (uint8_t)find_fastest(c, &p, &k) : CUDA_BEST_UNKNOWN;
        }
        c->tile_plans[c->n_tile_plans++] = plan;
    }
    copies_free(c, &k);
}

void cuda_tune_weight(struct cuda_backend *c, const struct cuda_weight *w) {
    if (w->format == CUDA_FORMAT_F32 || w->base.n_experts) return;
    cuda_large_prepare(c, w);
    measure_paths(c, w);
}

/* ---- does wgmma give the sums of mma? ---- */

/* Random weights and inputs, and the results of both instructions. */
struct probe {
    struct cuda_weight w;
    struct cuda_product p;
    void *w_at, *y_at;
    float *y[2];
};
enum { PROBE_ROWS = 70, PROBE_OUT = 272, PROBE_IN = 2048, PROBE_Y = PROBE_ROWS * PROBE_OUT };

static bool has_mma_sums(struct cuda_backend *c, struct probe *b, int shape) {
    struct cuda_tile_kernel mma = cuda_product_tile_kernel(CUDA_FORMAT_Q8, CUDA_TILE_SMALL);
    struct cuda_tile_kernel wgmma = cuda_product_wgmma_kernel(CUDA_FORMAT_Q8, shape);
    if (!wgmma.kernel) return false;
    for (int i = 0; i < 2; i++)
        if (cudaMemsetAsync(b->y_at, 0, PROBE_Y * sizeof(float), c->stream) ||
            (i ? cuda_wgmma_launch(c, &b->p, &wgmma) : cuda_tile_launch(c, &b->p, &mma)) ||
            cudaMemcpyAsync(b->y[i], b->y_at, PROBE_Y * sizeof(float), cudaMemcpyDeviceToHost,
                            c->stream) ||
            cudaStreamSynchronize(c->stream))
            return false;
    return memcmp(b->y[0], b->y[1], PROBE_Y * sizeof(float)) == 0;
}

/* Any bytes are valid weights; the bytes of finite f16 numbers have finite scales. */
int cuda_tune_open(struct cuda_backend *c, err *e) {
    uint64_t bytes = cuda_n_tiles(PROBE_OUT, PROBE_IN) * cuda_tile_bytes(CUDA_FORMAT_Q8);
    uint64_t inputs = (uint64_t)PROBE_ROWS * PROBE_IN * 2;
    struct probe b = {.w = {.base = {.be = &c->base, .n_out = PROBE_OUT, .n_in = PROBE_IN},
                            .format = CUDA_FORMAT_Q8,
                            .scale = 1}};
#ifdef INFERD_CUDA_STANDIN
    c->has_wgmma = c->features.sm == 90; /* it computes both the same way, slowly */
    return 0;
#endif
    if (c->features.sm != 90 ||
        !cuda_product_wgmma_kernel(CUDA_FORMAT_Q8, CUDA_TILE_SMALL).kernel ||
        c->scratch_bytes[CUDA_SCRATCH_IN16] < inputs ||
        c->scratch_bytes[CUDA_SCRATCH_IN_SCALE] < PROBE_ROWS * sizeof(float))
        return 0;
    int rc = cuda_memory_new(c, bytes, &b.w_at, e);
    if (!rc) rc = cuda_memory_new(c, PROBE_Y * sizeof(float), &b.y_at, e);
    b.w.product = b.w_at;
    b.p = (struct cuda_product){.w = &b.w, .n_rows = PROBE_ROWS, .y = b.y_at};
    b.y[0] = malloc(PROBE_Y * sizeof(float));
    b.y[1] = malloc(PROBE_Y * sizeof(float));
    if (!rc && (!b.y[0] || !b.y[1])) rc = err_no_memory(e);
    if (!rc && !(rc = cuda_random_fill(c, b.w_at, bytes)) &&
        !(rc = cuda_random_fill(c, cuda_scratch(c, CUDA_SCRATCH_IN16), inputs)) &&
        !cudaMemsetAsync(cuda_scratch(c, CUDA_SCRATCH_IN_SCALE), 0x3f, PROBE_ROWS * sizeof(float),
                         c->stream)) {
        c->has_wgmma = has_mma_sums(c, &b, CUDA_TILE_SMALL) && has_mma_sums(c, &b, CUDA_TILE_LARGE);
        if (!c->has_wgmma)
            log_warn("cuda: wgmma and mma give different sums on this GPU; wgmma stays unused");
    }
    free(b.y[0]);
    free(b.y[1]);
    cuda_memory_free(c, b.y_at, PROBE_Y * sizeof(float));
    cuda_memory_free(c, b.w_at, bytes);
    return c->failed.code ? cuda_failure(c, e) : rc;
}
