/* quantize/plan.c - chooses the new type of each tensor. Pure: reads src's index and metadata,
 * never its data. */
#include "core/formats/quantize/quantize_int.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Numbers of general.file_type, as in the GGUF specification and llama.cpp. */
enum file_type {
    FILE_F32 = 0,
    FILE_F16 = 1,
    FILE_Q4_0 = 2,
    FILE_Q4_1 = 3,
    FILE_Q8_0 = 7,
    FILE_Q5_0 = 8,
    FILE_Q5_1 = 9,
    FILE_Q2_K = 10,
    FILE_Q3_K_S = 11,
    FILE_Q3_K_M = 12,
    FILE_Q3_K_L = 13,
    FILE_Q4_K_S = 14,
    FILE_Q4_K_M = 15,
    FILE_Q5_K_S = 16,
    FILE_Q5_K_M = 17,
    FILE_Q6_K = 18,
    FILE_IQ2_XXS = 19,
    FILE_IQ2_XS = 20,
    FILE_Q2_K_S = 21,
    FILE_IQ3_XS = 22,
    FILE_IQ3_XXS = 23,
    FILE_IQ1_S = 24,
    FILE_IQ4_NL = 25,
    FILE_IQ3_S = 26,
    FILE_IQ3_M = 27,
    FILE_IQ2_S = 28,
    FILE_IQ2_M = 29,
    FILE_IQ4_XS = 30,
    FILE_IQ1_M = 31,
    FILE_BF16 = 32,
    FILE_TQ1_0 = 36,
    FILE_TQ2_0 = 37,
    FILE_MXFP4 = 38
};

/* Sets of them. */
#define F(name)  (UINT64_C(1) << FILE_##name)
#define F_IQ1    (F(IQ1_S) | F(IQ1_M))
#define F_IQ2_XX (F(IQ2_XXS) | F(IQ2_XS))
#define F_IQ2_S  (F(IQ2_S) | F(IQ2_M))
#define F_TINY   (F_IQ1 | F_IQ2_XX | F_IQ2_S)
#define F_ANY    UINT64_MAX

/* Types that users can choose. Matrices become `base` unless a rule below applies; the output head
 * becomes `output`. */
struct recipe {
    const char *name;
    enum file_type file_type;
    int base, output; /* enum qtype */
};

static const struct recipe recipes[] = {
    {"F32", FILE_F32, QTYPE_F32, QTYPE_F32},
    {"F16", FILE_F16, QTYPE_F16, QTYPE_F16},
    {"BF16", FILE_BF16, QTYPE_BF16, QTYPE_BF16},
    {"Q8_0", FILE_Q8_0, QTYPE_Q8_0, QTYPE_Q8_0},
    {"Q6_K", FILE_Q6_K, QTYPE_Q6_K, QTYPE_Q6_K},
    {"Q5_K_M", FILE_Q5_K_M, QTYPE_Q5_K, QTYPE_Q6_K},
    {"Q5_K_S", FILE_Q5_K_S, QTYPE_Q5_K, QTYPE_Q6_K},
    {"Q5_K", FILE_Q5_K_M, QTYPE_Q5_K, QTYPE_Q6_K},
    {"Q5_1", FILE_Q5_1, QTYPE_Q5_1, QTYPE_Q6_K},
    {"Q5_0", FILE_Q5_0, QTYPE_Q5_0, QTYPE_Q6_K},
    {"Q4_K_M", FILE_Q4_K_M, QTYPE_Q4_K, QTYPE_Q6_K},
    {"Q4_K_S", FILE_Q4_K_S, QTYPE_Q4_K, QTYPE_Q6_K},
    {"Q4_K", FILE_Q4_K_M, QTYPE_Q4_K, QTYPE_Q6_K},
    {"Q4_1", FILE_Q4_1, QTYPE_Q4_1, QTYPE_Q6_K},
    {"Q4_0", FILE_Q4_0, QTYPE_Q4_0, QTYPE_Q6_K},
    {"IQ4_NL", FILE_IQ4_NL, QTYPE_IQ4_NL, QTYPE_Q6_K},
    {"IQ4_XS", FILE_IQ4_XS, QTYPE_IQ4_XS, QTYPE_Q6_K},
    {"MXFP4", FILE_MXFP4, QTYPE_MXFP4, QTYPE_Q8_0},
    {"Q3_K_L", FILE_Q3_K_L, QTYPE_Q3_K, QTYPE_Q6_K},
    {"Q3_K_M", FILE_Q3_K_M, QTYPE_Q3_K, QTYPE_Q6_K},
    {"Q3_K_S", FILE_Q3_K_S, QTYPE_Q3_K, QTYPE_Q6_K},
    {"Q3_K", FILE_Q3_K_M, QTYPE_Q3_K, QTYPE_Q6_K},
    {"Q2_K", FILE_Q2_K, QTYPE_Q2_K, QTYPE_Q6_K},
    {"Q2_K_S", FILE_Q2_K_S, QTYPE_Q2_K, QTYPE_Q6_K},
    {"IQ3_M", FILE_IQ3_M, QTYPE_IQ3_S, QTYPE_Q6_K},
    {"IQ3_S", FILE_IQ3_S, QTYPE_IQ3_S, QTYPE_Q6_K},
    {"IQ3_XS", FILE_IQ3_XS, QTYPE_IQ3_S, QTYPE_Q6_K},
    {"IQ3_XXS", FILE_IQ3_XXS, QTYPE_IQ3_XXS, QTYPE_Q5_K},
    {"IQ2_M", FILE_IQ2_M, QTYPE_IQ2_S, QTYPE_Q5_K},
    {"IQ2_S", FILE_IQ2_S, QTYPE_IQ2_XS, QTYPE_Q5_K},
    {"IQ2_XS", FILE_IQ2_XS, QTYPE_IQ2_XS, QTYPE_Q5_K},
    {"IQ2_XXS", FILE_IQ2_XXS, QTYPE_IQ2_XXS, QTYPE_Q5_K},
    {"IQ1_M", FILE_IQ1_M, QTYPE_IQ1_M, QTYPE_Q5_K},
    {"IQ1_S", FILE_IQ1_S, QTYPE_IQ1_S, QTYPE_Q5_K},
    {"TQ2_0", FILE_TQ2_0, QTYPE_TQ2_0, QTYPE_Q6_K},
    {"TQ1_0", FILE_TQ1_0, QTYPE_TQ1_0, QTYPE_Q6_K},
};
enum { N_RECIPES = sizeof recipes / sizeof recipes[0] };

