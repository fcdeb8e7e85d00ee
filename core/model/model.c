/* model.c - opens a model: file, hyperparameters, weights, step buffers, in that order; closes in
 * reverse. Runs on whichever thread opens it. */
#include "core/model/model_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Registers the file's mappings with the backend. */
static int map_ranges(model *m, err *e) {
    const void *base;
    uint64_t bytes, n = 0;
    while (gguf_file_mapping(m->file, n, &base, &bytes))
        n++;
    m->ranges = mem_new(n, sizeof(backend_range *));
    if (!m->ranges) return err_no_memory(e);
    for (; m->n_ranges < n; m->n_ranges++) {
        gguf_file_mapping(m->file, m->n_ranges, &base, &bytes);
        int rc = backend_range_new(m->be, base, bytes, &m->ranges[m->n_ranges], e);
        if (rc) return rc;
    }
    return 0;
}

static bool reads_in_place(const model *m) {
    for (uint64_t i = 0; i < m->n_ranges; i++)
        if (m->ranges[i]) return true;
    return false;
}

/* If all weights have memory of their own, the file's pages are given back to the system. */
static int load_weights(model *m, const struct model_hparams *whole, err *e) {
    uint64_t start = clock_now_ns();
    int rc = map_ranges(m, e);
    const struct model_load load = {whole, m->arch, &m->part, m->be, &m->limits};
    m->reads_file = true;
    if (!rc) rc = model_weights_load(m->file, &load, &m->w, e);
    model_files_look();
    if (!rc) rc = model_rank_check(m, e);
    m->reads_file = !backend_memory_free(m->be);
    if (rc || !m->w.bytes) return rc;
    double ms = (double)(clock_now_ns() - start) * 1e-6;
    if (!reads_in_place(m)) gguf_drop_pages(m->file);
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
    if (!rc) model_part_apply(&m->part, &m->hp);
    return rc;
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
    for (uint32_t r = 0; r < backend_n_ranks(be); r++) {
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
