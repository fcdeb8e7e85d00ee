/* gen.h - one generation: from prompts to token events to pieces of answers, which the endpoint's
 * writer puts into JSON or a stream. Shared by all endpoints that generate, which differ in how
 * they read a body and write an answer. Private to api/. What begins a generation runs on a thread
 * of the work pool, and so does its end where that may take long; the rest on the connection's HTTP
 * thread. */
#ifndef INFERD_API_GENERATE_GEN_H
#define INFERD_API_GENERATE_GEN_H

#include "api/api_int.h"
#include "api/generate/resume.h"
#include "api/http/json.h"
#include "core/chat/syntax.h"

/* Each choice has its own copies of the stop strings. */
enum { GEN_MAX_STOPS = 16, GEN_MAX_STOP_BYTES = 4096 };
#define GEN_EVENT_STREAM "text/event-stream; charset=utf-8"

/* Members of a request body after json_read; pointers borrow from the JSON tree. */
struct gen_fields {
    const char *model, *user, *safety_identifier, *prompt_cache_key, *cache_salt;
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    int64_t top_k, seed, n, max_tokens, priority;
    bool has_seed, has_max_tokens;
    bool stream, ignore_eos;
    const cJSON *stop, *logit_bias, *stream_options;
    const char *stop_name; /* in errors */
    /* chat */
    const cJSON *messages, *chat_template_kwargs, *documents;
    const char *reasoning_effort;
    bool add_generation_prompt, has_add_generation_prompt, continue_final_message;
    int64_t max_completion_tokens, top_logprobs;
    const cJSON *tools, *tool_choice, *response_format;
    const cJSON *structured_outputs, *guided_json, *guided_choice;
    const char *guided_regex, *guided_grammar;
    bool parallel_tool_calls;
    bool has_max_completion_tokens, has_top_logprobs, logprobs;
    /* completions */
    const cJSON *prompt;
    const char *suffix;
    int64_t n_logprobs, best_of;
    bool has_n_logprobs, has_best_of, echo;
};
void gen_fields_default(struct gen_fields *f);

/* Rows that all of OpenAI's endpoints have which generate: the model and how to sample; and those
 * of chat and completions. */
extern const struct json_table gen_sampling_table, gen_table;

/* What the fields ask for, checked beyond types. */
struct gen_options {
    struct engine_params params; /* bias points to bias */
    struct engine_logit_bias bias[ENGINE_MAX_LOGIT_BIAS];
    const char *stops[GEN_MAX_STOPS]; /* borrowed from the tree */
    uint32_t n_stops;
    uint32_t n_choices;
    const char *cache_salt; /* borrowed from the tree; NULL: none */
    bool stream, include_usage, obfuscate;
    bool echo;      /* the prompt's text comes first */
    bool no_tokens; /* max_tokens 0: the prompt is only scored */
};
/* Fills o from f. n_vocab bounds logit_bias' ids. ERR_INVALID, ERR_UNSUPPORTED with the param. */
int gen_options_read(const struct gen_fields *f, int32_t n_vocab, struct gen_options *o, err *e);

struct gen;

/* A piece of an answer. Pieces of one kind come one after the other until the kind changes; the
 * pieces of a call follow its GEN_CALL. */
enum gen_piece_kind {
    GEN_TEXT,      /* of the answer */
    GEN_REASONING, /* what a reasoning model thinks before it */
    GEN_CALL,      /* a tool call begins: choice->calls[call] has its name and id; no text */
    GEN_ARGUMENTS  /* JSON text of that call's arguments */
};
struct gen_piece {
    enum gen_piece_kind kind;
    const char *text; /* (n) whole UTF-8 characters; n may be 0 where only log-probabilities come */
    size_t n;
    uint32_t call; /* GEN_CALL, GEN_ARGUMENTS: index in choice->calls */
};

struct gen_call {
    char id[48]; /* "call_..." */
    char *name;
    str arguments; /* so far, JSON */
};

enum gen_finish { GEN_FINISH_STOP, GEN_FINISH_LENGTH, GEN_FINISH_TOOL_CALLS };

