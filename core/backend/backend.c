/* backend.c - the table of devices, and in front of every op the checks that all devices share:
 * shapes, types, sizes of buffers, owners. Owns no memory, starts no thread; runs on the caller's.
 */
#include "core/backend/module.h"

#include "core/base/mem.h"
#include "core/base/sample_math.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*open)(const struct backend_config *config, backend **out, err *e);
} devices[] = {
    {"cpu", backend_cpu_open},
#ifdef INFERD_METAL
    {"metal", backend_metal_open},
#endif
#if defined(INFERD_CUDA)
    {"cuda", backend_cuda_open}, /* linked in: the stand-in's build */
#elif !defined(__APPLE__)
    {"cuda", backend_module_open_cuda},
#endif
};

enum { N_DEVICES = sizeof devices / sizeof devices[0] };

/* A group, or what is left of one: rank 0 last. */
static void close_ranks(backend *const *ranks, uint32_t n) {
    while (n-- > 0)
        ranks[n]->vt->close(ranks[n]);
}

static int open_rank(size_t i, const struct backend_config *config, backend **out, err *e) {
    int rc = devices[i].open(config, out, e);
    if (rc || (*out)->vt->join) return rc;
    close_ranks(out, 1);
    return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                         "backend %s computes on one device: n_ranks must be 1", devices[i].name);
}

static int open_group(size_t i, const struct backend_config *config, backend **out, err *e) {
    struct backend_config one = *config;
    backend *ranks[BACKEND_MAX_RANKS] = {NULL};
    uint32_t n = 0;
    int rc = 0;
    while (!rc && n < config->n_ranks) {
        one.rank = n;
        rc = open_rank(i, &one, &ranks[n], e);
        if (!rc) n++;
        if (rc && n) err_prefix(e, "n_ranks = %u: ", config->n_ranks);
    }
    for (uint32_t r = 0; r < n; r++) {
        ranks[r]->rank = r;
        ranks[r]->n_ranks = n;
        memcpy(ranks[r]->peers, ranks, n * sizeof *ranks);
    }
    if (!rc) rc = ranks[0]->vt->join(ranks, n, e);
    if (rc) {
        close_ranks(ranks, n);
        return rc;
    }
    *out = ranks[0];
    return 0;
}

static int open_any(size_t i, const struct backend_config *config, backend **out, err *e) {
    return config->n_ranks > 1 ? open_group(i, config, out, e) : devices[i].open(config, out, e);
}

/* The last of the list that this machine has: the first one, the CPU, is everywhere. */
static int open_best(const struct backend_config *config, backend **out, err *e) {
    struct backend_config one = *config;
    for (size_t i = config->isa && config->isa[0] ? 1 : N_DEVICES; i-- > 0;) {
        one.name = devices[i].name;
        int rc = open_any(i, &one, out, e);
        if (rc != ERR_UNSUPPORTED || i == 0) return rc;
    }
    return ERR_UNSUPPORTED;
}

static int open_device(size_t i, const struct backend_config *config, backend **out, err *e) {
    if (i > 0 && config->isa && config->isa[0])
        return err_set_param(e, ERR_INVALID, "isa",
                             "isa \"%s\" is an instruction set of the CPU: not with backend \"%s\"",
                             config->isa, config->name);
    return open_any(i, config, out, e);
}

