/* tokenizer.h - text <-> token ids.
 *
 * Two kinds of models:
 *   SentencePiece (BPE), from a tokenizer.model (with transformers' files beside it) or a GGUF;
 *       merged here if the vocabulary has byte fallback, otherwise by libsentencepiece
 *   byte-pair encoding, from a GGUF (tokenizer.ggml.model gpt2; tokenizer.ggml.pre names the
 *       pre-tokenizer) or a tokenizer.json (BPE models; normalizers NFC, NFD, Lowercase, Strip,
 *       Replace, Prepend; all common pre-tokenizers)
 * Text is bytes; invalid UTF-8 is encoded as byte tokens, never refused.
 *
 * THREAD SAFETY: an open tokenizer is immutable; all calls from any thread. */
#ifndef INFERD_TOKENIZER_H
#define INFERD_TOKENIZER_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tokenizer tokenizer;

/* Opens the tokenizer of a GGUF file (tokenizer.ggml.*, also of vocabulary-only files), of a
 * tokenizer.json with the configuration files beside it, of a SentencePiece tokenizer.model, or of
 * a folder with one of the latter two. ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED (names the feature). */
int tokenizer_open(const char *path, tokenizer **out, err *e);
void tokenizer_close(tokenizer *t); /* NULL is fine */

/* Writes the tokenizer at path (see tokenizer_open) into a GGUF file as tokenizer.* keys, so that
 * inferd and other engines tokenize the same with that file. Properties without a GGUF key (NFC,
 * strip flags of added tokens, a space prefix that is not doubled) go into inferd.tokenizer.*,
 * which other engines ignore. The list of tokens is padded with unused [PADi] to n_rows, the rows
 * of the model's embedding; added tokens beyond them are left out. ERR_UNSUPPORTED names what GGUF
 * cannot express: a pre_tokenizer without a name there, a normalizer. */
struct gguf_writer;
int tokenizer_write_gguf(const char *path, uint64_t n_rows, struct gguf_writer *w, err *e);

enum tokenizer_flags {
    TOKENIZER_ADD_SPECIAL = 1,  /* adds BOS/EOS (add_bos_token, add_eos_token), unless the text
                                   begins with BOS */
    TOKENIZER_PARSE_SPECIAL = 2 /* texts of control tokens become those tokens: for text of a
                                   template and for raw prompts, never for a message's */
};

/* Encodes text[0..n). *ids is allocated (caller frees), *n_ids may be 0. ERR_TOO_LONG: more than
 * max_ids tokens. */
int tokenizer_encode(const tokenizer *t, const char *text, size_t n, int flags, size_t max_ids,
                     int32_t **ids, size_t *n_ids, err *e);

/* Two texts joined as the post-processor says, with the tokens around them; neither has control
 * tokens. *second: where the second one's tokens begin (those between are before it).
 * ERR_UNSUPPORTED: the file does not say how. ERR_TOO_LONG as above. */
struct tokenizer_text {
    const char *text; /* (n) */
    size_t n;
};
int tokenizer_encode_pair(const tokenizer *t, const struct tokenizer_text texts[2], size_t max_ids,
                          int32_t **ids, size_t *n_ids, size_t *second, err *e);
/* Does the file say how two texts are joined? */
bool tokenizer_joins_pairs(const tokenizer *t);

/* A part of a prompt, trusted (written by the template) or not: control tokens are parsed in
 * trusted pieces only. Pieces are contiguous text: an ordinary token may span two of them. */
typedef struct tokenizer_piece {
    const char *text;
    size_t n;
    bool trusted;
} tokenizer_piece;
int tokenizer_encode_pieces(const tokenizer *t, const tokenizer_piece *pieces, size_t n_pieces,
                            int flags, size_t max_ids, int32_t **ids, size_t *n_ids, err *e);

/* Bytes of one token as they appear in running text (U+2581 is a space, a byte token is its byte,
 * control tokens are empty unless with_control). Borrowed, immutable, *n bytes; may be part of a
 * UTF-8 character. An id outside the vocabulary gives 0 bytes. */
const char *tokenizer_token_bytes(const tokenizer *t, int32_t id, bool with_control, size_t *n);

