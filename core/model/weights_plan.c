/* weights_plan.c - which tensors a model must and may have: a table of roles, the plan that finds
 * each role's tensor once, and the check of a file against it. A tensor that is missing, has
 * another shape or is not expected is refused by its name. Owns the plan. */
#include "core/model/weights_int.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a model has: bits set by its architecture's row, its keys, and (fused Q, K, V) its file. */
enum feature {
    ANY = 1,
    PRE_NORM = 2,  /* attn_norm */
    FFN_NORM = 4,  /* ffn_norm under its own name */
    POST_NORM = 8, /* after both blocks */
    POST_ATTENTION_FFN_NORM = 16,
    QK_NORM = 32,
    Q_APART = 64,
    QKV_FUSED = 128,
    QKV_APART_BIAS = 256, /* of Q_APART and KV_APART */
    QKV_FUSED_BIAS = 512,
    OUT_BIAS = 1024,
    SINKS = 2048,
    DENSE = 4096,
    FF_APART = 8192,
    FF_FUSED = 16384,
    EXPERTS = 32768,
    EXPERT_BIAS = 65536,
    SHARED = 131072,
    EXPERTS_APART = 1 << 18, /* gate and up of the experts */
    EXPERTS_FUSED = 1 << 19,
    KV_APART = 1 << 20,
    ATTENTION = 1 << 21, /* a layer with attention */
    Q_GATED = 1 << 22,
    RECURRENT = 1 << 23, /* a layer with linear attention; of a delta net: */
    QKV_Z = 1 << 24,     /* Q, K, V and Z apart, */
    QKVZ = 1 << 25,      /* or by K head in one tensor; */
    ALPHA_BETA = 1 << 26,
    BETA_ALPHA = 1 << 27, /* by K head in one tensor */
    SHORT_CONV = 1 << 28, /* a layer with a short convolution */
    DELTA_NET = 1 << 29,
    MAMBA2 = 1 << 30
};
/* Beyond the bits of an enumeration's int: */
#define SHARED_GATE ((uint64_t)1 << 34)
#define MAMBA2_NORM ((uint64_t)1 << 31)
#define LONE_FFN    ((uint64_t)1 << 32) /* an FFN without a mixer before it */
#define FF_UP       ((uint64_t)1 << 33) /* without a gate */
#define EXPERTS_UP  ((uint64_t)1 << 35) /* likewise; and the shared expert */
#define SHARED_UP   ((uint64_t)1 << 36)
#define LATENT      ((uint64_t)1 << 37)
#define GATE_APART  ((uint64_t)1 << 48) /* of attention */
#define CHOICE_BIAS ((uint64_t)1 << 49) /* under its own name, or: */
#define BARE_BIAS   ((uint64_t)1 << 50)
#define BARE_NORM   ((uint64_t)1 << 51) /* ffn_norm, as Falcon-H1's files name it */
#define MLA         ((uint64_t)1 << 38) /* a layer with latent attention: */
#define MLA_Q       ((uint64_t)1 << 39) /* Q in one product, */
#define MLA_Q_A     ((uint64_t)1 << 40) /* or two; */
#define MLA_APART   ((uint64_t)1 << 41) /* what absorbs K and V apart, */
#define MLA_JOINT   ((uint64_t)1 << 42) /* or, in old files, K and V of each head in one tensor */
#define KDA         ((uint64_t)1 << 61) /* a delta net whose channels decay by themselves */
#define NORM_BIAS   ((uint64_t)1 << 60)
#define NORM_AFTER  ((uint64_t)1 << 57) /* of the sum of a block's output and its input */

/* Of the whole model; bits apart from those of its layers. */
enum model_feature {
    EVERY = 1,
    OUTPUT_NORM = 2,
    EMBD_NORM = 4 /* the name of the final norm */,
    OUTPUT_NORM_BIAS = 1 << 20,
    ENCODER = 1 << 25,    /* the embeddings are normed */
    HEAD = 1 << 26,       /* an output head */
    INPUT_NORM = 1 << 28, /* embeddings are normed; not of encoders */
    POSITIONS = 1 << 27   /* learned */
};

/* Of each K head: its rows of Q, K, V (and Z). */
static const struct weight_rows pieces_of_qkvz[WEIGHT_MAX_PIECES] = {
    {DIM_KEYS, DIM_VECTOR}, {DIM_KEYS, DIM_STATE}, {DIM_VALUES, DIM_TWO_STATES}};

#define MODEL(field) offsetof(struct model_weights, field)
#define LAYER(field) offsetof(struct model_layer, field)

static const struct weight_role model_roles[] = {
    {"token_embd.weight", MODEL(embed), DIM_VOCAB, DIM_EMBD, .must = EVERY, .embed = true},
    {"output_norm.weight", MODEL(output_norm), DIM_VECTOR, DIM_EMBD, .must = OUTPUT_NORM},
    {"token_embd_norm.weight", MODEL(output_norm), DIM_VECTOR, DIM_EMBD, .must = EMBD_NORM},
    {"output_norm.bias", MODEL(output_norm_bias), DIM_VECTOR, DIM_EMBD, .may = OUTPUT_NORM_BIAS},
    {"output.weight", MODEL(output), DIM_VOCAB, DIM_EMBD, .may = HEAD},
    {"output.bias", MODEL(output_bias), DIM_VECTOR, DIM_VOCAB, .may = HEAD},
    {"position_embd.weight", MODEL(positions), DIM_POSITIONS, DIM_EMBD, .must = POSITIONS,
     .embed = true},
    {"token_types.weight", MODEL(types), DIM_TYPES, DIM_EMBD, .may = ENCODER, .embed = true},
    {"token_embd_norm.weight", MODEL(embed_norm), DIM_VECTOR, DIM_EMBD,
     .must = ENCODER | INPUT_NORM},
    {"token_embd_norm.bias", MODEL(embed_norm_bias), DIM_VECTOR, DIM_EMBD,
     .may = ENCODER | INPUT_NORM},
};

