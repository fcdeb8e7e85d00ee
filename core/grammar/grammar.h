/* grammar.h - constrained decoding: JSON Schema, regular expressions, lists of choices and GBNF as
 * masks over a model's tokens. README.md gives an overview.
 *
 * A builder makes nodes and combines them; the finished grammar is immutable and shared. A
 * vocabulary holds a model's tokens as a trie of bytes. A matcher is the state of one text in one
 * grammar: it computes which tokens may come next and accepts the one that came. A mask never
 * leads into a dead end: after each allowed token the text can still be completed.
 *
 * Control tokens are symbols of their own, different from any text: the trie holds them as
 * GRAMMAR_CONTROL followed by their text; that byte does not occur in UTF-8.
 *
 * THREAD SAFETY: finished grammars and vocabularies from any thread; builders and matchers one
 * thread at a time. */
#ifndef INFERD_GRAMMAR_H
#define INFERD_GRAMMAR_H

#include "core/base/work.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct grammar grammar;
typedef struct grammar_builder grammar_builder;
typedef struct grammar_vocab grammar_vocab;
typedef struct grammar_matcher grammar_matcher;

#define GRAMMAR_CONTROL   "\xff"
#define GRAMMAR_UNLIMITED UINT32_MAX

/* ---- building ---- */

/* Negative: failed. The builder keeps the first failure and grammar_finish reports it, so calls can
 * be nested without checking each; after a failure no schema and no pattern is compiled. */
typedef int grammar_node;

grammar_builder *grammar_builder_new(void);    /* NULL: no memory */
void grammar_builder_free(grammar_builder *b); /* NULL is fine */
/* Sets the budget of all calls up to and including grammar_finish. w is borrowed until then (or
 * until the builder is freed). When it refuses, building ends within milliseconds with ERR_WORK,
 * ERR_DEADLINE or ERR_CANCELLED. NULL: no bound, the default. Memory is always bounded
 * (GRAMMAR_MAX_*; about 0.5 GiB while an automaton is being made). */
void grammar_builder_limit(grammar_builder *b, struct work *w);

grammar_node grammar_text(grammar_builder *b, const char *bytes, size_t n);
/* The control token with this text ("<|python_tag|>"). */
grammar_node grammar_control(grammar_builder *b, const char *text);
/* Concatenation (n 0: the empty text), alternatives (n 0 is an error), and repetition min to max
 * times (max GRAMMAR_UNLIMITED: no bound). */
grammar_node grammar_seq(grammar_builder *b, const grammar_node *nodes, size_t n);
grammar_node grammar_alt(grammar_builder *b, const grammar_node *nodes, size_t n);
grammar_node grammar_repeat(grammar_builder *b, grammar_node node, uint32_t min, uint32_t max);
/* Any text, including control tokens and malformed UTF-8, that contains none of the stops. A stop
 * may begin with GRAMMAR_CONTROL. The node that follows may begin with a stop. n 0: any text. */
grammar_node grammar_until(grammar_builder *b, const char *const *stops, size_t n);
/* A node that is defined later by grammar_rule_set: this allows recursion. */
grammar_node grammar_rule(grammar_builder *b);
void grammar_rule_set(grammar_builder *b, grammar_node rule, grammar_node body);

/* The whole text matches pattern (ECMA-262 with the u flag, no back-references). */
grammar_node grammar_regex(grammar_builder *b, const char *pattern);
/* Exactly one of these texts. */
grammar_node grammar_choice(grammar_builder *b, const char *const *texts, size_t n);
/* A grammar in GBNF (llama.cpp's notation; also "::=" rules of W3C's EBNF if both agree on their
 * meaning). Returns its rule "root". */
grammar_node grammar_gbnf(grammar_builder *b, const char *text, size_t n);

struct grammar_schema {
    const cJSON
        *schema; /* object or bool, borrowed; a number's literal in valuestring if cJSON's double
                    is not exact (as json_parse of api/ and chat_json_parse leave it) */
    const cJSON *part; /* the schema within `schema` that the value must satisfy, for example one of
                          its properties; NULL: `schema` itself */
    bool in_order;     /* properties in the schema's order ("strict"); otherwise in any order */
    bool draft_integers; /* integers also as 1.0 or 1e0, which the draft allows; otherwise what must
                            be an integer, and integers of enum and const, are written as 1, zero
                            as 0 */
};
/* A JSON value that is valid by draft 2020-12, without white space except one optional space after
 * ':' and ','. A keyword that cannot be enforced is an error with its JSON pointer; README.md lists
 * what is enforced. */
grammar_node grammar_json(grammar_builder *b, const struct grammar_schema *schema);