enum role {
    ROLE_OTHER,
    ROLE_OUTPUT,
    ROLE_EMBEDDING,
    ROLE_ATTN_V, /* and matrices that contain V: attn_qkv, attn_kv_b */
    ROLE_ATTN_K,
    ROLE_ATTN_Q,
    ROLE_ATTN_OUTPUT,
    ROLE_FFN_GATE,
    ROLE_FFN_UP,
    ROLE_FFN_DOWN,
    N_ROLES
};

/* Roles by the whole name, or a part of it. */
static const struct {
    const char *name;
    bool whole;
    enum role role;
} role_names[] = {
    {"output.weight", true, ROLE_OUTPUT},
    {"token_embd.weight", true, ROLE_EMBEDDING},
    {"per_layer_token_embd.weight", true, ROLE_EMBEDDING},
    {"attn_qkv.weight", false, ROLE_ATTN_V},
    {"attn_kv_b.weight", false, ROLE_ATTN_V},
    {"attn_v.weight", false, ROLE_ATTN_V},
    {"attn_k.weight", false, ROLE_ATTN_K},
    {"attn_q.weight", false, ROLE_ATTN_Q},
    {"attn_output.weight", false, ROLE_ATTN_OUTPUT},
    {"ffn_up", false, ROLE_FFN_UP},
    {"ffn_gate", false, ROLE_FFN_GATE},
    {"ffn_down", false, ROLE_FFN_DOWN},
};

/* Small but sensitive matrices, by a part of their name. They are not quantized; neither are
 * vectors and tensors whose name does not end in "weight". In GGUF files all of these are F32; F16
 * and BF16 of a folder become F32. */
static const char *const kept_names[] = {
    "_norm.weight",          "cls.output.weight",
    "ffn_gate_inp.weight",   "ffn_gate_tid2eid.weight",
    "position_embd",         "token_types",
    "attn_rel_b.weight",     "ssm_conv1d",
    "shortconv.conv.weight", "altup",
    "per_layer_model_proj",  "laurel",
    "indexer.k_proj.weight", "indexer.q_proj.weight",
};

