/* hf/llama4.c - members of config.json of Llama 4: which layers attend within chunks and are
 * rotated, the temperature of the others, experts. Source: transformers, configuration_llama4.py.
 * Pure. */
#include "core/formats/hf/model_int.h"

#include <string.h>

enum { CHUNK = 8192, FLOOR = 8192, OF_MAVERICK = 128, PERIOD = 4 };

/* rotated[i]: no_rope_layers has 1 for layers that are. An empty list says nothing. */
static int read_rotated(struct hf_reader *r, bool *rotated) {
    static const char name[] = "no_rope_layers";
    const cJSON *list = hf_value(r->json, name), *item = list ? list->child : NULL;
    const bool listed = item != NULL;
    uint64_t interval;
    int rc = hf_read_count(r, "no_rope_layer_interval", PERIOD, 1, UINT32_MAX, &interval);
    for (uint32_t i = 0; !rc && i < r->config->n_layers; i++) {
        rotated[i] = (i + 1) % interval != 0;
        if (!listed) continue;
        if (!cJSON_IsNumber(item))
            return err_set_param(r->e, ERR_FORMAT, name,
                                 "member '%s' is not a list of one number per layer", name);
        rotated[i] = item->valuedouble != 0;
        item = item->next;
    }
    return rc;
}

/* chunked[i] by layer_types, or as rotated. */
static int read_chunked(struct hf_reader *r, const bool *rotated, bool *chunked) {
    static const char name[] = "layer_types";
    const cJSON *list = hf_value(r->json, name), *item = list ? list->child : NULL;
    for (uint32_t i = 0; i < r->config->n_layers; i++) {
        chunked[i] = rotated[i];
        if (!list) continue;
        chunked[i] = cJSON_IsString(item) && strcmp(item->valuestring, "chunked_attention") == 0;
        if (!chunked[i] &&
            !(cJSON_IsString(item) && strcmp(item->valuestring, "full_attention") == 0))
            return err_set_param(r->e, ERR_FORMAT, name,
                                 "member '%s' is not a list of 'chunked_attention' or "
                                 "'full_attention' for each layer",
                                 name);
        item = item->next;
    }
    return 0;
}

/* Either the rotated layers attend within chunks, or all are rotated and none does. */
static int put_layers(struct hf_reader *r) {
    bool rotated[HF_MAX_LAYERS], chunked[HF_MAX_LAYERS];
    bool any = false, all_rotated = true, same = true, usual = true;
    const uint32_t n = r->config->n_layers;
    uint64_t chunk;
    int rc = read_rotated(r, rotated);
    if (!rc) rc = read_chunked(r, rotated, chunked);
    if (!rc) rc = hf_read_count(r, "attention_chunk_size", CHUNK, 1, INT32_MAX, &chunk);
    if (rc) return rc;
    if (hf_is_null(r, "attention_chunk_size")) chunk = 0;
    for (uint32_t i = 0; i < n; i++) {
        chunked[i] = chunked[i] && chunk;
        any = any || chunked[i];
        all_rotated = all_rotated && rotated[i];
        same = same && chunked[i] == rotated[i];
        usual = usual && chunked[i] == ((i + 1) % PERIOD != 0);
    }
    if (!any && all_rotated) {
        hf_put_u32(r, "attention.sliding_window", 0);
        return 0;
    }
    if (!same)
        return hf_refuse(r, "no_rope_layers",
                         "only the layers with chunked attention may be rotated");
    hf_put_u32(r, "attention.chunk_size", chunk);
    if (!usual) hf_put_bools(r, "attention.sliding_window_pattern", chunked, n);
    return 0;
}

static int put_temperature(struct hf_reader *r) {
    double scale;
    uint64_t length;
    int rc = hf_read_real(r, r->json, "attn_scale", 0.1, &scale);
    if (!rc) rc = hf_read_count(r, "floor_scale", FLOOR, 1, INT32_MAX, &length);
    if (rc) return rc;
    if (scale < 0) return hf_refuse(r, "attn_scale", "only a number not below 0 is supported");
    if (!hf_flag(r->json, "attn_temperature_tuning", true)) scale = 0;
    if (scale != 0.1) hf_put_f32(r, "attention.temperature_scale", scale);
    if (length != FLOOR) hf_put_u32(r, "attention.temperature_length", length);
    return 0;
}

/* moe_layers must say what interleave_moe_layer_step does. */
static int put_step(struct hf_reader *r) {
    static const char name[] = "moe_layers";
    const cJSON *list = hf_value(r->json, name), *item;
    uint64_t step, n = 0;
    int rc = hf_read_count(r, "interleave_moe_layer_step", 1, 1, UINT32_MAX, &step);
    if (rc) return rc;
    hf_put_u32(r, "interleave_moe_layer_step", step);
    if (!list) return 0;
    cJSON_ArrayForEach(item, list) {
        n++;
        if (!cJSON_IsNumber(item) || item->valuedouble != (double)(n * step - 1))
            return hf_refuse(r, name, "only every interleave_moe_layer_step-th layer is supported");
    }
    return n == r->config->n_layers / step
               ? 0
               : hf_refuse(r, name, "only every interleave_moe_layer_step-th layer is supported");
}

int hf_read_llama4(struct hf_reader *r) {
    enum { SIGMOID = 2 }; /* as in GGUF */
    uint64_t n, used, ff;
    int rc;
    if ((rc = hf_read_count(r, "num_local_experts", 16, 1, HF_MAX_EXPERTS, &n)) ||
        (rc = hf_read_count(r, "num_experts_per_tok", 1, 1, n, &used)) ||
        (rc = hf_read_count(r, "intermediate_size", 8192, 1, INT32_MAX, &ff)))
        return rc;
    hf_put_expert_counts(r, n, used);
    hf_put_u32(r, "expert_feed_forward_length", ff);
    hf_put_u32(r, "expert_gating_func", SIGMOID);
    const bool normed = hf_flag(r->json, "use_qk_norm", true);
    if (normed != (n != OF_MAVERICK)) hf_put_bool(r, "inferd.qk_norm", normed);
    if ((rc = put_step(r)) || (rc = put_layers(r))) return rc;
    return put_temperature(r);
}
