/* hf/model_int.h - shared by the files of hf_model: configuration, rotary embedding, names and
 * layouts of tensors. Private to core/formats. */
#ifndef INFERD_FORMATS_HF_MODEL_INT_H
#define INFERD_FORMATS_HF_MODEL_INT_H

#include "core/base/mem.h"
#include "core/formats/gguf/gguf_int.h"
#include "core/formats/hf/json.h"
#include "core/formats/hf/model.h"
#include "core/formats/hf/safetensors.h"

/* ---- hf/config.c: config.json -> keys ---- */

/* How a family differs from the others, beyond its numbers. */
enum hf_trait {
    HF_PERMUTED = 1 << 0,        /* GGUF orders rows of Q and K for pairs (2i, 2i + 1) */
    HF_NORM_PLUS_1 = 1 << 1,     /* norms multiply by 1 + weight */
    HF_POST_NORMS = 1 << 2,      /* post_attention_layernorm comes before the residual is added */
    HF_GPT_OSS = 1 << 3,         /* experts as gpt-oss stores them */
    HF_LLAMA_KEYS = 1 << 4,      /* GGUF has its vocab_size and rope.dimension_count */
    HF_NO_HEAD_DIM = 1 << 5,     /* head_dim in config.json is ignored */
    HF_GELU = 1 << 6,            /* its activation is tanh-approximated GELU; else SiLU */
    HF_EMBED_HEAD = 1 << 7,      /* the output head is the embedding, whatever the files hold */
    HF_LAYER_TYPES = 1 << 8,     /* reads layer_types */
    HF_SWITCHED_WINDOW = 1 << 9, /* use_sliding_window must be true for a window */
    HF_EXPERTS = 1 << 10,
    HF_QWEN_EXPERTS = 1 << 11, /* moe_intermediate_size, norm_topk_prob etc. */
    HF_SCALES = 1 << 12,       /* granite's multipliers */
    HF_GEMMA_CAPS = 1 << 13,   /* query_pre_attn_scalar, soft-caps */
    HF_NOPE = 1 << 14,         /* no_rope_layers */
    HF_IMAGES = 1 << 15,       /* files may hold a vision part beside the language model */
    HF_DELTA_NET = 1 << 16,    /* linear attention, gated attention, part of a head rotated */
    HF_MROPE = 1 << 17,        /* GGUF has rope.dimension_sections */
    HF_MAMBA2 = 1 << 19,       /* layers with Mamba-2 */
    HF_MLA = 1 << 20,          /* multi-head latent attention, and DeepSeek's names of members */
    HF_SHORT_CONV = 1 << 18,   /* layers with a short convolution, and LFM2's names of members */
    HF_QKV_STACKED = 1 << 21,  /* query_key_value is all of Q, then of K, then of V */
    HF_KDA = 1 << 22,          /* layers with Kimi Delta Attention, and Kimi's names of members */
    HF_OLDER = 1 << 23,        /* GPT-2, MPT and BLOOM, as hf/older.c reads them */
    HF_ROUTED = 1 << 24,       /* experts as hf/experts.c reads them */
    HF_PREDICTS = 1 << 25,     /* layers behind the others predict further tokens */
    HF_PARTIAL = 1 << 26,      /* a part of a head may be rotated */
    HF_GEMMA4 = 1 << 27,       /* as hf/gemma4.c reads them; files may hold an audio part, too */
    HF_LLAMA4 = 1 << 28,       /* as hf/llama4.c reads them */
    HF_ENCODER = 1 << 29,      /* as hf/encoder.c reads them */
    HF_PADDED_POSITIONS = 1 << 30 /* the first position embeddings are of padding */
};

/* Which layers have a window without layer_types; GGUF readers assume the same. */
enum hf_window {
    HF_WINDOW_NONE,
    HF_WINDOW_ALL,
    HF_WINDOW_PERIOD,      /* all except every n-th */
    HF_WINDOW_FROM_LAYER,  /* from layer max_window_layers on */
    HF_WINDOW_ALTERNATING, /* even ones below max_window_layers */
    HF_WINDOW_NOPE         /* those without rotation */
};

struct hf_reader;

