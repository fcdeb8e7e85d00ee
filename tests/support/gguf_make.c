/* gguf_make.c - builds the files of gguf_make.h. */
#include "tests/support/gguf_make.h"

#include "core/base/mem.h"
#include "core/formats/gguf/gguf_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_CONTROL = 4,
    N_LETTERS = 26,
    TOKEN_BYTES = 16,
    PATH_BYTES = 4096,
    TYPE_NORMAL = 1,
    TYPE_BYTE = 6
};

static const char *const control_texts[N_CONTROL] = {"<|system|>", "<|user|>", "<|assistant|>",
                                                     "<|end|>"};

static const char chat_template_text[] =
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + "
    "message['content'] + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|assistant|>' }}{% endif %}";

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Mean 0, standard deviation 1: a sum of twelve uniform numbers, the same on every machine. */
static float next_normal(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (double)(next_random(state) >> 11) * 0x1p-53;
    return (float)sum;
}

static int no_memory(err *e) {
    return err_no_memory(e);
}

/* Text of a vocabulary entry as gguf_make.h lists them. */
static void token_text(uint32_t id, char text[TOKEN_BYTES]) {
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    if (id < GGUF_MAKE_FIRST_BYTE) {
        snprintf(text, TOKEN_BYTES, "%s", first[id]);
    } else if (id < GGUF_MAKE_SYSTEM) {
        snprintf(text, TOKEN_BYTES, "<0x%02X>", id - GGUF_MAKE_FIRST_BYTE);
    } else if (id < GGUF_MAKE_SPACE) {
        snprintf(text, TOKEN_BYTES, "%s", control_texts[id - GGUF_MAKE_SYSTEM]);
    } else if (id == GGUF_MAKE_SPACE) {
        snprintf(text, TOKEN_BYTES, "\xe2\x96\x81");
    } else {
        uint32_t k = id - GGUF_MAKE_FIRST_LETTER, n_letters = 1, n_of_length = N_LETTERS;
        while (k >= n_of_length) {
            k -= n_of_length;
            n_of_length *= N_LETTERS;
            n_letters++;
        }
        text[n_letters] = '\0';
        for (uint32_t i = n_letters; i > 0; i--, k /= N_LETTERS)
            text[i - 1] = (char)('a' + k % N_LETTERS);
    }
}

static int32_t token_type(uint32_t id) {
    if (id == 0) return 2;
    if (id < GGUF_MAKE_FIRST_BYTE) return 3;
    if (id < GGUF_MAKE_SYSTEM) return TYPE_BYTE;
    return id < GGUF_MAKE_SPACE ? 3 : TYPE_NORMAL;
}

/* The three arrays of a vocabulary while they are filled. */
struct lists {
    gguf_str *texts; /* (n) owned */
    float *scores;
    int32_t *types;
    uint32_t n;
};

static void lists_fini(struct lists *l) {
    for (uint32_t i = 0; i < l->n; i++)
        free((char *)(uintptr_t)l->texts[i].data);
    free(l->texts);
    free(l->scores);
    free(l->types);
}

static int add_token(struct lists *l, const char *text, float score, int32_t type, err *e) {
    gguf_str *texts = mem_resize(l->texts, l->n + 1, sizeof *texts);
    if (texts) l->texts = texts;
    float *scores = mem_resize(l->scores, l->n + 1, sizeof *scores);
    if (scores) l->scores = scores;
    int32_t *types = mem_resize(l->types, l->n + 1, sizeof *types);
    if (types) l->types = types;
    char *copy = mem_strdup(text);
    if (!texts || !scores || !types || !copy) {
        free(copy);
        return no_memory(e);
    }
    texts[l->n] = (gguf_str){copy, strlen(copy)};
    scores[l->n] = score;
    types[l->n++] = type;
    return 0;
}

static int set_tokens(gguf_writer *w, const struct lists *l, err *e) {
    return gguf_writer_set_texts(w, "tokenizer.ggml.tokens", l->texts, l->n, e);
}

static int set_merges(gguf_writer *w, const struct gguf_make_vocab *v, err *e) {
    struct lists l = {0};
    int rc = 0;
    for (uint32_t i = 0; !rc && i < v->n_merges; i++)
        rc = add_token(&l, v->merges[i], 0, 0, e);
    if (!rc) rc = gguf_writer_set_texts(w, "tokenizer.ggml.merges", l.texts, l.n, e);
    lists_fini(&l);
    return rc;
}