struct gen_choice {
    uint32_t index, prompt;
    engine_stream *stream;
    int32_t *taken; /* (n_taken) tokens whose events were taken, where the stream resumes */
    uint32_t n_taken, taken_capacity;
    uint64_t seed; /* that its sequence draws with */
    engine_text *text_state;
    chat_parser *parser;        /* takes the answer apart; NULL: all is text */
    engine_text *stop_text;     /* with a parser: stop strings, in its text alone */
    size_t content_logprobs[4]; /* with a parser: of logprobs, what belongs to its text */
    uint64_t n_content_logprobs;
    bool begun, stopped, done;
    bool drops_space;       /* the text's first token loses a leading space; not once it came */
    str text, reasoning;    /* of a whole answer: all of it; of a stream: not yet written */
    struct gen_call *calls; /* (n_calls) */
    uint32_t n_calls;
    str logprobs[4];           /* JSON array members not yet written, in the endpoint's form */
    uint64_t n_logprobs;       /* in there */
    uint64_t n_chars;          /* code points of all tokens so far: text_offset */
    uint64_t n_tokens;         /* completion tokens */
    uint64_t n_reasoning;      /* of them in reasoning */
    enum gen_finish finish;    /* when done */
    const char *stop_sequence; /* that ended it, borrowed from its state; NULL: none */
};

struct gen_prompt {
    int32_t *ids; /* owned */
    size_t n;
    bool text;   /* encoded from a text: its control tokens are the tokenizer's own */
    bool infill; /* it stands around the answer, whose first space is its own */
    uint64_t n_cached;
};

/* How one endpoint writes. Members that do not apply are NULL. In a stream the order is begin,
 * then for each choice open, pieces, close, then end; or fail at any place. All append whole frames
 * (gen_frame_open, gen_frame_close; or lines) to out. */
struct gen_writer {
    const char *content_type; /* of a stream */
    bool stores;              /* end, fail and whole may wait for a disk */
    const char *param;        /* the field that a too long prompt is blamed on */
    /* A token's log-probabilities into c->logprobs. has_logprob false: the first of a prompt, which
     * has none. */
    void (*logprob)(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                    bool has_logprob);
    void (*begin)(struct gen *g, str *out);
    void (*open)(struct gen *g, struct gen_choice *c, str *out);
    /* c->logprobs has what came with the piece. */
    void (*piece)(struct gen *g, struct gen_choice *c, const struct gen_piece *piece, str *out);
    void (*close)(struct gen *g, struct gen_choice *c, str *out);
    void (*end)(struct gen *g, str *out);
    void (*fail)(struct gen *g, const struct api_error *error, str *out);
    void (*keepalive)(struct gen *g, str *out);
    /* The body of an answer that is not streamed. */
    void (*whole)(struct gen *g, str *out);
    /* Frees gen.state. */
    void (*free)(void *state);
};

struct gen {
    api *api;
    struct request *request;
    const struct gen_writer *writer;
    void *state; /* the writer's own, or NULL */
    const struct api_model *model;
    const tokenizer *tok;
    struct gen_prompt *prompts;
    size_t n_prompts;
    struct gen_choice *choices;
    uint32_t n_choices; /* n_prompts * n */
    int n_logprobs;     /* as in engine_params */
    bool stream, include_usage, obfuscate, echo, no_tokens;
    char id[48]; /* of the answer */
    int64_t created_s;
    str head;          /* gen_add_head's, made once: every chunk begins with it */
    uint64_t first_ns; /* when the first event came; 0: not yet */
    uint64_t n_frames; /* written: their id: lines are "ID:NUMBER" */
    str out;           /* bytes not yet read */
    size_t out_pos;
    size_t n_held; /* bytes of a whole answer so far, all choices; of what the writer keeps */
    struct answer_hold hold; /* of n_held and what is kept of a stream */
    bool begun, ended;
    err error;    /* of a choice that failed */
    bool no_room; /* which is that answers.h has no room */
    bool resumes; /* it is in the list of resume.h */
    struct resumable kept;
    struct engine_params params; /* of its engine requests; bias is its own, where it resumes */
    str sent;                    /* the last frames that were read, where it resumes */
};

struct gen_config {
    struct request *request;
    const struct api_model *model;
    const struct gen_writer *writer;
    void *state;           /* taken, also on failure */
    const char *id_prefix; /* "chatcmpl-" */
    const struct gen_options *options;
    struct gen_prompt *prompts; /* (n_prompts), taken also on failure */
    size_t n_prompts;
    size_t n_state_bytes; /* that state holds already, beside the body that it was made of */
    const struct chat_parser_config *parser; /* how answers are taken apart; NULL: they are text */
};

