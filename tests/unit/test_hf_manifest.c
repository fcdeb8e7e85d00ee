/* test_hf_manifest.c - every golden folder against what llama.cpp's converter makes of it. Of its
 * file only a manifest is kept (converter.txt beside golden.json): a line for each key of the
 * architecture and for each tensor, with a hash of its bytes. "print FILE" prints the manifest of a
 * GGUF file or a folder; scripts/golden-models/manifests.py makes them so. */
#include "core/formats/model_file.h"
#include "tests/support/manifest.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>

/* ---- what differs and may ---- */

enum allowance { ANY, BYTES }; /* a line, or only its last word: the hash */

/* Names and models are patterns of fnmatch, with commas between. Each row must be needed. */
static const struct {
    const char *models, *names;
    enum allowance what;
} allowed[] = {
    /* Keys of our own, and what tensors say by themselves. */
    {"*", "*.inferd.*,*.vocab_size", ANY},
    {"hunyuan-moe,hy_v3,mimo2*,minimax-m2*", "*.leading_dense_block_count", ANY},
    {"hy_v3,nemotron-h-*", "*.expert_shared_count", ANY},
    {"afmoe,dots1,glm4moe*", "*.expert_shared_feed_forward_length", ANY},
    {"granitehybrid", "*.expert_count,*.expert_used_count,*.expert_shared_feed_forward_length",
     ANY},
    {"cohere2moe-shared", "*.feed_forward_length", ANY}, /* no layer is dense */
    {"stablelm*", "*.use_parallel_residual", ANY},
    {"modern-*", "*.hidden_activation", ANY},
    {"*-rank,*-rank-cls", "*.classifier.output_labels,*.pooling_type", ANY},
    /* One of the two writes what readers take without the key. */
    {"gpt2*,gptneox*,mpt*,step35*", "*.attention.head_count_kv", ANY},
    {"laguna-full", "*.attention.head_count,*.expert_weights_scale", ANY},
    {"glm4moe", "*.expert_weights_scale", ANY},
    {"cohere2,kimi-linear*", "*.attention.key_length,*.attention.value_length", ANY},
    {"deepseek2,dots1,exaone-moe,glm4*,kimi-linear,mimo2*,mistral4*,nemotron-h-*",
     "*.expert_group_count,*.expert_group_used_count", ANY},
    {"ernie4_5-moe,hunyuan-moe,llama4*,mistral4*,nemotron-h-*", "*.expert_gating_func", ANY},
    {"afmoe,deepseek2*,hy_v3,kimi-linear,mistral4-dense", "*.expert_weights_norm", ANY},
    {"cohere2*,falcon-h1*,muse-glimmer*,nemotron-h,phimoe*,step35*", "*.rope.dimension_count", ANY},
    {"mimo2*,step35*", "*.rope.dimension_count_swa", ANY},
    {"gptneox*,nemotron-h*,stablelm*", "*.rope.freq_base", ANY},
    {"olmo3*", "*.rope.freq_base_swa", ANY},
    {"cohere*,exaone-moe,modern-*,phimoe*", "*.rope.scaling.type", ANY},
    {"hunyuan-*", "*.rope.scaling.factor,*.rope.scaling.original_context_length", ANY},
    {"nemotron-h*", "*.rope.scaling.finetuned", ANY}, /* they have no RoPE */
    {"mistral4*", "*.rope.scaling.yarn_attn_factor", ANY},
    {"step35*", "*.moe_every_n_layers,*.swiglu_clamp_exp", ANY},
    {"bailingmoe2*,exaone-moe", "*.nextn_predict_layers", ANY},
    {"exaone4,mimo2*,modern-*,muse-glimmer-short,olmo3", "*.attention.sliding_window_pattern", ANY},
    {"exaone4-full,phimoe", "*.attention.sliding_window", ANY},
    {"modern-*", "*.attention.layer_norm_rms_epsilon", ANY}, /* the norms are LayerNorms, */
    {"cohere2moe-shared,nemotron-h*", "*.attention.layer_norm_epsilon", ANY}, /* or are not */
    {"gemma-embedding", "*.dense_?_feat_in,*.dense_?_feat_out", ANY},
    /* The converter has a number of its own. */
    {"granitehybrid*,hunyuan-*,nemotron-h*,nomic-*", "*.context_length", ANY},
    /* The converter leaves it out, or computes it otherwise, and the file says something else:
     * tests/golden/arch/README.md. */
    {"deepseek3", "*.rope.scaling.yarn_attn_factor", ANY},
    {"kimi-linear-groups", "*.expert_group_count,*.expert_weights_norm", ANY},
    {"laguna,laguna-element", "*.attention.sliding_window_pattern", ANY},
    {"laguna-full,starcoder2-window", "*.attention.sliding_window", ANY},
    {"lfm2moe-scaled", "*.expert_weights_scale", ANY},
    {"llama4*", "*.attention.chunk_size,*.attention.temperature_*", ANY},
    {"llama4-dense", "*.attention.sliding_window_pattern", ANY},
    {"mistral4*", "*.attention.temperature_scale", ANY},
    {"phimoe*", "*.rope.scaling.attn_factor", ANY},
    {"gpt2-inner", "*.feed_forward_length", ANY},
    {"glm4-moe-lite", "*.expert_gating_func", ANY},
    {"ernie4_5-moe", "*.expert_shared_feed_forward_length", ANY},
    {"granitehybrid-moe", "*.rope.scaling.finetuned,blk.*.ssm_norm.weight", ANY},
    {"falcon-h1-norm", "*.embedding_scale,*.logit_scale,token_embd.weight", ANY},
    {"bert-rank", "cls.weight,cls.bias", ANY},
    /* The same weights: gate and up fused; Q, K, V and Z in another order; heads' rows in another
     * order, which nothing sees without RoPE. */
    {"mistral4*", "blk.*.ffn_gate_exps.weight,blk.*.ffn_up_exps.weight", ANY},
    {"mistral4*", "blk.*.ffn_gate_up_exps.weight", ANY},
    {"qwen3next*", "blk.*.attn_qkv.weight,blk.*.attn_gate.weight,blk.*.ssm_in.weight", ANY},
    {"nemotron-h*", "blk.*.attn_q.weight,blk.*.attn_k.weight", BYTES},
    /* Rounded otherwise: -e^x, which differs between versions of PyTorch too, and the product of
     * two factors. */
    {"*", "blk.*.ssm_a", BYTES},
    {"falcon-h1", "blk.*.attn_k.weight", BYTES},
};

