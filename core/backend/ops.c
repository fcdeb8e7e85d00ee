/* ops.c - the call of each op: the check that all devices share (owners, shapes, types, sizes of
 * buffers), the counter, the device. Owns no memory; runs on the caller's thread. */
#include "core/backend/backend_int.h"

#include "core/base/mem.h"
#include "core/base/sample_math.h"

#include <float.h>

/* ---- building blocks of checks ---- */

/* Does buf hold (a, b, c) elements of elem bytes? */
static bool buf_holds(const backend *be, const backend_buf *buf, uint64_t a, uint64_t b, uint64_t c,
                      uint64_t elem) {
    uint64_t n;
    return buf && buf->be == be && mem_mul(a, b, &n) && mem_mul(n, c, &n) && mem_mul(n, elem, &n) &&
           n <= buf->bytes;
}

static bool holds_f32(const backend *be, const backend_buf *buf, uint64_t rows, uint64_t cols) {
    return buf_holds(be, buf, rows, cols, 1, sizeof(float));
}

static bool holds_i32(const backend *be, const backend_buf *buf, uint64_t n) {
    return buf_holds(be, buf, n, 1, 1, sizeof(int32_t));
}

/* A vector of n f32 for each of n_experts experts; n_experts 0: a plain one. */
static bool are_vectors(const backend *be, const backend_weight *w, uint64_t n_experts,
                        uint64_t n) {
    return w && w->be == be && w->use & BACKEND_USE_VECTOR && w->n_experts == n_experts &&
           w->n_in == n;
}

static bool is_vector(const backend *be, const backend_weight *w, uint64_t n) {
    return are_vectors(be, w, 0, n);
}

/* A matrix for products, or one for each expert. */
static bool is_matrix(const backend *be, const backend_weight *w, uint64_t n_experts,
                      uint64_t n_out, uint64_t n_in) {
    return w && w->be == be && w->use & BACKEND_USE_LINEAR && w->n_experts == n_experts &&
           w->n_out == n_out && w->n_in == n_in;
}

/* 0 (not used) or a finite positive number. */
static bool factor_ok(float v) {
    return v >= 0 && v <= FLT_MAX;
}

static bool input_ok(const backend *be, const struct op_input *in, uint32_t n_rows, uint64_t n_in) {
    if (!holds_f32(be, in->x, n_rows, n_in) || (in->norm && !is_vector(be, in->norm, n_in)))
        return false;
    if (!factor_ok(in->residual_scale) || (in->centred && (!in->norm || in->residual_norm)) ||
        (in->norm_bias && (!in->centred || !is_vector(be, in->norm_bias, n_in))))
        return false;
    if (!in->residual) return !in->residual_norm;
    return in->residual != in->x && holds_f32(be, in->residual, n_rows, n_in) &&
           (!in->residual_norm || is_vector(be, in->residual_norm, n_in));
}

static bool kv_ok(const backend *be, const struct backend_kv *kv) {
    uint64_t block;
    if (!backend_kv_block_bytes(kv, &block) || !kv->n_blocks) return false;
    if (kv->n_blocks > INT32_MAX / kv->block_tokens) return false; /* a slot is an i32 */
    return buf_holds(be, kv->k, kv->n_blocks, block, 1, 1) &&
           (kv->v_dim ? !kv->v : buf_holds(be, kv->v, kv->n_blocks, block, 1, 1));
}

/* ---- check_NAME: ERR_INVALID, ERR_UNSUPPORTED, or one of these ---- */

enum { NOTHING_TO_DO = 0, READY = 1 };

static int ready_if(bool any_work) {
    return any_work ? READY : NOTHING_TO_DO;
}

