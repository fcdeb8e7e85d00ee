/* llamacpp.h - the routes of llama.cpp's server that are its own, translated to generations. */
#ifndef INFERD_API_LLAMACPP_LLAMACPP_H
#define INFERD_API_LLAMACPP_LLAMACPP_H

#include "api/generate/chat_request.h"
#include "api/generate/fields.h"
#include "api/generate/gen.h"
#include "api/http/error.h"

/* Members of a body of /completion or /infill; pointers borrow from the JSON tree. */
struct llama_fields {
    struct gen_fields gen; /* first: shared rows fill it */
    const cJSON *logit_bias, *samplers, *response_fields, *input_extra;
    const char *input_prefix, *input_suffix, *start; /* /infill; start is its "prompt" */
    int64_t n_probs, n_indent, t_max_predict_ms;
    bool return_tokens, timings_per_token;
};
extern const struct json_table llama_completion_table, llama_infill_table;
/* Of a member of input_extra: fills a struct tokenizer_chunk. */
extern const struct json_table llama_chunk_table;

/* What a body asks for. */
struct llama_body {
    struct llama_fields fields;
    struct gen_options options;
    struct chat_request form; /* the answer's grammar; llama_body_fini frees what it owns */
};
/* Reads a body by its table, with llama.cpp's defaults. Sets r->model. */
int llama_body_read(struct request *r, const cJSON *json, const struct json_table *table,
                    struct llama_body *b, err *e);
void llama_body_fini(struct llama_body *b);

/* ---- prompts.c ---- */

/* Reads "prompt": a text, token ids, both mixed, {"prompt_string"}, or an array of these. *many:
 * it was such an array. */
int llama_prompts_read(const struct request *r, const struct llama_fields *f,
                       struct gen_prompt **list, size_t *n, bool *many, err *e);
/* The prompt of /infill. */
int llama_infill_read(const struct request *r, const struct llama_body *b, struct gen_prompt **list,
                      err *e);

/* ---- writer.c ---- */

extern const struct gen_writer llama_writer;
/* Its state for n_choices answers. many: they are an array, even if there is one. ERR_NOMEM. */
int llama_state_new(const struct llama_body *b, uint32_t n_choices, bool many, void **out, err *e);

/* ---- settings.c ---- */

/* Appends the object of how an answer is generated, "generation_settings" or "params". stops,
 * grammar: with them. */
struct llama_settings {
    const struct engine_params *params;
    const char *const *stops; /* (n_stops) */
    uint32_t n_stops;
    int64_t n_predict, n_indent, t_max_predict_ms; /* n_predict -1: no limit */
    bool stream, timings_per_token;
    const struct chat_format *form; /* NULL: any text */
};
void llama_add_settings(const struct llama_settings *s, str *out);

/* llama.cpp's defaults where a request is silent and the model recommends nothing. */
void llama_sampling_default(struct gen_fields *f);

/* llama.cpp's form of errors, {"error":{"code":400,"message":"...","type":"..."}}. */
extern const struct protocol llama_protocol;
void llama_write_error(str *out, const struct api_error *error);

#endif
