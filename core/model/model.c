/* model.c - opens a model: file, hyperparameters, weights, step buffers, in that order; closes in
 * reverse. Runs on whichever thread opens it. */
#include "core/model/model_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A longer stretch of a mapping without a tensor that is loaded is no part of a range. */
enum { RANGE_GAP_BYTES = 1 << 20 };

static int compare_places(const void *a, const void *b) {
    const uint8_t *x = (*(const gguf_tensor *const *)a)->data,
                  *y = (*(const gguf_tensor *const *)b)->data;
    return (x > y) - (x < y);
}

/* The tensors in memory but for those of layers that predict further tokens, in the order of their
 * places; returns their number. */
static uint64_t find_loaded(const model *m, const gguf_tensor **out) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        const uint32_t layer = model_tensor_layer(t->name);
        const struct model_range *own = &m->part.layers;
        if (t->data &&
            ((layer >= own->first && layer < own->first + own->n) || layer == MODEL_MAX_LAYERS))
            out[n++] = t;
    }
    qsort(out, n, sizeof *out, compare_places);
    return n;
}

/* Registers the pages of a mapping that hold some of the n tensors; adds those that the backend
 * reads in place to *in_place. */
static int map_file(model *m, const uint8_t *base, uint64_t bytes, const gguf_tensor *const *all,
                    uint64_t n, uint64_t *in_place, err *e) {
    uint64_t begin = 0, end = 0;
    for (uint64_t i = 0; i <= n; i++) {
        const uint8_t *data = i < n ? all[i]->data : NULL;
        if (i < n && (data < base || data >= base + bytes)) continue;
        const uint64_t at = i < n ? (uint64_t)(data - base) : bytes;
        if (end && (i == n || at > end + RANGE_GAP_BYTES)) {
            const uint64_t from = begin / BACKEND_RANGE_ALIGN * BACKEND_RANGE_ALIGN;
            const uint64_t pages = (end - 1 - from) / BACKEND_RANGE_ALIGN + 1;
            backend_range **range = &m->ranges[m->n_ranges];
            int rc = backend_range_new(m->be, base + from, pages * BACKEND_RANGE_ALIGN, range, e);
            if (rc) return rc;
            m->n_ranges++;
            if (*range) *in_place += pages * BACKEND_RANGE_ALIGN;
            end = 0;
        }
        if (i == n) break;
        if (!end) begin = at;
        if (at + all[i]->bytes > end) end = at + all[i]->bytes;
    }
    return 0;
}

/* Registers what is loaded of the file's mappings with the backend. in_place: its bytes, if the
 * backend reads it there. */
static int map_ranges(model *m, uint64_t *in_place, err *e) {
    const uint64_t n_all = gguf_n_tensors(m->file);
    const gguf_tensor **all = mem_new(n_all, sizeof *all);
    const void *base;
    uint64_t bytes, n;
    int rc = 0;
    m->ranges = mem_new(n_all, sizeof(backend_range *));
    if (!all || !m->ranges) {
        free(all);
        return err_no_memory(e);
    }
    n = find_loaded(m, all);
    for (uint64_t i = 0; !rc && gguf_file_mapping(m->file, i, &base, &bytes); i++)
        rc = map_file(m, base, bytes, all, n, in_place, e);
    free(all);
    return rc;
}

/* If all weights have memory of their own, the file's pages are given back to the system. */
static int load_weights(model *m, const struct model_hparams *whole, err *e) {
    uint64_t start = clock_now_ns(), in_place = 0;
    int rc = map_ranges(m, &in_place, e);
    const struct model_load load = {whole, m->arch, &m->part, m->be, &m->limits};
    m->reads_file = true;
    if (!rc) rc = model_weights_load(m->file, &load, &m->w, e);
    model_files_look();
    if (!rc) rc = model_rank_check(m, e);
    m->reads_file = !backend_memory_free(m->be);
    if (!rc && in_place)
        log_info("model: %.1f MiB of weights read in place", (double)in_place / (1 << 20));
    if (rc || !m->w.bytes) return rc;
    double ms = (double)(clock_now_ns() - start) * 1e-6;
    if (!in_place) gguf_drop_pages(m->file);
    log_info("model: %.1f MiB of weights repacked in %.0f ms, %.2f GB/s",
             (double)m->w.bytes / (1 << 20), ms, (double)m->w.bytes * 1e-6 / ms);
    return 0;
}

