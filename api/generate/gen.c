/* gen.c - the job of a generation. Owns its engine streams, text states and pending bytes, and the
 * order in which the endpoint's writer is asked; knows no protocol. Pulls
 * events only when somebody reads, so that a client that does not read fills the engine's bounded
 * ring and nothing else. Runs on the connection's HTTP thread, but for gen_start and gen_work: on a
 * thread of the work pool. */
#include "api/generate/gen.h"
#include "api/generate/limits.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OUT_BYTES = 8 << 10,   /* written ahead of the socket, plus one event */
    WHOLE_BYTES = 64 << 10 /* an answer larger than that is not written on an HTTP thread */
};

void gen_prompts_free(struct gen_prompt *prompts, size_t n) {
    for (size_t i = 0; prompts && i < n; i++)
        free(prompts[i].ids);
    free(prompts);
}

static void free_choice(struct gen_choice *c) {
    free(c->taken);
    engine_stream_free(c->stream);
    engine_text_free(c->text_state);
    engine_text_free(c->stop_text);
    chat_parser_free(c->parser);
    str_fini(&c->text);
    str_fini(&c->reasoning);
    for (uint32_t i = 0; i < c->n_calls; i++) {
        free(c->calls[i].name);
        str_fini(&c->calls[i].arguments);
    }
    free(c->calls);
    for (size_t k = 0; k < 4; k++)
        str_fini(&c->logprobs[k]);
}

void gen_free(void *job) {
    struct gen *g = job;
    if (!g) return;
    if (g->resumes) resume_leave(g->api->resume, g);
    answers_hold(&g->api->answers, &g->hold, 0);
    free((void *)g->params.bias);
    grammar_release((grammar *)g->params.grammar);
    str_fini(&g->sent);
    str_fini(&g->head);
    for (uint32_t i = 0; g->choices && i < g->n_choices; i++)
        free_choice(&g->choices[i]);
    free(g->choices);
    gen_prompts_free(g->prompts, g->n_prompts);
    if (g->writer->free) g->writer->free(g->state);
    str_fini(&g->out);
    free(g);
}

/* ---- what writers share ---- */

struct gen_usage gen_usage_of(const struct gen *g) {
    struct gen_usage u = {0};
    for (size_t i = 0; i < g->n_prompts; i++) {
        u.prompt += g->prompts[i].n;
        u.cached += g->prompts[i].n_cached;
    }
    for (uint32_t i = 0; i < g->n_choices; i++) {
        u.completion += g->choices[i].n_tokens;
        u.reasoning += g->choices[i].n_reasoning;
    }
    return u;
}

void gen_add_usage(const struct gen *g, str *out) {
    struct gen_usage u = gen_usage_of(g);
    str_addf(out,
             "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
             ",\"total_tokens\":%" PRIu64 ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64
             "},\"completion_tokens_details\":{\"reasoning_tokens\":%" PRIu64 "}}",
             u.prompt, u.completion, u.prompt + u.completion, u.cached, u.reasoning);
}

static void make_head(struct gen *g, const char *object) {
    str_addf(&g->head, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", g->id,
             object, g->created_s);
    json_add_cstr(&g->head, g->model->id);
    str_add(&g->head, ",\"system_fingerprint\":\"inferd-");
    str_add(&g->head, g->api->config.version);
    str_addf(&g->head, "-%s\",", engine_backend_name(g->model->engine));
}

void gen_add_head(struct gen *g, const char *object, str *out) {
    if (!g->head.len) make_head(g, object);
    str_add_n(out, str_cstr(&g->head), g->head.len);
    out->failed |= g->head.failed;
}

const char *gen_finish_name(enum gen_finish finish) {
    static const char *const names[] = {"stop", "length", "tool_calls"};
    return names[finish];
}

bool gen_call_is_whole(const struct gen_call *call) {
    cJSON *v = NULL;
    json_parse(str_cstr(&call->arguments), call->arguments.len, &v, NULL);
    bool whole = cJSON_IsObject(v);
    cJSON_Delete(v);
    return whole;
}

/* ---- events ---- */

static void clear_logprobs(struct gen_choice *c) {
    for (size_t k = 0; k < 4; k++) {
        str_clear(&c->logprobs[k]);
        c->content_logprobs[k] = 0;
    }
    c->n_logprobs = c->n_content_logprobs = 0;
}

static bool pending_failed(const struct gen_choice *c) {
    bool failed = c->text.failed || c->reasoning.failed;
    for (size_t k = 0; k < 4; k++)
        failed = failed || c->logprobs[k].failed;
    for (uint32_t i = 0; i < c->n_calls; i++)
        failed = failed || c->calls[i].arguments.failed;
    return failed;
}

