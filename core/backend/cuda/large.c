/* large.c - products of many rows, for which decoding the whole matrix first costs little: the
 * decoding, cuBLASLt and the epilogue. Allocates CUDA_SCRATCH_DECODED, _LT and _PAIR at open. */
#include "core/backend/cuda/gemm_int.h"

#include "shaders/cuda/kernels.h"

enum {
#ifdef INFERD_CUDA_STANDIN
    LEAST_GATED_ROWS = 8,
#else
    LEAST_GATED_ROWS = 256, /* input_gated has a block for each row */
#endif
    DECODED_BYTES = 128 << 20, /* of CUDA_SCRATCH_DECODED */
    PAIR_BYTES = 256 << 20,    /* most of CUDA_SCRATCH_PAIR */
    LEAST_PAIR_ROWS = 64,      /* fewer at a time are not worth cuBLASLt's launches */
    CHUNK_ROWS = 64            /* weight rows decoded together: a multiple of these */
};

int cuda_large_scratch(struct cuda_backend *c, const struct backend_config *config, err *e) {
    if (config->max_rows <= CUDA_SKINNY_ROWS) return 0;
    uint64_t pair = (uint64_t)config->max_rows * 2 * config->max_cols * 4;
    int rc = cuda_scratch_new(c, CUDA_SCRATCH_PAIR, pair < PAIR_BYTES ? pair : PAIR_BYTES, e);
    if (!rc && c->lt) rc = cuda_scratch_new(c, CUDA_SCRATCH_LT, CUDA_LT_WORKSPACE, e);
    if (!rc && c->lt) rc = cuda_scratch_new(c, CUDA_SCRATCH_DECODED, DECODED_BYTES, e);
    return rc;
}

/* Weight rows per multiplication. */
static uint32_t chunk_rows(const struct cuda_backend *c, const struct cuda_weight *w) {
    uint32_t n_out = (uint32_t)w->base.n_out;
    if (!cuda_tile_bytes(w->format)) return n_out;
    uint64_t row_bytes = (uint64_t)cuda_pitch((uint32_t)w->base.n_in) * 2;
    uint64_t n = c->scratch_bytes[CUDA_SCRATCH_DECODED] / row_bytes / CHUNK_ROWS * CHUNK_ROWS;
    return n < n_out ? (uint32_t)n : n_out;
}

void cuda_large_prepare(struct cuda_backend *c, const struct cuda_weight *w) {
    uint32_t n_out = (uint32_t)w->base.n_out, n_in = (uint32_t)w->base.n_in;
    uint32_t chunk = chunk_rows(c, w);
    const bool pairs = !cuda_tile_bytes(w->format);
    if (chunk) cuda_lt_prepare(c, chunk, n_in, pairs);
    if (chunk && n_out % chunk) cuda_lt_prepare(c, n_out % chunk, n_in, pairs);
}

/* Decodes rows at .. at + n - 1 of a quantized matrix to f16 in CUDA_SCRATCH_DECODED; at is a
 * multiple of CUDA_TILE_ROWS. */
static int decode_rows(struct cuda_backend *c, const struct cuda_weight *w, uint32_t at,
                       uint32_t n) {
    uint32_t n_in = (uint32_t)w->base.n_in, pitch = cuda_pitch(n_in);
    uint32_t tile_bytes = cuda_tile_bytes(w->format);
    const struct cargs_dequantize args = {
        .tiles = (const uint8_t *)w->product + cuda_n_tiles(at, n_in) * tile_bytes,
        .out = cuda_scratch(c, CUDA_SCRATCH_DECODED),
        .n_tiles = cuda_n_tiles(n, n_in),
        .n_in = n_in,
        .pitch = pitch,
    };
    return cuda_launch(
        c, &(struct cuda_launch){.kernel = cuda_dequantize_kernel(w->format),
                                 .name = "dequantize",
                                 .args = &args,
                                 .args_bytes = sizeof args,
                                 .grid = {cuda_div_up(args.n_tiles, CUDA_DEQUANTIZE_TILES)},
                                 .threads = 256,
                                 .read = args.n_tiles * tile_bytes,
                                 .written = (uint64_t)n * pitch * 2});
}