static int check_embed(const backend *be, const struct op_embed *a) {
    const backend_weight *t = a->table;
    if (!t || t->be != be || !(t->use & BACKEND_USE_EMBED) || a->n_rows > be->max_rows ||
        !holds_i32(be, a->ids, a->n_rows) || !holds_f32(be, a->out, a->n_rows, t->n_in))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

/* w[i], bias[i] and y[i] of op a. */
static bool product_ok(const backend *be, const struct op_linear *a, uint32_t i) {
    const backend_weight *w = a->w[i];
    if (!w || !is_matrix(be, w, 0, w->n_out, a->w[0]->n_in) || w->n_in > be->max_cols ||
        (a->bias[i] && !is_vector(be, a->bias[i], w->n_out)))
        return false;
    if (a->act != BACKEND_ACT_NONE && w->n_out != a->w[0]->n_out) return false;
    if (a->act != BACKEND_ACT_NONE && i > 0) return true; /* its y is not written */
    return holds_f32(be, a->y[i], a->n_rows, w->n_out) && a->y[i] != a->in.x &&
           a->y[i] != a->in.residual;
}

static bool bounds_ok(struct backend_bounds b, enum backend_act act) {
    if (b.gate == 0 && b.up == 0) return true;
    return act == BACKEND_ACT_SILU && b.gate > 0 && b.up > 0 && factor_ok(b.gate) &&
           factor_ok(b.up);
}

static int check_linear(const backend *be, const struct op_linear *a) {
    if (!a->n_weights || a->n_weights > BACKEND_LINEAR_MAX || a->n_rows > be->max_rows)
        return ERR_INVALID;
    bool gated = a->act != BACKEND_ACT_NONE;
    if (gated && (a->act >= BACKEND_N_ACTS || a->n_weights != 2 || a->y_scale || a->softcap))
        return ERR_INVALID;
    if (!factor_ok(a->y_scale) || !factor_ok(a->softcap) || !bounds_ok(a->bounds, a->act))
        return ERR_INVALID;
    for (uint32_t i = 0; i < a->n_weights; i++)
        if (!product_ok(be, a, i)) return ERR_INVALID;
    if (!input_ok(be, &a->in, a->n_rows, a->w[0]->n_in)) return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_linear_heads(const backend *be, const struct op_linear_heads *a) {
    const backend_weight *w = a->w;
    if (!w || a->n_rows > be->max_rows || !w->n_experts || w->n_experts > be->heads.n_heads ||
        w->n_in > be->heads.n_cols || w->n_out > be->heads.n_cols ||
        !is_matrix(be, w, w->n_experts, w->n_out, w->n_in) || a->x == a->y ||
        !holds_f32(be, a->x, a->n_rows, w->n_experts * (w->n_in + a->n_tail)) ||
        !holds_f32(be, a->y, a->n_rows, w->n_experts * (w->n_out + a->n_tail)))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_norm(const backend *be, const struct op_norm *a) {
    if (!a->in.norm || a->n_rows > be->max_rows ||
        !input_ok(be, &a->in, a->n_rows, a->in.norm->n_in) ||
        !holds_f32(be, a->out, a->n_rows, a->in.norm->n_in) || a->out == a->in.x ||
        a->out == a->in.residual)
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static bool bias_ok(const backend *be, const backend_weight *bias, uint64_t n_experts, uint64_t n) {
    return !bias || are_vectors(be, bias, n_experts, n);
}

static bool experts_ok(const backend *be, const struct op_moe *a) {
    uint64_t n = a->down->n_experts, n_in = a->down->n_out, n_ff = a->down->n_in;
    uint64_t n_scored = a->latent && a->router ? a->router->n_in : n_in;
    return n && n <= be->moe.n_experts && a->n_used && a->n_used <= be->moe.n_used &&
           a->n_used <= n && n_ff <= be->moe.n_ff && n_in <= be->max_cols &&
           n_scored <= be->max_cols && is_matrix(be, a->down, n, n_in, n_ff) &&
           (a->gate ? is_matrix(be, a->gate, n, n_ff, n_in) : !a->gate_bias) &&
           is_matrix(be, a->up, n, n_ff, n_in) && is_matrix(be, a->router, 0, n, n_scored) &&
           (!a->router_bias || is_vector(be, a->router_bias, n)) &&
           (!a->choice_bias || is_vector(be, a->choice_bias, n)) &&
           (!a->expert_scale || is_vector(be, a->expert_scale, n)) &&
           bias_ok(be, a->gate_bias, n, n_ff) && bias_ok(be, a->up_bias, n, n_ff) &&
           bias_ok(be, a->down_bias, n, n_in);
}

/* Groups of equal size, the used ones with enough experts; of sigmoids two count. */
static bool groups_ok(const struct op_moe *a) {
    const uint64_t n = a->down->n_experts, least = a->gating == BACKEND_GATING_SIGMOID ? 2 : 1;
    if (a->n_groups < 2) return true;
    return n % a->n_groups == 0 && n / a->n_groups >= least && a->n_groups_used &&
           a->n_groups_used <= a->n_groups && a->n_used <= n / a->n_groups * a->n_groups_used;
}

static bool moe_options_ok(const struct op_moe *a) {
    if (a->weighs_input && (!a->gate || a->latent || a->gate_bias || a->up_bias)) return false;
    if (a->gating != BACKEND_GATING_MIXER) return a->mixer_limit == 0;
    return factor_ok(a->mixer_limit) && !a->choice_bias && a->n_groups < 2 && !a->renormalize;
}

bool backend_joins_shared(const backend *be, const struct op_moe *a) {
    return be->vt->joins_shared && be->vt->joins_shared(be, a);
}

static bool joined_ok(const backend *be, const struct op_moe *a) {
    const struct backend_shared_expert *s = &a->joined;
    const uint64_t n_in = a->down->n_out, n_ff = a->down->n_in;
    if (!s->up) return !s->gate && !s->down && !s->router;
    return bounds_ok(s->bounds, a->act) && !a->shared && !a->shared_gate && s->gate &&
           is_matrix(be, s->gate, 0, n_ff, n_in) && is_matrix(be, s->up, 0, n_ff, n_in) &&
           is_matrix(be, s->down, 0, n_in, n_ff) &&
           (!s->router || is_matrix(be, s->router, 0, 1, n_in)) && backend_joins_shared(be, a);
}

static int check_moe(const backend *be, const struct op_moe *a) {
    if (a->n_rows > be->max_rows || (a->act == BACKEND_ACT_NONE) != !a->gate ||
        a->act >= BACKEND_N_ACTS || a->gating >= BACKEND_N_GATINGS || !factor_ok(a->weight_scale) ||
        !a->down || !experts_ok(be, a) || !groups_ok(a) || !moe_options_ok(a) ||
        !bounds_ok(a->bounds, a->act) || !joined_ok(be, a))
        return ERR_INVALID;
    uint64_t n_in = a->down->n_out;
    if (!input_ok(be, &a->in, a->n_rows, a->router->n_in) ||
        !holds_f32(be, a->y, a->n_rows, n_in) ||
        (a->latent && (a->shared || a->latent == a->y || a->latent == a->in.x ||
                       !holds_f32(be, a->latent, a->n_rows, n_in))) ||
        a->y == a->in.x || a->y == a->in.residual || a->y == a->shared ||
        (a->shared && !holds_f32(be, a->shared, a->n_rows, n_in)) ||
        (a->shared_gate && (!a->shared || !holds_f32(be, a->shared_gate, a->n_rows, 1))))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_gather(const backend *be, const struct op_gather *a) {
    if (!a->n_cols || !holds_i32(be, a->rows, a->n_out_rows) ||
        !holds_f32(be, a->out, a->n_out_rows, a->n_cols) || !holds_f32(be, a->x, 1, a->n_cols) ||
        (a->residual && !holds_f32(be, a->residual, 1, a->n_cols)) || a->out == a->x)
        return ERR_INVALID;
    return ready_if(a->n_out_rows);
}

/* The norm of n_heads heads, one by one or all together. */
static bool head_norm_ok(const backend *be, const backend_weight *w, uint32_t n_heads,
                         uint32_t head_dim) {
    return !w || is_vector(be, w, head_dim) || is_vector(be, w, (uint64_t)n_heads * head_dim);
}

static bool rope_options_ok(const backend *be, const struct op_rope_store *a) {
    if (!factor_ok(a->q_log_scale) || (a->q_log_scale != 0) != (a->q_log_length != 0)) return false;
    if (a->k ? a->v_normed && !a->v : a->v || a->v_normed || a->norm_last || a->kv.v_dim)
        return false;
    return !a->norm_last || (a->q_norm && is_vector(be, a->q_norm, a->kv.head_dim) &&
                             is_vector(be, a->k_norm, a->kv.head_dim));
}

static bool head_norms_ok(const backend *be, const struct op_rope_store *a) {
    if (a->kv.v_dim) return !a->q_norm && (!a->k_norm || is_vector(be, a->k_norm, a->kv.v_dim));
    if (!a->k) return !a->k_norm && head_norm_ok(be, a->q_norm, a->n_heads, a->kv.head_dim);
    return !a->q_norm == !a->k_norm && head_norm_ok(be, a->q_norm, a->n_heads, a->kv.head_dim) &&
           head_norm_ok(be, a->k_norm, a->kv.n_kv_heads, a->kv.head_dim);
}

static int check_rope_store(const backend *be, const struct op_rope_store *a) {
    uint64_t cols;
    if (!kv_ok(be, &a->kv) || a->n_rows > be->max_rows || !a->n_heads || a->n_rot % 2 ||
        a->n_rot > a->kv.head_dim - a->kv.v_dim || !factor_ok(a->magnitude))
        return ERR_INVALID;
    cols = (uint64_t)a->kv.n_kv_heads * a->kv.head_dim;
    if (!head_norms_ok(be, a) || !rope_options_ok(be, a) ||
        !holds_f32(be, a->q, a->n_rows, (uint64_t)a->n_heads * a->kv.head_dim) ||
        (a->k && !holds_f32(be, a->k, a->n_rows, cols)) ||
        (a->kv.v_dim ? a->v != NULL : a->k && !holds_f32(be, a->v, a->n_rows, cols)) ||
        !holds_i32(be, a->pos, a->n_rows) || !holds_i32(be, a->slots, a->n_rows) ||
        !holds_f32(be, a->inv_freq, 1, a->n_rot / 2))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_paged_attention(const backend *be, const struct op_paged_attention *a) {
    uint64_t cols = (uint64_t)a->n_heads * a->kv.head_dim, n_table;
    uint64_t out_cols = (uint64_t)a->n_heads * backend_kv_v_dim(&a->kv);
    if (!kv_ok(be, &a->kv) || a->n_rows > be->max_rows || a->n_seqs > a->n_rows || !a->n_heads ||
        a->n_heads % a->kv.n_kv_heads || (a->sinks && !is_vector(be, a->sinks, a->n_heads)) ||
        (a->slopes && (a->softcap != 0 || a->kv.v_dim || !is_vector(be, a->slopes, a->n_heads))) ||
        (a->chunked && (a->both_ways || !a->window)) || !factor_ok(a->softcap) ||
        !mem_mul(a->n_seqs, a->table_stride, &n_table) || (a->n_rows && !a->table_stride) ||
        a->max_context > (uint64_t)a->table_stride * a->kv.block_tokens)
        return ERR_INVALID;
    if (!holds_f32(be, a->q, a->n_rows, cols) || !holds_f32(be, a->out, a->n_rows, out_cols) ||
        a->out == a->q || !holds_i32(be, a->pos, a->n_rows) ||
        !holds_i32(be, a->row_start, (uint64_t)a->n_seqs + 1) || !holds_i32(be, a->tables, n_table))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static bool same_kv(const struct backend_kv *a, const struct backend_kv *b) {
    return a->k == b->k && a->v == b->v && a->kv_type == b->kv_type && a->n_blocks == b->n_blocks &&
           a->n_kv_heads == b->n_kv_heads && a->block_tokens == b->block_tokens &&
           a->head_dim == b->head_dim && a->v_dim == b->v_dim;
}

static int check_store_attend(const backend *be, const struct op_store_attend *a) {
    const struct op_rope_store *s = &a->store;
    const struct op_paged_attention *p = &a->attend;
    if (check_rope_store(be, s) < 0 || check_paged_attention(be, p) < 0 || s->q != p->q ||
        s->pos != p->pos || s->n_rows != p->n_rows || s->n_heads != p->n_heads ||
        !same_kv(&s->kv, &p->kv))
        return ERR_INVALID;
    return ready_if(p->n_rows);
}

static int check_kv_copy(const backend *be, const struct op_kv_copy *a) {
    if (!kv_ok(be, &a->kv)) return ERR_INVALID;
    for (uint64_t i = 0; i < 2 * (uint64_t)a->n_pairs; i++)
        if (a->pairs[i] < 0 || (uint32_t)a->pairs[i] >= a->kv.n_blocks) return ERR_INVALID;
    return ready_if(a->n_pairs);
}

static int check_gate(const backend *be, const struct op_gate *a) {
    const uint32_t span = a->span ? a->span : 1;
    if (a->n_rows > be->max_rows || !a->n_cols || !holds_f32(be, a->x, a->n_rows, a->n_cols) ||
        a->n_cols % span || (!a->gate && (a->span || a->softplus)) ||
        (a->gate && !holds_f32(be, a->gate, a->n_rows, a->n_cols / span)) || a->x == a->gate ||
        a->unary >= BACKEND_N_UNARIES || (a->gate && a->unary != BACKEND_UNARY_SQUARED_RELU))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_gated(const backend *be, const struct op_gated *a) {
    if (a->n_rows > be->max_rows || !a->n_cols || !holds_f32(be, a->x, a->n_rows, a->n_cols) ||
        !holds_f32(be, a->up, a->n_rows, a->stride) || a->x == a->up ||
        (uint64_t)a->first + a->n_cols > a->stride || a->act == BACKEND_ACT_NONE ||
        a->act >= BACKEND_N_ACTS)
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_add_normed(const backend *be, const struct op_add_normed *a) {
    if (a->n_rows > be->max_rows || !a->n_cols || !holds_f32(be, a->x, a->n_rows, a->n_cols) ||
        !factor_ok(a->scale) || (a->factor && !is_vector(be, a->factor, 1)))
        return ERR_INVALID;
    if (a->r ? a->r == a->x || !holds_f32(be, a->r, a->n_rows, a->n_cols) : a->norm != NULL)
        return ERR_INVALID;
    if (a->norm &&
        (!a->norm->n_in || a->n_cols % a->norm->n_in || !is_vector(be, a->norm, a->norm->n_in)))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

/* What the ops over state blocks share: sequences, their blocks, the convolution's weights. */
static bool states_ok(const backend *be, const struct backend_state *s, uint32_t n_seqs,
                      const backend_buf *row_start, const backend_buf *tables) {
    return backend_state_ok(s) && holds_i32(be, row_start, (uint64_t)n_seqs + 1) &&
           holds_i32(be, tables, 2 * (uint64_t)n_seqs) &&
           buf_holds(be, s->blocks, s->n_blocks, 1, 1, backend_state_block_bytes(s));
}

/* The inputs of the convolution and its weights: in one piece, or Q, K and V apart. */
static bool channels_ok(const backend *be, const struct op_linear_attention *a) {
    const struct backend_state *s = &a->state;
    const uint64_t keys = (uint64_t)s->n_k_heads * s->k_dim,
                   values = (uint64_t)s->n_v_heads * s->v_dim, all = backend_state_channels(s);
    if (!a->k && !a->v)
        return holds_f32(be, a->qkv, a->n_rows, all) && is_vector(be, a->conv, all * s->n_taps) &&
               !a->conv_k && !a->conv_v;
    return a->beta && holds_f32(be, a->qkv, a->n_rows, keys) &&
           holds_f32(be, a->k, a->n_rows, keys) && holds_f32(be, a->v, a->n_rows, values) &&
           is_vector(be, a->conv, keys * s->n_taps) && is_vector(be, a->conv_k, keys * s->n_taps) &&
           is_vector(be, a->conv_v, values * s->n_taps) && a->work != a->k && a->work != a->v &&
           a->out != a->k && a->out != a->v;
}

/* What a delta net and Mamba-2 do not share. */
static bool linear_attention_kind_ok(const backend *be, const struct op_linear_attention *a) {
    const struct backend_state *s = &a->state;
    if (a->beta)
        return holds_f32(be, a->beta, a->n_rows, s->n_v_heads) && s->k_dim == s->v_dim &&
               is_vector(be, a->norm, s->v_dim) && !a->conv_bias && !a->skip;
    return !a->tiled && !s->channel_decay && is_vector(be, a->skip, s->n_v_heads) &&
           (!a->conv_bias || is_vector(be, a->conv_bias, backend_state_channels(s))) &&
           (!a->norm || (is_vector(be, a->norm, (uint64_t)s->n_v_heads * s->v_dim) &&
                         a->n_norm_groups && s->n_v_heads % a->n_norm_groups == 0));
}

static int check_linear_attention(const backend *be, const struct op_linear_attention *a) {
    const struct backend_state *s = &a->state;
    if (!s->n_v_heads || a->n_rows > be->max_rows || a->n_seqs > a->n_rows ||
        !states_ok(be, s, a->n_seqs, a->row_start, a->tables) || !channels_ok(be, a))
        return ERR_INVALID;
    const uint64_t decays = (uint64_t)s->n_v_heads * backend_state_decays(s);
    const uint64_t cols = (uint64_t)s->n_v_heads * s->v_dim;
    if (!holds_f32(be, a->work, a->n_rows, backend_state_work(s)) ||
        !holds_f32(be, a->z, a->n_rows, cols) || !holds_f32(be, a->out, a->n_rows, cols) ||
        !holds_f32(be, a->alpha, a->n_rows, decays) || a->work == a->qkv || a->out == a->qkv ||
        a->out == a->work || a->out == a->z)
        return ERR_INVALID;
    if (!holds_i32(be, a->pos, a->n_rows) || !is_vector(be, a->a, s->n_v_heads) ||
        !is_vector(be, a->dt_bias, decays) || !linear_attention_kind_ok(be, a))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_short_conv(const backend *be, const struct op_short_conv *a) {
    const struct backend_state *s = &a->state;
    const uint64_t channels = s->channels;
    if (s->n_v_heads || a->n_rows > be->max_rows || a->n_seqs > a->n_rows ||
        !states_ok(be, s, a->n_seqs, a->row_start, a->tables) ||
        !is_vector(be, a->conv, channels * s->n_taps) || !holds_i32(be, a->pos, a->n_rows) ||
        !holds_f32(be, a->bcx, a->n_rows, 3 * channels) ||
        !holds_f32(be, a->out, a->n_rows, channels) || a->out == a->bcx)
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_top(const backend *be, const struct op_top *a) {
    if (!a->k || a->k > BACKEND_MAX_TOP || a->k > a->n_cols || a->n_rows > be->max_rows ||
        a->n_cols > INT32_MAX || !holds_f32(be, a->x, a->n_rows, a->n_cols) ||
        !holds_i32(be, a->ids, (uint64_t)a->n_rows * a->k) ||
        !holds_f32(be, a->values, a->n_rows, a->k))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_sample(const backend *be, const struct op_sample *a) {
    if (a->n_rows > be->max_rows || !a->n_cols || a->n_cols > SAMPLE_MAX_COLS ||
        !holds_f32(be, a->x, a->n_rows, a->n_cols) ||
        !buf_holds(be, a->sampling, a->n_rows, 1, 1, sizeof(struct backend_sampling)) ||
        !buf_holds(be, a->history, a->n_history, 1, 1, sizeof(struct backend_penalty_entry)) ||
        !buf_holds(be, a->out, a->n_rows, 1, 1, sizeof(struct backend_sampled)))
        return ERR_INVALID;
    return ready_if(a->n_rows);
}

static int check_copy_tokens(const backend *be, const struct op_copy_tokens *a) {
    if (!a->stride || !holds_i32(be, a->from, 1) || !holds_i32(be, a->ids, 1) ||
        !holds_i32(be, a->copies, 2 * ((uint64_t)a->first + a->n)))
        return ERR_INVALID;
    return ready_if(a->n);
}

static int check_update_history(const backend *be, const struct op_update_history *a) {
    if (!holds_i32(be, a->sampled, 1) || !holds_i32(be, a->history, 3) ||
        !holds_i32(be, a->updates, 3 * (uint64_t)a->n))
        return ERR_INVALID;
    return ready_if(a->n);
}

static bool work_ok(const backend *be, const backend_buf *work, uint32_t n_rows, uint32_t n_cols) {
    uint64_t need = backend_exchange_bytes(be, n_rows, n_cols);
    return !need || buf_holds(be, work, need, 1, 1, 1);
}

static int check_all_reduce(const backend *be, const struct op_all_reduce *a) {
    if (!a->n_cols || a->n_rows > be->max_rows || !holds_f32(be, a->x, a->n_rows, a->n_cols) ||
        a->work == a->x)
        return ERR_INVALID;
    if (!a->n_rows || be->n_ranks < 2) return NOTHING_TO_DO;
    return work_ok(be, a->work, a->n_rows, a->n_cols) ? READY : ERR_INVALID;
}

static int check_all_gather(const backend *be, const struct op_all_gather *a) {
    uint32_t n = backend_n_ranks(be), share = backend_share(a->n_cols, n);
    if (!a->n_cols || a->n_rows > be->max_rows || (uint64_t)share * (n - 1) >= a->n_cols ||
        !holds_f32(be, a->part, a->n_rows, share) ||
        (a->out && !holds_f32(be, a->out, a->n_rows, a->n_cols)) || a->out == a->part ||
        (a->work && (a->work == a->part || a->work == a->out)))
        return ERR_INVALID;
    if (!a->n_rows) return NOTHING_TO_DO;
    if (be->n_ranks < 2) return ERR_UNSUPPORTED;
    return work_ok(be, a->work, a->n_rows, share) ? READY : ERR_INVALID;
}

/* ---- the calls ---- */

#define CALL(name, on_cpu, on_metal, on_cuda)                                                      \
    int backend_##name(backend *be, const struct op_##name *a) {                                   \
        int rc = check_##name(be, a);                                                              \
        if (rc != NOTHING_TO_DO && !be->vt->name) return ERR_UNSUPPORTED;                          \
        if (rc != READY) return rc;                                                                \
        backend_count_op(be, BACKEND_OP_##name);                                                   \
        return be->vt->name(be, a);                                                                \
    }
BACKEND_OPS(CALL, CALL)

int backend_linear_sum(backend *be, const struct op_linear *a, backend_buf *work) {
    if (a->n_weights != 1 || a->act != BACKEND_ACT_NONE) return ERR_INVALID;
    int rc = check_linear(be, a);
    if (rc != READY) return rc == NOTHING_TO_DO ? 0 : rc;
    const struct op_all_reduce sum = {
        .x = a->y[0], .work = work, .n_rows = a->n_rows, .n_cols = (uint32_t)a->w[0]->n_out};
    const int summed = check_all_reduce(be, &sum);
    if (summed != READY && summed != NOTHING_TO_DO) return summed;
    if (summed == READY && be->vt->linear_sum) {
        backend_count_op(be, BACKEND_OP_linear);
        backend_count_op(be, BACKEND_OP_all_reduce);
        return be->vt->linear_sum(be, a, work);
    }
    rc = backend_linear(be, a);
    return rc ? rc : backend_all_reduce(be, &sum);
}

#define NAME(name, on_cpu, on_metal, on_cuda) #name,
static const char *const op_names[BACKEND_N_OPS] = {BACKEND_OPS(NAME, NAME)};

const char *backend_op_name(enum backend_op op) {
    return op_names[op];
}

uint64_t backend_op_count(const backend *be, enum backend_op op) {
    return atomic_load_explicit(&be->op_counts[op], memory_order_relaxed);
}

bool backend_has_op(const backend *be, enum backend_op op) {
#define HAS(name, on_cpu, on_metal, on_cuda) [BACKEND_OP_##name] = be->vt->name != NULL,
    const bool has[BACKEND_N_OPS] = {BACKEND_OPS(HAS, HAS)};
#undef HAS
    return has[op];
}

bool backend_can_sample(const backend *be) {
    return be->vt->sample != NULL;
}

uint64_t backend_exchange_bytes(const backend *be, uint32_t n_rows, uint32_t n_cols) {
    return be->vt->exchange_bytes ? be->vt->exchange_bytes(be, n_rows, n_cols) : 0;
}
