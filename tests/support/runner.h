/* runner.h - runs a model over paged K/V pools without the engine: takes pieces of sequences,
 * returns logits. Failures to set up end the test binary. Single thread. */
#ifndef INFERD_TESTS_RUNNER_H
#define INFERD_TESTS_RUNNER_H

#include "core/base/mem.h"
#include "core/model/model.h"
#include "tests/support/be.h"

enum {
    RUNNER_MAX_POOLS = 64, /* layers of all ranks */
    RUNNER_MAX_PIECES = 11,
    RUNNER_BLOCK_TOKENS = 16
};

struct runner {
    backend *be;
    model *m;
    struct model_hparams hp;
    uint32_t max_rows, table_stride;
    uint32_t n_top;          /* of the next steps */
    struct model_shape next; /* the predicted shape of the step after */
    uint32_t n_pools, n_states;
    struct backend_kv kv[RUNNER_MAX_POOLS];
    struct backend_state states[RUNNER_MAX_POOLS]; /* of recurrent layers */
    struct {
        int32_t source, live;
    } state_blocks[RUNNER_MAX_PIECES];
};

/* Tokens start .. start + n - 1 of a sequence, which owns its share of the pools, blocks in
 * reverse order: a table is never the identity. Of a model with recurrent layers start is 0 or
 * where the sequence's last piece ended. */
struct piece {
    const int32_t *tokens;
    uint32_t start, n;
    uint32_t sequence; /* < RUNNER_MAX_PIECES */
};

struct runner_config {
    const char *path, *isa; /* isa "" or NULL: the CPU's best, or the requested device */
    int n_threads, kv_type, activation_bits; /* 0: 16, for exactness */
    uint32_t max_rows, max_tokens;           /* of a step, of a sequence (model_limits.n_ctx) */
    uint32_t n_ranks;                        /* 0 is 1 */
};

static inline void runner_need(int rc, const err *e) {
    if (!rc) return;
    fprintf(stderr, "cannot set up: %s\n", e->msg);
    exit(1);
}

static inline void runner_open_states(struct runner *r) {
    const uint32_t n_ranks = backend_n_ranks(r->be), n = r->hp.recurrent.n_layers;
    struct backend_state shape = model_state_shape(&r->hp, n_ranks, RUNNER_BLOCK_TOKENS);
    err e = {0};
    shape.n_blocks = 2 * RUNNER_MAX_PIECES;
    be_need(n * n_ranks <= RUNNER_MAX_POOLS, "room for states");
    for (; r->n_states < n * n_ranks; r->n_states++) {
        struct backend_state *s = &r->states[r->n_states];
        backend *be = backend_peer(r->be, r->n_states / n);
        uint64_t bytes = backend_state_block_bytes(&shape);
        *s = shape;
        be_need(bytes > 0, "a supported state");
        runner_need(backend_buf_new(be, bytes * shape.n_blocks, &s->blocks, &e), &e);
    }
}

static inline void runner_open(struct runner *r, const struct runner_config *c) {
    err e = {0};
    memset(r, 0, sizeof *r);
    runner_need(model_read_hparams(c->path, &r->hp, &e), &e);
    struct backend_config config = {.n_threads = c->n_threads,
                                    .max_rows = c->max_rows,
                                    .n_ranks = c->n_ranks,
                                    .activation_bits =
                                        c->activation_bits ? c->activation_bits : 16};
    be_name_set(&config, c->isa && *c->isa ? c->isa : be_only);
    model_backend_limits(&r->hp, &config);
    runner_need(backend_open(&config, &r->be, &e), &e);
    r->max_rows = c->max_rows;
    r->table_stride = (c->max_tokens + RUNNER_BLOCK_TOKENS - 1) / RUNNER_BLOCK_TOKENS;
    struct model_limits limits = {.max_rows = c->max_rows,
                                  .max_logit_rows = c->max_rows,
                                  .max_seqs = RUNNER_MAX_PIECES,
                                  .table_stride = r->table_stride,
                                  .n_ctx = c->max_tokens};
    runner_need(model_open(c->path, r->be, &limits, &r->m, &e), &e);
    uint32_t n_blocks = r->table_stride * RUNNER_MAX_PIECES;
    int kv_type = be_kv_type(r->be, r->hp.head_dim, c->kv_type);
    be_need(kv_type >= 0, "a KV cache");
    uint64_t bytes;
    uint32_t n_ranks = backend_n_ranks(r->be);
    r->n_pools = n_ranks * r->hp.n_kv_layers;
    runner_need(r->n_pools <= RUNNER_MAX_POOLS ? 0 : ERR_INVALID, &e);
    for (uint32_t i = 0; i < r->n_pools; i++) {
        backend *be = backend_peer(r->be, i / r->hp.n_kv_layers);
        uint8_t flags = r->hp.layers[0];
        for (uint32_t k = 0, at = 0; k < r->hp.n_layers; k++)
            if (model_layer_stores_kv(r->hp.layers[k]) && at++ == i % r->hp.n_kv_layers)
                flags = r->hp.layers[k];
        r->kv[i] = (struct backend_kv){.kv_type = kv_type,
                                       .n_blocks = n_blocks,
                                       .n_kv_heads = model_n_kv_heads(&r->hp, flags) / n_ranks,
                                       .block_tokens = RUNNER_BLOCK_TOKENS,
                                       .head_dim = model_head_dim(&r->hp, flags),
                                       .v_dim = r->hp.mla.kv_rank};
        runner_need(backend_kv_block_bytes(&r->kv[i], &bytes) ? 0 : ERR_INVALID, &e);
        bytes *= n_blocks;
        runner_need(backend_buf_new(be, bytes, &r->kv[i].k, &e), &e);
        if (!r->hp.mla.kv_rank) runner_need(backend_buf_new(be, bytes, &r->kv[i].v, &e), &e);
    }
    runner_open_states(r);
}

