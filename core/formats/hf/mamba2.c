/* hf/mamba2.c - members of config.json of models whose layers have Mamba-2: Granite 4.0. Defaults
 * are transformers'. Pure. */
#include "core/formats/hf/model_int.h"

#include <string.h>

enum { SHOWN_BYTES = 40 };

/* n_kv[i] of layer i: 0 of those with Mamba-2. */
static int read_kinds(struct hf_reader *r, int32_t *n_kv) {
    const cJSON *list = hf_value(r->json, "layer_types");
    if (!list) list = hf_value(r->json, "layers_block_type");
    const cJSON *item = list ? list->child : NULL;
    for (uint32_t i = 0; i < r->config->n_layers; i++, item = item->next) {
        n_kv[i] = 0;
        if (!list) return 0; /* all of them */
        if (!cJSON_IsString(item))
            return err_set_param(r->e, ERR_FORMAT, "layer_types",
                                 "member 'layer_types' is not a list of one string per layer");
        const char *kind = item->valuestring;
        if (strcmp(kind, "attention") == 0 || strcmp(kind, "full_attention") == 0)
            n_kv[i] = (int32_t)r->config->n_kv_heads;
        else if (strcmp(kind, "mamba") != 0 && strcmp(kind, "linear_attention") != 0)
            return err_set_param(r->e, ERR_UNSUPPORTED, "layer_types",
                                 "member 'layer_types': '%.*s' is not supported", SHOWN_BYTES,
                                 kind);
    }
    return 0;
}

/* Limits of the time step dt: 0 and infinity, which JSON has no number for. */
static int check_limits(struct hf_reader *r) {
    const cJSON *list = hf_value(r->json, "time_step_limit");
    const cJSON *low = list ? list->child : NULL, *high = low ? low->next : NULL;
    if (!(cJSON_IsNumber(low) && low->valuedouble != 0) && !cJSON_IsNumber(high)) return 0;
    return hf_refuse(r, "time_step_limit", "only (0, Infinity) is supported");
}

static int check_members(struct hf_reader *r) {
    uint64_t n_experts;
    int rc = hf_read_count(r, "num_local_experts", 0, 0, HF_MAX_EXPERTS, &n_experts);
    if (!rc) rc = check_limits(r);
    if (rc) return rc;
    if (n_experts)
        return hf_refuse(r, "num_local_experts", "experts are not supported for this family yet");
    if (hf_flag(r->json, "mamba_proj_bias", false))
        return hf_refuse(r, "mamba_proj_bias", "projections with a bias are not supported");
    return 0;
}

static int read_sizes(struct hf_reader *r) {
    enum { TAPS, STATE, GROUPS, HEADS, N_SIZES };
    static const struct {
        const char *name;
        uint64_t usual, max;
    } rows[N_SIZES] = {[TAPS] = {"mamba_d_conv", 4, 1 << 10},
                       [STATE] = {"mamba_d_state", 256, 1 << 16},
                       [GROUPS] = {"mamba_n_groups", 1, 1 << 12},
                       [HEADS] = {"mamba_n_heads", 128, 1 << 12}};
    uint64_t v[N_SIZES], inner;
    int rc = 0;
    for (int i = 0; !rc && i < N_SIZES; i++)
        rc = hf_read_count(r, rows[i].name, rows[i].usual, 1, rows[i].max, &v[i]);
    if (!rc) rc = hf_read_count(r, "mamba_expand", 2, 1, 1 << 10, &inner);
    if (rc) return rc;
    inner *= r->config->hidden;
    const cJSON *d_head = hf_value(r->json, "mamba_d_head");
    if (cJSON_IsNumber(d_head) && d_head->valuedouble * (double)v[HEADS] != (double)inner)
        return err_set_param(r->e, ERR_FORMAT, "mamba_d_head",
                             "member 'mamba_d_head': %g dimensions of %g heads are not %g",
                             d_head->valuedouble, (double)v[HEADS], (double)inner);
    r->config->n_k_heads = (uint32_t)v[GROUPS];
    hf_put_u32(r, "ssm.conv_kernel", v[TAPS]);
    hf_put_u32(r, "ssm.state_size", v[STATE]);
    hf_put_u32(r, "ssm.group_count", v[GROUPS]);
    hf_put_u32(r, "ssm.time_step_rank", v[HEADS]);
    hf_put_u32(r, "ssm.inner_size", inner);
    return 0;
}

int hf_read_mamba2(struct hf_reader *r) {
    int32_t n_kv[HF_MAX_LAYERS];
    const char *positions = hf_text(r->json, "position_embedding_type");
    int rc = check_members(r);
    if (!rc) rc = read_kinds(r, n_kv);
    if (!rc) rc = read_sizes(r);
    if (rc) return rc;
    hf_put_i32s(r, "attention.head_count_kv", n_kv, r->config->n_layers);
    hf_put_bool(r, "rope.scaling.finetuned", positions && strcmp(positions, "rope") == 0);
    return 0;
}