static int set_scores(gguf_writer *w, const struct lists *l, err *e) {
    return gguf_writer_set_array(w, "tokenizer.ggml.scores", GGUF_F32, l->scores, l->n, e);
}

static int set_types(gguf_writer *w, const struct lists *l, err *e) {
    return gguf_writer_set_array(w, "tokenizer.ggml.token_type", GGUF_I32, l->types, l->n, e);
}

static int set_vocabulary(gguf_writer *w, uint32_t n_vocab, err *e) {
    struct lists l = {0};
    int rc = 0;
    for (uint32_t id = 0; !rc && id < n_vocab; id++) {
        char text[TOKEN_BYTES];
        token_text(id, text);
        int32_t type = token_type(id);
        rc = add_token(&l, text, type == TYPE_NORMAL ? -(float)id : 0, type, e);
    }
    if (!rc) rc = set_tokens(w, &l, e);
    if (!rc) rc = set_scores(w, &l, e);
    if (!rc) rc = set_types(w, &l, e);
    lists_fini(&l);
    return rc;
}

static int set_keys(gguf_writer *w, const struct tiny_llama *c, err *e) {
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"llama.vocab_size", c->n_vocab},
        {"llama.context_length", c->context_length},
        {"llama.embedding_length", c->n_embd},
        {"llama.block_count", c->n_layers},
        {"llama.feed_forward_length", c->n_ff},
        {"llama.attention.head_count", c->n_heads},
        {"llama.attention.head_count_kv", c->n_kv_heads},
        {"llama.attention.key_length", c->head_dim},
        {"llama.attention.value_length", c->head_dim},
        {"llama.rope.dimension_count", c->head_dim},
        {"tokenizer.ggml.bos_token_id", GGUF_MAKE_BOS},
        {"tokenizer.ggml.eos_token_id", GGUF_MAKE_END},
        {"tokenizer.ggml.unknown_token_id", 0},
    };
    const int32_t words[2] = {GGUF_MAKE_FIRST_LETTER, GGUF_MAKE_FIRST_LETTER + 1};
    int rc = gguf_writer_set_str(w, "general.architecture", "llama", e);
    if (!rc) rc = gguf_writer_set_str(w, "general.name", "tiny llama for tests", e);
    if (!rc && c->reranks)
        rc = gguf_writer_set_str(w, "tokenizer.chat_template.rerank", "{query} {document}?", e);
    if (!rc && c->reranks)
        rc = gguf_writer_set_array(w, "llama.inferd.score_tokens", GGUF_I32, words, 2, e);
    for (size_t i = 0; !rc && i < sizeof numbers / sizeof numbers[0]; i++)
        rc = gguf_writer_set_u32(w, numbers[i].key, numbers[i].value, e);
    if (!rc) rc = gguf_writer_set_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f, e);
    if (!rc) rc = gguf_writer_set_f32(w, "llama.rope.freq_base", 10000, e);
    if (!rc) rc = gguf_writer_set_str(w, "tokenizer.ggml.model", "llama", e);
    if (!rc) rc = gguf_writer_set_bool(w, "tokenizer.ggml.add_bos_token", true, e);
    if (!rc) rc = gguf_writer_set_bool(w, "tokenizer.ggml.add_eos_token", false, e);
    if (!rc) rc = gguf_writer_set_bool(w, "tokenizer.ggml.add_space_prefix", false, e);
    if (!rc) rc = gguf_writer_set_str(w, "tokenizer.chat_template", chat_template_text, e);
    return rc ? rc : set_vocabulary(w, c->n_vocab, e);
}

/* Data of all tensors of one file, freed together once it is written. */
struct pile {
    gguf_writer *w;
    void **blocks;
    uint64_t n_blocks;
    uint64_t random;
};

static void pile_fini(struct pile *p) {
    for (uint64_t i = 0; i < p->n_blocks; i++)
        free(p->blocks[i]);
    free(p->blocks);
    gguf_writer_free(p->w);
}

