/* weights.c - the tensors of a file become weights on a backend. Which tensors a model must have is
 * a table; one that is missing, misshapen or unknown is refused, with its name.
 *
 * A weight may be rows of a larger tensor (Q, K and V in one; gate and up in one; a rank's share):
 * they are read where they lie. Bytes that a file does not have in place, or not in one piece
 * (columns; rows of every expert), are read into memory of our own, which stays for as long as a
 * weight reads it. */
#include "core/model/model_int.h"

#include "core/base/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that shapes are made of. */
enum dim {
    DIM_VECTOR, /* as n_out: a vector, F32 */
    DIM_ONE,
    DIM_EMBD,
    DIM_HEADS, /* all of Q */
    DIM_KV,
    DIM_HEADS_KV,
    DIM_QKV,
    DIM_N_HEADS,
    DIM_Q_NORM,
    DIM_K_NORM,
    DIM_FF,
    DIM_GATE_UP,
    DIM_EXPERTS,
    DIM_FF_EXPERT,
    DIM_FF_SHARED,
    DIM_VOCAB,
    N_DIMS
};

/* What a model has: bits that its row, its keys and (of fused Q, K, V) its file set. */
enum feature {
    ANY = 1,
    PRE_NORM = 2,  /* attn_norm */
    FFN_NORM = 4,  /* ffn_norm by its own name */
    POST_NORM = 8, /* after both blocks */
    POST_ATTENTION_FFN_NORM = 16,
    QK_NORM = 32,
    QKV_APART = 64,
    QKV_FUSED = 128,
    QKV_APART_BIAS = 256,
    QKV_FUSED_BIAS = 512,
    OUT_BIAS = 1024,
    SINKS = 2048,
    DENSE = 4096,
    FF_APART = 8192,
    FF_FUSED = 16384,
    EXPERTS = 32768,
    EXPERT_BIAS = 65536,
    SHARED = 131072
};

struct tensor_row {
    const char *name;     /* after "blk.N." in the layer table */
    size_t offset;        /* of its backend_weight * */
    enum dim n_out, n_in; /* n_out of each expert, if it is of experts */
    unsigned must, may;   /* it must, it may be there with one of these features */
    enum dim whole, at;   /* rows at.. of a tensor of so many; whole DIM_VECTOR: all rows */
    bool experts;
    bool once; /* only on rank 0: added to a sum of the ranks */
};

#define MODEL(field) offsetof(struct model_weights, field)
#define LAYER(field) offsetof(struct model_layer, field)

static const struct tensor_row model_rows[] = {
    {"token_embd.weight", MODEL(embed), DIM_VOCAB, DIM_EMBD, .must = ANY},
    {"output_norm.weight", MODEL(output_norm), DIM_VECTOR, DIM_EMBD, .must = ANY},
    {"output.weight", MODEL(output), DIM_VOCAB, DIM_EMBD, .may = ANY},
    {"output.bias", MODEL(output_bias), DIM_VECTOR, DIM_VOCAB, .may = ANY},
};

