/* weights.c - turns the tensors of a file into weights on a backend, as planned by weights_plan.c.
 *
 * A weight may be rows of a larger tensor (fused Q, K and V; fused gate and up; a rank's share):
 * these are read in place, if they are in one piece. Bytes that the file does not have in place, or
 * not in one piece (columns; rows of every expert), are read into memory of our own, which stays
 * for as long as a weight reads it. */
#include "core/model/weights_int.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/formats/imatrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_LAYER_WEIGHTS = sizeof(struct model_layer) / sizeof(backend_weight *) };

struct model_copy {
    struct model_copy *next;
    void *data;
};

/* Elements of a dimension: n runs of `each`, `stride` apart. */
struct span {
    uint64_t n, first, each, stride;
};

/* Those that a rank has; entries without elements are not used. */
struct share {
    struct span all[WEIGHT_MAX_PIECES];
};

/* What the plan is walked with. */
struct loader {
    const struct weight_plan *plan;
    const struct model_part *part;
    backend *be;
    struct model_weights *w;           /* NULL: only measure */
    uint64_t *measured;                /* bytes, then */
    const struct model_limits *limits; /* see struct model_load */
    struct share shares[N_DIMS];       /* the part of plan->dims that this rank has */
    bool tied, first, alone;           /* rank 0; the only rank */
};

/* Bytes of a tensor: of each of `rows` rows, `row` bytes apart, n runs of `bytes`, `stride` apart.
 */
struct runs {
    uint64_t rows, row, n, first, bytes, stride;
};

/* Those that make up a weight. */
struct pieces {
    struct runs all[WEIGHT_MAX_PIECES];
    uint32_t n;
};

static int copy_runs(const struct loader *l, const gguf_tensor *t, const struct runs *r, char *to,
                     err *e) {
    int rc = 0;
    for (uint64_t i = 0; i < r->rows * r->n && !rc; i++, to += r->bytes) {
        uint64_t at = r->first + i / r->n * r->row + i % r->n * r->stride;
        if (t->data)
            memcpy(to, (const char *)t->data + at, r->bytes);
        else
            rc = gguf_tensor_read(l->plan->g, t, at, r->bytes, to, e);
    }
    return rc;
}

/* *data: the pieces, in the file or in memory of our own (*copy; otherwise NULL). */
static int read_pieces(const struct loader *l, const gguf_tensor *t, const struct pieces *p,
                       const void **data, void **copy, err *e) {
    uint64_t bytes = 0, one = 0;
    bool fits = true;
    int rc = 0;
    *copy = NULL;
    *data = t->data ? (const char *)t->data + p->all[0].first : NULL;
    if (t->data && p->n == 1 && p->all[0].n == 1 && p->all[0].rows == 1) return 0;
    for (uint32_t i = 0; i < p->n; i++)
        fits = fits && mem_mul(p->all[i].rows * p->all[i].n, p->all[i].bytes, &one) &&
               mem_add(bytes, one, &bytes);
    if (fits) *data = *copy = mem_new_aligned(bytes);
    if (!*copy)
        return err_set(e, ERR_NOMEM,
                       "out of memory: %llu bytes of tensor %.*s are not in one piece",
                       (unsigned long long)bytes, (int)t->name.len, t->name.data);
    char *to = *copy;
    for (uint32_t i = 0; i < p->n && !rc; i++) {
        rc = copy_runs(l, t, &p->all[i], to, e);
        to += p->all[i].rows * p->all[i].n * p->all[i].bytes;
    }
    if (rc) free(*copy);
    return rc;
}

/* Replaces desc->data, blocks of a file's type, by blocks of desc->type, qtype_wide of it, in
 * memory of our own (*copy, instead of the copy that was there). */
