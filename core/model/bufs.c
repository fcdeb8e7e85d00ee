/* bufs.c - the step's buffers on the device, allocated at open; a step allocates nothing. */
#include "core/model/model_int.h"

#include "core/base/mem.h"
#include "core/base/min_max.h"

#include <stdlib.h>
#include <string.h>

/* A buffer without elements is not made: this model does not use it. */
static int new_buf(backend *be, uint64_t a, uint64_t b, backend_buf **out, err *e) {
    uint64_t n;
    _Static_assert(sizeof(float) == sizeof(int32_t), "every step buffer has 4-byte elements");
    if (!a || !b) return 0;
    if (!mem_mul(a, b, &n) || !mem_mul(n, sizeof(float), &n))
        return err_set(e, ERR_NOMEM, "a step buffer of %llu by %llu is too large",
                       (unsigned long long)a, (unsigned long long)b);
    return backend_buf_new(be, n, out, e);
}

static int upload_inv_freq(model *m, int set, err *e) {
    const struct model_rope *rope = &m->hp.rope[set];
    uint32_t half = rope->n_rot / 2, n_ctx = m->limits.n_ctx;
    struct model_rope_divisors div;
    float *inv_freq = mem_new(half, sizeof *inv_freq);
    if (!inv_freq) return err_no_memory(e);
    int rc = model_rope_find_divisors(m->file, &m->hp.rope[0], &div, e);
    if (set && m->arch->local_rope) div = (struct model_rope_divisors){0};
    if (!rc) {
        model_rope_frequencies(rope, &div, n_ctx ? n_ctx : m->hp.context_length, inv_freq,
                               &m->magnitude[set]);
        rc = backend_upload(m->be, m->bufs.inv_freq[set], 0, inv_freq, half * sizeof *inv_freq, e);
    }
    free(inv_freq);
    return rc;
}

/* The pieces of heads of K that those of V are, row by row. */
static int upload_v_pieces(model *m, err *e) {
    const struct model_hparams *hp = &m->hp;
    if (!hp->v_dim) return 0;
    const uint32_t piece = model_v_piece(hp), n = hp->v_dim / piece, apart = hp->head_dim / piece;
    const uint64_t all = (uint64_t)m->limits.max_rows * hp->n_heads * n;
    int32_t *at = mem_new(all, sizeof *at);
    if (!at) return err_no_memory(e);
    for (uint64_t i = 0; i < all; i++)
        at[i] = (int32_t)(i / n * apart + i % n);
    const int rc = backend_upload(m->be, m->bufs.v_pieces, 0, at, all * sizeof *at, e);
    free(at);
    return rc;
}

/* Columns of a rank's part of what the ranks join; 0: they do not (see struct model_part). */
static uint32_t joined_cols(const model *m) {
    const struct model_recurrent *r = &m->hp.recurrent;
    if (!m->part.gathers) return 0;
    return max_u32(r->n_v_heads * r->v_dim, backend_share(m->hp.n_embd, m->part.n_ranks));
}

/* Scratch for the largest of the exchanges. */
static uint64_t exchange_bytes(const model *m) {
    if (m->part.n_ranks < 2) return 0;
    uint64_t sums =
        backend_exchange_bytes(m->be, m->limits.max_rows, max_u32(m->hp.n_embd, joined_cols(m)));
    uint64_t logits = backend_exchange_bytes(m->be, m->limits.max_logit_rows,
                                             backend_share(m->hp.n_vocab, m->part.n_ranks));
    return sums > logits ? sums : logits;
}

static int new_step_results(model *m, struct model_step *f, err *e) {
    uint64_t last = m->limits.max_logit_rows, tops = last * BACKEND_MAX_TOP;
    void *ids = NULL, *values = NULL, *sampled = NULL;
    int rc = backend_host_new(m->be, tops * sizeof *f->top_ids, &ids, e);
    if (!rc) rc = backend_host_new(m->be, tops * sizeof *f->top_values, &values, e);
    if (!rc) rc = backend_host_new(m->be, last * sizeof *f->sampled, &sampled, e);
    f->top_ids = ids;
    f->top_values = values;
    f->sampled = sampled;
    return rc;
}

/* Host memory for the results of steps. */
static int new_host_results(model *m, err *e) {
    uint64_t rows = m->limits.max_rows, last = m->limits.max_logit_rows;
    bool copies = !backend_buf_host(m->bufs.x);
    if (!m->part.ends) {
        if (copies) m->host_hidden = mem_new(rows * m->hp.n_embd, sizeof *m->host_hidden);
        return copies && !m->host_hidden ? err_no_memory(e) : 0;
    }
    uint32_t n_steps = model_overlaps(m) ? MODEL_MAX_STEPS : 1;
    for (uint32_t i = 0; i < n_steps; i++) {
        int rc = new_step_results(m, &m->in_flight[i], e);
        if (rc) return rc;
    }
    if (copies) m->host_logits = mem_new(last * m->hp.n_vocab, sizeof *m->host_logits);
    if (copies) m->host_hidden = mem_new(rows * m->hp.n_embd, sizeof *m->host_hidden);
    if (copies && (!m->host_logits || !m->host_hidden)) return err_no_memory(e);
    return 0;
}

