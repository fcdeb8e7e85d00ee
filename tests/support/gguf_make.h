/* gguf_make.h - generates GGUF files for tests: a tiny llama with seeded random weights, and an
 * existing file with its weights in another type. Single thread. */
#ifndef INFERD_TESTS_GGUF_MAKE_H
#define INFERD_TESTS_GGUF_MAKE_H

#include "core/formats/gguf/gguf.h"

#include <stdbool.h>
#include <stdint.h>

/* Zero means the default in brackets. Rows must be whole blocks of weight_type: n_embd, n_ff and
 * n_heads * head_dim multiples of 32 for Q8_0 and Q4_0. Types without an encoder get random blocks.
 */
struct tiny_llama {
    uint64_t seed;           /* the same seed and sizes give the same bytes */
    uint32_t n_vocab;        /* [320], at least GGUF_MAKE_VOCAB_MIN, at most GGUF_MAKE_VOCAB_MAX */
    uint32_t n_layers;       /* [2] */
    uint32_t n_embd;         /* [64] */
    uint32_t n_heads;        /* [4] */
    uint32_t n_kv_heads;     /* [2] */
    uint32_t head_dim;       /* [16] */
    uint32_t n_ff;           /* [96] */
    uint32_t context_length; /* [512] */
    int weight_type;         /* enum qtype of every matrix; norms are F32 */
    bool tied;               /* no output.weight: the embedding is used */
    bool reranks; /* scores by the tokens GGUF_MAKE_FIRST_LETTER (yes) and the next one */
};

enum {
    GGUF_MAKE_VOCAB_MIN = 300,
    GGUF_MAKE_VOCAB_MAX = 18000,
    /* Ids of the vocabulary, which is `<unk> <s> </s>`, 256 byte tokens, four control tokens, the
     * space mark, the letters a-z, then two- and three-letter pieces. BOS is 1, EOS is <|end|>;
     * no space prefix. */
    GGUF_MAKE_BOS = 1,
    GGUF_MAKE_FIRST_BYTE = 3,
    GGUF_MAKE_SYSTEM = 259,
    GGUF_MAKE_USER = 260,
    GGUF_MAKE_ASSISTANT = 261,
    GGUF_MAKE_END = 262,
    GGUF_MAKE_SPACE = 263,
    GGUF_MAKE_FIRST_LETTER = 264
};

/* Writes a whole llama model with tokenizer and chat template to path. */
int gguf_make_tiny_llama(const char *path, const struct tiny_llama *config, err *e);

/* A vocabulary-only file from a list of tokens. */
struct gguf_make_token {
    const char *text;
    float score;
    int32_t type; /* as tokenizer.ggml.token_type */
};
struct gguf_make_vocab {
    const char *model; /* tokenizer.ggml.model, NULL: "llama" */
    const char *name;  /* general.name, NULL: none */
    const struct gguf_make_token *tokens;
    uint32_t n_tokens;
    bool with_bytes; /* 256 byte tokens follow the list, in order */
    bool no_types, no_scores;
    uint32_t bos, eos;         /* ids, GGUF_MAKE_NONE: no key */
    const char *pre;           /* tokenizer.ggml.pre, NULL: none */
    const char *const *merges; /* (n_merges), NULL: no key */
    uint32_t n_merges;
    int add_space_prefix; /* 0 or 1, -1: no key */
    bool add_eos;
};
enum { GGUF_MAKE_NONE = 0x7fffffff };
int gguf_make_vocab(const char *path, const struct gguf_make_vocab *vocab, err *e);

/* Copies the model at src to dst with every two-dimensional tensor in type qtype. */
int gguf_make_retype(const char *src, const char *dst, int qtype, err *e);

/* One part of a split model as llama-gguf-split marks it: tensors begin .. end - 1 of src, all of
 * its keys too in number 0; split.no, split.count and split.tensors.count. */
struct gguf_make_part {
    uint16_t no, count; /* no from 0 */
    int32_t n_tensors;  /* declared number, of all parts */
    uint64_t begin, end;
};
int gguf_make_part(const gguf *src, const char *path, const struct gguf_make_part *part, err *e);

/* Splits the model at src into n_parts such parts, STEM-00001-of-0000N.gguf and so on, with tensors
 * in order. */
int gguf_make_split(const char *src, const char *stem, uint32_t n_parts, err *e);

#endif
