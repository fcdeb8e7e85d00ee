/* tile.c - launches of products of many rows with weights as they are stored. Owns nothing.
 * Kernels: shaders/cuda/product_tile.cu, and for sm_90 product_wgmma.cu, which is used if at open
 * it gave the bits of the other. */
#include "core/backend/cuda/cuda_int.h"

#include "core/base/log.h"
#include "shaders/cuda/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL, LARGE };

/* A kernel and the time of one block of it for 4,096 columns, in thousands of clocks of an H200. */
struct choice {
    struct cuda_tile_kernel k;
    bool wgmma;
    uint32_t clocks;
};

static uint32_t rows_of(const struct cuda_tile_kernel *k, const struct cuda_product *p) {
    return (uint32_t)k->rows / (p->pair ? 2 : 1);
}

/* Multiprocessors take blocks one after the other: what counts is how many the busiest has. */
static double time_of(const struct cuda_backend *c, const struct cuda_product *p,
                      const struct choice *of) {
    uint32_t n_parts = of->wgmma ? cuda_n_parts((uint32_t)p->w->base.n_in) : 1;
    uint64_t blocks = (uint64_t)cuda_div_up(p->w->base.n_out, rows_of(&of->k, p)) *
                      cuda_div_up(p->n_rows, (uint32_t)of->k.inputs) * n_parts;
    return (double)cuda_div_up(blocks, (uint32_t)c->features.n_sms) * of->clocks / n_parts;
}

/* Is there the kernel, and room for two stages, or what it needs? */
static bool fits(const struct cuda_backend *c, const struct cuda_product *p,
                 const struct choice *of) {
    uint32_t stages = of->wgmma ? 3 : 2, n_parts = cuda_n_parts((uint32_t)p->w->base.n_in);
    if (!of->k.kernel || stages * (uint32_t)of->k.stage_bytes > c->features.shared) return false;
    if (!of->wgmma || n_parts == 1) return true;
    uint64_t bytes = (uint64_t)n_parts * p->n_rows * p->w->base.n_out * 4;
    return !p->pair && bytes <= c->scratch_bytes[CUDA_SCRATCH_PAIR];
}

enum { N_KERNELS = 4, BEST_LARGE = N_KERNELS, BEST_UNKNOWN, LEAST_BUCKET = 64 };

static void kernels_of(int format, struct choice k[N_KERNELS]) {
    k[0] = (struct choice){cuda_product_tile_kernel(format, SMALL), false, 27};
    k[1] = (struct choice){cuda_product_tile_kernel(format, LARGE), false, 87};
    k[2] = (struct choice){cuda_product_wgmma_kernel(format, SMALL), true, 14};
    k[3] = (struct choice){cuda_product_wgmma_kernel(format, LARGE), true, 73};
}

/* What was found when the weight was loaded. */
static int best_of(const struct cuda_backend *c, const struct cuda_product *p) {
    uint32_t bucket = 0;
    while (bucket < CUDA_TILE_BUCKETS && (uint32_t)LEAST_BUCKET << bucket < p->n_rows)
        bucket++;
    for (uint32_t i = 0; i < c->n_tile_plans && bucket < CUDA_TILE_BUCKETS; i++) {
        const struct cuda_tile_plan *plan = &c->tile_plans[i];
        if (plan->format == p->w->format && plan->pair == (p->pair != NULL) &&
            plan->n_out == p->w->base.n_out && plan->n_in == p->w->base.n_in)
            return plan->best[bucket];
    }
    return BEST_UNKNOWN;
}

bool cuda_tile_is_best(const struct cuda_backend *c, const struct cuda_product *p) {
    int best = best_of(c, p);
    if (best == BEST_UNKNOWN) return cuda_tile_bytes(p->w->format) && p->n_rows < CUDA_LARGE_ROWS;
    return best != BEST_LARGE;
}

static bool allowed(const struct cuda_backend *c, const struct cuda_product *p,
                    const struct choice *k) {
    if (k->wgmma && (!c->has_wgmma || c->force.way == CUDA_WAY_TILE)) return false;
    return fits(c, p, k);
}

static struct choice choose(const struct cuda_backend *c, const struct cuda_product *p) {
    struct choice k[N_KERNELS];
    kernels_of(p->w->format, k);
    int best = best_of(c, p);
    if (best < N_KERNELS && allowed(c, p, &k[best])) return k[best];
    best = 0;
    for (int i = 1; i < N_KERNELS; i++)
        if (allowed(c, p, &k[i]) && time_of(c, p, &k[i]) < time_of(c, p, &k[best])) best = i;
    return k[best];
}