/* A step buffer of a by b elements. */
struct planned {
    backend_buf **buf;
    uint64_t a, b;
};

/* Of K, in the layers that have most. */
static uint64_t kv_cols(const struct model_hparams *hp) {
    const uint64_t kv = (uint64_t)hp->n_kv_heads * hp->head_dim,
                   window_kv = (uint64_t)model_n_kv_heads(hp, MODEL_LAYER_WINDOWED) *
                               model_head_dim(hp, MODEL_LAYER_WINDOWED);
    return kv > window_kv ? kv : window_kv;
}

/* b: m's buffers, or a dummy when only the sizes matter. */
static void plan_bufs(const model *m, struct model_bufs *b, struct planned out[MODEL_N_BUFS]) {
    const struct model_hparams *hp = &m->hp;
    const struct model_limits *lim = &m->limits;
    const struct model_experts *experts = &hp->experts;
    uint64_t rows = lim->max_rows, last = lim->max_logit_rows;
    const struct model_recurrent *rec = &hp->recurrent;
    const struct model_gemma4 *g4 = &hp->gemma4;
    const uint32_t widest = max_u32(hp->head_dim, hp->window_head_dim);
    uint64_t heads = (uint64_t)hp->n_heads * widest, mixed = heads;
    uint64_t v_cols = rec->n_layers ? (uint64_t)rec->n_v_heads * rec->v_dim : 0;
    uint64_t channels = rec->n_layers ? 2 * (uint64_t)rec->n_k_heads * rec->k_dim + v_cols : 0;
    uint64_t v_heads = rec->n_layers ? rec->n_v_heads : 0;
    const struct backend_state widest_state = model_state_shape(hp, 1, BACKEND_STATE_MAX_CHUNK);
    uint64_t conv_in = rec->channels        ? 3 * (uint64_t)rec->channels
                       : rec->channel_decay ? v_cols
                                            : channels;
    const uint64_t low = rec->channel_decay ? rec->k_dim : 0;
    const struct model_mla *mla = &hp->mla;
    if (mla->kv_rank) mixed = (uint64_t)hp->n_heads * mla->v_dim;
    const uint64_t all_v_cols = v_cols * (m->part.gathers ? m->part.n_ranks : 1);
    if (mixed < all_v_cols) mixed = all_v_cols;
    if (mixed < rec->channels) mixed = rec->channels;
    uint64_t ff = experts->n_experts && !experts->n_dense && !g4->on ? 0 : hp->n_ff;
    if (ff < g4->n_ff_shared_kv) ff = g4->n_ff_shared_kv;
    if (ff < experts->n_ff_shared) ff = experts->n_ff_shared;
    const uint64_t kv = kv_cols(hp);
    const uint64_t all_layers = (uint64_t)hp->n_layers * g4->n_per_layer;
    const bool both = g4->on && experts->n_experts;
    uint32_t share = m->part.n_ranks > 1 ? backend_share(hp->n_vocab, m->part.n_ranks) : 0;
    uint64_t exchange = exchange_bytes(m),
             sampling = lim->max_history && model_rank_picks(m) ? last : 0;
    const bool parallel = hp->layers[0] & MODEL_LAYER_PARALLEL;
    const struct planned plan[] = {
        {&b->ids, rows, 1},
        {&b->pos, rows, 1},
        {&b->types, rows, hp->encoder.n_types > 0},
        {&b->slots[0], rows, 1},
        {&b->slots[1], rows, lim->window_tables},
        {&b->row_start, (uint64_t)lim->max_seqs + 1, 1},
        {&b->out_rows, rows, 1},
        {&b->tables[0], lim->max_seqs, lim->table_stride},
        {&b->tables[1], lim->max_seqs, lim->window_tables ? lim->table_stride : 0},
        {&b->inv_freq[0], hp->rope[0].n_rot / 2, 1},
        {&b->inv_freq[1], hp->rope[1].n_rot / 2, 1},
        {&b->x, rows, hp->n_embd},
        {&b->r, rows, hp->n_embd},
        {&b->q, rows, heads},
        {&b->att, rows, mixed},
        {&b->k, rows, kv},
        {&b->v, rows, mla->kv_rank ? 0 : kv},
        {&b->q_a, rows, mla->q_rank},
        {&b->q_heads, rows, (uint64_t)hp->n_heads * mla->k_dim},
        {&b->att_latent, rows, (uint64_t)hp->n_heads * (hp->v_dim ? hp->head_dim : mla->kv_rank)},
        {&b->v_pieces, rows, hp->v_dim ? hp->n_heads * (hp->v_dim / model_v_piece(hp)) : 0},
        {&b->gate, rows, hp->attention_gate ? heads / hp->gate_span : 0},
        {&b->conv_in, rows, conv_in},
        {&b->conv_out, rows, rec->channels ? 0 : backend_state_work(&widest_state)},
        {&b->z, rows, v_cols},
        {&b->conv_in_k, rows, rec->channel_decay ? v_cols : 0},
        {&b->conv_in_v, rows, rec->channel_decay ? v_cols : 0},
        {&b->low_alpha, rows, low},
        {&b->low_z, rows, low},
        {&b->alpha, rows, rec->channel_decay ? v_cols : v_heads},
        {&b->beta, rows, rec->mamba2 ? 0 : v_heads},
        {&b->state_tables, lim->max_seqs, rec->n_layers ? 2 : 0},
        {&b->ff, rows, ff},
        {&b->moe, rows, experts->n_experts ? hp->n_embd : 0},
        {&b->latent, rows, both ? hp->n_embd : experts->n_latent},
        {&b->latent_sum, rows, experts->n_latent},
        {&b->shared, rows, both || experts->n_ff_shared ? hp->n_embd : 0},
        {&b->shared_gate, rows, experts->n_ff_shared ? 1 : 0},
        {&b->layer_in, rows, all_layers},
        {&b->layer_work, rows, all_layers},
        {&b->layer_gate, rows, g4->n_per_layer},
        {&b->x_last, rows, hp->n_embd},
        {&b->att_last, rows, mixed > hp->n_embd ? mixed : hp->n_embd},
        {&b->mix, rows, parallel ? v_cols : joined_cols(m)},
        {&b->mix_last, rows, parallel ? v_cols : 0},
        {&b->mixed, rows,
         parallel || hp->ffn_beside || both || hp->encoder.on || hp->post_eps > 0 ? hp->n_embd : 0},
        {&b->hidden, rows, hp->n_embd},
        {&b->logits, last, model_rank_picks(m) ? hp->n_vocab : 0},
        {&b->logits_part, last, share},
        {&b->work, exchange / sizeof(float), 1},
        {&b->top_ids, last, m->part.ends ? BACKEND_MAX_TOP : 0},
        {&b->top_values, last, m->part.ends ? BACKEND_MAX_TOP : 0},
        {&b->sampling, sampling, sizeof(struct backend_sampling) / sizeof(float)},
        {&b->sampled, sampling, sizeof(struct backend_sampled) / sizeof(float)},
        {&b->history, sampling ? lim->max_history : 0,
         sizeof(struct backend_penalty_entry) / sizeof(float)},
        {&b->token_copies, model_overlaps(m) ? lim->max_seqs : 0,
         sizeof(struct backend_token_copy) / sizeof(float)},
        {&b->history_updates, model_overlaps(m) ? lim->max_seqs : 0,
         sizeof(struct backend_history_update) / sizeof(float)},
    };
    _Static_assert(sizeof plan / sizeof plan[0] == MODEL_N_BUFS, "every step buffer is planned");
    memcpy(out, plan, sizeof plan);
}