/* Writes a block's scale, where types without an encoder have it. */
static void set_scale(int type, uint8_t *block, uint32_t bytes, uint16_t half) {
    bool last = type == QTYPE_TQ1_0 || type == QTYPE_TQ2_0;
    for (uint32_t k = 0; k < 4 && type == QTYPE_IQ1_M; k++) /* top nibbles of four words */
        block[49 + 2 * k] = (uint8_t)((block[49 + 2 * k] & 15) | (half >> 4 * k & 15) << 4);
    if (type != QTYPE_IQ1_M) memcpy(block + (last ? bytes - 2 : 0), &half, sizeof half);
}

static float size_of(const float *values) {
    double sum = 0;
    for (int i = 0; i < QK_ELEMS; i++)
        sum += (double)values[i] * (double)values[i];
    return (float)sqrt(sum / QK_ELEMS);
}

/* Random blocks with the mean square of values, for types without an encoder. */
static void make_blocks(struct pile *p, int type, const float *values, uint8_t *data, uint64_t n) {
    const uint32_t bytes = qtype_find(type)->block_bytes;
    float unit[QK_ELEMS];
    for (; n; n -= QK_ELEMS, values += QK_ELEMS, data += bytes) {
        for (uint32_t i = 0; i < bytes; i++)
            data[i] = (uint8_t)(int)(64 * next_normal(&p->random));
        set_scale(type, data, bytes, f32_to_f16(1));
        qtype_decode(type, data, unit, QK_ELEMS);
        set_scale(type, data, bytes, f32_to_f16(size_of(values) / size_of(unit)));
    }
}

/* Encodes values (t->n_elems) f32 as t->type and adds the tensor. */
static int add_encoded(struct pile *p, gguf_tensor t, const float *values, err *e) {
    if (!qtype_bytes(t.type, t.n_elems / t.dims[0], t.dims[0], &t.bytes))
        return err_set(e, ERR_INVALID, "%.*s: rows of %" PRIu64 " do not fit %s", (int)t.name.len,
                       t.name.data, t.dims[0], qtype_name(t.type));
    void **blocks = mem_resize(p->blocks, p->n_blocks + 1, sizeof *blocks);
    if (!blocks) return no_memory(e);
    p->blocks = blocks;
    void *data = mem_new(t.bytes, 1);
    if (!data) return no_memory(e);
    blocks[p->n_blocks++] = data;
    if (qtype_wide(t.type) != t.type)
        make_blocks(p, t.type, values, data, t.n_elems);
    else
        qtype_encode(t.type, values, data, t.n_elems);
    t.data = data;
    return gguf_writer_add_tensor(p->w, &t, e);
}

/* A matrix (n_out, n_in) with values of standard deviation gain / sqrt(n_in); n_out 0: a norm
 * vector (n_in) around 1. layer < 0: name has no block number. */
struct shape {
    const char *name;
    uint32_t n_out, n_in;
    float gain;
};

static int add_random(struct pile *p, const struct shape *s, int layer, int type, err *e) {
    char name[64];
    bool vector = s->n_out == 0;
    uint64_t n = (uint64_t)s->n_in * (vector ? 1 : s->n_out);
    float *values = mem_new(n, sizeof *values);
    if (!values) return no_memory(e);
    for (uint64_t i = 0; i < n; i++) {
        float r = next_normal(&p->random);
        values[i] = vector ? 1 + 0.1f * r : s->gain / sqrtf((float)s->n_in) * r;
    }
    if (layer < 0)
        snprintf(name, sizeof name, "%s.weight", s->name);
    else
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, s->name);
    gguf_tensor t = {.name = {name, strlen(name)},
                     .type = vector ? QTYPE_F32 : type,
                     .n_dims = vector ? 1 : 2,
                     .dims = {s->n_in, vector ? 1 : s->n_out, 1, 1},
                     .n_elems = n};
    int rc = add_encoded(p, t, values, e);
    free(values);
    return rc;
}

