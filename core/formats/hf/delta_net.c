/* hf/delta_net.c - members of config.json of models whose layers have linear attention (a gated
 * delta net) or gated attention: Qwen3.5 and Qwen3-Next. Defaults are transformers'. Pure. */
#include "core/formats/hf/model_int.h"

#include <string.h>

enum { SHOWN_BYTES = 40, USUAL_INTERVAL = 4 };

/* is_linear[i] of layer i. */
static int read_kinds(struct hf_reader *r, bool *is_linear) {
    const cJSON *list = hf_value(r->json, "layer_types"), *item = list ? list->child : NULL;
    uint64_t interval;
    int rc = hf_read_count(r, "full_attention_interval", USUAL_INTERVAL, 1, UINT32_MAX, &interval);
    for (uint32_t i = 0; !rc && i < r->config->n_layers; i++) {
        is_linear[i] = (i + 1) % interval != 0;
        if (!list) continue;
        if (!cJSON_IsString(item))
            return err_set_param(r->e, ERR_FORMAT, "layer_types",
                                 "member 'layer_types' is not a list of one string per layer");
        is_linear[i] = strcmp(item->valuestring, "linear_attention") == 0;
        if (!is_linear[i] && strcmp(item->valuestring, "full_attention") != 0)
            return err_set_param(r->e, ERR_UNSUPPORTED, "layer_types",
                                 "member 'layer_types': '%.*s' is not supported", SHOWN_BYTES,
                                 item->valuestring);
        item = item->next;
    }
    return rc;
}

/* Writes the interval if there is one, else a flag for each layer. */
static void put_kinds(struct hf_reader *r, const bool *is_linear) {
    uint32_t n = r->config->n_layers, interval = 0;
    while (interval < n && is_linear[interval])
        interval++;
    interval++;
    bool regular = true;
    for (uint32_t i = 0; i < n; i++)
        regular = regular && is_linear[i] == ((i + 1) % interval != 0);
    if (regular)
        hf_put_u32(r, "full_attention_interval", interval);
    else
        hf_put_bools(r, "attention.recurrent_layers", is_linear, n);
}

static int check_gates(struct hf_reader *r) {
    const char *gate = hf_text(r->json, "output_gate_type");
    if (!hf_flag(r->json, "attn_output_gate", true))
        return hf_refuse(r, "attn_output_gate", "attention without a gate is not supported");
    if (gate && strcmp(gate, "swish") != 0 && strcmp(gate, "silu") != 0)
        return hf_refuse(r, "output_gate_type", "only 'swish' is supported");
    return 0;
}

int hf_read_delta_net(struct hf_reader *r) {
    enum { TAPS, K_DIM, V_DIM, K_HEADS, V_HEADS, N_SIZES };
    static const struct {
        const char *name;
        uint64_t usual, max;
    } rows[N_SIZES] = {[TAPS] = {"linear_conv_kernel_dim", 4, 1 << 10},
                       [K_DIM] = {"linear_key_head_dim", 128, 1 << 16},
                       [V_DIM] = {"linear_value_head_dim", 128, 1 << 16},
                       [K_HEADS] = {"linear_num_key_heads", 16, 1 << 12},
                       [V_HEADS] = {"linear_num_value_heads", 32, 1 << 12}};
    bool is_linear[HF_MAX_LAYERS];
    uint64_t v[N_SIZES];
    int rc = check_gates(r);
    if (!rc) rc = read_kinds(r, is_linear);
    for (int i = 0; !rc && i < N_SIZES; i++)
        rc = hf_read_count(r, rows[i].name, rows[i].usual, 1, rows[i].max, &v[i]);
    if (rc) return rc;
    if (v[K_DIM] != v[V_DIM])
        return hf_refuse(r, rows[V_DIM].name, "only the width of linear_key_head_dim is supported");
    put_kinds(r, is_linear);
    hf_put_u32(r, "ssm.conv_kernel", v[TAPS]);
    hf_put_u32(r, "ssm.state_size", v[K_DIM]);
    hf_put_u32(r, "ssm.group_count", v[K_HEADS]);
    hf_put_u32(r, "ssm.time_step_rank", v[V_HEADS]);
    hf_put_u32(r, "ssm.inner_size", v[V_DIM] * v[V_HEADS]);
    /* GGUF files of the other families have their V heads in another order. */
    struct hf_config *c = r->config;
    bool usual = !(c->family->traits & HF_MROPE);
    c->tiles_v_heads = !usual && c->as_file && v[V_HEADS] % v[K_HEADS] == 0;
    c->n_k_heads = (uint32_t)v[K_HEADS];
    c->n_v_heads = (uint32_t)v[V_HEADS];
    c->state_dim = (uint32_t)v[K_DIM];
    if (!usual && !c->tiles_v_heads) hf_put_bool(r, "inferd.grouped_v_heads", true);
    return 0;
}
