/* embed.c - see embed.h. */
#include "api/generate/embed.h"

#include "api/generate/api_state.h"
#include "api/generate/gen_trace.h"
#include "api/generate/limits.h"
#include "api/generate/prompts.h"
#include "api/http/costs.h"
#include "api/http/error.h"
#include "api/http/quota.h"
#include "api/http/request.h"
#include "api/http/trace.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 16,         /* inputs submitted at once */
    FLOAT_BYTES = 17,    /* upper bound for a number and its comma: -1.23456789e-10, */
    ROW_BYTES = 64,      /* upper bound for the rest of a row, if its index has up to 7 digits */
    DIRECT_FLOATS = 4096 /* more are written on a pool thread */
};

struct embed {
    struct request *request;
    struct embed_result result;
    float *vectors; /* of result */
    void (*write)(struct request *r, const struct embed_result *v);
    enum engine_pooling pooling;
    int norm; /* as in embed_config */
    struct engine_params params;
    struct gen_prompt *inputs; /* (result.n) */
    size_t n_submitted, n_done;
    struct slot {
        engine_stream *stream; /* NULL: free */
        size_t input;
    } slots[WINDOW];
    int32_t *scratch; /* (the context) a prompt with the tokens that it shares; NULL: none does */
    struct http *http;
    struct answer_hold hold;     /* of vectors */
    struct quota_hold sequences; /* it counts as one, however many inputs it has */
    void (*free_arg)(void *arg);
};

void embed_add_vector(const float *v, uint32_t n, str *out) {
    for (uint32_t i = 0; i < n; i++) {
        str_add_char(out, i ? ',' : '[');
        json_add_number(out, (double)v[i]);
    }
    str_add_char(out, ']');
}

static void embed_free(void *job) {
    struct embed *j = job;
    if (!j) return;
    for (size_t i = 0; i < WINDOW; i++) {
        api_note_times(j->request, j->slots[i].stream);
        engine_stream_free(j->slots[i].stream);
    }
    gen_prompts_free(j->inputs, j->result.n);
    answers_hold(&j->http->answers, &j->hold, 0);
    quota_release(&j->sequences);
    if (j->free_arg) j->free_arg(j->result.arg);
    free(j->scratch);
    free(j->vectors);
    free(j);
}

/* ---- the job ---- */

/* What the vector is divided by: see embed_config.norm. */
static double norm_of(const float *v, uint32_t n, int norm) {
    double sum = 0, largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        double size = fabs((double)v[i]);
        if (!(size <= largest)) largest = size;
        sum += norm > 0 && norm != 2 ? pow(size, norm) : size * size;
    }
    if (!isfinite(sum)) return sum;
    if (norm == EMBED_AS_COMPUTED) return 1;
    if (norm == EMBED_TO_INT16) return largest / 32760;
    return norm > 0 && norm != 2 ? pow(sum, 1.0 / norm) : sqrt(sum);
}

/* The zero vector stays zero. */
static int normalize_vector(const float *from, uint32_t n, int norm, float *to, err *e) {
    double by = norm_of(from, n, norm);
    if (!isfinite(by))
        return err_set(e, ERR_DEVICE, "the model computed a vector that is not finite");
    double scale = by > 0 ? 1 / by : 0;
    for (uint32_t i = 0; norm == EMBED_SIGMOID && i < n; i++)
        to[i] = (float)(1 / (1 + exp(-(double)from[i])));
    if (norm == EMBED_SIGMOID) return 0;
    for (uint32_t i = 0; i < n; i++)
        to[i] = (float)((double)from[i] * scale);
    return 0;
}

static void note_trace(const struct embed *j, const struct slot *s, const struct engine_event *ev) {
    struct trace_sequence *q = gen_trace_stream(j->request, s->stream);
    if (!q) return;
    j->request->trace->operation = j->pooling == ENGINE_POOLING_RANK ? "rerank" : "embeddings";
    q->prompt_tokens = ev->n_prompt;
    q->cached_tokens = ev->n_cached;
}