static int widen_copy(int type, struct backend_weight_desc *desc, void **copy, err *e) {
    uint64_t rows = desc->n_out * (desc->n_experts ? desc->n_experts : 1), bytes = 0;
    void *wide = NULL;
    if (qtype_bytes(desc->type, rows, desc->n_in, &bytes)) wide = mem_new_aligned(bytes);
    if (wide) qtype_widen(type, desc->data, wide, rows * desc->n_in);
    free(*copy);
    desc->data = *copy = wide;
    return wide ? 0
                : err_set(e, ERR_NOMEM, "out of memory: tensor %s needs %llu bytes as it is loaded",
                          desc->name, (unsigned long long)bytes);
}

/* Replaces desc->data, rows of heads of v_dim dimensions, by those of heads of head_dim, in memory
 * of our own (*copy, as in widen_copy). Blocks of zeros are zeros in every type. */
static int pad_heads(const struct model_hparams *hp, int type, struct backend_weight_desc *desc,
                     void **copy, err *e) {
    const uint64_t n_heads = desc->n_out / hp->v_dim;
    uint64_t bytes, from, to;
    char *wide = NULL;
    if (qtype_bytes(type, n_heads * hp->head_dim, desc->n_in, &bytes) &&
        qtype_bytes(type, hp->v_dim, desc->n_in, &from) &&
        qtype_bytes(type, hp->head_dim, desc->n_in, &to))
        wide = mem_new_aligned(bytes);
    for (uint64_t h = 0; wide && h < n_heads; h++) {
        memcpy(wide + h * to, (const char *)desc->data + h * from, from);
        memset(wide + h * to + from, 0, to - from);
    }
    free(*copy);
    desc->data = *copy = wide;
    desc->n_out = n_heads * hp->head_dim;
    return wide ? 0 : err_no_memory(e);
}

