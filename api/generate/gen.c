/* gen.c - the job of a generation: owns its engine streams, text states and pending bytes, and
 * calls the endpoint's writer in order; knows no protocol. Runs on the connection's HTTP thread,
 * except gen_start and gen_work: pool threads. */
#include "api/generate/gen_int.h"

#include "api/generate/api_state.h"
#include "api/generate/gen_trace.h"
#include "api/generate/limits.h"
#include "api/generate/miss.h"
#include "api/generate/prefix.h"
#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/id.h"
#include "api/http/request.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE_BYTES = 64 << 10 /* a larger answer is not written on an HTTP thread */ };

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

static void note_times(struct gen *g) {
    for (uint32_t i = 0; g->request && g->choices && i < g->n_choices; i++)
        api_note_times(g->request, g->choices[i].stream);
}

static void gen_free(void *job) {
    struct gen *g = job;
    if (!g) return;
    if (g->resumes) resume_leave(g->api->resume, &g->kept);
    gen_trace(g);
    answers_hold(&g->api->http.answers, &g->hold, 0);
    quota_release(&g->sequences);
    free((void *)g->params.bias);
    grammar_release((grammar *)g->params.grammar);
    str_fini(&g->sent);
    str_fini(&g->head);
    note_times(g);
    for (uint32_t i = 0; g->choices && i < g->n_choices; i++)
        free_choice(&g->choices[i]);
    free(g->choices);
    gen_prompts_free(g->prompts, g->n_prompts);
    if (g->writer->free) g->writer->free(g->state);
    str_fini(&g->out);
    models_release(g->api->models, g->model);
    free(g);
}

/* ---- the job ---- */

static void write_whole(struct gen *g) {
    str body;
    str_init(&body, REPLY_MAX_BYTES);
    g->writer->whole(g, &body);
    for (uint32_t i = 0; i < g->n_choices; i++)
        body.failed |= gen_pending_failed(&g->choices[i]);
    reply_json(g->request, 200, &body);
}

/* A stream's status line waits for the first event, so that a failure before it is an HTTP status.
 */
static enum job_status gen_poll(struct request *r, void *job) {
    struct gen *g = job;
    gen_take_events(g);
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
        reply_header(r, "X-Accel-Buffering", "no"); /* nginx must not buffer it */
        return JOB_REPLY;
    }
    if (g->stream || !gen_all_done(g)) return JOB_WAIT;
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
    if (g->no_room) atomic_fetch_add(&g->api->http.costs.n_rejected[REJECT_ANSWER_BYTES], 1);
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

static void clear_out(struct gen *g) {
    gen_note_read(g);
    str_clear(&g->out);
    g->out_pos = 0;
}

static ssize_t gen_read(struct request *r, void *job, char *buf, size_t max) {
    struct gen *g = job;
    if (g->out_pos == g->out.len && !g->ended) {
        clear_out(g);
        if (!g->error.code) gen_take_events(g);
    }
    if (!g->ended && (g->error.code || gen_all_done(g))) {
        if (g->writer->stores) return JOB_READ_WORK;
        write_end(g);
    }
    if (g->out.failed) return JOB_READ_CUT;
    if (g->out_pos == g->out.len) {
        if (g->ended) return JOB_READ_END;
        bool due = atomic_exchange(&r->watched.keepalive_due, false);
        if (!due || !g->writer->keepalive) return 0;
        clear_out(g);
        g->writer->keepalive(g, &g->out);
    }
    size_t n = g->out.len - g->out_pos;
    if (n > max) n = max;
    memcpy(buf, g->out.data + g->out_pos, n);
    g->out_pos += n;
    return (ssize_t)n;
}

/* The connection ended: a stream that has begun is kept, so that its client can resume it. */
static bool gen_cut(struct request *r, void *job) {
    struct gen *g = job;
    if (!g->resumes || !r->reply.stream || g->out.failed || g->sent.failed) return false;
    gen_trace(g);
    note_times(g);
    resume_keep(g->api->resume, &g->kept);
    return true;
}

