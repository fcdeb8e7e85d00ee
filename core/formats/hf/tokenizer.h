/* hf/tokenizer.h - reads a Hugging Face tokenizer.json, or in Kimi's folders a tiktoken.model, and,
 * if they exist beside it, tokenizer_config.json, special_tokens_map.json, generation_config.json,
 * config.json and chat_template.jinja or chat_template.json.
 *
 * Sources: the serialization of the tokenizers library (models, normalizers, pre_tokenizers,
 * decoders, processors) and transformers' loading of the files around it. Nothing is trusted:
 * sizes, types and ids are checked, and a component that is not listed below is refused by its
 * name. core/tokenizer implements the components.
 *
 * THREAD SAFETY: an open hf_tokenizer is immutable; any number of threads may read it. */
#ifndef INFERD_FORMATS_HF_TOKENIZER_H
#define INFERD_FORMATS_HF_TOKENIZER_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HF_MAX_STEPS = 16,
    HF_MAX_ADDED_IDS = 8,
    HF_MAX_EOS = 16,
    HF_MAX_SUPPRESSED = 256,
    HF_MAX_ID = (1 << 20) - 1,
    HF_MAX_MERGES = 1 << 22
};

/* Of BertPreTokenizer and Punctuation. */
#define HF_PUNCTUATION "[\\p{P}!-/:-@\\[-`{-~]"

/* How the maker's code of Kimi (tokenization_kimi.py) splits text into words. */
#define HF_KIMI_LEAD   "[^\\r\\n\\p{L}\\p{N}]?"
#define HF_KIMI_UPPER  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define HF_KIMI_LOWER  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define HF_KIMI_FOLDED "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define HF_KIMI_WORDS                                                                              \
    "[\\p{Han}]+|" HF_KIMI_LEAD HF_KIMI_UPPER "*" HF_KIMI_LOWER "+" HF_KIMI_FOLDED                 \
    "|" HF_KIMI_LEAD HF_KIMI_UPPER "+" HF_KIMI_LOWER "*" HF_KIMI_FOLDED                            \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* A text with its id. Borrowed from the hf_tokenizer, NUL-terminated. */
struct hf_token {
    const char *text;
    int32_t id;  /* 0..HF_MAX_ID */
    float score; /* of Unigram */
};
enum hf_token_model { HF_MODEL_BPE, HF_MODEL_WORDPIECE, HF_MODEL_UNIGRAM };
struct hf_merge {
    const char *left, *right; /* (left_len), (right_len), not NUL-terminated */
    uint32_t left_len, right_len;
};
struct hf_added {
    struct hf_token token;
    bool special, lstrip, rstrip, single_word, normalized;
};

enum hf_step_kind {
    HF_NFC, /* normalizers */
    HF_NFD,
    HF_LOWERCASE,
    HF_STRIP,    /* left, right */
    HF_REPLACE,  /* pattern, literal, content */
    HF_PREPEND,  /* content */
    HF_CHARSMAP, /* content: SentencePiece's map in base64 */
    HF_SPLIT,    /* pre-tokenizers: pattern, literal, invert, behavior */
    HF_PREFIX_SPACE,
    HF_BYTE_LEVEL, /* text becomes bytes in GPT-2's alphabet */
    HF_METASPACE   /* content (the mark), prepend, split */
};
enum hf_behavior {
    HF_ISOLATED,
    HF_REMOVED,
    HF_MERGED_WITH_PREVIOUS,
    HF_MERGED_WITH_NEXT,
    HF_CONTIGUOUS
};
enum hf_prepend { HF_PREPEND_NEVER, HF_PREPEND_FIRST, HF_PREPEND_ALWAYS };

/* Digits, Punctuation and similar components are given as an equivalent HF_SPLIT. */
struct hf_step {
    enum hf_step_kind kind;
    const char *pattern, *content; /* borrowed */
    bool literal, invert, left, right, split;
    enum hf_behavior behavior;
    enum hf_prepend prepend;
};
struct hf_steps {
    struct hf_step items[HF_MAX_STEPS];
    unsigned n;
};

/* Read-only for callers. */
struct hf_tokenizer {
    enum hf_token_model model;
    const char *next_prefix; /* WordPiece: of tokens inside a word */
    struct hf_token *tokens; /* (n_tokens) the model's vocabulary, in the file's order */
    uint32_t n_tokens;
    struct hf_merge *merges; /* (n_merges) by rank */
    uint32_t n_merges;
    struct hf_added *added; /* (n_added) */
    uint32_t n_added;
    const char *unk; /* text of the unknown token, NULL: none */
    bool byte_fallback, fuse_unk, ignore_merges;
    struct hf_steps normalizer, pre_tokenizer;
    bool decodes_bytes;        /* the decoder reads GPT-2's alphabet */
    bool decoder_strips_space; /* removes one leading space of the whole text */
    int32_t before[HF_MAX_ADDED_IDS], after[HF_MAX_ADDED_IDS]; /* of the post-processor */
    unsigned n_before, n_after;
    int32_t between[HF_MAX_ADDED_IDS]; /* of two texts; has_pair: it says how they are joined */
    unsigned n_between;
    bool has_pair;
    const char *bos, *eos, *pad; /* texts; NULL: unknown */
    int add_bos, add_eos;        /* 0 or 1; -1: not configured */
    int space_prefix;            /* the same, of a tokenizer.model */
    int32_t eos_ids[HF_MAX_EOS]; /* of generation_config.json, else config.json */
    unsigned n_eos_ids;
    int32_t suppressed[HF_MAX_SUPPRESSED]; /* of generation_config.json */
    unsigned n_suppressed;
    int32_t bos_id, pad_id;    /* of config.json, -1: none */
    const char *chat_template; /* NULL: none */
    const char *tool_template; /* the template named "tool_use"; NULL: none */
    void *documents[7];        /* private: parsed files, which hold the texts, as does */
    struct arena *memory;      /* of a tiktoken.model */
    char *template_file;
};

/* BertNormalizer: clean drops control characters and makes white space spaces, ideographs get
 * spaces around them, accents are dropped with strip, letters become small with lower. */
struct hf_bert {
    bool clean, ideographs, strip, lower;
};
void hf_bert_steps(const struct hf_bert *b, struct hf_steps *out);

/* Opens path: a tokenizer.json, a tiktoken.model, or a folder with one of them. ERR_IO,
 * ERR_NOT_FOUND (the folder has none), ERR_FORMAT, ERR_UNSUPPORTED (names the component). On
 * failure *out is NULL. */
int hf_tokenizer_open(const char *path, struct hf_tokenizer **out, err *e);
void hf_tokenizer_close(struct hf_tokenizer *t); /* NULL is fine */

/* Reads the files beside a tokenizer.model at path: as above without a vocabulary. Added tokens
 * come from tokenizer_config.json's added_tokens_decoder and from added_tokens.json. */
int hf_tokenizer_open_beside(const char *path, struct hf_tokenizer **out, err *e);

/* As hf_tokenizer_open, for a tokenizer.json, or a tiktoken.model, in memory without other files
 * (fuzzing). */
int hf_tokenizer_open_memory(const char *json, size_t n, struct hf_tokenizer **out, err *e);
int hf_tokenizer_open_ranks(const char *text, size_t n, struct hf_tokenizer **out, err *e);

#endif