static const struct weight_role layer_roles[] = {
    {"attn_norm.weight", LAYER(attn_norm), DIM_VECTOR, DIM_EMBD, .must = PRE_NORM},
    {"attn_q.weight", LAYER(wq), DIM_HEADS, DIM_EMBD, .must = Q_APART},
    {"attn_q.weight", LAYER(wq), DIM_HEADS, DIM_EMBD, .must = Q_GATED, .whole = DIM_HEADS_GATED,
     .groups = DIM_N_HEADS},
    {"attn_q.weight", LAYER(w_attn_gate), DIM_HEADS, DIM_EMBD, .must = Q_GATED,
     .whole = DIM_HEADS_GATED, .at = DIM_HEAD, .groups = DIM_N_HEADS},
    {"attn_gate.weight", LAYER(w_attn_gate), DIM_GATES, DIM_EMBD, .must = GATE_APART},
    {"attn_k.weight", LAYER(wk), DIM_KV, DIM_EMBD, .must = KV_APART},
    {"attn_v.weight", LAYER(wv), DIM_V, DIM_EMBD, .must = KV_APART, .padded = true},
    {"attn_qkv.weight", LAYER(wq), DIM_HEADS, DIM_EMBD, .must = QKV_FUSED, .whole = DIM_QKV},
    {"attn_qkv.weight", LAYER(wk), DIM_KV, DIM_EMBD, .must = QKV_FUSED, .whole = DIM_QKV,
     .at = DIM_HEADS},
    {"attn_qkv.weight", LAYER(wv), DIM_V, DIM_EMBD, .must = QKV_FUSED, .whole = DIM_QKV,
     .at = DIM_HEADS_KV, .padded = true},
    {"attn_q.bias", LAYER(bq), DIM_VECTOR, DIM_HEADS, .must = QKV_APART_BIAS, .may = Q_APART},
    {"attn_k.bias", LAYER(bk), DIM_VECTOR, DIM_KV, .must = QKV_APART_BIAS, .may = KV_APART},
    {"attn_v.bias", LAYER(bv), DIM_VECTOR, DIM_KV, .must = QKV_APART_BIAS, .may = KV_APART},
    {"attn_qkv.bias", LAYER(bq), DIM_VECTOR, DIM_HEADS, .must = QKV_FUSED_BIAS, .may = QKV_FUSED,
     .whole = DIM_QKV},
    {"attn_qkv.bias", LAYER(bk), DIM_VECTOR, DIM_KV, .must = QKV_FUSED_BIAS, .may = QKV_FUSED,
     .whole = DIM_QKV, .at = DIM_HEADS},
    {"attn_qkv.bias", LAYER(bv), DIM_VECTOR, DIM_KV, .must = QKV_FUSED_BIAS, .may = QKV_FUSED,
     .whole = DIM_QKV, .at = DIM_HEADS_KV},
    {"attn_q_norm.weight", LAYER(q_norm), DIM_VECTOR, DIM_Q_NORM, .must = QK_NORM},
    {"attn_k_norm.weight", LAYER(k_norm), DIM_VECTOR, DIM_K_NORM, .must = QK_NORM},
    {"attn_sinks.weight", LAYER(sinks), DIM_VECTOR, DIM_N_HEADS, .must = SINKS},
    {"attn_output.weight", LAYER(wo), DIM_EMBD, DIM_ATTENDED, .must = ATTENTION},
    {"attn_output.bias", LAYER(bo), DIM_VECTOR, DIM_EMBD, .must = OUT_BIAS, .may = ATTENTION,
     .once = true},
    {"attn_q.weight", LAYER(wq), DIM_Q_HEADS, DIM_EMBD, .must = MLA_Q},
    {"attn_q_a.weight", LAYER(w_q_a), DIM_Q_RANK, DIM_EMBD, .must = MLA_Q_A},
    {"attn_q_a_norm.weight", LAYER(q_a_norm), DIM_VECTOR, DIM_Q_RANK, .must = MLA_Q_A},
    {"attn_q_b.weight", LAYER(wq), DIM_Q_HEADS, DIM_Q_RANK, .must = MLA_Q_A},
    {"attn_kv_a_mqa.weight", LAYER(wk), DIM_LATENT_ROW, DIM_EMBD, .must = MLA},
    {"attn_kv_a_norm.weight", LAYER(k_norm), DIM_VECTOR, DIM_KV_RANK, .must = MLA},
    {"attn_k_b.weight", LAYER(w_k_b), DIM_K_B, DIM_K_NOPE, .must = MLA_APART, .by_head = true},
    {"attn_v_b.weight", LAYER(w_v_b), DIM_V_B, DIM_KV_RANK, .must = MLA_APART, .by_head = true},
    {"attn_kv_b.weight", LAYER(w_k_b), DIM_K_B, DIM_KV_RANK, .must = MLA_JOINT, .whole = DIM_KV_B,
     .by_head = true, .turned = true},
    {"attn_kv_b.weight", LAYER(w_v_b), DIM_V_B, DIM_KV_RANK, .must = MLA_JOINT, .whole = DIM_KV_B,
     .at = DIM_K_NOPE, .groups = DIM_N_HEADS, .by_head = true},
    {"attn_output.weight", LAYER(wo), DIM_EMBD, DIM_V_B, .must = MLA},
    {"attn_qkv.weight", LAYER(w_qkv), DIM_CHANNELS, DIM_EMBD, .must = QKV_Z},
    {"attn_gate.weight", LAYER(w_z), DIM_VALUES, DIM_EMBD, .must = QKV_Z},
    {"ssm_in.weight", LAYER(w_qkv), DIM_CHANNELS, DIM_EMBD, .must = QKVZ, .whole = DIM_CHANNELS_Z,
     .groups = DIM_K_HEADS, .pieces = pieces_of_qkvz},
    {"ssm_in.weight", LAYER(w_z), DIM_VALUES, DIM_EMBD, .must = QKVZ, .whole = DIM_CHANNELS_Z,
     .at = DIM_QKV_OF_K, .groups = DIM_K_HEADS},
    {"ssm_alpha.weight", LAYER(w_alpha), DIM_V_HEADS, DIM_EMBD, .must = ALPHA_BETA},
    {"ssm_beta.weight", LAYER(w_beta), DIM_V_HEADS, DIM_EMBD, .must = ALPHA_BETA},
    {"ssm_ba.weight", LAYER(w_beta), DIM_V_HEADS, DIM_EMBD, .must = BETA_ALPHA,
     .whole = DIM_BETA_ALPHA, .groups = DIM_K_HEADS},
    {"ssm_ba.weight", LAYER(w_alpha), DIM_V_HEADS, DIM_EMBD, .must = BETA_ALPHA,
     .whole = DIM_BETA_ALPHA, .at = DIM_V_OF_K, .groups = DIM_K_HEADS},
    {"ssm_conv1d.weight", LAYER(conv), DIM_VECTOR, DIM_CONV, .must = RECURRENT, .n_cols = DIM_TAPS},
    {"ssm_a", LAYER(decay), DIM_VECTOR, DIM_V_HEADS, .must = DELTA_NET},
    {"ssm_dt.bias", LAYER(dt_bias), DIM_VECTOR, DIM_V_HEADS, .must = RECURRENT},
    {"ssm_norm.weight", LAYER(state_norm), DIM_VECTOR, DIM_STATE, .must = DELTA_NET},
    {"attn_q.weight", LAYER(wq), DIM_KEYS, DIM_EMBD, .must = KDA},
    {"attn_k.weight", LAYER(wk), DIM_KEYS, DIM_EMBD, .must = KDA},
    {"attn_v.weight", LAYER(wv), DIM_VALUES, DIM_EMBD, .must = KDA},
    {"ssm_conv1d_q.weight", LAYER(conv), DIM_VECTOR, DIM_CONV_KEYS, .must = KDA,
     .n_cols = DIM_TAPS},
    {"ssm_conv1d_k.weight", LAYER(conv_k), DIM_VECTOR, DIM_CONV_KEYS, .must = KDA,
     .n_cols = DIM_TAPS},
    {"ssm_conv1d_v.weight", LAYER(conv_v), DIM_VECTOR, DIM_CONV_KEYS, .must = KDA,
     .n_cols = DIM_TAPS},
    {"ssm_f_a.weight", LAYER(w_low_alpha), DIM_STATE, DIM_EMBD, .must = KDA},
    {"ssm_f_b.weight", LAYER(w_alpha), DIM_KEYS, DIM_STATE, .must = KDA},
    {"ssm_g_a.weight", LAYER(w_low_z), DIM_STATE, DIM_EMBD, .must = KDA},
    {"ssm_g_b.weight", LAYER(w_z), DIM_VALUES, DIM_STATE, .must = KDA},
    {"ssm_beta.weight", LAYER(w_beta), DIM_V_HEADS, DIM_EMBD, .must = KDA},
    {"ssm_a", LAYER(decay), DIM_VECTOR, DIM_V_HEADS, .must = KDA, .n_cols = DIM_ONE},
    {"ssm_dt.bias", LAYER(dt_bias), DIM_VECTOR, DIM_KEYS, .must = KDA},
    {"ssm_norm.weight", LAYER(state_norm), DIM_VECTOR, DIM_STATE, .must = KDA},
    {"attn_output.weight", LAYER(w_out), DIM_EMBD, DIM_VALUES, .must = KDA},
    {"ssm_in.weight", LAYER(w_z), DIM_VALUES, DIM_EMBD, .must = MAMBA2, .whole = DIM_ZXBCDT},
    {"ssm_in.weight", LAYER(w_qkv), DIM_CHANNELS, DIM_EMBD, .must = MAMBA2, .whole = DIM_ZXBCDT,
     .at = DIM_VALUES},
    {"ssm_in.weight", LAYER(w_alpha), DIM_V_HEADS, DIM_EMBD, .must = MAMBA2, .whole = DIM_ZXBCDT,
     .at = DIM_CHANNELS_OF_Z},
    {"ssm_conv1d.bias", LAYER(conv_bias), DIM_VECTOR, DIM_CHANNELS, .may = MAMBA2},
    {"ssm_a", LAYER(decay), DIM_VECTOR, DIM_V_HEADS, .must = MAMBA2, .n_cols = DIM_ONE},
    {"ssm_d", LAYER(skip), DIM_VECTOR, DIM_V_HEADS, .must = MAMBA2, .n_cols = DIM_ONE},
    {"ssm_norm.weight", LAYER(state_norm), DIM_VECTOR, DIM_OUT_VALUES, .must = MAMBA2_NORM,
     .may = MAMBA2, .n_cols = DIM_GROUP},
    {"ssm_out.weight", LAYER(w_out), DIM_OUT_EMBD, DIM_OUT_VALUES, .must = RECURRENT},
    {"shortconv.in_proj.weight", LAYER(w_bcx), DIM_BCX, DIM_EMBD, .must = SHORT_CONV},
    {"shortconv.conv.weight", LAYER(conv), DIM_VECTOR, DIM_CONV, .must = SHORT_CONV,
     .n_cols = DIM_TAPS},
    {"shortconv.out_proj.weight", LAYER(w_out), DIM_EMBD, DIM_SHORT, .must = SHORT_CONV},
    {"post_attention_norm.weight", LAYER(attn_post_norm), DIM_VECTOR, DIM_EMBD, .must = POST_NORM},
    {"post_attention_norm.weight", LAYER(ffn_norm), DIM_VECTOR, DIM_EMBD,
     .must = POST_ATTENTION_FFN_NORM},
    {"ffn_norm.weight", LAYER(ffn_norm), DIM_VECTOR, DIM_EMBD, .must = FFN_NORM},
    {"ffn_norm", LAYER(ffn_norm), DIM_VECTOR, DIM_EMBD, .must = BARE_NORM},
    {"attn_norm.weight", LAYER(ffn_norm), DIM_VECTOR, DIM_EMBD, .must = LONE_FFN},
    {"ffn_up.weight", LAYER(w_up), DIM_FF, DIM_EMBD, .must = FF_UP},
    {"ffn_gate.weight", LAYER(w_gate), DIM_FF, DIM_EMBD, .must = FF_APART},
    {"ffn_up.weight", LAYER(w_up), DIM_FF, DIM_EMBD, .must = FF_APART},
    {"ffn_up.weight", LAYER(w_gate), DIM_FF, DIM_EMBD, .must = FF_FUSED, .whole = DIM_GATE_UP},
    {"ffn_up.weight", LAYER(w_up), DIM_FF, DIM_EMBD, .must = FF_FUSED, .whole = DIM_GATE_UP,
     .at = DIM_FF},
    {"ffn_down.weight", LAYER(w_down), DIM_EMBD, DIM_FF, .must = DENSE},
    {"ffn_gate.bias", LAYER(b_gate), DIM_VECTOR, DIM_FF, .may = FF_APART},
    {"ffn_up.bias", LAYER(b_up), DIM_VECTOR, DIM_FF, .may = FF_APART | FF_UP},
    {"ffn_down.bias", LAYER(b_down), DIM_VECTOR, DIM_EMBD, .may = DENSE, .once = true},
    {"post_ffw_norm.weight", LAYER(ffn_post_norm), DIM_VECTOR, DIM_EMBD, .must = POST_NORM},
    {"ffn_gate_inp.weight", LAYER(router), DIM_EXPERTS, DIM_EMBD, .must = EXPERTS},
    {"ffn_gate_inp.bias", LAYER(router_bias), DIM_VECTOR, DIM_EXPERTS, .must = EXPERT_BIAS},
    {"exp_probs_b.bias", LAYER(choice_bias), DIM_VECTOR, DIM_EXPERTS, .may = CHOICE_BIAS},
    {"exp_probs_b", LAYER(choice_bias), DIM_VECTOR, DIM_EXPERTS, .must = BARE_BIAS},
    {"ffn_gate_exps.weight", LAYER(e_gate), DIM_FF_EXPERT, DIM_EXPERT, .must = EXPERTS_APART,
     .experts = true},
    {"ffn_up_exps.weight", LAYER(e_up), DIM_FF_EXPERT, DIM_EXPERT,
     .must = EXPERTS_APART | EXPERTS_UP, .experts = true},
    {"ffn_gate_up_exps.weight", LAYER(e_gate), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS_FUSED,
     .whole = DIM_GATE_UP_EXPERT, .experts = true},
    {"ffn_gate_up_exps.weight", LAYER(e_up), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS_FUSED,
     .whole = DIM_GATE_UP_EXPERT, .at = DIM_FF_EXPERT, .experts = true},
    {"ffn_down_exps.weight", LAYER(e_down), DIM_EXPERT, DIM_FF_EXPERT, .must = EXPERTS,
     .experts = true},
    {"ffn_gate_exps.bias", LAYER(eb_gate), DIM_VECTOR, DIM_FF_EXPERT, .must = EXPERT_BIAS,
     .experts = true},
    {"ffn_up_exps.bias", LAYER(eb_up), DIM_VECTOR, DIM_FF_EXPERT, .must = EXPERT_BIAS,
     .experts = true},
    {"ffn_down_exps.bias", LAYER(eb_down), DIM_VECTOR, DIM_EMBD, .must = EXPERT_BIAS,
     .experts = true, .once = true},
    {"ffn_gate_inp_shexp.weight", LAYER(s_router), DIM_ONE, DIM_EMBD, .must = SHARED_GATE},
    {"ffn_gate_shexp.weight", LAYER(s_gate), DIM_FF_SHARED, DIM_EMBD, .must = SHARED},
    {"ffn_up_shexp.weight", LAYER(s_up), DIM_FF_SHARED, DIM_EMBD, .must = SHARED | SHARED_UP},
    {"ffn_down_shexp.weight", LAYER(s_down), DIM_EMBD, DIM_FF_SHARED, .must = SHARED | SHARED_UP},
    {"ffn_latent_down.weight", LAYER(latent_down), DIM_LATENT, DIM_EMBD, .must = LATENT},
    {"ffn_latent_up.weight", LAYER(latent_up), DIM_EMBD, DIM_LATENT, .must = LATENT},
    {"attn_norm.bias", LAYER(attn_norm_bias), DIM_VECTOR, DIM_EMBD, .may = NORM_BIAS},
    {"ffn_norm.bias", LAYER(ffn_norm_bias), DIM_VECTOR, DIM_EMBD, .may = NORM_BIAS},
    {"attn_output_norm.weight", LAYER(attn_post_norm), DIM_VECTOR, DIM_EMBD, .must = NORM_AFTER},
    {"attn_output_norm.bias", LAYER(attn_post_norm_bias), DIM_VECTOR, DIM_EMBD, .may = NORM_AFTER},
    {"layer_output_norm.weight", LAYER(ffn_post_norm), DIM_VECTOR, DIM_EMBD, .must = NORM_AFTER},
    {"layer_output_norm.bias", LAYER(ffn_post_norm_bias), DIM_VECTOR, DIM_EMBD, .may = NORM_AFTER},
};