int backend_open(const struct backend_config *config, backend **out, err *e) {
    *out = NULL;
    if (!config->name) return err_set(e, ERR_INVALID, "no backend named");
    if (!config->max_rows || !config->max_cols)
        return err_set(e, ERR_INVALID, "backend %s: max_rows and max_cols must be at least 1",
                       config->name);
    if (config->activation_bits && config->activation_bits != 8 && config->activation_bits != 16)
        return err_set_param(e, ERR_INVALID, "activation_bits",
                             "activation_bits = %d: must be 8 or 16", config->activation_bits);
    if (config->n_ranks > BACKEND_MAX_RANKS)
        return err_set_param(e, ERR_INVALID, "n_ranks", "n_ranks = %u: at most %d", config->n_ranks,
                             BACKEND_MAX_RANKS);
    const struct backend_moe_limits *moe = &config->moe;
    if (moe->n_experts > BACKEND_MAX_EXPERTS ||
        (moe->n_experts && (!moe->n_used || moe->n_used > moe->n_experts || !moe->n_ff)))
        return err_set(e, ERR_INVALID, "%u of %u experts of width %u: at most %d experts",
                       moe->n_used, moe->n_experts, moe->n_ff, BACKEND_MAX_EXPERTS);
    if (config->linear_attention.n_heads &&
        !backend_linear_chunk(config->linear_attention.head_dim))
        return err_set(e, ERR_UNSUPPORTED, "linear attention: heads of %u: must be 64 or 128",
                       config->linear_attention.head_dim);
    if (strcmp(config->name, "auto") == 0) return open_best(config, out, e);
    char known[64] = "";
    for (size_t i = 0; i < N_DEVICES; i++) {
        if (strcmp(devices[i].name, config->name) == 0) return open_device(i, config, out, e);
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", devices[i].name);
    }
    return err_set_param(e, ERR_UNSUPPORTED, "backend",
                         "no backend \"%s\" in this build (it has: %s)", config->name, known);
}

void backend_close(backend *be) {
    backend *ranks[BACKEND_MAX_RANKS];
    if (!be) return;
    uint32_t n = backend_n_ranks(be);
    for (uint32_t r = 0; r < n; r++)
        ranks[r] = backend_peer(be, r);
    if (n > 1) be->vt->part(be);
    close_ranks(ranks, n);
}

uint32_t backend_rank(const backend *be) {
    return be->rank;
}

uint32_t backend_n_ranks(const backend *be) {
    return be->n_ranks ? be->n_ranks : 1;
}

backend *backend_peer(backend *be, uint32_t rank) {
    return be->n_ranks ? be->peers[rank] : be;
}

void backend_place_thread(const backend *be) {
    if (be->n_ranks > 1 && be->vt->place_thread) be->vt->place_thread(be);
}

void backend_break(backend *be) {
    if (be->n_ranks > 1) be->vt->break_group(be);
}

const char *backend_name(const backend *be) {
    return be->name;
}

const char *backend_isa(const backend *be) {
    return be->isa;
}

int backend_n_threads(const backend *be) {
    return be->n_threads;
}

bool backend_kv_fits(const backend *be, const struct backend_kv *kv) {
    uint64_t bytes;
    return backend_kv_block_bytes(kv, &bytes) && (!be->vt->kv_fits || be->vt->kv_fits(kv));
}

/* ---- memory ---- */

int backend_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e) {
    *out = NULL;
    return be->vt->buf_new(be, bytes, out, e);
}

void backend_buf_free(backend_buf *buf) {
    if (buf) buf->be->vt->buf_free(buf);
}

const void *backend_buf_host(const backend_buf *buf) {
    return buf->host;
}

static int check_range(const backend *be, const backend_buf *buf, uint64_t offset, uint64_t bytes,
                       err *e) {
    uint64_t end;
    if (!buf || buf->be != be || !mem_add(offset, bytes, &end) || end > buf->bytes)
        return err_set(e, ERR_INVALID, "copy of %llu bytes at %llu leaves its %llu byte buffer",
                       (unsigned long long)bytes, (unsigned long long)offset,
                       (unsigned long long)(buf ? buf->bytes : 0));
    return 0;
}

int backend_upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                   err *e) {
    int rc = check_range(be, dst, offset, bytes, e);
    if (rc || !bytes) return rc;
    return be->vt->upload(be, dst, offset, src, bytes, e);
}

int backend_upload_all(backend *be, const struct backend_upload *list, uint32_t n, err *e) {
    int rc = n > BACKEND_MAX_UPLOADS ? err_set(e, ERR_INVALID, "%u uploads are too many", n) : 0;
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = check_range(be, list[i].to, list[i].offset, list[i].bytes, e);
    if (!rc && be->vt->upload_all) return be->vt->upload_all(be, list, n, e);
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = backend_upload(be, list[i].to, list[i].offset, list[i].from, list[i].bytes, e);
    return rc;
}

