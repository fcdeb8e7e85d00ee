/* ep_embeddings.c - POST /v1/embeddings: texts -> vectors of length 1, pooled from the model's
 * hidden states. A job submits the inputs to the engine a few at a time, so that a long list does
 * not fill the queue. Starts on a pool thread, and ends there if the answer is large; the rest runs
 * on the connection's HTTP thread. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/limits.h"
#include "api/generate/prompts.h"
#include "api/http/costs.h"
#include "api/http/error.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_INPUTS = 2048,   /* as OpenAI */
    WINDOW = 16,         /* inputs submitted at once */
    FLOAT_BYTES = 17,    /* upper bound for a number and its comma: -1.23456789e-10, */
    ROW_BYTES = 64,      /* upper bound for the rest of a row, if its index has up to 7 digits */
    DIRECT_FLOATS = 4096 /* more are written on a pool thread */
};

struct fields {
    const char *model, *user, *encoding_format, *pooling, *cache_salt;
    const cJSON *input;
    int64_t dimensions;
    bool has_dimensions;
};

#define AT(member)  .offset = offsetof(struct fields, member)
#define HAS(member) .has = 1 + offsetof(struct fields, member)
#define NEVER_CUT   "inputs are never truncated: send shorter ones"

enum { NUL = JSON_NULLABLE };

static const struct json_field rows[] = {
    {"input", JSON_VALUE, JSON_REQUIRED | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL, AT(input),
     .help =
         "A text, an array of texts, token ids, or an array of such arrays; at most 2048 inputs."},
    {"model", JSON_STRING, JSON_REQUIRED, AT(model), .min = 1,
     .help = "Id or alias of a served model, see GET /v1/models."},
    {"encoding_format", JSON_ENUM, NUL, AT(encoding_format), .words = "float|base64",
     .initial = "\"float\"", .help = "base64 encodes the float32 values in little-endian order."},
    {"dimensions", JSON_INT, NUL, AT(dimensions), HAS(has_dimensions), 1, 1 << 30,
     .help = "Truncates to this many dimensions and renormalizes; only for models trained for it "
             "(Matryoshka)."},
    {"user", JSON_STRING, NUL, AT(user), .help = "Accepted and ignored."},
    {"pooling", JSON_ENUM, NUL, AT(pooling), .words = "mean|cls|last",
     .help = "Which hidden states become the vector: the mean of all tokens, the first token's "
             "(cls), or the last one's. Default: the model file's {arch}.pooling_type, else last."},
    {"cache_salt", JSON_STRING, NUL, AT(cache_salt), .min = 1,
     .help = "Only requests with the same salt (and API key) share cached prompts."},
    {"truncate", JSON_REFUSED, NUL, .why = NEVER_CUT},
    {"truncation", JSON_REFUSED, NUL, .why = NEVER_CUT},
    {"truncate_prompt_tokens", JSON_REFUSED, NUL, .why = NEVER_CUT},
};
static const struct json_table embeddings_table = JSON_TABLE(rows, NULL);

struct embed {
    const struct api_model *model;
    enum engine_pooling pooling;
    struct engine_params params;
    bool base64;
    struct gen_prompt *inputs; /* (n) */
    size_t n, n_submitted, n_done;
    struct slot {
        engine_stream *stream; /* NULL: free */
        size_t input;
    } slots[WINDOW];
    uint32_t n_dims;
    struct http *http;
    struct answer_hold hold; /* of vectors */
    float *vectors;          /* (n, n_dims) */
    uint64_t n_tokens;
};

static void embed_free(void *job) {
    struct embed *j = job;
    if (!j) return;
    for (size_t i = 0; i < WINDOW; i++)
        engine_stream_free(j->slots[i].stream);
    gen_prompts_free(j->inputs, j->n);
    answers_hold(&j->http->answers, &j->hold, 0);
    free(j->vectors);
    free(j);
}

/* ---- writing ---- */

static void add_base64(const float *v, uint32_t n, str *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, n_bits = 0, n_chars = 0;
    str_add_char(out, '"');
    for (uint32_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &v[i], sizeof word);
        for (int byte = 0; byte < 4; byte++, word >>= 8) {
            bits = bits << 8 | (word & 0xff);
            for (n_bits += 8; n_bits >= 6; n_chars++)
                str_add_char(out, digits[bits >> (n_bits -= 6) & 63]);
        }
    }
    if (n_bits) str_add_char(out, digits[bits << (6 - n_bits) & 63]), n_chars++;
    for (; n_chars % 4; n_chars++)
        str_add_char(out, '=');
    str_add_char(out, '"');
}

static void add_floats(const float *v, uint32_t n, str *out) {
    for (uint32_t i = 0; i < n; i++) {
        str_add_char(out, i ? ',' : '[');
        json_add_number(out, (double)v[i]);
    }
    str_add_char(out, ']');
}

static void write_reply(struct request *r, const struct embed *j) {
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    str_add(&out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < j->n; i++) {
        const float *v = j->vectors + i * j->n_dims;
        str_addf(&out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "", i);
        if (j->base64)
            add_base64(v, j->n_dims, &out);
        else
            add_floats(v, j->n_dims, &out);
        str_add_char(&out, '}');
    }
    str_add(&out, "],\"model\":");
    json_add_cstr(&out, j->model->id);
    str_addf(&out, ",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}}",
             j->n_tokens, j->n_tokens);
    reply_json(r, 200, &out);
}

/* ---- the job ---- */

/* Scales to length 1; the zero vector stays zero. */
static int normalize(const float *from, uint32_t n, float *to, err *e) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)from[i] * (double)from[i];
    if (!isfinite(sum))
        return err_set(e, ERR_DEVICE, "the model computed a vector that is not finite");
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (uint32_t i = 0; i < n; i++)
        to[i] = (float)((double)from[i] * scale);
    return 0;
}

