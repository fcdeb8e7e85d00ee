/* attention.c - launches of paged attention. Owns only the scratch of partial results. Kernels:
 * shaders/cuda/attention*.cu.
 *
 * Sequences with few queries: attention_decode divides them into tasks and a task's positions into
 * KV splits (flash decoding): spans of 1,024 tokens, or chunks of 64 if there are too few spans to
 * fill the device. One launch takes as many tasks as their partial results fit into the scratch; a
 * row's result does not depend on it. All other sequences: attention_prefill, or attention_decode
 * again if a tile of wide heads does not fit the shared memory. Only the device knows how many
 * there are of each, unless every sequence has one row. */
#include "core/backend/cuda/ops_int.h"

#include "shaders/cuda/kernels.h"

#define PARTIAL_BYTES (UINT64_C(64) << 20)

enum {
    MAX_DIM = 256,  /* head dimension on the tensor cores; */
    WIDE_DIM = 512, /* or this */
    QUARTER = 16,   /* tokens: attention.cuh */
    MAX_GRID_Y = 65535,
    MAX_TASKS = 1 << 22, /* and queries of a KV head: attention_decode_task.cuh */
    DECODE_BLOCKS = 3    /* most blocks of attention_decode per multiprocessor */
};

static const float log2_e = 1.44269504088896340736f;

int cuda_attention_scratch(struct cuda_backend *c, const struct backend_config *config, err *e) {
    (void)config;
    /* Partial results, then counts of finished blocks, which the kernels leave at 0. */
    return cuda_scratch_new(c, CUDA_SCRATCH_PARTIALS, PARTIAL_BYTES + MAX_GRID_Y * sizeof(uint32_t),
                            e);
}

static struct cargs_attention attention_args(struct cuda_backend *c,
                                             const struct op_paged_attention *a) {
    uint64_t block_bytes;
    backend_kv_block_bytes(&a->kv, &block_bytes);
    return (struct cargs_attention){
        .q = cuda_at(a->q),
        .sinks = cuda_vector(a->sinks),
        .slopes = cuda_vector(a->slopes),
        .pos = cuda_at(a->pos),
        .row_start = cuda_at(a->row_start),
        .tables = cuda_at(a->tables),
        .k = cuda_at(a->kv.k),
        .v = cuda_at(a->kv.v),
        .out = cuda_at(a->out),
        .partials = cuda_scratch(c, CUDA_SCRATCH_PARTIALS),
        .op = {.n_seqs = a->n_seqs,
               .n_heads = a->n_heads,
               .n_kv_heads = a->kv.n_kv_heads,
               .table_stride = a->table_stride,
               .window = a->window,
               .n_slices = 1,
               .q_scale = a->softcap != 0 ? a->scale / a->softcap : a->scale * log2_e,
               .cap = a->softcap * log2_e,
               .both_ways = a->both_ways,
               .chunked = a->chunked},
        .n_rows = a->n_rows,
        .head_dim = a->kv.head_dim,
        .block_tokens = a->kv.block_tokens,
        .run_bytes = (uint32_t)(block_bytes / a->kv.n_kv_heads),
        .kv_type = (uint32_t)a->kv.kv_type,
        .v_dim = backend_kv_v_dim(&a->kv),
        .v_of_k = a->kv.v_dim != 0,
        .inverse_group = (float)a->kv.n_kv_heads / (float)a->n_heads,
        .inverse_kv_heads = 1.0f / (float)a->kv.n_kv_heads,
    };
}

/* As attention_plain.cu lays it out. */
static uint32_t plain_shared(const struct backend_kv *kv) {
    const uint32_t per_warp = backend_kv_v_dim(kv) + 32 + 2;
    return (kv->head_dim + CUDA_ATTENTION_PLAIN_WARPS * per_warp) * (uint32_t)sizeof(float);
}

static int launch_plain(struct cuda_backend *c, const struct op_paged_attention *a) {
    struct cargs_attention args = attention_args(c, a);
    uint64_t row = (uint64_t)a->n_heads * a->kv.head_dim;
    for (uint32_t first = 0; first < a->n_rows; first += MAX_GRID_Y) {
        uint32_t n = a->n_rows - first < MAX_GRID_Y ? a->n_rows - first : MAX_GRID_Y;
        args.first_row = first;
        int rc = cuda_launch(c, &(struct cuda_launch){.kernel = cuda_attention_plain_kernel(),
                                                      .name = "attention_plain",
                                                      .args = &args,
                                                      .args_bytes = sizeof args,
                                                      .grid = {a->n_heads, n},
                                                      .threads = 32 * CUDA_ATTENTION_PLAIN_WARPS,
                                                      .shared = plain_shared(&a->kv),
                                                      .read = n * row * sizeof(float),
                                                      .written = n * row * sizeof(float)});
        if (rc) return rc;
    }
    return 0;
}