struct hf_family {
    const char *model_type, *class_name; /* "llama", "LlamaForCausalLM" */
    const char *arch;                    /* general.architecture */
    uint32_t traits;                     /* enum hf_trait */
    enum hf_window window;
    uint32_t period;
    const char *eps; /* the member with LayerNorm's epsilon; NULL: norms are RMS norms */
    double rotated;  /* default of partial_rotary_factor; 0: heads are rotated as a whole */
    const char *act; /* the only hidden_act that its models have; NULL: as the traits say */
    /* transformers' defaults for members missing in config.json. 0: the member is required;
     * n_kv_heads 0: n_heads; head_dim 0: hidden / n_heads. */
    uint32_t hidden, ff, n_layers, n_heads, n_kv_heads, head_dim, max_positions, vocab;
    uint32_t sliding_window, n_experts, n_experts_used, expert_ff, shared_ff;
    double rms_eps, rope_theta;
    bool tied, renormalize; /* norm_topk_prob */
    bool ropes_by_kind;     /* layers with a window have a rotary embedding of their own */
    /* Reads config.json after hf_read_packing; NULL: config.c does. */
    int (*read)(struct hf_reader *r);
};

/* Multipliers of a family: of its matrices, which is where GGUF has them, or of vectors, so that
 * matrices can be read in place. */
enum hf_scale {
    HF_SCALE_NONE,
    HF_SCALE_ATTENTION_IN,
    HF_SCALE_K,
    HF_SCALE_ATTENTION_OUT,
    HF_SCALE_FFN_GATE,
    HF_SCALE_FFN_DOWN,
    HF_SCALE_SSM_IN,      /* by parts: Z, x, B, C and dt */
    HF_SCALE_CONVOLUTION, /* by parts: x, B and C */
    HF_SCALE_ATTENTION_NORM,
    HF_SCALE_FFN_NORM,
    HF_SCALE_SSM_OUT,
    HF_SCALE_EMBED,
    HF_SCALE_HEAD,
    HF_N_SCALES
};
enum { HF_SSM_PARTS = 5 };

/* How a folder's weights are quantized. */
enum hf_packing {
    HF_PACKING_NONE,
    HF_PACKING_FP8,
    HF_PACKING_MODELOPT,
    HF_PACKING_AWQ,
    HF_PACKING_GPTQ,
    HF_PACKING_COMPRESSED /* compressed-tensors */
};

enum { HF_MAX_DENSE = 2, HF_DENSE_PATH_BYTES = 64 };

/* Parameters of the mapping of tensors. */
struct hf_config {
    const struct hf_family *family;
    uint32_t n_layers, hidden, n_ff, n_heads, n_kv_heads, head_dim, n_rot, n_experts;
    uint64_t max_positions, window; /* window 0: none */
    uint64_t first_position;        /* of encoders: position embeddings before it are left out */
    float query_factor;             /* not 0: norms of Q hold it, those of K 1 */
    bool classifies;                /* an encoder with a head that scores */
    uint64_t n_predicting;          /* layers behind the others that are left out */
    bool tied;
    uint32_t n_dense; /* layers behind pooling, in files of their own, in this order: */
    char dense[HF_MAX_DENSE][HF_DENSE_PATH_BYTES]; /* folders of their modules */
    bool pooled;        /* its outputs are vectors or scores: it may have no output head */
    bool as_file;       /* GGUF_OPEN_AS_FILE; set by the caller of hf_config_read */
    bool tiles_v_heads; /* of linear attention, as GGUF files of these families do */
    uint32_t n_k_heads, n_v_heads, state_dim;
    uint32_t n_norm_groups;    /* of Mamba-2 */
    uint32_t n_kv_shared;      /* Gemma 4: the last layers, which have no K and V of their own */
    uint32_t k_nope, v_dim;    /* of a head of latent attention: K's not rotated part, V */
    float scales[HF_N_SCALES]; /* 0 is 1 */
    float ssm_scales[HF_SSM_PARTS];
    uint64_t ssm_rows[HF_SSM_PARTS];
    enum hf_packing packing;
    bool zeros_plus_1;               /* GPTQ's first format stores zero - 1 */
    uint64_t scale_rows, scale_cols; /* of FP8: weights of one scale, if they are in blocks */
    bool has_factors[3];             /* enum hf_factors */
    float factors[3][256];           /* (n_rot / 2) divisors of the rotary frequencies */
    uint32_t n_factors;              /* not 0: the tensor has as many */
};
enum hf_factors { HF_ROPE_FREQS, HF_ROPE_LONG, HF_ROPE_SHORT };
enum { HF_MAX_ROT = 512, HF_MAX_LAYERS = 1024, HF_MAX_EXPERTS = 4096 };

/* Reads members of config.json and writes keys. rc keeps the first failed write of a key. */
struct hf_reader {
    const cJSON *json; /* the text model's members */
    const cJSON *root; /* the whole file: json itself, or the object around it */
    struct hf_config *config;
    gguf_writer *keys;
    int rc;
    err *e;
};

