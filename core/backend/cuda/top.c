/* top.c - launches of the top-k selection of each row's logits. Owns its scratch. */
#include "core/backend/cuda/ops_int.h"

#include "shaders/cuda/kernels.h"

enum {
    PASS_ROWS = 256, /* rows whose candidate lists fit into the scratch */
    THREADS = 256    /* as in top.cu */
};

static uint32_t pass_rows(uint32_t n_rows) {
    return n_rows < PASS_ROWS ? n_rows : PASS_ROWS;
}

/* Candidate lists; the counts of finished slices follow them. */
static uint64_t lists_bytes(uint32_t max_rows) {
    return (uint64_t)pass_rows(max_rows) * CUDA_TOP_SLICES * ARGS_TOP_MAX * sizeof(uint64_t);
}

int cuda_top_scratch(struct cuda_backend *c, const struct backend_config *config, err *e) {
    uint64_t counts = pass_rows(config->max_rows) * sizeof(uint32_t);
    return cuda_scratch_new(c, CUDA_SCRATCH_TOP, lists_bytes(config->max_rows) + counts, e);
}

int cuda_top(backend *be, const struct op_top *a) {
    struct cuda_backend *c = cuda_of(be);
    unsigned char *scratch = cuda_scratch(c, CUDA_SCRATCH_TOP);
    struct cargs_top args = {
        .lists = (uint64_t *)(void *)scratch,
        .done = (uint32_t *)(void *)(scratch + lists_bytes(be->max_rows)),
        .op = {.n_cols = a->n_cols, .k = a->k, .n_slices = cuda_div_up(a->n_cols, CUDA_TOP_TILE)}};
    if (args.op.n_slices > CUDA_TOP_SLICES) args.op.n_slices = CUDA_TOP_SLICES;
    args.op.slice_cols = cuda_div_up(a->n_cols, args.op.n_slices);
    int rc = 0;
    for (uint32_t first = 0, n; first < a->n_rows && !rc; first += n) {
        n = pass_rows(a->n_rows - first);
        args.x = (const float *)cuda_at(a->x) + (uint64_t)first * a->n_cols;
        args.ids = (int32_t *)cuda_at(a->ids) + (uint64_t)first * a->k;
        args.values = (float *)cuda_at(a->values) + (uint64_t)first * a->k;
        const uint64_t results = (uint64_t)n * a->k * sizeof(float); /* ids; values take as much */
        const uint64_t lists =
            args.op.n_slices > 1 ? (uint64_t)n * args.op.n_slices * a->k * sizeof(uint64_t) : 0;
        rc = cuda_launch(c, &(struct cuda_launch){
                                .kernel = cuda_top_kernel(),
                                .name = "top",
                                .args = &args,
                                .args_bytes = sizeof args,
                                .grid = {args.op.n_slices, n, 1},
                                .threads = THREADS,
                                .read = (uint64_t)n * a->n_cols * sizeof(float) + lists + results,
                                .written = 2 * results + lists,
                            });
    }
    return rc;
}