static const struct tensor_row layer_rows[] = {
    {"attn_norm.weight", LAYER(attn_norm), DIM_VECTOR, DIM_EMBD, .must = PRE_NORM},
    {"attn_q.weight", LAYER(wq), DIM_HEADS, DIM_EMBD, .must = QKV_APART},
    {"attn_k.weight", LAYER(wk), DIM_KV, DIM_EMBD, .must = QKV_APART},
    {"attn_v.weight", LAYER(wv), DIM_KV, DIM_EMBD, .must = QKV_APART},
    {"attn_qkv.weight", LAYER(wq), DIM_HEADS, DIM_EMBD, .must = QKV_FUSED, .whole = DIM_QKV},
    {"attn_qkv.weight", LAYER(wk), DIM_KV, DIM_EMBD, .must = QKV_FUSED, .whole = DIM_QKV,
     .at = DIM_HEADS},
    {"attn_qkv.weight", LAYER(wv), DIM_KV, DIM_EMBD, .must = QKV_FUSED, .whole = DIM_QKV,
     .at = DIM_HEADS_KV},
    {"attn_q.bias", LAYER(bq), DIM_VECTOR, DIM_HEADS, .must = QKV_APART_BIAS, .may = QKV_APART},
    {"attn_k.bias", LAYER(bk), DIM_VECTOR, DIM_KV, .must = QKV_APART_BIAS, .may = QKV_APART},
    {"attn_v.bias", LAYER(bv), DIM_VECTOR, DIM_KV, .must = QKV_APART_BIAS, .may = QKV_APART},
    {"attn_qkv.bias", LAYER(bq), DIM_VECTOR, DIM_HEADS, .must = QKV_FUSED_BIAS, .may = QKV_FUSED,
     .whole = DIM_QKV},
    {"attn_qkv.bias", LAYER(bk), DIM_VECTOR, DIM_KV, .must = QKV_FUSED_BIAS, .may = QKV_FUSED,
     .whole = DIM_QKV, .at = DIM_HEADS},
    {"attn_qkv.bias", LAYER(bv), DIM_VECTOR, DIM_KV, .must = QKV_FUSED_BIAS, .may = QKV_FUSED,
     .whole = DIM_QKV, .at = DIM_HEADS_KV},
    {"attn_q_norm.weight", LAYER(q_norm), DIM_VECTOR, DIM_Q_NORM, .must = QK_NORM},
    {"attn_k_norm.weight", LAYER(k_norm), DIM_VECTOR, DIM_K_NORM, .must = QK_NORM},
    {"attn_sinks.weight", LAYER(sinks), DIM_VECTOR, DIM_N_HEADS, .must = SINKS},
    {"attn_output.weight", LAYER(wo), DIM_EMBD, DIM_HEADS, .must = ANY},
    {"attn_output.bias", LAYER(bo), DIM_VECTOR, DIM_EMBD, .must = OUT_BIAS, .may = ANY,
     .once = true},
    {"post_attention_norm.weight", LAYER(attn_post_norm), DIM_VECTOR, DIM_EMBD, .must = POST_NORM},
    {"post_attention_norm.weight", LAYER(ffn_norm), DIM_VECTOR, DIM_EMBD,
     .must = POST_ATTENTION_FFN_NORM},
    {"ffn_norm.weight", LAYER(ffn_norm), DIM_VECTOR, DIM_EMBD, .must = FFN_NORM},
    {"ffn_gate.weight", LAYER(w_gate), DIM_FF, DIM_EMBD, .must = FF_APART},
    {"ffn_up.weight", LAYER(w_up), DIM_FF, DIM_EMBD, .must = FF_APART},
    {"ffn_up.weight", LAYER(w_gate), DIM_FF, DIM_EMBD, .must = FF_FUSED, .whole = DIM_GATE_UP},
    {"ffn_up.weight", LAYER(w_up), DIM_FF, DIM_EMBD, .must = FF_FUSED, .whole = DIM_GATE_UP,
     .at = DIM_FF},
    {"ffn_down.weight", LAYER(w_down), DIM_EMBD, DIM_FF, .must = DENSE},
    {"ffn_gate.bias", LAYER(b_gate), DIM_VECTOR, DIM_FF, .may = FF_APART},
    {"ffn_up.bias", LAYER(b_up), DIM_VECTOR, DIM_FF, .may = FF_APART},
    {"ffn_down.bias", LAYER(b_down), DIM_VECTOR, DIM_EMBD, .may = DENSE, .once = true},
    {"post_ffw_norm.weight", LAYER(ffn_post_norm), DIM_VECTOR, DIM_EMBD, .must = POST_NORM},
    {"ffn_gate_inp.weight", LAYER(router), DIM_EXPERTS, DIM_EMBD, .must = EXPERTS},
    {"ffn_gate_inp.bias", LAYER(router_bias), DIM_VECTOR, DIM_EXPERTS, .must = EXPERT_BIAS},
    {"ffn_gate_exps.weight", LAYER(e_gate), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS,
     .experts = true},
    {"ffn_up_exps.weight", LAYER(e_up), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS, .experts = true},
    {"ffn_down_exps.weight", LAYER(e_down), DIM_EMBD, DIM_FF_EXPERT, .must = EXPERTS,
     .experts = true},
    {"ffn_gate_exps.bias", LAYER(eb_gate), DIM_VECTOR, DIM_FF_EXPERT, .must = EXPERT_BIAS,
     .experts = true},
    {"ffn_up_exps.bias", LAYER(eb_up), DIM_VECTOR, DIM_FF_EXPERT, .must = EXPERT_BIAS,
     .experts = true},
    {"ffn_down_exps.bias", LAYER(eb_down), DIM_VECTOR, DIM_EMBD, .must = EXPERT_BIAS,
     .experts = true, .once = true},
    {"ffn_gate_inp_shexp.weight", LAYER(s_router), DIM_ONE, DIM_EMBD, .must = SHARED},
    {"ffn_gate_shexp.weight", LAYER(s_gate), DIM_FF_SHARED, DIM_EMBD, .must = SHARED},
    {"ffn_up_shexp.weight", LAYER(s_up), DIM_FF_SHARED, DIM_EMBD, .must = SHARED},
    {"ffn_down_shexp.weight", LAYER(s_down), DIM_EMBD, DIM_FF_SHARED, .must = SHARED},
};