static inline void runner_close(struct runner *r) {
    for (uint32_t i = 0; i < r->n_pools; i++) {
        backend_buf_free(r->kv[i].k);
        backend_buf_free(r->kv[i].v);
    }
    for (uint32_t i = 0; i < r->n_states; i++)
        backend_buf_free(r->states[i].blocks);
    model_close(r->m);
    backend_close(r->be);
}

/* table: source and live block of p. A sequence has two blocks; at a boundary it goes on in the
 * other one, so that the first keeps the boundary's state. */
static inline void runner_take_state(struct runner *r, const struct piece *p, int32_t table[2]) {
    int32_t first = 2 * (int32_t)p->sequence, *source = &r->state_blocks[p->sequence].source,
            *live = &r->state_blocks[p->sequence].live;
    if (p->start == 0) *source = *live = first;
    if (p->start && p->start % RUNNER_BLOCK_TOKENS == 0) *live = 2 * first + 1 - *source;
    table[0] = *source;
    table[1] = *live;
    if ((p->start + p->n) / RUNNER_BLOCK_TOKENS > p->start / RUNNER_BLOCK_TOKENS) *source = *live;
}

/* One step. logits (rows, n_vocab): every row of every piece, or each piece's last row; then hidden
 * (rows, n_embd): the same rows of the last n_hidden pieces, which have no logits. */
static inline struct model_output runner_run(struct runner *r, const struct piece *pieces,
                                             uint32_t n_pieces, bool every_row, uint32_t n_hidden) {
    int32_t *ints = calloc((size_t)r->max_rows * 5 + r->table_stride * RUNNER_MAX_PIECES, 4);
    int32_t *ids = ints, *pos = ids + r->max_rows, *slots = pos + r->max_rows;
    int32_t *wanted = slots + r->max_rows, *types = wanted + r->max_rows,
            *tables = types + r->max_rows;
    int32_t row_start[RUNNER_MAX_PIECES + 1] = {0}, state_tables[RUNNER_MAX_PIECES][2];
    uint32_t n = 0, n_wanted = 0, n_logits = 0, context = 0;
    struct model_output out;
    err e = {0};
    for (uint32_t i = 0; i < n_pieces; i++)
        if (pieces[i].start + pieces[i].n > context) context = pieces[i].start + pieces[i].n;
    uint32_t stride = model_table_stride(&(struct model_limits){.table_stride = r->table_stride},
                                         context, RUNNER_BLOCK_TOKENS);
    for (uint32_t i = 0; i < n_pieces; i++) {
        const struct piece *p = &pieces[i];
        int32_t *table = tables + i * stride;
        uint32_t end = (p->sequence + 1) * r->table_stride;
        for (uint32_t b = 0; b < stride; b++)
            table[b] = (int32_t)(end - 1 - b);
        for (uint32_t k = p->start; k < p->start + p->n; k++, n++) {
            ids[n] = p->tokens[k];
            pos[n] = (int32_t)k;
            slots[n] = table[k / RUNNER_BLOCK_TOKENS] * RUNNER_BLOCK_TOKENS +
                       (int32_t)(k % RUNNER_BLOCK_TOKENS);
            if (every_row || k + 1 == p->start + p->n) wanted[n_wanted++] = (int32_t)n;
        }
        row_start[i + 1] = (int32_t)n;
        runner_take_state(r, p, state_tables[i]);
        if (i < n_pieces - n_hidden) n_logits = n_wanted;
    }
    struct model_batch batch = {.shape = {.n_rows = n,
                                          .n_seqs = n_pieces,
                                          .n_logit_rows = n_logits,
                                          .n_hidden_rows = n_wanted - n_logits,
                                          .n_top = r->n_top,
                                          .max_context = context},
                                .next = r->next,
                                .token_ids = ids,
                                .positions = pos,
                                .types = types,
                                .slots = slots,
                                .row_start = row_start,
                                .tables = tables,
                                .out_rows = wanted,
                                .kv = r->kv,
                                .states = r->states,
                                .state_tables = state_tables[0]};
    mem_guard_enter();
    int rc = model_forward(r->m, &batch, &out, &e);
    mem_guard_leave();
    runner_need(rc, &e);
    free(ints);
    return out;
}

static inline const float *runner_step(struct runner *r, const struct piece *pieces,
                                       uint32_t n_pieces, bool every_row) {
    return runner_run(r, pieces, n_pieces, every_row, 0).logits;
}

#endif