/* Bytes of 16 rows of weights. */
static uint64_t tile_row_bytes(const struct cuda_weight *w) {
    uint32_t n_in = (uint32_t)w->base.n_in, tile = cuda_tile_bytes(w->format);
    if (!tile) return (uint64_t)CUDA_TILE_ROWS * cuda_pitch(n_in) * 2;
    return (uint64_t)cuda_div_up(n_in, CUDA_TILE_COLS) * tile;
}

int cuda_tile_product(struct cuda_backend *c, const struct cuda_product *p) {
    struct choice best = choose(c, p);
    return best.wgmma ? cuda_wgmma_launch(c, p, &best.k) : cuda_tile_launch(c, p, &best.k);
}

/* What both kernels are told. */
static void fill_args(struct cuda_backend *c, const struct cuda_product *p,
                      struct cargs_product_tile *a) {
    uint32_t n_in = (uint32_t)p->w->base.n_in, n_out = (uint32_t)p->w->base.n_out;
    *a = (struct cargs_product_tile){
        .w = p->w->product,
        .pair = p->pair ? p->pair->product : NULL,
        .x = cuda_scratch(c, CUDA_SCRATCH_IN16),
        .in_scale = cuda_scratch(c, CUDA_SCRATCH_IN_SCALE),
        .y = p->y,
        .tail = cuda_tail(p),
        .tile_row_bytes = tile_row_bytes(p->w),
        .n_rows = p->n_rows,
        .n_out = n_out,
        .n_tiles = cuda_div_up(n_out, CUDA_TILE_ROWS),
        .pitch = cuda_pitch(n_in),
        .part_cols = cuda_part_cols(n_in),
        .n_stages = 3,
    };
}

/* Products of one input follow each other without another launch: between two inputs there is one
 * that makes the second. Parts share memory. */
static int launch(struct cuda_backend *c, struct cargs_product_tile *a,
                  const struct cuda_tile_kernel *k, const char *name) {
    uint32_t rows = (uint32_t)k->rows / (a->pair ? 2 : 1);
    uint32_t n_parts = a->parts ? cuda_div_up(a->pitch, a->part_cols) : 1;
    uint64_t weights = a->n_tiles * a->tile_row_bytes;
    a->beside = c->n_launches_tile && c->n_launches == c->n_launches_tile && !a->parts;
    int rc = cuda_launch(
        c, &(struct cuda_launch){
               .kernel = k->kernel,
               .name = name,
               .args = a,
               .args_bytes = sizeof *a,
               .grid = {cuda_div_up(a->n_rows, (uint32_t)k->inputs), cuda_div_up(a->n_out, rows),
                        n_parts},
               .threads = (uint32_t)k->threads,
               .shared = a->n_stages * (uint32_t)k->stage_bytes,
               .read = (a->pair ? 2 * weights : weights) + (uint64_t)a->n_rows * a->pitch * 2,
               .written = (uint64_t)n_parts * a->n_rows * a->n_out * 4,
           });
    if (!a->parts) c->n_launches_tile = c->n_launches;
    return rc;
}

int cuda_tile_launch(struct cuda_backend *c, const struct cuda_product *p,
                     const struct cuda_tile_kernel *k) {
    struct cargs_product_tile a;
    fill_args(c, p, &a);
    if (3 * (uint32_t)k->stage_bytes > c->features.shared) a.n_stages = 2;
    return launch(c, &a, k, "product_tile");
}

/* Parts are blocks of their own, so that a matrix of few rows fills the device. */
int cuda_wgmma_launch(struct cuda_backend *c, const struct cuda_product *p,
                      const struct cuda_tile_kernel *k) {
    struct cargs_product_tile a;
    fill_args(c, p, &a);
    uint32_t n_parts = cuda_n_parts((uint32_t)p->w->base.n_in);
    uint64_t bytes = (uint64_t)n_parts * a.n_rows * a.n_out * 4;
    if (n_parts == 1) return launch(c, &a, k, "product_wgmma");
    if (p->pair || bytes > c->scratch_bytes[CUDA_SCRATCH_PAIR]) return ERR_UNSUPPORTED;
    a.parts = cuda_scratch(c, CUDA_SCRATCH_PAIR);
    int rc = launch(c, &a, k, "product_wgmma");
    return rc ? rc : cuda_finish_parts(c, p, a.parts, n_parts);
}

/* ---- which is fastest? ---- */

enum { TIMED_RUNS = 4, LEAST_TIMED = 256 };

