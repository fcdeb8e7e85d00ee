/* gen_events.c - takes the events of a generation's engine streams, and the memory that the answer
 * holds. Events are taken only when the client reads, so a client that does not read fills the
 * engine's bounded ring and nothing else. Runs on the connection's HTTP thread. */
#include "api/generate/gen_int.h"

#include "api/generate/api_state.h"
#include "api/http/request.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdlib.h>

enum { OUT_BYTES = 8 << 10 /* written ahead of the socket, plus one event */ };

bool gen_pending_failed(const struct gen_choice *c) {
    bool failed = c->text.failed || c->reasoning.failed;
    for (size_t k = 0; k < 4; k++)
        failed = failed || c->logprobs[k].failed;
    for (uint32_t i = 0; i < c->n_calls; i++)
        failed = failed || c->calls[i].arguments.failed;
    return failed;
}

/* After a failed allocation a stream ends with an error rather than continuing with a gap. */
static void check_pending(struct gen *g, const struct gen_choice *c) {
    if (gen_pending_failed(c) && !g->error.code) err_no_memory(&g->error);
}

/* The client does not see the tokens that the tokenizer added to its text. */
static void add_logprob(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                        bool has_logprob) {
    if (ev->kind == ENGINE_EVENT_PROMPT) {
        const struct gen_prompt *p = &g->prompts[c->prompt];
        size_t pos = c->n_prompt_seen++;
        if (pos < p->n_before || pos + p->n_behind >= p->n) return;
    }
    g->writer->logprob(g, c, ev, has_logprob);
    c->n_logprobs++;
}

static void begin_choice(struct gen *g, struct gen_choice *c) {
    if (!g->begun) g->first_ns = clock_now_ns();
    if (g->stream && !g->begun && g->writer->begin) g->writer->begin(g, &g->out);
    c->begun = g->begun = true;
    if (g->stream && g->writer->open) g->writer->open(g, c, &g->out);
    if (!g->echo) return;
    const struct gen_prompt *p = &g->prompts[c->prompt];
    char *text = NULL;
    size_t n = 0;
    if (tokenizer_decode(g->tok, p->ids + p->n_before, p->n - p->n_before - p->n_behind, p->text,
                         &text, &n, &g->error))
        return;
    str_add_n(&c->text, text, n);
    free(text);
    if (g->n_logprobs >= 0) {
        struct engine_event first = {.kind = ENGINE_EVENT_PROMPT, .token = p->ids[0]};
        add_logprob(g, c, &first, false);
    }
}

/* Without memory for its tokens a stream continues, but cannot be resumed. */
static void note_token(struct gen *g, struct gen_choice *c, int32_t token) {
    if (!g->resumes) return;
    if (c->n_taken == c->taken_capacity) {
        uint32_t capacity = c->taken_capacity ? 2 * c->taken_capacity : 64;
        int32_t *more = mem_resize(c->taken, capacity, sizeof *more);
        if (!more) {
            resume_leave(g->api->resume, &g->kept);
            g->resumes = false;
            return;
        }
        c->taken = more;
        c->taken_capacity = capacity;
    }
    c->taken[c->n_taken++] = token;
}

static void take_token(struct gen *g, struct gen_choice *c, const struct engine_event *ev) {
    if (c->stopped || g->no_tokens) return;
    note_token(g, c, ev->token);
    c->n_tokens++;
    g->request->completion_tokens++;
    if (g->n_logprobs >= 0) add_logprob(g, c, ev, true);
    bool stop;
    if (c->parser) {
        stop = gen_answer_take(g, c, ev->token);
    } else {
        const char *text;
        size_t n;
        stop = engine_text_push(c->text_state, ev->token, &text, &n);
        str_add_n(&c->text, text, n);
        if (g->writer->token) stop |= g->writer->token(g, c, ev->token, n);
    }
    if (stop) {
        /* The worker sends the final event at its next step; events still in the ring are dropped
         * here. */
        c->stopped = true;
        engine_stream_cancel(c->stream);
    }
}