int backend_download(backend *be, const backend_buf *src, uint64_t offset, void *dst,
                     uint64_t bytes, err *e) {
    int rc = check_range(be, src, offset, bytes, e);
    if (rc || !bytes) return rc;
    return be->vt->download(be, src, offset, dst, bytes, e);
}

int backend_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                       err *e) {
    uint64_t bytes;
    *out = NULL;
    if (!qtype_find(desc->type))
        return err_set_param(e, ERR_UNSUPPORTED, desc->name, "tensor %s: %s cannot be read",
                             desc->name, qtype_name(desc->type));
    if (!desc->n_out || !desc->n_in || desc->n_out > UINT32_MAX || desc->n_in > UINT32_MAX ||
        desc->n_experts > BACKEND_MAX_EXPERTS ||
        !qtype_bytes(desc->type, desc->n_out, desc->n_in, &bytes) ||
        !mem_mul(bytes, desc->n_experts ? desc->n_experts : 1, &bytes))
        return err_set_param(e, ERR_INVALID, desc->name, "tensor %s: (%llu, %llu) %s has no size",
                             desc->name, (unsigned long long)desc->n_out,
                             (unsigned long long)desc->n_in, qtype_name(desc->type));
    const unsigned all = BACKEND_USE_EMBED | BACKEND_USE_LINEAR | BACKEND_USE_VECTOR;
    if (!desc->use || desc->use & ~all ||
        (desc->use & BACKEND_USE_VECTOR && (desc->type != QTYPE_F32 || desc->n_out != 1)) ||
        (desc->use & BACKEND_USE_EMBED && desc->n_experts))
        return err_set_param(e, ERR_INVALID, desc->name, "tensor %s: not fit for its use",
                             desc->name);
    uint64_t align = desc->type == QTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    if (!desc->data || (uintptr_t)desc->data % align)
        return err_set_param(e, ERR_INVALID, desc->name, "tensor %s: data is not aligned to %llu",
                             desc->name, (unsigned long long)align);
    return be->vt->weight_new(be, desc, out, e);
}

uint64_t backend_weight_bytes(const backend_weight *w) {
    return w->bytes;
}

int backend_weight_size(const backend *be, const struct backend_weight_desc *desc, uint64_t *bytes,
                        err *e) {
    *bytes = 0;
    if (qtype_find(desc->type) && be->vt->weight_size) return be->vt->weight_size(desc, bytes, e);
    if (qtype_bytes(desc->type, desc->n_out, desc->n_in, bytes) &&
        mem_mul(*bytes, desc->n_experts ? desc->n_experts : 1, bytes))
        return 0;
    return err_set_param(e, ERR_UNSUPPORTED, desc->name, "tensor %s: %s has no size", desc->name,
                         qtype_name(desc->type));
}

void backend_weight_free(backend_weight *w) {
    if (w) w->be->vt->weight_free(w);
}

int backend_range_new(backend *be, const void *base, uint64_t bytes, backend_range **out, err *e) {
    *out = NULL;
    if (!be->vt->range_new) return 0;
    if (!bytes || bytes % BACKEND_RANGE_ALIGN || (uintptr_t)base % BACKEND_RANGE_ALIGN)
        return err_set(e, ERR_INVALID, "a range of %llu bytes at %p is not whole pages of %d",
                       (unsigned long long)bytes, base, BACKEND_RANGE_ALIGN);
    return be->vt->range_new(be, base, bytes, out, e);
}

void backend_range_free(backend_range *range) {
    if (range) range->be->vt->range_free(range);
}

/* ---- the stream ---- */

int backend_sync(backend *be, err *e) {
    return be->vt->sync(be, e);
}

int backend_flush(backend *be, err *e) {
    return be->vt->flush ? be->vt->flush(be, e) : 0;
}