/* The tensors that a rule applies to: tensor i of the n tensors of a role, in order of layers. */
enum where {
    EVERYWHERE,
    FIRST_2,       /* i < 2 */
    FIRST_4,       /* i < 4 */
    FIRST_16TH,    /* i < n / 16 */
    FIRST_8TH,     /* i < n / 8 */
    MIDDLE,        /* neither the first nor the last eighth */
    EDGES_AND_3RD, /* first and last eighth, and every third in between */
    WIDE_GQA,      /* four or more heads share one K/V head */
    WIDE_OR_MOE,   /* likewise, or four or more experts */
    EIGHT_EXPERTS, /* exactly 8: llama.cpp measured it on such models */
    EIGHT_AT_EDGES /* EIGHT_EXPERTS and EDGES_AND_3RD */
};

/* Does a rule depend on an importance matrix? */
enum given { ALWAYS, WITH_MATRIX, WITHOUT_MATRIX };

struct rule {
    uint64_t files; /* set of enum file_type */
    enum role role;
    enum where where;
    int type;
    enum given given;
};

/* The first match applies. */
static const struct rule rules[] = {
    {F_IQ1 | F_IQ2_XX, ROLE_EMBEDDING, EVERYWHERE, QTYPE_Q2_K, ALWAYS},
    {F_IQ2_S | F(IQ3_XXS), ROLE_EMBEDDING, EVERYWHERE, QTYPE_IQ3_S, ALWAYS},
    {F(TQ1_0) | F(TQ2_0), ROLE_EMBEDDING, EVERYWHERE, QTYPE_Q4_K, ALWAYS},
    {F_TINY, ROLE_ATTN_V, WIDE_OR_MOE, QTYPE_Q4_K, ALWAYS},
    {F_IQ2_S, ROLE_ATTN_V, EVERYWHERE, QTYPE_IQ3_S, ALWAYS},
    {F_TINY, ROLE_ATTN_V, EVERYWHERE, QTYPE_Q2_K, ALWAYS},
    {F_TINY, ROLE_ATTN_K, EIGHT_EXPERTS, QTYPE_Q4_K, ALWAYS},
    {F_IQ2_S, ROLE_FFN_DOWN, FIRST_8TH, QTYPE_IQ3_S, ALWAYS},
    {F_TINY, ROLE_FFN_DOWN, FIRST_8TH, QTYPE_Q2_K, ALWAYS},
    {F_TINY, ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F_IQ1, ROLE_ATTN_OUTPUT, EVERYWHERE, QTYPE_IQ2_XXS, ALWAYS},
    {F_IQ2_S, ROLE_ATTN_OUTPUT, EVERYWHERE, QTYPE_IQ3_S, ALWAYS},
    {F_ANY, ROLE_ATTN_V, EIGHT_EXPERTS, QTYPE_Q8_0, ALWAYS},
    {F_ANY, ROLE_ATTN_K, EIGHT_EXPERTS, QTYPE_Q8_0, ALWAYS},
    {F(Q2_K), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F(Q2_K), ROLE_ATTN_V, WIDE_GQA, QTYPE_Q4_K, ALWAYS},
    {F(Q2_K), ROLE_ATTN_V, EVERYWHERE, QTYPE_Q3_K, ALWAYS},
    {F(Q2_K), ROLE_ATTN_OUTPUT, EVERYWHERE, QTYPE_Q3_K, ALWAYS},
    {F(Q2_K), ROLE_FFN_DOWN, EVERYWHERE, QTYPE_Q3_K, ALWAYS},
    {F(Q3_K_S), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F(Q3_K_M), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F(Q3_K_M), ROLE_ATTN_V, FIRST_2, QTYPE_Q5_K, ALWAYS},
    {F(Q3_K_M), ROLE_ATTN_V, EVERYWHERE, QTYPE_Q4_K, ALWAYS},
    {F(Q3_K_M), ROLE_ATTN_OUTPUT, EVERYWHERE, QTYPE_Q4_K, ALWAYS},
    {F(Q3_K_M), ROLE_FFN_DOWN, FIRST_16TH, QTYPE_Q5_K, ALWAYS},
    {F(Q3_K_M), ROLE_FFN_DOWN, EVERYWHERE, QTYPE_Q4_K, ALWAYS},
    {F(Q3_K_L), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q3_K, ALWAYS},
    {F(Q3_K_L), ROLE_ATTN_V, EVERYWHERE, QTYPE_Q5_K, ALWAYS},
    {F(Q3_K_L), ROLE_ATTN_OUTPUT, EVERYWHERE, QTYPE_Q5_K, ALWAYS},
    {F(Q3_K_L), ROLE_FFN_DOWN, EVERYWHERE, QTYPE_Q5_K, ALWAYS},
    {F(Q4_K_S), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F(Q4_K_S), ROLE_ATTN_V, FIRST_4, QTYPE_Q5_K, ALWAYS},
    {F(Q4_K_S), ROLE_FFN_DOWN, FIRST_8TH, QTYPE_Q5_K, ALWAYS},
    {F(Q4_K_M), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F(Q4_K_M), ROLE_ATTN_V, EDGES_AND_3RD, QTYPE_Q6_K, ALWAYS},
    {F(Q4_K_M), ROLE_FFN_DOWN, EDGES_AND_3RD, QTYPE_Q6_K, ALWAYS},
    {F(Q5_K_M), ROLE_ATTN_V, EDGES_AND_3RD, QTYPE_Q6_K, ALWAYS},
    {F(Q5_K_M), ROLE_FFN_DOWN, EDGES_AND_3RD, QTYPE_Q6_K, ALWAYS},
    {F(IQ4_NL), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F(IQ4_NL), ROLE_ATTN_V, WIDE_GQA, QTYPE_Q5_K, ALWAYS},
    {F(IQ4_NL), ROLE_FFN_DOWN, FIRST_8TH, QTYPE_Q5_K, WITHOUT_MATRIX},
    {F(IQ4_XS), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F(IQ4_XS), ROLE_ATTN_V, WIDE_GQA, QTYPE_Q5_K, ALWAYS},
    {F(IQ4_XS), ROLE_FFN_DOWN, FIRST_8TH, QTYPE_Q5_K, WITHOUT_MATRIX},
    {F(Q2_K_S), ROLE_ATTN_V, WIDE_GQA, QTYPE_Q4_K, ALWAYS},
    {F(Q2_K_S), ROLE_FFN_DOWN, FIRST_8TH, QTYPE_Q4_K, ALWAYS},
    {F(IQ3_XXS), ROLE_ATTN_V, WIDE_GQA, QTYPE_Q4_K, ALWAYS},
    {F(IQ3_XXS), ROLE_ATTN_V, EVERYWHERE, QTYPE_IQ3_S, WITHOUT_MATRIX},
    {F(IQ3_XXS), ROLE_ATTN_K, EVERYWHERE, QTYPE_IQ2_S, ALWAYS},
    {F(IQ3_XXS), ROLE_ATTN_Q, EVERYWHERE, QTYPE_IQ2_S, ALWAYS},
    {F(IQ3_XXS), ROLE_FFN_DOWN, FIRST_8TH, QTYPE_Q4_K, WITHOUT_MATRIX},
    {F(IQ3_XXS), ROLE_FFN_DOWN, EVERYWHERE, QTYPE_Q3_K, WITHOUT_MATRIX},
    {F(IQ3_XXS), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F(IQ3_XXS), ROLE_ATTN_OUTPUT, EVERYWHERE, QTYPE_IQ3_S, ALWAYS},
    {F(IQ3_XS) | F(IQ3_S), ROLE_ATTN_V, WIDE_GQA, QTYPE_Q4_K, ALWAYS},
    {F(IQ3_XS) | F(IQ3_S) | F(IQ3_M), ROLE_ATTN_OUTPUT, EIGHT_EXPERTS, QTYPE_Q5_K, ALWAYS},
    {F(IQ3_XS), ROLE_ATTN_K, EVERYWHERE, QTYPE_IQ3_XXS, ALWAYS},
    {F(IQ3_XS), ROLE_ATTN_Q, EVERYWHERE, QTYPE_IQ3_XXS, ALWAYS},
    {F(IQ3_XS), ROLE_FFN_GATE, MIDDLE, QTYPE_IQ3_XXS, ALWAYS},
    {F(IQ3_XS), ROLE_FFN_UP, MIDDLE, QTYPE_IQ3_XXS, ALWAYS},
    {F(IQ3_M), ROLE_ATTN_V, EVERYWHERE, QTYPE_Q4_K, ALWAYS},
    {F(IQ3_M), ROLE_ATTN_OUTPUT, EVERYWHERE, QTYPE_Q4_K, ALWAYS},
    {F(IQ3_M), ROLE_FFN_DOWN, FIRST_8TH, QTYPE_Q4_K, ALWAYS},
    {F(IQ3_M), ROLE_FFN_DOWN, EIGHT_AT_EDGES, QTYPE_Q4_K, ALWAYS},
    {F(Q4_0), ROLE_FFN_DOWN, FIRST_8TH, QTYPE_Q4_1, WITH_MATRIX},
    {F(Q5_0), ROLE_FFN_DOWN, FIRST_8TH, QTYPE_Q5_1, WITH_MATRIX},
};

