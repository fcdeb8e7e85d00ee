/* tokenizer_int.h - shared by the files of the tokenizer. Private to core/tokenizer.
 *
 *   GGUF ----- vocab_gguf.c --\                                  /-- spm_proto.c -- spm.cc
 *   .model --- vocab_spm.c ----+-- struct vocab -- tokenizer.c --<
 *   .json ---- vocab_hf.c ----/                     encode.c      \-- bpe.c, words.c -- pretok.c
 *
 * vocab_write.c turns a struct vocab into a GGUF file's keys, vocab_merges.c ranks into scores. */
#ifndef INFERD_TOKENIZER_INT_H
#define INFERD_TOKENIZER_INT_H

#include "core/tokenizer/tokenizer.h"

#include "core/base/str.h"
#include "core/tokenizer/bpe.h"
#include "core/tokenizer/normalizer.h"

enum {
    VOCAB_MAX_TOKENS = 1 << 20,
    VOCAB_MAX_MERGES = 1 << 22,
    VOCAB_MAX_ADDED = 8,               /* tokens added before or after a text */
    VOCAB_MAX_TEXT_BYTES = 4096,       /* of one token; real ones have under a hundred */
    VOCAB_MAX_FILE_BYTES = 256 << 20,  /* of a tokenizer.model */
    ENCODE_MAX_TEXT_BYTES = 256 << 20, /* of one call */
};

/* Numbers as in GGUF's tokenizer.ggml.token_type and SentencePiece's ModelProto. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
};

/* How a special token is matched in its surroundings (tokenizer.json). */
enum token_flags {
    TOKEN_LSTRIP = 1,      /* includes the white space before it */
    TOKEN_RSTRIP = 2,      /* includes the white space after it */
    TOKEN_SINGLE_WORD = 4, /* only if no word character is adjacent */
    TOKEN_NORMALIZED = 8   /* matched in normalized text */
};

struct vocab_token {
    const char *text; /* (len), borrowed from the vocab's source */
    uint32_t len;
    float score;
    enum token_type type;
    uint8_t flags;   /* enum token_flags */
    bool eog;        /* the file lists it as the end of an answer */
    bool suppressed; /* the file lists it as never sampled */
};

/* Where the space prefix is added. SentencePiece doubles an existing space, Metaspace of
 * tokenizer.json does not. */
enum prefix_rule {
    PREFIX_ALWAYS,   /* before every text between control tokens */
    PREFIX_NO_SPACE, /* the same, unless the text begins with a space */
    PREFIX_FIRST     /* as NO_SPACE, at the start of the whole text only */
};

/* A merge of two texts, as written in the file. Borrowed from the vocab's source. */
struct vocab_merge {
    const char *left, *right; /* (left_len), (right_len) */
    uint32_t left_len, right_len;
};

struct hf_tokenizer;

#define NO_FIM                                                                                     \
    (struct tokenizer_fim) {                                                                       \
        .prefix = -1, .suffix = -1, .middle = -1, .repository = -1, .file = -1                     \
    }

/* A file's description of its tokenizer, checked but not yet interpreted. */
struct vocab {
    struct vocab_token *tokens; /* (n) */
    uint32_t n;
    int32_t bos, eos, eot, eom, pad; /* -1: none */
    struct tokenizer_fim fim;        /* the ids that the file names, -1: none */
    int32_t before[VOCAB_MAX_ADDED], after[VOCAB_MAX_ADDED]; /* added by TOKENIZER_ADD_SPECIAL */
    unsigned n_before, n_after;
    int32_t between[VOCAB_MAX_ADDED]; /* two texts; has_pair: the file says how they are joined */
    unsigned n_between;
    bool has_pair;
    bool space_prefix; /* adds a space at the start of the text and after a control token */
    enum prefix_rule prefix_rule; /* with space_prefix */
    bool spm_user_rules;      /* user-defined tokens as in SentencePiece: their text is escaped and
                                 the space prefix precedes the first one. Otherwise as in GGUF's
                                 reference: their text is unchanged, a prefix follows each one */
    bool strip_after_special; /* drops white space after a special token (Phi-3) */
    char *chat_template;      /* owned, NULL: none */
    char *tool_template;      /* the same, "tool_use" */
    char *rerank_template;    /* the same, "rerank" */
    bool is_bpe;              /* merges, else SentencePiece */
    struct vocab_merge *merges; /* (n_merges) by rank, owned */
    uint32_t n_merges;
    int32_t unk;                   /* -1: none */
    struct bpe_rules rules;        /* owned */
    struct normalizer *norm;       /* owned, NULL: none */
    const struct hf_tokenizer *hf; /* a tokenizer.json's content, NULL: read from another file */
    void *source;                  /* keeps the texts alive */
    void (*free_source)(void *source);
};

/* Reads any kind of file or folder. On failure there is nothing to free. */
int vocab_read(const char *path, struct vocab *v, err *e);
struct hf_step;
int vocab_add_normalizer(struct vocab *v, const struct hf_step *s, err *e); /* opens v->norm */
int vocab_read_gguf(const char *path, struct vocab *v, err *e);
int vocab_read_spm(const char *path, struct vocab *v, err *e);
int vocab_read_hf(const char *path, struct vocab *v, err *e); /* tokenizer.json or its folder */
int vocab_from_hf(struct hf_tokenizer *h, struct vocab *v, err *e); /* takes h, on failure too */
void vocab_fini(struct vocab *v);

/* inferd's own keys in GGUF files, for properties without a standard key: u8 per token (enum
 * token_flags), normalization to NFC, the rule of the space prefix (enum prefix_rule). Other
 * programs ignore them. */