/* Read by rope.c. */
static const char *const rope_tensors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                           "rope_factors_long.weight"};

enum {
    N_MODEL_ROLES = sizeof model_roles / sizeof model_roles[0],
    N_LAYER_ROLES = sizeof layer_roles / sizeof layer_roles[0],
    N_ROPE_TENSORS = sizeof rope_tensors / sizeof rope_tensors[0]
};

static bool has_tensor(const gguf *g, uint32_t layer, const char *name) {
    char text[WEIGHT_NAME_BYTES];
    snprintf(text, sizeof text, "blk.%u.%s", layer, name);
    return gguf_tensor_find(g, text) != NULL;
}

static uint64_t mla_features(const gguf *g, const struct model_hparams *hp, uint32_t layer) {
    const bool joint =
        has_tensor(g, layer, "attn_kv_b.weight") && !has_tensor(g, layer, "attn_k_b.weight");
    return MLA | (hp->mla.q_rank ? MLA_Q_A : MLA_Q) | (joint ? MLA_JOINT : MLA_APART);
}

static uint64_t attention_features(const gguf *g, const struct model_arch *a, uint32_t layer) {
    bool fused = !a->attention_gate && has_tensor(g, 0, "attn_qkv.weight");
    uint64_t bits = ATTENTION | (fused ? QKV_FUSED : KV_APART);
    if (!fused) bits |= a->attention_gate ? Q_GATED : Q_APART;
    if (a->qk_norm != MODEL_QK_NORM_NONE &&
        (!a->qk_norm_optional || has_tensor(g, layer, "attn_q_norm.weight")))
        bits |= QK_NORM;
    if (a->gate_apart) bits |= GATE_APART;
    if (a->qkv_bias) bits |= fused ? QKV_FUSED_BIAS : QKV_APART_BIAS;
    if (a->output_bias) bits |= OUT_BIAS;
    if (a->sinks && (!a->sinks_optional || has_tensor(g, layer, "attn_sinks.weight")))
        bits |= SINKS;
    return bits;
}