/* A tensor, its role and layer. Items are sorted by layer and name, independent of the file's
 * order. */
struct item {
    struct quantize_tensor *tensor;
    enum role role;
    int64_t layer; /* of "blk.N.", -1: none */
};

/* Properties of the model that the rules depend on. */
struct shape {
    uint64_t n_layers, n_heads, n_kv_heads, n_experts;
    uint64_t n_v;         /* tensors of ROLE_ATTN_V */
    bool tied;            /* the embedding is also the output head */
    bool has_matrix;      /* there is an importance matrix */
    uint64_t at[N_ROLES]; /* tensors of the role so far */
};

static bool is_of(const struct recipe *r, uint64_t files) {
    return files >> r->file_type & 1;
}

static const struct recipe *find_recipe(const char *name) {
    for (size_t i = 0; i < N_RECIPES; i++)
        if (!strcasecmp(name, recipes[i].name)) return &recipes[i];
    return NULL;
}

void quantize_add_types(str *out, size_t width) {
    size_t used = 0;
    for (size_t i = 0; i < N_RECIPES; i++) {
        size_t n = strlen(recipes[i].name) + 1; /* and its comma */
        bool breaks = width && used + n > width;
        if (i) str_add(out, breaks ? ",\n" : ", ");
        str_add(out, recipes[i].name);
        used = breaks ? n + 1 : used + n + 1;
    }
}

