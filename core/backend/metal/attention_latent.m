/* attention_latent.m - launches of attention over latent rows (multi-head latent attention). Uses
 * the scratch of attention.m.
 *
 * Tiles of queries are cut into chunks, the KV splits, only if there are too few tiles to occupy
 * the device: a row's bits do not depend on it. A pass of two dispatches computes as many tiles as
 * the scratch has room for their partial results. */
#include "core/backend/metal/metal_int.h"

enum {
    THREADS = MARGS_LATENT_QUERIES * 32,
    /* Tiles, of all KV heads, from which on they are not split: the largest chips have 80 cores, of
     * which each holds one or two threadgroups. */
    MANY_TILES = 256
};

struct latent_run {
    const struct op_paged_attention *a;
    struct args_attention args;
    uint32_t n_tiles; /* at most */
    bool split;
};

/* Rows of a tile are neighbours, so that a window's union is little longer than one of them. */
static uint32_t max_chunks(const struct op_paged_attention *a) {
    return metal_max_chunks(a, MARGS_LATENT_CHUNK, MARGS_LATENT_QUERIES);
}

static uint64_t tile_sums(const struct latent_run *r) {
    return (uint64_t)r->a->kv.n_kv_heads * r->args.n_splits * MARGS_LATENT_QUERIES;
}

static uint64_t tile_bytes(const struct latent_run *r) {
    return tile_sums(r) * (r->a->kv.v_dim + 2) * sizeof(float);
}

/* The sums lie at the end of the scratch. */
static struct metal_bind sums_of(struct metal_backend *m, const struct latent_run *r, uint32_t n) {
    struct metal_bind sums = metal_at(m->scratch[METAL_SCRATCH_PARTIALS]);
    if (r->split) sums.offset = METAL_PARTIAL_BYTES - n * tile_sums(r) * 2 * sizeof(float);
    return sums;
}

static int dispatch_tiles(struct metal_backend *m, const struct latent_run *r, uint32_t n) {
    const struct op_paged_attention *a = r->a;
    const uint64_t queries = (uint64_t)n * a->kv.n_kv_heads * MARGS_LATENT_QUERIES;
    const uint64_t tokens = (uint64_t)max_chunks(a) * MARGS_LATENT_CHUNK;
    uint64_t bytes = 0;
    qtype_bytes(a->kv.kv_type, 1, a->kv.head_dim, &bytes);
    return metal_dispatch(
        m, &(struct metal_launch){
               .kernel = "attention_latent",
               .n_consts = 8,
               .consts = {{MARGS_ATTENTION_KV_TYPE, (uint32_t)a->kv.kv_type},
                          {MARGS_ATTENTION_HEAD_DIM, a->kv.head_dim},
                          {MARGS_ATTENTION_BLOCK_TOKENS, a->kv.block_tokens},
                          {MARGS_ATTENTION_GROUP, a->n_heads / a->kv.n_kv_heads},
                          {MARGS_ATTENTION_SOFTCAP, a->softcap != 0},
                          {MARGS_ATTENTION_SINKS, a->sinks != NULL},
                          {MARGS_LATENT_V_DIM, a->kv.v_dim},
                          {MARGS_LATENT_SPLIT, r->split}},
               .args = &r->args,
               .args_bytes = sizeof r->args,
               .n_binds = 8,
               .binds = {metal_at(a->q), metal_at(a->pos), metal_at(a->row_start),
                         metal_at(a->tables), metal_at(a->kv.k), metal_sinks_of(a),
                         metal_at(r->split ? m->scratch[METAL_SCRATCH_PARTIALS] : a->out),
                         sums_of(m, r, n)},
               .tg_bytes =
                   (MARGS_LATENT_QUERIES * a->kv.head_dim + MARGS_LATENT_PHASE * MARGS_LATENT_ROW) *
                   (uint32_t)sizeof(float),
               .groups = {r->split ? r->args.n_splits : 1, n, a->kv.n_kv_heads},
               .threads = {THREADS, 1, 1},
               .read = queries * a->kv.head_dim * sizeof(float) * (r->split ? r->args.n_splits : 1),
               .written = r->split ? n * tile_bytes(r) : queries * a->kv.v_dim * sizeof(float),
               .products = queries * tokens * (a->kv.head_dim + a->kv.v_dim),
               .hidden_read = (uint64_t)n * a->kv.n_kv_heads * tokens * bytes,
           });
}

static int dispatch_reduce(struct metal_backend *m, const struct latent_run *r, uint32_t n) {
    const struct op_paged_attention *a = r->a;
    return metal_dispatch(m,
                          &(struct metal_launch){
                              .kernel = "attention_latent_reduce",
                              .n_consts = 3,
                              .consts = {{MARGS_ATTENTION_GROUP, a->n_heads / a->kv.n_kv_heads},
                                         {MARGS_ATTENTION_SINKS, a->sinks != NULL},
                                         {MARGS_LATENT_V_DIM, a->kv.v_dim}},
                              .args = &r->args,
                              .args_bytes = sizeof r->args,
                              .n_binds = 6,
                              .binds = {metal_at(m->scratch[METAL_SCRATCH_PARTIALS]),
                                        sums_of(m, r, n), metal_at(a->pos), metal_at(a->row_start),
                                        metal_sinks_of(a), metal_at(a->out)},
                              .groups = {MARGS_LATENT_QUERIES, n, a->kv.n_kv_heads},
                              .threads = {THREADS, 1, 1},
                              .read = n * tile_bytes(r),
                              .written = (uint64_t)n * a->kv.n_kv_heads * MARGS_LATENT_QUERIES *
                                         a->kv.v_dim * sizeof(float),
                          });
}

int metal_latent_attention(struct metal_backend *m, const struct op_paged_attention *a) {
    const uint64_t group = a->n_heads / a->kv.n_kv_heads;
    struct latent_run r = {.a = a, .args = metal_attention_args(a)};
    r.args.n_splits = max_chunks(a);
    r.n_tiles = a->n_seqs == a->n_rows
                    ? a->n_seqs * metal_div_up(group, MARGS_LATENT_QUERIES)
                    : (uint32_t)(a->n_rows * group / MARGS_LATENT_QUERIES) + a->n_seqs;
    const uint64_t most = METAL_PARTIAL_BYTES / tile_bytes(&r); /* tiles of a pass */
    r.split = r.args.n_splits > 1 && most && r.n_tiles * a->kv.n_kv_heads < MANY_TILES;
    while (r.args.first_task < r.n_tiles) {
        uint32_t n = r.n_tiles - r.args.first_task;
        if (r.split && n > most) n = (uint32_t)most;
        int rc = dispatch_tiles(m, &r, n);
        if (!rc && r.split) rc = dispatch_reduce(m, &r, n);
        if (rc) return rc;
        r.args.first_task += n;
    }
    return 0;
}