/* Multiplies each of n_parts equal parts of n widened NVFP4 values (exact in BF16) by its scale. */
static int scale_parts(const struct loader *l, const gguf_tensor *scales, uint16_t *values,
                       uint64_t n, err *e) {
    const uint64_t n_parts = scales->n_elems;
    int rc = 0;
    for (uint64_t part = 0; part < n_parts && !rc; part++) {
        float by;
        rc = gguf_tensor_read(l->plan->g, scales, part * sizeof by, sizeof by, &by, e);
        if (rc || by == 1) continue;
        uint16_t *at = values + part * (n / n_parts);
        for (uint64_t i = 0; i < n / n_parts; i++)
            at[i] = f32_to_bf16(bf16_to_f32(at[i]) * by);
    }
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

static struct share one_span(uint64_t first, uint64_t n) {
    return (struct share){{{.n = 1, .first = first, .each = n}}};
}

static uint64_t share_size(const struct share *s) {
    uint64_t n = 0;
    for (int i = 0; i < WEIGHT_MAX_PIECES; i++)
        n += s->all[i].n * s->all[i].each;
    return n;
}

/* This rank's part of a weight, in rows and columns of its tensor. */
struct part {
    struct share rows, cols;   /* of one expert; a vector is one row */
    uint64_t row_cols, n_rows; /* of the tensor: columns of a row; rows of one expert */
    uint64_t n_experts;        /* 1 if it is not of experts */
    /* In groups: the weight's rows in one of the tensor's groups, the first of them, a group's
     * rows, the groups of this rank. rows_each 0: not in groups. */
    uint64_t rows_each, at, group;
    struct span groups;
};

/* Has each head of attention an equal part of the dimension? */
static bool is_of_heads(enum weight_dim dim) {
    return dim == DIM_N_HEADS || dim == DIM_HEADS || dim == DIM_KV || dim == DIM_V ||
           dim == DIM_ATTENDED || dim == DIM_GATES || dim == DIM_WINDOW_HEADS ||
           dim == DIM_WINDOW_KV;
}

/* A rank's part of a dimension. Each layer's heads are shared out evenly. */
static struct share share_of(const struct loader *l, uint32_t layer, enum weight_dim dim) {
    const uint64_t all = weight_plan_dim(l->plan, layer, dim), each = all / l->part->n_ranks;
    if (l->alone) return one_span(0, all);
    return is_of_heads(dim) ? one_span(each * l->part->rank, each) : l->shares[dim];
}

static struct part find_part(const struct loader *l, const struct weight_role *role,
                             uint32_t layer) {
    const struct weight_plan *plan = l->plan;
    const uint64_t *dims = plan->dims;
    bool vector = role_is_vector(role), whole = role->whole != DIM_VECTOR;
    uint64_t at = role->at == DIM_VECTOR ? 0 : weight_plan_dim(plan, layer, role->at);
    struct part p = {
        .rows = one_span(0, weight_plan_dim(plan, layer, role->n_out)),
        .cols = share_of(l, layer, role->n_in),
        .row_cols = weight_plan_dim(plan, layer, vector && whole ? role->whole : role->n_in),
        .n_rows = weight_plan_dim(plan, layer, whole && !vector ? role->whole : role->n_out),
        .n_experts = role->experts ? dims[DIM_EXPERTS] : 1};
    if (!vector && !role->embed) p.rows = share_of(l, layer, role->n_out);
    if (role->groups != DIM_VECTOR) {
        p.rows_each = dims[role->n_out] / dims[role->groups];
        p.group = p.n_rows / dims[role->groups];
        p.at = at;
        p.groups = share_of(l, layer, role->groups).all[0];
        return p;
    }
    struct share *moved = vector ? &p.cols : &p.rows;
    for (int i = 0; i < WEIGHT_MAX_PIECES; i++)
        moved->all[i].first += at;
    return p;
}

/* A rank's share is whole groups. */
static bool find_grouped_runs(const struct part *p, int type, struct runs *out) {
    *out = (struct runs){.rows = 1, .n = p->groups.each};
    return share_size(&p->cols) == p->row_cols &&
           qtype_bytes(type, p->groups.first * p->group + p->at, p->row_cols, &out->first) &&
           qtype_bytes(type, p->rows_each, p->row_cols, &out->bytes) &&
           qtype_bytes(type, p->group, p->row_cols, &out->stride);
}

/* Columns of all rows of all experts; a vector has one row. */
static bool find_column_runs(const struct part *p, int type, struct pieces *out) {
    const uint64_t n_rows = p->n_rows * p->n_experts;
    for (int i = 0; i < WEIGHT_MAX_PIECES; i++) {
        const struct span *s = &p->cols.all[i];
        struct runs *r = &out->all[out->n];
        if (!s->n || !s->each) continue;
        *r = (struct runs){.rows = n_rows, .n = s->n};
        if (!qtype_bytes(type, 1, p->row_cols, &r->row) ||
            !qtype_bytes(type, 1, s->first, &r->first) ||
            !qtype_bytes(type, 1, s->each, &r->bytes) ||
            !qtype_bytes(type, 1, s->stride, &r->stride))
            return false;
        out->n++;
    }
    return share_size(&p->rows) == p->n_rows && (out->n < 2 || n_rows == 1);
}

/* Whole rows; those of experts, which are stored one after the other, are one span. */
static bool find_row_runs(const struct part *p, int type, struct pieces *out) {
    const bool all = share_size(&p->rows) == p->n_rows;
    for (int i = 0; i < WEIGHT_MAX_PIECES; i++) {
        const struct span *s = &p->rows.all[i];
        struct runs *r = &out->all[out->n];
        if (!s->n || !s->each) continue;
        *r = (struct runs){.rows = p->n_experts, .n = s->n};
        if (!qtype_bytes(type, p->n_rows, p->row_cols, &r->row) ||
            !qtype_bytes(type, s->first, p->row_cols, &r->first) ||
            !qtype_bytes(type, s->each, p->row_cols, &r->bytes) ||
            !qtype_bytes(type, s->stride, p->row_cols, &r->stride))
            return false;
        out->n++;
    }
    if (out->n == 1 && out->all[0].n == 1 && all) {
        struct runs *r = &out->all[0];
        r->rows = 1;
        return mem_mul(r->bytes, p->n_experts, &r->bytes);
    }
    return out->n < 2 || p->n_experts == 1;
}

/* false: the part cuts a quantization block, or has no size. */
static bool find_runs(const struct part *p, int type, struct pieces *out) {
    if (p->rows_each) return find_grouped_runs(p, type, &out->all[out->n++]);
    return share_size(&p->cols) == p->row_cols ? find_row_runs(p, type, out)
                                               : find_column_runs(p, type, out);
}

/* *part: as from find_part, for all rows. */
static bool find_pieces(const struct loader *l, const struct planned_weight *w, struct part *part,
                        struct pieces *out) {
    const struct weight_role *role = w->role;
    const int type = w->tensor->type;
    *part = find_part(l, role, w->layer);
    out->n = 0;
    if (!role->pieces) return find_runs(part, type, out);
    for (int i = 0; i < WEIGHT_MAX_PIECES && role->pieces[i].n_out != DIM_VECTOR; i++) {
        struct weight_role one = *role;
        one.n_out = role->pieces[i].n_out;
        one.at = role->pieces[i].at;
        struct part rows = find_part(l, &one, w->layer);
        if (!find_grouped_runs(&rows, type, &out->all[out->n++])) return false;
    }
    return true;
}

static int refuse_part(const struct loader *l, const struct part *p, const gguf_tensor *t, err *e) {
    const struct qtype_info *type = qtype_find(t->type);
    return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                         "%s: tensor %.*s is %s in blocks of %u columns: a rank's %llu columns of "
                         "%llu are not a whole number of blocks; choose another n_ranks",
                         gguf_path(l->plan->g), (int)t->name.len, t->name.data, qtype_name(t->type),
                         type ? type->block_elems : 0, (unsigned long long)share_size(&p->cols),
                         (unsigned long long)p->row_cols);
}

