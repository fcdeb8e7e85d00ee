/* fields.h - request fields that several endpoints share, and the checked options of a generation
 * that are made of them. Pool threads. */
#ifndef INFERD_API_GENERATE_FIELDS_H
#define INFERD_API_GENERATE_FIELDS_H

#include "api/http/json.h"
#include "core/engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

/* Each choice has its own copies of the stop strings. */
enum { GEN_MAX_STOPS = 16, GEN_MAX_STOP_BYTES = 4096 };

/* A sampling parameter (core/base/sampling.h) as a request field: its member of struct gen_fields,
 * and the type, bounds and help of its row in a table. */
#define GEN_C_REAL                                                       double
#define GEN_C_ABOVE                                                      double
#define GEN_C_COUNT                                                      int64_t
#define GEN_JSON_REAL                                                    JSON_NUMBER
#define GEN_JSON_ABOVE                                                   JSON_NUMBER
#define GEN_JSON_COUNT                                                   JSON_INT
#define GEN_SAMPLING_MEMBER(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP) GEN_C_##KIND NAME;
#define GEN_SAMPLING(KIND, LEAST, MOST, HELP)                                                      \
    .type = GEN_JSON_##KIND, .min = LEAST, .max = MOST, .help = HELP

struct ignored;

/* Members of a request body after json_read: the union over the endpoints that generate. Pointers
 * borrow from the JSON tree. */
struct gen_fields {
    const char *model, *cache_salt;
    const cJSON *user, *safety_identifier, *prompt_cache_key; /* of any type */
    SAMPLING_ROWS(GEN_SAMPLING_MEMBER, ) /* temperature, top_p, ...: double, or int64_t */
    struct sampling_has sent;            /* which of these the request has */
    int64_t seed, n, max_tokens, n_predict, priority;
    bool has_seed, has_max_tokens, has_n_predict; /* only if the client sent them */
    int64_t default_max_tokens; /* of requests and presets without one; below 0: no limit */
    bool zero_is_no_limit;      /* max_tokens 0, as below 0; otherwise it scores the prompt */
    bool stream, ignore_eos;
    const cJSON *stop, *logit_bias, *stream_options;
    const char *stop_name; /* in errors */
    /* chat */
    const cJSON *messages, *chat_template_kwargs, *documents;
    const char *reasoning_effort;
    const cJSON *reasoning, *think, *thinking;
    bool enable_thinking, has_enable_thinking;
    bool add_generation_prompt, has_add_generation_prompt, continue_final_message;
    int64_t max_completion_tokens, top_logprobs;
    const cJSON *tools, *tool_choice, *response_format;
    const cJSON *structured_outputs, *guided_json, *guided_choice, *json_schema;
    const char *guided_regex, *guided_grammar, *grammar;
    bool parallel_tool_calls, store;
    const cJSON *metadata;
    bool has_max_completion_tokens, has_top_logprobs, logprobs;
    /* completions */
    const cJSON *prompt;
    const char *suffix;
    int64_t n_logprobs, best_of;
    bool has_n_logprobs, has_best_of, echo, parse_special;
};
void gen_fields_default(struct gen_fields *f);
/* Puts the model's values where the request is silent; after json_read. */
void gen_fields_recommend(struct gen_fields *f, const struct sampling_recommended *r);

/* Rows of all of OpenAI's endpoints that generate: the model and how to sample. gen_table adds
 * those of chat and completions. */
extern const struct json_table gen_sampling_table, gen_table;
/* Fields of other servers: samplers; those and the rest, which gen_sampling_table ends with. */
extern const struct json_table gen_sampler_table, gen_peer_table;

/* Metadata that is stored with an answer; NULL: none. ERR_INVALID: not an object, U+0000, more
 * pairs or longer texts than OpenAI allows. */
int gen_metadata_check(const cJSON *metadata, err *e);
/* Metadata of an answer that is not stored, of any type: named unless it is empty. */
int gen_metadata_ignore(const cJSON *metadata, struct ignored *ignored, err *e);

/* What the fields ask for, checked beyond their types. */
struct gen_options {
    struct engine_params params; /* bias points to bias */
    struct engine_logit_bias bias[ENGINE_MAX_LOGIT_BIAS];
    const char *stops[GEN_MAX_STOPS]; /* (n_stops) borrowed from the tree */
    uint32_t n_stops;
    uint32_t n_choices;
    const char *cache_salt; /* borrowed from the tree; NULL: none */
    bool stream, include_usage, obfuscate;
    bool echo;      /* the answer begins with the prompt's text */
    bool no_tokens; /* max_tokens 0: the prompt is only scored */
};
/* Fills o from f. n_vocab bounds logit_bias' ids; ignored as in chat_request. ERR_INVALID,
 * ERR_UNSUPPORTED with the param. */
int gen_options_read(const struct gen_fields *f, int32_t n_vocab, struct ignored *ignored,
                     struct gen_options *o, err *e);

#endif
