/* tune.c - measurements at open and at load: which path is the fastest for a weight, and whether
 * wgmma may be used. All paths give the same bits, so the choice changes the speed only. */
#include "core/backend/cuda/gemm_int.h"

#include "core/base/log.h"
#include "shaders/cuda/kernels.h"

#include <stdlib.h>
#include <string.h>

enum {
    TIMED_RUNS = 4,
    LEAST_TIMED = 256,
    MOST_SKINNY_ROWS = 128 /* the skinny GEMM reads weights once for 32 rows */
};

/* Runs one path. false: it cannot compute this product. */
static bool run_path(struct cuda_backend *c, const struct cuda_product *p, int path) {
    const enum cuda_path was = c->force.path;
    bool done = true;
    int rc = 0;
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

static int find_fastest(struct cuda_backend *c, const struct cuda_product *p, cudaEvent_t begin,
                        cudaEvent_t end) {
    float least = 0;
    int best = CUDA_BEST_UNKNOWN;
    for (int path = 0; path < CUDA_BEST_UNKNOWN; path++) {
        float ms = 0;
        if (!run_path(c, p, path) || cudaEventRecord(begin, c->stream)) continue;
        for (int i = 0; i < TIMED_RUNS; i++)
            run_path(c, p, path);
        if (cudaEventRecord(end, c->stream) || cudaEventSynchronize(end) ||
            cudaEventElapsedTime(&ms, begin, end))
            continue;
        if (best == CUDA_BEST_UNKNOWN || ms < least) best = path, least = ms;
    }
    log_debug("cuda: format %d, %u x %u%s, %u rows: path %d, %.1f us", p->w->format,
              (unsigned)p->w->base.n_out, (unsigned)p->w->base.n_in, p->pair ? " pair" : "",
              p->n_rows, best, (double)least * 1e3 / TIMED_RUNS);
    return best;
}

/* Measures products with w, and with w as a pair, for every bucket of rows. */
static void measure_paths(struct cuda_backend *c, const struct cuda_weight *w) {
    struct cuda_product p = {.w = w, .y = cuda_scratch(c, CUDA_SCRATCH_IN32)};
    cudaEvent_t begin, end;
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
    if (cudaEventCreateWithFlags(&begin, cudaEventDefault)) return;
    if (cudaEventCreateWithFlags(&end, cudaEventDefault)) {
        cudaEventDestroy(begin);
        return;
    }
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
            plan.best[i] = fits ? (uint8_t)find_fastest(c, &p, begin, end) : CUDA_BEST_UNKNOWN;
        }
        c->tile_plans[c->n_tile_plans++] = plan;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
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
