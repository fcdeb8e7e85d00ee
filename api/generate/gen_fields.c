/* gen_fields.c - see fields.h: the table of shared fields, and the checks that a table cannot
 * express. Owns nothing; pool threads. */
#include "api/generate/fields.h"
#include "api/http/ignored.h"

#include "core/text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct gen_fields, member)
#define HAS(member) .has = 1 + offsetof(struct gen_fields, member)

#define SAMPLING(FLAGS, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                    \
    {                                                                                              \
        .name = #NAME, .flags = FLAGS, AT(NAME), HAS(sent.NAME), .initial = #INITIAL,              \
        GEN_SAMPLING(KIND, LEAST, MOST, HELP)                                                      \
    }

enum { NUL = JSON_NULLABLE };

struct stream_options {
    bool include_usage, include_obfuscation;
};

static const struct json_field stream_fields[] = {
    {"include_usage", JSON_BOOL, .offset = offsetof(struct stream_options, include_usage),
     .initial = "false", .help = "Adds a last chunk without choices that has the usage."},
    {"include_obfuscation", JSON_BOOL,
     .offset = offsetof(struct stream_options, include_obfuscation), .initial = "false",
     .help = "Adds random characters to each chunk that hide the length of its text."},
};
static const struct json_table stream_table = JSON_TABLE(stream_fields, NULL);

/* priority and the fields after it are extensions that other servers have too. */
static const struct json_field fields[] = {
    {"model", JSON_STRING, NUL, AT(model),
     .help = "Id or alias of a served model, see GET /v1/models; optional if only one is served."},
    SAMPLING_TEMPERATURE(SAMPLING, NUL),
    SAMPLING_TOP_P(SAMPLING, NUL),
    {"seed", JSON_INT, NUL, AT(seed), HAS(has_seed), -9223372036854775808.0, 9223372036854775808.0,
     .help = "The same seed gives the same answer; all 64 bits are used."},
    {"stop", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_ARRAY, AT(stop),
     .help = "Up to 16 stop strings of at most 4096 bytes each; the answer ends before them."},
    SAMPLING_PRESENCE_PENALTY(SAMPLING, NUL),
    SAMPLING_FREQUENCY_PENALTY(SAMPLING, NUL),
    {"logit_bias", JSON_OBJECT, NUL, AT(logit_bias),
     .help = "Maps up to 1024 token ids to biases from -100 to 100."},
    {"stream", JSON_BOOL, NUL, AT(stream), .initial = "false"},
    {"user", JSON_ADVISORY, NUL | JSON_KEPT, AT(user), .why = "answers do not depend on the user"},
    {"priority", JSON_INT, NUL, AT(priority), .min = -1000, .max = 1000, .initial = "0",
     .help = "Higher priorities are scheduled first and preempted last; values above the server's "
             "limit are refused."},
    {"cache_salt", JSON_STRING, NUL, AT(cache_salt), .min = 1,
     .help = "Only requests with the same salt (and API key) share cached prompts."},
    SAMPLING_TOP_K(SAMPLING, NUL),
    SAMPLING_MIN_P(SAMPLING, NUL),
    SAMPLING_REPETITION_PENALTY(SAMPLING, NUL),
    {"ignore_eos", JSON_BOOL, NUL, AT(ignore_eos), .initial = "false",
     .help = "Continues after an end-of-answer token."},
};
const struct json_table gen_sampling_table = JSON_TABLE(fields, &gen_peer_table);

static const struct json_field choice_fields[] = {
    {"n", JSON_INT, NUL, AT(n), .min = 1, .max = ENGINE_MAX_CHOICES, .initial = "1",
     .help = "Choices per prompt."},
    {"stream_options", JSON_OBJECT, NUL, AT(stream_options), .table = &stream_table,
     .help = "Ignored without stream."},
};
const struct json_table gen_table = JSON_TABLE(choice_fields, &gen_sampling_table);

#define SET_DEFAULT(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP) f->NAME = INITIAL;
void gen_fields_default(struct gen_fields *f) {
    memset(f, 0, sizeof *f);
    SAMPLING_ROWS(SET_DEFAULT, )
    f->n = 1;
    f->default_max_tokens = -1;
    f->parallel_tool_calls = true;
    f->parse_special = true;
    f->stop_name = "stop";
}

/* A float's shortest decimal: 0.9, not 0.89999998. */
static double shortest_double(float v) {
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)v);
    return strtod(text, NULL);
}