static int measure_weight(const struct loader *l, const struct backend_weight_desc *desc, err *e) {
    uint64_t bytes;
    int rc = backend_weight_size(l->be, desc, &bytes, e);
    if (rc) return err_prefix(e, "%s: ", gguf_path(l->plan->g));
    if (!mem_add(*l->measured, bytes, l->measured)) *l->measured = UINT64_MAX;
    return 0;
}

/* Makes a weight of desc, whose data is a copy or (copy NULL) the file's; takes the copy. */
static int make_weight(const struct loader *l, const struct backend_weight_desc *desc, void *copy,
                       backend_weight **out, err *e) {
    int rc = backend_weight_new(l->be, desc, out, e);
    if (rc) {
        free(copy);
        err_prefix(e, "%s: ", gguf_path(l->plan->g));
        return rc;
    }
    l->w->bytes += backend_weight_bytes(*out);
    bool own = desc->use == BACKEND_USE_LINEAR && backend_weight_bytes(*out) > 0;
    if (copy && !own) return keep_copy(l->w, copy, e);
    free(copy);
    return 0;
}

/* attn_kv_b's K, transposed head by head; models with it have one rank. */
static int load_turned(const struct loader *l, const struct weight_role *role, const char *name,
                       const gguf_tensor *t, backend_weight **out, err *e) {
    const uint64_t *dims = l->plan->dims, n_heads = dims[DIM_N_HEADS];
    const struct model_mla_turn turn = {.from = t,
                                        .n_heads = n_heads,
                                        .group = dims[role->whole] / n_heads,
                                        .n_in = dims[DIM_K_NOPE],
                                        .n_out = dims[role->n_out] / n_heads};
    struct backend_weight_desc desc = {.name = name,
                                       .type = model_mla_k_type(t->type),
                                       .use = BACKEND_USE_LINEAR,
                                       .n_experts = n_heads,
                                       .n_out = turn.n_out,
                                       .n_in = turn.n_in};
    uint64_t bytes;
    if (l->measured) return measure_weight(l, &desc, e);
    void *copy = qtype_bytes(desc.type, n_heads * turn.n_out, turn.n_in, &bytes)
                     ? mem_new_aligned(bytes)
                     : NULL;
    if (!copy) return err_no_memory(e);
    int rc = model_mla_turn(l->plan->g, &turn, copy, e);
    if (rc) {
        free(copy);
        return rc;
    }
    desc.data = copy;
    return make_weight(l, &desc, copy, out, e);
}

