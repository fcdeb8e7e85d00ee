/* heads.c - a product for each head (op_linear_heads): the heads' matrices are multiplied as
 * experts are, with the rows' heads as pairs. Owns the scratch of their lists. Kernel:
 * shaders/cuda/heads.cu. */
#include "core/backend/cuda/ops_int.h"

#include "core/base/mem.h"
#include "shaders/cuda/kernels.h"

enum { LEAST_TILE = 8 /* pairs of one head that are multiplied together; CUDA_MOE_TILE at most */ };

/* Tiles that n_rows rows of each head make. */
static uint32_t tiles_of(uint32_t n_rows, uint32_t tile_rows, uint32_t n_heads) {
    return cuda_div_up(n_rows, tile_rows) * n_heads;
}

int cuda_heads_scratch(struct cuda_backend *c, const struct backend_config *config, err *e) {
    const uint32_t n_heads = config->heads.n_heads;
    const uint32_t n_rows = config->max_rows < CUDA_HEADS_ROWS ? config->max_rows : CUDA_HEADS_ROWS;
    if (!n_heads) return 0;
    if (n_heads > UINT32_MAX / CUDA_HEADS_ROWS) return err_no_memory(e);
    int rc = cuda_scratch_new(c, CUDA_SCRATCH_HEADS_LIST,
                              (uint64_t)n_heads * n_rows * sizeof(uint32_t), e);
    if (rc) return rc;
    return cuda_scratch_new(
        c, CUDA_SCRATCH_HEADS_TILES,
        (uint64_t)tiles_of(n_rows, LEAST_TILE, n_heads) * sizeof(struct args_moe_tile), e);
}

static int heads_input(struct cuda_backend *c, const struct cargs_heads_input *a) {
    const uint64_t pairs = (uint64_t)a->n_rows * a->n_heads;
    return cuda_launch(c,
                       &(struct cuda_launch){.kernel = cuda_heads_input_kernel(),
                                             .name = "heads_input",
                                             .args = a,
                                             .args_bytes = sizeof *a,
                                             .grid = {cuda_div_up(pairs, CUDA_HEADS_WARPS)},
                                             .threads = 32 * CUDA_HEADS_WARPS,
                                             .read = pairs * (a->n_in + a->n_tail) * sizeof(float),
                                             .written = pairs * (a->n_in * (a->f32 ? 4 : 2) +
                                                                 a->n_tail * sizeof(float))});
}

/* Rows first .. first + n_rows - 1. */
static int multiply_rows(struct cuda_backend *c, const struct op_linear_heads *a, uint32_t first,
                         uint32_t n_rows) {
    const struct cuda_weight *w = cuda_weight_of(a->w);
    const uint32_t n_heads = (uint32_t)a->w->n_experts, n_in = (uint32_t)a->w->n_in,
                   n_out = (uint32_t)a->w->n_out;
    const bool f32 = cuda_in_of(a->w) == CUDA_IN_F32;
    uint32_t tile_rows = LEAST_TILE;
    while (tile_rows < CUDA_MOE_TILE && tile_rows < n_rows)
        tile_rows *= 2;
    const struct cargs_heads_input in = {
        .x = (const float *)cuda_at(a->x) + (uint64_t)first * n_heads * (n_in + a->n_tail),
        .out = cuda_scratch(c, f32 ? CUDA_SCRATCH_IN32 : CUDA_SCRATCH_IN16),
        .scales = cuda_scratch(c, CUDA_SCRATCH_IN_SCALE),
        .y = (float *)cuda_at(a->y) + (uint64_t)first * n_heads * (n_out + a->n_tail),
        .list = cuda_scratch(c, CUDA_SCRATCH_HEADS_LIST),
        .tiles = cuda_scratch(c, CUDA_SCRATCH_HEADS_TILES),
        .n_rows = n_rows,
        .n_heads = n_heads,
        .n_in = n_in,
        .n_out = n_out,
        .n_tail = a->n_tail,
        .pitch = cuda_pitch(n_in),
        .f32 = f32,
        .tile_rows = tile_rows,
    };
    int rc = heads_input(c, &in);
    c->in_scale = 0;
    if (rc) return rc;
    return cuda_product(c, &(struct cuda_product){.w = w,
                                                  .n_rows = n_rows < tile_rows ? n_rows : tile_rows,
                                                  .y = in.y,
                                                  .y_tail = a->n_tail,
                                                  .tiles = in.tiles,
                                                  .list = in.list,
                                                  .n_tiles = tiles_of(n_rows, tile_rows, n_heads),
                                                  .n_share = 1});
}

int cuda_linear_heads(backend *be, const struct op_linear_heads *a) {
    int rc = 0;
    for (uint32_t first = 0; first < a->n_rows && !rc; first += CUDA_HEADS_ROWS) {
        const uint32_t left = a->n_rows - first;
        rc = multiply_rows(cuda_of(be), a, first, left < CUDA_HEADS_ROWS ? left : CUDA_HEADS_ROWS);
    }
    return rc;
}