static int take_result(struct embed *j, struct slot *s, const struct engine_event *ev, err *e) {
    uint32_t n;
    const float *vector = engine_stream_embedding(s->stream, &n);
    if (!vector)
        return ev->error.code ? (*e = ev->error).code
                              : err_set(e, ERR_DEVICE, "the computation was interrupted");
    int rc = normalize_vector(vector, j->result.n_dims, j->norm,
                              j->vectors + s->input * j->result.n_dims, e);
    note_trace(j, s, ev);
    api_note_times(j->request, s->stream);
    engine_stream_free(s->stream);
    s->stream = NULL;
    j->n_done++;
    return rc;
}

/* Fills free slots with inputs. A full queue is an error only if none of this request's inputs is
 * in it, so that no result would trigger another try. */
static int submit_inputs(struct request *r, struct embed *j, err *e) {
    for (size_t i = 0; i < WINDOW && j->n_submitted < j->result.n; i++) {
        struct slot *s = &j->slots[i];
        if (s->stream) continue;
        const struct gen_prompt *p = &j->inputs[j->n_submitted];
        const int32_t *ids = p->ids;
        if (p->n_shared) {
            memcpy(j->scratch, j->inputs[0].ids, p->n_shared * sizeof *ids);
            memcpy(j->scratch + p->n_shared, ids, p->n * sizeof *ids);
            ids = j->scratch;
        }
        const struct engine_request q = {.prompt = ids,
                                         .n_prompt = (uint32_t)(p->n_shared + p->n),
                                         .n_choices = 1,
                                         .pooling = j->pooling,
                                         .second_from = p->second,
                                         .params = j->params,
                                         .deadline_ns = r->deadline_ns,
                                         .notify = watch_notify,
                                         .notify_arg = &r->watched};
        int rc = engine_submit(j->result.model->engine, &q, &s->stream, e);
        if (rc == ERR_FULL && j->n_done < j->n_submitted) return 0;
        if (rc) return rc;
        s->input = j->n_submitted++;
    }
    return 0;
}

static int collect_results(struct embed *j, bool *any, err *e) {
    struct engine_event ev;
    for (size_t i = 0; i < WINDOW; i++) {
        struct slot *s = &j->slots[i];
        if (!s->stream || !engine_stream_next(s->stream, &ev)) continue;
        int rc = take_result(j, s, &ev, e); /* its only event is the final one */
        if (rc) return rc;
        *any = true;
    }
    return 0;
}

static enum job_status embed_poll(struct request *r, void *job) {
    struct embed *j = job;
    err e;
    err_clear(&e);
    for (bool any = true; any;) {
        any = false;
        int rc = collect_results(j, &any, &e);
        if (!rc && any) rc = submit_inputs(r, j, &e);
        if (rc) {
            api_explain_stop(r->api, r->model, &e);
            reply_err(r, &e);
            return JOB_REPLY;
        }
    }
    if (j->n_done < j->result.n) return JOB_WAIT;
    if ((uint64_t)j->result.n * j->result.n_dims > DIRECT_FLOATS) return JOB_WORK;
    j->write(r, &j->result);
    return JOB_REPLY;
}

static void embed_work(struct request *r, void *job) {
    const struct embed *j = job;
    j->write(r, &j->result);
}

static const struct job_ops embed_ops = {
    .poll = embed_poll, .work = embed_work, .free = embed_free};

/* ---- start ---- */

static int read_pooling(const char *name, const struct api_model *m, enum engine_pooling *out,
                        err *e) {
    const enum engine_pooling trained_for = engine_model(m->engine).pooling;
    *out = !name                       ? trained_for ? trained_for : ENGINE_POOLING_LAST
           : !strcmp(name, "mean")     ? ENGINE_POOLING_MEAN
           : !strcmp(name, "cls")      ? ENGINE_POOLING_CLS
           : !strcmp(name, EMBED_RANK) ? ENGINE_POOLING_RANK
                                       : ENGINE_POOLING_LAST;
    if (name || *out != ENGINE_POOLING_RANK) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, "model",
                         "The model '%s' was trained to score, not to embed: use /v1/rerank, or "
                         "say how to pool with 'pooling' at /v1/embeddings.",
                         m->id);
}

