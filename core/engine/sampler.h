/* sampler.h - from one row of logits to one token. Private to core/engine.
 *
 * Order, fixed: mask (what it leaves out is -inf, and nothing after it revives that), logit_bias,
 * repetition penalty (prompt and generated tokens: positive logits are divided by it, others
 * multiplied), presence and frequency penalty (generated tokens: minus presence + frequency *
 * count), temperature, top_k, top_p, min_p, draw. temperature 0 is greedy: the largest logit after
 * the penalties, the lowest id among equals. Filters rank tokens by logit, equal ones by id, so
 * every result is unique.
 *
 * The draw for the i-th generated token uses Philox4x32-10 with key = seed and counter = i: it
 * depends on nothing else, neither on the batch nor on preemption.
 *
 * A NaN logit counts as -inf (never sampled). A row whose largest logit (of those that the mask
 * leaves) is not finite is refused: ERR_DEVICE. Log-probabilities are the model's own, over all
 * tokens: no mask, bias or penalty changes them.
 *
 * THREAD SAFETY: the worker thread only; nothing here allocates but the *_init/_new functions. */
#ifndef INFERD_ENGINE_SAMPLER_H
#define INFERD_ENGINE_SAMPLER_H

#include "core/backend/ops.h"
#include "core/engine/engine.h"

/* Scratch of one worker. */
typedef struct sampler sampler;
sampler *sampler_new(uint32_t n_vocab); /* NULL: no memory */
void sampler_free(sampler *s);          /* NULL is fine */

/* Per-sequence state: how often each token occurred, for the penalties. An open-addressing table
 * sized once for the most distinct tokens the sequence can see. Caller's storage. */
struct penalty_history {
    int32_t *ids;     /* (n_distinct) in order of first occurrence */
    uint32_t *counts; /* (n_distinct) generated occurrences; 0 for prompt tokens not generated */
    uint32_t *slots;  /* (mask + 1) 1 + index in ids, 0 = empty */
    uint32_t mask, n_distinct, capacity;
};

/* Empty table for at most capacity distinct tokens; capacity 0 needs no memory and takes no token.
 */
int penalty_history_init(struct penalty_history *history, uint32_t capacity);
void penalty_history_fini(struct penalty_history *history);
void penalty_history_add(struct penalty_history *history, int32_t token, bool generated);

/* One token's draw. */
struct sampler_request {
    const struct engine_params *params;
    const struct penalty_history *history; /* (every token so far, when a penalty is on) */
    uint64_t seed;
    uint64_t index;      /* of the token that is drawn: 0 = first generated */
    const float *logits; /* (n_vocab), not changed; NULL: top stands for it */
    /* ((n_vocab + 31) / 32) bit id % 32 of word id / 32: token id may come; NULL: any may */
    const uint32_t *mask;
    struct sampler_top {
        const int32_t *ids;  /* (n) the row's first tokens in the order that filters rank by, */
        const float *logits; /* (n) and their logits, NaN as -inf */
        uint32_t n;          /* at least sampler_n_top */
    } top;
};

/* A draw with p, without seen and mask, needs so many first tokens of a row, 1 or BACKEND_MAX_TOP
 * (or n_vocab, if that is less), and comes out the same bit for bit as from the row. 0: it needs
 * the row. */
uint32_t sampler_n_top(const struct engine_params *p, uint32_t n_vocab);

/* Samples; *token is set when 0 is returned. ERR_DEVICE: no finite logit. */
int sampler_sample(sampler *s, const struct sampler_request *req, int32_t *token);

/* Does p look at the tokens so far? */
bool sampler_has_penalty(const struct engine_params *p);

/* Stands for the log-probability of an impossible token (logit -inf or NaN). */
#define SAMPLER_MIN_LOGPROB (-9999.0f)

/* Log-probability of token under softmax(logits), and the n_top best tokens (best first; equal
 * logits by id), into ev->logprob, ev->n_top, ev->top_*. n_top <= ENGINE_MAX_TOP_LOGPROBS.
 * ERR_DEVICE: no finite logit. */
int sampler_logprobs(const sampler *s, const float *logits, int32_t token, int n_top,
                     struct engine_event *ev);

/* The same from what a device found: the token's logit, the log of the sum of exp over the row, and
 * the row's first tokens, at least n_top of them. */
void sampler_device_logprobs(float logit, float log_sum, const struct sampler_top *top, int n_top,
                             struct engine_event *ev);

#endif