static int err_unknown_type(const char *name, err *e) {
    str types;
    str_init(&types, 1024);
    quantize_add_types(&types, 0);
    int rc =
        err_set(e, ERR_INVALID, "unknown type \"%.40s\"; known types: %s", name, str_cstr(&types));
    str_fini(&types);
    return rc;
}

/* Finds a plain type by name; refuses mixes. *type is -1 if name is NULL. */
static int find_plain(const char *name, int *type, err *e) {
    *type = -1;
    if (!name) return 0;
    for (size_t i = 0; i < N_RECIPES; i++) {
        if (strcasecmp(qtype_name(recipes[i].base), name) != 0) continue;
        *type = recipes[i].base;
        return 0;
    }
    const struct recipe *r = find_recipe(name);
    if (!r) return err_unknown_type(name, e);
    return err_set(e, ERR_INVALID, "%s is a mix of types, expected a single one such as %s",
                   r->name, qtype_name(r->base));
}

static bool name_contains(gguf_str s, const char *part) {
    return memmem(s.data, s.len, part, strlen(part)) != NULL;
}

static bool name_equals(gguf_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static enum role role_of(gguf_str name) {
    for (size_t i = 0; i < sizeof role_names / sizeof role_names[0]; i++)
        if (role_names[i].whole ? name_equals(name, role_names[i].name)
                                : name_contains(name, role_names[i].name))
            return role_names[i].role;
    return ROLE_OTHER;
}

static bool is_kept(const gguf_tensor *t) {
    static const char suffix[] = "weight";
    const size_t n = sizeof suffix - 1;
    bool matrix = t->n_dims >= 2 && (t->dims[1] > 1 || t->dims[2] > 1 || t->dims[3] > 1);
    if (!matrix || t->name.len < n || memcmp(t->name.data + t->name.len - n, suffix, n) != 0)
        return true;
    for (size_t i = 0; i < sizeof kept_names / sizeof kept_names[0]; i++)
        if (name_contains(t->name, kept_names[i])) return true;
    return false;
}

static int64_t layer_of(gguf_str name) {
    static const char prefix[] = "blk.";
    const size_t n = sizeof prefix - 1;
    int64_t layer = 0;
    size_t i = n;
    if (name.len <= n || memcmp(name.data, prefix, n) != 0) return -1;
    for (; i < name.len && i < n + 9 && name.data[i] >= '0' && name.data[i] <= '9'; i++)
        layer = layer * 10 + (name.data[i] - '0');
    return i > n && i < name.len && name.data[i] == '.' ? layer : -1;
}

static int compare_items(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    gguf_str p = x->tensor->source->name, q = y->tensor->source->name;
    int order = memcmp(p.data, q.data, p.len < q.len ? p.len : q.len);
    return order ? order : p.len < q.len ? -1 : p.len > q.len;
}

/* ARCH.key as a number, or the first element of an array over layers; `missing` without the key. */
static uint64_t read_number(const gguf *g, const char *key, uint64_t missing) {
    gguf_str arch;
    char name[128];
    uint64_t value, n;
    enum gguf_type elem;
    if (gguf_get_str(g, "general.architecture", &arch, NULL) || arch.len > 64) return missing;
    snprintf(name, sizeof name, "%.*s.%s", (int)arch.len, arch.data, key);
    if (gguf_get_u64(g, name, &value, NULL) == 0) return value;
    if (gguf_get_array(g, name, &elem, &n, NULL) || n == 0) return missing;
    int64_t first = gguf_array_i64(g, name, 0);
    return first > 0 ? (uint64_t)first : missing;
}

static struct shape read_shape(const gguf *g, const struct item *items, uint64_t n) {
    struct shape s = {.tied = true};
    uint64_t n_seen = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (items[i].role == ROLE_ATTN_V) s.n_v++;
        if (items[i].role == ROLE_OUTPUT) s.tied = false;
        if (items[i].layer >= (int64_t)n_seen) n_seen = (uint64_t)items[i].layer + 1;
    }
    s.n_layers = read_number(g, "block_count", n_seen);
    s.n_heads = read_number(g, "attention.head_count", 0);
    s.n_kv_heads = read_number(g, "attention.head_count_kv", s.n_heads);
    s.n_experts = read_number(g, "expert_count", 0);
    return s;
}