enum { N_ALLOWED = sizeof allowed / sizeof allowed[0] };
static bool needed[N_ALLOWED];

static bool is_among(const char *patterns, const char *text) {
    for (const char *at = patterns; *at;) {
        const size_t n = strcspn(at, ",");
        char pattern[128];
        snprintf(pattern, sizeof pattern, "%.*s", (int)n, at);
        if (fnmatch(pattern, text, 0) == 0) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static size_t name_len(const char *line) {
    return strcspn(line, " ");
}

/* Do the lines differ in their last word alone? */
static bool same_but_bytes(const char *a, const char *b) {
    const char *end = a && b ? strrchr(a, ' ') : NULL;
    return end && strncmp(a, b, (size_t)(end - a) + 1) == 0 && !strchr(b + (end - a) + 1, ' ');
}

/* May the line be another one, or missing (NULL)? */
static bool may_differ(const char *model, const char *line, const char *other) {
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)name_len(line), line);
    for (size_t i = 0; i < N_ALLOWED; i++)
        if (is_among(allowed[i].models, model) && is_among(allowed[i].names, name) &&
            (allowed[i].what == ANY || same_but_bytes(line, other)))
            return needed[i] = true;
    return false;
}

/* ---- layers that predict further tokens ---- */

/* The number in the line of a key of the architecture; 0: there is none. */
static uint32_t number_of(const struct manifest *m, const char *key) {
    for (size_t i = 0; i < m->n; i++) {
        const char *dot = strchr(m->lines[i], '.');
        if (dot && strncmp(dot + 1, key, strlen(key)) == 0)
            return (uint32_t)strtoul(dot + 1 + strlen(key), NULL, 10);
    }
    return 0;
}

static uint32_t count_words(const char *line) {
    uint32_t n = 1;
    for (; *line; line++)
        n += *line == ' ';
    return n;
}

/* Files have these layers, folders are read without them: takes them out of a file's manifest, and
 * their numbers out of lists. */
