/* rank.h - scores of pairs of texts: how well a document answers a query. Shared by the endpoints
 * that answer with scores; the work is embed.c's. Pool threads. */
#ifndef INFERD_API_GENERATE_RANK_H
#define INFERD_API_GENERATE_RANK_H

#include "api/generate/embed.h"

/* What stands for texts in errors, and how the documents are bounded. */
struct rank_config {
    const char *query_param, *document_param; /* names of the fields */
    const char *instruction, *cache_salt;     /* NULL: the template's own; the key's */
    int64_t max_document_tokens;              /* the rest of a document is cut off; 0: none is */
    bool raw;                                 /* logits instead of probabilities */
    void *arg;                                /* as in embed_config */
    void (*free_arg)(void *arg);
    void (*write)(struct request *r, const struct embed_result *v); /* vectors: (n) scores */
};

/* The i-th pair; strings of the request's tree. */
struct rank_pair {
    const char *query, *document;
};

/* As embed_start, for n pairs (at least 1). ERR_UNSUPPORTED: the model cannot score, and says what
 * it lacks. */
int rank_start(struct request *r, const struct rank_config *c, const struct rank_pair *pairs,
               size_t n, err *e);

/* Checks the number of pairs against the configuration. ERR_INVALID names param. */
int rank_check_number(const struct request *r, size_t n, const char *param, err *e);

#endif