/* Read by rope.c. */
static const char *const rope_tensors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                           "rope_factors_long.weight"};

enum {
    N_MODEL_ROWS = sizeof model_rows / sizeof model_rows[0],
    N_LAYER_ROWS = sizeof layer_rows / sizeof layer_rows[0],
    N_ROPE_TENSORS = sizeof rope_tensors / sizeof rope_tensors[0],
    N_LAYER_WEIGHTS = sizeof(struct model_layer) / sizeof(backend_weight *)
};

struct model_copy {
    struct model_copy *next;
    void *data;
};

/* What the table is read with. */
struct loader {
    const gguf *g;
    unsigned features;
    uint32_t n_layers;
    uint64_t dims[N_DIMS];
    backend *be;                       /* NULL: only check */
    struct model_weights *w;           /* likewise; NULL with be: only measure */
    uint64_t *measured;                /* bytes, then */
    struct model_range shares[N_DIMS]; /* likewise: what of dims is on this rank */
    bool tied, first, alone;           /* rank 0; of no group */
};

static unsigned features_of(const gguf *g, const struct model_hparams *hp,
                            const struct model_arch *a) {
    bool fused_qkv = gguf_tensor_find(g, "blk.0.attn_qkv.weight") != NULL;
    unsigned bits = ANY | (fused_qkv ? QKV_FUSED : QKV_APART);
    if (a->pre_norm) bits |= PRE_NORM;
    if (a->pre_norm) bits |= a->ffn_norm_is_post_attention ? POST_ATTENTION_FFN_NORM : FFN_NORM;
    if (a->post_norm) bits |= POST_NORM;
    if (a->qk_norm != MODEL_QK_NORM_NONE) bits |= QK_NORM;
    if (a->qkv_bias) bits |= fused_qkv ? QKV_FUSED_BIAS : QKV_APART_BIAS;
    if (a->output_bias) bits |= OUT_BIAS;
    if (a->sinks) bits |= SINKS;
    if (!hp->experts.n_experts) return bits | DENSE | (a->fused_gate_up ? FF_FUSED : FF_APART);
    bits |= EXPERTS;
    if (a->expert_biases) bits |= EXPERT_BIAS;
    if (a->shared_expert) bits |= SHARED;
    return bits;
}

