/* gen_trace.c - what a generation, or a list of pooled inputs, adds to its request's trace. Owns
 * nothing; the thread that has the request. */
#include "api/generate/gen_trace.h"

#include "api/generate/gen.h"
#include "api/http/error.h"
#include "api/http/request.h"
#include "api/http/trace.h"

#include <math.h>
#include <stdio.h>

struct trace_sequence *gen_trace_stream(struct request *r, const engine_stream *s) {
    struct engine_times t;
    struct trace_sequence *q = s ? trace_add_sequence(r) : NULL;
    if (!q) return NULL;
    engine_stream_times(s, &t);
    *q = (struct trace_sequence){.submitted_ns = t.submitted_ns,
                                 .admitted_ns = t.admitted_ns,
                                 .first_token_ns = t.first_token_ns,
                                 .last_token_ns = t.last_token_ns,
                                 .ended_ns = t.ended_ns,
                                 .sampling_ns = t.sampling_ns};
    return q;
}

/* The number that was written: a float has 7 digits of it. */
static double decimal_of(float v) {
    return round((double)v * 1e6) / 1e6;
}

static void note_params(const struct gen *g, struct trace *tr) {
    const struct engine_params *p = &g->params;
    tr->params =
        (struct trace_params){.temperature = decimal_of(p->sampling.temperature),
                              .top_p = decimal_of(p->sampling.top_p),
                              .top_k = p->sampling.top_k,
                              .frequency_penalty = decimal_of(p->sampling.frequency_penalty),
                              .presence_penalty = decimal_of(p->sampling.presence_penalty),
                              .max_tokens = p->max_tokens,
                              .n_choices = g->n_choices,
                              .seed = p->seed,
                              .has_seed = p->has_seed,
                              .stream = g->stream};
}

void gen_trace(const struct gen *g) {
    struct trace *tr = g->request ? g->request->trace : NULL;
    if (!tr || tr->operation) return;
    for (uint32_t i = 0; g->choices && i < g->n_choices; i++) {
        const struct gen_choice *c = &g->choices[i];
        const struct gen_prompt *p = &g->prompts[c->prompt];
        struct trace_sequence *q = gen_trace_stream(g->request, c->stream);
        if (!q) continue;
        q->prompt_tokens = p->n;
        q->cached_tokens = p->n_cached;
        q->generated_tokens = c->n_tokens;
        if (c->done && !g->error.code) q->finish = gen_finish_name(c->finish);
    }
    if (g->stream && g->begun && g->error.code)
        tr->late_status = error_for(g->request, &g->error).status;
    if (!tr->n_sequences) return; /* none was submitted */
    tr->operation = g->chat ? "chat" : "text_completion";
    snprintf(tr->answer_id, sizeof tr->answer_id, "%s", g->id);
    note_params(g, tr);
}
