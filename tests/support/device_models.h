/* device_models.h - whether the device that was asked for (only=DEVICE, be.h) can serve a model of
 * the tests: those are small, and devices have kernels for the heads of models in use only. */
#ifndef INFERD_TESTS_DEVICE_MODELS_H
#define INFERD_TESTS_DEVICE_MODELS_H

#include "core/model/model.h"
#include "tests/support/be.h"

/* Has the device attention for the heads of the model at path, in blocks of 16 tokens? Prints the
 * path of one that it has not. */
static inline bool device_serves(const char *path) {
    struct model_hparams hp;
    err e = {0};
    be_need(model_read_hparams(path, &hp, &e) == 0, e.msg);
    struct backend_kv cache = {.kv_type = QTYPE_F16,
                               .n_blocks = 1,
                               .n_kv_heads = hp.n_kv_heads,
                               .block_tokens = 16,
                               .head_dim = hp.head_dim,
                               .v_dim = hp.mla.kv_rank};
    const uint32_t window_dim = hp.window_head_dim ? hp.window_head_dim : hp.head_dim;
    bool fits = !be_only || be_attends(be_only, &cache);
    cache.head_dim = window_dim;
    fits = fits && (!be_only || be_attends(be_only, &cache));
    if (!fits)
        printf("     %s: not on %s: heads of %u and %u\n", path, be_only, hp.head_dim, window_dim);
    return fits;
}

#endif
