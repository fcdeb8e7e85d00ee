/* weights.c - turns the tensors of a file into weights on a backend, as planned by weights_plan.c.
 *
 * A weight may be rows of a larger tensor (fused Q, K and V; fused gate and up; a rank's share):
 * these are read in place. Bytes that the file does not have in place, or not in one piece
 * (columns; rows of every expert), are read into memory of our own, which stays for as long as a
 * weight reads it. */
#include "core/model/weights_int.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { N_LAYER_WEIGHTS = sizeof(struct model_layer) / sizeof(backend_weight *) };

struct model_copy {
    struct model_copy *next;
    void *data;
};

/* What the plan is walked with. */
struct loader {
    const struct weight_plan *plan;
    backend *be;
    struct model_weights *w;           /* NULL: only measure */
    uint64_t *measured;                /* bytes, then */
    const struct model_limits *limits; /* see struct model_load */
    struct model_range shares[N_DIMS]; /* the part of plan->dims that this rank has */
    bool tied, first, alone;           /* rank 0; the only rank */
};

/* The bytes of a tensor that make up a weight: n runs of `bytes`, `stride` apart. */
struct runs {
    uint64_t n, first, bytes, stride;
};

/* *data: the runs, in the file or in memory of our own (*copy; otherwise NULL). */
static int read_runs(const struct loader *l, const gguf_tensor *t, const struct runs *r,
                     const void **data, void **copy, err *e) {
    const char *from = t->data ? (const char *)t->data + r->first : NULL;
    uint64_t bytes;
    int rc = 0;
    *copy = NULL;
    *data = from;
    if (from && r->n == 1) return 0;
    if (mem_mul(r->n, r->bytes, &bytes)) *data = *copy = mem_new_aligned(bytes);
    if (!*copy)
        return err_set(e, ERR_NOMEM, "out of memory: tensor %.*s needs %llu runs of %llu bytes",
                       (int)t->name.len, t->name.data, (unsigned long long)r->n,
                       (unsigned long long)r->bytes);
    char *to = *copy;
    for (uint64_t i = 0; i < r->n && !rc; i++, to += r->bytes)
        if (from)
            memcpy(to, from + i * r->stride, r->bytes);
        else
            rc = gguf_tensor_read(l->plan->g, t, r->first + i * r->stride, r->bytes, to, e);
    if (rc) free(*copy);
    return rc;
}

static int keep_copy(struct model_weights *w, void *copy, err *e) {
    struct model_copy *c = mem_new(1, sizeof *c);
    if (!c) {
        free(copy);
        return err_no_memory(e);
    }
    *c = (struct model_copy){w->copies, copy};
    w->copies = c;
    return 0;
}

/* This rank's share of a weight, in rows and columns of its tensor. */
struct share {
    struct model_range rows, cols; /* of one expert; a vector is one row */
    uint64_t row_cols, n_rows;     /* of the tensor: columns of a row; rows of one expert */
    uint64_t n_experts;            /* 1 if it is not of experts */
};

static struct share find_share(const struct loader *l, const struct weight_role *role) {
    const uint64_t *dims = l->plan->dims;
    bool vector = role_is_vector(role), whole = role->whole != DIM_VECTOR;
    uint64_t at = role->at == DIM_VECTOR ? 0 : dims[role->at];
    struct share s = {.rows = {0, dims[role->n_out]},
                      .cols = l->shares[role->n_in],
                      .row_cols = dims[vector && whole ? role->whole : role->n_in],
                      .n_rows = dims[whole && !vector ? role->whole : role->n_out],
                      .n_experts = role->experts ? dims[DIM_EXPERTS] : 1};
    if (!vector && !role->embed) s.rows = l->shares[role->n_out];
    if (vector)
        s.cols.first += at;
    else
        s.rows.first += at;
    return s;
}

/* false: the share cuts a quantization block, or has no size. */
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
    if (all) out->n = 1, rows = n; /* experts are stored one after the other */
    return mem_mul(rows, row, &out->bytes);
}

static int refuse_share(const struct loader *l, const struct share *s, const gguf_tensor *t,
                        err *e) {
    const struct qtype_info *type = qtype_find(t->type);
    return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                         "%s: tensor %.*s is %s in blocks of %u columns: a rank's %llu columns of "
                         "%llu are not a whole number of blocks; choose another n_ranks",
                         gguf_path(l->plan->g), (int)t->name.len, t->name.data, qtype_name(t->type),
                         type ? type->block_elems : 0, (unsigned long long)s->cols.n,
                         (unsigned long long)s->row_cols);
}

static int measure_weight(const struct loader *l, const struct backend_weight_desc *desc, err *e) {
    uint64_t bytes;
    int rc = backend_weight_size(l->be, desc, &bytes, e);
    if (rc) return err_prefix(e, "%s: ", gguf_path(l->plan->g));
    if (!mem_add(*l->measured, bytes, l->measured)) *l->measured = UINT64_MAX;
    return 0;
}

/* Loads the rank's share of tensor t in a role as *out, or measures it. */
static int load_weight(const struct loader *l, const struct weight_role *role, const char *name,
                       const gguf_tensor *t, backend_weight **out, err *e) {
    struct share share = find_share(l, role);
    struct runs runs;
    void *copy;
    struct backend_weight_desc desc = {.name = name,
                                       .type = t->type,
                                       .n_experts = role->experts ? share.n_experts : 0,
                                       .n_out = share.rows.n,
                                       .n_in = share.cols.n};
    desc.use = role_is_vector(role) ? BACKEND_USE_VECTOR
               : role->embed        ? BACKEND_USE_EMBED
                                    : BACKEND_USE_LINEAR;
    if (role->embed && l->tied && l->alone) desc.use |= BACKEND_USE_LINEAR;
    if (!find_runs(&share, t->type, &runs)) return refuse_share(l, &share, t, e);
    if (l->measured) return measure_weight(l, &desc, e);
    int rc = read_runs(l, t, &runs, &desc.data, &copy, e);
    if (!rc && (rc = backend_weight_new(l->be, &desc, out, e))) free(copy);
    if (rc) {
        err_prefix(e, "%s: ", gguf_path(l->plan->g));
        return rc;
    }
    l->w->bytes += backend_weight_bytes(*out);
    bool own = desc.use == BACKEND_USE_LINEAR && backend_weight_bytes(*out) > 0;
    if (copy && !own) return keep_copy(l->w, copy, e);
    free(copy);
    return 0;
}