static int take_result(struct embed *j, struct slot *s, const struct engine_event *ev, err *e) {
    uint32_t n;
    const float *vector = engine_stream_embedding(s->stream, &n);
    if (!vector)
        return ev->error.code ? (*e = ev->error).code
                              : err_set(e, ERR_DEVICE, "the computation was interrupted");
    int rc = normalize(vector, j->n_dims, j->vectors + s->input * j->n_dims, e);
    engine_stream_free(s->stream);
    s->stream = NULL;
    j->n_done++;
    return rc;
}

/* Fills free slots with inputs. A full queue is an error only if none of this request's inputs is
 * in it, so that no result would trigger another try. */
static int submit_inputs(struct request *r, struct embed *j, err *e) {
    for (size_t i = 0; i < WINDOW && j->n_submitted < j->n; i++) {
        struct slot *s = &j->slots[i];
        if (s->stream) continue;
        const struct gen_prompt *p = &j->inputs[j->n_submitted];
        const struct engine_request q = {.prompt = p->ids,
                                         .n_prompt = (uint32_t)p->n,
                                         .n_choices = 1,
                                         .pooling = j->pooling,
                                         .params = j->params,
                                         .deadline_ns = r->deadline_ns,
                                         .notify = watch_notify,
                                         .notify_arg = &r->watched};
        int rc = engine_submit(j->model->engine, &q, &s->stream, e);
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
            reply_err(r, &e);
            return JOB_REPLY;
        }
    }
    if (j->n_done < j->n) return JOB_WAIT;
    if ((uint64_t)j->n * j->n_dims > DIRECT_FLOATS) return JOB_WORK;
    write_reply(r, j);
    return JOB_REPLY;
}

static void embed_work(struct request *r, void *job) {
    write_reply(r, job);
}

static const struct job_ops embed_ops = {
    .poll = embed_poll, .work = embed_work, .free = embed_free};

/* ---- start ---- */

static enum engine_pooling read_pooling(const struct fields *f, enum engine_pooling trained_for) {
    if (!f->pooling) return trained_for ? trained_for : ENGINE_POOLING_LAST;
    return !strcmp(f->pooling, "mean")  ? ENGINE_POOLING_MEAN
           : !strcmp(f->pooling, "cls") ? ENGINE_POOLING_CLS
                                        : ENGINE_POOLING_LAST;
}

/* Refuses a request whose answer would be too large, before anything is computed. */
static int check_size(const struct embed *j, err *e) {
    uint64_t row = j->base64 ? (uint64_t)j->n_dims * 16 / 3 + 4 : (uint64_t)j->n_dims * FLOAT_BYTES;
    if ((row + ROW_BYTES) * j->n < REPLY_MAX_BYTES - 4096) return 0;
    return err_set_param(
        e, ERR_INVALID, "input",
        "Invalid value for 'input': the answer could exceed %d MiB: send fewer inputs%s.",
        REPLY_MAX_BYTES >> 20, j->base64 ? "" : ", or request 'encoding_format' base64");
}

static int init_embed(struct request *r, struct embed *j, const struct fields *f, err *e) {
    engine *en = r->model->engine;
    uint32_t n_embd = engine_model(en).n_embd;
    if (f->has_dimensions && f->dimensions > n_embd)
        return err_set_param(
            e, ERR_INVALID, "dimensions",
            "Invalid value for 'dimensions': this model's vectors have %u dimensions.", n_embd);
    j->model = r->model;
    j->pooling = read_pooling(f, engine_model(en).pooling);
    j->base64 = f->encoding_format && !strcmp(f->encoding_format, "base64");
    j->n_dims = f->has_dimensions ? (uint32_t)f->dimensions : n_embd;
    const struct prompts_config config = {.param = "input",
                                          .tok = engine_tokenizer(en),
                                          .max_tokens = engine_context_length(en),
                                          .max = MAX_INPUTS,
                                          .no_empty = true};
    engine_params_default(&j->params);
    uint64_t begin_ns = clock_now_ns();
    int rc = limits_apply(r, f->cache_salt, &j->params, e);
    if (!rc) rc = prompts_read(&config, f->input, &j->inputs, &j->n, e);
    costs_add_part(r, PART_TOKENIZE, begin_ns);
    if (!rc) rc = check_size(j, e);
    if (rc) return rc;
    for (size_t i = 0; i < j->n; i++)
        j->n_tokens += j->inputs[i].n;
    r->prompt_tokens = j->n_tokens;
    if (!answers_hold(&r->http->answers, &j->hold, (uint64_t)j->n * j->n_dims * sizeof(float))) {
        reply_no_room(r);
        return err_set(e, ERR_NOMEM, "no room for the answer");
    }
    j->vectors = mem_new((uint64_t)j->n * j->n_dims, sizeof *j->vectors);
    return j->vectors ? 0 : err_no_memory(e);
}

static int answer_embeddings(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    int rc = gen_body_read(body, &embeddings_table, &f, e);
    if (!rc) rc = api_request_model(r, f.model, e);
    if (rc) return rc;
    struct embed *j = mem_new(1, sizeof *j);
    if (!j) return err_no_memory(e);
    j->http = r->http;
    rc = init_embed(r, j, &f, e);
    if (!rc) rc = submit_inputs(r, j, e);
    if (rc) {
        embed_free(j);
        return r->reply.status ? 0 : rc;
    }
    r->ops = &embed_ops;
    r->job = j;
    return 0;
}

static void handle_embeddings(struct request *r) {
    gen_handle(r, answer_embeddings);
}

const struct route embeddings_route = {"POST", "/v1/embeddings", ROUTE_GENERATE, handle_embeddings,
                                       .table = &embeddings_table};