static struct loader loader_of(const gguf *g, const struct model_hparams *hp,
                               const struct model_arch *a) {
    uint64_t heads = (uint64_t)hp->n_heads * hp->head_dim;
    uint64_t kv = (uint64_t)hp->n_kv_heads * hp->head_dim;
    bool rows = a->qk_norm == MODEL_QK_NORM_ROW;
    return (struct loader){.g = g,
                           .features = features_of(g, hp, a),
                           .n_layers = hp->n_layers,
                           .tied = hp->tied_embeddings,
                           .dims = {[DIM_VECTOR] = 1,
                                    [DIM_ONE] = 1,
                                    [DIM_EMBD] = hp->n_embd,
                                    [DIM_HEADS] = heads,
                                    [DIM_KV] = kv,
                                    [DIM_HEADS_KV] = heads + kv,
                                    [DIM_QKV] = heads + 2 * kv,
                                    [DIM_N_HEADS] = hp->n_heads,
                                    [DIM_Q_NORM] = rows ? heads : hp->head_dim,
                                    [DIM_K_NORM] = rows ? kv : hp->head_dim,
                                    [DIM_FF] = hp->n_ff,
                                    [DIM_GATE_UP] = 2 * (uint64_t)hp->n_ff,
                                    [DIM_EXPERTS] = hp->experts.n_experts,
                                    [DIM_FF_EXPERT] = hp->experts.n_ff,
                                    [DIM_FF_SHARED] = hp->experts.n_ff_shared,
                                    [DIM_VOCAB] = hp->n_vocab}};
}

/* ---- checks ---- */

static bool applies(const struct loader *l, const struct tensor_row *row) {
    return l->features & (row->must | row->may);
}

/* dims as in the file: fastest first. */
static void shape_of(const struct loader *l, const struct tensor_row *row, uint64_t dims[3]) {
    bool vector = row->n_out == DIM_VECTOR, whole = row->whole != DIM_VECTOR;
    uint64_t n_experts = row->experts ? l->dims[DIM_EXPERTS] : 1;
    dims[0] = l->dims[vector && whole ? row->whole : row->n_in];
    dims[1] = vector ? n_experts : l->dims[whole ? row->whole : row->n_out];
    dims[2] = vector ? 1 : n_experts;
}

static int check_tensor(const struct loader *l, const struct tensor_row *row, const char *name,
                        err *e) {
    const gguf_tensor *t = gguf_tensor_find(l->g, name);
    uint64_t dims[3];
    if (!t && !(l->features & row->must)) return 0;
    if (!t) return err_set_param(e, ERR_FORMAT, name, "%s: no tensor %s", gguf_path(l->g), name);
    shape_of(l, row, dims);
    if (t->dims[0] != dims[0] || t->dims[1] != dims[1] || t->dims[2] != dims[2] || t->n_dims > 3)
        return err_set_param(
            e, ERR_FORMAT, name,
            "%s: tensor %s has %u dimensions, first (%llu, %llu, %llu), not (%llu, %llu, %llu)",
            gguf_path(l->g), name, t->n_dims, (unsigned long long)t->dims[0],
            (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
            (unsigned long long)dims[0], (unsigned long long)dims[1], (unsigned long long)dims[2]);
    if (row->n_out == DIM_VECTOR && t->type != QTYPE_F32)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor %s is %s, not F32",
                             gguf_path(l->g), name, qtype_name(t->type));
    return 0;
}

/* Is name (not NUL-terminated) one that this model reads? */
static bool is_known(const struct loader *l, gguf_str name) {
    char text[64], rest[64];
    unsigned layer;
    if (name.len >= sizeof text) return false;
    memcpy(text, name.data, name.len);
    text[name.len] = '\0';
    for (size_t i = 0; i < N_ROPE_TENSORS; i++)
        if (strcmp(text, rope_tensors[i]) == 0) return true;
    for (size_t i = 0; i < N_MODEL_ROWS; i++)
        if (applies(l, &model_rows[i]) && strcmp(text, model_rows[i].name) == 0) return true;
    if (sscanf(text, "blk.%9u.%63s", &layer, rest) != 2 || layer >= l->n_layers) return false;
    for (size_t i = 0; i < N_LAYER_ROWS; i++)
        if (applies(l, &layer_rows[i]) && strcmp(rest, layer_rows[i].name) == 0) return true;
    return false;
}

