/* mla.c - multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024; as transformers'
 * modeling_deepseek_v3.py has it): its keys, the tensor of old files, and its ops.
 *
 * A token's K and V are functions of one latent row, which alone is cached. Head h's K is W_k_b[h]
 * times the latent, beside rotated dimensions that all heads share; as q (W l) = (q W) l, the query
 * absorbs W_k_b, and attention is that of n_heads query heads over one KV head: the latent and the
 * rotated dimensions. Its output, a mixture of latents, is multiplied by W_v_b[h]. */
#include "core/model/model_int.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>

enum {
    MAX_RANK = 512, /* with MAX_ROT the widest row of the backends' attention kernels */
    MAX_ROT = 64,
    MAX_DIM = 512,
    MAX_Q_RANK = 1 << 14,
    MAX_SHARED = 1 << 10,
    MAX_SHARED_FF = 1 << 20
};

/* ---- keys ---- */

/* Old files have a head's dimensions where newer ones have those of the latent row. */
static int read_head(struct model_keys *k, struct model_mla *m, err *e) {
    const bool old = !model_key_has(k, "attention.key_length_mla");
    int rc = model_key_count(k, old ? "attention.key_length" : "attention.key_length_mla", MAX_DIM,
                             0, &m->k_dim, e);
    if (rc) return rc;
    return model_key_count(k, old ? "attention.value_length" : "attention.value_length_mla",
                           MAX_DIM, 0, &m->v_dim, e);
}

int model_mla_read(struct model_keys *k, struct model_hparams *hp, err *e) {
    struct model_mla *m = &hp->mla;
    uint32_t n_rot;
    int rc;
    if ((rc = model_key_count(k, "attention.kv_lora_rank", MAX_RANK, 0, &m->kv_rank, e)) ||
        (rc = model_key_count_or_zero(k, "attention.q_lora_rank", MAX_Q_RANK, &m->q_rank, e)) ||
        (rc = read_head(k, m, e)) ||
        (rc = model_key_count(k, "rope.dimension_count", MAX_ROT, 0, &n_rot, e)))
        return rc;
    if (n_rot >= m->k_dim)
        return err_set_param(e, ERR_FORMAT, k->key,
                             "%s: %s is %u, but heads have %u dimensions of which some are not "
                             "rotated",
                             gguf_path(k->g), k->key, n_rot, m->k_dim);
    hp->n_kv_heads = 1;
    hp->head_dim = m->kv_rank + n_rot;
    return 0;
}

/* transformers' mscale_all_dim is ten times the key; with it cos and sin have no factor unless a
 * key says so. */
int model_mla_read_scale(struct model_keys *k, struct model_hparams *hp, err *e) {
    struct model_rope *r = &hp->rope[0];
    float multiplier;
    int rc = model_key_real_or(k, "rope.scaling.yarn_log_multiplier", 0, &multiplier, e);
    if (rc || multiplier == 0 || r->scaling != MODEL_ROPE_YARN) return rc;
    const float m = r->factor > 1 ? 1 + multiplier * logf(r->factor) : 1;
    hp->attn_scale *= m * m;
    if (r->attn_factor == 0) r->attn_factor = hp->rope[1].attn_factor = 1;
    return 0;
}

/* Files without expert_gating_func: GLM-4.7-Flash, which its 47 layers tell, has sigmoids. */
static int guess_gating(struct model_keys *k, struct model_hparams *hp, err *e) {
    uint32_t gating;
    int rc = model_key_count_or_zero(k, "expert_gating_func", UINT32_MAX, &gating, e);
    if (!rc && !gating && hp->n_layers == 47) hp->experts.gating = BACKEND_GATING_SIGMOID;
    return rc;
}

/* Files of DeepSeek's first years say nothing of groups of experts, nor do those of ik_llama.cpp:
 * layers and experts tell V3 and R1 (modeling_deepseek_v3.py), and V2. */
