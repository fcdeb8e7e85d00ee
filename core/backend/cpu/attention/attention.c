/* attention.c - launches paged attention: plans tiles of queries and tasks, and merges the partials
 * of split tiles. A tile is a few rows of one sequence times the query heads of one KV head, so
 * that a block's K and V are read once for all of them. The kernels walk the block table.
 *
 * One thread walks all chunks of a tile. If a tile is so large that threads would wait for it (one
 * long sequence among few), it is split: each chunk is a task. Results are the same (attn.h). Owns
 * the tiles of the threads and the memory for partials, allocated when the device is opened; a tile
 * whose partials do not fit there is walked. */
#include "core/backend/cpu/attention/attn.h"
#include "core/backend/cpu/cpu_int.h"

#include "core/base/mem.h"

#include <stdlib.h>

/* A tile is split if it costs more than a thread's fair share of the step / SPLIT_SHARE.
 * FIXED_QUERIES: the cost of reading and decoding a key, in queries. */
enum { SPLIT_SHARE = 8, FIXED_QUERIES = 8, N_BUCKETS = 64 };
#define PART_BYTES            (UINT64_C(4) << 20)
#define PART_BYTES_PER_THREAD (UINT64_C(1) << 20)

/* Rows of one sequence: one tile per KV head; several if a KV head has many query heads. */
struct row_group {
    uint32_t seq, row, n_rows;
    uint32_t first_key, end_key;      /* its rows see positions first_key .. end_key - 1 */
    uint32_t seq_end;                 /* as in cpu_attn_job */
    uint32_t n_chunks;                /* tasks per tile: 1 if it is walked */
    uint32_t first_task, first_merge; /* of all its tiles */
    bool split;
    uint64_t partials_at; /* split: offset in cpu_attn's partials, in floats */
};

struct cpu_attn {
    struct cpu_attn_tile *tiles; /* (n_threads) */
    struct row_group *groups;    /* (max_rows), as found */
    struct row_group *ordered;   /* (max_rows), most expensive first */
    float *partials;             /* (n_partial_floats) */
    uint64_t n_partial_floats;
};

struct attn_run {
    const struct op_paged_attention *a;
    struct cpu_attn *attn;
    const struct cpu_isa *isa;
    uint32_t n_group;                /* query heads per KV head */
    uint32_t heads_per_tile, n_subs; /* query heads per tile, tiles per KV head */
    uint32_t n_tiles;                /* per row group */
    uint32_t v_dim;
    uint32_t n_groups, n_tasks, n_merges, n_threads;
    uint64_t run_bytes; /* of one block and head */
};

int cpu_attn_new(uint32_t max_rows, int n_threads, struct cpu_attn **out) {
    struct cpu_attn *t = mem_new(1, sizeof *t);
    *out = t;
    if (!t) return ERR_NOMEM;
    uint64_t bytes = PART_BYTES + (uint64_t)n_threads * PART_BYTES_PER_THREAD;
    t->n_partial_floats = bytes / sizeof *t->partials;
    t->tiles = mem_new_aligned((uint64_t)n_threads * sizeof *t->tiles);
    t->partials = n_threads > 1 ? mem_new_aligned(bytes) : NULL;
    t->groups = mem_new(max_rows, sizeof *t->groups);
    t->ordered = mem_new(max_rows, sizeof *t->ordered);
    if (!t->tiles || (n_threads > 1 && !t->partials) || !t->groups || !t->ordered) return ERR_NOMEM;
    return 0;
}

void cpu_attn_free(struct cpu_attn *t) {
    if (!t) return;
    free(t->ordered);
    free(t->groups);
    free(t->partials);
    free(t->tiles);
    free(t);
}

/* Finds the positions that rows first .. end - 1 see, as g->seq_end says; false: a position is
 * invalid. */
static bool find_keys(const struct op_paged_attention *a, uint32_t first, uint32_t end,
                      struct row_group *g) {
    const int32_t *pos = a->pos->host;
    g->first_key = UINT32_MAX, g->end_key = 0;
    for (uint32_t r = first; r < end; r++) {
        if (pos[r] < 0 || pos[r] == INT32_MAX) return false;
        uint32_t from = cpu_attn_first_key((uint32_t)pos[r], a->window, a->chunked);
        uint32_t last = cpu_attn_last_key((uint32_t)pos[r], a->window, g->seq_end);
        if (last >= g->end_key) g->end_key = last + 1;
        if (from < g->first_key) g->first_key = from;
    }
    return true;
}

