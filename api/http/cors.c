/* cors.c - see cors.h. Owns nothing. */
#include "api/http/cors.h"

#include "api/http/framing.h"
#include "api/http/http.h"
#include "api/http/request.h"
#include "api/http/settings.h"

#include <string.h>

/* Every method, so that a page can read the 405 of a wrong one. */
static const char METHODS[] = "GET, HEAD, POST, PUT, PATCH, DELETE";
/* When a preflight names none. */
static const char REQUEST_HEADERS[] =
    "Authorization, Content-Type, X-API-Key, X-Request-ID, X-Request-Timeout-Ms, Last-Event-ID, "
    "Anthropic-Version, Anthropic-Beta, X-Inferd-Prefix, traceparent, tracestate";
/* What a page may read besides Content-Type, Content-Length and Cache-Control. */
static const char ANSWER_HEADERS[] =
    "x-request-id, request-id, x-inferd-ignored-fields, x-inferd-prefix, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, "
    "anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, "
    "anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, "
    "anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset, "
    "anthropic-ratelimit-input-tokens-limit, anthropic-ratelimit-input-tokens-remaining, "
    "anthropic-ratelimit-input-tokens-reset, anthropic-ratelimit-output-tokens-limit, "
    "anthropic-ratelimit-output-tokens-remaining, anthropic-ratelimit-output-tokens-reset, "
    "Retry-After, retry-after-ms, "
    "x-should-retry, traceresponse, openai-processing-ms, openai-version, Allow, ETag, "
    "WWW-Authenticate";
/* Browsers keep a preflight's answer for at most 2 (Chromium) to 24 hours (Firefox). */
static const char MAX_AGE_S[] = "7200";

static const char *requested_method(const struct request *r) {
    if (strcmp(r->method, "OPTIONS") != 0 || !request_header(r, "Origin")) return NULL;
    return request_header(r, "Access-Control-Request-Method");
}

bool cors_answer_preflight(struct request *r) {
    if (!requested_method(r)) return false;
    r->reply.status = 204;
    return true;
}

/* The headers that a preflight asks for. A page that may ask at all may send any of them, so they
 * are given back if they are a list of names. */
static const char *allowed_headers(const struct request *r) {
    const char *asked = request_header(r, "Access-Control-Request-Headers");
    if (!asked || !framing_is_name_list(asked)) return REQUEST_HEADERS;
    return asked;
}

size_t cors_headers(const struct request *r, struct cors_header out[CORS_MAX_HEADERS]) {
    const struct origin_list *allowed = &r->settings->origins;
    const char *origin = request_header(r, "Origin");
    size_t n = 0;
    if (!allowed->any && !allowed->null && !allowed->n) return 0;
    /* A cache must not give one page's answer to another one. */
    if (!allowed->any) out[n++] = (struct cors_header){"Vary", "Origin"};
    if (!origin || !origins_hold(allowed, origin)) return n;
    out[n++] = (struct cors_header){"Access-Control-Allow-Origin", allowed->any ? "*" : origin};
    if (!requested_method(r)) {
        out[n++] = (struct cors_header){"Access-Control-Expose-Headers", ANSWER_HEADERS};
        return n;
    }
    out[n++] = (struct cors_header){"Access-Control-Allow-Methods", METHODS};
    out[n++] = (struct cors_header){"Access-Control-Allow-Headers", allowed_headers(r)};
    out[n++] = (struct cors_header){"Access-Control-Max-Age", MAX_AGE_S};
    out[n++] = (struct cors_header){"Vary", "Access-Control-Request-Headers"};
    /* Asked when a page of the internet wants a server of the local network. */
    const char *private = request_header(r, "Access-Control-Request-Private-Network");
    if (private && strcmp(private, "true") == 0)
        out[n++] = (struct cors_header){"Access-Control-Allow-Private-Network", "true"};
    return n;
}
