/* weight.c - creates weights: all threads repack a matrix for products into panels in the device's
 * memory, expert by expert; tables and vectors stay in the caller's bytes. Runs on the thread that
 * opens a model. */
#include "core/backend/cpu/linear_int.h"

#include "core/base/file.h"
#include "core/base/mem.h"

#include <stdlib.h>

enum { PAIR_OUTS = GEMM_PANELS * GEMM_OUTS };

struct pack_run {
    const struct cpu_weight *w;
    const uint8_t *rows; /* of the file */
    uint32_t n_pairs;    /* of one expert */
};

static void pack_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct pack_run *r = arg;
    const struct cpu_weight *w = r->w;
    uint64_t expert = chunk / r->n_pairs, pair = chunk % r->n_pairs;
    uint64_t first = pair * PAIR_OUTS, left = w->base.n_out - first;
    (void)thread;
    gemm_pack_pair(w->base.type, r->rows + (expert * w->base.n_out + first) * w->row_bytes,
                   w->row_bytes, left < PAIR_OUTS ? (uint32_t)left : PAIR_OUTS,
                   (uint32_t)w->base.n_in,
                   w->panels + expert * w->expert_bytes + pair * GEMM_PANELS * w->panel_bytes);
}

static int repack_weight(struct cpu_backend *c, struct cpu_weight *w,
                         const struct backend_weight_desc *desc, err *e) {
    uint64_t n_experts = desc->n_experts ? desc->n_experts : 1, bytes;
    uint64_t n_pairs = (desc->n_out + PAIR_OUTS - 1) / PAIR_OUTS;
    if (!gemm_has_type(desc->type))
        return err_set_param(e, ERR_UNSUPPORTED, desc->name,
                             "tensor %s: the CPU has no matrix product for type %s", desc->name,
                             qtype_name(desc->type));
    if (!gemm_weight_bytes(desc->type, desc->n_out, desc->n_in, &w->expert_bytes) ||
        !mem_mul(w->expert_bytes, n_experts, &bytes) || n_pairs > UINT32_MAX / n_experts)
        return err_set_param(e, ERR_INVALID, desc->name, "tensor %s is too large", desc->name);
    if (cpu_is_float(desc->type) && cpu_linear_need_floats(c->linear)) return err_no_memory(e);
    w->panels = cpu_host_new(&c->place, bytes);
    if (!w->panels)
        return err_set(e, ERR_NOMEM, "out of memory: tensor %s needs %llu bytes", desc->name,
                       (unsigned long long)bytes);
    w->base.bytes = bytes;
    w->panel_bytes = gemm_panel_bytes(desc->type, (uint32_t)desc->n_in);
    file_read_pages(desc->data, w->row_bytes * desc->n_out * n_experts);
    struct pack_run run = {w, desc->data, (uint32_t)n_pairs};
    pool_run(c->pool, (uint32_t)(n_pairs * n_experts), pack_chunk, &run);
    return 0;
}

int cpu_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                   err *e) {
    struct cpu_weight *w = mem_new(1, sizeof *w);
    if (!w) return err_no_memory(e);
    w->base = (struct backend_weight){.be = be,
                                      .type = desc->type,
                                      .use = desc->use,
                                      .n_experts = desc->n_experts,
                                      .n_out = desc->n_out,
                                      .n_in = desc->n_in};
    qtype_bytes(desc->type, 1, desc->n_in, &w->row_bytes);
    w->data = desc->data;
    int rc = desc->use & BACKEND_USE_LINEAR ? repack_weight(cpu_of(be), w, desc, e) : 0;
    if (rc) {
        free(w);
        return rc;
    }
    *out = &w->base;
    return 0;
}

void cpu_weight_free(backend_weight *base) {
    struct cpu_weight *w = (struct cpu_weight *)base;
    if (w->panels) cpu_host_free(w->panels, base->bytes);
    free(w);
}