bool backend_can_overlap(const backend *be) {
    return be->vt->mark != NULL;
}

int backend_host_new(backend *be, uint64_t bytes, void **out, err *e) {
    *out = NULL;
    if (be->vt->host_new) return be->vt->host_new(be, bytes, out, e);
    *out = mem_new(bytes, 1);
    return *out ? 0 : err_no_memory(e);
}

void backend_host_free(backend *be, void *p) {
    if (p && be->vt->host_free)
        be->vt->host_free(be, p);
    else
        free(p);
}

int backend_download_later(backend *be, const backend_buf *src, uint64_t offset, void *to,
                           uint64_t bytes, err *e) {
    if (!be->vt->download_later) return backend_download(be, src, offset, to, bytes, e);
    int rc = check_range(be, src, offset, bytes, e);
    return rc || !bytes ? rc : be->vt->download_later(be, src, offset, to, bytes, e);
}

int backend_mark(backend *be, uint32_t mark, err *e) {
    if (mark >= BACKEND_MARKS) return err_set(e, ERR_INVALID, "there is no mark %u", mark);
    return be->vt->mark ? be->vt->mark(be, mark, e) : 0;
}

int backend_wait(backend *be, uint32_t mark, err *e) {
    if (mark >= BACKEND_MARKS) return err_set(e, ERR_INVALID, "there is no mark %u", mark);
    return be->vt->wait ? be->vt->wait(be, mark, e) : backend_sync(be, e);
}

bool backend_can_record(const backend *be) {
    return be->vt->record != NULL;
}

bool backend_keeps_recorded(const backend *be) {
    return be->vt->keeps_recorded;
}

int backend_record(backend *be, uint64_t key, err *e) {
    if (!be->vt->record)
        return err_set(e, ERR_UNSUPPORTED, "backend %s cannot record a step", be->name);
    return be->vt->record(be, key, e);
}

int backend_record_end(backend *be, err *e) {
    return be->vt->record_end ? be->vt->record_end(be, e) : ERR_UNSUPPORTED;
}

int backend_run_recorded(backend *be, err *e) {
    return be->vt->run_recorded ? be->vt->run_recorded(be, e) : ERR_UNSUPPORTED;
}

void backend_drop_recorded(backend *be) {
    if (be->vt->drop_recorded) be->vt->drop_recorded(be);
}

/* ---- checks of ops ---- */

/* Does buf hold (a, b, c) elements of elem bytes? */
static bool holds(const backend *be, const backend_buf *buf, uint64_t a, uint64_t b, uint64_t c,
                  uint64_t elem) {
    uint64_t n;
    return buf && buf->be == be && mem_mul(a, b, &n) && mem_mul(n, c, &n) && mem_mul(n, elem, &n) &&
           n <= buf->bytes;
}

static bool holds_f32(const backend *be, const backend_buf *buf, uint64_t rows, uint64_t cols) {
    return holds(be, buf, rows, cols, 1, sizeof(float));
}

static bool holds_i32(const backend *be, const backend_buf *buf, uint64_t n) {
    return holds(be, buf, n, 1, 1, sizeof(int32_t));
}

/* Vectors of n f32, one for each expert; n_experts 0: a plain one. */
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

/* 0 (there is none) or a positive number. */
static bool factor_ok(float v) {
    return v >= 0 && v <= FLT_MAX;
}

static bool input_ok(const backend *be, const struct op_input *in, uint32_t n_rows, uint64_t n_in) {
    if (!holds_f32(be, in->x, n_rows, n_in) || (in->norm && !is_vector(be, in->norm, n_in)))
        return false;
    if (!factor_ok(in->residual_scale)) return false;
    if (!in->residual) return !in->residual_norm;
    return in->residual != in->x && holds_f32(be, in->residual, n_rows, n_in) &&
           (!in->residual_norm || is_vector(be, in->residual_norm, n_in));
}