static int add_weights(struct pile *p, const struct tiny_llama *c, err *e) {
    uint32_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    const struct shape layer[] = {
        {"attn_norm", 0, c->n_embd, 0},      {"attn_q", q, c->n_embd, 1.5f},
        {"attn_k", kv, c->n_embd, 1.5f},     {"attn_v", kv, c->n_embd, 1},
        {"attn_output", c->n_embd, q, 1},    {"ffn_norm", 0, c->n_embd, 0},
        {"ffn_gate", c->n_ff, c->n_embd, 1}, {"ffn_up", c->n_ff, c->n_embd, 1},
        {"ffn_down", c->n_embd, c->n_ff, 1},
    };
    /* Final hidden states have size 1 per element, so a gain of 2 gives logits of deviation 2. */
    const struct shape embedding = {"token_embd", c->n_vocab, c->n_embd, 2};
    const struct shape norm = {"output_norm", 0, c->n_embd, 0};
    const struct shape output = {"output", c->n_vocab, c->n_embd, 2};
    int rc = add_random(p, &embedding, -1, c->weight_type, e);
    for (uint32_t l = 0; l < c->n_layers; l++)
        for (size_t i = 0; !rc && i < sizeof layer / sizeof layer[0]; i++)
            rc = add_random(p, &layer[i], (int)l, c->weight_type, e);
    if (!rc) rc = add_random(p, &norm, -1, QTYPE_F32, e);
    if (!rc && !c->tied) rc = add_random(p, &output, -1, c->weight_type, e);
    return rc;
}

int gguf_make_tiny_llama(const char *path, const struct tiny_llama *config, err *e) {
    struct tiny_llama c = *config;
    struct {
        uint32_t *field, value;
    } defaults[] = {{&c.n_vocab, 320}, {&c.n_layers, 2},        {&c.n_embd, 64},
                    {&c.n_heads, 4},   {&c.n_kv_heads, 2},      {&c.head_dim, 16},
                    {&c.n_ff, 96},     {&c.context_length, 512}};
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
        if (!*defaults[i].field) *defaults[i].field = defaults[i].value;
    if (c.n_vocab < GGUF_MAKE_VOCAB_MIN || c.n_vocab > GGUF_MAKE_VOCAB_MAX)
        return err_set_param(e, ERR_INVALID, "n_vocab", "n_vocab must be in %d..%d",
                             GGUF_MAKE_VOCAB_MIN, GGUF_MAKE_VOCAB_MAX);
    struct pile p = {.w = gguf_writer_new(), .random = c.seed};
    if (!p.w) return no_memory(e);
    int rc = set_keys(p.w, &c, e);
    if (!rc) rc = add_weights(&p, &c, e);
    if (!rc) rc = gguf_writer_finish(p.w, path, e);
    pile_fini(&p);
    return rc;
}

/* Numbers of general.file_type ("mostly ...") in the GGUF specification. */
static uint32_t file_type_of(int qtype) {
    switch (qtype) {
    case QTYPE_F16:
        return 1;
    case QTYPE_Q4_0:
        return 2;
    case QTYPE_Q8_0:
        return 7;
    case QTYPE_BF16:
        return 32;
    default:
        return 0;
    }
}

static int add_retyped(struct pile *p, const gguf_tensor *t, int qtype, err *e) {
    if (t->n_dims != 2) return gguf_writer_add_tensor(p->w, t, e);
    gguf_tensor copy = *t;
    float *values = mem_new(t->n_elems, sizeof *values);
    if (!values) return no_memory(e);
    qtype_decode(t->type, t->data, values, t->n_elems);
    copy.type = qtype;
    int rc = add_encoded(p, copy, values, e);
    free(values);
    return rc;
}

int gguf_make_retype(const char *src, const char *dst, int qtype, err *e) {
    gguf *g = NULL;
    int rc = gguf_open(src, 0, &g, e);
    if (rc) return rc;
    struct pile p = {.w = gguf_writer_new()};
    if (!p.w) rc = no_memory(e);
    if (!rc) rc = gguf_writer_set_u32(p.w, "general.file_type", file_type_of(qtype), e);
    if (!rc) rc = gguf_writer_copy_metadata(p.w, g, e);
    for (uint64_t i = 0; !rc && i < gguf_n_tensors(g); i++)
        rc = add_retyped(&p, gguf_tensor_at(g, i), qtype, e);
    if (!rc) rc = gguf_writer_finish(p.w, dst, e);
    pile_fini(&p);
    gguf_close(g);
    return rc;
}