static void guess_groups(struct model_keys *k, struct model_hparams *hp) {
    static const struct {
        uint32_t n_layers, n_experts, n_groups, n_used;
    } rows[] = {{61, 256, 8, 4}, {60, 160, 8, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (hp->n_layers != rows[i].n_layers || hp->experts.n_experts != rows[i].n_experts ||
            hp->experts.n_used > rows[i].n_used * rows[i].n_experts / rows[i].n_groups ||
            model_key_has(k, "expert_group_count"))
            continue;
        hp->experts.n_groups = rows[i].n_groups;
        hp->experts.n_groups_used = rows[i].n_used;
    }
}

int model_mla_read_experts(struct model_keys *k, struct model_hparams *hp, err *e) {
    struct model_experts *x = &hp->experts;
    uint32_t n_shared;
    int rc;
    if ((rc = guess_gating(k, hp, e)) ||
        (rc = model_key_count_or_zero(k, "expert_shared_count", MAX_SHARED, &n_shared, e)))
        return rc;
    guess_groups(k, hp);
    if ((uint64_t)n_shared * x->n_ff > MAX_SHARED_FF)
        return err_set_param(e, ERR_FORMAT, model_key(k, "expert_shared_count"),
                             "%s: %s is %u, which is too many of width %u", gguf_path(k->g), k->key,
                             n_shared, x->n_ff);
    x->n_ff_shared = n_shared * x->n_ff;
    return 0;
}

/* ---- attn_kv_b ---- */

int model_mla_k_type(int type) {
    return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16 ? type : QTYPE_F16;
}

/* One head: rows (n_in, n_out) of from's type to columns. scratch: twice that many floats. */
static void turn_head(const struct model_mla_turn *t, const void *rows, float *scratch, void *to) {
    float *turned = scratch + t->n_in * t->n_out;
    qtype_decode(t->from->type, rows, scratch, t->n_in * t->n_out);
    for (uint64_t i = 0; i < t->n_in; i++)
        for (uint64_t o = 0; o < t->n_out; o++)
            turned[o * t->n_in + i] = scratch[i * t->n_out + o];
    qtype_encode(model_mla_k_type(t->from->type), turned, to, t->n_in * t->n_out);
}

int model_mla_turn(const gguf *g, const struct model_mla_turn *t, void *to, err *e) {
    uint64_t rows, group, each;
    int rc = 0;
    if (!qtype_bytes(t->from->type, t->n_in, t->n_out, &rows) ||
        !qtype_bytes(t->from->type, t->group, t->n_out, &group) ||
        !qtype_bytes(model_mla_k_type(t->from->type), t->n_out, t->n_in, &each))
        return err_set(e, ERR_FORMAT, "%s: tensor %.*s has an impossible size", gguf_path(g),
                       (int)t->from->name.len, t->from->name.data);
    float *scratch = mem_new(2 * t->n_in * t->n_out, sizeof *scratch);
    void *bytes = mem_new_aligned(rows);
    if (!scratch || !bytes) rc = err_no_memory(e);
    for (uint64_t h = 0; h < t->n_heads && !rc; h++) {
        const void *from = t->from->data ? (const char *)t->from->data + h * group : bytes;
        if (!t->from->data) rc = gguf_tensor_read(g, t->from, h * group, rows, bytes, e);
        if (!rc) turn_head(t, from, scratch, (char *)to + h * each);
    }
    free(bytes);
    free(scratch);
    return rc;
}

/* ---- ops ---- */

static int enqueue_heads(model *m, const backend_buf *x, const backend_weight *w, uint32_t n_tail,
                         backend_buf *y, uint32_t n_rows) {
    return backend_linear_heads(
        m->be,
        &(struct op_linear_heads){.x = x, .w = w, .n_rows = n_rows, .n_tail = n_tail, .y = y});
}

/* Q of all heads in q_heads, the latent row in k. */
static int enqueue_projections(model *m, const struct model_layer *l, struct model_pending pending,
                               uint32_t n_rows) {
    struct model_bufs *b = &m->bufs;
    int rc =
        backend_linear(m->be, &(struct op_linear){.in = model_input(m, b->x, pending, l->attn_norm),
                                                  .n_rows = n_rows,
                                                  .n_weights = 2,
                                                  .w = {l->w_q_a ? l->w_q_a : l->wq, l->wk},
                                                  .y = {l->w_q_a ? b->q_a : b->q_heads, b->k}});
    if (rc || !l->w_q_a) return rc;
    return backend_linear(
        m->be,
        &(struct op_linear){.in = model_input(m, b->q_a, (struct model_pending){0}, l->q_a_norm),
                            .n_rows = n_rows,
                            .n_weights = 1,
                            .w = {l->wq},
                            .y = {b->q_heads}});
}

int model_mla_enqueue(model *m, const struct model_place *p, struct model_pending pending) {
    const struct model_hparams *hp = &m->hp;
    const struct model_layer *l = &m->w.layers[p->layer];
    const uint32_t n_rows = p->shape->n_rows, n_rot = hp->rope[0].n_rot;
    struct model_bufs *b = &m->bufs;
    int rc = enqueue_projections(m, l, pending, n_rows);
    if (!rc) rc = enqueue_heads(m, b->q_heads, l->w_k_b, n_rot, b->q, n_rows);
    if (rc) return rc;
    rc = model_store_attend_enqueue(m, p, b->att_latent);
    return rc ? rc : enqueue_heads(m, b->att_latent, l->w_v_b, 0, b->att, n_rows);
}