/* Fills *config and writes the architecture's keys. Errors name the member. */
int hf_config_read(const char *json, size_t n, gguf_writer *keys, struct hf_config *config, err *e);
/* families.c: sets r->config->family, and r->json to the text model's members. ERR_FORMAT,
 * ERR_UNSUPPORTED. */
int hf_choose_family(struct hf_reader *r);
/* generation.c: adds the sampling that generation_config.json (document, of hf_json_parse) asks
 * for. do_sample false is temperature 0. A value that is wrong is named in the log and not used. */
int hf_generation_write(const void *document, const char *path, gguf_writer *keys, err *e);

/* windowed (n_layers) by layer_types. */
int hf_read_layer_types(struct hf_reader *r, const cJSON *list, bool *windowed);

/* NULL: missing, or null. */
const cJSON *hf_value(const cJSON *object, const char *name);
/* Reads an integer in min..max. */
int hf_read_count(struct hf_reader *r, const char *name, uint64_t fallback, uint64_t min,
                  uint64_t max, uint64_t *out);
/* Reads a finite number of object, which is r->json or inside it. */
int hf_read_real(struct hf_reader *r, const cJSON *object, const char *name, double fallback,
                 double *out);
/* A number of r->json that must be above 0. ERR_UNSUPPORTED. */
int hf_read_positive(struct hf_reader *r, const char *name, double fallback, double *out);
bool hf_is_null(const struct hf_reader *r, const char *name); /* there, and null */
/* Sets config->n_experts and writes both keys. */
void hf_put_expert_counts(struct hf_reader *r, uint64_t n, uint64_t n_used);
/* ERR_UNSUPPORTED for a member whose value has no counterpart in GGUF. */
int hf_refuse(struct hf_reader *r, const char *name, const char *why);

/* Keys prefixed by the architecture's name. */
void hf_put_u32(struct hf_reader *r, const char *suffix, uint64_t v);
void hf_put_f32(struct hf_reader *r, const char *suffix, double v);
void hf_put_bool(struct hf_reader *r, const char *suffix, bool v);
void hf_put_str(struct hf_reader *r, const char *suffix, const char *v);
void hf_put_bools(struct hf_reader *r, const char *suffix, const bool *v, uint32_t n);
void hf_put_i32s(struct hf_reader *r, const char *suffix, const int32_t *v, uint32_t n);
void hf_put_f32s(struct hf_reader *r, const char *suffix, const float *v, uint32_t n);

/* ---- hf/sentence.c ---- */

/* Writes the keys that modules.json asks for, which may be missing. After hf_config_read; sets
 * config->pooled. ERR_UNSUPPORTED names a module. */
int hf_sentence_read(const char *folder, gguf_writer *keys, struct hf_config *config, err *e);

#define HF_GEMMA_EMBEDDING "gemma-embedding" /* attention in both directions */

/* ---- hf/delta_net.c ---- */

/* Layers with linear attention and their sizes. */
int hf_read_delta_net(struct hf_reader *r);

/* ---- hf/short_conv.c ---- */

/* Layers with a short convolution, and its size. */
int hf_read_short_conv(struct hf_reader *r);
/* The FFN dimension, which members adjust. *ff: the family's default. */
int hf_short_conv_ff(struct hf_reader *r, uint32_t *ff);
/* The leading layers without experts, and how experts are weighted. */
int hf_put_sigmoid_experts(struct hf_reader *r);

/* ---- hf/experts.c ---- */

/* Keys of experts of HF_ROUTED families. */
int hf_put_routed_experts(struct hf_reader *r);
/* dense (n_layers): leading_dense_block_count, or if others have no experts a key of our own. */
void hf_put_dense_layers(struct hf_reader *r, const bool *dense);
/* Layers of Qwen's mixtures without experts. */
int hf_put_qwen_dense_layers(struct hf_reader *r);

/* ---- hf/cohere.c ---- */

bool hf_is_cohere_moe(const struct hf_reader *r); /* Command A with experts */
/* Keys of Command R and Command A; nothing for other families. */
int hf_put_cohere(struct hf_reader *r);
/* The member with the FFN dimension of layers without experts; NULL: the usual one. */
const char *hf_cohere_dense_ff(const struct hf_reader *r);
/* ERR_UNSUPPORTED names a member of its experts that is not as in its models. */
int hf_check_cohere_experts(struct hf_reader *r);

/* ---- hf/mamba2.c ---- */