static uint64_t recurrent_features(const gguf *g, const struct model_arch *a, uint32_t layer) {
    if (a->short_conv) return SHORT_CONV;
    if (a->kda) return KDA;
    if (a->mamba2) return RECURRENT | MAMBA2 | (a->norm_optional ? 0 : MAMBA2_NORM);
    return RECURRENT | DELTA_NET | (has_tensor(g, layer, "ssm_in.weight") ? QKVZ : QKV_Z) |
           (has_tensor(g, layer, "ssm_ba.weight") ? BETA_ALPHA : ALPHA_BETA);
}

static uint64_t find_features(const gguf *g, const struct model_hparams *hp,
                              const struct model_arch *a, uint32_t layer) {
    const uint8_t flags = hp->layers[layer];
    uint64_t bits = ANY;
    if (flags & MODEL_LAYER_NO_MIXER)
        bits |= LONE_FFN;
    else if (a->pre_norm)
        bits |= PRE_NORM;
    if (a->pre_norm && !(flags & (MODEL_LAYER_NO_MIXER | MODEL_LAYER_NO_FFN)))
        bits |= a->ffn_norm_is_post_attention      ? POST_ATTENTION_FFN_NORM
                : has_tensor(g, layer, "ffn_norm") ? BARE_NORM
                                                   : (uint64_t)FFN_NORM;
    if (hp->ffn_beside && a->beside != MODEL_BESIDE_BY_KEY) bits &= ~(uint64_t)FFN_NORM;
    if (a->encoder && layer == 0 && !has_tensor(g, 0, "attn_norm.weight"))
        bits &= ~(uint64_t)PRE_NORM; /* of ModernBERT: the embeddings are normed */
    if (a->norm_after) bits |= NORM_AFTER;
    if (a->layer_norm) bits |= NORM_BIAS;
    if (a->post_norm) bits |= POST_NORM;
    if (model_layer_attends(flags))
        bits |= a->mla ? mla_features(g, hp, layer) : attention_features(g, a, layer);
    if (flags & MODEL_LAYER_RECURRENT) bits |= recurrent_features(g, a, layer);
    if (flags & MODEL_LAYER_NO_FFN) return bits;
    if (!hp->experts.n_experts || flags & MODEL_LAYER_DENSE)
        return bits | DENSE |
               (a->ungated         ? FF_UP
                : a->fused_gate_up ? (uint64_t)FF_FUSED
                                   : (uint64_t)FF_APART);
    bits |= EXPERTS | (has_tensor(g, layer, "exp_probs_b") ? BARE_BIAS : CHOICE_BIAS);
    if (a->ungated)
        bits |= EXPERTS_UP;
    else
        bits |= has_tensor(g, layer, "ffn_gate_up_exps.weight") ? EXPERTS_FUSED : EXPERTS_APART;
    if (hp->experts.n_latent) bits |= LATENT;
    if (a->expert_biases) bits |= EXPERT_BIAS;
    if (hp->experts.n_ff_shared)
        bits |= (a->ungated ? SHARED_UP : (uint64_t)SHARED) | (a->shared_ungated ? 0 : SHARED_GATE);
    return bits;
}

