/* tokenizer.h - text <-> token ids.
 *
 * SentencePiece models of the BPE kind, from their own file (with transformers' files beside it) or
 * out of a GGUF, merged here (where they have byte fallback) or by libsentencepiece; and byte-pair
 * encoding, out of a GGUF (tokenizer.ggml.model gpt2; how words are cut goes by tokenizer.ggml.pre)
 * or a tokenizer.json (BPE models; normalizers NFC, NFD, Lowercase, Strip, Replace, Prepend; all
 * common pre-tokenizers). Text is bytes; invalid UTF-8 is encoded through byte tokens, never
 * refused.
 *
 * THREAD SAFETY: an open tokenizer is immutable; all calls from any thread. */
#ifndef INFERD_TOKENIZER_H
#define INFERD_TOKENIZER_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tokenizer tokenizer;

/* Opens the tokenizer of a GGUF file (tokenizer.ggml.*, vocabulary-only files too), of a
 * tokenizer.json with the configuration files beside it, of a SentencePiece tokenizer.model, or of
 * the folder that one of the latter two lies in. ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED (names what is
 * not). */
int tokenizer_open(const char *path, tokenizer **out, err *e);
void tokenizer_close(tokenizer *t); /* NULL is fine */

/* Adds the tokenizer that tokenizer_open would open at path to a GGUF file as tokenizer.* keys, so
 * that it tokenizes the same from there, here and in other engines; what GGUF has no key for (NFC,
 * strip flags of added tokens, a space prefix that doubles none) goes into inferd.tokenizer.*,
 * which others pass over. The list of tokens is filled up to n_rows, the rows of the model's
 * embedding, with unused [PADi]; added tokens beyond them are left out. ERR_UNSUPPORTED names what
 * GGUF cannot carry: a pre_tokenizer that has no name there, a normalizer. */
struct gguf_writer;
int tokenizer_write_gguf(const char *path, uint64_t n_rows, struct gguf_writer *w, err *e);

enum tokenizer_flags {
    TOKENIZER_ADD_SPECIAL = 1,  /* BOS/EOS as the model wants (add_bos_token, add_eos_token); a BOS
                                   that the text itself begins with is not doubled */
    TOKENIZER_PARSE_SPECIAL = 2 /* text of control tokens becomes those tokens: only for text that
                                   a template wrote, never for a client's own */
};

/* Encodes text[0..n). *ids is allocated (caller frees), *n_ids may be 0. Bounded by max_ids:
 * ERR_TOO_LONG beyond it. */
int tokenizer_encode(const tokenizer *t, const char *text, size_t n, int flags, size_t max_ids,
                     int32_t **ids, size_t *n_ids, err *e);

/* A prompt made of pieces, some trusted (template's own text), some not: control tokens are parsed
 * in trusted pieces only. Pieces are contiguous text: ordinary tokenization may cross a border
 * between them, control-token text never comes from an untrusted piece. */
typedef struct tokenizer_piece {
    const char *text;
    size_t n;
    bool trusted;
} tokenizer_piece;
int tokenizer_encode_pieces(const tokenizer *t, const tokenizer_piece *pieces, size_t n_pieces,
                            int flags, size_t max_ids, int32_t **ids, size_t *n_ids, err *e);

/* Bytes of one token as they appear in running text (U+2581 is a space, byte tokens are their
 * byte, control tokens are empty unless with_control). Borrowed, immutable, *n bytes, may hold part
 * of a UTF-8 character. An id outside the vocabulary gives 0 bytes. */
const char *tokenizer_token_bytes(const tokenizer *t, int32_t id, bool with_control, size_t *n);

/* Decodes ids to text as the reference does (the space that add_space_prefix put in front is taken
 * away again). *text is NUL-terminated, caller frees; may contain NULs: use *n. */
int tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n_ids, bool with_control,
                     char **text, size_t *n, err *e);

/* Does decoding drop one leading space of the whole text (add_space_prefix)? */
bool tokenizer_strips_leading_space(const tokenizer *t);

int32_t tokenizer_n_vocab(const tokenizer *t);
int32_t tokenizer_bos(const tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const tokenizer *t); /* -1: none */
bool tokenizer_is_eog(const tokenizer *t,
                      int32_t id); /* eos, eot, <|im_end|>, ...: ends an answer */
bool tokenizer_is_control(const tokenizer *t, int32_t id);
bool tokenizer_adds_bos(const tokenizer *t);
/* Id of the token whose text is exactly text, or -1. */
int32_t tokenizer_find(const tokenizer *t, const char *text);
/* The token's own text ("<|end|>", "\xe2\x96\x81the"), for display. Borrowed. */
const char *tokenizer_token_text(const tokenizer *t, int32_t id, size_t *n);

/* The tokens between which a model fills in text: each stands before its text, in the order prefix,
 * suffix, middle; suffix_first: suffix, prefix, and no middle (-1). false: the vocabulary has none.
 */
struct tokenizer_fim {
    int32_t prefix, suffix, middle;
    bool suffix_first;
};
bool tokenizer_fim(const tokenizer *t, struct tokenizer_fim *out);
/* Ids of the prompt that asks for what belongs between two texts, BOS before it where the model
 * wants it; neither text becomes a control token. As tokenizer_encode; ERR_UNSUPPORTED: no such
 * tokens. */
int tokenizer_encode_fim(const tokenizer *t, const char *prefix, const char *suffix, size_t max_ids,
                         int32_t **ids, size_t *n_ids, err *e);

/* The model's Jinja chat template, NUL-terminated, borrowed; NULL: the file has none. */
const char *tokenizer_chat_template(const tokenizer *t);
/* The one called "tool_use", for conversations with tools; NULL: the file has none. */
const char *tokenizer_tool_template(const tokenizer *t);

#endif