/* ---- the kernels' variants ---- */

/* Latent rows of the models in use: attention_latent takes them. */
static bool is_latent(const struct backend_kv *kv) {
    return (kv->kv_type == QTYPE_F16 || kv->kv_type == QTYPE_BF16) && kv->n_kv_heads == 1 &&
           kv->head_dim == CUDA_LATENT_DIM && kv->v_dim == CUDA_LATENT_V_DIM &&
           kv->block_tokens % QUARTER == 0;
}

static enum cuda_attention_type kernel_type(const struct backend_kv *kv) {
    return kv->kv_type == QTYPE_F16    ? CUDA_ATTENTION_F16
           : kv->kv_type == QTYPE_BF16 ? CUDA_ATTENTION_BF16
                                       : CUDA_ATTENTION_Q8;
}

static enum cuda_attention_dims kernel_dims(const struct backend_kv *kv) {
    return kv->head_dim == 64        ? CUDA_ATTENTION_64
           : kv->head_dim == 128     ? CUDA_ATTENTION_128
           : kv->head_dim == 256     ? CUDA_ATTENTION_256
           : kv->head_dim < 128      ? CUDA_ATTENTION_TO_128
           : kv->head_dim <= MAX_DIM ? CUDA_ATTENTION_TO_256
                                     : CUDA_ATTENTION_512;
}

static bool is_wide(const struct backend_kv *kv) {
    return kv->head_dim == WIDE_DIM;
}

static uint32_t decode_shared(const struct backend_kv *kv, bool makes_rows) {
    return cuda_attention_decode_shared(kernel_type(kv), kernel_dims(kv), makes_rows);
}

/* Can the tensor core kernels read this cache? Those of 512 dimensions want much shared memory. */
static bool is_tiled(const struct cuda_backend *c, const struct backend_kv *kv) {
    return kv->kv_type != QTYPE_F32 && !kv->v_dim && kv->head_dim % 16 == 0 &&
           (kv->head_dim <= MAX_DIM || is_wide(kv)) && kv->block_tokens % QUARTER == 0 &&
           (kv->block_tokens & (kv->block_tokens - 1)) == 0 &&
           decode_shared(kv, false) <= c->features.shared;
}

/* Can attention_decode also store K and V? */
static bool makes_rows(const struct cuda_backend *c, const struct backend_kv *kv) {
    return is_tiled(c, kv) && !is_wide(kv) && decode_shared(kv, true) <= c->features.shared;
}

/* ---- sequences with few queries ---- */

/* The kernel, and how it divides queries. */
struct decode_kernel {
    const void *kernel, *merge; /* merge NULL: kernel merges partial results */
    const char *name;
    uint32_t threads, shared, args_bytes;
    uint32_t merge_threads, merge_ranks; /* of a block; threads that share four dimensions */
    uint32_t slice;                      /* most queries of a block */
    uint32_t most;                       /* queries of a sequence of several rows */
    uint32_t blocks;                     /* of a multiprocessor at once */
};

struct decode {
    const struct op_paged_attention *a;
    struct decode_kernel k;
    struct cargs_decode all;
    uint32_t n_tasks;
};

/* Most KV splits of `tokens` positions that a task attends to. The rows of a task, `most` of them,
 * may lie apart. */
static uint32_t most_splits(const struct op_paged_attention *a, uint32_t most, uint32_t tokens) {
    uint64_t context =
        a->max_context ? a->max_context : (uint64_t)a->table_stride * a->kv.block_tokens;
    uint32_t all = cuda_div_up(context, tokens);
    uint64_t sides = a->both_ways ? 2 : 1;
    uint64_t seen = sides * (a->window - 1) + 1 + (a->n_rows > a->n_seqs ? most : 1) - 1;
    uint64_t windowed = a->window ? (seen + tokens - 2) / tokens + 1 : all;
    return windowed < all ? (uint32_t)windowed : all;
}

static uint64_t task_bytes(const struct decode *d) {
    return (uint64_t)d->all.attention.op.n_splits * d->all.attention.n_slots *
           (d->all.attention.v_dim + CUDA_ATTENTION_PARTIAL) * sizeof(float);
}