static const struct job_ops gen_ops = {
    .poll = gen_poll, .read = gen_read, .work = gen_work, .free = gen_free, .cut = gen_cut};

static void become_job(struct gen *g, struct request *r) {
    r->ops = &gen_ops;
    r->job = g;
}

/* ---- for the list of streams that can be resumed ---- */

static struct gen *gen_of(struct resumable *k) {
    return (struct gen *)(void *)((char *)k - offsetof(struct gen, kept));
}

static void detach_stream(struct resumable *k) {
    gen_detach(gen_of(k));
}

static int attach_stream(struct resumable *k, struct request *r, uint64_t after, err *e) {
    struct gen *g = gen_of(k);
    int rc = gen_attach(g, r, after, e);
    if (!rc) become_job(g, r);
    return rc;
}

static void free_stream(struct resumable *k) {
    struct gen *g = gen_of(k);
    g->resumes = false; /* it has left the list */
    gen_free(g);
}

static const struct resumable_ops stream_ops = {
    .detach = detach_stream, .attach = attach_stream, .free = free_stream};

/* ---- start ---- */

/* Is the answer's first space the tokenizer's own, because the answer directly follows a control
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

static int submit_prompts(struct gen *g, const struct gen_options *o, err *e) {
    engine_stream *streams[ENGINE_MAX_CHOICES];
    struct engine_params params = g->params;
    params.bias = o->params.bias; /* g has a copy only if it resumes */
    for (size_t i = 0; i < g->n_prompts; i++) {
        const struct gen_prompt *p = &g->prompts[i];
        const struct engine_request request = {.prompt = p->ids,
                                               .n_prompt = (uint32_t)p->n,
                                               .system_tokens = p->n_system,
                                               .stable_tokens = p->n_stable,
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

/* Streams whose frames have ids can outlive their connection, unless the prompt is scored. */
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
    g->kept.ops = &stream_ops;
    g->kept.id = g->id;
    g->kept.model = g->model;
    g->resumes = can && resume_add(g->api->resume, &g->kept, g->request);
}

static int take_quota(struct gen *g, err *e) {
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_prompts; i++)
        n += g->prompts[i].n;
    int rc = quota_check_tokens(g->request, n, clock_now_ns(), e);
    return rc ? rc : quota_hold(g->request, &g->sequences, g->n_choices, e);
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
    g->model = models_retain(g->api->models, config->model);
    g->tok = engine_tokenizer(config->model->engine);
    g->prompts = config->prompts;
    g->n_prompts = config->n_prompts;
    g->n_choices = (uint32_t)config->n_prompts * o->n_choices;
    g->n_logprobs = o->params.n_logprobs;
    g->stream = o->stream;
    g->chat = config->chat;
    g->include_usage = o->include_usage;
    g->obfuscate = o->obfuscate;
    g->echo = o->echo;
    g->no_tokens = o->no_tokens;
    g->created_s = clock_wall_s();
    id_new(g->id, config->id_prefix);
    str_init(&g->out, REPLY_MAX_BYTES);
    str_init(&g->head, REPLY_MAX_BYTES);
    g->n_held = config->n_state_bytes;
    g->explains = miss_is_asked(g->request);
    g->explains_tenants = g->explains && auth_is_admin(g->request);
    set_resumes(g, o);
    int rc = limits_apply(config->request, o->cache_salt, &g->params, e);
    if (!rc) rc = init_choices(g, config, e);
    if (!rc) rc = take_quota(g, e);
    if (!rc) rc = submit_prompts(g, o, e);
    if (rc) {
        config->request->prompt_tokens = 0; /* nothing was used */
        api_explain_stop(g->api, g->model, e);
        gen_free(g);
        return rc;
    }
    request_account(config->request);
    prefix_add_header(config->request, config->model, &g->prompts[0]);
    become_job(g, config->request);
    return 0;
}
