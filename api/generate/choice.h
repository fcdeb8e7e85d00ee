/* choice.h - one answer as it is generated: its pieces, its tool calls, its tokens' state. */
#ifndef INFERD_API_GENERATE_CHOICE_H
#define INFERD_API_GENERATE_CHOICE_H

#include "core/base/str.h"
#include "core/chat/syntax.h"
#include "core/engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of an answer. Pieces of one kind follow each other until the kind changes; the pieces of
 * a call follow its GEN_CALL. */
enum gen_piece_kind {
    GEN_TEXT,      /* of the answer */
    GEN_REASONING, /* what a reasoning model thinks before it */
    GEN_CALL,      /* a tool call begins: choice->calls[call] has its name and id; no text */
    GEN_ARGUMENTS  /* JSON text of that call's arguments */
};
struct gen_piece {
    enum gen_piece_kind kind;
    const char *text; /* (n) whole UTF-8 characters; n may be 0 if only log-probabilities come */
    size_t n;
    uint32_t call; /* GEN_CALL, GEN_ARGUMENTS: index in choice->calls */
};

struct gen_call {
    char id[48]; /* "call_..." */
    char *name;
    str arguments; /* so far, JSON */
};
/* Are the call's arguments a JSON object? Not if the end of the answer cut them off. */
bool gen_call_is_whole(const struct gen_call *call);

enum gen_finish { GEN_FINISH_STOP, GEN_FINISH_LENGTH, GEN_FINISH_TOOL_CALLS };
const char *gen_finish_name(enum gen_finish finish); /* OpenAI's word */

struct gen_choice {
    uint32_t index, prompt;
    engine_stream *stream;
    int32_t *taken; /* (n_taken) tokens whose events were taken, if the stream can be resumed */
    uint32_t n_taken, taken_capacity;
    uint64_t seed; /* of its sequence */
    engine_text *text_state;
    chat_parser *parser;        /* splits the answer into pieces; NULL: all is text */
    engine_text *stop_text;     /* with a parser: finds stop strings, in its text only */
    size_t content_logprobs[4]; /* with a parser: length of logprobs that belongs to its text */
    uint64_t n_content_logprobs;
    bool begun, stopped, done;
    bool drops_space;       /* the text's first token loses a leading space; cleared after it */
    str text, reasoning;    /* of a whole answer: all of it; of a stream: not yet written */
    struct gen_call *calls; /* (n_calls) */
    uint32_t n_calls;
    str logprobs[4];           /* JSON array members not yet written, in the endpoint's form */
    uint64_t n_logprobs;       /* members of each */
    uint64_t n_chars;          /* code points of all tokens so far: text_offset */
    size_t n_prompt_seen;      /* prompt tokens whose log-probabilities came */
    uint64_t n_tokens;         /* completion tokens */
    uint64_t n_reasoning;      /* of them in reasoning */
    enum gen_finish finish;    /* when done */
    const char *stop_sequence; /* that ended it, borrowed from its state; NULL: none */
};

struct gen_prompt {
    int32_t *ids; /* (n) owned */
    size_t n;
    bool text;   /* encoded from text, which may spell control tokens */
    bool infill; /* it surrounds the answer, whose first space belongs to the answer */
    unsigned n_before, n_behind; /* tokens that the tokenizer added to the text */
    uint64_t n_cached;
    enum engine_miss miss;       /* why not more */
    struct miss_map *miss_map;   /* miss.h; owned; NULL: none */
    size_t n_shared;             /* of a list: ids follow as many of the first prompt's (rank.h) */
    uint32_t n_system, n_stable; /* engine_request.system_tokens, stable_tokens */
    uint32_t second;             /* engine_request.second_from */
};
void gen_prompts_free(struct gen_prompt *prompts, size_t n);

#endif