static bool kv_ok(const backend *be, const struct backend_kv *kv) {
    uint64_t block;
    if (!backend_kv_block_bytes(kv, &block) || !kv->n_blocks) return false;
    if (kv->n_blocks > INT32_MAX / kv->block_tokens) return false; /* a slot is an i32 */
    return holds(be, kv->k, kv->n_blocks, block, 1, 1) &&
           holds(be, kv->v, kv->n_blocks, block, 1, 1);
}

int backend_embed(backend *be, const struct op_embed *a) {
    const backend_weight *t = a->table;
    if (!t || t->be != be || !(t->use & BACKEND_USE_EMBED) || a->n_rows > be->max_rows ||
        !holds_i32(be, a->ids, a->n_rows) || !holds_f32(be, a->out, a->n_rows, t->n_in))
        return ERR_INVALID;
    return a->n_rows ? be->vt->embed(be, a) : 0;
}

/* What w and y must be in op a. */
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

int backend_linear(backend *be, const struct op_linear *a) {
    if (!a->n_weights || a->n_weights > BACKEND_LINEAR_MAX || a->n_rows > be->max_rows)
        return ERR_INVALID;
    bool gated = a->act != BACKEND_ACT_NONE;
    if (gated && (a->act >= BACKEND_N_ACTS || a->n_weights != 2 || a->y_scale || a->softcap))
        return ERR_INVALID;
    if (!factor_ok(a->y_scale) || !factor_ok(a->softcap)) return ERR_INVALID;
    for (uint32_t i = 0; i < a->n_weights; i++)
        if (!product_ok(be, a, i)) return ERR_INVALID;
    if (!input_ok(be, &a->in, a->n_rows, a->w[0]->n_in)) return ERR_INVALID;
    return a->n_rows ? be->vt->linear(be, a) : 0;
}

int backend_norm(backend *be, const struct op_norm *a) {
    if (!a->in.norm || a->n_rows > be->max_rows ||
        !input_ok(be, &a->in, a->n_rows, a->in.norm->n_in) ||
        !holds_f32(be, a->out, a->n_rows, a->in.norm->n_in) || a->out == a->in.x ||
        a->out == a->in.residual)
        return ERR_INVALID;
    return a->n_rows ? be->vt->norm(be, a) : 0;
}

static bool bias_ok(const backend *be, const backend_weight *bias, uint64_t n_experts, uint64_t n) {
    return !bias || are_vectors(be, bias, n_experts, n);
}

static bool experts_ok(const backend *be, const struct op_moe *a) {
    uint64_t n = a->down->n_experts, n_in = a->down->n_out, n_ff = a->down->n_in;
    return n && n <= be->moe.n_experts && a->n_used && a->n_used <= be->moe.n_used &&
           a->n_used <= n && n_ff <= be->moe.n_ff && n_in <= be->max_cols &&
           is_matrix(be, a->down, n, n_in, n_ff) && is_matrix(be, a->gate, n, n_ff, n_in) &&
           is_matrix(be, a->up, n, n_ff, n_in) && is_matrix(be, a->router, 0, n, n_in) &&
           (!a->router_bias || is_vector(be, a->router_bias, n)) &&
           bias_ok(be, a->gate_bias, n, n_ff) && bias_ok(be, a->up_bias, n, n_ff) &&
           bias_ok(be, a->down_bias, n, n_in);
}

int backend_moe(backend *be, const struct op_moe *a) {
    if (a->n_rows > be->max_rows || a->act == BACKEND_ACT_NONE || a->act >= BACKEND_N_ACTS ||
        !factor_ok(a->weight_scale) || !a->down || !experts_ok(be, a))
        return ERR_INVALID;
    uint64_t n_in = a->down->n_out;
    if (!input_ok(be, &a->in, a->n_rows, n_in) || !holds_f32(be, a->y, a->n_rows, n_in) ||
        a->y == a->in.x || a->y == a->in.residual || a->y == a->shared ||
        (a->shared && !holds_f32(be, a->shared, a->n_rows, n_in)) ||
        (a->shared_gate && (!a->shared || !holds_f32(be, a->shared_gate, a->n_rows, 1))))
        return ERR_INVALID;
    return a->n_rows ? be->vt->moe(be, a) : 0;
}

