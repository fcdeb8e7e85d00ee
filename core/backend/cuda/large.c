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
    if (chunk) cuda_lt_prepare(c, chunk, n_in);
    if (chunk && n_out % chunk) cuda_lt_prepare(c, n_out % chunk, n_in);
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

/* y (n_rows, n_out) = the sums of input rows first .. first + n_rows - 1, times scale. */
static bool multiply_rows(struct cuda_backend *c, const struct cuda_weight *w, uint32_t first,
                          uint32_t n_rows, float scale, float *y) {
    uint32_t n_in = (uint32_t)w->base.n_in, n_out = (uint32_t)w->base.n_out;
    uint32_t pitch = cuda_pitch(n_in), chunk = chunk_rows(c, w);
    for (uint32_t at = 0; at < n_out; at += chunk) {
        uint32_t n = n_out - at < chunk ? n_out - at : chunk;
        const uint16_t *rows = (const uint16_t *)w->product + (uint64_t)at * pitch;
        if (cuda_tile_bytes(w->format)) {
            if (decode_rows(c, w, at, n)) return false;
            rows = cuda_scratch(c, CUDA_SCRATCH_DECODED);
        }
        const struct cuda_lt_product lt = {
            .w = rows,
            .x = (const uint16_t *)cuda_scratch(c, CUDA_SCRATCH_IN16) + (uint64_t)first * pitch,
            .y = y + at,
            .n_rows = n_rows,
            .n_out = n,
            .n_in = n_in,
            .y_pitch = n_out,
            .scale = scale};
        if (!cuda_lt_product(c, &lt)) return false;
    }
    return true;
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
    uint32_t n_out = (uint32_t)p->w->base.n_out;
    uint64_t fit = c->scratch_bytes[CUDA_SCRATCH_PAIR] / ((uint64_t)2 * n_out * 4);
    if (fit < LEAST_PAIR_ROWS && fit < p->n_rows) return false;
    uint32_t n_chunks = cuda_div_up(p->n_rows, fit < p->n_rows ? (uint32_t)fit : p->n_rows);
    uint32_t chunk = cuda_div_up(p->n_rows, n_chunks);
    float *gate = cuda_scratch(c, CUDA_SCRATCH_PAIR), *up = gate + (uint64_t)chunk * n_out;
    for (uint32_t at = 0; at < p->n_rows; at += chunk) {
        uint32_t n = p->n_rows - at < chunk ? p->n_rows - at : chunk;
        if (!multiply_rows(c, p->w, at, n, 1, gate) || !multiply_rows(c, p->pair, at, n, 1, up))
            return false;
        if (n == p->n_rows && n >= LEAST_GATED_ROWS && p->y_once && n_out % 4 == 0)
            cuda_epilogue_later(c, p, gate, up);
        else if ((*rc = cuda_epilogue(c, p, at, n, gate, up)))
            return true;
    }
    return true;
}

/* Does the exchange that comes next (peer.c) multiply the sums by their scales? */
static bool leaves_scales(struct cuda_backend *c, const struct cuda_product *p) {
    struct cargs_peer *out = cuda_announced(c, p);
    const uint32_t n_out = (uint32_t)p->w->base.n_out;
    if (!out || n_out % 4 != 0 || !has_only_scales(p)) return false;
    out->row_scale = cuda_scratch(c, CUDA_SCRATCH_IN_SCALE);
    out->scale = p->w->scale;
    out->n_cols = n_out;
    return true;
}

bool cuda_large_product(struct cuda_backend *c, const struct cuda_product *p, int *rc) {
    *rc = c->failed.code;
    if (*rc) return true;
    if (!c->lt || p->w->format == CUDA_FORMAT_F32 || p->tiles) return false;
    if (c->force.path != CUDA_PATH_LARGE && cuda_tile_is_best(c, p)) return false;
    if (p->pair) return multiply_pair(c, p, rc);
    float scale = epilogue_scale(c, p);
    if (!multiply_rows(c, p->w, 0, p->n_rows, scale != 0 ? scale : 1, p->y)) return false;
    if (scale == 0 && !leaves_scales(c, p)) *rc = cuda_epilogue(c, p, 0, p->n_rows, p->y, NULL);
    return true;
}
