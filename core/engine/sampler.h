/* sampler.h - from one row of logits to one token. Private to core/engine.
 *
 * Order, fixed: mask (tokens outside it get -inf, which nothing later changes), logit_bias,
 * repetition penalty (prompt and generated tokens: positive logits are divided by it, others
 * multiplied), presence and frequency penalty (generated tokens: minus presence + frequency *
 * count), temperature, top_k, top_p, min_p, random choice. temperature 0 is greedy: the largest
 * logit after the penalties, the lowest id among equals. Filters rank tokens by logit, equal logits
 * by id, so every result is unique.
 *
 * The random number for the i-th generated token is Philox4x32-10 with key = seed and counter = i:
 * it depends on nothing else, neither on the batch nor on preemption.
 *
 * A NaN logit counts as -inf (never sampled). A row whose largest logit (within the mask) is not
 * finite is refused: ERR_DEVICE. Log-probabilities are the model's own, over all tokens: no mask,
 * bias or penalty changes them.
 *
 * THREAD SAFETY: the worker thread only; only the *_init and *_new functions allocate. */
#ifndef INFERD_ENGINE_SAMPLER_H
#define INFERD_ENGINE_SAMPLER_H

#include "core/backend/ops.h"
#include "core/engine/engine.h"

/* Scratch of one worker. */
typedef struct sampler sampler;
sampler *sampler_new(uint32_t n_vocab); /* NULL: no memory */
void sampler_free(sampler *s);          /* NULL is fine */

/* How often each token occurred in a sequence, for the penalties. An open-addressing table sized
 * once for the most distinct tokens that the sequence can have. Caller's storage. */
struct penalty_history {
    int32_t *ids;     /* (n_distinct) in order of first occurrence */
    uint32_t *counts; /* (n_distinct) times generated; 0: only in the prompt */
    uint32_t *slots;  /* (mask + 1) 1 + index in ids, 0 = empty */
    uint32_t mask, n_distinct, capacity;
};

/* Empty table for at most capacity distinct tokens; capacity 0 needs no memory and stores nothing.
 */
int penalty_history_init(struct penalty_history *history, uint32_t capacity);
void penalty_history_fini(struct penalty_history *history);
void penalty_history_add(struct penalty_history *history, int32_t token, bool generated);

/* How to sample one token. */
struct sampler_request {
    const struct engine_params *params;
    const struct penalty_history *history; /* (every token so far, if a penalty is on) */
    uint64_t seed;
    uint64_t index;      /* of the token to sample: 0 = first generated */
    const float *logits; /* (n_vocab), unchanged; NULL: top replaces it */
    /* ((n_vocab + 31) / 32) bit id % 32 of word id / 32: token id may come; NULL: any may */
    const uint32_t *mask;
    struct sampler_top {
        const int32_t *ids;  /* (n) the row's best tokens, in the order of the filters' ranking, */
        const float *logits; /* (n) and their logits, NaN as -inf */
        uint32_t n;          /* at least sampler_n_top */
    } top;
};

/* How many best tokens of a row suffice to sample with p (without history and mask), bit for bit as
 * from the whole row: 1 or BACKEND_MAX_TOP (or n_vocab, if that is less). 0: the row is needed. */
uint32_t sampler_n_top(const struct engine_params *p, uint32_t n_vocab);

/* Sets *token and returns 0. ERR_DEVICE: no finite logit. */
int sampler_sample(sampler *s, const struct sampler_request *req, int32_t *token);

/* Does p use the penalty history? */
bool sampler_has_penalty(const struct engine_params *p);

/* Stands for the log-probability of an impossible token (logit -inf or NaN). */
#define SAMPLER_MIN_LOGPROB (-9999.0f)

/* Log-probability of token under softmax(logits), and the n_top best tokens (best first; equal
 * logits by id), into ev->logprob, ev->n_top, ev->top_*. n_top <= ENGINE_MAX_TOP_LOGPROBS.
 * ERR_DEVICE: no finite logit. */
int sampler_logprobs(const sampler *s, const float *logits, int32_t token, int n_top,
                     struct engine_event *ev);

/* The same from a device's results: the token's logit, the log of the sum of exp over the row, and
 * the row's best tokens, at least n_top of them. */
void sampler_device_logprobs(float logit, float log_sum, const struct sampler_top *top, int n_top,
                             struct engine_event *ev);

#endif
