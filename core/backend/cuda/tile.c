/* tile.c - launches of products of many rows with weights as they are stored. Owns nothing.
 * Kernel: shaders/cuda/product_tile.cu. */
#include "core/backend/cuda/cuda_int.h"

#include "shaders/cuda/kernels.h"

enum { SMALL, LARGE };

static uint32_t blocks_of(const struct cuda_tile_kernel *k, const struct cuda_product *p) {
    uint32_t rows = (uint32_t)k->rows / (p->pair ? 2 : 1);
    return cuda_div_up(p->w->base.n_out, rows) * cuda_div_up(p->n_rows, (uint32_t)k->inputs);
}

/* A large block does four times a small one's work and that in the time of three; what counts is
 * how many a multiprocessor has to do after each other. */
static struct cuda_tile_kernel choose(const struct cuda_backend *c, const struct cuda_product *p) {
    struct cuda_tile_kernel small = cuda_product_tile_kernel(p->w->format, SMALL);
    struct cuda_tile_kernel large = cuda_product_tile_kernel(p->w->format, LARGE);
    if (2 * (uint32_t)large.stage_bytes > c->features.shared || !small.kernel) return small;
    uint32_t n = (uint32_t)c->features.n_sms;
    return 3 * cuda_div_up(blocks_of(&large, p), n) < cuda_div_up(blocks_of(&small, p), n) ? large
                                                                                           : small;
}

/* Bytes of 16 rows of weights. */
static uint64_t tile_row_bytes(const struct cuda_weight *w) {
    uint32_t n_in = (uint32_t)w->base.n_in, tile = cuda_tile_bytes(w->format);
    if (!tile) return (uint64_t)CUDA_TILE_ROWS * cuda_pitch(n_in) * 2;
    return (uint64_t)cuda_div_up(n_in, CUDA_TILE_COLS) * tile;
}

int cuda_tile_product(struct cuda_backend *c, const struct cuda_product *p) {
    struct cuda_tile_kernel k = choose(c, p);
    return cuda_tile_launch(c, p, &k);
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

static int launch(struct cuda_backend *c, const struct cargs_product_tile *a,
                  const struct cuda_tile_kernel *k, const char *name) {
    uint32_t rows = (uint32_t)k->rows / (a->pair ? 2 : 1);
    uint32_t n_parts = a->parts ? cuda_div_up(a->pitch, a->part_cols) : 1;
    uint64_t weights = a->n_tiles * a->tile_row_bytes;
    return cuda_launch(
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
