/* input.c - launches of a product's prologue: residual addition, norms, rounding; with many rows
 * also the epilogue of the pair before, if it was put off. Kernels: shaders/cuda/input.cu. Owns
 * nothing: linear.c allocates the scratch that receives the rows. */
#include "core/backend/cuda/gemm_int.h"

#include "shaders/cuda/kernels.h"

#include <math.h>

/* Groups of four columns per thread: as few as 1024 threads allow, because a single row waits for
 * memory once per group. Depends on n_in alone, because it determines the order of sums. */
static uint32_t column_groups(uint32_t pitch) {
    return pitch <= 4096 ? 1 : pitch <= 16384 ? 4 : 16;
}

/* The factor, a power of two, that undoes the common scale of rows with a norm. It depends on the
 * norm alone: no value exceeds sqrt(n_in) times the norm's largest weight (plus the largest bias),
 * and the scale brings
 * that bound into [2^14, 2^15). Usual values lie about 2^6 below it; f16 keeps its full precision
 * down to 2^-14. 0: each row needs its own scale. */
static float common_inverse_scale(const struct op_input *in, uint32_t n_in) {
    const float least_eps = 0x1p-100f; /* below it, squares that underflow could dominate the sum */
    int exponent;
    if (!in->norm || !(in->eps >= least_eps)) return 0;
    float most = sqrtf((float)n_in) * cuda_weight_of(in->norm)->largest;
    if (in->norm_bias) most += cuda_weight_of(in->norm_bias)->largest;
    if (!isfinite(most)) return 0;
    if (most == 0) return 1;
    frexpf(most, &exponent);
    return scalbnf(1, exponent - 15 < -126 ? -126 : exponent - 15);
}

/* Are the rows there, because the last launches only multiplied them? */
static bool is_ready(const struct cuda_backend *c, const struct op_input *in, uint32_t n_rows,
                     uint32_t n_in, uint32_t kinds) {
    const struct cuda_ready *r = &c->ready;
    return r->n_launches && r->n_launches == c->n_launches && (r->kinds & kinds) == kinds &&
           r->x == cuda_at(in->x) && r->norm == cuda_vector(in->norm) && r->eps == in->eps &&
           r->n_rows == n_rows && r->n_in == n_in && !in->residual && !in->norm_bias &&
           !in->centred;
}

/* Is the residual the sum that was put off, and can input_sum make it? n: groups of columns. Its
 * blocks wait for those of other ranks, so all of them have to run at once. */
static bool makes_sum(const struct cuda_backend *c, const struct op_input *in, uint32_t n_rows,
                      uint32_t n_in, uint32_t n) {
    const struct cargs_peer *sum = &c->deferred.args;
    return sum->x && sum->x == cuda_at(in->residual) && sum->n == (uint64_t)n_rows * n_in &&
           n_in % 4 == 0 && n_rows <= (uint32_t)c->features.n_sms && cuda_input_sum_kernel(n);
}

/* Launches the rows that args describe; the sum that was put off is then made, too, if it is their
 * residual. */
static int launch_rows(struct cuda_backend *c, const struct op_input *in,
                       const struct cargs_input *args, uint32_t n_rows) {
    const uint32_t n_in = args->op.n_in, n = column_groups(args->pitch);
    const bool sums = makes_sum(c, in, n_rows, n_in, n);
    const uint64_t values = (uint64_t)n_rows * n_in;
    const uint32_t n_norms = !!in->residual_norm + !!in->norm + !!in->norm_bias;
    struct cargs_input_sum both = {.in = *args};
    struct cuda_launch l = {
        .kernel =
            sums ? cuda_input_sum_kernel(n) : cuda_input_kernel(n, !in->residual && !in->norm),
        .name = sums ? "input_sum" : "input",
        .args = sums ? (const void *)&both : args,
        .args_bytes = sums ? sizeof both : sizeof *args,
        .grid = {n_rows},
        .threads = cuda_div_up(args->pitch, 4 * 32 * n) * 32,
        .read = values * 4 * (1 + !!in->residual) + (uint64_t)n_norms * n_in * 4,
        .written = values * (4 * !!in->residual + 4 * !!args->out32 + 2 * !!args->out16)};
    if (sums) {
        both.peer = c->deferred.args;
        c->deferred.args.x = NULL;
        l.read += values * 4 * (both.peer.n_ranks - 1);
        l.written += values * (4 + 8 * (both.peer.n_ranks - 1));
    }
    return cuda_launch(c, &l);
}