/* A vector times (its length)^-1/2; models with one have one rank. */
static int load_by_root(const struct loader *l, const struct weight_role *role, const char *name,
                        const gguf_tensor *t, backend_weight **out, err *e) {
    const uint64_t n = l->plan->dims[role->n_in];
    struct backend_weight_desc desc = {
        .name = name, .type = QTYPE_F32, .use = BACKEND_USE_VECTOR, .n_out = 1, .n_in = n};
    if (l->measured) return measure_weight(l, &desc, e);
    float *copy = mem_new_aligned(n * sizeof *copy);
    if (!copy) return err_no_memory(e);
    int rc = gguf_tensor_read(l->plan->g, t, 0, n * sizeof *copy, copy, e);
    if (rc) {
        free(copy);
        return rc;
    }
    for (uint64_t i = 0; i < n; i++)
        copy[i] /= sqrtf((float)n);
    desc.data = copy;
    return make_weight(l, &desc, copy, out, e);
}

/* Loads the rank's share of a planned weight as *out, or measures it. */
static int load_weight(const struct loader *l, const struct planned_weight *w, const char *name,
                       backend_weight **out, err *e) {
    const struct weight_role *role = w->role;
    const gguf_tensor *t = w->tensor;
    struct part part;
    struct pieces pieces;
    void *copy;
    if (role->turned) return load_turned(l, role, name, t, out, e);
    if (role->by_root) return load_by_root(l, role, name, t, out, e);
    bool whole = find_pieces(l, w, &part, &pieces);
    struct backend_weight_desc desc = {.name = name,
                                       .type = qtype_wide(t->type),
                                       .n_experts = role->experts ? part.n_experts : 0,
                                       .n_out = share_size(&part.rows),
                                       .n_in = share_size(&part.cols)};
    desc.use = role_is_vector(role) ? BACKEND_USE_VECTOR
               : role->embed        ? BACKEND_USE_EMBED
                                    : BACKEND_USE_LINEAR;
    if (role->by_head) {
        desc.n_experts = l->plan->dims[DIM_N_HEADS];
        desc.n_out /= desc.n_experts;
    }
    const bool tokens = role->embed && role->offset == offsetof(struct model_weights, embed);
    if (tokens && l->tied && l->alone && l->part->ends) desc.use |= BACKEND_USE_LINEAR;
    if (!whole) return refuse_part(l, &part, t, e);
    const struct model_hparams *hp = l->plan->hp;
    const bool pads = role->padded && hp->v_dim;
    if (l->measured && pads) desc.n_out = desc.n_out / hp->v_dim * hp->head_dim;
    if (l->measured) return measure_weight(l, &desc, e);
    int rc = read_pieces(l, t, &pieces, &desc.data, &copy, e);
    if (!rc && pads) rc = pad_heads(hp, t->type, &desc, &copy, e);
    if (!rc && desc.type != t->type) rc = widen_copy(t->type, &desc, &copy, e);
    const gguf_tensor *scales = t->type == QTYPE_NVFP4 ? model_nvfp4_scales(l->plan->g, t) : NULL;
    if (!rc && scales) {
        rc = scale_parts(l, scales, copy,
                         desc.n_out * desc.n_in * (desc.n_experts ? desc.n_experts : 1), e);
        if (rc) free(copy);
    }
    if (rc) {
        err_prefix(e, "%s: ", gguf_path(l->plan->g));
        return rc;
    }
    return make_weight(l, &desc, copy, out, e);
}

/* Watches what a layer's matrix reads. A tensor of several weights has one entry, by the first. */
static int watch_weight(const struct loader *l, const struct planned_weight *planned,
                        backend_weight *w, err *e) {
    const gguf_tensor *t = planned->tensor;
    const struct weight_role *role = planned->role;
    char name[WEIGHT_NAME_BYTES];
    struct imatrix_entry *entry;
    if (role_is_vector(role) || role->embed || role->turned || planned->layer == WEIGHT_NO_LAYER ||
        weight_plan_dim(l->plan, planned->layer, role->n_in) != t->dims[0])
        return 0;
    planned_weight_name(planned, name);
    int rc = imatrix_add(l->limits->importance, name, t->dims[0], t->dims[2], &entry, e);
    if (rc || !entry) return rc;
    return backend_weight_watch(w,
                                &(struct backend_watch){.sums = entry->sums,
                                                        .counts = entry->counts,
                                                        .n_groups = entry->n_mats},
                                e);
}

