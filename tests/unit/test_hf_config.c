/* test_hf_config.c - config.json of a model folder: which members are refused, and which keys they
 * become. */
#include "core/formats/hf/model.h"
#include "tests/unit/check.h"
#include "tests/unit/gguf_text.h"

#include <math.h>

static gguf *keys_of(const char *json, err *e) {
    gguf *g = NULL;
    hf_config_open_memory(json, strlen(json), &g, e);
    return g;
}

static void members_without_counterpart_are_refused(void) {
    static const struct {
        const char *json, *says;
        int code;
    } rows[] = {
        {"{\"model_type\":\"t5\"}", "'t5' are not supported", ERR_UNSUPPORTED},
        {"{\"architectures\":[\"OPTForCausalLM\"]}", "'OPTForCausalLM'", ERR_UNSUPPORTED},
        {"{}", "'model_type' is missing", ERR_FORMAT},
        {"[]", "not a JSON object", ERR_FORMAT},
        {"{\"model_type\":\"gemma3\"}", "'text_config' is missing", ERR_FORMAT},
        {"{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"hqq\"}}",
         "'quant_method' is 'hqq'", ERR_UNSUPPORTED},
        {"{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
         "'quant_method' is 'mxfp4'", ERR_UNSUPPORTED},
        {"{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "'gelu'", ERR_UNSUPPORTED},
        {"{\"model_type\":\"gemma2\",\"hidden_activation\":\"relu\"}", "'relu'", ERR_UNSUPPORTED},
        {"{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"ntk\",\"factor\":2}}", "'ntk'",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\"}}", "'factor'",
         ERR_FORMAT},
        {"{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"su\",\"long_factor\":[1]}}",
         "'long_factor'", ERR_FORMAT},
        {"{\"model_type\":\"llama\",\"partial_rotary_factor\":0.5}", "partial_rotary_factor",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":[\"0\"]}", "mlp_only_layers",
         ERR_FORMAT},
        {"{\"model_type\":\"qwen2_moe\",\"decoder_sparse_step\":0}", "decoder_sparse_step",
         ERR_FORMAT},
        {"{\"model_type\":\"mimo_v2\"}", "'mimo_v2' are not supported: this build lacks its layout",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"laguna\"}", "has no 'full_attention'", ERR_FORMAT},
        {"{\"model_type\":\"gpt_oss\",\"swiglu_limit\":5}", "swiglu_limit", ERR_UNSUPPORTED},
        {"{\"model_type\":\"gemma3_text\",\"attn_logit_softcapping\":50}", "attn_logit_softcapping",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"gemma4\"}", "'text_config' is missing", ERR_FORMAT},
        {"{\"model_type\":\"gemma4_text\",\"use_bidirectional_attention\":\"all\"}",
         "use_bidirectional_attention", ERR_UNSUPPORTED},
        {"{\"model_type\":\"gemma4_text\",\"num_kv_shared_layers\":30}", "num_kv_shared_layers",
         ERR_FORMAT},
        {"{\"model_type\":\"gemma4_text\",\"global_head_dim\":514}", "'head_dim'", ERR_UNSUPPORTED},
        {"{\"model_type\":\"gemma4_text\",\"enable_moe_block\":true}", "num_experts", ERR_FORMAT},
        {"{\"model_type\":\"gemma4_text\",\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
         "\"yarn\"}}}",
         "rope_parameters", ERR_UNSUPPORTED},
        {"{\"model_type\":\"gemma4_text\",\"per_layer_config\":{\"4\":{\"head_dim\":512}}}",
         "per_layer_config", ERR_UNSUPPORTED},
        {"{\"model_type\":\"gemma4_text\",\"num_hidden_layers\":12,\"per_layer_config\":{\"5\":{"
         "\"head_dim\":512},\"11\":{\"head_dim\":256}}}",
         "per_layer_config", ERR_UNSUPPORTED},
        {"{\"model_type\":\"qwen3\",\"layer_types\":[\"full_attention\"]}", "layer_types",
         ERR_FORMAT},
        {"{\"model_type\":\"qwen3\",\"num_hidden_layers\":1,\"layer_types\":[\"chunked\"]}",
         "'chunked'", ERR_UNSUPPORTED},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":1025}", "num_hidden_layers", ERR_FORMAT},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":\"3\"}", "is not a number", ERR_FORMAT},
        {"{\"model_type\":\"llama\",\"hidden_size\":10.5}", "hidden_size", ERR_FORMAT},
        {"{\"model_type\":\"llama\",\"num_attention_heads\":8192}", "8192 heads", ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        err e = {0};
        gguf *g = keys_of(rows[i].json, &e);
        CHECK_MSG(!g && e.code == rows[i].code && strstr(e.msg, rows[i].says), "%s: %d, %s",
                  rows[i].json, e.code, e.msg);
        gguf_close(g);
    }
}

