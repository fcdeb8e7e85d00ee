/* fake_stages.h - of core/model, what only engines of several stages call; the fake device has one
 * process. Included by fake_device.h. */
#ifndef INFERD_TESTS_FAKE_STAGES_H
#define INFERD_TESTS_FAKE_STAGES_H

#include "core/model/model.h"

int model_stages_check_family(const struct model_hparams *hp, err *e) {
    (void)hp;
    return err_set(e, ERR_UNSUPPORTED, "the fake model has no stages");
}
int model_stages_check(const struct model_hparams *hp, const struct model_stage *stages, uint32_t n,
                       err *e) {
    (void)stages, (void)n;
    return model_stages_check_family(hp, e);
}
int model_stages_split(const char *path, const struct model_hparams *hp, uint32_t n,
                       struct model_stage *out, uint64_t *bytes, err *e) {
    (void)path, (void)bytes;
    return model_stages_check(hp, out, n, e);
}
int model_stages_measure(const char *path, const struct model_hparams *hp,
                         const struct model_stage *stages, uint32_t n, uint64_t *bytes, err *e) {
    (void)path, (void)bytes;
    return model_stages_check(hp, stages, n, e);
}
void model_stage_apply(const struct model_stage *stage, uint64_t bytes, struct model_hparams *hp) {
    (void)stage, (void)bytes, (void)hp;
}
int model_identity(const char *path, char out[33], err *e) {
    (void)path, (void)out;
    return err_set(e, ERR_UNSUPPORTED, "the fake model has no identity");
}

#endif