static int launch_decode(struct cuda_backend *c, const struct decode *d, uint32_t n) {
    const struct cargs_attention *a = &d->all.attention;
    const uint64_t slots = (uint64_t)n * a->n_slots * sizeof(float);
    const uint64_t partials = a->op.n_splits > 1 ? n * task_bytes(d) : 0;
    return cuda_launch(c, &(struct cuda_launch){
                              .kernel = d->k.kernel,
                              .name = d->k.name,
                              .args = &d->all,
                              .args_bytes = d->k.args_bytes,
                              .grid = {cuda_div_up(a->op.n_splits, a->block_splits), n},
                              .threads = d->k.threads,
                              .shared = d->k.shared,
                              .read = slots * a->head_dim + partials,
                              .written = slots * a->v_dim + partials,
                          });
}

/* Of a pass whose kernel does not merge the partial results of its n tasks. */
static int launch_merge(struct cuda_backend *c, const struct decode *d, uint32_t n) {
    const struct cargs_attention *a = &d->all.attention;
    const uint32_t quads = a->n_slots * (a->v_dim / 4);
    const uint32_t cols = d->k.merge_threads / (a->by_chunk ? d->k.merge_ranks : 1);
    return cuda_launch(c, &(struct cuda_launch){
                              .kernel = d->k.merge,
                              .name = "attention_merge",
                              .args = a,
                              .args_bytes = sizeof *a,
                              .grid = {cuda_div_up(quads, cols), n},
                              .threads = d->k.merge_threads,
                              .read = n * task_bytes(d),
                              .written = (uint64_t)n * quads * 4 * sizeof(float),
                          });
}

/* Splits by span if that makes more blocks than there are multiprocessors (of latent rows, whose
 * partial results are as large as half a chunk, half as many; of wide heads, a third); otherwise by
 * chunk, with as many chunks per block as let all blocks run at once. */
static void choose_splits(const struct cuda_backend *c, struct decode *d) {
    struct cargs_attention *args = &d->all.attention;
    const uint64_t n_sms = (uint64_t)c->features.n_sms;
    const uint64_t least = args->v_of_k ? n_sms : is_wide(&d->a->kv) ? 2 * n_sms / 3 : 3 * n_sms;
    uint32_t spans = most_splits(d->a, d->k.most, CUDA_ATTENTION_CHUNK * CUDA_ATTENTION_SPAN);
    args->by_chunk = 2 * (uint64_t)d->n_tasks * spans < least;
    args->op.n_splits = args->by_chunk ? most_splits(d->a, d->k.most, CUDA_ATTENTION_CHUNK) : spans;
    args->block_splits = 1, args->block_shift = 0;
    while (args->by_chunk && args->block_splits < CUDA_ATTENTION_SPAN &&
           (uint64_t)d->n_tasks * cuda_div_up(args->op.n_splits, args->block_splits) >
               d->k.blocks * n_sms)
        args->block_splits *= 2, args->block_shift++;
}

/* Divides the sequences' queries and positions, and attends. */
static int attend_divided(struct cuda_backend *c, struct decode *d) {
    const struct op_paged_attention *a = d->a;
    struct cargs_attention *args = &d->all.attention;
    const uint32_t group = a->n_heads / a->kv.n_kv_heads;
    uint32_t queries = group; /* most queries of a sequence */
    while ((uint32_t)QUARTER << args->quarter_shift < a->kv.block_tokens)
        args->quarter_shift++;
    if (a->n_rows > a->n_seqs && 2 * group <= d->k.most) queries = d->k.most / group * group;
    args->op.n_slices = cuda_div_up(queries, d->k.slice);
    args->n_slots = queries < d->k.slice ? queries : d->k.slice;
    d->n_tasks = a->n_seqs * a->kv.n_kv_heads * args->op.n_slices;
    if (args->tiles) {
        args->n_slots = d->k.slice;
        d->n_tasks = a->kv.n_kv_heads * (a->n_rows * group / d->k.slice + a->n_seqs);
    }
    if (d->n_tasks >= MAX_TASKS) return ERR_UNSUPPORTED;
    args->inverse_slices = 1.0f / (float)args->op.n_slices;
    choose_splits(c, d);
    uint64_t most = args->op.n_splits > 1 ? PARTIAL_BYTES / task_bytes(d) : d->n_tasks;
    if (!most) return ERR_UNSUPPORTED;
    if (most > MAX_GRID_Y) most = MAX_GRID_Y;
    args->done = (uint32_t *)(void *)((uint8_t *)args->partials + PARTIAL_BYTES);
    for (; args->op.first_task < d->n_tasks; args->op.first_task += (uint32_t)most) {
        uint32_t n = d->n_tasks - args->op.first_task;
        if (n > most) n = (uint32_t)most;
        int rc = launch_decode(c, d, n);
        if (!rc && d->k.merge && args->op.n_splits > 1) rc = launch_merge(c, d, n);
        if (rc) return rc;
    }
    return 0;
}

