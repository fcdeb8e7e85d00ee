/* linear.m - launches of matrix products. Owns nothing. */
#include "core/backend/metal/metal_int.h"

enum {
    /* Most rows of x that share one read of a weight in the vector family; with more rows the
     * tiles take over. A weight costs the vector family some 5 operations of decoding and 1.3 per
     * row (its fma, and its share of the row's load). It costs tiles on matrices the same 5, then 1
     * for each row of a tile of 8, 16 or 32, and some 3 for the tile's stores and loads: 8 rows
     * cost 15 and 16; 9 rows cost 24 (two passes, and the weight is read twice) and 24. While a Q4
     * weight's 0.56 bytes arrive, an M1 (68 GB/s, 1.3 T fma/s) does 11 operations and an M4 Max
     * (546 GB/s, 8 T) 8: from 4 rows on, every chip is limited by arithmetic. Not measured on a Mac
     * yet. */
    VECTOR_ROWS = 8,
    /* Below this many outputs a lane takes one weight row instead of two: the largest chips keep
     * some 1,000 simdgroups of 8 rows in flight. */
    NARROW_OUTPUTS = 4096
};

static const uint8_t vector_pass_rows[VECTOR_ROWS + 1] = {0, 1, 2, 3, 4, 6, 6, 8, 8};

/* The weights of one dispatch: all of one type, or a pair. */
enum { GROUP_MAX = 3 };
struct group {
    uint32_t n, at[GROUP_MAX]; /* indices in the op */
};

static bool is_pair(const struct op_linear *a) {
    return a->act != BACKEND_ACT_NONE;
}

/* The kernel family, its constants and its grid; tile: outputs of a threadgroup. */
struct shape {
    const char *kernel;
    uint32_t rows, width, tile, n_passes, threads;
};

static struct shape tile_shape(const struct metal_backend *m, const struct op_linear *a) {
    uint32_t rows = a->n_rows > 16 ? 32 : a->n_rows > 8 ? 16 : 8;
    return (struct shape){.kernel = metal_tile_kernel(m, "linear_matrix", "linear_plain"),
                          .rows = rows,
                          .width = 1,
                          .tile = MARGS_PRODUCT_TILE,
                          .n_passes = metal_div_up(a->n_rows, rows),
                          .threads = MARGS_PRODUCT_THREADS};
}

static struct shape vector_shape(const struct op_linear *a, const struct group *g) {
    uint64_t n_out = 0;
    for (uint32_t i = 0; i < g->n; i++)
        n_out += a->w[g->at[i]]->n_out;
    uint32_t rows = vector_pass_rows[a->n_rows < VECTOR_ROWS ? a->n_rows : VECTOR_ROWS];
    uint32_t width = rows == 1 && n_out < NARROW_OUTPUTS && !is_pair(a) ? 1 : 2;
    return (struct shape){.kernel = "linear_vector",
                          .rows = rows,
                          .width = width,
                          .tile = MARGS_LINEAR_SIMDGROUPS * MARGS_PRODUCT_SLOTS *
                                  (is_pair(a) ? width / 2 : width),
                          .n_passes = metal_div_up(a->n_rows, rows),
                          .threads = MARGS_LINEAR_SIMDGROUPS * 32};
}

/* In the order of the kernels' arguments. A buffer that the op lacks is replaced by one that it
 * has; the kernel does not read it. */
static void bind_buffers(struct metal_launch *l, const struct op_linear *a, const struct group *g) {
    for (uint32_t i = 0; i < GROUP_MAX; i++) {
        uint32_t at = g->at[i < g->n ? i : 0], y = is_pair(a) ? 0 : at;
        l->binds[1 + i] = metal_weight_at(a->w[at]);
        l->binds[4 + i] = a->bias[at] ? metal_weight_at(a->bias[at]) : l->binds[0];
        l->binds[7 + i] = metal_at(a->y[y]);
    }
    l->n_binds = 10;
}

/* The vector family reads a weight in each pass. Tiles of the same outputs run side by side and
 * share the first one's reads through the cache. */