/* Norm of n_heads heads, each or all at once. */
static bool head_norm_ok(const backend *be, const backend_weight *w, uint32_t n_heads,
                         uint32_t head_dim) {
    return !w || is_vector(be, w, head_dim) || is_vector(be, w, (uint64_t)n_heads * head_dim);
}

static bool rope_store_ok(const backend *be, const struct op_rope_store *a) {
    uint64_t cols;
    if (!kv_ok(be, &a->kv) || a->n_rows > be->max_rows || !a->n_heads || a->n_rot % 2 ||
        a->n_rot > a->kv.head_dim || !factor_ok(a->magnitude))
        return false;
    cols = (uint64_t)a->kv.n_kv_heads * a->kv.head_dim;
    if (!a->q_norm != !a->k_norm || !head_norm_ok(be, a->q_norm, a->n_heads, a->kv.head_dim) ||
        !head_norm_ok(be, a->k_norm, a->kv.n_kv_heads, a->kv.head_dim) ||
        !holds_f32(be, a->q, a->n_rows, (uint64_t)a->n_heads * a->kv.head_dim) ||
        !holds_f32(be, a->k, a->n_rows, cols) || !holds_f32(be, a->v, a->n_rows, cols) ||
        !holds_i32(be, a->pos, a->n_rows) || !holds_i32(be, a->slots, a->n_rows) ||
        !holds_f32(be, a->inv_freq, 1, a->n_rot / 2))
        return false;
    return true;
}

int backend_rope_store(backend *be, const struct op_rope_store *a) {
    if (!rope_store_ok(be, a)) return ERR_INVALID;
    return a->n_rows ? be->vt->rope_store(be, a) : 0;
}

static bool attention_ok(const backend *be, const struct op_paged_attention *a) {
    uint64_t cols = (uint64_t)a->n_heads * a->kv.head_dim, n_table;
    if (!kv_ok(be, &a->kv) || a->n_rows > be->max_rows || a->n_seqs > a->n_rows || !a->n_heads ||
        a->n_heads % a->kv.n_kv_heads || (a->sinks && !is_vector(be, a->sinks, a->n_heads)) ||
        !factor_ok(a->softcap) || !mem_mul(a->n_seqs, a->table_stride, &n_table) ||
        (a->n_rows && !a->table_stride) ||
        a->max_context > (uint64_t)a->table_stride * a->kv.block_tokens)
        return false;
    if (!holds_f32(be, a->q, a->n_rows, cols) || !holds_f32(be, a->out, a->n_rows, cols) ||
        a->out == a->q || !holds_i32(be, a->pos, a->n_rows) ||
        !holds_i32(be, a->row_start, (uint64_t)a->n_seqs + 1) || !holds_i32(be, a->tables, n_table))
        return false;
    return true;
}

int backend_paged_attention(backend *be, const struct op_paged_attention *a) {
    if (!attention_ok(be, a)) return ERR_INVALID;
    return a->n_rows ? be->vt->paged_attention(be, a) : 0;
}

static bool same_kv(const struct backend_kv *a, const struct backend_kv *b) {
    return a->k == b->k && a->v == b->v && a->kv_type == b->kv_type && a->n_blocks == b->n_blocks &&
           a->n_kv_heads == b->n_kv_heads && a->block_tokens == b->block_tokens &&
           a->head_dim == b->head_dim;
}

int backend_store_attend(backend *be, const struct op_rope_store *store,
                         const struct op_paged_attention *a) {
    if (!rope_store_ok(be, store) || !attention_ok(be, a) || store->q != a->q ||
        store->pos != a->pos || store->n_rows != a->n_rows || store->n_heads != a->n_heads ||
        !same_kv(&store->kv, &a->kv))
        return ERR_INVALID;
    if (!a->n_rows) return 0;
    if (be->vt->store_attend) return be->vt->store_attend(be, store, a);
    int rc = be->vt->rope_store(be, store);
    return rc ? rc : be->vt->paged_attention(be, a);
}