static int load_planned(const struct loader *l, const struct planned_weight *w, err *e) {
    char name[WEIGHT_NAME_BYTES];
    backend_weight *none = NULL; /* stays NULL when weights are only measured */
    void *base = !l->w                         ? NULL
                 : w->layer == WEIGHT_NO_LAYER ? (void *)l->w
                                               : &l->w->layers[w->layer];
    if (!w->tensor || (w->role->once && !l->first)) return 0;
    planned_weight_name(w, name);
    void *out = base ? (char *)base + w->role->offset : (void *)&none;
    return load_weight(l, w->role, name, w->tensor, out, e);
}

/* A layer is read from the disk while the previous one is repacked. */
static void read_ahead(const struct loader *l, uint32_t layer) {
    const struct weight_plan *p = l->plan;
    if (!l->w || layer >= p->n_layers) return;
    for (uint32_t i = p->first[layer]; i < p->first[layer + 1]; i++)
        if (p->all[i].tensor) gguf_tensor_will_need(p->all[i].tensor);
}

static uint64_t planned_bytes(const struct weight_plan *p) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->all[i].tensor) sum += p->all[i].tensor->bytes;
    return sum;
}

/* Says that done of total bytes are loaded. ERR_CANCELLED. */
static int report_load(const struct loader *l, uint64_t done, uint64_t total, err *e) {
    const struct model_limits *to = l->limits;
    if (!to || !to->on_load || !l->w || !l->first || !to->on_load(to->on_load_arg, done, total))
        return 0;
    return err_set(e, ERR_CANCELLED, "loading was cancelled");
}

static int load_all(const struct loader *l, err *e) {
    const struct weight_plan *p = l->plan;
    uint64_t done = 0, total = planned_bytes(p);
    read_ahead(l, 0);
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t layer = p->all[i].layer;
        if (layer != WEIGHT_NO_LAYER && i == p->first[layer]) read_ahead(l, layer + 1);
        int rc = load_planned(l, &p->all[i], e);
        if (p->all[i].tensor) done += p->all[i].tensor->bytes;
        if (!rc) rc = report_load(l, done, total, e);
        if (rc) return rc;
    }
    return 0;
}

/* Tied embeddings: the table is also the output head; on a rank of a group its share of the table
 * is. */
static int load_tied(const struct loader *l, err *e) {
    static const struct weight_role output = {.n_out = DIM_VOCAB, .n_in = DIM_EMBD};
    const struct planned_weight *table = &l->plan->all[0];
    backend_weight *none = NULL;
    if (!l->alone)
        return load_weight(l, &output, table->role->name, table->tensor,
                           l->w ? &l->w->output : &none, e);
    if (l->w) l->w->output = l->w->embed;
    return 0;
}

static struct loader make_loader(const struct weight_plan *plan, const struct model_load *load) {
    const struct model_part *p = load->part;
    const uint64_t dim = load->hp->head_dim;
    struct loader l = {.plan = plan,
                       .be = load->be,
                       .limits = load->limits,
                       .tied = load->hp->tied_embeddings,
                       .first = p->rank == 0,
                       .alone = p->n_ranks < 2};
    for (int i = 0; i < N_DIMS; i++)
        l.shares[i] = (struct model_range){0, plan->dims[i]};
    l.shares[DIM_HEADS] = (struct model_range){p->heads.first * dim, p->heads.n * dim};
    l.shares[DIM_KV] = (struct model_range){p->kv_heads.first * dim, p->kv_heads.n * dim};
    l.shares[DIM_N_HEADS] = p->heads;
    l.shares[DIM_FF] = p->ff;
    l.shares[DIM_FF_EXPERT] = p->ff_expert;
    l.shares[DIM_FF_SHARED] = p->ff_shared;
    l.shares[DIM_VOCAB] = p->vocab;
    return l;
}

static int walk_plan(const gguf *g, const struct model_load *load, struct model_weights *w,
                     uint64_t *measured, err *e) {
    struct weight_plan plan;
    int rc = weight_plan_make(&plan, g, load->hp, load->arch, e);
    if (rc) return rc;
    struct loader l = make_loader(&plan, load);
    l.w = w;
    l.measured = measured;
    rc = load_all(&l, e);
    if (!rc && l.tied) rc = load_tied(&l, e);
    weight_plan_free(&plan);
    return rc;
}

int model_weights_measure(const gguf *g, const struct model_load *load, uint64_t *bytes, err *e) {
    *bytes = 0;
    return walk_plan(g, load, NULL, bytes, e);
}

int model_weights_load(const gguf *g, const struct model_load *load, struct model_weights *w,
                       err *e) {
    w->layers = mem_new(load->hp->n_layers, sizeof *w->layers);
    if (!w->layers) return err_no_memory(e);
    w->n_layers = load->hp->n_layers;
    return walk_plan(g, load, w, NULL, e);
}

void model_weights_free(struct model_weights *w) {
    _Static_assert(sizeof(struct model_layer) % sizeof(backend_weight *) == 0, "only weights");
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