#define RECOMMENDED_REAL(v)  shortest_double(v)
#define RECOMMENDED_ABOVE(v) shortest_double(v)
#define RECOMMENDED_COUNT(v) (v)
#define RECOMMEND(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                     \
    if (!f->sent.NAME && r->has.NAME) f->NAME = RECOMMENDED_##KIND(r->values.NAME);
void gen_fields_recommend(struct gen_fields *f, const struct sampling_recommended *r) {
    SAMPLING_ROWS(RECOMMEND, )
}

static int add_stop(const cJSON *v, const char *name, struct gen_options *o, err *e) {
    if (!cJSON_IsString(v)) return json_wrong_type(name, "a string", v, e);
    if (!*v->valuestring) return 0; /* clients send it for no stop string */
    if (strlen(v->valuestring) > GEN_MAX_STOP_BYTES)
        return err_set_param(e, ERR_INVALID, name, "Invalid value for '%s': at most %d bytes.",
                             name, GEN_MAX_STOP_BYTES);
    o->stops[o->n_stops++] = v->valuestring;
    return 0;
}

static int read_stop(const cJSON *stop, const char *field, struct gen_options *o, err *e) {
    if (!stop) return 0;
    if (cJSON_IsString(stop)) return add_stop(stop, field, o, e);
    int i = 0;
    for (const cJSON *v = stop->child; v; v = v->next) {
        if (i == GEN_MAX_STOPS)
            return err_set_param(e, ERR_INVALID, field,
                                 "Invalid value for '%s': at most %d strings.", field,
                                 GEN_MAX_STOPS);
        char name[JSON_PATH_BYTES];
        json_path(name, "%s[%d]", field, i++);
        int rc = add_stop(v, name, o, e);
        if (rc) return rc;
    }
    return 0;
}

static int read_bias(const cJSON *map, int32_t n_vocab, struct gen_options *o, err *e) {
    static const char name[] = "logit_bias";
    if (!map) return 0;
    uint32_t n = 0;
    for (const cJSON *v = map->child; v; v = v->next) {
        char *end;
        long id = strtol(v->string, &end, 10);
        bool digits = *v->string && strspn(v->string, "0123456789") == strlen(v->string);
        if (!digits || *end || id < 0 || id >= n_vocab)
            return err_set_param(e, ERR_INVALID, name,
                                 "Invalid key in 'logit_bias': \"%.40s\" is not a token id of "
                                 "this model (0 to %d).",
                                 v->string, (int)n_vocab - 1);
        if (!cJSON_IsNumber(v) || v->valuedouble < -100 || v->valuedouble > 100)
            return err_set_param(e, ERR_INVALID, name,
                                 "Invalid value in 'logit_bias': the bias of token %ld must be a "
                                 "number between -100 and 100.",
                                 id);
        if (n == ENGINE_MAX_LOGIT_BIAS)
            return err_set_param(e, ERR_INVALID, name,
                                 "Invalid value for 'logit_bias': at most %d tokens.",
                                 ENGINE_MAX_LOGIT_BIAS);
        o->bias[n].token = (int32_t)id;
        o->bias[n++].bias = (float)v->valuedouble;
    }
    o->params.bias = o->bias;
    o->params.n_bias = n;
    return 0;
}

static int read_stream_options(const struct gen_fields *f, struct ignored *ignored,
                               struct gen_options *o, err *e) {
    if (!f->stream_options) return 0;
    if (!f->stream && f->stream_options->child) return ignored_add(ignored, "stream_options", e);
    struct stream_options so = {0};
    int rc = json_read(f->stream_options, &stream_table, "stream_options.", &so, e);
    o->include_usage = so.include_usage;
    o->obfuscate = so.include_obfuscation;
    return rc;
}

/* One limit with three names, of which a request may send several if they say the same. */
static int read_max_tokens(const struct gen_fields *f, struct gen_options *o, err *e) {
    const struct limit {
        const char *name;
        bool sent;
        int64_t value;
    } limits[] = {
        {"max_tokens", f->has_max_tokens, f->max_tokens},
        {"max_completion_tokens", f->has_max_completion_tokens, f->max_completion_tokens},
        {"n_predict", f->has_n_predict, f->n_predict},
    };
    const struct limit *one = NULL;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct limit *other = &limits[i];
        if (!other->sent) continue;
        bool both_none = one && one->value < 0 && other->value < 0;
        if (one && one->value != other->value && !both_none)
            return err_set_param(e, ERR_INVALID, one->name,
                                 "'%s' and '%s' mean the same: send only one, or equal values.",
                                 one->name, other->name);
        one = other;
    }
    int64_t max = one ? one->value : f->default_max_tokens;
    if (max == 0 && f->zero_is_no_limit && !f->has_n_predict) max = -1;
    o->no_tokens = max == 0;
    o->params.max_tokens = max < 0 ? 0 : max ? (uint32_t)max : 1;
    return 0;
}

