/* gen.h - one generation: from prompts to token events to pieces of answers, which the endpoint's
 * writer turns into JSON or a stream. Shared by all endpoints that generate; they differ in how
 * they read a body and write an answer. It is the request's job (job.h): gen_start, and the end if
 * that may take long, run on pool threads, the rest on the connection's HTTP thread. */
#ifndef INFERD_API_GENERATE_GEN_H
#define INFERD_API_GENERATE_GEN_H

#include "api/generate/choice.h"
#include "api/generate/config.h"
#include "api/generate/fields.h"
#include "api/generate/resume.h"
#include "api/generate/writer.h"
#include "api/http/answers.h"
#include "api/http/quota.h"

struct request;

struct gen {
    struct api *api;
    struct request *request; /* NULL: kept for resuming */
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
    bool chat;   /* its prompt was made of messages */
    char id[48]; /* of the answer */
    int64_t created_s;
    str head;          /* of gen_add_head, made once: every chunk begins with it */
    uint64_t first_ns; /* time of the first event; 0: none yet */
    uint64_t n_frames; /* written: their id: lines are "ID:NUMBER" */
    str out;           /* bytes not yet read */
    size_t out_pos;
    size_t n_held; /* bytes of a whole answer so far, all choices; and of the writer's state */
    struct quota_hold sequences;     /* of its key, while they run */
    struct answer_hold hold;         /* of n_held and of what is kept of a stream */
    bool explains, explains_tenants; /* miss.h */
    bool begun, ended;
    err error;    /* of a choice that failed */
    bool no_room; /* that error is: no memory for answers (answers.h) */
    bool resumes; /* it is in the list of resume.h */
    struct resumable kept;
    struct engine_params
        params; /* of its engine requests; bias is owned if it resumes, else NULL */
    str sent;   /* the last frames that were read, if it resumes */
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
    size_t n_state_bytes; /* bytes that state holds already, beside the body it was made of */
    bool chat;            /* the prompt was made of messages */
    const struct chat_parser_config *parser; /* splits answers into pieces; NULL: all is text */
};
/* Submits the prompts and attaches the job to the request. On failure nothing is left. */
int gen_start(const struct gen_config *config, err *e);

/* ---- gen_parts.c: parts of answers that writers share ---- */

struct gen_usage {
    uint64_t prompt, completion, cached, reasoning; /* tokens */
};
struct gen_usage gen_usage_of(const struct gen *g);
/* "usage":{...} in the form of chat and completions. */
void gen_add_usage(const struct gen *g, str *out);
/* {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":..., The object is the same
 * for all calls of a generation. */
void gen_add_head(struct gen *g, const char *object, str *out);

#endif
