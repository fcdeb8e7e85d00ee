/* cors.h - cross-origin requests of web pages (the Fetch standard's CORS protocol): preflight
 * answers, and the headers that let a page read an answer, an error as much as any other. Which
 * pages may ask is the configuration key allowed-origins (origin.h); others are refused by auth.h.
 * Credentials (cookies, client certificates) are never allowed: API keys travel in headers.
 *
 * Runs on HTTP threads. */
#ifndef INFERD_API_HTTP_CORS_H
#define INFERD_API_HTTP_CORS_H

#include <stdbool.h>
#include <stddef.h>

struct request;

enum { CORS_MAX_HEADERS = 8 };

struct cors_header {
    const char *name, *value; /* static, or the request's */
};

/* true: r asks whether a page may send a request, and the reply is filled. r's origin was checked.
 */
bool cors_answer_preflight(struct request *r);

/* The headers of r's reply, whatever it is; returns their number. */
size_t cors_headers(const struct request *r, struct cors_header out[CORS_MAX_HEADERS]);

#endif
