/* linear.c - matrix products: chooses their kernels, by speed alone, because all give the same bits
 * (shaders/cuda/format.h), and launches the skinny GEMM. Owns only the scratch of their inputs. */
#include "core/backend/cuda/gemm_int.h"

#include "core/base/mem.h"
#include "core/base/min_max.h"
#include "shaders/cuda/kernels.h"

enum {
    SMALL_MOST_OUTPUTS = 2048, /* a small product has fewer outputs, and up to CUDA_BRANCH_ROWS */
    TINY_MOST_OUTPUTS = 64,    /* with any number of rows */
    WHOLE_INPUT = 32 << 10,    /* bytes of input that a skinny GEMM keeps in shared memory whole */
    TWO_TURNS = 4,             /* consumers, up to which loaders take turns */
    STATIC_SHARED = 2048       /* most static and system shared memory of a skinny GEMM */
};

/* Up to four products of the same input, row shape and format; or a pair. */
struct batch {
    uint32_t n; /* products */
    const struct cuda_product *p;
    bool launches_early, overlaps_previous; /* skinny GEMMs of the same input after, before it */
};

static uint32_t pitch_of(const struct cuda_weight *w) {
    return cuda_pitch((uint32_t)w->base.n_in);
}

/* Arguments of all kernels of this file; tile: outputs of one tile. Returns the number of tiles. */
static uint32_t fill_product_args(struct cuda_backend *c, const struct batch *b, uint32_t tile,
                                  struct cargs_product *a) {
    const struct cuda_product *p = b->p;
    uint32_t n_tiles = 0;
    *a = (struct cargs_product){
        .x_scale = cuda_in_scales(c),
        .tiles = p->tiles,
        .list = p->list,
        .expert_bytes = p->w->expert_bytes,
        .n_rows = p->n_rows,
        .n_in = (uint32_t)p->w->base.n_in,
        .pitch = pitch_of(p->w),
        .n_share = p->n_share,
        .y_tail = p->y_tail,
    };
    a->split_cols = cuda_split_cols(a->n_in);
    a->n_splits = cuda_n_splits(a->n_in);
    a->x = cuda_scratch(c, p->w->format == CUDA_FORMAT_F32 ? CUDA_SCRATCH_IN32 : CUDA_SCRATCH_IN16);
    for (uint32_t i = 0; i < CARGS_PRODUCT_WEIGHTS; i++) {
        if (i < b->n) {
            a->w[i] = p[i].w->product;
            a->y[i] = p[i].y;
            a->epilogue[i] = cuda_epilogue_args(&p[i]);
            a->n_out[i] = (uint32_t)p[i].w->base.n_out;
            n_tiles += cuda_div_up(a->n_out[i], tile);
        }
        a->last_tile[i] = n_tiles;
    }
    if (p->pair) a->w[1] = p->pair->product, a->n_out[1] = a->n_out[0];
    a->joined_expert = UINT32_MAX;
    a->slots = p->slots;
    if (!p->joined) return n_tiles;
    const struct cuda_product joined = {
        .w = p->joined, .pair = p->joined_pair, .act = p->act, .bounds = p->joined_bounds};
    a->joined_expert = (uint32_t)p->w->base.n_experts;
    a->w[CARGS_PRODUCT_JOINED] = p->joined->product;
    if (p->joined_pair) a->w[CARGS_PRODUCT_JOINED + 1] = p->joined_pair->product;
    a->epilogue[CARGS_PRODUCT_JOINED] = cuda_epilogue_args(&joined);
    return n_tiles;
}

/* Counts each expert's matrix that the list may name once. */
static void count_bytes(const struct batch *b, struct cuda_launch *l) {
    const struct cuda_product *p = b->p;
    uint64_t times = p->tiles ? p->n_tiles : 1;
    if (p->tiles && times > p->w->base.n_experts) times = p->w->base.n_experts;
    l->read = (uint64_t)p->n_rows * pitch_of(p->w) * (p->w->format == CUDA_FORMAT_F32 ? 4 : 2);
    for (uint32_t i = 0; i < b->n; i++) {
        l->read += times * p[i].w->expert_bytes;
        l->written += (uint64_t)p->n_rows * p[i].w->base.n_out * 4;
    }
    if (p->pair) l->read += times * p->pair->expert_bytes;
}

/* ---- F32 weights ---- */

