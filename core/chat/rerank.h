/* rerank.h - the prompt that asks a model whether a document answers a query. Pure. */
#ifndef INFERD_CHAT_RERANK_H
#define INFERD_CHAT_RERANK_H

#include "core/tokenizer/tokenizer.h"

/* The prompt that Qwen3-Reranker was trained with (its model card), in the form of GGUF files'
 * tokenizer.chat_template.rerank: {query} and {document} stand for the texts. */
extern const char rerank_qwen3_template[];

struct rerank_text {
    const char *text; /* (n) bytes, borrowed */
    size_t n;
};
struct rerank_input {
    const char *source;             /* a template as above */
    struct rerank_text instruction; /* replaces the line after "<Instruct>: "; text NULL: keep it */
    struct rerank_text query, document;
};
/* Splits the prompt into pieces, of which only the template's own are trusted; they borrow from in.
 * *n: their number, at most RERANK_MAX_PIECES. ERR_UNSUPPORTED: a Jinja template, or one without
 * {query} or {document}; an instruction (param "instruction") for a template without that line. */
enum { RERANK_MAX_PIECES = 16 };
int rerank_split(const struct rerank_input *in, tokenizer_piece pieces[RERANK_MAX_PIECES],
                 size_t *n, err *e);

#endif
