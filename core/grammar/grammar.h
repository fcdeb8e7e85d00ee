/* grammar.h - which text may come next: JSON Schema, regular expressions, lists of choices and
 * grammars, as masks over a model's tokens.
 *
 * A builder makes nodes and ties them together; the finished grammar is immutable and shared. A
 * vocabulary is a model's tokens as a trie of bytes. A matcher is where one text stands in one
 * grammar: it says which tokens may come next and takes the one that came. Nothing that a mask lets
 * through leads into a dead end: after each token some way to a complete text is left.
 *
 * Control tokens are symbols of their own, which no text is: they stand in the trie as
 * GRAMMAR_CONTROL followed by their text; UTF-8 has no such byte.
 *
 * THREAD SAFETY: grammars and vocabularies from any thread once they are made; builders and
 * matchers one thread at a time. */
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

/* Negative: what went wrong is kept in the builder, and grammar_finish tells it. So calls can be
 * nested without a check of each; after the first failure no schema and no pattern is looked at. */
typedef int grammar_node;

grammar_builder *grammar_builder_new(void);    /* NULL: no memory */
void grammar_builder_free(grammar_builder *b); /* NULL is fine */
/* All that follows up to grammar_finish, and that, spends from w, which is borrowed until then (or
 * until the builder is freed). What is refused ends in ERR_WORK, ERR_DEADLINE or ERR_CANCELLED,
 * some milliseconds later at most. NULL: no bound, as for a new builder. Memory is bounded in any
 * case (GRAMMAR_MAX_*; about 0.5 GiB while one automaton is made). */
void grammar_builder_limit(grammar_builder *b, struct work *w);

grammar_node grammar_text(grammar_builder *b, const char *bytes, size_t n);
/* The control token that is written so ("<|python_tag|>"). */
grammar_node grammar_control(grammar_builder *b, const char *text);
/* One after the other; one of them; min to max times (max GRAMMAR_UNLIMITED: no bound). n may be 0:
 * the empty text; no alternative is an error. */
grammar_node grammar_seq(grammar_builder *b, const grammar_node *nodes, size_t n);
grammar_node grammar_alt(grammar_builder *b, const grammar_node *nodes, size_t n);
grammar_node grammar_repeat(grammar_builder *b, grammar_node node, uint32_t min, uint32_t max);
/* Any text, control tokens and malformed UTF-8 included, in which none of the stops occurs. A stop
 * may begin with GRAMMAR_CONTROL. What follows may begin with a stop. n 0: any text. */
grammar_node grammar_until(grammar_builder *b, const char *const *stops, size_t n);
/* A node that is defined later, so that rules can call themselves. */
grammar_node grammar_rule(grammar_builder *b);
void grammar_rule_set(grammar_builder *b, grammar_node rule, grammar_node body);

/* The whole text matches pattern (ECMA-262 with the u flag, no back-references). */
grammar_node grammar_regex(grammar_builder *b, const char *pattern);
/* Exactly one of these texts. */
grammar_node grammar_choice(grammar_builder *b, const char *const *texts, size_t n);
/* A grammar in GBNF (llama.cpp's notation; also "::=" rules of W3C's EBNF where both agree). Its
 * rule "root" is the node. */
grammar_node grammar_gbnf(grammar_builder *b, const char *text, size_t n);

struct grammar_schema {
    const cJSON
        *schema;   /* object or bool, borrowed; numbers' literals in valuestring where cJSON's
                      double is not exact (as json_parse of api/ and chat_json_parse leave it) */
    bool in_order; /* properties in the order of the schema ("strict"); else in any */
};
/* A JSON value that is valid by draft 2020-12, without white space but for one space that may
 * follow ':' and ','. A keyword that cannot be enforced is an error that names its JSON pointer.
 * docs: the table in CONTRIBUTING.md. */
grammar_node grammar_json(grammar_builder *b, const struct grammar_schema *schema);

/* Ends the building: the grammar matches what root does. Takes nothing from b, which is empty
 * afterwards. ERR_INVALID: the input's mistake (a schema's: param is its JSON pointer);
 * ERR_UNSUPPORTED (as well): cannot be enforced here; ERR_TOO_LONG: beyond GRAMMAR_MAX_*;
 * ERR_WORK, ERR_DEADLINE, ERR_CANCELLED: see grammar_builder_limit; ERR_NOMEM. */