static int launch_f32(struct cuda_backend *c, const struct batch *b) {
    const uint32_t n_rows = b->p->n_rows;
    const struct cuda_f32 k = cuda_product_f32_kernel(n_rows, (uint32_t)b->p->w->base.n_out);
    struct cargs_product a;
    const uint32_t n_tiles = fill_product_args(c, b, k.outs, &a);
    const uint32_t n_groups = a.tiles ? 1 : cuda_div_up(n_rows, k.rows);
    a.block_tiles = n_tiles;
    a.group_rows = k.rows;
    struct cuda_launch l = {.kernel = k.kernel,
                            .name = "product_f32",
                            .args = &a,
                            .args_bytes = sizeof a,
                            .grid = {cuda_div_up((uint64_t)n_tiles * n_groups, CARGS_F32_WARPS),
                                     a.tiles ? b->p->n_tiles : 1},
                            .threads = 32 * CARGS_F32_WARPS};
    count_bytes(b, &l);
    return cuda_launch(c, &l);
}

/* ---- few rows ---- */

static struct cuda_skinny skinny_kernel(int format, uint32_t n_groups) {
    switch (format) {
    case CUDA_FORMAT_F16:
        return cuda_skinny16((int)n_groups);
    case CUDA_FORMAT_Q4:
    case CUDA_FORMAT_Q4_MIN:
    case CUDA_FORMAT_IQ4:
    case CUDA_FORMAT_MXFP4:
    case CUDA_FORMAT_IQ3_XXS:
    case CUDA_FORMAT_IQ3_S:
        return cuda_skinny_q4(format, (int)n_groups);
    default:
        return cuda_skinny_q(format, (int)n_groups);
    }
}

/* Launch shape of a skinny GEMM. */
struct skinny {
    struct cuda_skinny k;
    uint32_t n_groups, group_rows, n_stages, consumers, loaders, n_turns, block_tiles, x_row;
    bool slots, by_lane;
    uint64_t stage, shared;
};

/* Tiles per block: as many as give each multiprocessor one block, because each block reads the
 * whole input and starts with an empty ring. Few tiles are spread further: an accumulation is a
 * chain of dependent operations, and each scheduler runs one at full speed. */
static uint32_t choose_block_tiles(const struct cuda_backend *c, uint32_t n_tiles,
                                   uint32_t tile_consumers, uint32_t n_rows) {
    uint32_t n = cuda_div_up(n_tiles, (uint32_t)c->features.n_sms);
    if (n_rows <= 2 && n == 3) n = 2;
    return n * tile_consumers <= CARGS_SKINNY_CONSUMERS ? n
                                                        : CARGS_SKINNY_CONSUMERS / tile_consumers;
}

/* Stages of the ring buffer: as many as fill half a multiprocessor, so that as much as possible of
 * the weights is loaded before the input is ready. With the input and the system's shared memory
 * that is more than half, so the next product's blocks start only after this one's have ended:
 * running both at once was slower. */
static uint32_t choose_ring_stages(const struct cuda_backend *c, const struct skinny *s,
                                   uint32_t n_tiles) {
    uint32_t blocks =
        cuda_div_up(cuda_div_up(n_tiles, s->block_tiles), (uint32_t)c->features.n_sms);
    uint64_t n = c->features.shared / 2 / (s->stage * blocks);
    if (c->force.n_stages) return c->force.n_stages;
    return n < 4 ? 4 : n > CARGS_SKINNY_STAGES ? CARGS_SKINNY_STAGES : (uint32_t)n;
}

/* Alignment of the destination of a TMA copy. */
static uint64_t align_shared(uint64_t bytes) {
    return (bytes + 1023) / 1024 * 1024;
}