uint64_t model_bufs_bytes(const model *m) {
    struct model_bufs none;
    struct planned plan[MODEL_N_BUFS];
    uint64_t bytes = 0, n;
    plan_bufs(m, &none, plan);
    for (size_t i = 0; i < MODEL_N_BUFS; i++)
        if (!mem_mul(plan[i].a, plan[i].b, &n) || !mem_mul(n, sizeof(float), &n) ||
            !mem_add(bytes, n, &bytes))
            return UINT64_MAX;
    return bytes;
}

int model_bufs_new(model *m, err *e) {
    struct planned plan[MODEL_N_BUFS];
    plan_bufs(m, &m->bufs, plan);
    for (size_t i = 0; i < MODEL_N_BUFS; i++) {
        int rc = new_buf(m->be, plan[i].a, plan[i].b, plan[i].buf, e);
        if (rc) return rc;
    }
    int rc = m->part.rank ? 0 : new_host_results(m, e); /* rank 0 returns the results */
    if (!rc) rc = upload_inv_freq(m, 0, e);
    if (!rc) rc = upload_inv_freq(m, 1, e);
    return rc ? rc : upload_v_pieces(m, e);
}

void model_bufs_free(struct model_bufs *b) {
    backend_buf **all = (backend_buf **)b;
    for (size_t i = 0; i < MODEL_N_BUFS; i++)
        backend_buf_free(all[i]);
}
