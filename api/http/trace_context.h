/* trace_context.h - which trace a request belongs to, by W3C Trace Context: the headers traceparent
 * and tracestate of the request, and traceresponse of the answer (the format of its editors' draft
 * "Trace Response Headers").
 *
 * THREAD SAFETY: plain functions; trace_context_new reads the system's random numbers. */
#ifndef INFERD_API_HTTP_TRACE_CONTEXT_H
#define INFERD_API_HTTP_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRACE_ID_BYTES = 16,
    TRACE_SPAN_BYTES = 8,
    TRACE_SAMPLED = 1, /* the flags of level 1 */
    TRACE_RANDOM = 2,  /* and of level 2 */
    TRACE_HEADER_BYTES = 56,
    TRACE_STATE_BYTES = 513,
    TRACE_STATE_MEMBERS = 32
};

struct trace_context {
    uint8_t trace_id[TRACE_ID_BYTES];
    uint8_t parent_id[TRACE_SPAN_BYTES]; /* the client's span; zeros: it named none */
    uint8_t span_id[TRACE_SPAN_BYTES];   /* the request's own; zeros: requests are not traced */
    uint8_t flags;
};

/* Reads a traceparent: version 00, or the same fields of a later one. false: it is malformed and
 * must be ignored; c is as before. Sets trace_id, parent_id and flags. */
bool trace_context_read(struct trace_context *c, const char *traceparent);

/* Fills c for a request with that traceparent (NULL: none): its own span, and the client's trace
 * and decision; without those a new trace, of which `ratio` (0 to 1) are sampled. false: no random
 * numbers, and c is zeroed. */
bool trace_context_begin(struct trace_context *c, const char *traceparent, double ratio);

/* Adds the members of a tracestate header to out, which is "" at first; empty members are left
 * out. false: it is malformed, and the whole list must be ignored. *n counts the members. */
bool trace_state_add(char out[TRACE_STATE_BYTES], size_t *n, const char *header);

/* "00-TRACE-SPAN-FLAGS" of the request's own span. */
void trace_context_write(const struct trace_context *c, char out[TRACE_HEADER_BYTES]);

/* Lower-case hexadecimal digits of n bytes; out has 2 * n + 1. */
void trace_hex(const uint8_t *bytes, size_t n, char *out);

#endif