/* Are the blocks that g's rows see inside the table and the pools? */
static bool blocks_ok(const struct op_paged_attention *a, const struct row_group *g) {
    const int32_t *table = (const int32_t *)a->tables->host + (uint64_t)g->seq * a->table_stride;
    uint32_t n_blocks = (g->end_key - 1) / a->kv.block_tokens + 1;
    if (n_blocks > a->table_stride) return false;
    for (uint32_t b = g->first_key / a->kv.block_tokens; b < n_blocks; b++)
        if (table[b] < 0 || (uint32_t)table[b] >= a->kv.n_blocks) return false;
    return true;
}

/* Are the rows of sequence s inside the batch, and their blocks inside the table and the pools?
 * *seq_end: as in cpu_attn_job. */
static bool sequence_ok(const struct op_paged_attention *a, uint32_t s, uint32_t *seq_end) {
    const int32_t *start = a->row_start->host;
    struct row_group all = {.seq = s};
    *seq_end = 0;
    if (start[s] < 0 || start[s + 1] < start[s] || (uint32_t)start[s + 1] > a->n_rows) return false;
    if (start[s] == start[s + 1]) return true;
    if (!find_keys(a, (uint32_t)start[s], (uint32_t)start[s + 1], &all)) return false;
    if (a->both_ways) *seq_end = all.end_key;
    return blocks_ok(a, &all);
}

static uint64_t tile_cost(const struct attn_run *run, const struct row_group *g) {
    uint32_t n_keys = g->end_key - g->first_key;
    return (uint64_t)n_keys * (g->n_rows * run->heads_per_tile + FIXED_QUERIES);
}

/* Fills attn->groups; false: the batch is malformed. */
static bool make_groups(struct attn_run *run) {
    const struct op_paged_attention *a = run->a;
    const int32_t *start = a->row_start->host;
    uint32_t n = 0, rows_per_tile = CPU_TILE_QUERIES / run->heads_per_tile;
    if (!a->n_seqs || start[0] != 0 || (uint32_t)start[a->n_seqs] != a->n_rows) return false;
    for (uint32_t s = 0; s < a->n_seqs; s++) {
        uint32_t seq_end;
        if (!sequence_ok(a, s, &seq_end)) return false;
        uint32_t end = (uint32_t)start[s + 1];
        for (uint32_t r = (uint32_t)start[s]; r < end; r += rows_per_tile) {
            uint32_t n_rows = end - r < rows_per_tile ? end - r : rows_per_tile;
            struct row_group *g = &run->attn->groups[n++];
            *g = (struct row_group){.seq = s, .row = r, .n_rows = n_rows, .seq_end = seq_end};
            find_keys(a, r, r + n_rows, g);
        }
    }
    run->n_groups = n;
    return true;
}

/* Splits g if its tiles are too large to be walked and there is room for their partials. */
static void split_group(const struct attn_run *run, struct row_group *g, uint64_t most_cost,
                        uint64_t *n_used) {
    uint32_t n_chunks = (g->end_key - 1) / CPU_ATTN_CHUNK - g->first_key / CPU_ATTN_CHUNK + 1;
    g->n_chunks = 1;
    if (run->n_threads == 1 || n_chunks == 1 || tile_cost(run, g) <= most_cost) return;
    uint64_t partial = cpu_attn_partial_floats(g->n_rows * run->heads_per_tile, run->v_dim);
    uint64_t need, room = run->attn->n_partial_floats - *n_used;
    if (!mem_mul(partial * n_chunks, run->n_tiles, &need) || need > room) return;
    g->split = true;
    g->n_chunks = n_chunks;
    g->partials_at = *n_used;
    *n_used += need;
}

static uint32_t log2_floor(uint64_t x) {
    uint32_t n = 0;
    while (x >>= 1)
        n++;
    return n;
}

/* Decides which groups are split and sorts them by the cost of a task, in buckets of powers of two,
 * most expensive first, so that small tasks fill the end. false: too many tasks for a uint32_t. */
