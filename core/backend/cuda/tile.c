/* tile.c - launches of products of many rows with weights as they are stored. Owns nothing.
 * Kernels: shaders/cuda/product_tile.cu (mma), and for sm_90 product_wgmma.cu, which is used only
 * if it gave the same bits at open (tune.c). */
#include "core/backend/cuda/gemm_int.h"

#include "shaders/cuda/kernels.h"

/* A kernel and the time of one block of it for 4,096 columns, in thousands of clocks of an H200. */
struct candidate {
    struct cuda_tile_kernel k;
    bool wgmma;
    uint32_t clocks;
};

static uint32_t tile_outputs(const struct cuda_tile_kernel *k, const struct cuda_product *p) {
    return (uint32_t)k->rows / (p->pair ? 2 : 1);
}

/* Estimated time: a multiprocessor runs its blocks one after the other, so the busiest one counts.
 */
static double estimate_time(const struct cuda_backend *c, const struct cuda_product *p,
                            const struct candidate *of) {
    uint32_t n_splits = of->wgmma ? cuda_n_splits((uint32_t)p->w->base.n_in) : 1;
    uint64_t blocks = (uint64_t)cuda_div_up(p->w->base.n_out, tile_outputs(&of->k, p)) *
                      cuda_div_up(p->n_rows, (uint32_t)of->k.inputs) * n_splits;
    return (double)cuda_div_up(blocks, (uint32_t)c->features.n_sms) * of->clocks / n_splits;
}

/* Does the kernel exist, and do its stages and partial sums fit? */
static bool tile_fits(const struct cuda_backend *c, const struct cuda_product *p,
                      const struct candidate *of) {
    uint32_t stages = of->wgmma ? 3 : 2, n_splits = cuda_n_splits((uint32_t)p->w->base.n_in);
    if (!of->k.kernel || stages * (uint32_t)of->k.stage_bytes > c->features.shared) return false;
    if (!of->wgmma || n_splits == 1) return true;
    uint64_t bytes = (uint64_t)n_splits * p->n_rows * p->w->base.n_out * 4;
    return !p->pair && bytes <= c->scratch_bytes[CUDA_SCRATCH_PAIR];
}

static void list_candidates(int format, struct candidate k[CUDA_TILE_KERNELS]) {
    k[0] = (struct candidate){cuda_product_tile_kernel(format, CUDA_TILE_SMALL), false, 27};
    k[1] = (struct candidate){cuda_product_tile_kernel(format, CUDA_TILE_LARGE), false, 87};
    k[2] = (struct candidate){cuda_product_wgmma_kernel(format, CUDA_TILE_SMALL), true, 14};
    k[3] = (struct candidate){cuda_product_wgmma_kernel(format, CUDA_TILE_LARGE), true, 73};
}

/* The fastest kernel as measured when the weight was loaded. */
static int find_best(const struct cuda_backend *c, const struct cuda_product *p) {
    uint32_t bucket = 0;
    while (bucket < CUDA_TILE_BUCKETS && (uint32_t)CUDA_TILE_LEAST_BUCKET << bucket < p->n_rows)
        bucket++;
    for (uint32_t i = 0; i < c->n_tile_plans && bucket < CUDA_TILE_BUCKETS; i++) {
        const struct cuda_tile_plan *plan = &c->tile_plans[i];
        if (plan->format == p->w->format && plan->pair == (p->pair != NULL) &&
            plan->n_out == p->w->base.n_out && plan->n_in == p->w->base.n_in)
            return plan->best[bucket];
    }
    return CUDA_BEST_UNKNOWN;
}

bool cuda_skinny_is_best(const struct cuda_backend *c, const struct cuda_product *p) {
    return find_best(c, p) == CUDA_BEST_SKINNY;
}

bool cuda_tile_is_best(const struct cuda_backend *c, const struct cuda_product *p) {
    int best = find_best(c, p);
    if (best == CUDA_BEST_UNKNOWN)
        return cuda_tile_bytes(p->w->format) && p->n_rows < CUDA_LARGE_ROWS;
    return best != CUDA_BEST_LARGE;
}

static bool is_allowed(const struct cuda_backend *c, const struct cuda_product *p,
                       const struct candidate *k) {
    if (k->wgmma && (!c->has_wgmma || c->force.path == CUDA_PATH_TILE)) return false;
    return tile_fits(c, p, k);
}

static struct candidate choose_tile(const struct cuda_backend *c, const struct cuda_product *p) {
    struct candidate k[CUDA_TILE_KERNELS];
    list_candidates(p->w->format, k);
    int best = find_best(c, p);
    if (best < CUDA_TILE_KERNELS && is_allowed(c, p, &k[best])) return k[best];
    best = 0;
    for (int i = 1; i < CUDA_TILE_KERNELS; i++)
        if (is_allowed(c, p, &k[i]) && estimate_time(c, p, &k[i]) < estimate_time(c, p, &k[best]))
            best = i;
    return k[best];
}