static void find_recurrent_dims(const struct model_recurrent *r, uint64_t out[N_DIMS]) {
    const uint64_t d = r->v_dim, keys = (uint64_t)r->n_k_heads * r->k_dim,
                   values = r->n_v_heads * d;
    if (!r->n_layers) return;
    out[DIM_TAPS] = r->n_taps;
    out[DIM_CONV] = (2 * keys + values + r->channels) * r->n_taps;
    out[DIM_BCX] = 3 * (uint64_t)r->channels;
    out[DIM_SHORT] = r->channels;
    if (r->channels) return;
    out[DIM_CONV_KEYS] = keys * r->n_taps;
    out[DIM_STATE] = d;
    out[DIM_TWO_STATES] = 2 * d;
    out[DIM_K_HEADS] = r->n_k_heads;
    out[DIM_V_HEADS] = r->n_v_heads;
    out[DIM_V_OF_K] = r->n_v_heads / r->n_k_heads;
    out[DIM_KEYS] = keys;
    out[DIM_VALUES] = out[DIM_OUT_VALUES] = values;
    out[DIM_CHANNELS] = 2 * keys + values;
    out[DIM_QKV_OF_K] = (2 * keys + values) / r->n_k_heads;
    out[DIM_CHANNELS_Z] = out[DIM_CHANNELS_OF_Z] = 2 * keys + 2 * values;
    out[DIM_ZXBCDT] = 2 * keys + 2 * values + r->n_v_heads;
    out[DIM_GROUP] = values / (r->mamba2 ? r->n_norm_groups : r->n_k_heads);
    out[DIM_BETA_ALPHA] = 2 * (uint64_t)r->n_v_heads;
}