/* Is it of the stage's layers, or does the first stage or the last one have it? */
static bool is_own(const struct loader *l, const struct planned_weight *w) {
    const struct model_range *own = &l->part->layers;
    if (w->layer != WEIGHT_NO_LAYER)
        return w->layer >= own->first && w->layer < own->first + own->n;
    const size_t at = w->role->offset;
    const bool input = w->role->embed || at == offsetof(struct model_weights, embed_norm) ||
                       at == offsetof(struct model_weights, embed_norm_bias);
    return input ? l->part->embeds : l->part->ends;
}

static int load_planned(const struct loader *l, const struct planned_weight *w, err *e) {
    char name[WEIGHT_NAME_BYTES];
    backend_weight *none = NULL; /* stays NULL when weights are only measured */
    if (!w->tensor || (w->role->once && !l->first) || !is_own(l, w)) return 0;
    void *base = !l->w                         ? NULL
                 : w->layer == WEIGHT_NO_LAYER ? (void *)l->w
                                               : &l->w->layers[w->layer - l->part->layers.first];
    planned_weight_name(w, name);
    void *out = base ? (char *)base + w->role->offset : (void *)&none;
    int rc = load_weight(l, w, name, out, e);
    if (rc || !l->w || !l->limits || !l->limits->importance) return rc;
    return watch_weight(l, w, *(backend_weight **)out, e);
}

/* A layer is read from the disk while the previous one is repacked. */
static void read_ahead(const struct loader *l, uint32_t layer) {
    const struct weight_plan *p = l->plan;
    const struct model_range *own = &l->part->layers;
    if (!l->w || layer < own->first || layer >= own->first + own->n) return;
    for (uint32_t i = p->first[layer]; i < p->first[layer + 1]; i++)
        if (p->all[i].tensor) gguf_tensor_will_need(p->all[i].tensor);
}

static uint64_t own_bytes(const struct loader *l, const struct planned_weight *w) {
    return w->tensor && is_own(l, w) ? w->tensor->bytes : 0;
}

static uint64_t planned_bytes(const struct loader *l) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < l->plan->n; i++)
        sum += own_bytes(l, &l->plan->all[i]);
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
    uint64_t done = 0, total = planned_bytes(l);
    read_ahead(l, (uint32_t)l->part->layers.first);
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t layer = p->all[i].layer;
        if (layer != WEIGHT_NO_LAYER && i == p->first[layer]) read_ahead(l, layer + 1);
        int rc = load_planned(l, &p->all[i], e);
        done += own_bytes(l, &p->all[i]);
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
    const struct planned_weight head = {&output, table->tensor, WEIGHT_NO_LAYER};
    if (!l->part->ends) return 0;
    if (!l->alone || !l->part->embeds)
        return load_weight(l, &head, table->role->name, l->w ? &l->w->output : &none, e);
    if (l->w) l->w->output = l->w->embed;
    return 0;
}

