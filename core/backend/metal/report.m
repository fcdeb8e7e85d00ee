/* report.m - what the device tells of itself and of its pipelines. Owns nothing. */
#include "core/backend/metal/metal_int.h"

bool metal_fact_get(const backend *be, uint32_t i, struct backend_fact *out) {
    const struct metal_backend *m = (const struct metal_backend *)be;
    const struct metal_features *f = &m->features;
    const struct backend_fact facts[] = {
        {"simdgroup_matrix", f->simdgroup_matrix},
        {"matrix_probe_values", f->chain_probe.n_values},
        {"matrix_probe_unequal", f->chain_probe.n_unequal},
        {"matrix_probe_most_ulp", f->chain_probe.most_ulp},
        {"half_probe_values", f->half_probe.n_values},
        {"half_probe_unequal", f->half_probe.n_unequal},
        {"half_probe_most_ulp", f->half_probe.most_ulp},
        {"tiles_on_matrices", f->tiles == METAL_TILES_MATRIX},
        {"tiles_keep_halves", metal_has_halves(m)},
        {"max_buffer_bytes", (double)f->max_buffer_bytes},
        {"working_set_bytes", (double)f->working_set_bytes},
        {"residency_set", m->residency != NULL},
        {"sources_compile_ms", f->compile_ms},
    };
    if (i >= sizeof facts / sizeof facts[0]) return false;
    *out = facts[i];
    return true;
}

bool metal_pipeline_get(const backend *be, uint32_t i, struct backend_pipeline *out) {
    const struct metal_backend *m = (const struct metal_backend *)be;
    for (uint32_t at = 0; m->pipelines && at < METAL_MAX_PIPELINES; at++) {
        const struct metal_pipeline *p = &m->pipelines[at];
        if (!p->state || i--) continue;
        *out = (struct backend_pipeline){.kernel = p->kernel,
                                         .n_consts = p->n_consts,
                                         .max_threads = p->max_threads,
                                         .simd_width = p->simd_width,
                                         .shared_bytes = p->tg_bytes,
                                         .compile_ms = p->compile_ms};
        for (uint32_t c = 0; c < p->n_consts; c++)
            out->index[c] = p->consts[c].index, out->value[c] = p->consts[c].value;
        return true;
    }
    return false;
}
