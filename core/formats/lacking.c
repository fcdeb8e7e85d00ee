/* lacking.c - one row for each name of a family; NULL where it has no such name. Pure. */
#include "core/formats/lacking.h"

#include <string.h>

static const struct {
    const char *arch, *model_type, *lacks;
} rows[] = {
    /* encoders */
    {"jina-bert-v3", NULL, "LoRA adapters chosen by task"},
    {"nomic-bert-moe", NULL, "experts in encoders"},
    {"neo-bert", "neobert", "RMS norms in encoders"},
    {"eurobert", "eurobert", "RMS norms in encoders"},
    {NULL, "distilbert", "its names of BERT's tensors: use a GGUF file of it"},
    {NULL, "mpnet", "relative position biases"},
    {NULL, "deberta-v2", "disentangled attention"},
    {NULL, "new", "NTK's scaling of RoPE and an FFN gated by GELU in encoders"},
    /* attention that chooses what it reads */
    {"deepseek32", "deepseek_v32", "an indexer that chooses the tokens attention reads"},
    {"deepseek4", "deepseek_v4", "compressed attention and hyper-connections"},
    {"glm-dsa", "glm_moe_dsa", "an indexer that chooses the tokens attention reads"},
    {"minimax-m3", "minimax_m3_vl", "an indexer that chooses the blocks attention reads"},
    /* linear attention */
    {"kimi-k3", "kimi_k3", "attention over the outputs of earlier layers, and SiTU"},
    {"bailingmoe3", NULL, "delta nets whose decays have a lower bound, and gated latent attention"},
    {NULL, "bailing_hybrid", "the linear attention of Ling 2.5 and Ling 3"},
    {NULL, "bamba", "its members of config.json, and rotation of a part of each head"},
    /* others */
    {"granite_swa", "granite_swa", "sinks, and rotation by layer, with Granite's factors"},
    {"gemma3n", "gemma3n", "AltUp's streams and sparse activations"},
    {"falcon", "falcon",
     "its fused Q, K and V, and attention and FFN with a norm each, side by side"},
    {"qwen3vl", "qwen3_vl", "images"},
    {"qwen3vlmoe", "qwen3_vl_moe", "images"},
    {NULL, "mimo_v2", "its layout of Q, K and V: use a GGUF file of it"},
    {NULL, "step3p7", "images around Step 3.5: use a GGUF file of it (step35)"},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

const char *lacking_for_arch(const char *name, size_t n) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].arch && n == strlen(rows[i].arch) && memcmp(name, rows[i].arch, n) == 0)
            return rows[i].lacks;
    return NULL;
}

const char *lacking_for_folder(const char *model_type) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].model_type && strcmp(model_type, rows[i].model_type) == 0) return rows[i].lacks;
    return NULL;
}
