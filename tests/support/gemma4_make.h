/* gemma4_make.h - tiny random files of Gemma 4; see arch_make.h. Single thread. */
#ifndef INFERD_TESTS_GEMMA4_MAKE_H
#define INFERD_TESTS_GEMMA4_MAKE_H

#include "tests/support/arch_make.h"

/* Windowed layers except every period-th; heads of two widths, the wide ones rotated in part. The
 * last n_shared layers read the K and V of others. */
static inline void gemma4(struct maker *m, uint32_t period, uint32_t n_shared) {
    struct forward64 *f = &m->f;
    f->gemma4 = true;
    f->n_shared_kv = n_shared;
    f->embed_scale = sqrt(f->n_embd);
    f->attn_scale = 1;
    f->act = FORWARD64_GELU_TANH;
    f->renormalize = true;
    f->n_ff_shared_kv = f->n_ff;
    window(m, 13, period);
    set_bools(m, "attention.sliding_window_pattern", f->windowed, f->n_layers);
    set_u32(m, "attention.shared_kv_layers", n_shared);
}

/* Widths and numbers of KV heads, of windowed layers and of the others. */
static inline void gemma4_heads(struct maker *m, uint32_t narrow, uint32_t n_narrow, uint32_t wide,
                                uint32_t n_wide) {
    struct forward64 *f = &m->f;
    int32_t list[FORWARD64_MAX_LAYERS];
    f->head_dim = wide, f->n_kv_heads = n_wide;
    f->window_head_dim = narrow, f->n_window_kv_heads = n_narrow;
    for (int i = 0; i < 2; i++) {
        f->rope[i].n_rot = i ? narrow : wide;
        f->rope[i].magnitude = 1;
        rope64_plain(i ? 10000 : 1e6, (int)f->rope[i].n_rot, f->rope[i].inv_freq);
    }
    set_u32(m, "attention.key_length_swa", narrow);
    set_u32(m, "attention.value_length_swa", narrow);
    set_u32(m, "rope.dimension_count", wide);
    set_u32(m, "rope.dimension_count_swa", narrow);
    set_f32(m, "rope.freq_base", 1e6);
    set_f32(m, "rope.freq_base_swa", 10000);
    m->n_kv_list = n_narrow != n_wide;
    for (uint32_t i = 0; i < f->n_layers; i++)
        list[i] = (int32_t)(f->windowed[i] ? n_narrow : n_wide);
    if (m->n_kv_list) set_i32s(m, "attention.head_count_kv", list, f->n_layers);
}

/* Only the first n_pairs pairs of a wide head turn. */
static inline void gemma4_partly(struct maker *m, uint32_t n_pairs) {
    float divisors[256];
    for (uint32_t i = 0; i < m->f.head_dim / 2; i++) {
        divisors[i] = i < n_pairs ? 1 : 1e30f;
        if (i >= n_pairs) m->f.rope[0].inv_freq[i] = 0;
    }
    add(m, -1,
        &(struct shape){
            .name = "rope_freqs.weight", .n_in = m->f.head_dim / 2, .values = divisors});
}

/* E2B: per-layer embeddings; the layers that share K and V have wider FFNs, and the file has K and
 * V of theirs that nobody reads. */
static inline void make_gemma4_e(struct maker *m) {
    int32_t ff[6];
    start(m, "gemma4", 0);
    m->f.n_layers = 6;
    m->f.n_ff = 30;
    gemma4(m, 3, 2);
    gemma4_heads(m, 14, 2, 22, 2);
    gemma4_partly(m, 3);
    m->f.n_ff_shared_kv = 58;
    for (int i = 0; i < 6; i++)
        ff[i] = i < 4 ? 30 : 58;
    m->n_ff_list = true;
    set_i32s(m, "feed_forward_length", ff, 6);
    m->f.n_per_layer = 10;
    set_u32(m, "embedding_length_per_layer_input", 10);
    m->f.logit_softcap = 7;
    set_f32(m, "final_logit_softcapping", 7);
    const uint64_t all = 6 * 10;
    add_matrix(m, -1, "per_layer_token_embd.weight", N_VOCAB, all);
    add_matrix(m, -1, "per_layer_model_proj.weight", all, m->f.n_embd);
    add_vector(m, -1, "per_layer_proj_norm.weight", 10, true);
    add_matrix(m, 4, "attn_k.weight", 28, m->f.n_embd);
    add_matrix(m, 5, "attn_v.weight", 44, m->f.n_embd);
    add_vector(m, 5, "attn_k_norm.weight", 22, true);
}

/* 26B-A4B: experts beside the FFN; V is K in layers with full attention. fused: gate and up of the
 * experts in one tensor, and factors of experts. n_narrow, n_wide: KV heads of windowed layers, and
 * of the others. */
static inline void make_gemma4_moe_of(struct maker *m, bool fused, uint32_t n_narrow,
                                      uint32_t n_wide) {
    start(m, "gemma4", fused ? GATE_UP_FUSED : UNTIED);
    m->f.n_layers = 4;
    m->v_is_k = true;
    gemma4(m, 2, 0);
    gemma4_heads(m, 14, n_narrow, 24, n_wide);
    gemma4_partly(m, 4);
    experts(m, 6, 2, 22);
}
static inline void make_gemma4_moe(struct maker *m, bool fused) {
    make_gemma4_moe_of(m, fused, 3, 1);
}

#endif