/* Finishes a grammar that matches what root matches; the caller still owns b, now empty.
 * ERR_INVALID: the input is wrong; ERR_UNSUPPORTED: it cannot be enforced here (for a schema param
 * is the JSON pointer in both cases); ERR_TOO_LONG: beyond GRAMMAR_MAX_*; ERR_WORK, ERR_DEADLINE,
 * ERR_CANCELLED: see grammar_builder_limit; ERR_NOMEM. */
int grammar_finish(grammar_builder *b, grammar_node root, grammar **out, err *e);

/* Reference counting. Any thread. */
grammar *grammar_retain(const grammar *g);
void grammar_release(grammar *g);         /* NULL is fine */
uint64_t grammar_bytes(const grammar *g); /* memory it occupies */

/* Bounds of one grammar. */
enum {
    GRAMMAR_MAX_STATES = 1 << 18, /* of all its automata */
    GRAMMAR_MAX_CELLS = 1 << 23,  /* of their tables: 32 MiB */
    GRAMMAR_MAX_NODES = 1 << 17,  /* of everything else */
    GRAMMAR_MAX_DEPTH = 256       /* nesting of arrays and objects in a text */
};

/* ---- tokens ---- */

enum grammar_token_kind {
    GRAMMAR_TOKEN_TEXT,    /* bytes of running text */
    GRAMMAR_TOKEN_CONTROL, /* bytes are its name */
    GRAMMAR_TOKEN_END,     /* allowed exactly when the text may end */
    GRAMMAR_TOKEN_NONE     /* never allowed (unused, padding, without bytes) */
};
struct grammar_token {
    enum grammar_token_kind kind;
    const char *bytes; /* (n) borrowed for the call */
    size_t n;
};
struct grammar_vocab_config {
    uint32_t n_vocab; /* bits of a mask: the model's number of logits */
    void (*token)(const void *arg, int32_t id, struct grammar_token *out);
    const void *arg;
    uint64_t cache_bytes; /* of the mask cache, shared by all matchers; 0: no cache */
};
int grammar_vocab_new(const struct grammar_vocab_config *config, grammar_vocab **out, err *e);
/* The longest token that is a prefix of bytes[0..n); returns its length in bytes, 0: none. Of
 * several tokens with the same bytes the last one, because a byte token precedes the character's
 * own token. Allocates nothing. */
size_t grammar_vocab_longest(const grammar_vocab *v, const char *bytes, size_t n, int32_t *token);
void grammar_vocab_free(grammar_vocab *v); /* after all its matchers. NULL is fine */
struct grammar_vocab_stats {
    uint64_t n_masks, n_hits; /* requested; found in the cache */
};
void grammar_vocab_stats(const grammar_vocab *v, struct grammar_vocab_stats *out);

/* ---- matching ---- */

/* Allocates all memory that it will ever need (1.2 MiB, most of which common texts never touch).
 * Retains g; v is borrowed. */
int grammar_matcher_new(const grammar *g, grammar_vocab *v, grammar_matcher **out, err *e);
void grammar_matcher_free(grammar_matcher *m); /* NULL is fine */

/* The functions below allocate nothing. */

/* Budget, in units of work (about one frame stepped by one byte; 10 to 50 ns), of the following
 * calls of mask, accept and forced together. UINT64_MAX: no bound, the default. */
void grammar_matcher_budget(grammar_matcher *m, uint64_t units);
/* The last of these calls ran out of budget: it changed nothing and its result is void. Repeat it
 * with a larger budget; it starts from the beginning. Any thread may do so, one at a time. */
bool grammar_matcher_exhausted(const grammar_matcher *m);
/* Units spent since the matcher was made, including calls that ran out of budget. */
uint64_t grammar_matcher_spent(const grammar_matcher *m);

/* mask ((n_vocab + 31) / 32 words): bit id % 32 of word id / 32 is set if token id is allowed. No
 * bit is set if the matcher failed (memory or nesting exhausted), if the budget ran out, or if the
 * vocabulary has no token for the bytes that must come. */
void grammar_matcher_mask(grammar_matcher *m, uint32_t *mask);
/* Advances the state by a token. false: it is not allowed, or the budget ran out; nothing changed.
 * An end token changes nothing. */
bool grammar_matcher_accept(grammar_matcher *m, int32_t token);
/* May the text end here? */
bool grammar_matcher_may_end(const grammar_matcher *m);
/* The bytes that must come next, up to max; 0 if there is a choice or the text may end. Where JSON
 * allows several spellings of the same value, one is chosen: a space after ':' and ',', characters
 * as themselves rather than as escapes. */
size_t grammar_matcher_forced(grammar_matcher *m, char *bytes, size_t max);

#endif