int grammar_finish(grammar_builder *b, grammar_node root, grammar **out, err *e);

/* Counted references. Any thread. */
grammar *grammar_retain(const grammar *g);
void grammar_release(grammar *g);         /* NULL is fine */
uint64_t grammar_bytes(const grammar *g); /* memory that it holds */

/* Bounds of one grammar. */
enum {
    GRAMMAR_MAX_STATES = 1 << 18, /* of all its automata */
    GRAMMAR_MAX_CELLS = 1 << 23,  /* of their tables: 32 MiB */
    GRAMMAR_MAX_NODES = 1 << 17,  /* of everything else */
    GRAMMAR_MAX_DEPTH = 256       /* of a text's nesting */
};

/* ---- tokens ---- */

enum grammar_token_kind {
    GRAMMAR_TOKEN_TEXT,    /* bytes of running text */
    GRAMMAR_TOKEN_CONTROL, /* bytes are its name */
    GRAMMAR_TOKEN_END,     /* may come where the text may end, and nowhere else */
    GRAMMAR_TOKEN_NONE     /* never (unused, padding, without bytes) */
};
struct grammar_token {
    enum grammar_token_kind kind;
    const char *bytes; /* (n) borrowed for the call */
    size_t n;
};
struct grammar_vocab_config {
    uint32_t n_vocab; /* masks have this many bits: the model's rows of logits */
    void (*token)(const void *arg, int32_t id, struct grammar_token *out);
    const void *arg;
    uint64_t cache_bytes; /* of masks that are kept for states seen before, all matchers together;
                             0: none */
};
int grammar_vocab_new(const struct grammar_vocab_config *config, grammar_vocab **out, err *e);
/* The longest token that bytes[0..n) begin with; its length in bytes, 0: there is none. Of several
 * with the same bytes the last one: a byte's own token comes before the character's. Allocates
 * nothing. */
size_t grammar_vocab_longest(const grammar_vocab *v, const char *bytes, size_t n, int32_t *token);
void grammar_vocab_free(grammar_vocab *v); /* no matcher may be left. NULL is fine */
struct grammar_vocab_stats {
    uint64_t n_masks, n_hits; /* asked for; found in the cache */
};
void grammar_vocab_stats(const grammar_vocab *v, struct grammar_vocab_stats *out);

/* ---- matching ---- */

/* Takes all memory that it will ever need (1.2 MiB, most of which common texts never touch);
 * retains g; v is borrowed. */
int grammar_matcher_new(const grammar *g, grammar_vocab *v, grammar_matcher **out, err *e);
void grammar_matcher_free(grammar_matcher *m); /* NULL is fine */

/* The functions below allocate nothing. */

/* Units of work (about one frame stepped by one byte; 10 to 50 ns) that the following calls of
 * mask, accept and forced may spend together. UINT64_MAX: no bound, as for a new matcher. */
void grammar_matcher_budget(grammar_matcher *m, uint64_t units);
/* The last of these calls stopped for want of budget: it changed nothing, its result does not
 * count, and it is to be made again, with a larger budget: it starts from the beginning. Any thread
 * may make it, one at a time. */
bool grammar_matcher_exhausted(const grammar_matcher *m);
/* Units spent since the matcher was made, in calls that were stopped as well. */
uint64_t grammar_matcher_spent(const grammar_matcher *m);

/* mask ((n_vocab + 31) / 32 words): bit id % 32 of word id / 32 is set where token id may come. At
 * least one bit is set, unless the matcher failed (its memory or nesting is used up: then none),
 * the budget was used up (then none) or the vocabulary has no token for what must come. */
void grammar_matcher_mask(grammar_matcher *m, uint32_t *mask);
/* The token came. false: it may not come (or the budget was used up), nothing changed. An end token
 * changes nothing. */
bool grammar_matcher_accept(grammar_matcher *m, int32_t token);
/* May the text end here? */
bool grammar_matcher_may_end(const grammar_matcher *m);
/* Bytes that come next in any case, up to max: 0 where there is a choice, or the text may end.
 * Where JSON leaves open how the same is written, one way is taken: a space after ':' and ',',
 * characters as themselves and not as escapes. */
size_t grammar_matcher_forced(grammar_matcher *m, char *bytes, size_t max);

#endif
