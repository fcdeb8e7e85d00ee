/* embed.h - vectors of texts: inputs -> vectors of length 1, pooled from the model's hidden states.
 * Shared by the endpoints that answer with vectors; they differ in how they read a body and write
 * an answer. The job submits the inputs to the engine a few at a time, so that a long list does not
 * fill the queue. It starts on a pool thread, and ends there if the answer is large; the rest runs
 * on the connection's HTTP thread. */
#ifndef INFERD_API_GENERATE_EMBED_H
#define INFERD_API_GENERATE_EMBED_H

#include "api/generate/choice.h"
#include "api/http/json.h"
#include "core/engine/engine.h"

enum { EMBED_MAX_INPUTS = 2048 }; /* as OpenAI */
enum {
    EMBED_AS_COMPUTED = -1,
    EMBED_TO_INT16 = -2, /* the largest value becomes 32760 */
    EMBED_SIGMOID = -3   /* of a score's logit: its probability */
};
#define EMBED_RANK "rank" /* as pooling: scores, whose n_dims is 1 */

struct api_model;
struct request;

/* What the writer of an answer gets. */
struct embed_result {
    const struct api_model *model;
    size_t n;
    uint32_t n_dims;
    const float *vectors; /* (n, n_dims) */
    uint64_t n_tokens;    /* of all inputs */
    void *arg;            /* of embed_config */
};

struct embed_config {
    const cJSON *input;         /* as prompts_read; borrowed during embed_start */
    struct gen_prompt *prompts; /* (n_prompts) instead of it: encoded, taken also on failure */
    size_t n_prompts;
    const char *param;                /* its name in errors */
    const char *pooling, *cache_salt; /* NULL: the model's, the key's */
    int64_t n_dims;                   /* first dimensions to keep, renormalized; 0: all */
    bool parse_special;               /* as in prompts_config */
    int norm;         /* how vectors are scaled: 0 or 2 to length 1, p > 0 to p-norm 1, or: */
    bool truncate;    /* cuts the end of texts beyond the context length, else they are refused */
    bool no_empty;    /* refuses "" */
    bool base64;      /* what the answer's size is estimated by: base64, else decimal numbers */
    const char *hint; /* after "send fewer inputs", how an answer gets smaller; NULL: nothing */
    void (*write)(struct request *r, const struct embed_result *v); /* fills the reply */
    void *arg;                   /* the writer's; NULL free_arg: there is none */
    void (*free_arg)(void *arg); /* called once, also on failure */
};
/* Submits the first inputs and attaches the job to the request, whose model is set; or replies. On
 * failure nothing is left. ERR_INVALID names the parameter. */
int embed_start(struct request *r, const struct embed_config *c, err *e);

/* Appends a vector as a JSON array. */
void embed_add_vector(const float *v, uint32_t n, str *out);

#endif