/* Do block_tiles and group_rows fit? Finds the most stages that do. */
static bool fit_skinny(const struct cuda_backend *c, const struct cargs_product *a,
                       uint32_t tile_consumers, uint32_t n_tiles, struct skinny *s) {
    const uint32_t whole = (a->pitch + CUDA_TILE_COLS - 1) / CUDA_TILE_COLS * CUDA_TILE_COLS * 2;
    s->consumers = s->block_tiles * tile_consumers;
    if (s->consumers > CARGS_SKINNY_CONSUMERS) return false;
    s->x_row = (s->slots || s->group_rows == 1) && (uint64_t)whole * s->group_rows <= WHOLE_INPUT
                   ? whole
                   : 0;
    s->by_lane = c->encode_tensor_map;
    s->n_turns = s->by_lane && !s->x_row && s->consumers <= TWO_TURNS ? 2 : 1;
    s->loaders = s->n_turns > 1 ? 2 * s->consumers
                                : min_u32(s->consumers, CARGS_SKINNY_PRODUCERS - !s->x_row);
    s->stage = align_shared(s->consumers * s->k.tile_bytes);
    if (!s->x_row) s->stage += a->n_splits * 8 * s->n_groups * 2 * s->k.cols;
    uint64_t sums = (uint64_t)s->consumers * s->n_groups * 512;
    for (s->n_stages = choose_ring_stages(c, s, n_tiles); s->n_stages >= 2; s->n_stages--) {
        s->shared = s->n_stages * s->stage + (uint64_t)s->x_row * s->group_rows;
        s->shared = align_shared(s->shared < sums ? sums : s->shared);
        if (s->shared + STATIC_SHARED <= c->features.shared) return true;
    }
    return false;
}

/* Chooses the most input rows, then the most tiles and stages that fit. false: nothing fits. */
static bool plan_skinny(const struct cuda_backend *c, const struct cargs_product *a, int format,
                        uint32_t n_rows, uint32_t n_tiles, struct skinny *s) {
    uint32_t tile_consumers = a->n_splits * (a->epilogue[0].act ? 2 : 1);
    if (tile_consumers > CARGS_SKINNY_CONSUMERS) return false;
    for (uint32_t rows = n_rows < CUDA_SKINNY_ROWS ? n_rows : CUDA_SKINNY_ROWS; rows; rows /= 2) {
        uint32_t n_groups = rows > 16 ? 4 : rows > 8 ? 2 : 1;
        if (a->tiles && rows < n_rows && rows < CUDA_MOE_TILE) return false;
        uint32_t all_tiles = a->tiles ? n_tiles : n_tiles * cuda_div_up(n_rows, rows);
        *s = (struct skinny){.k = skinny_kernel(format, n_groups),
                             .n_groups = n_groups,
                             .group_rows = rows,
                             .block_tiles = choose_block_tiles(c, all_tiles, tile_consumers, rows)};
        if (s->block_tiles > a->last_tile[CARGS_PRODUCT_WEIGHTS - 1])
            s->block_tiles = a->last_tile[CARGS_PRODUCT_WEIGHTS - 1];
        if (c->force.block_tiles) s->block_tiles = c->force.block_tiles;
        for (; s->block_tiles; s->block_tiles--)
            if (fit_skinny(c, a, tile_consumers, all_tiles, s)) {
                if (s->x_row) s->k = skinny_kernel(format, 0);
                return true;
            }
    }
    return false;
}

/* An experts' sum: a block has all slots of a tile. */
static bool plan_slots(const struct cuda_backend *c, const struct cargs_product *a, int format,
                       uint32_t n_slots, uint32_t n_tiles, struct skinny *s) {
    *s = (struct skinny){.k = skinny_kernel(format, 0),
                         .n_groups = 1,
                         .group_rows = n_slots,
                         .block_tiles = 1,
                         .slots = true};
    return a->n_splits == 1 && fit_skinny(c, a, n_slots, n_tiles, s) && s->x_row;
}

bool cuda_sums_slots(const struct cuda_backend *c, const struct cuda_weight *w, uint32_t n) {
    const uint32_t n_in = (uint32_t)w->base.n_in;
    const struct cargs_product a = {.n_in = n_in,
                                    .pitch = pitch_of(w),
                                    .split_cols = cuda_split_cols(n_in),
                                    .n_splits = cuda_n_splits(n_in)};
    struct skinny s;
    return w->format != CUDA_FORMAT_F32 &&
           plan_slots(c, &a, w->format, n, cuda_div_up(w->base.n_out, CUDA_TILE_ROWS), &s);
}