static void find_mla_dims(const struct model_hparams *hp, uint64_t out[N_DIMS]) {
    const struct model_mla *m = &hp->mla;
    const uint64_t n = hp->n_heads;
    if (!m->kv_rank) return;
    out[DIM_Q_RANK] = m->q_rank;
    out[DIM_KV_RANK] = m->kv_rank;
    out[DIM_LATENT_ROW] = hp->head_dim;
    out[DIM_Q_HEADS] = n * m->k_dim;
    out[DIM_K_NOPE] = m->k_dim - (hp->head_dim - m->kv_rank);
    out[DIM_K_B] = n * m->kv_rank;
    out[DIM_V_B] = n * m->v_dim;
    out[DIM_KV_B] = n * (out[DIM_K_NOPE] + m->v_dim);
}

static void find_dims(const struct model_hparams *hp, const struct model_arch *a,
                      uint64_t out[N_DIMS]) {
    uint64_t heads = (uint64_t)hp->n_heads * hp->head_dim;
    uint64_t kv = (uint64_t)hp->n_kv_heads * hp->head_dim;
    const uint64_t v_dim = hp->v_dim ? hp->v_dim : hp->head_dim, v = hp->n_kv_heads * v_dim;
    bool rows = a->qk_norm == MODEL_QK_NORM_ROW;
    const uint64_t dims[N_DIMS] = {[DIM_VECTOR] = 1,
                                   [DIM_ONE] = 1,
                                   [DIM_EMBD] = hp->n_embd,
                                   [DIM_OUT_EMBD] = hp->n_embd,
                                   [DIM_HEADS] = heads,
                                   [DIM_KV] = kv,
                                   [DIM_HEADS_KV] = heads + kv,
                                   [DIM_QKV] = heads + kv + v,
                                   [DIM_V] = v,
                                   [DIM_ATTENDED] = hp->n_heads * v_dim,
                                   [DIM_N_HEADS] = hp->n_heads,
                                   [DIM_GATES] = heads / (hp->gate_span ? hp->gate_span : 1),
                                   [DIM_Q_NORM] = rows ? heads : hp->head_dim,
                                   [DIM_K_NORM] = rows ? kv : hp->head_dim,
                                   [DIM_FF] = hp->n_ff,
                                   [DIM_GATE_UP] = 2 * (uint64_t)hp->n_ff,
                                   [DIM_EXPERTS] = hp->experts.n_experts,
                                   [DIM_FF_EXPERT] = hp->experts.n_ff,
                                   [DIM_FF_SHARED] = hp->experts.n_ff_shared,
                                   [DIM_GATE_UP_EXPERT] = 2 * (uint64_t)hp->experts.n_ff,
                                   [DIM_LATENT] = hp->experts.n_latent,
                                   [DIM_EXPERT] =
                                       hp->experts.n_latent ? hp->experts.n_latent : hp->n_embd,
                                   [DIM_VOCAB] = hp->n_vocab,
                                   [DIM_POSITIONS] = hp->encoder.n_positions,
                                   [DIM_TYPES] = hp->encoder.n_types,
                                   [DIM_HEAD] = hp->head_dim,
                                   [DIM_HEADS_GATED] = 2 * heads};
    memcpy(out, dims, sizeof dims);
    find_recurrent_dims(&hp->recurrent, out);
    find_mla_dims(hp, out);
    model_gemma4_dims(hp, out);
}

uint64_t weight_plan_dim(const struct weight_plan *p, uint32_t layer, enum weight_dim dim) {
    const struct model_hparams *hp = p->hp;
    if (layer == WEIGHT_NO_LAYER || !hp->heads_differ) return p->dims[dim];
    const uint64_t v_dim = hp->v_dim ? hp->v_dim : hp->head_dim, n = model_n_heads(hp, layer),
                   n_kv = model_n_kv_heads(hp, hp->layers[layer]), heads = n * hp->head_dim,
                   kv = n_kv * hp->head_dim;
    switch (dim) {
    case DIM_N_HEADS:
        return n;
    case DIM_HEADS:
        return heads;
    case DIM_GATES:
        return heads / hp->gate_span;
    case DIM_KV:
        return kv;
    case DIM_HEADS_KV:
        return heads + kv;
    case DIM_QKV:
        return heads + kv + n_kv * v_dim;
    case DIM_V:
        return n_kv * v_dim;
    case DIM_ATTENDED:
        return n * v_dim;
    default:
        return p->dims[dim];
    }
}

/* ---- the plan ---- */

void planned_weight_name(const struct planned_weight *w, char name[WEIGHT_NAME_BYTES]) {
    if (w->layer == WEIGHT_NO_LAYER)
        snprintf(name, WEIGHT_NAME_BYTES, "%s", w->role->name);
    else
        snprintf(name, WEIGHT_NAME_BYTES, "blk.%u.%s", w->layer, w->role->name);
}