static bool plan_tiles(struct attn_run *run) {
    struct cpu_attn *t = run->attn;
    uint64_t total = 0, n_used = 0, n_tasks = 0, n_merges = 0;
    uint32_t at[N_BUCKETS + 1] = {0};
    for (uint32_t g = 0; g < run->n_groups; g++)
        total += tile_cost(run, &t->groups[g]) * run->n_tiles;
    for (uint32_t i = 0; i < run->n_groups; i++) {
        struct row_group *g = &t->groups[i];
        split_group(run, g, total / ((uint64_t)SPLIT_SHARE * run->n_threads), &n_used);
        at[N_BUCKETS - log2_floor(tile_cost(run, g) / g->n_chunks)]++;
    }
    for (uint32_t b = 1; b <= N_BUCKETS; b++)
        at[b] += at[b - 1];
    for (uint32_t i = 0; i < run->n_groups; i++) {
        struct row_group *g = &t->groups[i];
        t->ordered[at[N_BUCKETS - 1 - log2_floor(tile_cost(run, g) / g->n_chunks)]++] = *g;
    }
    for (uint32_t i = 0; i < run->n_groups; i++) {
        struct row_group *g = &t->ordered[i];
        g->first_task = (uint32_t)n_tasks;
        g->first_merge = (uint32_t)n_merges;
        n_tasks += (uint64_t)g->n_chunks * run->n_tiles;
        if (g->split) n_merges += (uint64_t)g->n_rows * run->a->n_heads;
        if (n_tasks > UINT32_MAX / 2 || n_merges > UINT32_MAX) return false;
    }
    run->n_tasks = (uint32_t)n_tasks;
    run->n_merges = (uint32_t)n_merges;
    return true;
}

/* The last group whose tasks (merges) begin at or before i. */
static const struct row_group *group_of(const struct attn_run *run, uint32_t i, bool merge) {
    const struct row_group *g = run->attn->ordered;
    uint32_t low = 0, high = run->n_groups;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if ((merge ? g[mid].first_merge : g[mid].first_task) <= i)
            low = mid;
        else
            high = mid;
    }
    return &g[low];
}

/* Query heads of tile `sub` of a KV head. */
static uint32_t heads_in(const struct attn_run *run, uint32_t sub) {
    uint32_t left = run->n_group - sub * run->heads_per_tile;
    return left < run->heads_per_tile ? left : run->heads_per_tile;
}

static float *partials_of(const struct attn_run *run, const struct row_group *g, uint32_t tile,
                          uint32_t chunk) {
    uint64_t partial = cpu_attn_partial_floats(g->n_rows * run->heads_per_tile, run->v_dim);
    uint64_t at = (uint64_t)tile * g->n_chunks + (chunk - g->first_key / CPU_ATTN_CHUNK);
    return run->attn->partials + g->partials_at + at * partial;
}

/* of: a value for each head, or NULL. */
static const float *of_head(const backend_weight *of, uint32_t head) {
    return of ? (const float *)cpu_weight_of(of)->data + head : NULL;
}

/* The pool gives each thread a contiguous share: this deals the sorted tasks round-robin. */
static void attn_task(const void *arg, uint32_t dealt, int thread) {
    const struct attn_run *run = arg;
    const struct op_paged_attention *a = run->a;
    const struct backend_kv *kv = &a->kv;
    uint32_t share = (run->n_tasks + run->n_threads - 1) / run->n_threads;
    uint32_t task = dealt % share * run->n_threads + dealt / share;
    if (task >= run->n_tasks) return;
    const struct row_group *g = group_of(run, task, false);
    uint32_t tile = (task - g->first_task) / g->n_chunks;
    uint32_t chunk = g->first_key / CPU_ATTN_CHUNK + (task - g->first_task) % g->n_chunks;
    uint32_t kv_head = tile / run->n_subs, sub = tile % run->n_subs;
    uint32_t head = kv_head * run->n_group + sub * run->heads_per_tile;
    uint64_t q_stride = (uint64_t)a->n_heads * kv->head_dim;
    uint64_t out_stride = (uint64_t)a->n_heads * run->v_dim;
    run->isa->attention(&(struct cpu_attn_job){
        .q = (const float *)a->q->host + g->row * q_stride + (uint64_t)head * kv->head_dim,
        .out = (float *)a->out->host + g->row * out_stride + (uint64_t)head * run->v_dim,
        .q_stride = q_stride,
        .out_stride = out_stride,
        .pos = (const int32_t *)a->pos->host + g->row,
        .table = (const int32_t *)a->tables->host + (uint64_t)g->seq * a->table_stride,
        .first_key = g->first_key,
        .end_key = g->end_key,
        .window = a->window,
        .chunked = a->chunked,
        .seq_end = g->seq_end,
        .n_rows = g->n_rows,
        .n_group = heads_in(run, sub),
        .head_dim = kv->head_dim,
        .v_dim = run->v_dim,
        .block_tokens = kv->block_tokens,
        .k = (const uint8_t *)kv->k->host + kv_head * run->run_bytes,
        .v = kv->v ? (const uint8_t *)kv->v->host + kv_head * run->run_bytes : NULL,
        .block_bytes = kv->n_kv_heads * run->run_bytes,
        .kv_type = kv->kv_type,
        .scale = a->scale,
        .softcap = a->softcap,
        .sinks = of_head(a->sinks, head),
        .slopes = of_head(a->slopes, head),
        .tile = &run->attn->tiles[thread],
        .partial = g->split ? partials_of(run, g, tile, chunk) : NULL,
        .chunk = chunk});
}

