/* bpe.h - byte-pair encoding by ranked merges. Private to core/tokenizer.
 *
 * Units are the 256 bytes (byte-level vocabularies, whose files write bytes in GPT-2's alphabet) or
 * characters (SentencePiece-like ones, with byte tokens or an unknown token for the others). Inside
 * a piece the merge of lowest rank comes first, of equal ones the leftmost. A bpe is immutable, any
 * thread; a bpe_work belongs to one call. */
#ifndef INFERD_TOKENIZER_BPE_H
#define INFERD_TOKENIZER_BPE_H

#include "core/tokenizer/pretok.h"

struct tokenizer;
struct vocab;
struct id_list;

/* How text becomes units. Owned by who holds it. */
struct bpe_rules {
    struct unicode_flags *flags;
    struct pretok *pretok;
    bool byte_level;    /* units are bytes, else characters */
    bool ignore_merges; /* a piece that is a token's text becomes that token */
    bool byte_fallback; /* characters that are no token become byte tokens */
    bool fuse_unk;      /* a run of unknown characters becomes one unknown token */
    bool marks_spaces;  /* spaces become U+2581 first */
};
int bpe_rules_init(struct bpe_rules *r, err *e); /* flags and an empty pretok */
void bpe_rules_fini(struct bpe_rules *r);

/* Bytes that a token's text in GPT-2's alphabet stands for; SIZE_MAX if it is not written in it.
 * out has room for n bytes. */
size_t bpe_bytes_of_text(const char *text, size_t n, char *out);

struct bpe;
/* Builds the tables over t's tokens from v's merges; takes v's rules. ERR_FORMAT names the merge or
 * token that is wrong. */
int bpe_new(const struct tokenizer *t, struct vocab *v, struct bpe **out, err *e);
/* The same for a SentencePiece vocabulary with byte fallback and no unused tokens: neighbours whose
 * joint text is a token merge, the highest of v's scores first. Takes nothing of v. */
int bpe_new_scored(const struct tokenizer *t, const struct vocab *v, struct bpe **out, err *e);
void bpe_free(struct bpe *b); /* NULL is fine */
/* Do merges make every ordinary token out of its own text? Then ignore_merges changes nothing. */
bool bpe_makes_all(const struct bpe *b);

struct bpe_work; /* NULL at first: made when needed */
void bpe_work_free(struct bpe_work *w);

/* Appends the ids of text[0..n), valid UTF-8. at_start: it begins the whole text. */
int bpe_encode(const struct bpe *b, struct bpe_work **work, const char *text, size_t n,
               bool at_start, struct id_list *out, err *e);
/* Appends what a byte outside any valid character becomes. */
int bpe_encode_byte(const struct bpe *b, unsigned char byte, struct id_list *out, err *e);

#endif