/* A rank's heads of K and V, and the channels that are made of them. */
static void find_recurrent_shares(const struct model_part *p, const struct model_recurrent *r,
                                  const uint64_t *dims, struct share *out) {
    const uint64_t first = p->k_heads.first * r->k_dim, n = p->k_heads.n * r->k_dim;
    const uint64_t keys = dims[DIM_KEYS], values = dims[DIM_VALUES], k_at = r->mamba2 ? values : 0;
    /* Tiled V heads follow each other as the K heads do, several times. */
    struct span heads = {.n = 1, .first = p->v_heads.first, .each = p->v_heads.n};
    if (r->tiled)
        heads = (struct span){r->n_v_heads / r->n_k_heads, p->k_heads.first, p->k_heads.n,
                              r->n_k_heads};
    struct span v = {heads.n, heads.first * r->v_dim, heads.each * r->v_dim,
                     heads.stride * r->v_dim};
    out[DIM_K_HEADS] = one_span(p->k_heads.first, p->k_heads.n);
    out[DIM_KEYS] = one_span(first, n);
    out[DIM_V_HEADS].all[0] = heads;
    out[DIM_VALUES].all[0] = v;
    if (p->gathers)
        out[DIM_OUT_EMBD] = one_span(p->out_rows.first, p->out_rows.n);
    else
        out[DIM_OUT_VALUES].all[0] = v;
    if (!r->mamba2) v.first += 2 * keys;
    const struct span q = {1, k_at + first, n, 0}, k = {1, k_at + keys + first, n, 0};
    out[DIM_CHANNELS] = r->mamba2 ? (struct share){{v, q, k}} : (struct share){{q, k, v}};
    out[DIM_CONV] = out[DIM_CHANNELS];
}

static void find_channel_shares(const struct model_part *p, const struct model_recurrent *r,
                                struct share *out) {
    const uint64_t first = p->channels.first, n = p->channels.n, all = r->channels;
    out[DIM_SHORT] = out[DIM_CONV] = one_span(first, n);
    out[DIM_BCX] =
        (struct share){{{1, first, n, 0}, {1, all + first, n, 0}, {1, 2 * all + first, n, 0}}};
}

static struct loader make_loader(const struct weight_plan *plan, const struct model_load *load) {
    const struct model_part *p = load->part;
    const struct model_recurrent *r = &load->hp->recurrent;
    struct loader l = {.plan = plan,
                       .part = p,
                       .be = load->be,
                       .limits = load->limits,
                       .tied = load->hp->tied_embeddings,
                       .first = p->rank == 0,
                       .alone = p->n_ranks < 2};
    for (int i = 0; i < N_DIMS; i++)
        l.shares[i] = one_span(0, plan->dims[i]);
    if (l.alone) return l;
    l.shares[DIM_FF] = one_span(p->ff.first, p->ff.n);
    l.shares[DIM_FF_SHARED_KV] = one_span(p->ff_shared_kv.first, p->ff_shared_kv.n);
    l.shares[DIM_FF_EXPERT] = one_span(p->ff_expert.first, p->ff_expert.n);
    l.shares[DIM_FF_SHARED] = one_span(p->ff_shared.first, p->ff_shared.n);
    l.shares[DIM_VOCAB] = one_span(p->vocab.first, p->vocab.n);
    if (!r->n_layers) return l;
    if (r->channels)
        find_channel_shares(p, r, l.shares);
    else
        find_recurrent_shares(p, r, plan->dims, l.shares);
    for (int i = 0; i < WEIGHT_MAX_PIECES; i++) {
        struct span *s = &l.shares[DIM_CONV].all[i];
        s->first *= r->n_taps, s->each *= r->n_taps, s->stride *= r->n_taps;
    }
    return l;
}

/* Tells which of the file's tensors are not loaded, and which a folder's reader left out. */
static void log_left_out(const struct weight_plan *plan, const struct model_load *load) {
    struct model_keys k = {.g = plan->g, .arch = model_arch_prefix(plan->g, load->arch)};
    gguf_str text;
    uint64_t n = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(plan->g); i++)
        n += weight_plan_skips(plan, gguf_tensor_at(plan->g, i));
    if (n)
        log_info(
            "model: %llu tensors blk.%u.* of layers that predict further tokens are not loaded",
            (unsigned long long)n, plan->n_layers);
    if (!gguf_get_str(plan->g, model_key(&k, "inferd.left_out"), &text, NULL))
        log_info("model: not loaded: %.*s", (int)(text.len < 160 ? text.len : 160), text.data);
    if (!gguf_get_str(plan->g, model_key(&k, "inferd.quantized"), &text, NULL))
        log_info("model: quantized tensors of the folder: %.*s",
                 (int)(text.len < 160 ? text.len : 160), text.data);
}

