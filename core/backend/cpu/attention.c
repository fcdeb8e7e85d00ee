/* attention.c - launches paged attention: one task per group of rows of one sequence and KV head,
 * so that a block's K and V are read once for all query heads and rows of the group. The kernel
 * walks the block table itself. */
#include "core/backend/cpu/cpu_int.h"

struct attn_run {
    const struct op_paged_attention *a;
    struct cpu_backend *c;
    const struct cpu_isa *isa;
    uint32_t n_group; /* query heads per KV head */
    uint32_t heads_per_tile;
};

/* Are the rows of sequence s inside the batch, and their blocks inside table and pools? */
static bool sequence_ok(const struct op_paged_attention *a, uint32_t s) {
    const int32_t *start = a->row_start->host, *pos = a->pos->host;
    const int32_t *table = (const int32_t *)a->tables->host + (uint64_t)s * a->table_stride;
    int32_t last = -1;
    if (start[s] < 0 || start[s + 1] < start[s] || (uint32_t)start[s + 1] > a->n_rows) return false;
    for (int32_t r = start[s]; r < start[s + 1]; r++) {
        if (pos[r] < 0) return false;
        if (pos[r] > last) last = pos[r];
    }
    if (last < 0) return true;
    uint32_t n_blocks = (uint32_t)last / a->kv.block_tokens + 1;
    if (n_blocks > a->table_stride) return false;
    for (uint32_t b = 0; b < n_blocks; b++)
        if (table[b] < 0 || (uint32_t)table[b] >= a->kv.n_blocks) return false;
    return true;
}

/* Fills c->groups; false when the batch is malformed. */
static bool make_groups(struct cpu_backend *c, const struct op_paged_attention *a,
                        uint32_t rows_per_tile, uint32_t *n_groups) {
    const int32_t *start = a->row_start->host;
    uint32_t n = 0;
    if (a->n_seqs && (start[0] != 0 || (uint32_t)start[a->n_seqs] != a->n_rows)) return false;
    for (uint32_t s = 0; s < a->n_seqs; s++) {
        if (!sequence_ok(a, s)) return false;
        uint32_t end = (uint32_t)start[s + 1];
        for (uint32_t r = (uint32_t)start[s]; r < end; r += rows_per_tile) {
            uint32_t n_rows = end - r < rows_per_tile ? end - r : rows_per_tile;
            c->groups[n++] = (struct cpu_attn_group){s, r, n_rows};
        }
    }
    *n_groups = n;
    return a->n_seqs > 0;
}

static void attn_task(const void *arg, uint32_t task, int thread) {
    const struct attn_run *run = arg;
    const struct op_paged_attention *a = run->a;
    const struct backend_kv *kv = &a->kv;
    const struct cpu_attn_group *g = &run->c->groups[task / kv->n_kv_heads];
    uint32_t kv_head = task % kv->n_kv_heads;
    uint64_t elem = kv->kv_type == QTYPE_F16 ? sizeof(uint16_t) : sizeof(float);
    uint64_t head_at = (uint64_t)kv_head * kv->block_tokens * kv->head_dim * elem;
    uint64_t q_stride = (uint64_t)a->n_heads * kv->head_dim;
    struct cpu_attn_job j = {
        .q_stride = q_stride,
        .pos = (const int32_t *)a->pos->host + g->row,
        .table = (const int32_t *)a->tables->host + (uint64_t)g->seq * a->table_stride,
        .n_rows = g->n_rows,
        .head_dim = kv->head_dim,
        .block_tokens = kv->block_tokens,
        .k = (const char *)kv->k->host + head_at,
        .v = (const char *)kv->v->host + head_at,
        .block_stride = (uint64_t)kv->n_kv_heads * kv->block_tokens * kv->head_dim,
        .kv_type = kv->kv_type,
        .scale = a->scale,
        .tile = &run->c->tiles[thread]};
    for (uint32_t h = 0; h < run->n_group; h += run->heads_per_tile) {
        uint64_t at = g->row * q_stride + (uint64_t)(kv_head * run->n_group + h) * kv->head_dim;
        j.n_group = run->n_group - h < run->heads_per_tile ? run->n_group - h : run->heads_per_tile;
        j.q = (const float *)a->q->host + at;
        j.out = (float *)a->out->host + at;
        run->isa->attention(&j);
    }
}

int cpu_paged_attention(backend *be, const struct op_paged_attention *a) {
    struct cpu_backend *c = cpu_of(be);
    const struct backend_kv *kv = &a->kv;
    uint32_t n_group = a->n_heads / kv->n_kv_heads, n_groups, step = c->isa->step;
    if (kv->head_dim > CPU_MAX_HEAD_DIM || kv->block_tokens > CPU_MAX_BLOCK_TOKENS)
        return ERR_INVALID;
    bool fits = kv->head_dim % step == 0 && kv->block_tokens % step == 0;
    struct attn_run run = {.a = a,
                           .c = c,
                           .isa = fits ? c->isa : &cpu_isa_generic,
                           .n_group = n_group,
                           .heads_per_tile =
                               n_group < CPU_MAX_TILE_QUERIES ? n_group : CPU_MAX_TILE_QUERIES};
    if (!make_groups(c, a, CPU_MAX_TILE_QUERIES / run.heads_per_tile, &n_groups))
        return ERR_INVALID;
    if ((uint64_t)n_groups * kv->n_kv_heads >= UINT32_MAX) return ERR_INVALID;
    pool_run(c->pool, n_groups * kv->n_kv_heads, attn_task, &run);
    cpu_count(c, run.isa,
              kv->kv_type == QTYPE_F16 ? CPU_PAGED_ATTENTION_F16 : CPU_PAGED_ATTENTION_F32);
    return 0;
}