/* Adds the roles that a model with these features has, and whose tensor exists or must. */
static void plan_roles(struct weight_plan *p, const struct weight_role *roles, size_t n_roles,
                       uint32_t layer, uint64_t features) {
    for (size_t i = 0; i < n_roles; i++) {
        char name[WEIGHT_NAME_BYTES];
        struct planned_weight w = {.role = &roles[i], .layer = layer};
        if (!(features & (w.role->must | w.role->may))) continue;
        planned_weight_name(&w, name);
        w.tensor = gguf_tensor_find(p->g, name);
        if (w.tensor || features & w.role->must) p->all[p->n++] = w;
    }
}

int weight_plan_make(struct weight_plan *p, const gguf *g, const struct model_hparams *hp,
                     const struct model_arch *arch, err *e) {
    struct model_keys k = {.g = g, .arch = model_arch_prefix(g, arch)};
    const uint64_t n_roles = N_MODEL_ROLES + model_gemma4_n_roles,
                   n_of_layer = N_LAYER_ROLES + model_gemma4_n_layer_roles;
    uint64_t n_blocks, n_most = n_roles + hp->n_layers * n_of_layer;
    *p = (struct weight_plan){.g = g,
                              .hp = hp,
                              .n_layers = hp->n_layers,
                              .n_blocks = hp->n_layers,
                              .scores = hp->pooling == MODEL_POOLING_RANK || hp->encoder.on,
                              .dense = hp->both_ways};
    if (arch->nextn && !gguf_get_u64(g, model_key(&k, "block_count"), &n_blocks, NULL))
        p->n_blocks = (uint32_t)n_blocks;
    find_dims(hp, arch, p->dims);
    p->all = mem_new(n_most, sizeof *p->all);
    p->first = mem_new((uint64_t)hp->n_layers + 1, sizeof *p->first);
    if (!p->all || !p->first) {
        weight_plan_free(p);
        return err_no_memory(e);
    }
    plan_roles(p, model_roles, N_MODEL_ROLES, WEIGHT_NO_LAYER,
               EVERY | (arch->encoder ? ENCODER : HEAD) |
                   (arch->short_conv   ? EMBD_NORM
                    : arch->norm_after ? 0
                                       : OUTPUT_NORM) |
                   (arch->layer_norm && !arch->norm_after ? OUTPUT_NORM_BIAS : 0) |
                   (arch->learned_positions ? POSITIONS : 0) | (arch->embed_norm ? INPUT_NORM : 0));
    if (arch->gemma4)
        plan_roles(p, model_gemma4_roles, model_gemma4_n_roles, WEIGHT_NO_LAYER,
                   model_gemma4_model_features(hp));
    for (uint32_t layer = 0; layer < hp->n_layers; layer++) {
        p->first[layer] = p->n;
        if (arch->gemma4)
            plan_roles(p, model_gemma4_layer_roles, model_gemma4_n_layer_roles, layer,
                       model_gemma4_features(g, hp, layer));
        else
            plan_roles(p, layer_roles, N_LAYER_ROLES, layer, find_features(g, hp, arch, layer));
    }
    p->first[hp->n_layers] = p->n;
    return 0;
}

void weight_plan_free(struct weight_plan *p) {
    free(p->all);
    free(p->first);
    *p = (struct weight_plan){.g = NULL};
}

/* ---- check ---- */

static int compare_tensors(const void *a, const void *b) {
    const gguf_tensor *const *x = a, *const *y = b;
    return *x < *y ? -1 : *x > *y;
}

static bool is_rope_tensor(gguf_str name) {
    for (size_t i = 0; i < N_ROPE_TENSORS; i++)
        if (name.len == strlen(rope_tensors[i]) && !memcmp(name.data, rope_tensors[i], name.len))
            return true;
    return false;
}

uint32_t model_tensor_layer(gguf_str name) {
    static const char prefix[] = "blk.";
    const size_t n = sizeof prefix - 1;
    uint32_t layer = 0;
    uint64_t i = n;
    if (name.len <= n || memcmp(name.data, prefix, n) != 0) return MODEL_MAX_LAYERS;
    for (; i < name.len && i < n + 4 && name.data[i] >= '0' && name.data[i] <= '9'; i++)
        layer = layer * 10 + (uint32_t)(name.data[i] - '0');
    bool numbered = i > n && i < name.len && name.data[i] == '.';
    return numbered && layer < MODEL_MAX_LAYERS ? layer : MODEL_MAX_LAYERS;
}

bool weight_plan_skips(const struct weight_plan *p, const gguf_tensor *t) {
    uint32_t layer = model_tensor_layer(t->name);
    return layer >= p->n_layers && layer < p->n_blocks;
}

/* Replaces the end of a tensor's name; NULL: it has another end, or there is no such tensor. */
static const gguf_tensor *find_beside(const gguf *g, gguf_str name, const char *end,
                                      const char *by) {
    const size_t n = strlen(end);
    char other[WEIGHT_NAME_BYTES];
    if (name.len < n || name.len - n + strlen(by) >= sizeof other ||
        memcmp(name.data + name.len - n, end, n) != 0)
        return NULL;
    memcpy(other, name.data, name.len - n);
    strcpy(other + name.len - n, by);
    return gguf_tensor_find(g, other);
}

const gguf_tensor *model_nvfp4_scales(const gguf *g, const gguf_tensor *t) {
    return find_beside(g, t->name, ".weight", ".scale");
}

/* A scale of NVFP4 values, or of what is multiplied with them: inputs are rounded as ours are. */
static bool is_nvfp4_scale(const struct weight_plan *p, gguf_str name) {
    const gguf_tensor *of = find_beside(p->g, name, ".scale", ".weight");
    if (!of) of = find_beside(p->g, name, ".input_scale", ".weight");
    return of && of->type == QTYPE_NVFP4;
}

/* K and V of each head in one tensor, where they are apart, too: files of ik_llama.cpp. */
static bool is_joint_copy(const struct weight_plan *p, gguf_str name) {
    return find_beside(p->g, name, "attn_kv_b.weight", "attn_k_b.weight") != NULL;
}