/* Blocks of a multiprocessor at once; a block's shared memory costs the device 1 KiB more. */
static uint32_t blocks_that_fit(const struct cuda_backend *c, uint32_t shared) {
    const uint32_t n = (c->features.shared + 1024) / (shared + 1024);
    return n < DECODE_BLOCKS ? n : DECODE_BLOCKS;
}

/* store: NULL, or the rope and store that the kernel does first. tiles: the sequences of many
 * queries instead of the others. */
static int attend_decode(struct cuda_backend *c, const struct op_paged_attention *a,
                         const struct cargs_rope_store *store, bool tiles) {
    const enum cuda_attention_type type = kernel_type(&a->kv);
    const enum cuda_attention_dims dims = kernel_dims(&a->kv);
    const uint32_t shared = decode_shared(&a->kv, store != NULL);
    struct decode d = {.a = a,
                       .k = {.kernel = cuda_attention_decode_kernel(type, dims),
                             .merge = is_wide(&a->kv) ? cuda_attention_decode_merge_kernel() : NULL,
                             .merge_threads = 32 * CUDA_ATTENTION_WARPS,
                             .merge_ranks = CUDA_ATTENTION_MERGE_RANKS,
                             .name = "attention_decode",
                             .threads = 32 * CUDA_ATTENTION_WARPS,
                             .shared = shared,
                             .args_bytes = sizeof d.all,
                             .slice = CUDA_ATTENTION_SLICE,
                             .most = CUDA_ATTENTION_QUERIES,
                             .blocks = blocks_that_fit(c, shared)},
                       .all.attention = attention_args(c, a)};
    if (store) d.all.store = *store;
    d.all.attention.tiles = tiles;
    return attend_divided(c, &d);
}

/* ---- latent rows ---- */

/* Groups of 8 queries of a block: as few blocks as possible, of equal size. */
static uint32_t latent_groups(uint32_t n_queries) {
    const uint32_t groups = cuda_div_up(n_queries, 8);
    return cuda_div_up(groups, cuda_div_up(groups, CUDA_LATENT_GROUPS));
}

/* Finds the most groups, of at most n_groups, that fit with a chunk in shared memory, and the most
 * quarters of chunks beside them. false: nothing does. */
static bool fit_latent(const struct cuda_backend *c, enum cuda_attention_type type,
                       uint32_t *n_groups, uint32_t *n_quarters) {
    for (; *n_groups; --*n_groups)
        for (*n_quarters = CUDA_LATENT_RING; *n_quarters >= CUDA_ATTENTION_CHUNK / QUARTER;
             --*n_quarters)
            if (cuda_attention_latent_shared(type, *n_groups, *n_quarters) <= c->features.shared)
                return true;
    return false;
}

static int launch_latent_tiles(struct cuda_backend *c, const struct decode *d, uint32_t n_groups) {
    const struct op_paged_attention *a = d->a;
    struct cargs_attention args = d->all.attention;
    const uint64_t queries = (uint64_t)a->n_rows * a->n_heads;
    args.tiles = 1;
    return cuda_launch(
        c, &(struct cuda_launch){.kernel = d->k.kernel,
                                 .name = "attention_latent_tiles",
                                 .args = &args,
                                 .args_bytes = sizeof args,
                                 .grid = {(uint32_t)(queries / (8 * n_groups)) + a->n_seqs},
                                 .threads = d->k.threads,
                                 .shared = d->k.shared,
                                 .read = queries * args.head_dim * sizeof(float),
                                 .written = queries * args.v_dim * sizeof(float)});
}

