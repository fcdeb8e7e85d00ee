/* error.h - error replies. Their default form is OpenAI's,
 * {"error":{"message","type","param","code"}}; a route's protocol may have another one. Any
 * thread. */
#ifndef INFERD_API_HTTP_ERROR_H
#define INFERD_API_HTTP_ERROR_H

#include "core/base/err.h"
#include "core/base/str.h"

struct request;

struct api_error {
    unsigned status;
    const char *type;
    const char *code;  /* NULL: null */
    const char *param; /* NULL or "": null */
    const char *message;
};

/* Writes OpenAI's form. */
void error_write(str *out, const struct api_error *error);

/* Replies with error in the form of r's protocol. 429 and 503 get Retry-After, unless
 * r->never_fits. */
void reply_error(struct request *r, const struct api_error *error);
/* Replies with error_for(r, e). */
void reply_err(struct request *r, const err *e);

/* 503: answers hold as much memory as they may (answers.h). reply_no_room also counts it. */
extern const struct api_error error_no_room;
void reply_no_room(struct request *r);

/* An err of the layers below as an API error; borrows from e. The details of a 500 are not given to
 * the client. */
struct api_error error_of(const err *e);
/* The same for the answer of r: a 500 names the request, and the details go to the log. Borrows
 * from r and e. */
struct api_error error_for(struct request *r, const err *e);

#endif