/* The same keys from the files of transformers 4 and transformers 5. */
static void both_forms_of_rope_are_read(void) {
    static const char *const pairs[][2] = {
        {"{\"model_type\":\"qwen2\",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"yarn\","
         "\"factor\":4,\"original_max_position_embeddings\":64,\"beta_fast\":16,"
         "\"attention_factor\":1.25,\"truncate\":false}}",
         "{\"model_type\":\"qwen2\",\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":5e5,"
         "\"factor\":4,\"original_max_position_embeddings\":64,\"beta_fast\":16,"
         "\"attention_factor\":1.25,\"truncate\":false}}"},
        {"{\"model_type\":\"gemma3_text\",\"rope_theta\":2e6,\"rope_local_base_freq\":777,"
         "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}",
         "{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
         "\"linear\",\"factor\":8,\"rope_theta\":2e6},\"sliding_attention\":{\"rope_type\":"
         "\"default\",\"rope_theta\":777}}}"},
        {"{\"model_type\":\"mixtral\",\"sliding_window\":null}",
         "{\"model_type\":\"mixtral\",\"rope_parameters\":{\"rope_type\":\"default\","
         "\"rope_theta\":1e6}}"},
        {"{\"model_type\":\"gpt_oss\"}",
         "{\"model_type\":\"gpt_oss\",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":32,"
         "\"beta_fast\":32,\"beta_slow\":1,\"truncate\":false,\"rope_theta\":150000,"
         "\"original_max_position_embeddings\":4096}}"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        err e = {0};
        gguf *a = keys_of(pairs[i][0], &e), *b = keys_of(pairs[i][1], &e);
        CHECK_MSG(a && b && gguf_n_keys(a) == gguf_n_keys(b), "%d: %s", (int)i, e.msg);
        for (uint64_t k = 0; a && b && k < gguf_n_keys(a); k++) {
            const struct gguf_kv *x = gguf_key_at(a, k), *y = find_kv(b, x->key);
            CHECK_MSG(y && x->value_bytes == y->value_bytes &&
                          memcmp(x->value, y->value, x->value_bytes) == 0,
                      "%d: %.*s", (int)i, (int)x->key.len, x->key.data);
        }
        gguf_close(a);
        gguf_close(b);
    }
}

/* Frequencies of llama 3 as transformers computes them: low ones divided by the factor, high ones
 * kept, smoothly between. */
static void frequencies_of_llama3_are_scaled(void) {
    err e = {0};
    gguf *g =
        keys_of("{\"model_type\":\"llama\",\"head_dim\":64,\"rope_theta\":500000,"
                "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,\"low_freq_factor\":1,"
                "\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}",
                &e);
    const gguf_tensor *t = g ? gguf_tensor_find(g, "rope_freqs.weight") : NULL;
    CHECK_MSG(t && t->type == QTYPE_F32 && t->n_dims == 1 && t->dims[0] == 32 && t->data, "%s",
              e.msg);
    int kept = 0, divided = 0;
    for (int i = 0; t && i < 32; i++) {
        double freq = 1 / pow(500000, i / 32.0), length = 2 * M_PI / freq, scaled = freq;
        if (length > 8192.0 / 1) scaled = freq / 32;
        if (length <= 8192.0 / 1 && length >= 8192.0 / 4) {
            double smooth = (8192 / length - 1) / (4 - 1);
            scaled = (1 - smooth) * (freq / 32) + smooth * freq;
        }
        double got = freq / (double)((const float *)t->data)[i];
        CHECK_MSG(fabs(got - scaled) <= 1e-6 * scaled, "%d: %g, want %g", i, got, scaled);
        kept += ((const float *)t->data)[i] == 1;
        divided += ((const float *)t->data)[i] == 32;
    }
    CHECK(kept > 4 && divided > 4 && kept + divided < 32);
    gguf_close(g);
}

/* w: a layer with a window, f: without. Empty: no array, the architecture's rule applies. */
static void windows_follow_the_family(void) {
    static const struct {
        const char *json, *pattern;
        int window; /* -1: no key */
    } rows[] = {
        {"\"llama\",\"sliding_window\":5", "", -1},
        {"\"mistral\",\"sliding_window\":5", "", 5},
        {"\"mistral\",\"sliding_window\":null", "", -1},
        {"\"mistral\"", "", 4096},
        {"\"qwen2\",\"sliding_window\":5,\"max_window_layers\":2", "", -1},
        {"\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":5,\"max_window_layers\":2",
         "ffww", 5},
        {"\"qwen2_moe\",\"use_sliding_window\":true,\"sliding_window\":5,\"max_window_layers\":3",
         "wfwf", 5},
        {"\"qwen3_moe\",\"use_sliding_window\":true,\"sliding_window\":5", "", 5},
        {"\"gemma2\",\"sliding_window\":5", "", 5},
        {"\"gemma2\",\"sliding_window\":5,\"layer_types\":[\"full_attention\",\"sliding_"
         "attention\","
         "\"full_attention\",\"full_attention\"]",
         "fwff", 5},
        {"\"gemma3_text\",\"sliding_window\":5,\"sliding_window_pattern\":2", "wfwf", 5},
        {"\"phi3\"", "", 0},
        {"\"smollm3\",\"use_sliding_window\":true,\"sliding_window\":5,\"no_rope_layers\":[1,0,1,"
         "1]",
         "fwff", 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char json[400], key[300], arch[200];
        enum gguf_type elem;
        uint64_t window = 0, n = 0;
        err e = {0};
        gguf_str text = {"", 0};
        snprintf(json, sizeof json, "{\"num_hidden_layers\":4,\"model_type\":%s}", rows[i].json);
        gguf *g = keys_of(json, &e);
        CHECK_MSG(g != NULL, "%s: %s", json, e.msg);
        if (!g) continue;
        gguf_get_str(g, "general.architecture", &text, &e);
        snprintf(key, sizeof key, "%s.attention.sliding_window", text_of(text, arch));
        CHECK_MSG(gguf_has(g, key) == (rows[i].window >= 0), "%s", json);
        if (gguf_has(g, key))
            CHECK_MSG(!gguf_get_u64(g, key, &window, &e) && (int)window == rows[i].window, "%s",
                      json);
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
        CHECK_MSG(gguf_has(g, key) == (rows[i].pattern[0] != 0), "%s", json);
        if (gguf_has(g, key)) CHECK(!gguf_get_array(g, key, &elem, &n, &e) && n == 4);
        for (uint64_t k = 0; k < n; k++)
            CHECK_MSG(gguf_array_i64(g, key, k) == (rows[i].pattern[k] == 'w'), "%s", json);
        gguf_close(g);
    }
}

int main(void) {
    RUN(members_without_counterpart_are_refused);
    RUN(both_forms_of_rope_are_read);
    RUN(frequencies_of_llama3_are_scaled);
    RUN(windows_follow_the_family);
    return check_done();
}