static int refuse_unknown(const struct loader *l, err *e) {
    for (uint64_t i = 0; i < gguf_n_tensors(l->g); i++) {
        gguf_str name = gguf_tensor_at(l->g, i)->name;
        if (is_known(l, name)) continue;
        return err_set(e, ERR_UNSUPPORTED, "%s: tensor %.*s has no place in this architecture",
                       gguf_path(l->g), (int)(name.len < 96 ? name.len : 96), name.data);
    }
    return 0;
}

/* ---- loading ---- */

/* Bytes of a tensor that a weight is made of: n runs. */
struct runs {
    uint64_t n, first, bytes, stride;
};

/* In the file, or in memory of our own (*copy, else NULL). */
static int find_bytes(const struct loader *l, const gguf_tensor *t, const struct runs *r,
                      const void **data, void **copy, err *e) {
    const char *from = t->data ? (const char *)t->data + r->first : NULL;
    uint64_t bytes;
    int rc = 0;
    *copy = NULL;
    *data = from;
    if (from && r->n == 1) return 0;
    if (mem_mul(r->n, r->bytes, &bytes)) *data = *copy = mem_new_aligned(bytes);
    if (!*copy)
        return err_set(e, ERR_NOMEM, "no memory for tensor %.*s, %llu runs of %llu bytes",
                       (int)t->name.len, t->name.data, (unsigned long long)r->n,
                       (unsigned long long)r->bytes);
    char *to = *copy;
    for (uint64_t i = 0; i < r->n && !rc; i++, to += r->bytes)
        if (from)
            memcpy(to, from + i * r->stride, r->bytes);
        else
            rc = gguf_tensor_read(l->g, t, r->first + i * r->stride, r->bytes, to, e);
    if (rc) free(*copy);
    return rc;
}

static int keep(struct model_weights *w, void *copy, err *e) {
    struct model_copy *c = mem_new(1, sizeof *c);
    if (!c) {
        free(copy);
        return err_set(e, ERR_NOMEM, "no memory for the list of tensors");
    }
    *c = (struct model_copy){w->copies, copy};
    w->copies = c;
    return 0;
}

/* This rank's share of what the row takes from its tensor, in rows and columns. */
struct share {
    struct model_range rows, cols; /* of one expert; of a vector its one row */
    uint64_t row_cols, n_rows;     /* of the tensor: in a row; of one expert */
    uint64_t n_experts;            /* 1 of a plain one */
};

static struct share share_of(const struct loader *l, const struct tensor_row *row) {
    bool vector = row->n_out == DIM_VECTOR, whole = row->whole != DIM_VECTOR;
    uint64_t at = row->at == DIM_VECTOR ? 0 : l->dims[row->at];
    struct share s = {.rows = {0, l->dims[row->n_out]},
                      .cols = l->shares[row->n_in],
                      .row_cols = l->dims[vector && whole ? row->whole : row->n_in],
                      .n_rows = l->dims[whole && !vector ? row->whole : row->n_out],
                      .n_experts = row->experts ? l->dims[DIM_EXPERTS] : 1};
    if (!vector && row != &model_rows[0]) s.rows = l->shares[row->n_out]; /* the table is whole */
    if (vector)
        s.cols.first += at;
    else
        s.rows.first += at;
    return s;
}

/* false: the share cuts a block, or has no size. */
static bool find_runs(const struct share *s, int type, struct runs *out) {
    uint64_t row, first, rows, n;
    bool columns = s->cols.n != s->row_cols, all = s->rows.n == s->n_rows;
    if (!qtype_bytes(type, 1, s->row_cols, &row) || !qtype_bytes(type, 1, s->cols.first, &first) ||
        !qtype_bytes(type, 1, s->cols.n, &out->bytes) ||
        !mem_mul(s->rows.first, row, &out->first) || !mem_add(out->first, first, &out->first) ||
        !mem_mul(s->n_rows, row, &out->stride) || !mem_mul(s->rows.n, s->n_experts, &n))
        return false;
    out->n = s->n_experts;
    if (columns) { /* of all rows of all experts; a vector has one */
        out->n = n, out->stride = row;
        return all;
    }
    rows = s->rows.n;
    if (all) out->n = 1, rows = n; /* the experts lie behind each other */
    return mem_mul(rows, row, &out->bytes);
}