static bool rule_applies(const struct shape *s, enum where where, uint64_t i, uint64_t n) {
    switch (where) {
    case EVERYWHERE:
        return true;
    case FIRST_2:
        return i < 2;
    case FIRST_4:
        return i < 4;
    case FIRST_16TH:
        return i < n / 16;
    case FIRST_8TH:
        return i < n / 8;
    case MIDDLE:
        return i >= n / 8 && i < n - (n + 7) / 8;
    case EDGES_AND_3RD:
        return i < n / 8 || i >= n - (n + 7) / 8 || (i - n / 8) % 3 == 2;
    case WIDE_GQA:
        return s->n_kv_heads && s->n_heads / s->n_kv_heads >= 4;
    case WIDE_OR_MOE:
        return rule_applies(s, WIDE_GQA, i, n) || s->n_experts >= 4;
    case EIGHT_EXPERTS:
        return s->n_experts == 8;
    case EIGHT_AT_EDGES:
        return s->n_experts == 8 && rule_applies(s, EDGES_AND_3RD, i, n);
    }
    return false;
}

/* Position of the tensor among those of its role. With experts a layer may have several matrices of
 * a role in its FFN: then it is the layer's number, but not in files of F_TINY. */
static uint64_t role_position(const struct recipe *r, struct shape *s, const struct item *it,
                              uint64_t *n) {
    const uint64_t i = s->at[it->role]++;
    const bool by_layer =
        it->role >= ROLE_FFN_GATE && s->n_experts > 1 && it->layer >= 0 && !is_of(r, F_TINY);
    *n = it->role == ROLE_ATTN_V ? s->n_v : s->n_layers;
    return by_layer ? (uint64_t)it->layer : i;
}

/* True for the concatenated matrices of all experts of a layer. */
static bool is_experts(const struct item *it) {
    return it->tensor->source->dims[2] > 1;
}

static bool is_fitting(int type, uint64_t n_cols) {
    const struct qtype_info *info = qtype_find(type);
    return !info || n_cols % info->block_elems == 0;
}

static int rule_type(const struct recipe *r, const struct shape *s, const struct item *it,
                     uint64_t i, uint64_t n) {
    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        const struct rule *rule = &rules[k];
        const bool given = rule->given == ALWAYS || (rule->given == WITH_MATRIX) == s->has_matrix;
        if (is_of(r, rule->files) && rule->role == it->role && given &&
            rule_applies(s, rule->where, i, n))
            return rule->type;
    }
    return r->base;
}

static int mix_type(const struct recipe *r, struct shape *s, const struct item *it) {
    uint64_t n, i = role_position(r, s, it, &n);
    const uint64_t n_cols = it->tensor->source->dims[0];
    if (it->role == ROLE_OUTPUT || (it->role == ROLE_EMBEDDING && s->tied))
        return is_fitting(r->base, n_cols) ? r->output : QTYPE_Q8_0;
    /* With experts, only they become MXFP4. */
    if (r->base == QTYPE_MXFP4 && s->n_experts) return is_experts(it) ? r->base : QTYPE_Q8_0;
    const int type = rule_type(r, s, it, i, n);
    /* In 70B models V is a small part of the weights, so more bits cost little. */
    bool is_70b = s->n_layers == 80 && s->n_heads != s->n_kv_heads && !is_of(r, F_TINY);
    if (is_70b && it->role == ROLE_ATTN_V && (type == QTYPE_Q3_K || type == QTYPE_Q4_K))
        return QTYPE_Q5_K;
    return type;
}

