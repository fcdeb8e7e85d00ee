/* hf/cohere.c - members of config.json of Cohere's models: Command R, Command A, and its mixtures
 * of experts, North Mini Code and Command A+. Pure. */
#include "core/formats/hf/model_int.h"

#include <string.h>

bool hf_is_cohere_moe(const struct hf_reader *r) {
    return strcmp(r->config->family->arch, "cohere2moe") == 0;
}

int hf_put_cohere(struct hf_reader *r) {
    const char *arch = r->config->family->arch;
    if (strcmp(arch, "cohere2") != 0 && strcmp(arch, "command-r") != 0 && !hf_is_cohere_moe(r))
        return 0;
    double scale;
    if (hf_flag(r->json, "use_qk_norm", false))
        return hf_refuse(r, "use_qk_norm", "norms of Q and K by LayerNorm are not supported");
    int rc = hf_read_real(r, r->json, "logit_scale", 0.0625, &scale);
    if (!rc) hf_put_f32(r, "logit_scale", scale);
    return rc;
}

/* ---- experts ---- */

const char *hf_cohere_dense_ff(const struct hf_reader *r) {
    static const char name[] = "prefix_dense_intermediate_size";
    return hf_is_cohere_moe(r) && hf_value(r->json, name) ? name : NULL;
}

int hf_check_cohere_experts(struct hf_reader *r) {
    const char *joins = hf_text(r->json, "shared_expert_combination_strategy"),
               *chooses = hf_text(r->json, "expert_selection_fn");
    uint64_t period;
    if (joins && strcmp(joins, "average") != 0)
        return hf_refuse(r, "shared_expert_combination_strategy", "only 'average' is supported");
    if (chooses && strcmp(chooses, "softmax") != 0 && strcmp(chooses, "sigmoid") != 0)
        return hf_refuse(r, "expert_selection_fn", "only 'softmax' and 'sigmoid' are supported");
    int rc = hf_read_count(r, "prefix_dense_sliding_window_pattern", 1, 0, UINT32_MAX, &period);
    if (!rc && period != 1)
        rc = hf_refuse(r, "prefix_dense_sliding_window_pattern", "only 1 is supported");
    return rc;
}