static void merge_task(const void *arg, uint32_t task, int thread) {
    const struct attn_run *run = arg;
    const struct op_paged_attention *a = run->a;
    const struct row_group *g = group_of(run, task, true);
    uint32_t row = (task - g->first_merge) / a->n_heads,
             head = (task - g->first_merge) % a->n_heads;
    uint32_t kv_head = head / run->n_group, in_group = head % run->n_group;
    uint32_t sub = in_group / run->heads_per_tile, heads = heads_in(run, sub);
    uint32_t pos = (uint32_t)((const int32_t *)a->pos->host)[g->row + row];
    uint32_t first_chunk = cpu_attn_first_key(pos, a->window, a->chunked) / CPU_ATTN_CHUNK;
    uint64_t at = ((uint64_t)(g->row + row) * a->n_heads + head) * run->v_dim;
    (void)thread;
    run->isa->attention_merge(&(struct cpu_attn_merge){
        .partials = partials_of(run, g, kv_head * run->n_subs + sub, first_chunk),
        .stride = cpu_attn_partial_floats(g->n_rows * run->heads_per_tile, run->v_dim),
        .n_chunks =
            cpu_attn_last_key(pos, a->window, g->seq_end) / CPU_ATTN_CHUNK - first_chunk + 1,
        .n_queries = g->n_rows * heads,
        .query = row * heads + in_group % run->heads_per_tile,
        .v_dim = run->v_dim,
        .sink = of_head(a->sinks, head),
        .out = (float *)a->out->host + at});
}

/* Plans tiles of up to n query heads; false: the batch is malformed. */
static bool plan_heads(struct attn_run *run, uint32_t n) {
    run->heads_per_tile = n;
    run->n_subs = (run->n_group + n - 1) / n;
    run->n_tiles = run->a->kv.n_kv_heads * run->n_subs;
    return make_groups(run) && plan_tiles(run);
}

/* A tile takes all heads of a KV head that it can, because each tile decodes K and V. If threads
 * would have no task then (decoding with one KV head), tiles of fewer heads share the work. */
static bool plan(struct attn_run *run) {
    uint32_t n = run->n_group < CPU_TILE_QUERIES ? run->n_group : CPU_TILE_QUERIES;
    bool ok = plan_heads(run, n);
    while (ok && run->n_tasks < run->n_threads && n > CPU_ATTN_GROUP) {
        n = (n / 2 + CPU_ATTN_GROUP - 1) / CPU_ATTN_GROUP * CPU_ATTN_GROUP;
        ok = plan_heads(run, n);
    }
    return ok;
}

int cpu_paged_attention(backend *be, const struct op_paged_attention *a) {
    struct cpu_backend *c = cpu_of(be);
    const struct backend_kv *kv = &a->kv;
    uint64_t block_bytes;
    if (kv->head_dim > CPU_MAX_HEAD_DIM || kv->block_tokens > CPU_MAX_BLOCK_TOKENS ||
        CPU_ATTN_SPAN % kv->block_tokens || !backend_kv_block_bytes(kv, &block_bytes))
        return ERR_INVALID;
    bool fits = kv->block_tokens % c->isa->block_step == 0;
    struct attn_run run = {.a = a,
                           .attn = c->attn,
                           .isa = fits ? c->isa : &cpu_isa_generic,
                           .n_group = a->n_heads / kv->n_kv_heads,
                           .n_threads = (uint32_t)c->base.n_threads,
                           .v_dim = backend_kv_v_dim(kv),
                           .run_bytes = block_bytes / kv->n_kv_heads};
    if (!plan(&run)) return ERR_INVALID;
    uint32_t share = (run.n_tasks + run.n_threads - 1) / run.n_threads;
    pool_run(c->pool, share * run.n_threads, attn_task, &run);
    pool_run(c->pool, run.n_merges, merge_task, &run);
    cpu_count(c, run.isa, CPU_PAGED_ATTENTION_F32 + cpu_kv_index(kv->kv_type));
    return 0;
}