/* Does y, of what was put off, have these rows? */
static bool is_put_off(const struct cuda_backend *c, const float *y, uint32_t n_rows,
                       uint32_t n_in) {
    const struct cargs_apply_epilogue *late = &c->put_off.args;
    return late->y && late->y == y && late->n_rows == n_rows && late->n_out == n_in;
}

/* Takes the scales of the residual, if they were put off. Otherwise the launch begins what was. */
static void take_scales(struct cuda_backend *c, uint32_t n_rows, struct cargs_input *args) {
    const struct cargs_apply_epilogue *late = &c->put_off.args;
    if (!is_put_off(c, args->residual, n_rows, args->op.n_in) || late->pair_sums) return;
    args->residual_scales = late->in_scale;
    args->residual_weight_scale = late->epilogue.scale;
    c->put_off.args.y = NULL;
}

/* Is the input what the epilogue that was put off makes, and can input_gated make it? */
static bool makes_gated(const struct cuda_backend *c, const struct op_input *in,
                        const struct cargs_input *args, uint32_t n_rows) {
    return is_put_off(c, args->x, n_rows, args->op.n_in) && c->put_off.args.pair_sums &&
           args->out16 && !args->out32 && !in->residual && !in->norm &&
           cuda_input_gated_kernel(args->pitch).kernel;
}

/* Launches the rows that args describe, which the epilogue that was put off makes. */
static int launch_gated(struct cuda_backend *c, const struct cargs_input *args, uint32_t n_rows) {
    const struct cuda_input_gated k = cuda_input_gated_kernel(args->pitch);
    const struct cargs_input_gated both = {.in = *args, .pair = c->put_off.args};
    const uint64_t values = (uint64_t)n_rows * args->op.n_in;
    c->put_off.args.y = NULL;
    return cuda_launch(
        c, &(struct cuda_launch){.kernel = k.kernel,
                                 .name = "input_gated",
                                 .args = &both,
                                 .args_bytes = sizeof both,
                                 .grid = {n_rows},
                                 .threads = cuda_div_up(args->pitch, 4 * 32 * k.groups) * 32,
                                 .read = values * 8,
                                 .written = values * 2});
}

int cuda_input(struct cuda_backend *c, const struct op_input *in, uint32_t n_rows, uint32_t n_in,
               uint32_t kinds, float *f32) {
    const bool f16 = kinds & CUDA_IN_F16;
    if (!f32 && is_ready(c, in, n_rows, n_in, kinds)) return 0;
    const bool usual = !f32 && !in->residual_norm && !in->norm_bias && !in->centred;
    const uint32_t pitch = cuda_pitch(n_in);
    float inverse = f16 ? common_inverse_scale(in, n_in) : 0;
    if (!f32 && kinds & CUDA_IN_F32) f32 = cuda_scratch(c, CUDA_SCRATCH_IN32);
    struct cargs_input args = {
        .x = cuda_at(in->x),
        .residual = cuda_at(in->residual),
        .residual_norm = cuda_vector(in->residual_norm),
        .norm = cuda_vector(in->norm),
        .bias = cuda_vector(in->norm_bias),
        .out16 = f16 ? cuda_scratch(c, CUDA_SCRATCH_IN16) : NULL,
        .out32 = f32,
        .scales = cuda_in_scales(c),
        .op = {.n_in = n_in,
               .residual_scale = in->residual_scale != 0 ? in->residual_scale : 1,
               .eps = in->eps},
        .pitch = pitch,
        .scale = inverse != 0 ? 1 / inverse : 0,
        .inverse = inverse,
        .centred = in->centred,
        .largest_bias = in->norm_bias ? cuda_weight_of(in->norm_bias)->largest : 0,
    };
    if (f16) c->in_scale = inverse;
    take_scales(c, n_rows, &args);
    const int rc = makes_gated(c, in, &args, n_rows) ? launch_gated(c, &args, n_rows)
                                                     : launch_rows(c, in, &args, n_rows);
    c->ready = (struct cuda_ready){.n_launches = usual && !rc ? c->n_launches : 0,
                                   .x = args.x,
                                   .norm = args.norm,
                                   .eps = in->eps,
                                   .n_rows = n_rows,
                                   .n_in = n_in,
                                   .kinds = kinds};
    return rc;
}

int cuda_norm(backend *be, const struct op_norm *a) {
    return cuda_input(cuda_of(be), &a->in, a->n_rows, (uint32_t)a->in.norm->n_in, CUDA_IN_F32,
                      cuda_at(a->out));
}