static int refuse_share(const struct loader *l, const struct share *s, const gguf_tensor *t,
                        err *e) {
    const struct qtype_info *type = qtype_find(t->type);
    return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                         "%s: tensor %.*s is %s in blocks of %u columns: a rank's %llu columns of "
                         "%llu are no whole number of them; choose another n_ranks",
                         gguf_path(l->g), (int)t->name.len, t->name.data, qtype_name(t->type),
                         type ? type->block_elems : 0, (unsigned long long)s->cols.n,
                         (unsigned long long)s->row_cols);
}

static int measure_tensor(const struct loader *l, const struct backend_weight_desc *desc, err *e) {
    uint64_t bytes;
    int rc = backend_weight_size(l->be, desc, &bytes, e);
    if (rc) return err_prefix(e, "%s: ", gguf_path(l->g));
    if (!mem_add(*l->measured, bytes, l->measured)) *l->measured = UINT64_MAX;
    return 0;
}

static int load_tensor(const struct loader *l, const struct tensor_row *row, const char *name,
                       backend_weight **out, err *e) {
    const gguf_tensor *t = gguf_tensor_find(l->g, name);
    bool vector = row->n_out == DIM_VECTOR, embed = row == &model_rows[0];
    struct runs runs;
    void *copy;
    if (!t) return 0;
    struct share share = share_of(l, row);
    struct backend_weight_desc desc = {.name = name,
                                       .type = t->type,
                                       .n_experts = row->experts ? l->dims[DIM_EXPERTS] : 0,
                                       .n_out = share.rows.n,
                                       .n_in = share.cols.n};
    desc.use = vector ? BACKEND_USE_VECTOR : embed ? BACKEND_USE_EMBED : BACKEND_USE_LINEAR;
    if (embed && l->tied && l->alone) desc.use |= BACKEND_USE_LINEAR;
    if (!find_runs(&share, t->type, &runs)) return refuse_share(l, &share, t, e);
    if (l->measured) return measure_tensor(l, &desc, e);
    int rc = find_bytes(l, t, &runs, &desc.data, &copy, e);
    if (!rc && (rc = backend_weight_new(l->be, &desc, out, e))) free(copy);
    if (rc) {
        err_prefix(e, "%s: ", gguf_path(l->g));
        return rc;
    }
    l->w->bytes += backend_weight_bytes(*out);
    bool own = desc.use == BACKEND_USE_LINEAR && backend_weight_bytes(*out) > 0;
    if (copy && !own) return keep(l->w, copy, e);
    free(copy);
    return 0;
}

static int one_tensor(const struct loader *l, const struct tensor_row *row, const char *name,
                      void *base, err *e) {
    if (!applies(l, row)) return 0;
    if (!l->be) return check_tensor(l, row, name, e);
    if (row->once && !l->first) return 0;
    backend_weight *none = NULL; /* stays so where weights are only measured */
    void *out = base ? (char *)base + row->offset : (void *)&none;
    return load_tensor(l, row, name, out, e);
}

/* A layer is read from the disk while the one before it is repacked. */
static void will_need_layer(const struct loader *l, uint32_t n) {
    for (size_t i = 0; l->w && n < l->n_layers && i < N_LAYER_ROWS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", n, layer_rows[i].name);
        const gguf_tensor *t = gguf_tensor_find(l->g, name);
        if (t) gguf_tensor_will_need(t);
    }
}