int backend_gather(backend *be, const struct op_gather *a) {
    if (a->n_out_rows > be->max_rows || !a->n_cols || !holds_i32(be, a->rows, a->n_out_rows) ||
        !holds_f32(be, a->out, a->n_out_rows, a->n_cols) || !holds_f32(be, a->x, 1, a->n_cols) ||
        (a->residual && !holds_f32(be, a->residual, 1, a->n_cols)) || a->out == a->x)
        return ERR_INVALID;
    return a->n_out_rows ? be->vt->gather(be, a) : 0;
}

int backend_top(backend *be, const struct op_top *a) {
    if (!a->k || a->k > BACKEND_MAX_TOP || a->k > a->n_cols || a->n_rows > be->max_rows ||
        a->n_cols > INT32_MAX || !holds_f32(be, a->x, a->n_rows, a->n_cols) ||
        !holds_i32(be, a->ids, (uint64_t)a->n_rows * a->k) ||
        !holds_f32(be, a->values, a->n_rows, a->k))
        return ERR_INVALID;
    if (!be->vt->top) return ERR_UNSUPPORTED;
    return a->n_rows ? be->vt->top(be, a) : 0;
}

bool backend_can_sample(const backend *be) {
    return be->vt->sample != NULL;
}

int backend_sample(backend *be, const struct op_sample *a) {
    if (!be->vt->sample) return ERR_UNSUPPORTED;
    if (a->n_rows > be->max_rows || !a->n_cols || a->n_cols > SAMPLE_MAX_COLS ||
        !holds_f32(be, a->x, a->n_rows, a->n_cols) ||
        !holds(be, a->sampling, a->n_rows, 1, 1, sizeof(struct backend_sampling)) ||
        !holds_i32(be, a->history, 3 * (uint64_t)a->n_history) ||
        !holds(be, a->out, a->n_rows, 1, 1, sizeof(struct backend_sampled)))
        return ERR_INVALID;
    return a->n_rows ? be->vt->sample(be, a) : 0;
}

int backend_copy_tokens(backend *be, const struct op_copy_tokens *a) {
    if (!be->vt->copy_tokens) return ERR_UNSUPPORTED;
    if (!a->stride || !holds_i32(be, a->from, 1) || !holds_i32(be, a->ids, 1) ||
        !holds_i32(be, a->copies, 2 * ((uint64_t)a->first + a->n)))
        return ERR_INVALID;
    return a->n ? be->vt->copy_tokens(be, a) : 0;
}

int backend_update_history(backend *be, const struct op_update_history *a) {
    if (!be->vt->update_history) return ERR_UNSUPPORTED;
    if (!holds_i32(be, a->sampled, 1) || !holds_i32(be, a->history, 3) ||
        !holds_i32(be, a->updates, 3 * (uint64_t)a->n))
        return ERR_INVALID;
    return a->n ? be->vt->update_history(be, a) : 0;
}

int backend_linear_attention(backend *be, const struct op_linear_attention *a) {
    uint64_t cols = (uint64_t)a->n_heads * a->head_dim,
             state = backend_linear_state_bytes(a->head_dim);
    if (!state || !a->n_heads || a->n_heads > be->linear_attention.n_heads ||
        a->head_dim != be->linear_attention.head_dim || a->n_rows > be->max_rows ||
        a->n_seqs > a->n_rows || !factor_ok(a->scale) || !holds_f32(be, a->q, a->n_rows, cols) ||
        !holds_f32(be, a->k, a->n_rows, cols) || !holds_f32(be, a->v, a->n_rows, cols) ||
        !holds_f32(be, a->out, a->n_rows, cols) || !holds_i32(be, a->pos, a->n_rows) ||
        !holds_i32(be, a->row_start, (uint64_t)a->n_seqs + 1) ||
        !holds_i32(be, a->slots, a->n_seqs) ||
        !holds(be, a->state, a->n_slots, a->n_heads, state, 1) ||
        (a->decay && !is_vector(be, a->decay, a->n_heads)) || a->out == a->q || a->out == a->k ||
        a->out == a->v)
        return ERR_INVALID;
    if (!be->vt->linear_attention) return ERR_UNSUPPORTED;
    return a->n_rows ? be->vt->linear_attention(be, a) : 0;
}

