/* gen_trace.h - the sequences of a request in its trace (api/http/trace.h). */
#ifndef INFERD_API_GENERATE_GEN_TRACE_H
#define INFERD_API_GENERATE_GEN_TRACE_H

#include "core/engine/engine.h"

struct gen;
struct request;
struct trace_sequence;

/* Adds the times of s to the trace of r, before s is freed. NULL: nothing was added, because r is
 * not sampled, has many sequences, or s is NULL. */
struct trace_sequence *gen_trace_stream(struct request *r, const engine_stream *s);
/* Adds g to the trace of its request, once, before its streams are freed or kept for later. */
void gen_trace(const struct gen *g);

#endif