static int set_vocab_keys(gguf_writer *w, const struct gguf_make_vocab *v, err *e) {
    int rc = gguf_writer_set_str(w, "tokenizer.ggml.model", v->model ? v->model : "llama", e);
    if (!rc && v->name) rc = gguf_writer_set_str(w, "general.name", v->name, e);
    if (!rc && v->pre) rc = gguf_writer_set_str(w, "tokenizer.ggml.pre", v->pre, e);
    if (!rc && v->merges) rc = set_merges(w, v, e);
    if (!rc && v->bos != GGUF_MAKE_NONE)
        rc = gguf_writer_set_u32(w, "tokenizer.ggml.bos_token_id", v->bos, e);
    if (!rc && v->eos != GGUF_MAKE_NONE)
        rc = gguf_writer_set_u32(w, "tokenizer.ggml.eos_token_id", v->eos, e);
    if (!rc && v->add_space_prefix >= 0)
        rc = gguf_writer_set_bool(w, "tokenizer.ggml.add_space_prefix", v->add_space_prefix, e);
    if (!rc && v->add_eos) rc = gguf_writer_set_bool(w, "tokenizer.ggml.add_eos_token", true, e);
    return rc;
}

int gguf_make_vocab(const char *path, const struct gguf_make_vocab *vocab, err *e) {
    struct lists l = {0};
    gguf_writer *w = gguf_writer_new();
    if (!w) return no_memory(e);
    int rc = set_vocab_keys(w, vocab, e);
    for (uint32_t i = 0; !rc && i < vocab->n_tokens; i++) {
        const struct gguf_make_token *t = &vocab->tokens[i];
        rc = add_token(&l, t->text, t->score, t->type, e);
    }
    for (uint32_t b = 0; !rc && vocab->with_bytes && b < 256; b++) {
        char text[TOKEN_BYTES];
        token_text(GGUF_MAKE_FIRST_BYTE + b, text);
        rc = add_token(&l, text, 0, TYPE_BYTE, e);
    }
    if (!rc) rc = set_tokens(w, &l, e);
    if (!rc && !vocab->no_scores) rc = set_scores(w, &l, e);
    if (!rc && !vocab->no_types) rc = set_types(w, &l, e);
    if (!rc) rc = gguf_writer_finish(w, path, e);
    lists_fini(&l);
    gguf_writer_free(w);
    return rc;
}

static int set_number(gguf_writer *w, const char *key, enum gguf_type type, const void *v,
                      uint64_t n, err *e) {
    return gguf_writer_set_raw(w, gguf_str_of(key), type, v, n, e);
}

int gguf_make_part(const gguf *src, const char *path, const struct gguf_make_part *p, err *e) {
    gguf_writer *w = gguf_writer_new();
    if (!w) return no_memory(e);
    int rc = set_number(w, "split.no", GGUF_U16, &p->no, sizeof p->no, e);
    if (!rc) rc = set_number(w, "split.count", GGUF_U16, &p->count, sizeof p->count, e);
    if (!rc)
        rc = set_number(w, "split.tensors.count", GGUF_I32, &p->n_tensors, sizeof p->n_tensors, e);
    if (!rc && p->no == 0) rc = gguf_writer_copy_metadata(w, src, e);
    for (uint64_t i = p->begin; !rc && i < p->end; i++)
        rc = gguf_writer_add_tensor(w, gguf_tensor_at(src, i), e);
    if (!rc) rc = gguf_writer_finish(w, path, e);
    gguf_writer_free(w);
    return rc;
}

int gguf_make_split(const char *src, const char *stem, uint32_t n_parts, err *e) {
    gguf *g;
    int rc = gguf_open(src, 0, &g, e);
    for (uint32_t i = 0; i < n_parts && !rc; i++) {
        char path[PATH_BYTES];
        uint64_t n = gguf_n_tensors(g);
        const struct gguf_make_part part = {.no = (uint16_t)i,
                                            .count = (uint16_t)n_parts,
                                            .n_tensors = (int32_t)n,
                                            .begin = n * i / n_parts,
                                            .end = n * (i + 1) / n_parts};
        snprintf(path, sizeof path, "%s-%05u-of-%05u.gguf", stem, i + 1, n_parts);
        rc = gguf_make_part(g, path, &part, e);
    }
    gguf_close(g); /* NULL is fine */
    return rc;
}