static int attend_latent(struct cuda_backend *c, const struct op_paged_attention *a) {
    const enum cuda_attention_type type = kernel_type(&a->kv);
    const bool several = a->n_rows > a->n_seqs,
               many = several && (uint64_t)a->n_rows * a->n_heads > CUDA_LATENT_QUERIES;
    uint32_t n_groups = several ? CUDA_LATENT_GROUPS : latent_groups(a->n_heads), n_quarters;
    if (!fit_latent(c, type, &n_groups, &n_quarters)) return launch_plain(c, a);
    struct decode d = {.a = a,
                       .k = {.kernel = cuda_attention_latent_kernel(type, n_groups),
                             .merge = cuda_attention_latent_merge_kernel(),
                             .merge_threads = CUDA_LATENT_MERGE_THREADS,
                             .merge_ranks = 1,
                             .name = "attention_latent",
                             .threads = 32 * CUDA_LATENT_WARPS,
                             .shared = cuda_attention_latent_shared(type, n_groups, n_quarters),
                             .args_bytes = sizeof d.all.attention,
                             .slice = 8 * n_groups,
                             .most = CUDA_LATENT_QUERIES,
                             .blocks = 1},
                       .all.attention = attention_args(c, a)};
    d.all.attention.n_stages = n_quarters;
    d.all.attention.slice = d.k.slice;
    const int rc = many ? launch_latent_tiles(c, &d, n_groups) : 0;
    /* A single sequence belongs to one of the two. */
    return rc || (a->n_seqs == 1 && many) ? rc : attend_divided(c, &d);
}

/* ---- sequences with many queries ---- */

/* As attention_prefill.cu lays it out: stages, with Q8_0 also a decoded one, and 1024 for
 * alignment.
 */
static uint32_t prefill_shared(const struct backend_kv *kv, uint32_t n_stages) {
    uint32_t dim = kv->head_dim, row = 2 * CUDA_ATTENTION_CHUNK;
    uint32_t stage = (dim * row + (dim + 63) / 64 * 64 * row + 1023) / 1024 * 1024;
    return 1024 + (kv->kv_type == QTYPE_Q8_0 ? stage + n_stages * dim * 17 * 8 : n_stages * stage);
}

static int attend_prefill(struct cuda_backend *c, const struct op_paged_attention *a) {
    struct cargs_attention args = attention_args(c, a);
    const enum cuda_attention_type type = kernel_type(&a->kv);
    const bool wide = is_wide(&a->kv);
    uint64_t queries = (uint64_t)a->n_rows * (a->n_heads / a->kv.n_kv_heads);
    uint64_t rows = (uint64_t)a->n_rows * a->n_heads * a->kv.head_dim * sizeof(float);
    const uint32_t tile = wide ? cuda_attention_wide_tile(type) : CUDA_ATTENTION_TILE;
    for (args.n_stages = 3; args.n_stages > 1; args.n_stages--)
        if (prefill_shared(&a->kv, args.n_stages) <= c->features.shared) break;
    if (wide && cuda_attention_wide_shared(type) > c->features.shared)
        return attend_decode(c, a, NULL, true);
    return cuda_launch(c, &(struct cuda_launch){
                              .kernel = cuda_attention_prefill_kernel(type, kernel_dims(&a->kv)),
                              .name = "attention_prefill",
                              .args = &args,
                              .args_bytes = sizeof args,
                              .grid = {a->kv.n_kv_heads, (uint32_t)(queries / tile) + a->n_seqs},
                              .threads = 2 * CUDA_ATTENTION_TILE,
                              .shared = wide ? cuda_attention_wide_shared(type)
                                             : prefill_shared(&a->kv, args.n_stages),
                              .read = rows,
                              .written = rows,
                          });
}

int cuda_paged_attention(backend *be, const struct op_paged_attention *a) {
    struct cuda_backend *c = cuda_of(be);
    const uint64_t queries = (uint64_t)a->n_rows * (a->n_heads / a->kv.n_kv_heads);
    if (!cuda_kv_fits(&a->kv)) return ERR_UNSUPPORTED;
    if (is_latent(&a->kv) && queries < MAX_TASKS) return attend_latent(c, a);
    if (!is_tiled(c, &a->kv) || queries >= MAX_TASKS) return launch_plain(c, a);
    /* A single sequence belongs to one of the two kernels. */
    bool many = queries > CUDA_ATTENTION_QUERIES;
    int rc = a->n_rows > a->n_seqs && many ? attend_prefill(c, a) : 0;
    return rc || (a->n_seqs == 1 && a->n_rows > 1 && many) ? rc : attend_decode(c, a, NULL, false);
}

int cuda_store_attend(backend *be, const struct op_store_attend *both) {
    const struct op_paged_attention *a = &both->attend;
    struct cargs_rope_store args;
    int rc = cuda_rope_args(&both->store, &args);
    if (rc) return rc;
    /* With one row per sequence no other row reads what a row stores. */
    if (makes_rows(cuda_of(be), &a->kv) && both->store.k && !both->store.v_normed &&
        a->n_rows == a->n_seqs && args.q_norm_kind != ARGS_NORM_ROW &&
        args.k_norm_kind != ARGS_NORM_ROW)
        return attend_decode(cuda_of(be), a, &args, false);
    return backend_store_attend_parts(be, both);
}