/* y (n_rows, n_out) = the sums of input rows first .. first + n_rows - 1 and 16-bit weights, times
 * scale. */
static struct cuda_lt_product lt_product(struct cuda_backend *c, const struct cuda_weight *w,
                                         uint32_t first, uint32_t n_rows, float scale, float *y) {
    const uint32_t n_out = (uint32_t)w->base.n_out, n_in = (uint32_t)w->base.n_in;
    const uint16_t *x = cuda_scratch(c, CUDA_SCRATCH_IN16);
    return (struct cuda_lt_product){.w = w->product,
                                    .x = x + (uint64_t)first * cuda_pitch(n_in),
                                    .y = y,
                                    .n_rows = n_rows,
                                    .n_out = n_out,
                                    .n_in = n_in,
                                    .y_pitch = n_out,
                                    .scale = scale};
}

/* The same of weights of any format, which it decodes in chunks. */
static bool multiply_rows(struct cuda_backend *c, const struct cuda_weight *w, uint32_t first,
                          uint32_t n_rows, float scale, float *y) {
    const uint32_t n_out = (uint32_t)w->base.n_out, chunk = chunk_rows(c, w);
    const uint64_t pitch = cuda_pitch((uint32_t)w->base.n_in);
    const bool decodes = cuda_tile_bytes(w->format);
    struct cuda_lt_product lt = lt_product(c, w, first, n_rows, scale, y);
    for (uint32_t at = 0; at < n_out; at += chunk) {
        lt.n_out = n_out - at < chunk ? n_out - at : chunk;
        lt.y = y + at;
        if (decodes && decode_rows(c, w, at, lt.n_out)) return false;
        lt.w = decodes ? cuda_scratch(c, CUDA_SCRATCH_DECODED)
                       : (const void *)((const uint16_t *)w->product + at * pitch);
        if (!cuda_lt_product(c, &lt)) return false;
    }
    return true;
}

/* The same of two matrices of one shape: in one launch, if that is faster and their results lie in
 * the order of the matrices. */
static bool multiply_two(struct cuda_backend *c, const struct cuda_weight *const w[2],
                         uint32_t first, uint32_t n_rows, float scale, float *const y[2]) {
    const uint32_t second = (uintptr_t)w[1]->product > (uintptr_t)w[0]->product;
    struct cuda_lt_product both = lt_product(c, w[!second], first, n_rows, scale, y[!second]);
    both.w2 = w[second]->product, both.y2 = y[second];
    if (!cuda_tile_bytes(w[0]->format) && cuda_lt_product(c, &both)) return true;
    return multiply_rows(c, w[0], first, n_rows, scale, y[0]) &&
           multiply_rows(c, w[1], first, n_rows, scale, y[1]);
}

/* Does the epilogue of one product only multiply by the input's and the weights' scales? */
static bool has_only_scales(const struct cuda_product *p) {
    return !p->bias && p->softcap == 0 && (p->y_scale == 0 || p->y_scale == 1);
}

/* The factor that turns sums into results if the epilogue does nothing else, so that cuBLASLt can
 * apply it. 0: cuda_epilogue is needed. Sums of products of f16 are 0 or between 2^-48 and 2^48:
 * times the input's scale, or both scales, they stay normal numbers, so the bits are those of
 * cuda_epilogue. */
static float epilogue_scale(const struct cuda_backend *c, const struct cuda_product *p) {
    const float least = 0x1p-70f, most = 0x1p70f;
    float scale = c->in_scale * p->w->scale;
    bool normal = c->in_scale >= least && c->in_scale <= most && scale >= least && scale <= most;
    return has_only_scales(p) && normal ? scale : 0;
}

/* Gate and up, in chunks of as many input rows as CUDA_SCRATCH_PAIR holds. The epilogue of all rows
 * is put off if the input of the next product may make it; no launch may follow it here. */