/* A stream ends with an error rather than with a gap. */
static void check_pending(struct gen *g, const struct gen_choice *c) {
    if (pending_failed(c) && !g->error.code) err_no_memory(&g->error);
}

/* The client is not shown the tokens that the tokenizer put around its text. */
static void add_logprob(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                        bool has_logprob) {
    if (ev->kind == ENGINE_EVENT_PROMPT && g->prompts[c->prompt].text &&
        tokenizer_is_control(g->tok, ev->token))
        return;
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
    if (tokenizer_decode(g->tok, p->ids, p->n, false, &text, &n, &g->error)) return;
    str_add_n(&c->text, text, n);
    free(text);
    if (g->n_logprobs >= 0) {
        struct engine_event first = {.kind = ENGINE_EVENT_PROMPT, .token = p->ids[0]};
        add_logprob(g, c, &first, false);
    }
}

/* A stream that cannot remember its tokens goes on, and cannot be resumed. */
static void note_taken(struct gen *g, struct gen_choice *c, int32_t token) {
    if (!g->resumes) return;
    if (c->n_taken == c->taken_capacity) {
        uint32_t capacity = c->taken_capacity ? 2 * c->taken_capacity : 64;
        int32_t *more = mem_resize(c->taken, capacity, sizeof *more);
        if (!more) {
            resume_leave(g->api->resume, g);
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
    note_taken(g, c, ev->token);
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
    }
    if (stop) {
        /* The worker ends it with a final event at its next step; what is still in the ring is
         * dropped here. */
        c->stopped = true;
        engine_stream_cancel(c->stream);
    }
}

static void take_final(struct gen *g, struct gen_choice *c, const struct engine_event *ev) {
    c->done = true;
    if (!c->stopped && !g->no_tokens) {
        if (c->parser) {
            gen_answer_finish(g, c);
        } else {
            const char *text;
            size_t n;
            engine_text_finish(c->text_state, &text, &n);
            str_add_n(&c->text, text, n);
        }
        c->n_tokens = ev->n_generated;
    }
    bool length = ev->finish == ENGINE_FINISH_LENGTH || g->no_tokens;
    c->stop_sequence = engine_text_stop(c->parser ? c->stop_text : c->text_state);
    c->finish = length && !c->stopped ? GEN_FINISH_LENGTH
                : c->n_calls          ? GEN_FINISH_TOOL_CALLS
                                      : GEN_FINISH_STOP;
    if (c->index % (g->n_choices / g->n_prompts) == 0)
        g->prompts[c->prompt].n_cached = ev->n_cached;
}

void gen_write_text(struct gen *g, struct gen_choice *c) {
    /* Parted answers: log-probabilities wait until their text is decided. */
    if (!c->text.len && (!c->n_logprobs || (c->parser && !c->done))) return;
    const struct gen_piece piece = {.kind = GEN_TEXT, .text = str_cstr(&c->text), .n = c->text.len};
    g->writer->piece(g, c, &piece, &g->out);
    str_clear(&c->text);
    clear_logprobs(c);
}

/* What the event brought, as frames. */
static void write_pieces(struct gen *g, struct gen_choice *c) {
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

void gen_count_held(struct gen *g) {
    if (answers_hold(&g->api->answers, &g->hold, g->n_held + g->sent.len + g->out.len)) return;
    if (g->resumes) {
        resume_leave(g->api->resume, g);
        g->resumes = false;
        str_fini(&g->sent);
        str_init(&g->sent, REPLY_MAX_BYTES);
        if (answers_hold(&g->api->answers, &g->hold, g->n_held + g->out.len)) return;
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
        write_pieces(g, c);
        gen_count_held(g);
        return;
    }
    g->n_held += held_bytes(c) - held_before;
    gen_count_held(g);
    if (g->n_held > REPLY_MAX_BYTES)
        err_set(&g->error, ERR_INVALID,
                "The answer is larger than %d MiB: ask for fewer choices, tokens or logprobs, or "
                "set 'stream'.",
                REPLY_MAX_BYTES >> 20);
}

static bool all_done(const struct gen *g) {
    for (uint32_t i = 0; i < g->n_choices; i++)
        if (!g->choices[i].done) return false;
    return true;
}

/* Takes events until every stream is empty (only then does the engine notify again), something
 * failed, or enough bytes wait for the socket. */
static void pump(struct gen *g) {
    struct engine_event ev;
    for (uint32_t i = 0; i < g->n_choices; i++) {
        struct gen_choice *c = &g->choices[i];
        while (!c->done && g->out.len < OUT_BYTES && engine_stream_next(c->stream, &ev) == 1) {
            take_event(g, c, &ev);
            if (g->error.code) return;
        }
    }
}

/* ---- the job ---- */

static void write_whole(struct gen *g) {
    str body;
    str_init(&body, REPLY_MAX_BYTES);
    g->writer->whole(g, &body);
    for (uint32_t i = 0; i < g->n_choices; i++)
        body.failed |= pending_failed(&g->choices[i]);
    reply_json(g->request, 200, &body);
}

/* A stream's status line waits for the first event, so that a failure before it is a real status.
 */
static enum job_status gen_poll(struct request *r, void *job) {
    struct gen *g = job;
    pump(g);
    if (g->error.code && (!g->stream || !g->begun)) {
        if (g->no_room)
            reply_no_room(r);
        else
            reply_err(r, &g->error);
        return JOB_REPLY;
    }
    if (g->stream && g->begun) {
        r->reply.status = 200;
        r->reply.stream = true;
        r->reply.content_type = g->writer->content_type;
        reply_header(r, "Cache-Control", "no-cache");
        reply_header(r, "X-Accel-Buffering", "no"); /* nginx must not collect it */
        return JOB_REPLY;
    }
    if (g->stream || !all_done(g)) return JOB_WAIT;
    if (g->writer->stores || g->n_held > WHOLE_BYTES) return JOB_WORK;
    write_whole(g);
    return JOB_REPLY;
}

static void write_end(struct gen *g) {
    g->ended = true;
    if (!g->error.code) {
        g->writer->end(g, &g->out);
        return;
    }
    struct api_error error = g->no_room ? error_no_room : error_for(g->request, &g->error);
    if (g->no_room) atomic_fetch_add(&g->api->costs.n_rejected[REJECT_ANSWER_BYTES], 1);
    g->writer->fail(g, &error, &g->out);
}

static void gen_work(struct request *r, void *job) {
    (void)r;
    struct gen *g = job;
    if (g->stream)
        write_end(g);
    else
        write_whole(g);
}

static void reuse_out(struct gen *g) {
    gen_note_read(g);
    str_clear(&g->out);
    g->out_pos = 0;
}

static ssize_t gen_read(struct request *r, void *job, char *buf, size_t max) {
    struct gen *g = job;
    if (g->out_pos == g->out.len && !g->ended) {
        reuse_out(g);
        if (!g->error.code) pump(g);
    }
    if (!g->ended && (g->error.code || all_done(g))) {
        if (g->writer->stores) return JOB_READ_WORK;
        write_end(g);
    }
    if (g->out.failed) return JOB_READ_END;
    if (g->out_pos == g->out.len) {
        if (g->ended) return JOB_READ_END;
        bool due = atomic_exchange(&r->watched.keepalive_due, false);
        if (!due || !g->writer->keepalive) return 0;
        reuse_out(g);
        g->writer->keepalive(g, &g->out);
    }
    size_t n = g->out.len - g->out_pos;
    if (n > max) n = max;
    memcpy(buf, g->out.data + g->out_pos, n);
    g->out_pos += n;
    return (ssize_t)n;
}

/* The connection ended: a stream that has begun is kept for its client to come back. */
static bool gen_cut(struct request *r, void *job) {
    struct gen *g = job;
    if (!g->resumes || !r->reply.stream || g->out.failed || g->sent.failed) return false;
    resume_keep(g->api->resume, g);
    return true;
}

static const struct job_ops gen_ops = {
    .poll = gen_poll, .read = gen_read, .work = gen_work, .free = gen_free, .cut = gen_cut};

void gen_join(struct gen *g, struct request *r) {
    r->ops = &gen_ops;
    r->job = g;
}

void gen_end_choice(struct gen *g, struct gen_choice *c) {
    const struct engine_event ev = {
        .kind = ENGINE_EVENT_FINAL, .finish = ENGINE_FINISH_LENGTH, .n_generated = c->n_taken};
    take_event(g, c, &ev);
}

/* ---- start ---- */

/* Does the answer begin where the tokenizer's own leading space stands: right behind a control
 * token? */
static bool strips_space(const struct gen *g, const struct gen_prompt *p) {
    return !p->infill && tokenizer_strips_leading_space(g->tok) &&
           tokenizer_is_control(g->tok, p->ids[p->n - 1]);
}

static int init_choices(struct gen *g, const struct gen_config *config, err *e) {
    const struct gen_options *o = config->options;
    g->choices = mem_new(g->n_choices, sizeof *g->choices);
    if (!g->choices) return err_no_memory(e);
    for (uint32_t i = 0; i < g->n_choices; i++) {
        struct gen_choice *c = &g->choices[i];
        c->index = i;
        c->prompt = i / o->n_choices;
        str_init(&c->text, REPLY_MAX_BYTES);
        str_init(&c->reasoning, REPLY_MAX_BYTES);
        for (size_t k = 0; k < 4; k++)
            str_init(&c->logprobs[k], REPLY_MAX_BYTES);
        c->drops_space = g->echo ? tokenizer_strips_leading_space(g->tok)
                                 : strips_space(g, &g->prompts[c->prompt]);
        c->text_state = engine_text_new(
            &(struct engine_text_config){.tok = g->tok,
                                         .stop = o->stops,
                                         .n_stop = config->parser ? 0 : o->n_stops,
                                         .strip_leading_space = !g->echo && c->drops_space});
        if (!c->text_state) return err_no_memory(e);
        int rc = config->parser ? gen_answer_init(c, config->parser, o, e) : 0;
        if (rc) return rc;
    }
    return 0;
}

static int submit(struct gen *g, const struct gen_options *o, err *e) {
    engine_stream *streams[ENGINE_MAX_CHOICES];
    struct engine_params params = g->params;
    params.bias = o->params.bias; /* g has one only where it resumes */
    for (size_t i = 0; i < g->n_prompts; i++) {
        const struct gen_prompt *p = &g->prompts[i];
        const struct engine_request request = {.prompt = p->ids,
                                               .n_prompt = (uint32_t)p->n,
                                               .n_choices = o->n_choices,
                                               .params = params,
                                               .deadline_ns = g->request->deadline_ns,
                                               .notify = watch_notify,
                                               .notify_arg = &g->request->watched};
        int rc = engine_submit(g->model->engine, &request, streams, e);
        if (rc == ERR_TOO_LONG) snprintf(e->param, sizeof e->param, "%s", g->writer->param);
        if (rc) return rc;
        for (uint32_t k = 0; k < o->n_choices; k++) {
            struct gen_choice *c = &g->choices[i * o->n_choices + k];
            c->stream = streams[k];
            c->seed = engine_stream_seed(streams[k]);
        }
        g->request->prompt_tokens += p->n;
    }
    return 0;
}

/* Streams whose frames have ids can go on after their connection, unless the prompt is scored. */
static void set_resumes(struct gen *g, const struct gen_options *o) {
    bool can = g->stream && strcmp(g->writer->content_type, GEN_EVENT_STREAM) == 0 &&
               !o->params.prompt_logprobs && !g->no_tokens;
    struct engine_logit_bias *bias = NULL;
    if (can && o->params.n_bias) {
        bias = mem_new(o->params.n_bias, sizeof *bias);
        can = bias != NULL;
        if (can) memcpy(bias, o->params.bias, o->params.n_bias * sizeof *bias);
    }
    g->params = o->params;
    g->params.bias = bias;
    g->params.grammar = o->params.grammar ? grammar_retain(o->params.grammar) : NULL;
    str_init(&g->sent, REPLY_MAX_BYTES);
    g->resumes = can && resume_add(g->api->resume, g);
}

int gen_start(const struct gen_config *config, err *e) {
    const struct gen_options *o = config->options;
    struct gen *g = mem_new(1, sizeof *g);
    if (!g) {
        gen_prompts_free(config->prompts, config->n_prompts);
        if (config->writer->free) config->writer->free(config->state);
        return err_no_memory(e);
    }
    g->request = config->request;
    g->api = config->request->api;
    g->writer = config->writer;
    g->state = config->state;
    g->model = config->model;
    g->tok = engine_tokenizer(config->model->engine);
    g->prompts = config->prompts;
    g->n_prompts = config->n_prompts;
    g->n_choices = (uint32_t)config->n_prompts * o->n_choices;
    g->n_logprobs = o->params.n_logprobs;
    g->stream = o->stream;
    g->include_usage = o->include_usage;
    g->obfuscate = o->obfuscate;
    g->echo = o->echo;
    g->no_tokens = o->no_tokens;
    g->created_s = clock_wall_s();
    api_new_id(g->id, config->id_prefix);
    str_init(&g->out, REPLY_MAX_BYTES);
    str_init(&g->head, REPLY_MAX_BYTES);
    g->n_held = config->n_state_bytes;
    set_resumes(g, o);
    int rc = limits_apply(config->request, o->cache_salt, &g->params, e);
    if (!rc) rc = init_choices(g, config, e);
    if (!rc) rc = submit(g, o, e);
    if (rc) {
        gen_free(g);
        return rc;
    }
    gen_join(g, config->request);
    return 0;
}