int backend_kv_copy(backend *be, const struct backend_kv *kv, const int32_t *pairs,
                    uint32_t n_pairs) {
    if (!kv_ok(be, kv)) return ERR_INVALID;
    for (uint64_t i = 0; i < 2 * (uint64_t)n_pairs; i++)
        if (pairs[i] < 0 || (uint32_t)pairs[i] >= kv->n_blocks) return ERR_INVALID;
    return n_pairs ? be->vt->kv_copy(be, kv, pairs, n_pairs) : 0;
}

uint64_t backend_exchange_bytes(const backend *be, uint32_t n_rows, uint32_t n_cols) {
    return be->vt->exchange_bytes ? be->vt->exchange_bytes(be, n_rows, n_cols) : 0;
}

static bool work_ok(const backend *be, const backend_buf *work, uint32_t n_rows, uint32_t n_cols) {
    uint64_t need = backend_exchange_bytes(be, n_rows, n_cols);
    return !need || holds(be, work, need, 1, 1, 1);
}

int backend_all_reduce(backend *be, const struct op_all_reduce *a) {
    if (!a->n_cols || a->n_rows > be->max_rows || !holds_f32(be, a->x, a->n_rows, a->n_cols) ||
        a->work == a->x)
        return ERR_INVALID;
    if (!a->n_rows || be->n_ranks < 2) return 0;
    return work_ok(be, a->work, a->n_rows, a->n_cols) ? be->vt->all_reduce(be, a) : ERR_INVALID;
}

int backend_all_gather(backend *be, const struct op_all_gather *a) {
    uint32_t n = backend_n_ranks(be), share = backend_share(a->n_cols, n);
    if (!a->n_cols || a->n_rows > be->max_rows || (uint64_t)share * (n - 1) >= a->n_cols ||
        !holds_f32(be, a->part, a->n_rows, share) ||
        (a->out && !holds_f32(be, a->out, a->n_rows, a->n_cols)) || a->out == a->part ||
        (a->work && (a->work == a->part || a->work == a->out)))
        return ERR_INVALID;
    if (!a->n_rows || be->n_ranks < 2) return a->n_rows ? ERR_UNSUPPORTED : 0;
    return work_ok(be, a->work, a->n_rows, share) ? be->vt->all_gather(be, a) : ERR_INVALID;
}

/* ---- counters ---- */

uint32_t backend_n_kernels(const backend *be) {
    return be->n_kernels;
}

const char *backend_kernel_name(const backend *be, uint32_t i) {
    return be->kernel_names[i];
}

uint64_t backend_dispatch_count(const backend *be, uint32_t i) {
    return atomic_load_explicit(&be->kernel_counts[i], memory_order_relaxed);
}

void backend_kernel_traffic(const backend *be, uint32_t i, uint64_t *read, uint64_t *written) {
    *read = atomic_load_explicit(&be->kernel_read[i], memory_order_relaxed);
    *written = atomic_load_explicit(&be->kernel_written[i], memory_order_relaxed);
}

uint64_t backend_allocated_bytes(const backend *be) {
    return be->vt->allocated_bytes ? be->vt->allocated_bytes(be) : 0;
}

uint64_t backend_memory_limit(const backend *be) {
    return be->vt->memory_limit ? be->vt->memory_limit(be) : 0;
}

int backend_copy_bandwidth(backend *be, double *bytes_per_s, err *e) {
    *bytes_per_s = 0;
    return be->vt->copy_bandwidth ? be->vt->copy_bandwidth(be, bytes_per_s, e) : 0;
}

uint64_t backend_memory_free(const backend *be) {
    return be->vt->memory_free ? be->vt->memory_free(be) : 0;
}
