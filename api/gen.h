/* gen.h - one generation: from a parsed body to token events to JSON or SSE. Shared by the chat and
 * the completions endpoint, which differ in how they parse a prompt and write a choice.
 * Private to api/. Everything here runs on the connection's HTTP thread. */
#ifndef INFERD_API_GEN_H
#define INFERD_API_GEN_H

#include "api/api_int.h"
#include "api/json.h"

enum { GEN_MAX_STOPS = 16 };

/* Members of a request body after json_read; pointers borrow from the JSON tree. */
struct gen_fields {
    const char *model, *user;
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    int64_t top_k, seed, n, max_tokens, priority;
    bool has_seed, has_max_tokens;
    bool stream, ignore_eos;
    const cJSON *stop, *logit_bias, *stream_options;
    /* chat */
    const cJSON *messages, *chat_template_kwargs, *documents;
    const char *reasoning_effort;
    bool add_generation_prompt, has_add_generation_prompt, continue_final_message;
    int64_t max_completion_tokens, top_logprobs;
    bool has_max_completion_tokens, has_top_logprobs, logprobs;
    /* completions */
    const cJSON *prompt;
    int64_t n_logprobs;
    bool has_n_logprobs, echo;
};
void gen_fields_default(struct gen_fields *f);

/* Rows that both endpoints have. */
extern const struct json_table gen_table;

/* What the fields ask for, checked beyond types. */
struct gen_options {
    struct engine_params params; /* bias points to bias */
    struct engine_logit_bias bias[ENGINE_MAX_LOGIT_BIAS];
    const char *stops[GEN_MAX_STOPS]; /* borrowed from the tree */
    uint32_t n_stops;
    uint32_t n_choices;
    bool stream, include_usage;
    bool echo;      /* the prompt's text comes first */
    bool no_tokens; /* max_tokens 0: the prompt is only scored */
};
/* Fills o from f. n_vocab bounds logit_bias' ids. ERR_INVALID, ERR_UNSUPPORTED with the param. */
int gen_options_read(const struct gen_fields *f, int32_t n_vocab, struct gen_options *o, err *e);

struct gen;

struct gen_choice {
    uint32_t index, prompt;
    engine_stream *stream;
    engine_text *text_state;
    bool begun, stopped, done;
    str text;            /* not yet written */
    str logprobs[4];     /* JSON array members not yet written, in the endpoint's form */
    uint64_t n_logprobs; /* in there */
    uint64_t n_chars;    /* code points of all tokens so far: text_offset */
    uint64_t n_tokens;   /* completion tokens */
    const char *finish_reason;
};

struct gen_prompt {
    int32_t *ids; /* owned */
    size_t n;
    uint64_t n_cached;
};

/* How one endpoint writes. */
struct gen_writer {
    const char *id_prefix, *object, *chunk_object;
    const char *param; /* the field that a too long prompt is blamed on */
    /* A token's log-probabilities into c->logprobs. prompt: it is one of the prompt's; has_logprob
     * false: its first, which has none. */
    void (*logprob)(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                    bool has_logprob);
    /* The member of "choices" that opens a stream (role delta), or NULL. */
    void (*open)(struct gen *g, struct gen_choice *c, str *out);
    /* Members of "choices": text and logprobs that are pending; finish_reason when last. */
    void (*chunk)(struct gen *g, struct gen_choice *c, bool last, str *out);
    void (*whole)(struct gen *g, struct gen_choice *c, str *out);
};

struct gen {
    struct request *request;
    const struct gen_writer *writer;
    const struct api_model *model;
    const tokenizer *tok;
    struct gen_prompt *prompts;
    size_t n_prompts;
    struct gen_choice *choices;
    uint32_t n_choices; /* n_prompts * n */
    int n_logprobs;     /* as in engine_params */
    bool stream, include_usage, echo, no_tokens;
    str head; /* members before "choices", same in all chunks */
    str out;  /* SSE bytes not yet read */
    size_t out_pos;
    size_t n_held; /* bytes of a whole answer so far, all choices */
    bool begun, ended;
    err error; /* of a choice that failed */
};

struct gen_config {
    struct request *request;
    const struct api_model *model;
    const struct gen_writer *writer;
    const struct gen_options *options;
    struct gen_prompt *prompts; /* (n_prompts), taken also on failure */
    size_t n_prompts;
};
/* What both endpoints read first: their fields by table (the caller has set the defaults in
 * q->fields), the model that is asked for, the checked options. */
struct gen_request {
    struct gen_fields fields;
    struct gen_options options;
    const struct api_model *model;
};
int gen_request_read(struct request *r, const cJSON *body, const struct json_table *table,
                     struct gen_request *q, err *e);

/* Parses the request's body and hands it to run; what goes wrong becomes the error reply. */
void gen_handle(struct request *r, int (*run)(struct request *r, const cJSON *body, err *e));

/* Submits the prompts and attaches the job to the request. On failure nothing is left. */
int gen_start(const struct gen_config *config, err *e);
void gen_prompts_free(struct gen_prompt *prompts, size_t n);

/* chat_parse.c */
/* Rows of chat's own fields, chained to gen_table. */
extern const struct json_table chat_table;
/* Checks messages and makes the array that chat_prompt() gets: what a message may hold, nothing
 * else. The caller deletes *out. */
int chat_messages_read(const cJSON *messages, cJSON **out, err *e);

/* The other fields that a template sees, into in: documents (borrowed), the two ends of a prompt,
 * and extra: chat_template_kwargs, and reasoning_effort where the template looks at it. The caller
 * deletes *extra, which in borrows. chat NULL: no template (fuzzing). */
int chat_fields_read(const struct gen_fields *f, const chat_template *chat, struct chat_input *in,
                     cJSON **extra, err *e);

/* ep_completions.c */
extern const struct json_table completions_table;

/* sse.c: frames of a text/event-stream body */
void sse_open(str *s);  /* "data: " */
void sse_close(str *s); /* end of the event */
void sse_done(str *s);  /* data: [DONE] */
void sse_comment(str *s, const char *text);

#endif