#define HF_NEMOTRON_EXPERTS "nemotron_h_moe"
bool hf_is_nemotron(const struct hf_reader *r); /* Nemotron-H, with or without experts */
/* Does config.json list layers of Nemotron-H that are experts? */
bool hf_has_lone_experts(const struct hf_reader *r);
/* Layers that config.json lists, or the family's usual number. */
uint32_t hf_mamba2_layers(const struct hf_reader *r);
/* Is the shared expert, of Granite 4.0, the whole FFN? */
bool hf_only_shared_expert(const struct hf_reader *r);
/* Layers with Mamba-2 and their sizes. */
int hf_read_mamba2(struct hf_reader *r);

/* ---- hf/mla.c ---- */

/* Sets head_dim to the rotated dimensions of a head. */
int hf_mla_head(struct hf_reader *r);
/* *part: the rotated part of a head as a whole; becomes that of head_dim, 1. */
int hf_mla_part(struct hf_reader *r, double *part);
/* Latent attention, its sizes, and DeepSeek's experts. */
int hf_read_mla(struct hf_reader *r);

/* ---- hf/kda.c ---- */

/* Layers with Kimi Delta Attention and their sizes; sizes and latent attention are read. */
int hf_read_kda(struct hf_reader *r);

/* ---- hf/packing.c: where quantized weights are ---- */

/* quantization_config. ERR_UNSUPPORTED names the member. */
int hf_read_packing(struct hf_reader *r);

struct hf_finder {
    const struct hf_config *config;
    safetensors *const *files; /* (n_files) */
    uint32_t n_files;
    arena *memory; /* of what is found */
    err *e;
};

/* What the tensor s, of the file at path, stands for: *out is s itself, a matrix of type ST_PACKED
 * named "....weight", or NULL for a tensor that belongs to another one. ERR_FORMAT, ERR_UNSUPPORTED
 * name the tensor. */
int hf_find_packed(const struct hf_finder *f, const char *path, const struct safetensor *s,
                   const struct safetensor **out);

/* ---- hf/packed.c: their values ---- */

enum hf_packed_kind { HF_E4M3, HF_E2M1, HF_INTEGERS };
enum hf_packed_order { HF_ORDER_ROWS, HF_ORDER_GPTQ, HF_ORDER_AWQ };

/* A matrix (n_rows, n_cols). The scale of output r and group g is number r / group_rows * scale_row
 * + g * scale_col of scales. */
struct hf_packed {
    enum hf_packed_kind kind;
    enum hf_packed_order order; /* of integers: ROWS (n_rows, n_cols), GPTQ (n_cols / n, n_rows) and
                                   AWQ (n_cols, n_rows / 8) of words */
    const struct safetensor *values, *scales;
    const struct safetensor *zeros;  /* NULL: the middle of the range */
    const struct safetensor *groups; /* (n_cols) I32: of each input; NULL: c / group_cols */
    uint64_t n_rows, n_cols, n_groups;
    uint64_t group_rows, group_cols, scale_row, scale_col;
    uint64_t row_bytes; /* ROWS: of values */
    uint32_t bits;      /* of integers: 2, 4, 8 */
    uint32_t each_log2; /* of the number of them in 32 bits */
    int32_t zero_plus;
    float unit; /* of E2M1: a factor of the scales, or if divides a divisor */
    bool divides;
    int type; /* hf_packed_type: enum qtype */
};

/* Element i of F32, F16, BF16 or F8_E4M3. */
float hf_scale_at(const struct safetensor *s, uint64_t i);
/* n (up to HF_PACKED_VALUES) values of row r from column c on. */
enum { HF_PACKED_VALUES = 64 };
void hf_packed_values(const struct hf_packed *k, uint64_t r, uint64_t c, uint64_t n, float *out);
/* 32 of them as a block of type, which is at least k->type in the order Q4_0, Q5_0, Q8_0. */
void hf_packed_block(const struct hf_packed *k, int type, uint64_t r, uint64_t c, void *out);
/* The smallest of our types that says the same; F16 or BF16 if none does. Reads all scales. */
int hf_packed_type(const struct hf_packed *k);

/* ---- hf/gemma4.c ---- */

/* Gemma 4's heads, windows, rotary embedding, FFNs and experts; sizes are read. */
int hf_read_gemma4(struct hf_reader *r);
/* Is the tensor K or V of a layer that reads another layer's? */
bool hf_gemma4_skips(const struct hf_config *c, const char *name);

/* ---- hf/names.c ---- */

bool hf_begins_with(const char *name, const char *prefix);
/* Replaces n bytes at `at` by a text. The caller's buffer has room for it. */
void hf_replace(char *at, size_t n, const char *by);

/* ---- hf/older.c ---- */

/* All keys of GPT-2, MPT and BLOOM. */
int hf_read_older(struct hf_reader *r);
/* Gives a tensor's name the form that the tables have. name: with room for 32 bytes more. */
void hf_older_rename(char *name);