/* A vector that no file has: n values from values, which are copied. */
static int load_made(const struct loader *l, const char *name, const float *values, uint64_t n,
                     backend_weight **out, err *e) {
    struct backend_weight_desc desc = {
        .name = name, .type = QTYPE_F32, .use = BACKEND_USE_VECTOR, .n_out = 1, .n_in = n};
    if (l->measured) return measure_weight(l, &desc, e);
    float *copy = mem_new_aligned(n * sizeof *copy);
    if (!copy) return err_no_memory(e);
    memcpy(copy, values, n * sizeof *copy);
    desc.data = copy;
    return make_weight(l, &desc, copy, out, e);
}

/* The norms without weights, of heads and of embeddings; ALiBi's slopes of this rank's heads. */
static int load_made_vectors(const struct loader *l, const struct model_load *load, err *e) {
    const struct model_hparams *hp = load->hp;
    const struct model_range *heads = &load->part->heads;
    backend_weight *none = NULL;
    uint64_t most = hp->n_embd > hp->n_heads ? hp->n_embd : hp->n_heads;
    if (hp->head_dim > most) most = hp->head_dim;
    float *v = mem_new(most, sizeof *v);
    int rc = v ? 0 : err_no_memory(e);
    for (uint32_t i = 0; !rc && i < most; i++)
        v[i] = 1;
    if (!rc && hp->qk_unweighted)
        rc = load_made(l, "norm of heads", v, hp->head_dim, l->w ? &l->w->ones : &none, e);
    if (!rc && !load->part->ends)
        rc =
            load_made(l, "norm of the stream", v, hp->n_embd, l->w ? &l->w->stream_norm : &none, e);
    if (!rc && load->arch->embed_rms && load->part->embeds)
        rc = load_made(l, "norm of embeddings", v, hp->n_embd, l->w ? &l->w->embed_norm : &none, e);
    if (!rc && hp->alibi > 0) {
        model_alibi_slopes(hp->alibi, hp->n_heads, heads, v);
        rc = load_made(l, "slopes", v, heads->n, l->w ? &l->w->slopes : &none, e);
    }
    free(v);
    return rc;
}

static int walk_plan(const gguf *g, const struct model_load *load, struct model_weights *w,
                     uint64_t *measured, err *e) {
    struct weight_plan plan;
    int rc = weight_plan_make(&plan, g, load->hp, load->arch, e);
    if (rc) return rc;
    struct loader l = make_loader(&plan, load);
    l.w = w;
    l.measured = measured;
    if (w && l.first) log_left_out(&plan, load);
    rc = load_all(&l, e);
    if (!rc && l.tied) rc = load_tied(&l, e);
    if (!rc) rc = load_made_vectors(&l, load, e);
    weight_plan_free(&plan);
    return rc;
}

int model_weights_measure(const gguf *g, const struct model_load *load, uint64_t *bytes, err *e) {
    *bytes = 0;
    return walk_plan(g, load, NULL, bytes, e);
}

int model_weights_load(const gguf *g, const struct model_load *load, struct model_weights *w,
                       err *e) {
    w->layers = mem_new(load->part->layers.n, sizeof *w->layers);
    if (!w->layers) return err_no_memory(e);
    w->n_layers = (uint32_t)load->part->layers.n;
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
    backend_weight_free(w->output_norm_bias);
    backend_weight_free(w->output_norm);
    backend_weight_free(w->embed_norm_bias);
    backend_weight_free(w->embed_norm);
    backend_weight_free(w->types);
    backend_weight_free(w->positions);
    backend_weight_free(w->slopes);
    backend_weight_free(w->ones);
    backend_weight_free(w->stream_norm);
    backend_weight_free(w->layer_norm);
    backend_weight_free(w->layer_proj);
    backend_weight_free(w->layer_embed);
    backend_weight_free(w->embed);
    while (w->copies) {
        struct model_copy *c = w->copies;
        w->copies = c->next;
        free(c->data);
        free(c);
    }
    memset(w, 0, sizeof *w);
}