/* Bytes of 16 rows of weights. */
static uint64_t tile_row_bytes(const struct cuda_weight *w) {
    uint32_t n_in = (uint32_t)w->base.n_in, tile = cuda_tile_bytes(w->format);
    if (!tile) return (uint64_t)CUDA_TILE_ROWS * cuda_pitch(n_in) * 2;
    return (uint64_t)cuda_div_up(n_in, CUDA_TILE_COLS) * tile;
}

/* Arguments of both kernels. */
static void fill_tile_args(struct cuda_backend *c, const struct cuda_product *p,
                           struct cargs_product_tile *a) {
    uint32_t n_in = (uint32_t)p->w->base.n_in, n_out = (uint32_t)p->w->base.n_out;
    *a = (struct cargs_product_tile){
        .w = p->w->product,
        .pair = p->pair ? p->pair->product : NULL,
        .x = cuda_scratch(c, CUDA_SCRATCH_IN16),
        .in_scale = cuda_in_scales(c),
        .y = p->y,
        .epilogue = cuda_epilogue_args(p),
        .tile_row_bytes = tile_row_bytes(p->w),
        .n_rows = p->n_rows,
        .n_out = n_out,
        .n_tiles = cuda_div_up(n_out, CUDA_TILE_ROWS),
        .pitch = cuda_pitch(n_in),
        .split_cols = cuda_split_cols(n_in),
        .n_stages = 3,
    };
}

/* Two tile launches in a row read the same input, because any other input would be made by a
 * launch between them: the second may overlap the first (overlaps_previous). K splits must not:
 * they share the memory of their partial sums. */
static int launch_tile(struct cuda_backend *c, struct cargs_product_tile *a,
                       const struct cuda_tile_kernel *k, const char *name) {
    uint32_t rows = (uint32_t)k->rows / (a->pair ? 2 : 1);
    uint32_t n_splits = a->partials ? cuda_div_up(a->pitch, a->split_cols) : 1;
    uint64_t weights = a->n_tiles * a->tile_row_bytes;
    a->overlaps_previous =
        c->n_launches_tile && c->n_launches == c->n_launches_tile && !a->partials;
    int rc = cuda_launch(
        c, &(struct cuda_launch){
               .kernel = k->kernel,
               .name = name,
               .args = a,
               .args_bytes = sizeof *a,
               .grid = {cuda_div_up(a->n_rows, (uint32_t)k->inputs), cuda_div_up(a->n_out, rows),
                        n_splits},
               .threads = (uint32_t)k->threads,
               .shared = a->n_stages * (uint32_t)k->stage_bytes,
               .read = (a->pair ? 2 * weights : weights) + (uint64_t)a->n_rows * a->pitch * 2,
               .written = (uint64_t)n_splits * a->n_rows * a->n_out * 4,
           });
    if (!a->partials) c->n_launches_tile = c->n_launches;
    return rc;
}

int cuda_tile_launch(struct cuda_backend *c, const struct cuda_product *p,
                     const struct cuda_tile_kernel *k) {
    struct cargs_product_tile a;
    fill_tile_args(c, p, &a);
    if (3 * (uint32_t)k->stage_bytes > c->features.shared) a.n_stages = 2;
    return launch_tile(c, &a, k, "product_tile");
}

/* K splits are blocks of their own, so that a matrix of few rows fills the device. */
int cuda_wgmma_launch(struct cuda_backend *c, const struct cuda_product *p,
                      const struct cuda_tile_kernel *k) {
    struct cargs_product_tile a;
    fill_tile_args(c, p, &a);
    uint32_t n_splits = cuda_n_splits((uint32_t)p->w->base.n_in);
    uint64_t bytes = (uint64_t)n_splits * a.n_rows * a.n_out * 4;
    if (n_splits == 1) return launch_tile(c, &a, k, "product_wgmma");
    if (p->pair || bytes > c->scratch_bytes[CUDA_SCRATCH_PAIR]) return ERR_UNSUPPORTED;
    a.partials = cuda_scratch(c, CUDA_SCRATCH_PAIR);
    int rc = launch_tile(c, &a, k, "product_wgmma");
    return rc ? rc : cuda_epilogue_splits(c, p, a.partials, n_splits);
}

static int launch_candidate(struct cuda_backend *c, const struct cuda_product *p,
                            const struct candidate *k) {
    return k->wgmma ? cuda_wgmma_launch(c, p, &k->k) : cuda_tile_launch(c, p, &k->k);
}

int cuda_tile_product(struct cuda_backend *c, const struct cuda_product *p) {
    struct candidate best = choose_tile(c, p);
    return launch_candidate(c, p, &best);
}

int cuda_tile_product_by(struct cuda_backend *c, const struct cuda_product *p, int which) {
    struct candidate k[CUDA_TILE_KERNELS];
    list_candidates(p->w->format, k);
    return is_allowed(c, p, &k[which]) ? launch_candidate(c, p, &k[which]) : ERR_UNSUPPORTED;
}