/* The type, or its replacement if rows of n_cols values are not whole blocks. */
static int fitting_type(int type, uint64_t n_cols) {
    static const struct {
        int type, instead;
    } fallbacks[] = {
        {QTYPE_Q2_K, QTYPE_Q4_0},     {QTYPE_Q3_K, QTYPE_Q4_0},    {QTYPE_Q4_K, QTYPE_Q5_0},
        {QTYPE_Q5_K, QTYPE_Q5_1},     {QTYPE_Q6_K, QTYPE_Q8_0},    {QTYPE_IQ4_XS, QTYPE_IQ4_NL},
        {QTYPE_IQ1_S, QTYPE_IQ4_NL},  {QTYPE_IQ1_M, QTYPE_IQ4_NL}, {QTYPE_IQ2_XXS, QTYPE_IQ4_NL},
        {QTYPE_IQ2_XS, QTYPE_IQ4_NL}, {QTYPE_IQ2_S, QTYPE_IQ4_NL}, {QTYPE_IQ3_XXS, QTYPE_IQ4_NL},
        {QTYPE_IQ3_S, QTYPE_IQ4_NL},  {QTYPE_TQ1_0, QTYPE_Q4_0},   {QTYPE_TQ2_0, QTYPE_Q4_0},
    };
    if (is_fitting(type, n_cols)) return type;
    for (size_t i = 0; i < sizeof fallbacks / sizeof fallbacks[0]; i++)
        if (fallbacks[i].type == type) return fitting_type(fallbacks[i].instead, n_cols);
    return QTYPE_F16;
}

/* A name from the file for use in a message. */
static const char *shown_name(gguf_str name, char out[64]) {
    snprintf(out, 64, "%.*s", (int)(name.len < 63 ? name.len : 63), name.data);
    for (char *c = out; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    return out;
}

static bool is_exact(int type) {
    return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16;
}

/* Derives the type of one tensor from the wanted one. */
static int set_type(struct quantize_tensor *t, const struct quantize_options *o, err *e) {
    char name[64];
    const gguf_tensor *src = t->source;
    /* Experts that were trained in MXFP4 lose precision in any other type. */
    if (src->type == QTYPE_MXFP4 && !o->allow_requantize) t->wanted = QTYPE_MXFP4;
    t->type = fitting_type(t->wanted, src->dims[0]);
    if (!qtype_bytes(t->type, src->n_elems / src->dims[0], src->dims[0], &t->bytes))
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor %s would become %s, which this build cannot write",
                       shown_name(src->name, name), qtype_name(t->type));
    if (src->type == QTYPE_NVFP4 && t->type != src->type)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor %s is NVFP4, whose scale is another tensor: convert the model that "
                       "it was made of",
                       shown_name(src->name, name));
    if (t->type == src->type || is_exact(src->type) || o->allow_requantize) return 0;
    return err_set(e, ERR_INVALID,
                   "tensor %s is already quantized (%s): start from an F32, F16 or BF16 model "
                   "(--allow-requantize converts it nevertheless)",
                   shown_name(src->name, name), qtype_name(src->type));
}

/* Types that need a matrix to be of use, but not of rows that are looked up or become logits. */
static bool needs_matrix(const struct recipe *r, const struct item *it) {
    if (it->role == ROLE_OUTPUT || it->role == ROLE_EMBEDDING) return false;
    switch (it->tensor->type) {
    case QTYPE_IQ1_S:
    case QTYPE_IQ1_M:
    case QTYPE_IQ2_XXS:
    case QTYPE_IQ2_XS:
    case QTYPE_IQ2_S:
    case QTYPE_IQ3_XXS:
        return true;
    case QTYPE_Q2_K:
        return is_of(r, F(Q2_K_S));
    default:
        return false;
    }
}

