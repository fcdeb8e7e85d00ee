/* fuzz_hparams.c - hyperparameters from any set of keys: they are refused with a reason, or the
 * sizes fit together and are within bounds. The input chooses an architecture (a byte), the number
 * of layers (a byte), then for each key of a table how it is written (enum form) and its values. An
 * input that ends leaves the usual values to the other keys. */
#include "core/formats/gguf/gguf.h"
#include "core/model/model_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { FILE_BYTES = 1 << 16, MOST_LAYERS = 6 };

/* Keys that an architecture usually has beside those of all. */
enum group { OF_ALL, SSM = 1, CONV = 2, INTERVAL = 4, EXPERTS = 8, SHARED = 16, GEMMA4 = 32 };

static const struct {
    const char *name;
    unsigned groups;
} archs[] = {
    {"qwen35", SSM | INTERVAL},
    {"granitehybrid", SSM},
    {"falcon-h1", SSM},
    {"lfm2", CONV},
    {"nemotron_h", SSM},
    {"nemotron_h_moe", SSM | EXPERTS | SHARED},
    {"qwen35moe", SSM | INTERVAL | EXPERTS | SHARED},
    {"qwen3next", SSM | INTERVAL | EXPERTS | SHARED},
    {"lfm2moe", CONV | EXPERTS},
    {"llama", OF_ALL},
    {"gemma3", OF_ALL},
    {"gpt-oss", EXPERTS},
    {"gemma4", GEMMA4},
};

/* The usual value of a key, 0: it is usually absent; real: a float. */
static const struct {
    const char *name;
    uint32_t value;
    float real;
    enum group group;
} keys[] = {
    {"embedding_length", 64, 0, OF_ALL},
    {"attention.head_count", 4, 0, OF_ALL},
    {"attention.head_count_kv", 2, 0, OF_ALL},
    {"feed_forward_length", 32, 0, OF_ALL},
    {"ssm.conv_kernel", 4, 0, SSM},
    {"ssm.state_size", 16, 0, SSM},
    {"ssm.group_count", 2, 0, SSM},
    {"ssm.time_step_rank", 4, 0, SSM},
    {"ssm.inner_size", 64, 0, SSM},
    {"shortconv.l_cache", 3, 0, CONV},
    {"full_attention_interval", 2, 0, INTERVAL},
    {"attention.recurrent_layers", 0, 0, OF_ALL},
    {"nextn_predict_layers", 0, 0, OF_ALL},
    {"inferd.grouped_v_heads", 0, 0, OF_ALL},
    {"inferd.ssm_norm_groups", 0, 0, OF_ALL},
    {"context_length", 512, 0, OF_ALL},
    {"attention.key_length", 16, 0, OF_ALL},
    {"attention.value_length", 16, 0, OF_ALL},
    {"attention.layer_norm_rms_epsilon", 0, 1e-5f, OF_ALL},
    {"expert_count", 4, 0, EXPERTS},
    {"expert_used_count", 2, 0, EXPERTS},
    {"expert_feed_forward_length", 32, 0, EXPERTS},
    {"expert_shared_feed_forward_length", 32, 0, SHARED},
    {"leading_dense_block_count", 0, 0, OF_ALL},
    {"expert_gating_func", 0, 0, EXPERTS},
    {"moe_latent_size", 0, 0, OF_ALL},
    {"rope.dimension_count", 16, 0, OF_ALL},
    {"rope.freq_base", 0, 10000, OF_ALL},
    {"rope.dimension_sections", 0, 0, OF_ALL},
    {"rope.scaling.finetuned", 0, 0, OF_ALL},
    {"attention.sliding_window", 0, 0, OF_ALL},
    {"attention.sliding_window_pattern", 0, 0, OF_ALL},
    {"inferd.no_rope_layers", 0, 0, OF_ALL},
    {"attention.scale", 0, 0, OF_ALL},
    {"pooling_type", 0, 0, OF_ALL},
    {"attention.key_length_swa", 8, 0, GEMMA4},
    {"attention.value_length_swa", 8, 0, GEMMA4},
    {"attention.shared_kv_layers", 0, 0, GEMMA4},
    {"rope.dimension_count_swa", 8, 0, GEMMA4},
    {"embedding_length_per_layer_input", 4, 0, GEMMA4},
};
enum { N_KEYS = sizeof keys / sizeof keys[0], N_ARCHS = sizeof archs / sizeof archs[0] };