static void count_bytes(struct metal_launch *l, const struct op_linear *a, const struct group *g,
                        const struct shape *s, bool in_tiles) {
    const uint32_t n_passes = in_tiles ? 1 : s->n_passes;
    l->read = (uint64_t)a->n_rows * a->w[0]->n_in * sizeof(float);
    for (uint32_t i = 0; i < g->n; i++) {
        const backend_weight *w = a->w[g->at[i]];
        l->read += n_passes * w->n_out * metal_row_bytes(w);
        if (a->bias[g->at[i]]) l->read += w->n_out * sizeof(float);
        if (!is_pair(a) || i == 0) l->written += a->n_rows * w->n_out * sizeof(float);
        l->products += a->n_rows * w->n_out * w->n_in;
        if (!in_tiles)
            l->cycles += metal_product_cycles(w->type, s->rows, n_passes * w->n_out * w->n_in);
    }
}

static int launch_group(struct metal_backend *m, const struct op_linear *a, const struct group *g,
                        struct metal_bind x) {
    const bool in_tiles = metal_takes_tiles(m, a->n_rows > VECTOR_ROWS);
    struct shape s = in_tiles ? tile_shape(m, a) : vector_shape(a, g);
    const backend_weight *w = a->w[g->at[0]], *up = a->w[g->at[is_pair(a)]];
    float scale = a->y_scale != 0 ? a->y_scale : 1;
    struct margs_linear args = {.n_rows = a->n_rows,
                                .n_in = (uint32_t)w->n_in,
                                .row_bytes = {metal_row_bytes(w), metal_row_bytes(up)},
                                .y_scale = scale,
                                .y_over_cap = a->softcap != 0 ? scale / a->softcap : 0,
                                .cap = a->softcap};
    if (is_pair(a)) args.y_over_cap = a->bounds.gate, args.cap = a->bounds.up;
    uint32_t n_weights = is_pair(a) ? 1 : g->n, bias = 0, n_tiles = 0;
    for (uint32_t i = 0; i < g->n; i++)
        bias |= (uint32_t)(a->bias[g->at[i]] != NULL) << i;
    for (uint32_t i = 0; i < n_weights; i++) {
        uint32_t tiles = metal_div_up(a->w[g->at[i]]->n_out, s.tile);
        args.n_out[i] = (uint32_t)a->w[g->at[i]]->n_out;
        if (i < GROUP_MAX - 1) args.n_tiles[i] = tiles;
        n_tiles += tiles;
    }
    struct metal_launch l = {
        .kernel = s.kernel,
        .n_consts = MARGS_LINEAR_N_CONSTS,
        .consts = {{MARGS_LINEAR_TYPE, (uint32_t)w->type},
                   {MARGS_LINEAR_TYPE_UP, (uint32_t)up->type},
                   {MARGS_LINEAR_N_WEIGHTS, n_weights},
                   {MARGS_LINEAR_ACT, (uint32_t)a->act},
                   {MARGS_LINEAR_BIAS, bias},
                   {MARGS_LINEAR_EDGE, w->n_in % 8 != 0},
                   {MARGS_LINEAR_SCALED, (a->y_scale != 0) | (a->softcap != 0) << 1},
                   {MARGS_LINEAR_ROWS, s.rows},
                   {MARGS_LINEAR_WIDTH, s.width},
                   {MARGS_LINEAR_HALVES, metal_has_halves(m)}},
        .args = &args,
        .args_bytes = sizeof args,
        .binds = {x},
        .groups = {s.n_passes, n_tiles, 1},
        .threads = {s.threads, 1, 1}};
    bind_buffers(&l, a, g);
    count_bytes(&l, a, g, &s, in_tiles);
    return metal_dispatch(m, &l);
}

/* Weights of one type share a dispatch, because each dispatch ends by waiting for its last
 * threadgroup. */
int metal_linear(backend *be, const struct op_linear *a) {
    struct metal_backend *m = metal_of(be);
    struct metal_bind x;
    int rc = metal_input(m, &a->in, a->n_rows, (uint32_t)a->w[0]->n_in, NULL, &x);
    if (is_pair(a)) return rc ? rc : launch_group(m, a, &(struct group){2, {0, 1}}, x);
    for (uint32_t i = 0, done = 0; i < a->n_weights && !rc; i++) {
        struct group g = {0};
        if (done >> i & 1) continue;
        for (uint32_t k = i; k < a->n_weights && g.n < GROUP_MAX; k++)
            if (!(done >> k & 1) && a->w[k]->type == a->w[i]->type)
                g.at[g.n++] = k, done |= 1u << k;
        rc = launch_group(m, a, &g, x);
    }
    return rc;
}
