/* tools.h - tools, forms of answers, and the grammar that holds an answer to them. Private to api/.
 * Pool threads. */
#ifndef INFERD_API_GENERATE_TOOLS_H
#define INFERD_API_GENERATE_TOOLS_H

#include "api/generate/chat_request.h"
#include "core/grammar/grammar.h"

enum { CHAT_MAX_TOOLS = 128 };

/* tools.c */
extern const struct json_table tool_table;
/* Fills q->tools from tools, tool_choice and parallel_tool_calls. */
int chat_tools_read(const struct gen_fields *f, struct chat_request *q, err *e);
/* What every protocol's tools must be: named by the rules, once. Errors blame q->param_tools. */
int chat_tools_check(const struct chat_request *q, err *e);
/* The names of the functions that may be called, borrowed, into names (CHAT_MAX_TOOLS); how many.
 */
size_t chat_tools_names(const struct chat_request *q, const char **names);
/* May the function be called? */
bool chat_tools_allow(const struct chat_tools *t, const char *name);
/* The list as templates see it: without what only concerns the server. The caller deletes it. */
int chat_tools_shown(const struct chat_tools *t, cJSON **out, err *e);

/* structured.c */
extern const struct json_table response_format_table, structured_outputs_table;
/* Fills q->format from response_format, structured_outputs and the guided fields. */
int chat_format_read(const struct gen_fields *f, struct chat_request *q, err *e);

/* constraint.c: what the answer must be, from its first token on; *out NULL: anything. The caller
 * releases it. lead: the answer's first space is not its own (tokenizer_strips_leading_space).
 * Spends from r->work; a failure that comes of its end is ERR_WORK in the quick lane, where it says
 * nothing yet, and ERR_INVALID in the slow one. */
int chat_constraint_make(struct request *r, const struct chat_request *q, enum chat_begin begin,
                         bool lead, grammar **out, err *e);

/* grammar_cache.c: what was made of grammars lately, by the text that tells what they were made of.
 * Any thread. */
typedef struct grammar_cache grammar_cache;
grammar_cache *grammar_cache_new(void); /* NULL: no memory */
void grammar_cache_free(grammar_cache *c);

/* A key that one thread makes the grammar of, on its stack. */
struct grammar_claim {
    const char *key; /* borrowed until grammar_cache_end */
    struct grammar_claim *next;
};
enum grammar_found {
    GRAMMAR_FOUND,  /* *g, which the caller releases */
    GRAMMAR_FAILED, /* it cannot be made: e says why */
    GRAMMAR_MINE,   /* the caller makes it and ends the claim; whoever else asks waits meanwhile */
    GRAMMAR_BUSY    /* another thread is making it */
};
/* wait: until another thread has made it, or this work is refused; NULL: not at all. */
enum grammar_found grammar_cache_begin(grammar_cache *c, struct grammar_claim *claim,
                                       struct work *wait, grammar **g, err *e);
/* Keeps g, or the failure, or (both NULL) nothing. Without memory nothing is kept. */
void grammar_cache_end(grammar_cache *c, struct grammar_claim *claim, const grammar *g,
                       const err *why);

#endif
