/* writer.h - how one endpoint writes answers and streams. */
#ifndef INFERD_API_GENERATE_WRITER_H
#define INFERD_API_GENERATE_WRITER_H

#include "api/generate/choice.h"
#include "api/http/error.h"

struct gen;

#define GEN_EVENT_STREAM "text/event-stream; charset=utf-8"

/* Members that do not apply are NULL. In a stream the order is begin; for each choice open, pieces,
 * close; then end. fail may replace the rest at any point. All of them append whole frames
 * (frames.h) or lines to out. */
struct gen_writer {
    const char *content_type; /* of a stream */
    bool stores;              /* end, fail and whole may wait for a disk */
    const char *param;        /* the field that an error about a too long prompt names */
    /* Appends a token's log-probabilities to c->logprobs. has_logprob false: the first token of a
     * prompt, which has none. */
    void (*logprob)(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                    bool has_logprob);
    /* A token was generated; its text, if there is any yet, is the last n bytes of c->text, which
     * it may cut. true: the answer ends here. Not called with a parser. */
    bool (*token)(struct gen *g, struct gen_choice *c, int32_t token, size_t n);
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

/* logprobs.c: writer.logprob of chat and responses: {"token","logprob","bytes","top_logprobs"} into
 * c->logprobs[0]. */
void gen_chat_logprob(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                      bool has_logprob);
/* Appends a token's bytes as the member "bytes", an array of numbers. */
void gen_add_bytes(const unsigned char *bytes, size_t n, str *out);

#endif