static void leave_out_predicting(struct manifest *m) {
    const uint32_t n_next = number_of(m, "nextn_predict_layers u32 "),
                   n_all = number_of(m, "block_count u32 "), first = n_all - n_next;
    size_t n = 0;
    if (!n_next) return;
    for (size_t i = 0; i < m->n; i++) {
        char *line = m->lines[i];
        const char *key = strchr(line, '.') + 1;
        if (strncmp(line, "blk.", 4) == 0 ? strtoul(line + 4, NULL, 10) >= first
                                          : strncmp(key, "nextn_", 6) == 0)
            continue;
        m->lines[n++] = line;
        if (strncmp(key, "block_count ", 12) == 0)
            sprintf(strrchr(line, ' ') + 1, "%u", first); /* not longer than n_all */
        if (count_words(line) == 2 + n_all)
            for (uint32_t k = 0; k < n_next; k++)
                *strrchr(line, ' ') = 0;
    }
    m->n = n;
}

/* ---- comparison ---- */

static int by_name(const void *a, const void *b) {
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    const size_t nx = name_len(x), ny = name_len(y);
    const int order = memcmp(x, y, nx < ny ? nx : ny);
    return order ? order : (nx > ny) - (nx < ny);
}

static const char *find_line(struct manifest *m, const char *line) {
    char **found = bsearch(&line, m->lines, m->n, sizeof *m->lines, by_name);
    return found ? *found : NULL;
}

static void compare(const char *model, struct manifest *folder, struct manifest *file) {
    leave_out_predicting(file);
    qsort(folder->lines, folder->n, sizeof *folder->lines, by_name);
    qsort(file->lines, file->n, sizeof *file->lines, by_name);
    for (size_t i = 0; i < file->n; i++) {
        const char *want = file->lines[i], *got = find_line(folder, want);
        CHECK_MSG((got && strcmp(got, want) == 0) || may_differ(model, want, got),
                  "%s: the file has %s, the folder%s", model, want,
                  got ? got + name_len(got) : " nothing");
    }
    for (size_t i = 0; i < folder->n; i++) {
        const char *got = folder->lines[i];
        CHECK_MSG(find_line(file, got) || may_differ(model, got, NULL),
                  "%s: only the folder has %s", model, got);
    }
}

static uint32_t n_compared;

static void compare_model(const char *set, const char *model) {
    static struct manifest folder, file;
    char path[512];
    gguf *g = NULL;
    err e = {0};
    snprintf(path, sizeof path, "%s/%s/converter.txt", set, model);
    manifest_read(path, &file);
    if (!file.n) return;
    snprintf(path, sizeof path, "%s/%s/hf", set, model);
    const bool read =
        model_file_open(path, GGUF_OPEN_AS_FILE, &g, &e) == 0 && manifest_of(g, &folder, &e) == 0;
    CHECK_MSG(read, "%s: %s", model, e.msg);
    if (read) compare(model, &folder, &file);
    n_compared += read;
    gguf_close(g);
    manifest_free(&folder);
    manifest_free(&file);
}

static void folders_equal_the_converter(void) {
    static const char *const sets[] = {"tests/golden/arch", "tests/golden/encoder",
                                       "tests/golden/pooled"};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        struct dirent **entries;
        const int n = scandir(sets[i], &entries, NULL, alphasort);
        CHECK(n > 0);
        for (int k = 0; k < n; k++) {
            if (entries[k]->d_name[0] != '.') compare_model(sets[i], entries[k]->d_name);
            free(entries[k]);
        }
        if (n >= 0) free(entries);
    }
    CHECK_MSG(n_compared >= 90, "only %u models have a manifest", n_compared);
    for (size_t i = 0; i < N_ALLOWED; i++)
        CHECK_MSG(needed[i], "%s need no %s", allowed[i].models, allowed[i].names);
}

static int print_manifest(const char *path) {
    static struct manifest m;
    gguf *g = NULL;
    err e = {0};
    int rc = model_file_open(path, GGUF_OPEN_AS_FILE, &g, &e);
    if (!rc) rc = manifest_of(g, &m, &e);
    if (rc) fprintf(stderr, "%s\n", e.msg);
    for (size_t i = 0; i < m.n && !rc; i++)
        puts(m.lines[i]);
    gguf_close(g);
    manifest_free(&m);
    return rc != 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "print") == 0) return print_manifest(argv[2]);
    RUN(folders_equal_the_converter);
    return check_done();
}