static int all_tensors(const struct loader *l, err *e) {
    will_need_layer(l, 0);
    for (size_t i = 0; i < N_MODEL_ROWS; i++) {
        int rc = one_tensor(l, &model_rows[i], model_rows[i].name, l->w, e);
        if (rc) return rc;
    }
    for (uint32_t n = 0; n < l->n_layers; n++) {
        will_need_layer(l, n + 1);
        for (size_t i = 0; i < N_LAYER_ROWS; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s", n, layer_rows[i].name);
            int rc = one_tensor(l, &layer_rows[i], name, l->w ? &l->w->layers[n] : NULL, e);
            if (rc) return rc;
        }
    }
    return 0;
}

int model_weights_check(const gguf *g, const struct model_hparams *hp,
                        const struct model_arch *arch, err *e) {
    struct loader l = loader_of(g, hp, arch);
    int rc = refuse_unknown(&l, e);
    return rc ? rc : all_tensors(&l, e);
}

static void set_shares(struct loader *l, const struct model_hparams *hp,
                       const struct model_part *p) {
    const uint64_t dim = hp->head_dim;
    for (int i = 0; i < N_DIMS; i++)
        l->shares[i] = (struct model_range){0, l->dims[i]};
    l->shares[DIM_HEADS] = (struct model_range){p->heads.first * dim, p->heads.n * dim};
    l->shares[DIM_KV] = (struct model_range){p->kv_heads.first * dim, p->kv_heads.n * dim};
    l->shares[DIM_N_HEADS] = p->heads;
    l->shares[DIM_FF] = p->ff;
    l->shares[DIM_FF_EXPERT] = p->ff_expert;
    l->shares[DIM_FF_SHARED] = p->ff_shared;
    l->shares[DIM_VOCAB] = p->vocab;
    l->first = p->rank == 0;
    l->alone = p->n_ranks < 2;
}

/* Tied embeddings: the table is the output's matrix too, or on a rank its share of it is. */
static int load_tied(const struct loader *l, err *e) {
    static const struct tensor_row share = {"token_embd.weight", MODEL(output), DIM_VOCAB, DIM_EMBD,
                                            .must = ANY};
    backend_weight *none = NULL;
    if (!l->alone) return load_tensor(l, &share, share.name, l->w ? &l->w->output : &none, e);
    if (l->w) l->w->output = l->w->embed;
    return 0;
}

int model_weights_measure(const gguf *g, const struct model_load *load, uint64_t *bytes, err *e) {
    struct loader l = loader_of(g, load->hp, load->arch);
    l.be = load->be;
    l.measured = bytes;
    *bytes = 0;
    set_shares(&l, load->hp, load->part);
    int rc = all_tensors(&l, e);
    return rc || !load->hp->tied_embeddings ? rc : load_tied(&l, e);
}

int model_weights_load(const gguf *g, const struct model_load *load, struct model_weights *w,
                       err *e) {
    const struct model_hparams *hp = load->hp;
    struct loader l = loader_of(g, hp, load->arch);
    l.be = load->be;
    l.w = w;
    set_shares(&l, hp, load->part);
    w->layers = mem_new(hp->n_layers, sizeof *w->layers);
    if (!w->layers) return err_set(e, ERR_NOMEM, "no memory for %u layers", hp->n_layers);
    w->n_layers = hp->n_layers;
    int rc = all_tensors(&l, e);
    if (!rc && hp->tied_embeddings) rc = load_tied(&l, e);
    return rc;
}

void model_weights_free(struct model_weights *w) {
    _Static_assert(sizeof(struct model_layer) % sizeof(backend_weight *) == 0, "weights alone");
    for (uint32_t n = 0; n < w->n_layers; n++)
        for (size_t i = 0; i < N_LAYER_WEIGHTS; i++)
            backend_weight_free(((backend_weight **)&w->layers[n])[i]);
    free(w->layers);
    if (w->output != w->embed) backend_weight_free(w->output);
    backend_weight_free(w->output_bias);
    backend_weight_free(w->output_norm);
    backend_weight_free(w->embed);
    while (w->copies) {
        struct model_copy *c = w->copies;
        w->copies = c->next;
        free(c->data);
        free(c);
    }
    memset(w, 0, sizeof *w);
}
