/* body.h - request bodies: parsing, the steps that all endpoints share, token ids. Pool threads. */
#ifndef INFERD_API_GENERATE_BODY_H
#define INFERD_API_GENERATE_BODY_H

#include "api/generate/choice.h"
#include "api/generate/config.h"
#include "api/generate/fields.h"

struct request;

/* Handles a request with a JSON body: resumes a stream if the client asks for one; otherwise parses
 * the body and passes it to answer, whose failure becomes the error reply. */
void gen_handle(struct request *r, int (*answer)(struct request *r, const cJSON *body, err *e));

/* Reads a body by its table. */
int gen_body_read(const cJSON *body, const struct json_table *table, void *out, err *e);

/* What chat and completions read first: the fields by their table (the caller has set the defaults
 * in q->fields), the model, the checked options. */
struct gen_request {
    struct gen_fields fields;
    struct gen_options options;
    const struct api_model *model;
};
int gen_request_read(struct request *r, const cJSON *body, const struct json_table *table,
                     struct gen_request *q, err *e);

/* Reads an array of token ids, each below n_vocab, into p->ids, which the caller frees even if
 * empty. ERR_INVALID names param. */
int gen_ids_read(const cJSON *array, const char *param, int32_t n_vocab, struct gen_prompt *p,
                 err *e);
/* Appends p's ids as a JSON array. */
void gen_add_ids(const struct gen_prompt *p, str *out);
/* Replies 200 with body, which is taken. ERR_INVALID: the body exceeded its limit, which is the
 * request's fault. */
int gen_reply_bounded(struct request *r, str *body, err *e);

#endif
