/* input.c - launches of what comes before a product: the residual's addition, norms, rounding.
 * Kernel: shaders/cuda/input.cu. Owns nothing: the scratch that the rows lie in is linear.c's. */
#include "core/backend/cuda/cuda_int.h"

#include "shaders/cuda/kernels.h"

_Static_assert((int)CARGS_INPUT_F16 == (int)CUDA_IN_F16 && (int)CARGS_INPUT_F32 == (int)CUDA_IN_F32,
               "kinds of inputs");

/* Groups of four columns of a thread, and threads: as few groups as 1024 threads allow, since a row
 * alone waits for the memory once a group. By n_in alone: the order of the sums hangs on it. */
static uint32_t groups_of(uint32_t pitch) {
    return pitch <= 4096 ? 1 : pitch <= 16384 ? 4 : 16;
}

int cuda_input(struct cuda_backend *c, const struct op_input *in, uint32_t n_rows, uint32_t n_in,
               enum cuda_in kind, float *f32) {
    uint32_t pitch = cuda_pitch(n_in), n = groups_of(pitch);
    void *out = f32;
    if (!out) out = cuda_scratch(c, kind == CUDA_IN_F32 ? CUDA_SCRATCH_IN32 : CUDA_SCRATCH_IN16);
    const struct cargs_input args = {
        .x = cuda_at(in->x),
        .residual = cuda_at(in->residual),
        .residual_norm = cuda_vector(in->residual_norm),
        .norm = cuda_vector(in->norm),
        .out = out,
        .scales = cuda_scratch(c, CUDA_SCRATCH_IN_SCALE),
        .n_in = n_in,
        .pitch = pitch,
        .kind = (uint32_t)kind,
        .residual_scale = in->residual_scale != 0 ? in->residual_scale : 1,
        .eps = in->eps,
    };
    uint64_t values = (uint64_t)n_rows * n_in;
    uint32_t n_norms = !!in->residual_norm + !!in->norm;
    return cuda_launch(c,
                       &(struct cuda_launch){
                           .kernel = cuda_input_kernel(n),
                           .name = "input",
                           .args = &args,
                           .args_bytes = sizeof args,
                           .grid = {n_rows},
                           .threads = cuda_div_up(pitch, 4 * 32 * n) * 32,
                           .read = values * 4 * (1 + !!in->residual) + (uint64_t)n_norms * n_in * 4,
                           .written = values * (4 * !!in->residual + (kind == CUDA_IN_F32 ? 4 : 2)),
                       });
}

int cuda_norm(backend *be, const struct op_norm *a) {
    return cuda_input(cuda_of(be), &a->in, a->n_rows, (uint32_t)a->in.norm->n_in, CUDA_IN_F32,
                      cuda_at(a->out));
}