enum form { USUAL, ABSENT, NUMBER, RAW_NUMBER, NUMBERS, FLAGS, REAL, FLAG, N_FORMS };

static const uint32_t numbers[] = {0,   1,    2,    3,     4,        5,        8,         15,
                                   16,  17,   32,   48,    64,       128,      256,       272,
                                   512, 1024, 1025, 65536, 1u << 20, 1u << 31, UINT32_MAX};

/* What is left of the input; 0 after its end. */
struct input {
    const uint8_t *at, *end;
};

static uint8_t take(struct input *in) {
    return in->at < in->end ? *in->at++ : 0;
}

static uint32_t take_number(struct input *in) {
    return numbers[take(in) % (sizeof numbers / sizeof numbers[0])];
}

static uint32_t take_raw(struct input *in) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v = v << 8 | take(in);
    return v;
}

/* A file under construction. */
struct file {
    uint8_t bytes[FILE_BYTES];
    size_t n;
    uint64_t n_keys;
};

static void put(struct file *f, const void *v, size_t n) {
    if (n > FILE_BYTES - f->n) abort();
    memcpy(f->bytes + f->n, v, n);
    f->n += n;
}

static void put_u32(struct file *f, uint32_t v) {
    put(f, &v, sizeof v);
}

static void put_u64(struct file *f, uint64_t v) {
    put(f, &v, sizeof v);
}

static void put_text(struct file *f, const char *s) {
    put_u64(f, strlen(s));
    put(f, s, strlen(s));
}

static void put_key(struct file *f, const char *arch, const char *name, uint32_t type) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    put_text(f, key);
    put_u32(f, type);
    f->n_keys++;
}

static void put_list(struct file *f, const char *arch, const char *name, enum gguf_type type,
                     uint32_t n, struct input *in) {
    put_key(f, arch, name, GGUF_ARRAY);
    put_u32(f, type);
    put_u64(f, n);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t flag = take(in) & 1;
        if (type == GGUF_BOOL) put(f, &flag, 1);
        if (type != GGUF_BOOL) put_u32(f, flag ? take_number(in) : 0);
    }
}

static void put_entry(struct file *f, uint32_t number, uint32_t i, uint32_t n_layers,
                      struct input *in) {
    const char *name = keys[i].name, *arch = archs[number].name;
    const uint8_t how = take(in);
    const uint32_t n = n_layers + (how >> 4 == 1) - (how >> 4 == 2 && n_layers);
    uint8_t flag;
    float real = keys[i].real;
    switch ((enum form)(how % N_FORMS)) {
    case USUAL:
        if (keys[i].group && !(archs[number].groups & keys[i].group)) return;
        if (keys[i].value) put_key(f, arch, name, GGUF_U32), put_u32(f, keys[i].value);
        if (real > 0) put_key(f, arch, name, GGUF_F32), put(f, &real, sizeof real);
        return;
    case NUMBER:
        put_key(f, arch, name, GGUF_U32);
        put_u32(f, take_number(in));
        return;
    case RAW_NUMBER:
        put_key(f, arch, name, how & 64 ? GGUF_I32 : GGUF_U32);
        put_u32(f, take_raw(in));
        return;
    case NUMBERS:
        put_list(f, arch, name, how & 128 ? GGUF_U32 : GGUF_I32, n, in);
        return;
    case FLAGS:
        put_list(f, arch, name, GGUF_BOOL, n, in);
        return;
    case REAL:
        put_key(f, arch, name, GGUF_F32);
        put_u32(f, take_raw(in));
        return;
    case FLAG:
        flag = take(in) & 1;
        put_key(f, arch, name, GGUF_BOOL);
        put(f, &flag, 1);
        return;
    default:
        return;
    }
}

