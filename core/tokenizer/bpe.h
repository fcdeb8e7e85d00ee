/* bpe.h - byte-pair encoding by ranked merges, WordPiece and Unigram. Private to core/tokenizer.
 *
 * Units are the 256 bytes (byte-level vocabularies; their files write bytes in GPT-2's alphabet) or
 * characters (SentencePiece-like ones; other characters become byte tokens or the unknown token).
 * Within a piece the merge of lowest rank comes first, of equal ranks the leftmost. A bpe is
 * immutable, any thread; a bpe_work belongs to one call. */
#ifndef INFERD_TOKENIZER_BPE_H
#define INFERD_TOKENIZER_BPE_H

#include "core/tokenizer/pretok.h"

struct tokenizer;
struct vocab;
struct id_list;

/* What makes tokens of a word: merges, or words.c. */
enum bpe_model { BPE_MERGES, BPE_WORDPIECE, BPE_UNIGRAM };
enum { BPE_PREFIX_BYTES = 16 };

/* How text becomes units. Owned by its holder. */
struct bpe_rules {
    enum bpe_model model;
    /* WordPiece: what tokens at the start of a word, and further ones, begin with */
    char first_prefix[BPE_PREFIX_BYTES], next_prefix[BPE_PREFIX_BYTES];
    struct unicode_flags *flags;
    struct pretok *pretok;
    bool byte_level;    /* units are bytes, not characters */
    bool ignore_merges; /* a piece that equals a token's text becomes that token */
    bool byte_fallback; /* characters without a token become byte tokens */
    bool fuse_unk;      /* a run of unknown characters becomes one unknown token */
    bool marks_spaces;  /* spaces become U+2581 first */
};
int bpe_rules_init(struct bpe_rules *r, err *e); /* flags and an empty pretok */
void bpe_rules_fini(struct bpe_rules *r);

/* Converts a token's text from GPT-2's alphabet to bytes; returns their number, SIZE_MAX if a
 * character is not in the alphabet. out has room for n bytes. */
size_t bpe_bytes_of_text(const char *text, size_t n, char *out);

struct bpe;
/* Builds the tables over t's tokens from v's merges; takes v's rules. ERR_FORMAT names the invalid
 * merge or token. */
int bpe_new(const struct tokenizer *t, struct vocab *v, struct bpe **out, err *e);
/* The same for a SentencePiece vocabulary with byte fallback and without unused tokens: adjacent
 * tokens merge if their joint text is a token, highest score of v first. Takes nothing of v. */
int bpe_new_scored(const struct tokenizer *t, const struct vocab *v, struct bpe **out, err *e);
void bpe_free(struct bpe *b); /* NULL is fine */
/* Do the merges produce every ordinary token from its own text? Then ignore_merges has no effect.
 */
bool bpe_makes_all(const struct bpe *b);

struct bpe_work; /* starts as NULL; allocated when needed */
void bpe_work_free(struct bpe_work *w);

/* Appends the ids of text[0..n), valid UTF-8. at_start: it is the start of the whole text. */
int bpe_encode(const struct bpe *b, struct bpe_work **work, const char *text, size_t n,
               bool at_start, struct id_list *out, err *e);
/* Appends the token of a byte that is not valid UTF-8. */
int bpe_encode_byte(const struct bpe *b, unsigned char byte, struct id_list *out, err *e);

#endif