static void take_final(struct gen *g, struct gen_choice *c, const struct engine_event *ev) {
    c->done = true;
    if (!c->stopped && !g->no_tokens) {
        if (c->parser) {
            gen_answer_finish(g, c, ev->finish != ENGINE_FINISH_STOP);
        } else {
            const char *text;
            size_t n;
            engine_text_finish(c->text_state, &text, &n);
            str_add_n(&c->text, text, n);
        }
        if (ev->n_generated > c->n_tokens) /* an end token, which is no event of its own */
            g->request->completion_tokens += ev->n_generated - c->n_tokens;
        c->n_tokens = ev->n_generated;
    }
    bool length = ev->finish == ENGINE_FINISH_LENGTH || g->no_tokens;
    c->stop_sequence = engine_text_stop(c->parser ? c->stop_text : c->text_state);
    c->finish = length && !c->stopped ? GEN_FINISH_LENGTH
                : c->n_calls          ? GEN_FINISH_TOOL_CALLS
                                      : GEN_FINISH_STOP;
    if (c->index % (g->n_choices / g->n_prompts) == 0)
        g->prompts[c->prompt].n_cached = ev->n_cached, g->prompts[c->prompt].miss = ev->miss;
    if (c->index % (g->n_choices / g->n_prompts) == 0 && g->request->prompt_tokens)
        g->request->cached_tokens += ev->n_cached; /* not of a stream that was resumed */
}

/* Writes what the event brought as frames. */
static void write_event(struct gen *g, struct gen_choice *c) {
    check_pending(g, c);
    if (g->error.code) return;
    gen_write_text(g, c);
    if (c->done && g->writer->close) g->writer->close(g, c, &g->out);
}

static size_t held_bytes(const struct gen_choice *c) {
    size_t n = c->text.len + c->reasoning.len;
    for (size_t k = 0; k < 4; k++)
        n += c->logprobs[k].len;
    for (uint32_t i = 0; i < c->n_calls; i++)
        n += c->calls[i].arguments.len;
    return n;
}

/* Counts what g holds now. Without room for it g cannot be resumed any more, or else it fails. */
static void count_held(struct gen *g) {
    if (answers_hold(&g->api->http.answers, &g->hold, g->n_held + g->sent.len + g->out.len)) return;
    if (g->resumes) {
        resume_leave(g->api->resume, &g->kept);
        g->resumes = false;
        str_fini(&g->sent);
        str_init(&g->sent, REPLY_MAX_BYTES);
        if (answers_hold(&g->api->http.answers, &g->hold, g->n_held + g->out.len)) return;
    }
    if (g->error.code) return;
    g->no_room = true;
    err_set(&g->error, ERR_NOMEM, "%s", error_no_room.message);
}

static void take_event(struct gen *g, struct gen_choice *c, const struct engine_event *ev) {
    size_t held_before = held_bytes(c);
    if (ev->kind == ENGINE_EVENT_FINAL && !c->stopped &&
        (ev->finish == ENGINE_FINISH_ERROR || ev->finish == ENGINE_FINISH_CANCEL)) {
        g->error = ev->error;
        api_explain_stop(g->api, g->model, &g->error);
        if (!g->error.code) err_set(&g->error, ERR_DEVICE, "The generation was interrupted.");
        c->done = true;
        return;
    }
    if (!c->begun) begin_choice(g, c);
    if (ev->kind == ENGINE_EVENT_TOKEN) {
        take_token(g, c, ev);
    } else if (ev->kind == ENGINE_EVENT_FINAL) {
        take_final(g, c, ev);
    } else {
        add_logprob(g, c, ev, true);
    }
    if (g->stream) {
        write_event(g, c);
        count_held(g);
        return;
    }
    g->n_held += held_bytes(c) - held_before;
    count_held(g);
    if (g->n_held > REPLY_MAX_BYTES)
        err_set(&g->error, ERR_INVALID,
                "The answer is larger than %d MiB: request fewer choices, tokens or logprobs, or "
                "set 'stream'.",
                REPLY_MAX_BYTES >> 20);
}

bool gen_all_done(const struct gen *g) {
    for (uint32_t i = 0; i < g->n_choices; i++)
        if (!g->choices[i].done) return false;
    return true;
}

void gen_take_events(struct gen *g) {
    struct engine_event ev;
    for (uint32_t i = 0; i < g->n_choices; i++) {
        struct gen_choice *c = &g->choices[i];
        while (!c->done && g->out.len < OUT_BYTES && engine_stream_next(c->stream, &ev) == 1) {
            take_event(g, c, &ev);
            if (g->error.code) return;
        }
    }
    request_account(g->request);
}

void gen_end_choice(struct gen *g, struct gen_choice *c) {
    const struct engine_event ev = {
        .kind = ENGINE_EVENT_FINAL, .finish = ENGINE_FINISH_LENGTH, .n_generated = c->n_taken};
    take_event(g, c, &ev);
}