static int read_logprobs(const struct gen_fields *f, struct gen_options *o, err *e) {
    o->params.n_logprobs = -1;
    if (f->has_n_logprobs) o->params.n_logprobs = (int)f->n_logprobs;
    if (f->logprobs) o->params.n_logprobs = (int)f->top_logprobs;
    if (f->has_top_logprobs && f->top_logprobs && !f->logprobs)
        return err_set_param(e, ERR_INVALID, "top_logprobs",
                             "'top_logprobs' is only allowed when 'logprobs' is true.");
    o->params.prompt_logprobs = f->echo && o->params.n_logprobs >= 0;
    return 0;
}

#define TAKE_REAL(v)  (float)(v)
#define TAKE_ABOVE(v) (float)(v)
#define TAKE_COUNT(v) (v) < 0 ? 0 : (uint32_t)(v)
#define TAKE_SAMPLING(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                 \
    p->sampling.NAME = TAKE_##KIND(f->NAME);
int gen_options_read(const struct gen_fields *f, int32_t n_vocab, struct ignored *ignored,
                     struct gen_options *o, err *e) {
    memset(o, 0, sizeof *o);
    struct engine_params *p = &o->params;
    engine_params_default(p);
    SAMPLING_ROWS(TAKE_SAMPLING, )
    p->seed = f->seed;
    p->has_seed = f->has_seed;
    p->ignore_eos = f->ignore_eos;
    p->priority = (int)f->priority;
    o->n_choices = (uint32_t)f->n;
    o->cache_salt = f->cache_salt;
    o->stream = f->stream;
    o->echo = f->echo;
    if (!(p->sampling.top_p > 0))
        return err_set_param(e, ERR_INVALID, "top_p",
                             "Invalid value for 'top_p': must be greater than 0 and at most 1.");
    int rc = read_max_tokens(f, o, e);
    if (!rc) rc = read_logprobs(f, o, e);
    if (!rc) rc = read_stop(f->stop, f->stop_name, o, e);
    if (!rc) rc = read_bias(f->logit_bias, n_vocab, o, e);
    if (!rc) rc = read_stream_options(f, ignored, o, e);
    return rc;
}

/* ---- metadata ---- */

enum { MAX_PAIRS = 16, MAX_KEY = 64, MAX_VALUE = 512 };

int gen_metadata_check(const cJSON *metadata, err *e) {
    int n = 0;
    if (metadata && !cJSON_IsObject(metadata))
        return json_wrong_type("metadata", "an object", metadata, e);
    if (metadata && json_holds_nul(metadata))
        return err_set_param(e, ERR_INVALID, "metadata",
                             "Invalid value for 'metadata': it must not contain the character "
                             "U+0000 (\\u0000).");
    for (const cJSON *v = metadata ? metadata->child : NULL; v; v = v->next) {
        char name[JSON_PATH_BYTES];
        json_path(name, "metadata.%s", v->string);
        if (++n > MAX_PAIRS)
            return err_set_param(e, ERR_INVALID, "metadata",
                                 "Invalid value for 'metadata': at most %d pairs.", MAX_PAIRS);
        if (utf8_count(v->string, strlen(v->string)) > MAX_KEY)
            return err_set_param(e, ERR_INVALID, "metadata",
                                 "Invalid key in 'metadata': at most %d characters.", MAX_KEY);
        if (!cJSON_IsString(v)) return json_wrong_type(name, "a string", v, e);
        if (utf8_count(v->valuestring, strlen(v->valuestring)) > MAX_VALUE)
            return err_set_param(e, ERR_INVALID, name,
                                 "Invalid value for '%s': at most %d characters.", name, MAX_VALUE);
    }
    return 0;
}

int gen_metadata_ignore(const cJSON *metadata, struct ignored *ignored, err *e) {
    static const struct json_field field = {.name = "metadata", .type = JSON_ADVISORY};
    if (!metadata || json_is_harmless(&field, metadata)) return 0;
    return ignored_add(ignored, "metadata", e);
}