/* How many of ids (n_ids), the tokens of text (n), are in its first ends[i] bytes, for each of the
 * n_ends; tokens that were added before the text count, where there are such bytes. false: the
 * tokens' bytes are not the text's (spaces were added, or a normalizer changed it), and counts is
 * undefined. */
bool tokenizer_count_within(const tokenizer *t, const int32_t *ids, size_t n_ids, const char *text,
                            size_t n, const size_t *ends, size_t n_ends, size_t *counts);

/* Decodes ids to text as the reference does (removes the space that add_space_prefix added). *text
 * is NUL-terminated, caller frees; may contain NULs: use *n. */
int tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n_ids, bool with_control,
                     char **text, size_t *n, err *e);

/* Does decoding drop one leading space of the whole text (add_space_prefix)? */
bool tokenizer_strips_leading_space(const tokenizer *t);

int32_t tokenizer_n_vocab(const tokenizer *t);
int32_t tokenizer_bos(const tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const tokenizer *t); /* -1: none */
bool tokenizer_is_eog(const tokenizer *t,
                      int32_t id); /* eos, eot, <|im_end|>, ...: ends an answer */
/* Is it one of the file's tokens that are never sampled (suppress_tokens)? */
bool tokenizer_is_suppressed(const tokenizer *t, int32_t id);
bool tokenizer_is_control(const tokenizer *t, int32_t id);
bool tokenizer_adds_bos(const tokenizer *t);
/* How many tokens TOKENIZER_ADD_SPECIAL puts before and behind a text. */
void tokenizer_added(const tokenizer *t, unsigned *n_before, unsigned *n_after);
/* Id of the token whose text is exactly text, or -1. */
int32_t tokenizer_find(const tokenizer *t, const char *text);
/* The token's own text ("<|end|>", "\xe2\x96\x81the"), for display. Borrowed. */
const char *tokenizer_token_text(const tokenizer *t, int32_t id, size_t *n);

/* The tokens for filling in the middle. Each precedes its text, in the order prefix, suffix,
 * middle; suffix_first: suffix, prefix, and no middle (-1). false: the vocabulary has none. */
struct tokenizer_fim {
    int32_t prefix, suffix, middle;
    bool suffix_first;
    int32_t repository, file; /* precede the name of a repository, of a file; -1: none */
};
bool tokenizer_fim(const tokenizer *t, struct tokenizer_fim *out);
/* Encodes the prompt that asks for the text between prefix and suffix, with BOS if the model adds
 * it; control tokens are not parsed. As tokenizer_encode; ERR_UNSUPPORTED: no such tokens. */
int tokenizer_encode_fim(const tokenizer *t, const char *prefix, const char *suffix, size_t max_ids,
                         int32_t **ids, size_t *n_ids, err *e);

/* The same with further context before the prefix, and with the start of the answer behind all: it
 * is known already, and its control tokens are parsed if the caller wants that. */
struct tokenizer_chunk {
    const char *name, *text; /* a file's name, and text of it */
};
struct tokenizer_infill {
    const char *prefix, *suffix, *start;
    bool parse_special;                   /* of start */
    const struct tokenizer_chunk *chunks; /* (n_chunks) the most important one last */
    size_t n_chunks;
};
/* What does not fit into max_ids is left out: the first chunks, then the prefix's begin and the
 * suffix's end, 3 to 1. ERR_TOO_LONG: the start alone does not fit, or a text has more than 2^20
 * tokens; ERR_UNSUPPORTED as above. */
int tokenizer_encode_infill(const tokenizer *t, const struct tokenizer_infill *in, size_t max_ids,
                            int32_t **ids, size_t *n_ids, err *e);

/* The model's Jinja chat template, NUL-terminated, borrowed; NULL: the file has none. */
const char *tokenizer_chat_template(const tokenizer *t);
/* The one called "tool_use", for conversations with tools; NULL: the file has none. */
const char *tokenizer_tool_template(const tokenizer *t);
/* The one called "rerank" (GGUF files), a text with {query} and {document}; NULL: the file has
 * none. */
const char *tokenizer_rerank_template(const tokenizer *t);

#endif