/* Keys and one tensor, the embedding. */
static void make_file(struct file *f, struct input *in) {
    enum { EMBD = 64, VOCAB = 2, DATA = EMBD * VOCAB * 4, ALIGN = 32 };
    const uint32_t number = take(in) % N_ARCHS;
    const char *arch = archs[number].name;
    const uint8_t layers = take(in);
    const uint32_t n_layers = layers == 255 ? UINT32_MAX : layers % (MOST_LAYERS + 1);
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, 1);
    const size_t count_at = f->n;
    put_u64(f, 0);
    put_text(f, "general.architecture");
    put_u32(f, GGUF_STRING);
    put_text(f, arch);
    f->n_keys++;
    put_key(f, arch, "block_count", GGUF_U32);
    put_u32(f, n_layers);
    for (uint32_t i = 0; i < N_KEYS; i++)
        put_entry(f, number, i, n_layers == UINT32_MAX ? MOST_LAYERS : n_layers, in);
    memcpy(f->bytes + count_at, &f->n_keys, sizeof f->n_keys);
    put_text(f, "token_embd.weight");
    put_u32(f, 2);
    put_u64(f, EMBD);
    put_u64(f, VOCAB);
    put_u32(f, QTYPE_F32);
    put_u64(f, 0);
    static const uint8_t zeros[DATA + ALIGN];
    put(f, zeros, (ALIGN - f->n % ALIGN) % ALIGN + DATA);
}

static void need(bool ok) {
    if (!ok) abort();
}

static void check_layers(const struct model_hparams *hp) {
    uint32_t n_attention = 0, n_recurrent = 0;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const uint8_t flags = hp->layers[i];
        const uint32_t from = model_kv_layer(hp, i), n_kv = model_n_kv_heads(hp, flags);
        need(from <= i && !(hp->layers[from] & MODEL_LAYER_SHARED_KV));
        need(!((hp->layers[from] ^ flags) & MODEL_LAYER_WINDOWED));
        need(model_head_dim(hp, flags) && n_kv && model_n_heads(hp, i) % n_kv == 0);
        n_attention += model_layer_stores_kv(flags);
        n_recurrent += (hp->layers[i] & MODEL_LAYER_RECURRENT) != 0;
        need(!(hp->layers[i] & MODEL_LAYER_NO_MIXER && hp->layers[i] & MODEL_LAYER_RECURRENT));
    }
    need(n_attention == hp->n_kv_layers && n_recurrent == hp->recurrent.n_layers);
    for (uint32_t chunk = 16; chunk <= 32 && n_recurrent; chunk += 16) {
        const struct backend_state shape = model_state_shape(hp, 1, chunk);
        need(backend_state_ok(&shape) && backend_state_block_bytes(&shape));
        need(!hp->recurrent.n_norm_groups ||
             hp->recurrent.n_v_heads % hp->recurrent.n_norm_groups == 0);
    }
}

static void check_hparams(const struct model_hparams *hp) {
    struct backend_config config = {0};
    err e = {0};
    need(hp->n_layers && hp->n_layers <= MODEL_MAX_LAYERS && hp->n_embd && hp->head_dim);
    need(hp->n_heads && hp->n_kv_heads);
    need(hp->heads_differ || hp->n_heads % hp->n_kv_heads == 0);
    need(!hp->experts.n_experts ||
         (hp->experts.n_used && hp->experts.n_ff && hp->experts.n_used <= hp->experts.n_experts));
    check_layers(hp);
    model_backend_limits(hp, &config);
    need(config.max_cols >= hp->n_embd);
    if (model_ranks_check(hp, 2, &e)) need(e.code && e.msg[0]);
}

/* The file lacks tensors, so it is always refused, but these are looked for last: n_vocab says that
 * all keys were accepted. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static struct file f;
    struct input in = {bytes, bytes + n};
    struct model_hparams hp = {.n_vocab = 0};
    const struct model_arch *arch;
    gguf *g;
    err e = {0};
    f.n = f.n_keys = 0;
    make_file(&f, &in);
    need(gguf_open_memory(f.bytes, f.n, "fuzz", 0, &g, &e) == 0);
    need(model_hparams_read(g, &hp, &arch, &e) && e.code && e.msg[0]);
    if (hp.n_vocab) check_hparams(&hp);
    gguf_close(g);
    return 0;
}