/* Refuses a model whose layers the device has no ops for. */
static int check_ops(const struct model_hparams *hp, const backend *be, err *e) {
    if (hp->mla.kv_rank && !backend_has_op(be, BACKEND_OP_linear_heads))
        return err_set_param(e, ERR_UNSUPPORTED, "backend",
                             "backend %s cannot run multi-head latent attention (%s) yet: choose "
                             "backend cpu",
                             backend_name(be), hp->arch);
    const bool conv = hp->recurrent.channels;
    const enum backend_op op = conv ? BACKEND_OP_short_conv : BACKEND_OP_linear_attention;
    const bool missing = (hp->recurrent.n_layers && !backend_has_op(be, op)) ||
                         (hp->attention_gate && !backend_has_op(be, BACKEND_OP_gate));
    if (!missing) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, "backend",
                         "backend %s cannot run %s (%s) yet: choose backend cpu", backend_name(be),
                         conv                   ? "short convolutions"
                         : hp->recurrent.mamba2 ? "Mamba-2"
                                                : "gated delta nets",
                         hp->arch);
}

/* Hyperparameters of this rank, and of the whole model, which describe the tensors. */
static int read_hparams(model *m, struct model_hparams *whole, err *e) {
    int rc = model_hparams_read(m->file, whole, &m->arch, e);
    if (!rc)
        rc = model_part_find(m->file, whole, backend_rank(m->be), backend_n_ranks(m->be), &m->part,
                             e);
    if (!rc) rc = check_ops(whole, m->be, e);
    m->hp = *whole;
    if (rc) return rc;
    const struct model_stage all = {0, whole->n_layers}, *own = &m->limits.stage;
    if (!own->n) own = &all;
    if (own->first >= whole->n_layers || own->n > whole->n_layers - own->first)
        return err_set(e, ERR_INVALID, "the model has %u layers", whole->n_layers);
    m->part.layers = (struct model_range){own->first, own->n};
    m->part.embeds = own->first == 0;
    m->part.ends = own->first + own->n == whole->n_layers;
    model_part_apply(&m->part, &m->hp);
    if (own->n < whole->n_layers) model_stage_apply(own, whole->weight_bytes, &m->hp);
    return 0;
}

int model_rank_check(const model *m, err *e) {
    return m->reads_file ? gguf_check(m->file, e) : 0;
}

int model_rank_open(const char *path, backend *be, const struct model_limits *limits, model **out,
                    err *e) {
    struct model_hparams whole;
    *out = NULL;
    if (!limits->max_rows || !limits->max_logit_rows || !limits->max_seqs || !limits->table_stride)
        return err_set(e, ERR_INVALID, "%s: every limit of a step must be at least 1", path);
    model *m = mem_new(1, sizeof *m);
    if (!m) return err_no_memory(e);
    m->be = be;
    m->limits = *limits;
    m->identity = clock_now_ns();
    for (int32_t i = 0; i <= MODEL_MAX_KEPT_ROWS; i++)
        m->counted[i] = i;
    for (uint32_t i = 0; i < MODEL_MAX_PADDING; i++)
        m->no_sampling[i].params.temperature = -1;
    int rc = model_file_open(path, 0, &m->file, e);
    if (rc || (rc = read_hparams(m, &whole, e)) || (rc = load_weights(m, &whole, e)) ||
        (rc = model_bufs_new(m, e))) {
        model_rank_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

static int measure_rank(const char *path, backend *be, const struct model_limits *limits,
                        struct model_memory *out, err *e) {
    struct model_hparams whole;
    model *m = mem_new(1, sizeof *m);
    if (!m) return err_no_memory(e);
    m->be = be;
    m->limits = *limits;
    int rc = model_file_open(path, 0, &m->file, e);
    if (!rc) rc = read_hparams(m, &whole, e);
    const struct model_load load = {&whole, m->arch, &m->part, be, NULL};
    if (!rc) rc = model_weights_measure(m->file, &load, &out->weights, e);
    if (!rc) out->steps = model_bufs_bytes(m);
    model_rank_close(m);
    return rc;
}

int model_memory_find(const char *path, backend *be, const struct model_limits *limits,
                      struct model_memory *out, err *e) {
    *out = (struct model_memory){0, 0};
    for (uint32_t r = 0; r < backend_n_local(be); r++) {
        struct model_memory one = {0, 0};
        int rc = measure_rank(path, backend_peer(be, r), limits, &one, e);
        if (rc) return rc;
        if (one.weights > out->weights) out->weights = one.weights;
        if (one.steps > out->steps) out->steps = one.steps;
    }
    return 0;
}

void model_rank_close(model *m) {
    if (!m) return;
    if (m->encoded.n_rows) backend_graph_discard(m->be);
    for (uint32_t i = 0; i < MODEL_MAX_STEPS; i++) {
        backend_host_free(m->be, m->in_flight[i].top_ids);
        backend_host_free(m->be, m->in_flight[i].top_values);
        backend_host_free(m->be, m->in_flight[i].sampled);
    }
    free(m->host_hidden);
    free(m->host_logits);
    model_bufs_free(&m->bufs);
    model_weights_free(&m->w);
    while (m->n_ranges)
        backend_range_free(m->ranges[--m->n_ranges]);
    free(m->ranges);
    gguf_close(m->file);
    free(m);
}