#define VOCAB_KEY_SUPPRESSED "tokenizer.ggml.suppress_tokens"
#define VOCAB_KEY_PREFIX     "inferd.tokenizer.space_prefix"
#define VOCAB_KEY_FLAGS      "inferd.tokenizer.token_flags"
#define VOCAB_KEY_NFC        "inferd.tokenizer.nfc"

/* Takes the settings of the configuration files: BOS, EOS and padding, which of them are added,
 * ends of an answer, the template. */
int vocab_take_settings(const struct hf_tokenizer *h, struct vocab *v, err *e);
/* Stores added tokens at their ids and replaces tokens of the vocabulary there. */
int vocab_take_added(const struct hf_tokenizer *h, struct vocab *v, err *e);

/* tokenizer_write_gguf for a vocabulary that was read from path. */
struct gguf_writer;
int vocab_write_gguf(const struct vocab *v, const char *path, uint64_t n_rows,
                     struct gguf_writer *w, err *e);

/* Can SentencePiece's scores, which allow every merge whose result is a token, express the merges
 * by rank? If so, fills scores (v->n). false: no, or out of memory. */
bool vocab_scores_of_merges(const struct vocab *v, float *scores);

/* Does a token with this text end an answer if the file does not list such tokens? */
bool vocab_is_eog_text(const char *text, size_t len);
/* Writes text with space marks replaced by spaces; returns its length, at most len. */
uint32_t vocab_unmark_spaces(const char *text, uint32_t len, char *out);
/* Value of a byte token's text "<0xNN>", -1 for any other text. */
int vocab_byte_value(const char *text, size_t len);

/* Growing list of ids, bounded by max. */
struct id_list {
    int32_t *ids;
    size_t n, capacity, max;
};
int id_list_add(struct id_list *list, int32_t id, err *e); /* ERR_TOO_LONG, ERR_NOMEM */
/* Appends the ids of text, control tokens parsed or not; space_prefix: adds the vocabulary's space
 * prefix, if it has one. */
int encode_passage(const tokenizer *t, const char *text, bool space_prefix, bool parse_special,
                   struct id_list *ids, err *e);

/* libsentencepiece behind a C interface: it throws no exceptions. */
struct spm;
int spm_open(const void *model_proto, size_t n, struct spm **out, err *e);
void spm_close(struct spm *s);
/* Appends the ids of text[0..n), valid UTF-8, without a prefix; spaces are kept. */
int spm_encode(const struct spm *s, const char *text, size_t n, struct id_list *out, err *e);

/* One token of the serialized model. */
struct spm_piece {
    const char *text; /* (len) */
    uint32_t len;
    float score;
    enum token_type type;
    bool hidden; /* no text becomes this token */
};
/* Writes a ModelProto whose piece i has id i. byte_fallback: all 256 byte tokens are there. */
void spm_proto_add_piece(str *out, const struct spm_piece *piece, uint32_t id);
void spm_proto_add_specs(str *out, uint32_t n_pieces, bool byte_fallback);

struct token {
    uint32_t text_at, text_len;   /* in blob: as in the file */
    uint32_t bytes_at, bytes_len; /* in blob: as it appears in running text */
    uint8_t type;                 /* enum token_type */
    uint8_t flags;                /* enum token_flags */
    bool eog, suppressed;
    bool hidden;
};

/* A text with its id; lists of them are sorted by text. */
struct named {
    const char *text;
    uint32_t len;
    int32_t id;
};

/* Token texts to match in running text. */
struct special_set {
    struct named *names; /* (n), sorted */
    uint32_t n;
    bool starts[256]; /* their first bytes */
};

struct tokenizer {
    char *blob;
    struct token *tokens; /* (n_tokens) */
    int32_t n_tokens;
    struct named *by_text;       /* (n_tokens) */
    struct special_set specials; /* matched before the text is tokenized */
    struct special_set normals;  /* matched in normalized text: user-defined tokens only */
    char *normal_texts;          /* their texts, normalized */
    struct normalizer *norm;     /* NULL: text is not normalized */
    int32_t byte_ids[256];       /* -1 without byte fallback */
    bool byte_fallback;
    bool cuts_at_space; /* no token spans the position before a space: see encode.c */
    int32_t bos, eos, unk;
    struct tokenizer_fim fim;
    int32_t before[VOCAB_MAX_ADDED], between[VOCAB_MAX_ADDED], after[VOCAB_MAX_ADDED];
    unsigned n_before, n_between, n_after;
    bool has_pair;
    bool space_prefix, spm_user_rules, strip_after_special;
    enum prefix_rule prefix_rule;
    uint32_t longest_text; /* maximum bytes of text per token */
    char *chat_template, *tool_template, *rerank_template;
    struct bpe *bpe;    /* one of the three: merges by rank, */
    struct bpe *scored; /* by SentencePiece's scores, */
    struct spm *spm;    /* or libsentencepiece: no byte fallback, or unused tokens */
};

/* Opens libsentencepiece with the vocabulary that t was built from. */
int tokenizer_open_library(const struct tokenizer *t, const struct vocab *v, struct spm **out,
                           err *e);

/* tokenizer_open without the file: builds the tables; takes v, also on failure. */
int tokenizer_build(struct vocab *v, tokenizer **out, err *e);

/* Finds the longest of the set's texts at text[at..n), or NULL; accepts may reject one. */
struct special_search {
    const struct special_set *set;
    const char *text; /* (n) */
    size_t n;
    bool (*accepts)(const void *context, const struct named *found, size_t end);
    const void *context;
};
const struct named *special_match(const struct special_search *s, size_t at);

/* Sorts names by text, equal texts by descending id. */
void named_sort(struct named *names, uint32_t n);
/* The first of sorted names with this text, NULL: none. */
const struct named *named_find(const struct named *names, uint32_t n, const char *text,
                               uint32_t len);
int named_compare(const void *a, const void *b);

#endif