/* Refuses a request whose answer would be too large, before anything is computed. */
static int check_size(const struct embed *j, const struct embed_config *c, err *e) {
    uint64_t n = j->result.n_dims;
    uint64_t row = c->base64 ? n * 16 / 3 + 4 : n * FLOAT_BYTES;
    if ((row + ROW_BYTES) * j->result.n < REPLY_MAX_BYTES - 4096) return 0;
    return err_set_param(e, ERR_INVALID, c->param,
                         "Invalid value for '%s': the answer could exceed %d MiB: send fewer "
                         "inputs%s.",
                         c->param, REPLY_MAX_BYTES >> 20, c->hint ? c->hint : "");
}

static int read_inputs(struct embed *j, const struct embed_config *c, err *e) {
    struct embed_result *v = &j->result;
    engine *en = v->model->engine;
    const struct prompts_config config = {.param = c->param,
                                          .tok = engine_tokenizer(en),
                                          .max_tokens = engine_context_length(en),
                                          .max = EMBED_MAX_INPUTS,
                                          .parse_special = c->parse_special,
                                          .truncate = c->truncate,
                                          .no_empty = c->no_empty};
    if (!c->prompts) return prompts_read(&config, c->input, &j->inputs, &v->n, e);
    bool shares = false;
    for (size_t i = 0; i < v->n; i++)
        shares |= j->inputs[i].n_shared > 0;
    if (shares) j->scratch = mem_new(config.max_tokens, sizeof *j->scratch);
    return shares && !j->scratch ? err_no_memory(e) : 0;
}

static int init_embed(struct request *r, struct embed *j, const struct embed_config *c, err *e) {
    struct embed_result *v = &j->result;
    engine *en = r->model->engine;
    uint32_t n_embd = engine_model(en).n_embd;
    if (c->n_dims > n_embd)
        return err_set_param(
            e, ERR_INVALID, "dimensions",
            "Invalid value for 'dimensions': this model's vectors have %u dimensions.", n_embd);
    int rc = read_pooling(c->pooling, r->model, &j->pooling, e);
    if (rc) return rc;
    if (j->pooling == ENGINE_POOLING_RANK) n_embd = 1;
    v->model = r->model;
    v->n_dims = c->n_dims ? (uint32_t)c->n_dims : n_embd;
    j->write = c->write;
    j->norm = c->norm;
    engine_params_default(&j->params);
    uint64_t begin_ns = clock_now_ns();
    rc = limits_apply(r, c->cache_salt, &j->params, e);
    if (!rc) rc = read_inputs(j, c, e);
    costs_add_part(r, PART_TOKENIZE, begin_ns);
    if (!rc) rc = check_size(j, c, e);
    if (rc) return rc;
    for (size_t i = 0; i < v->n; i++)
        v->n_tokens += j->inputs[i].n_shared + j->inputs[i].n;
    rc = quota_check_tokens(r, v->n_tokens, clock_now_ns(), e);
    if (!rc) rc = quota_hold(r, &j->sequences, 1, e);
    if (rc) return rc;
    r->prompt_tokens = v->n_tokens;
    if (!answers_hold(&r->http->answers, &j->hold, (uint64_t)v->n * v->n_dims * sizeof(float))) {
        reply_no_room(r);
        return err_set(e, ERR_NOMEM, "no room for the answer");
    }
    j->vectors = mem_new((uint64_t)v->n * v->n_dims, sizeof *j->vectors);
    v->vectors = j->vectors;
    return j->vectors ? 0 : err_no_memory(e);
}

int embed_start(struct request *r, const struct embed_config *c, err *e) {
    struct embed *j = mem_new(1, sizeof *j);
    if (!j) {
        if (c->prompts) gen_prompts_free(c->prompts, c->n_prompts);
        if (c->free_arg) c->free_arg(c->arg);
        return err_no_memory(e);
    }
    j->request = r;
    j->http = r->http;
    j->inputs = c->prompts;
    j->result.n = c->n_prompts;
    j->result.arg = c->arg;
    j->free_arg = c->free_arg;
    int rc = init_embed(r, j, c, e);
    if (!rc) rc = submit_inputs(r, j, e);
    if (rc) {
        r->prompt_tokens = 0; /* nothing was used */
        api_explain_stop(r->api, r->model, e);
        embed_free(j);
        return r->reply.status ? 0 : rc;
    }
    request_account(r);
    r->ops = &embed_ops;
    r->job = j;
    return 0;
}
