/* trace_spans.c - spans of a request as OTLP's JSON (opentelemetry-proto, trace.proto): ids in hex,
 * 64-bit integers as strings, enums as numbers. Names are those of OpenTelemetry's semantic
 * conventions for HTTP servers and for generative AI; our own begin with "inferd.".
 *
 *   POST /v1/chat/completions   SERVER: from the request's head to the end of its answer
 *     chat MODEL                INTERNAL: from the first submission to the engine to the end
 *       queue                   of each sequence: until its first step
 *       prefill                 until its first token, or a pooled sequence's end
 *       decode                  until its end
 *         sampling              from its first token to its last; its time is an attribute, because
 *                               it is a sum of many short ones
 *
 * Owns nothing; any thread. */
#include "api/http/json.h"
#include "api/http/trace_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    KIND_INTERNAL = 1,
    KIND_SERVER = 2,
    STATUS_ERROR = 2,
    HAS_REMOTE = 0x100,
    IS_REMOTE = 0x200
};

/* One span that is being written. */
struct span {
    str *out;
    const struct trace *tr;
    int64_t wall_ns;
    bool any; /* an attribute was written */
};

/* ---- attributes ---- */

static void begin_attribute(struct span *s, const char *key, const char *type) {
    str_addf(s->out, "%s{\"key\":\"%s\",\"value\":{\"%s\":", s->any ? "," : "", key, type);
    s->any = true;
}

static void add_text(struct span *s, const char *key, const char *value) {
    if (!value || !*value) return;
    begin_attribute(s, key, "stringValue");
    json_add_cstr(s->out, value);
    str_add(s->out, "}}");
}

static void add_int(struct span *s, const char *key, int64_t value) {
    begin_attribute(s, key, "intValue");
    str_addf(s->out, "\"%" PRId64 "\"}}", value);
}