/* Frees a generation that no request has. */
void gen_free(void *job);
/* The final event of a choice that stopped before its last token's event came. */
void gen_end_choice(struct gen *g, struct gen_choice *c);
/* g becomes r's job. */
void gen_join(struct gen *g, struct request *r);

/* logprobs.c: a writer's logprob: {"token","logprob","bytes","top_logprobs"} into c->logprobs[0].
 */
void gen_chat_logprob(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                      bool has_logprob);

/* gen_answer.c: answers that a parser takes apart. Each adds to the choice or, in a stream, writes.
 */
int gen_answer_init(struct gen_choice *c, const struct chat_parser_config *parser,
                    const struct gen_options *o, err *e);
bool gen_answer_take(struct gen *g, struct gen_choice *c, int32_t token); /* true: it stopped */
void gen_answer_finish(struct gen *g, struct gen_choice *c);
/* gen.c: counts what g holds now; without room for it g fails, or cannot be resumed any more. */
void gen_count_held(struct gen *g);
/* gen.c: writes the text and log-probabilities that wait. */
void gen_write_text(struct gen *g, struct gen_choice *c);

struct gen_usage {
    uint64_t prompt, completion, cached, reasoning; /* tokens */
};
struct gen_usage gen_usage_of(const struct gen *g);
/* "usage":{...} as chat and completions have it. */
void gen_add_usage(const struct gen *g, str *out);
/* {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":..., - of one object for a
 * whole generation. */
void gen_add_head(struct gen *g, const char *object, str *out);
const char *gen_finish_name(enum gen_finish finish); /* OpenAI's word */
/* Are the call's arguments a JSON object? Not where the end of the answer cut them off. */
bool gen_call_is_whole(const struct gen_call *call);

/* A server-sent event with its id; event NULL: without a name. */
void gen_frame_open(struct gen *g, const char *event, str *out);
void gen_frame_close(str *out);
/* ,"obfuscation":"..." where the client asked for it: random characters that make up for the length
 * of a text of n bytes. */
void gen_add_padding(const struct gen *g, size_t n, str *out);
/* The end of an OpenAI stream that failed; data: [DONE]; a comment. */
void gen_frame_error(struct gen *g, const struct api_error *error, str *out);
void gen_frame_done(str *out);
void gen_frame_comment(struct gen *g, str *out);

/* What both endpoints read first: their fields by table (the caller has set the defaults in
 * q->fields), the model that is asked for, the checked options. */
struct gen_request {
    struct gen_fields fields;
    struct gen_options options;
    const struct api_model *model;
};
int gen_request_read(struct request *r, const cJSON *body, const struct json_table *table,
                     struct gen_request *q, err *e);

/* A body that is read by its table alone. */
int gen_body_read(const cJSON *body, const struct json_table *table, void *out, err *e);

/* A list of token ids, each below n_vocab, into p->ids, which the caller frees; the empty one too.
 * ERR_INVALID blames param. */
int gen_ids_read(const cJSON *array, const char *param, int32_t n_vocab, struct gen_prompt *p,
                 err *e);

/* p's ids as a JSON array. */
void gen_add_ids(const struct gen_prompt *p, str *out);
/* 200 with body, which is taken. ERR_INVALID when it broke its bound: the request asked for it. */
int gen_reply_bounded(struct request *r, str *body, err *e);

/* Parses the request's body and hands it to run; what goes wrong becomes the error reply. */
void gen_handle(struct request *r, int (*run)(struct request *r, const cJSON *body, err *e));

/* Submits the prompts and attaches the job to the request. On failure nothing is left. */
int gen_start(const struct gen_config *config, err *e);
void gen_prompts_free(struct gen_prompt *prompts, size_t n);

/* chat_parse.c: rows of chat's own fields, chained to gen_table. */
extern const struct json_table chat_table;

/* ep_tokenize.c */
extern const struct json_table tokenize_table, detokenize_table;

/* ep_completions.c, ep_embeddings.c */
extern const struct json_table completions_table, embeddings_table;

#endif