/* ---- hf/layer_heads.c ---- */

/* All keys of Laguna, Step 3.5 and MiMo 2. */
int hf_read_laguna(struct hf_reader *r);
int hf_read_step(struct hf_reader *r);
int hf_read_mimo(struct hf_reader *r);

/* ---- hf/glimmer.c ---- */

/* What Muse Glimmer has beside its sizes, windows and rotary embedding. */
int hf_read_glimmer(struct hf_reader *r);

/* ---- hf/llama4.c ---- */

/* Llama 4's attention and experts; sizes and rotary embedding are read. */
int hf_read_llama4(struct hf_reader *r);

/* ---- hf/encoder.c ---- */

/* All keys of an encoder. */
int hf_read_encoder(struct hf_reader *r);
/* Gives a tensor's name the form that the tables have. name: with room for 32 bytes more. */
void hf_encoder_rename(char *name);
/* Is the tensor, renamed, of a head that is not needed? */
bool hf_encoder_skips(const struct hf_config *c, const char *name);

/* ---- hf/rope.c ---- */
int hf_read_rope(struct hf_reader *r);

/* ---- hf/tensors.c: names and layouts ---- */

/* How a tensor is computed from its sources: element (m, r, c) of matrix m, row r, column c is
 * element (first + step * p(r), c) of matrix m of the source, with p the permutation of Q and K
 * rows; or (c, first + step * r) of a transposed one. */
struct hf_recipe {
    const struct safetensor **sources; /* (n_sources): one with all matrices, or one per matrix */
    uint32_t n_sources;
    const struct safetensor *scales; /* MXFP4: sources[0] holds nibbles; else NULL */
    const float *made;               /* these values, without a source */
    uint64_t n_mats, n_rows, n_cols; /* of the tensor */
    uint64_t src_rows, src_cols;     /* of a source's matrix */
    uint64_t first, step;
    uint32_t permuted_heads; /* 0: p(r) = r */
    bool transposed;
    /* Heads that GGUF has in another order: rows (by_cols: columns) from regroup_at on are
     * n_groups * n_share heads of `head`, of which number j of group g comes to place
     * j * n_groups + g. head 0: no. */
    uint64_t regroup_at, head;
    uint32_t n_groups, n_share;
    bool by_cols;
    float add;               /* to every element */
    float scale;             /* of every element; 0 is 1 */
    const float *row_scales; /* (n_rows) or NULL */
    bool negative_exp;       /* -e^x of every element x */
};

/* xIELU's parameters of a layer, which GGUF has in keys. */
enum hf_xielu_part { HF_ALPHA_P, HF_ALPHA_N, HF_BETA, HF_EPS, HF_N_XIELU };
struct hf_xielu {
    float v[HF_N_XIELU];
    bool has[HF_N_XIELU];
};

struct hf_tensors {
    gguf_tensor *tensors;      /* (n), in the converter's order */
    struct hf_recipe *recipes; /* (n) */
    uint64_t n;
    /* tensors left out: of a vision and of an audio part, of multi-token prediction */
    uint64_t n_vision, n_audio, n_mtp;
    struct hf_xielu *xielu; /* (n_layers), of families with it; else NULL */
    arena *memory;          /* names, lists of sources, vectors */
};

/* Maps every tensor of the files (n_files, in order). ERR_UNSUPPORTED: a name without counterpart;
 * ERR_FORMAT: a wrong shape. On failure t must be freed, too. */
int hf_tensors_map(struct hf_tensors *t, const struct hf_config *config, safetensors *const *files,
                   uint32_t n_files, err *e);
void hf_tensors_free(struct hf_tensors *t); /* a zeroed struct is fine */

/* ---- hf/recipe.c: bytes ---- */

/* Address of the tensor's bytes if a source stores them in GGUF's layout, aligned for type; else
 * NULL. */
const void *hf_recipe_place(const struct hf_recipe *recipe, int type);

/* Computes n bytes of the tensor from byte `offset` on. type: the sources' own, F32 or MXFP4. The
 * range must lie inside the tensor. */
void hf_recipe_read(const struct hf_recipe *recipe, int type, uint64_t offset, uint64_t n,
                    void *dst);

/* enum qtype of a source's elements; -1: not usable. */
int hf_source_type(const struct safetensor *s);

/* The type that keeps what the sources say: theirs, or for quantized weights a block type if rows
 * stay rows and nothing is computed, F16 or BF16 otherwise. */
int hf_recipe_type(const struct hf_recipe *recipe);

#endif