/* Runs it. false: it is not for this product. */
static bool run_way(struct cuda_backend *c, const struct cuda_product *p, int way) {
    struct choice k[N_KERNELS];
    int rc = 0;
    c->n_launches_tile = 0; /* not beside each other */
    if (way == BEST_LARGE) {
        enum cuda_way was = c->force.way;
        c->force.way = CUDA_WAY_LARGE;
        bool done = cuda_large_product(c, p, &rc);
        c->force.way = was;
        return done && !rc;
    }
    kernels_of(p->w->format, k);
    if (!allowed(c, p, &k[way])) return false;
    return !(k[way].wgmma ? cuda_wgmma_launch(c, p, &k[way].k) : cuda_tile_launch(c, p, &k[way].k));
}

static int fastest(struct cuda_backend *c, const struct cuda_product *p, cudaEvent_t begin,
                   cudaEvent_t end) {
    float least = 0;
    int best = BEST_UNKNOWN;
    for (int way = 0; way <= BEST_LARGE; way++) {
        float ms = 0;
        if (!run_way(c, p, way) || cudaEventRecord(begin, c->stream)) continue;
        for (int i = 0; i < TIMED_RUNS; i++)
            run_way(c, p, way);
        if (cudaEventRecord(end, c->stream) || cudaEventSynchronize(end) ||
            cudaEventElapsedTime(&ms, begin, end))
            continue;
        if (best == BEST_UNKNOWN || ms < least) best = way, least = ms;
    }
    log_debug("cuda: format %d, %u x %u%s, %u rows: way %d, %.1f us", p->w->format,
              (unsigned)p->w->base.n_out, (unsigned)p->w->base.n_in, p->pair ? " pair" : "",
              p->n_rows, best, (double)least * 1e3 / TIMED_RUNS);
    return best;
}

void cuda_tile_prepare(struct cuda_backend *c, const struct cuda_weight *w) {
    struct cuda_product p = {.w = w, .y = cuda_scratch(c, CUDA_SCRATCH_IN32)};
    cudaEvent_t begin, end;
#ifdef INFERD_CUDA_STANDIN
    return; /* whose times say nothing of a GPU's */
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
            p.n_rows = LEAST_BUCKET << i;
            if (p.n_rows > c->base.max_rows) p.n_rows = c->base.max_rows;
            uint64_t bytes = (uint64_t)p.n_rows * plan.n_out * 4;
            bool room = bytes <= c->scratch_bytes[CUDA_SCRATCH_IN32];
            plan.best[i] = room ? (uint8_t)fastest(c, &p, begin, end) : BEST_UNKNOWN;
        }
        c->tile_plans[c->n_tile_plans++] = plan;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
}

/* ---- does wgmma sum as mma does? ---- */

/* Random weights and inputs, and the results of both. */
struct probe {
    struct cuda_weight w;
    struct cuda_product p;
    void *w_at, *y_at;
    float *y[2];
};
enum { PROBE_ROWS = 70, PROBE_OUT = 272, PROBE_IN = 2048, PROBE_Y = PROBE_ROWS * PROBE_OUT };

static bool same_bits(struct cuda_backend *c, struct probe *b, int shape) {
    struct cuda_tile_kernel mma = cuda_product_tile_kernel(CUDA_FORMAT_Q8, SMALL);
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

/* Any bytes are weights; those of f16 numbers have finite scales. */
int cuda_tile_open(struct cuda_backend *c, err *e) {
    uint64_t bytes = cuda_n_tiles(PROBE_OUT, PROBE_IN) * cuda_tile_bytes(CUDA_FORMAT_Q8);
    uint64_t inputs = (uint64_t)PROBE_ROWS * PROBE_IN * 2;
    struct probe b = {.w = {.base = {.be = &c->base, .n_out = PROBE_OUT, .n_in = PROBE_IN},
                            .format = CUDA_FORMAT_Q8,
                            .scale = 1}};
#ifdef INFERD_CUDA_STANDIN
    c->has_wgmma = c->features.sm == 90; /* it computes both alike, slowly */
    return 0;
#endif
    if (c->features.sm != 90 || !cuda_product_wgmma_kernel(CUDA_FORMAT_Q8, SMALL).kernel ||
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
        c->has_wgmma = same_bits(c, &b, SMALL) && same_bits(c, &b, LARGE);
        if (!c->has_wgmma)
            log_warn("cuda: wgmma and mma give different sums on this GPU: wgmma is not used");
    }
    free(b.y[0]);
    free(b.y[1]);
    cuda_memory_free(c, b.y_at, PROBE_Y * sizeof(float));
    cuda_memory_free(c, b.w_at, bytes);
    if (c->failed.code && e) *e = c->failed;
    return c->failed.code ? c->failed.code : rc;
}
