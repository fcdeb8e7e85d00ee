/* hf/names.c - the tables of tensor names of Hugging Face folders. Pure. */
#include "core/formats/hf/names.h"

#include <string.h>

static const struct name_row model_rows[] = {
    {.from = "model.embed_tokens.weight", .to = "token_embd.weight", .scale = HF_SCALE_EMBED},
    {.from = "model.final_layernorm.weight", .to = "output_norm.weight"},
    {.from = "model.embeddings.weight", .to = "token_embd.weight"}, /* of Nemotron-H */
    {.from = "model.norm_f.weight", .to = "output_norm.weight"},
    {.from = "model.norm.weight", .to = "output_norm.weight"},
    {.from = "model.embedding_norm.weight", .to = "token_embd_norm.weight"}, /* as GGUF has it */
    {.from = "lm_head.weight",
     .to = "output.weight",
     .excludes = HF_EMBED_HEAD,
     .scale = HF_SCALE_HEAD},
};

static const struct name_row layer_rows[] = {
    {.from = "input_layernorm.weight", .to = "attn_norm.weight"},
    {.from = "post_attention_layernorm.weight", .to = "ffn_norm.weight", .excludes = HF_POST_NORMS},
    {.from = "post_attention_layernorm.weight",
     .to = "post_attention_norm.weight",
     .needs = HF_POST_NORMS},
    {.from = "pre_feedforward_layernorm.weight", .to = "ffn_norm.weight"},
    {.from = "post_feedforward_layernorm.weight", .to = "post_ffw_norm.weight"},
    {.from = "self_attn.q_proj.weight",
     .to = "attn_q.weight",
     .layout = ROWS_OF_Q,
     .scale = HF_SCALE_ATTENTION_IN},
    {.from = "self_attn.k_proj.weight",
     .to = "attn_k.weight",
     .layout = ROWS_OF_K,
     .scale = HF_SCALE_K},
    {.from = "self_attn.v_proj.weight", .to = "attn_v.weight", .scale = HF_SCALE_ATTENTION_IN},
    {.from = "self_attn.o_proj.weight",
     .to = "attn_output.weight",
     .scale = HF_SCALE_ATTENTION_OUT},
    {.from = "self_attn.q_proj.bias", .to = "attn_q.bias", .layout = ROWS_OF_Q},
    {.from = "self_attn.k_proj.bias", .to = "attn_k.bias", .layout = ROWS_OF_K},
    {.from = "self_attn.v_proj.bias", .to = "attn_v.bias"},
    {.from = "self_attn.o_proj.bias", .to = "attn_output.bias"},
    {.from = "self_attn.q_norm.weight", .to = "attn_q_norm.weight"},
    {.from = "self_attn.k_norm.weight", .to = "attn_k_norm.weight"},
    {.from = "self_attn.qkv_proj.weight", .to = "attn_qkv.weight"},
    {.from = "self_attn.sinks", .to = "attn_sinks.weight"},
    {.from = "linear_attn.in_proj_qkv.weight", .to = "attn_qkv.weight"},
    {.from = "linear_attn.in_proj_z.weight", .to = "attn_gate.weight"},
    {.from = "linear_attn.in_proj_a.weight", .to = "ssm_alpha.weight"},
    {.from = "linear_attn.in_proj_b.weight", .to = "ssm_beta.weight"},
    {.from = "linear_attn.in_proj_qkvz.weight", .to = "ssm_in.weight"},
    {.from = "linear_attn.in_proj_ba.weight", .to = "ssm_ba.weight"},
    {.from = "linear_attn.conv1d.weight", .to = "ssm_conv1d.weight", .layout = CONVOLUTION},
    {.from = "linear_attn.A_log", .to = "ssm_a", .layout = DECAY},
    {.from = "linear_attn.dt_bias", .to = "ssm_dt.bias"},
    {.from = "linear_attn.norm.weight", .to = "ssm_norm.weight"},
    {.from = "linear_attn.out_proj.weight", .to = "ssm_out.weight"},
    {.from = "operator_norm.weight", .to = "attn_norm.weight"},
    {.from = "ffn_norm.weight", .to = "ffn_norm.weight"},
    {.from = "self_attn.q_layernorm.weight", .to = "attn_q_norm.weight"},
    {.from = "self_attn.k_layernorm.weight", .to = "attn_k_norm.weight"},
    {.from = "self_attn.out_proj.weight", .to = "attn_output.weight"},
    {.from = "conv.in_proj.weight", .to = "shortconv.in_proj.weight"},
    {.from = "conv.conv.weight", .to = "shortconv.conv.weight", .layout = CONVOLUTION},
    {.from = "conv.out_proj.weight", .to = "shortconv.out_proj.weight"},
    {.from = "feed_forward.w1.weight", .to = "ffn_gate.weight"},
    {.from = "feed_forward.w3.weight", .to = "ffn_up.weight"},
    {.from = "feed_forward.w2.weight", .to = "ffn_down.weight"},
    {.from = "mamba.in_proj.weight", .to = "ssm_in.weight", .scale = HF_SCALE_SSM_IN},
    {.from = "mamba.conv1d.weight", .to = "ssm_conv1d.weight", .layout = CONVOLUTION},
    {.from = "mamba.conv1d.bias", .to = "ssm_conv1d.bias"},
    {.from = "mamba.A_log", .to = "ssm_a", .layout = DECAY_COLUMN},
    {.from = "mamba.D", .to = "ssm_d", .layout = COLUMN},
    {.from = "mamba.dt_bias", .to = "ssm_dt.bias"},
    {.from = "mamba.norm.weight", .to = "ssm_norm.weight", .layout = GROUPS},
    {.from = "mamba.out_proj.weight", .to = "ssm_out.weight", .scale = HF_SCALE_SSM_OUT},
    {.from = "shared_mlp.input_linear.weight", .layout = HALVES},
    {.from = "shared_mlp.output_linear.weight", .to = "ffn_down.weight"},
    {.from = "pre_ff_layernorm.weight", .to = "ffn_norm.weight"},
    {.from = "feed_forward.gate_proj.weight", .to = "ffn_gate.weight", .scale = HF_SCALE_FFN_GATE},
    {.from = "feed_forward.up_proj.weight", .to = "ffn_up.weight"},
    {.from = "feed_forward.down_proj.weight", .to = "ffn_down.weight", .scale = HF_SCALE_FFN_DOWN},
    {.from = "norm.weight", .to = "attn_norm.weight"},
    {.from = "mixer.in_proj.weight", .to = "ssm_in.weight"},
    {.from = "mixer.conv1d.weight", .to = "ssm_conv1d.weight", .layout = CONVOLUTION},
    {.from = "mixer.conv1d.bias", .to = "ssm_conv1d.bias"},
    {.from = "mixer.A_log", .to = "ssm_a", .layout = DECAY_COLUMN},
    {.from = "mixer.D", .to = "ssm_d", .layout = COLUMN},
    {.from = "mixer.dt_bias", .to = "ssm_dt.bias"},
    {.from = "mixer.norm.weight", .to = "ssm_norm.weight", .layout = GROUPS},
    {.from = "mixer.out_proj.weight", .to = "ssm_out.weight"},
    {.from = "mixer.q_proj.weight", .to = "attn_q.weight"},
    {.from = "mixer.k_proj.weight", .to = "attn_k.weight"},
    {.from = "mixer.v_proj.weight", .to = "attn_v.weight"},
    {.from = "mixer.o_proj.weight", .to = "attn_output.weight"},
    {.from = "mixer.up_proj.weight", .to = "ffn_up.weight"},
    {.from = "mixer.down_proj.weight", .to = "ffn_down.weight"},
    {.from = "mlp.gate_proj.weight", .to = "ffn_gate.weight"},
    {.from = "mlp.up_proj.weight", .to = "ffn_up.weight"},
    {.from = "mlp.down_proj.weight", .to = "ffn_down.weight"},
    {.from = "mlp.gate_proj.bias", .to = "ffn_gate.bias"},
    {.from = "mlp.up_proj.bias", .to = "ffn_up.bias"},
    {.from = "mlp.down_proj.bias", .to = "ffn_down.bias"},
    {.from = "mlp.gate_up_proj.weight", .to = "ffn_up.weight"}, /* phi3: fused there too */
    {.from = "mlp.gate.weight", .to = "ffn_gate_inp.weight"},
    {.from = "block_sparse_moe.gate.weight", .to = "ffn_gate_inp.weight"},
    {.from = "mlp.router.weight", .to = "ffn_gate_inp.weight"},
    {.from = "mlp.router.bias", .to = "ffn_gate_inp.bias"},
    {.from = "mlp.shared_expert.gate_proj.weight", .to = "ffn_gate_shexp.weight"},
    {.from = "mlp.shared_expert.up_proj.weight", .to = "ffn_up_shexp.weight"},
    {.from = "mlp.shared_expert.down_proj.weight", .to = "ffn_down_shexp.weight"},
    {.from = "mlp.shared_expert_gate.weight", .to = "ffn_gate_inp_shexp.weight"},
    {.from = "mlp.experts.*.gate_proj.weight", .layout = STACKED, .part = PART_GATE, .rank = 1},
    {.from = "mlp.experts.*.up_proj.weight", .layout = STACKED, .part = PART_UP, .rank = 2},
    {.from = "mlp.experts.*.down_proj.weight", .layout = STACKED, .part = PART_DOWN},
    {.from = "block_sparse_moe.experts.*.w1.weight", .layout = STACKED, .part = PART_GATE},
    {.from = "block_sparse_moe.experts.*.w3.weight", .layout = STACKED, .part = PART_UP, .rank = 2},
    {.from = "block_sparse_moe.experts.*.w2.weight",
     .layout = STACKED,
     .part = PART_DOWN,
     .rank = 1},
    {.from = "mlp.experts.gate_up_proj", .layout = GATE_UP, .excludes = HF_GPT_OSS},
    {.from = "mlp.experts.down_proj", .to = "ffn_down_exps.weight", .excludes = HF_GPT_OSS},
    {.from = "mlp.experts.gate_up_proj", .layout = OSS_GATE_UP, .needs = HF_GPT_OSS},
    {.from = "mlp.experts.gate_up_proj_bias", .layout = OSS_GATE_UP_BIAS, .needs = HF_GPT_OSS},
    {.from = "mlp.experts.gate_up_proj_blocks", .layout = OSS_GATE_UP_BLOCKS, .needs = HF_GPT_OSS},
    {.from = "mlp.experts.gate_up_proj_scales", .layout = OSS_GATE_UP_SCALES, .needs = HF_GPT_OSS},
    {.from = "mlp.experts.down_proj", .layout = OSS_DOWN, .needs = HF_GPT_OSS},
    {.from = "mlp.experts.down_proj_bias", .to = "ffn_down_exps.bias", .needs = HF_GPT_OSS},
    {.from = "mlp.experts.down_proj_blocks", .layout = OSS_DOWN_BLOCKS, .needs = HF_GPT_OSS},
    {.from = "mlp.experts.down_proj_scales", .layout = OSS_DOWN_SCALES, .needs = HF_GPT_OSS},
};

static const struct name_row *find_row(const struct name_row *rows, size_t n, const char *name,
                                       uint32_t traits) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].from, name) == 0 && (traits & rows[i].needs) == rows[i].needs &&
            !(traits & rows[i].excludes))
            return &rows[i];
    return NULL;
}

const struct name_row *hf_find_model_row(const char *name, uint32_t traits) {
    return find_row(model_rows, sizeof model_rows / sizeof model_rows[0], name, traits);
}

const struct name_row *hf_find_layer_row(const char *name, uint32_t traits) {
    return find_row(layer_rows, sizeof layer_rows / sizeof layer_rows[0], name, traits);
}