static void add_count(struct span *s, const char *key, uint64_t value) {
    add_int(s, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void add_double(struct span *s, const char *key, double value) {
    begin_attribute(s, key, "doubleValue");
    json_add_number(s->out, value);
    str_add(s->out, "}}");
}

static void add_bool(struct span *s, const char *key, bool value) {
    begin_attribute(s, key, "boolValue");
    str_addf(s->out, "%s}}", value ? "true" : "false");
}

/* ---- spans ---- */

static void add_id(str *out, const char *name, const uint8_t *bytes, size_t n) {
    char hex[2 * TRACE_ID_BYTES + 1];
    trace_hex(bytes, n, hex);
    str_addf(out, "\"%s\":\"%s\",", name, hex);
}

/* The id of the request's span number k: its own is 0, the others are made from it. Adding an odd
 * number to the last bytes gives each another id, and they stay as random as the first. */
static void span_id_of(const struct trace *tr, uint32_t k, uint8_t out[TRACE_SPAN_BYTES]) {
    uint32_t low;
    memcpy(out, tr->context.span_id, TRACE_SPAN_BYTES);
    memcpy(&low, out + TRACE_SPAN_BYTES - sizeof low, sizeof low);
    low += k * UINT32_C(2654435761);
    memcpy(out + TRACE_SPAN_BYTES - sizeof low, &low, sizeof low);
}

static uint64_t unix_ns(const struct span *s, uint64_t ns) {
    return (uint64_t)((int64_t)ns + s->wall_ns);
}

/* parent: the number of another span of the request; -1: the client's. name is plain or quoted by
 * the caller's choice: it is written as a JSON string. Attributes follow, then end_span. */
static void begin_span(struct span *s, uint32_t k, int parent, const char *name, uint64_t begin_ns,
                       uint64_t end_ns) {
    static const uint8_t none[TRACE_SPAN_BYTES];
    const struct trace_context *c = &s->tr->context;
    uint8_t id[TRACE_SPAN_BYTES], parent_id[TRACE_SPAN_BYTES];
    memcpy(parent_id, c->parent_id, sizeof parent_id);
    if (parent >= 0) span_id_of(s->tr, (uint32_t)parent, parent_id);
    span_id_of(s->tr, k, id);
    str_add_char(s->out, '{');
    add_id(s->out, "traceId", c->trace_id, TRACE_ID_BYTES);
    add_id(s->out, "spanId", id, TRACE_SPAN_BYTES);
    bool has_parent = memcmp(parent_id, none, sizeof none) != 0;
    if (has_parent) add_id(s->out, "parentSpanId", parent_id, TRACE_SPAN_BYTES);
    if (*s->tr->state) {
        str_add(s->out, "\"traceState\":");
        json_add_cstr(s->out, s->tr->state);
        str_add_char(s->out, ',');
    }
    unsigned remote = HAS_REMOTE | (parent < 0 && has_parent ? (unsigned)IS_REMOTE : 0);
    str_add(s->out, "\"name\":");
    json_add_cstr(s->out, name);
    str_addf(s->out,
             ",\"kind\":%d,\"flags\":%u,\"startTimeUnixNano\":\"%" PRIu64
             "\",\"endTimeUnixNano\":\"%" PRIu64 "\",\"attributes\":[",
             k ? KIND_INTERNAL : KIND_SERVER, c->flags | remote, unix_ns(s, begin_ns),
             unix_ns(s, end_ns > begin_ns ? end_ns : begin_ns));
    s->any = false;
}

static void end_span(struct span *s, bool failed) {
    str_add_char(s->out, ']');
    if (failed) str_addf(s->out, ",\"status\":{\"code\":%d}", STATUS_ERROR);
    str_add_char(s->out, '}');
}

static unsigned status_of(const struct trace *tr) {
    return tr->late_status ? tr->late_status : tr->status;
}

static bool has_failed(const struct trace *tr) {
    return status_of(tr) >= 500;
}

/* An answer that the client did not wait for is no error of the server. */
static void add_error(struct span *s) {
    char code[32] = "client_disconnected";
    if (!s->tr->cut && !has_failed(s->tr)) return;
    if (!s->tr->cut) snprintf(code, sizeof code, "%u", status_of(s->tr));
    add_text(s, "error.type", code);
}

static void add_server_span(struct span *s) {
    const struct trace *tr = s->tr;
    str name;
    str_init(&name, 512);
    str_addf(&name, "%s %s", tr->method, tr->route);
    begin_span(s, 0, -1, str_cstr(&name), tr->start_ns, tr->end_ns);
    str_fini(&name);
    add_text(s, "http.request.method", tr->method);
    add_text(s, "http.route", tr->route);
    add_text(s, "url.path", tr->path);
    add_text(s, "url.scheme", tr->tls ? "https" : "http");
    if (tr->status) add_int(s, "http.response.status_code", tr->status);
    add_text(s, "client.address", tr->client);
    add_text(s, "user_agent.original", tr->agent);
    add_error(s);
    add_text(s, "inferd.request.id", tr->id);
    add_text(s, "inferd.key.name", tr->key);
    end_span(s, has_failed(tr));
}

static uint32_t n_with_spans(const struct trace *tr) {
    return tr->n_sequences < TRACE_SEQUENCES ? (uint32_t)tr->n_sequences : TRACE_SEQUENCES;
}

static void add_finish_reasons(struct span *s) {
    bool any = false;
    for (uint32_t i = 0; i < n_with_spans(s->tr); i++) {
        if (!s->tr->sequences[i].finish) continue;
        if (!any) begin_attribute(s, "gen_ai.response.finish_reasons", "arrayValue");
        str_addf(s->out, "%s{\"stringValue\":\"%s\"}", any ? "," : "{\"values\":[",
                 s->tr->sequences[i].finish);
        any = true;
    }
    if (any) str_add(s->out, "]}}}");
}

static void add_params(struct span *s) {
    const struct trace_params *p = &s->tr->params;
    if (p->n_choices > 1) add_count(s, "gen_ai.request.choice.count", p->n_choices);
    if (p->max_tokens) add_count(s, "gen_ai.request.max_tokens", p->max_tokens);
    add_double(s, "gen_ai.request.temperature", p->temperature);
    add_double(s, "gen_ai.request.top_p", p->top_p);
    if (p->top_k) add_double(s, "gen_ai.request.top_k", (double)p->top_k);
    if (p->frequency_penalty != 0)
        add_double(s, "gen_ai.request.frequency_penalty", p->frequency_penalty);
    if (p->presence_penalty != 0)
        add_double(s, "gen_ai.request.presence_penalty", p->presence_penalty);
    if (p->has_seed) add_int(s, "gen_ai.request.seed", p->seed);
    add_bool(s, "gen_ai.request.stream", p->stream);
}

/* The earliest submission. */
static uint64_t model_begin(const struct trace *tr) {
    uint64_t begin = tr->end_ns;
    for (uint32_t i = 0; i < n_with_spans(tr); i++)
        if (tr->sequences[i].submitted_ns < begin) begin = tr->sequences[i].submitted_ns;
    return begin;
}

static void add_model_span(struct span *s) {
    const struct trace *tr = s->tr;
    str name;
    str_init(&name, 256);
    str_addf(&name, "%s %s", tr->operation, tr->model);
    begin_span(s, 1, 0, str_cstr(&name), model_begin(tr), tr->end_ns);
    str_fini(&name);
    add_text(s, "gen_ai.operation.name", tr->operation);
    add_text(s, "gen_ai.provider.name", "inferd");
    add_text(s, "gen_ai.request.model", tr->model);
    add_text(s, "gen_ai.response.model", tr->model);
    add_text(s, "gen_ai.response.id", tr->answer_id);
    add_count(s, "gen_ai.usage.input_tokens", tr->prompt_tokens);
    add_count(s, "gen_ai.usage.cache_read.input_tokens", tr->cached_tokens);
    if (tr->params.n_choices) {
        add_count(s, "gen_ai.usage.output_tokens", tr->completion_tokens);
        add_params(s);
        add_finish_reasons(s);
    }
    add_count(s, "inferd.sequences", tr->n_sequences);
    add_error(s);
    end_span(s, has_failed(tr));
}

static uint64_t end_of(const struct trace *tr, const struct trace_sequence *q) {
    return q->ended_ns ? q->ended_ns : tr->end_ns;
}

enum { SPANS_BEFORE = 2, SPANS_OF_SEQUENCE = 4 };

static void add_sequence(struct span *s, uint32_t i) {
    const struct trace_sequence *q = &s->tr->sequences[i];
    const uint32_t first = SPANS_BEFORE + i * SPANS_OF_SEQUENCE;
    const uint64_t end = end_of(s->tr, q);
    str_add_char(s->out, ',');
    begin_span(s, first, 1, "queue", q->submitted_ns, q->admitted_ns ? q->admitted_ns : end);
    add_count(s, "inferd.sequence", i);
    end_span(s, false);
    if (!q->admitted_ns) return;
    str_add_char(s->out, ',');
    begin_span(s, first + 1, 1, "prefill", q->admitted_ns,
               q->first_token_ns ? q->first_token_ns : end);
    add_count(s, "inferd.sequence", i);
    add_count(s, "inferd.prompt_tokens", q->prompt_tokens);
    add_count(s, "inferd.cached_tokens", q->cached_tokens);
    end_span(s, false);
    if (!q->first_token_ns) return;
    str_add_char(s->out, ',');
    begin_span(s, first + 2, 1, "decode", q->first_token_ns, end);
    add_count(s, "inferd.sequence", i);
    add_count(s, "inferd.generated_tokens", q->generated_tokens);
    add_text(s, "inferd.finish_reason", q->finish);
    end_span(s, false);
    str_add_char(s->out, ',');
    begin_span(s, first + 3, (int)first + 2, "sampling", q->first_token_ns, q->last_token_ns);
    add_count(s, "inferd.sequence", i);
    add_double(s, "inferd.sampling.seconds", (double)q->sampling_ns * 1e-9);
    end_span(s, false);
}

uint32_t trace_n_spans(const struct trace *tr) {
    uint32_t n = tr->operation ? 2 : 1;
    for (uint32_t i = 0; tr->operation && i < n_with_spans(tr); i++) {
        const struct trace_sequence *q = &tr->sequences[i];
        n += 1u + (q->admitted_ns != 0) + (q->admitted_ns && q->first_token_ns ? 2u : 0u);
    }
    return n;
}

static void add_resource(str *out, const struct trace_origin *origin) {
    struct span s = {.out = out};
    str_add(out, "\"resource\":{\"attributes\":[");
    add_text(&s, "service.name", "inferd");
    add_text(&s, "service.version", origin->version);
    add_text(&s, "service.instance.id", origin->instance);
    str_add(out, "]},");
}

void trace_add_request(str *out, const struct trace_origin *origin, const struct trace *list,
                       int64_t wall_ns) {
    str_add(out, "{\"resourceSpans\":[{");
    add_resource(out, origin);
    str_add(out, "\"scopeSpans\":[{\"scope\":{\"name\":\"inferd\",\"version\":");
    json_add_cstr(out, origin->version);
    str_add(out, "},\"spans\":[");
    for (const struct trace *tr = list; tr; tr = tr->next) {
        struct span s = {.out = out, .tr = tr, .wall_ns = wall_ns};
        if (tr != list) str_add_char(out, ',');
        add_server_span(&s);
        if (!tr->operation) continue;
        str_add_char(out, ',');
        add_model_span(&s);
        for (uint32_t i = 0; i < n_with_spans(tr); i++)
            add_sequence(&s, i);
    }
    str_add(out, "]}]}]}");
}