static int refuse_unexpected(const struct weight_plan *p, err *e) {
    const gguf_tensor **planned = mem_new(p->n, sizeof *planned);
    int rc = 0;
    if (!planned) return err_no_memory(e);
    for (uint32_t i = 0; i < p->n; i++)
        planned[i] = p->all[i].tensor;
    qsort(planned, p->n, sizeof *planned, compare_tensors);
    for (uint64_t i = 0; !rc && i < gguf_n_tensors(p->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(p->g, i);
        if (is_rope_tensor(t->name) || model_gemma4_skips(p->hp, t->name) ||
            weight_plan_skips(p, t) || (p->scores && model_is_score_tensor(t->name)) ||
            (p->dense && model_is_dense_tensor(t->name)) || is_nvfp4_scale(p, t->name) ||
            is_joint_copy(p, t->name) ||
            bsearch(&t, planned, p->n, sizeof *planned, compare_tensors))
            continue;
        rc = err_set(e, ERR_UNSUPPORTED, "%s: unexpected tensor %.*s for this architecture",
                     gguf_path(p->g), (int)(t->name.len < 96 ? t->name.len : 96), t->name.data);
    }
    free(planned);
    return rc;
}

/* dims as in the file: fastest first. */
static void find_shape(const struct weight_plan *p, const struct planned_weight *w,
                       uint64_t dims[3]) {
    const struct weight_role *role = w->role;
    bool vector = role_is_vector(role), whole = role->whole != DIM_VECTOR;
    uint64_t n_experts = role->experts ? p->dims[DIM_EXPERTS] : 1;
    dims[0] = weight_plan_dim(p, w->layer, vector && whole ? role->whole : role->n_in);
    dims[1] = vector ? n_experts : weight_plan_dim(p, w->layer, whole ? role->whole : role->n_out);
    dims[2] = vector ? 1 : n_experts;
    if (role->by_head && !whole) {
        dims[2] = p->dims[DIM_N_HEADS];
        dims[1] /= dims[2];
    }
    if (role->n_cols == DIM_VECTOR) return;
    dims[0] = p->dims[role->n_cols];
    dims[1] = p->dims[role->n_in] / dims[0];
}

/* Has the tensor these dimensions, beside others that are 1? llama.cpp's files have them, in places
 * that quantizing changes. */
static bool is_shape_of(const gguf_tensor *t, const uint64_t dims[3]) {
    uint64_t left[2][4] = {{0}};
    int n[2] = {0};
    for (uint32_t i = 0; i < 4; i++) {
        if (i < t->n_dims && t->dims[i] != 1) left[0][n[0]++] = t->dims[i];
        if (i < 3 && dims[i] != 1) left[1][n[1]++] = dims[i];
    }
    return memcmp(left[0], left[1], sizeof left[0]) == 0;
}

/* Scales of an NVFP4 tensor: F32, one or one for each expert. */
static int check_scales(const struct weight_plan *p, const struct planned_weight *w,
                        const char *name, err *e) {
    const gguf_tensor *t = w->tensor, *scales = model_nvfp4_scales(p->g, t);
    if (w->role->turned)
        return err_set_param(e, ERR_UNSUPPORTED, name,
                             "%s: tensor %s is NVFP4, which its split "
                             "into K and V does not take",
                             gguf_path(p->g), name);
    if (!scales ||
        (scales->type == QTYPE_F32 && (scales->n_elems == 1 || scales->n_elems == t->dims[2])))
        return 0;
    return err_set_param(e, ERR_FORMAT, name,
                         "%s: the scales of NVFP4 tensor %s are %llu of %s, expected 1 or %llu of "
                         "F32",
                         gguf_path(p->g), name, (unsigned long long)scales->n_elems,
                         qtype_name(scales->type), (unsigned long long)t->dims[2]);
}

static bool fits(const struct weight_role *role, const gguf_tensor *t, const uint64_t dims[3]) {
    if (role_is_vector(role) && role->must & KDA) return is_shape_of(t, dims);
    /* Files of ik_llama.cpp have the rows of all heads in one matrix. */
    const bool flat = role->by_head && t->n_dims == 2 && t->dims[1] == dims[1] * dims[2];
    return t->n_dims <= 3 && t->dims[0] == dims[0] &&
           (flat || (t->dims[1] == dims[1] && t->dims[2] == dims[2]));
}

static int check_weight(const struct weight_plan *p, const struct planned_weight *w, err *e) {
    const gguf_tensor *t = w->tensor;
    char name[WEIGHT_NAME_BYTES];
    uint64_t dims[3];
    planned_weight_name(w, name);
    if (!t) return err_set_param(e, ERR_FORMAT, name, "%s: no tensor %s", gguf_path(p->g), name);
    find_shape(p, w, dims);
    if (!fits(w->role, t, dims))
        return err_set_param(e, ERR_FORMAT, name,
                             "%s: tensor %s has %u dimensions, first (%llu, %llu, %llu), expected "
                             "(%llu, %llu, %llu)",
                             gguf_path(p->g), name, t->n_dims, (unsigned long long)t->dims[0],
                             (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                             (unsigned long long)dims[0], (unsigned long long)dims[1],
                             (unsigned long long)dims[2]);
    if (role_is_vector(w->role) && t->type != QTYPE_F32)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor %s is %s, expected F32",
                             gguf_path(p->g), name, qtype_name(t->type));
    return t->type == QTYPE_NVFP4 ? check_scales(p, w, name, e) : 0;
}

int model_weights_check(const gguf *g, const struct model_hparams *hp,
                        const struct model_arch *arch, err *e) {
    struct weight_plan p;
    int rc = weight_plan_make(&p, g, hp, arch, e);
    if (!rc) rc = refuse_unexpected(&p, e);
    for (uint32_t i = 0; !rc && i < p.n; i++)
        rc = check_weight(&p, &p.all[i], e);
    weight_plan_free(&p);
    return rc;
}
