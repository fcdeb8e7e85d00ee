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

int cuda_tile_launch(struct cuda_backend *c, const struct cuda_product *p,
                     const struct cuda_tile_kernel *k) {
    const struct cuda_weight *w = p->w;
    uint32_t n_in = (uint32_t)w->base.n_in, n_out = (uint32_t)w->base.n_out;
    uint32_t stages = c->features.shared / (uint32_t)k->stage_bytes;
    const struct cargs_product_tile args = {
        .w = w->product,
        .pair = p->pair ? p->pair->product : NULL,
        .x = cuda_scratch(c, CUDA_SCRATCH_IN16),
        .in_scale = cuda_scratch(c, CUDA_SCRATCH_IN_SCALE),
        .y = p->y,
        .tail = cuda_tail(p),
        .tile_row_bytes = tile_row_bytes(w),
        .n_rows = p->n_rows,
        .n_out = n_out,
        .n_tiles = cuda_div_up(n_out, CUDA_TILE_ROWS),
        .pitch = cuda_pitch(n_in),
        .part_cols = cuda_part_cols(n_in),
        .n_stages = stages < 3 ? 2 : 3,
    };
    uint32_t rows = (uint32_t)k->rows / (p->pair ? 2 : 1);
    uint64_t weights = args.n_tiles * args.tile_row_bytes;
    return cuda_launch(
        c, &(struct cuda_launch){
               .kernel = k->kernel,
               .name = "product_tile",
               .args = &args,
               .args_bytes = sizeof args,
               .grid = {cuda_div_up(p->n_rows, (uint32_t)k->inputs), cuda_div_up(n_out, rows)},
               .threads = (uint32_t)k->threads,
               .shared = args.n_stages * (uint32_t)k->stage_bytes,
               .read = (p->pair ? 2 * weights : weights) + (uint64_t)p->n_rows * n_in * 2,
               .written = (uint64_t)p->n_rows * n_out * 4});
}
