/* warm.c - steps of which nothing is computed: has a device that compiles kernels when it first
 * needs them compile those of likely steps before the first request, and counts the kernels of a
 * decode step. Owns nothing; runs where the engine is opened. */
#include "core/engine/engine_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/min_max.h"

/* Shapes between which kernels change: rows of a decode step, of a prompt's chunk, and both. */
static const struct warm_shape {
    uint32_t n_seqs, n_rows;
    uint32_t n_top; /* 0: rows of logits */
} shapes[] = {{1, 1, 0},  {1, 1, 1}, {1, 1, 64},  {2, 2, 0},   {3, 3, 0},   {4, 4, 0},
              {6, 6, 0},  {8, 8, 0}, {12, 12, 0}, {24, 24, 0}, {1, 4, 0},   {1, 12, 0},
              {1, 64, 0}, {2, 3, 0}, {2, 13, 0},  {2, 65, 0},  {1, 1024, 0}};
static const uint32_t contexts[] = {128, 256, 512, 4096};

/* One step of this shape, or as much of it as the limits allow; its first sequence has all rows
 * that the others do not need. */
static int warm_step(engine *en, const struct warm_shape *w, uint32_t context, err *e) {
    struct step_batch *b = &en->steps[0].batch;
    struct model_batch *m = &b->batch;
    const struct model_limits *lim = &b->limits;
    const bool pooled = en->hp.encoder.on || en->hp.both_ways;
    const uint32_t n_rows = min_u32(w->n_rows, min_u32(lim->max_rows, context));
    const uint32_t n_seqs =
        min_u32(min_u32(w->n_seqs, n_rows), min_u32(lim->max_seqs, lim->max_logit_rows));
    struct model_output none;
    m->shape = (struct model_shape){.n_rows = n_rows,
                                    .n_seqs = n_seqs,
                                    .n_logit_rows = pooled ? 0 : n_seqs,
                                    .n_hidden_rows = pooled ? n_seqs : 0,
                                    .n_top = pooled ? 0 : min_u32(w->n_top, en->hp.n_vocab),
                                    .max_context = context};
    m->next = (struct model_shape){0};
    m->kv = kv_layers(en->cache);
    m->states = kv_states(en->cache);
    b->row_start[0] = 0;
    for (uint32_t s = 0; s < n_seqs; s++) {
        b->row_start[s + 1] = (int32_t)(n_rows - n_seqs + s + 1);
        b->out_rows[s] = b->row_start[s + 1] - 1;
        b->need_logits[s] = !w->n_top;
    }
    return model_forward(en->mdl, m, &none, e);
}

/* The copy of a shared block that a sequence goes on writing (kv.h). */
static int warm_copy(engine *en, err *e) {
    static const int32_t pair[] = {0, 1};
    const struct backend_kv *layers = kv_layers(en->cache);
    if (!en->hp.n_kv_layers || layers->n_blocks < 2) return 0;
    int rc =
        backend_kv_copy(en->be, &(struct op_kv_copy){.kv = *layers, .pairs = pair, .n_pairs = 1});
    return rc ? err_set(e, rc, "the copy of a KV block was refused") : 0;
}

int engine_warm(engine *en, err *e) {
    const uint64_t start = clock_now_ns();
    uint32_t context = 0;
    int rc = 0;
    if (!backend_set_mode(en->be, BACKEND_COMPILES)) return 0;
    for (size_t c = 0; c < sizeof contexts / sizeof contexts[0] && context < en->context_length;
         c++) {
        context = min_u32(contexts[c], en->context_length);
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && !rc; i++)
            rc = warm_step(en, &shapes[i], context, e);
    }
    if (!rc) rc = warm_copy(en, e);
    backend_set_mode(en->be, BACKEND_COMPUTES);
    if (!rc)
        log_info("engine: kernels compiled for the steps to come, in %.1f s",
                 (double)(clock_now_ns() - start) * 1e-9);
    return rc;
}

int engine_count_step(engine *en, uint32_t n_seqs, uint32_t context, err *e) {
    const struct warm_shape decode = {n_seqs, n_seqs, en->steps[0].batch.limits.max_seqs ? 1 : 0};
    if (!backend_set_mode(en->be, BACKEND_COUNTS))
        return err_set(e, ERR_UNSUPPORTED, "backend %s cannot count a step without computing it",
                       backend_name(en->be));
    int rc = warm_step(en, &decode, context, e);
    backend_set_mode(en->be, BACKEND_COMPUTES);
    return rc;
}