/* Finds the tensor's part of the importance matrix. */
static int set_importance(const struct recipe *r, const struct quantize_options *o,
                          const struct item *it, err *e) {
    char name[64];
    struct quantize_tensor *t = it->tensor;
    const gguf_tensor *src = t->source;
    if (t->type == src->type || is_exact(t->type)) return 0;
    const struct imatrix_entry *found = o->imatrix ? imatrix_find(o->imatrix, src->name) : NULL;
    t->lacks_importance = !found && needs_matrix(r, it);
    if (!found) return 0;
    const uint64_t wanted = src->dims[0] * src->dims[2] * src->dims[3],
                   n = found->n_in * found->n_mats;
    if (n == wanted)
        t->importance = found;
    else if (it->role != ROLE_EMBEDDING)
        return err_set(e, ERR_INVALID,
                       "tensor %s: the importance matrix has %" PRIu64
                       " values for it, expected %" PRIu64 ": it is of another model",
                       shown_name(src->name, name), n, wanted);
    return 0;
}

static int choose_types(quantize_plan *p, const struct recipe *r, const struct quantize_options *o,
                        struct item *items, err *e) {
    int output_type, embedding_type;
    int rc = find_plain(o->output_type, &output_type, e);
    if (!rc) rc = find_plain(o->embedding_type, &embedding_type, e);
    if (rc) return rc;
    struct shape s = read_shape(p->src, items, p->n_tensors);
    s.has_matrix = o->imatrix != NULL;
    bool is_mix = !o->pure && !is_exact(r->base);
    for (uint64_t i = 0; !rc && i < p->n_tensors; i++) {
        struct item *it = &items[i];
        struct quantize_tensor *t = it->tensor;
        bool is_output = it->role == ROLE_OUTPUT || (it->role == ROLE_EMBEDDING && s.tied);
        if (is_kept(t->source)) {
            t->wanted = is_exact(t->source->type) ? QTYPE_F32 : t->source->type;
            rc = set_type(t, o, e);
            continue;
        }
        if (it->role == ROLE_EMBEDDING && embedding_type >= 0)
            t->wanted = embedding_type;
        else if (is_output && output_type >= 0)
            t->wanted = output_type;
        else
            t->wanted = is_mix ? mix_type(r, &s, it) : r->base;
        rc = set_type(t, o, e);
        if (!rc) rc = set_importance(r, o, it, e);
    }
    return rc;
}

/* Refuses a file without tensors, and a single part of a split model. */
static int check_whole(const gguf *g, err *e) {
    uint64_t n_parts;
    if (gguf_n_tensors(g) == 0)
        return err_set(e, ERR_INVALID, "%s contains no weights", gguf_path(g));
    if (gguf_get_u64(g, "split.count", &n_parts, NULL) || n_parts < 2) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s is one of %" PRIu64 " parts of a split model: merge them first",
                   gguf_path(g), n_parts);
}

int quantize_plan_new(const gguf *src, const struct quantize_options *o, quantize_plan **out,
                      err *e) {
    *out = NULL;
    const struct recipe *r = find_recipe(o->type);
    if (!r) return err_unknown_type(o->type, e);
    int rc = check_whole(src, e);
    if (rc) return rc;
    quantize_plan *p = mem_new(1, sizeof *p);
    uint64_t n = gguf_n_tensors(src);
    struct item *items = mem_new(n, sizeof *items);
    if (p) p->tensors = mem_new(n, sizeof *p->tensors);
    if (!p || !items || !p->tensors) {
        rc = err_no_memory(e);
    } else {
        p->src = src;
        p->imatrix = o->imatrix;
        p->type = r->name;
        p->file_type = (uint32_t)r->file_type;
        p->n_tensors = n;
        for (uint64_t i = 0; i < n; i++) {
            const gguf_tensor *t = gguf_tensor_at(src, i);
            p->tensors[i].source = t;
            items[i] = (struct item){&p->tensors[i], role_of(t->name), layer_of(t->name)};
        }
        qsort(items, n, sizeof *items, compare_items);
        rc = choose_types(p, r, o, items, e);
    }
    free(items);
    if (rc)
        quantize_plan_free(p);
    else
        *out = p;
    return rc;
}

void quantize_plan_free(quantize_plan *p) {
    if (p) free(p->tensors);
    free(p);
}

const char *quantize_plan_type(const quantize_plan *p) {
    return p->type;
}

uint64_t quantize_plan_n(const quantize_plan *p) {
    return p->n_tensors;
}

const struct quantize_tensor *quantize_plan_at(const quantize_plan *p, uint64_t i) {
    return i < p->n_tensors ? &p->tensors[i] : NULL;
}