/* F16: describes the weights to the TMA. */
static int map_weights(struct cuda_backend *c, const struct batch *b, struct cargs_product *a) {
    enum { BOX_GROUPS = 2 }; /* what tensor_copy copies */
    for (uint32_t i = 0; i < CARGS_PRODUCT_MATRICES; i++) {
        const struct cuda_weight *w = i < b->n                        ? b->p[i].w
                                      : i == 1                        ? b->p->pair
                                      : i == CARGS_PRODUCT_JOINED     ? b->p->joined
                                      : i == CARGS_PRODUCT_JOINED + 1 ? b->p->joined_pair
                                                                      : NULL;
        if (!w) continue;
        uint64_t n_experts = w->base.n_experts ? w->base.n_experts : 1;
        uint64_t rows = (w->base.n_out + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS * CUDA_TILE_ROWS;
        int rc = cuda_tensor_map(c, w->product, n_experts * rows, pitch_of(w), CUDA_TILE_ROWS,
                                 BOX_GROUPS, &a->map[i]);
        if (rc) return rc;
    }
    return 0;
}

/* Does the input stay ready after these products? */
static bool keeps_input(const struct cuda_backend *c, const struct batch *b) {
    if (c->ready.n_launches != c->n_launches) return false;
    for (uint32_t i = 0; i < b->n; i++)
        if (b->p[i].y == c->ready.x || b->p[i].y == cuda_scratch(c, CUDA_SCRATCH_IN32))
            return false;
    return true;
}

/* Does the order of the sums take longer than the weights' bytes? Then the next kernel may start,
 * and load its weights, meanwhile. On sm_90 a multiprocessor gets about 16 bytes of memory a clock,
 * and an operation of 16 columns by 16 outputs takes about 48. */
static bool waits_for_sums(const struct cuda_backend *c, const struct batch *b) {
    enum { CLOCKS = 48, BYTES_PER_CLOCK = 16 };
    uint64_t bytes = 0, cols = cuda_split_cols((uint32_t)b->p->w->base.n_in);
    for (uint32_t i = 0; i < b->n; i++)
        bytes += b->p[i].w->product_bytes;
    if (b->p->pair) bytes *= 2;
    return bytes < (uint64_t)c->features.n_sms * BYTES_PER_CLOCK * (cols / 16 * CLOCKS);
}

/* The kernel sends its results to the other ranks, if they are announced. What overlaps the kernels
 * before it might do so before these have emptied the places. */
static void send_results(struct cuda_backend *c, const struct batch *b, struct cargs_product *a) {
    struct cargs_peer *out = cuda_announced(c, b->p);
    if (!out || !out->n_ranks || b->n > 1 || b->p->pair || b->p->tiles || b->overlaps_previous)
        return;
    for (uint32_t r = 0, n = 0; r < out->n_ranks; r++)
        if (r != out->rank) a->send[n++] = out->to[r];
    out->sent = 1;
}

static int launch_skinny(struct cuda_backend *c, const struct batch *b) {
    const struct cuda_product *p = b->p;
    struct cargs_product a;
    struct skinny s;
    uint32_t n_tiles = fill_product_args(c, b, CUDA_TILE_ROWS, &a);
    uint32_t all_tiles = n_tiles * (p->tiles ? p->n_tiles : 1);
    if (!(p->slots.n ? plan_slots(c, &a, p->w->format, p->slots.n, n_tiles, &s)
                     : plan_skinny(c, &a, p->w->format, p->n_rows, all_tiles, &s)))
        return ERR_UNSUPPORTED;
    if (p->w->format == CUDA_FORMAT_F16) {
        int rc = map_weights(c, b, &a);
        if (rc) return rc;
    }
    if (s.by_lane && !s.x_row && !p->tiles) {
        int rc = cuda_tensor_map(c, a.x, p->n_rows, a.pitch, 8 * s.n_groups, s.k.cols / CUDA_PITCH,
                                 &a.map[CARGS_PRODUCT_INPUT]);
        if (rc) return rc;
    }
    a.block_tiles = s.block_tiles;
    a.group_rows = s.group_rows;
    a.n_stages = (uint8_t)s.n_stages;
    a.by_lane = s.by_lane;
    a.launches_early = !p->tiles && (b->launches_early || waits_for_sums(c, b));
    a.overlaps_previous = b->overlaps_previous;
    a.n_consumers = (uint16_t)s.consumers;
    a.n_turns = (uint16_t)s.n_turns;
    a.stage_bytes = (uint32_t)s.stage;
    a.x_row = s.x_row;
    send_results(c, b, &a);
    struct cuda_launch l = {.kernel = s.k.kernel,
                            .name = "product_skinny",
                            .args = &a,
                            .args_bytes = sizeof a,
                            .grid = {cuda_div_up(n_tiles, s.block_tiles),
                                     p->slots.n ? 1
                                     : p->tiles ? p->n_tiles
                                                : cuda_div_up(p->n_rows, s.group_rows)},
                            .threads = (s.consumers + s.loaders + (s.x_row ? 0 : s.n_turns)) * 32,
                            .shared = (uint32_t)s.shared};
    count_bytes(b, &l);
    const bool keeps = keeps_input(c, b);
    const int rc = cuda_launch(c, &l);
    c->ready.n_launches = keeps && !rc ? c->n_launches : 0;
    c->ready.early = a.launches_early;
    return rc;
}

/* ---- the choice ---- */

/* Very few outputs: large tiles are too few to fill the device. */
static bool is_tiny(const struct cuda_product *p) {
    return !p->pair && p->w->base.n_out <= TINY_MOST_OUTPUTS;
}

/* Also few outputs of 16-bit weights beside others: cuBLASLt without split-K is no better. */
static bool is_small(const struct cuda_product *p, const struct batch *b) {
    if (is_tiny(p)) return true;
    return b->n > 1 && p->w->format == CUDA_FORMAT_F16 && !p->pair &&
           p->n_rows <= CUDA_BRANCH_ROWS && p->w->base.n_out < SMALL_MOST_OUTPUTS;
}

/* Multiplies the small products of a batch (keys and values beside queries) together. Returns a bit
 * for each; 0 if the skinny GEMM cannot take them. */
static uint32_t multiply_small(struct cuda_backend *c, const struct batch *b, int *rc) {
    struct cuda_product p[BACKEND_LINEAR_MAX];
    struct batch small = {.p = p};
    uint32_t done = 0;
    for (uint32_t i = 0; i < b->n; i++)
        if (is_small(&b->p[i], b)) p[small.n++] = b->p[i], done |= 1u << i;
    if (done) *rc = launch_skinny(c, &small);
    if (*rc != ERR_UNSUPPORTED) return done;
    *rc = 0;
    return 0;
}

static int multiply_large(struct cuda_backend *c, const struct cuda_product *p) {
    int rc = 0;
    return cuda_large_product(c, p, &rc) ? rc : cuda_tile_product(c, p);
}

/* ---- branches: products of one input side by side, because one alone does not fill the device */

/* Can p run beside others? Not if it needs scratch memory that they may use, too: that of the
 * partial sums of K splits (tile.c), or of a decoded matrix (large.c). */
static bool is_apart(const struct cuda_backend *c, const struct cuda_product *p) {
    return cuda_n_splits((uint32_t)p->w->base.n_in) == 1 &&
           (p->w->format == CUDA_FORMAT_F16 || !c->lt || cuda_tile_is_best(c, p));
}

/* The products of a batch that leave the stream, a bit for each: never the first one. Of products
 * that are all tiny the skinny GEMM makes one launch. */
static uint32_t find_branches(const struct cuda_backend *c, const struct batch *b) {
    uint32_t found = 0, n_tiny = 0;
    if (c->force.one_stream || b->p->n_rows > CUDA_BRANCH_ROWS) return 0;
    for (uint32_t i = 0; i < b->n; i++) {
        n_tiny += is_tiny(&b->p[i]);
        if (i && is_apart(c, &b->p[i])) found |= 1u << i;
    }
    return n_tiny == b->n ? 0 : found;
}

static int multiply_apart(struct cuda_backend *c, const struct cuda_product *p) {
    int rc = is_tiny(p) ? launch_skinny(c, &(struct batch){.n = 1, .p = p}) : ERR_UNSUPPORTED;
    return rc == ERR_UNSUPPORTED ? multiply_large(c, p) : rc;
}

static int multiply_branches(struct cuda_backend *c, const struct batch *b, uint32_t branches) {
    int rc = cuda_fork(c);
    for (uint32_t i = 0; i < b->n && !rc; i++)
        if (!(branches >> i & 1)) rc = multiply_apart(c, &b->p[i]);
    for (uint32_t i = 1; i < b->n && !rc; i++) {
        if (!(branches >> i & 1)) continue;
        rc = cuda_branch(c, i);
        if (!rc) rc = multiply_apart(c, &b->p[i]);
    }
    const int joined = cuda_join(c);
    return rc ? rc : joined;
}

/* Up to CUDA_SKINNY_ROWS the weights are read once; then what was the fastest counts. */
static bool is_skinny(const struct cuda_backend *c, const struct batch *b) {
    if (b->p->tiles || b->p->n_rows <= CUDA_SKINNY_ROWS) return true;
    for (uint32_t i = 0; i < b->n; i++)
        if (!cuda_skinny_is_best(c, &b->p[i])) return false;
    return true;
}

static int multiply_batch(struct cuda_backend *c, const struct batch *b) {
    const struct cuda_product *p = b->p;
    enum cuda_path path = c->force.path;
    uint32_t done = 0, branches;
    int rc = 0;
    if (p->w->format == CUDA_FORMAT_F32) return launch_f32(c, b);
    if (p->tiles || path == CUDA_PATH_SKINNY || (!path && is_skinny(c, b))) {
        rc = launch_skinny(c, b);
        if (p->tiles || rc != ERR_UNSUPPORTED) return rc;
        rc = 0, path = CUDA_PATH_TILE; /* more K splits than a block has warps */
    }
    if (!path && (branches = find_branches(c, b))) return multiply_branches(c, b, branches);
    if (!path) done = multiply_small(c, b, &rc);
    for (uint32_t i = 0; i < b->n && !rc; i++) {
        if (done >> i & 1) continue;
        if (path == CUDA_PATH_TILE)
            rc = cuda_tile_product(c, &b->p[i]);
        else if (i + 1 < b->n && !(done >> (i + 1) & 1) && cuda_large_two(c, &b->p[i]))
            i++;
        else
            rc = multiply_large(c, &b->p[i]);
    }
    return rc;
}

_Static_assert((int)BACKEND_LINEAR_MAX <= (int)CUDA_BRANCHES, "a branch for each product");

int cuda_product(struct cuda_backend *c, const struct cuda_product *p) {
    return multiply_batch(c, &(struct batch){.n = 1, .p = p});
}

int cuda_products(struct cuda_backend *c, const struct cuda_product *p, uint32_t n) {
    return multiply_batch(c, &(struct batch){.n = n, .p = p});
}

static struct cuda_product product_of(const struct op_linear *a, uint32_t i) {
    return (struct cuda_product){.w = cuda_weight_of(a->w[i]),
                                 .bias = cuda_vector(a->bias[i]),
                                 .y_scale = a->y_scale,
                                 .softcap = a->softcap,
                                 .n_rows = a->n_rows,
                                 .y = cuda_at(a->y[i]),
                                 .y_once = a->y_once && a->n_weights == 1};
}

/* Gate and up of different formats: a product each, then the activation. One result goes to y, the
 * other to CUDA_SCRATCH_IN32, the input of F32 weights; so F32 weights are multiplied first, to y.
 */
static int linear_mixed_pair(struct cuda_backend *c, const struct op_linear *a) {
    struct op_input in = a->in;
    uint32_t n_out = (uint32_t)a->w[0]->n_out, first = cuda_in_of(a->w[1]) == CUDA_IN_F32;
    float *y[2], *other = cuda_scratch(c, CUDA_SCRATCH_IN32);
    if (c->scratch_bytes[CUDA_SCRATCH_IN32] < (uint64_t)a->n_rows * n_out * sizeof(float))
        return ERR_UNSUPPORTED;
    y[first] = cuda_at(a->y[0]), y[!first] = other;
    for (uint32_t i = first, n = 0; n < 2; i = !i, n++, in.residual = NULL) {
        struct cuda_product p = product_of(a, i);
        p.y = y[i];
        int rc = cuda_input(c, &in, a->n_rows, (uint32_t)p.w->base.n_in, cuda_in_of(a->w[i]), NULL);
        if (!rc) rc = cuda_product(c, &p);
        if (rc) return rc;
    }
    const struct cuda_gated g = {
        .act = a->act, .bounds = a->bounds, .gate = y[0], .up = y[1], .y = cuda_at(a->y[0])};
    return cuda_activate(c, &g, a->n_rows, n_out);
}

static int linear_pair(struct cuda_backend *c, const struct op_linear *a) {
    if (cuda_weight_of(a->w[0])->format != cuda_weight_of(a->w[1])->format)
        return linear_mixed_pair(c, a);
    struct cuda_product p = product_of(a, 0);
    p.pair = cuda_weight_of(a->w[1]);
    p.pair_bias = cuda_vector(a->bias[1]);
    p.act = a->act;
    p.bounds = a->bounds;
    p.y_once = a->y_once;
    int rc = cuda_input(c, &a->in, a->n_rows, (uint32_t)p.w->base.n_in, cuda_in_of(a->w[0]), NULL);
    return rc ? rc : cuda_product(c, &p);
}

/* Is a batch of this format one skinny GEMM, which may overlap another one? */
static bool overlaps(const struct cuda_backend *c, const struct op_linear *a, int format) {
    return format != CUDA_FORMAT_F32 && a->n_rows <= CUDA_SKINNY_ROWS && !c->force.path;
}

/* Weights of one format share a launch. Launches of several formats run beside each other: few
 * rows' are bound by the order of their sums. */
int cuda_linear_rows(struct cuda_backend *c, const struct op_linear *a) {
    uint32_t kinds = 0;
    if (a->act != BACKEND_ACT_NONE) return linear_pair(c, a);
    for (uint32_t i = 0; i < a->n_weights; i++)
        kinds |= cuda_in_of(a->w[i]);
    const uint64_t n_launches = c->n_launches;
    int rc = cuda_input(c, &a->in, a->n_rows, (uint32_t)a->w[0]->n_in, kinds, NULL);
    bool early = c->n_launches == n_launches && c->ready.early;
    for (uint32_t i = 0, done = 0; i < a->n_weights && !rc; i++) {
        struct cuda_product p[BACKEND_LINEAR_MAX];
        struct batch b = {.p = p};
        if (done >> i & 1) continue;
        const int format = cuda_weight_of(a->w[i])->format;
        for (uint32_t k = i; k < a->n_weights; k++)
            if (cuda_weight_of(a->w[k])->format == format)
                p[b.n++] = product_of(a, k), done |= 1u << k;
            else if (!(done >> k & 1) && overlaps(c, a, cuda_weight_of(a->w[k])->format))
                b.launches_early = overlaps(c, a, format);
        b.overlaps_previous = early && overlaps(c, a, format);
        early = b.launches_early;
        rc = multiply_batch(c, &b);
    }
    return rc;
}

/* The input of a mixture's last product is its hidden layer: n_used rows for each row; that of
 * products by head n_heads rows for each of some rows. */
int cuda_linear_scratch(struct cuda_backend *c, const struct backend_config *config, err *e) {
    uint64_t rows = config->max_rows, values, hidden = 0, hidden_rows = 0, both = 0;
    if (config->max_cols > CUDA_MAX_COLS || config->moe.n_ff > CUDA_MAX_COLS ||
        config->heads.n_cols > CUDA_MAX_COLS)
        return err_set(e, ERR_UNSUPPORTED, "backend \"cuda\" multiplies at most %u columns",
                       (unsigned)CUDA_MAX_COLS);
    if (!mem_mul(rows, cuda_pitch(config->max_cols), &values) ||
        !mem_mul(rows, config->moe.n_used, &hidden_rows) ||
        !mem_mul(hidden_rows, cuda_pitch(config->moe.n_ff), &hidden))
        return err_no_memory(e);
    if (hidden > values) values = hidden;
    if (hidden_rows > rows) rows = hidden_rows;
    const uint64_t some = config->max_rows < CUDA_HEADS_ROWS ? config->max_rows : CUDA_HEADS_ROWS;
    if (!mem_mul(some, config->heads.n_heads, &hidden_rows) ||
        !mem_mul(hidden_rows, cuda_pitch(config->heads.n_cols), &hidden))
        return err_no_memory(e);
    if (hidden > values) values = hidden;
    if (hidden_rows > rows) rows = hidden_rows;
    if (!mem_mul(values, sizeof(float), &both)) return err_no_memory(e);
    int rc = cuda_scratch_new(c, CUDA_SCRATCH_IN16, both / 2, e);
    if (!rc) rc = cuda_scratch_new(c, CUDA_SCRATCH_IN_SCALE, rows * sizeof(float), e);
    if (!rc) rc = cuda_scratch_new(c, CUDA_SCRATCH_IN32, both, e);
    if (!rc) rc = cuda_large_scratch(c, config, e);
    return rc ? rc : cuda_tune_open(c, e);
}