static bool multiply_pair(struct cuda_backend *c, const struct cuda_product *p, int *rc) {
    const uint32_t n_out = (uint32_t)p->w->base.n_out, all = c->part.of ? c->part.of : p->n_rows;
    const uint64_t fit = c->scratch_bytes[CUDA_SCRATCH_PAIR] / ((uint64_t)2 * n_out * 4);
    const bool later = p->y_once && all >= LEAST_GATED_ROWS && all <= fit && n_out % 4 == 0;
    if (fit < LEAST_PAIR_ROWS && fit < p->n_rows) return false;
    const uint32_t n_chunks = cuda_div_up(p->n_rows, fit < p->n_rows ? (uint32_t)fit : p->n_rows);
    const uint32_t chunk = cuda_div_up(p->n_rows, n_chunks);
    float *low = cuda_scratch(c, CUDA_SCRATCH_PAIR);
    if (later) low += (uint64_t)c->part.first * n_out;
    float *high = low + (uint64_t)(later ? all : chunk) * n_out;
    /* Sums lie in the order of the weights in memory, as multiply_two wants it. */
    const bool ascend = (uintptr_t)p->w->product < (uintptr_t)p->pair->product;
    float *const y[2] = {ascend ? low : high, ascend ? high : low};
    const struct cuda_weight *const w[2] = {p->w, p->pair};
    for (uint32_t at = 0; at < p->n_rows; at += chunk) {
        const uint32_t n = p->n_rows - at < chunk ? p->n_rows - at : chunk;
        if (!multiply_two(c, w, at, n, 1, y)) return false;
        if (later)
            cuda_epilogue_later(c, p, y[0], y[1]);
        else if ((*rc = cuda_epilogue(c, p, at, n, y[0], y[1])))
            return true;
    }
    return true;
}

/* Can what reads p's result multiply it by the scales? It takes four values at once. */
static bool can_leave_scales(const struct cuda_product *p) {
    return has_only_scales(p) && p->w->base.n_out % 4 == 0;
}

/* Does the exchange that comes next (peer.c) multiply the sums by their scales? */
static bool leaves_scales(struct cuda_backend *c, const struct cuda_product *p) {
    struct cargs_peer *out = cuda_announced(c, p);
    if (!out || !can_leave_scales(p)) return false;
    out->row_scale = cuda_in_scales(c);
    out->scale = p->w->scale;
    out->n_cols = (uint32_t)p->w->base.n_out;
    return true;
}

bool cuda_large_two(struct cuda_backend *c, const struct cuda_product p[2]) {
    const struct cuda_weight *const w[2] = {p[0].w, p[1].w};
    const float scale = epilogue_scale(c, &p[0]);
    float *const y[2] = {p[0].y, p[1].y};
    if (c->failed.code || !c->lt || w[0]->format != CUDA_FORMAT_F16 ||
        w[1]->format != CUDA_FORMAT_F16 || w[0]->base.n_out != w[1]->base.n_out || scale == 0 ||
        scale != epilogue_scale(c, &p[1]) || p->tiles || p[0].pair || p[1].pair ||
        cuda_tile_is_best(c, p))
        return false;
    return multiply_two(c, w, 0, p->n_rows, scale, y);
}

bool cuda_large_product(struct cuda_backend *c, const struct cuda_product *p, int *rc) {
    *rc = c->failed.code;
    if (*rc) return true;
    if (!c->lt || p->w->format == CUDA_FORMAT_F32 || p->tiles) return false;
    if (c->force.path != CUDA_PATH_LARGE && cuda_tile_is_best(c, p)) return false;
    if (p->pair) return multiply_pair(c, p, rc);
    float scale = epilogue_scale(c, p);
    if (!multiply_rows(c, p->w, 0, p->n_rows, scale != 0 ? scale : 1, p->y)) return false;
    if (scale != 0 || leaves_scales(c, p)) return true;
    if (p->y_once && can_leave_scales(p))
        cuda_epilogue_later(c, p, p->y, NULL);
    else
        *rc = cuda_epilogue(c, p, 0, p->n_rows, p->y, NULL);
    return true;
}
