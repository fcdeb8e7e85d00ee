/* sampling.h - the sampling parameters: one struct, and one row for each parameter with its name,
 * bounds, default and help. Everything else is made of the rows: the members of struct sampling,
 * the check of a request in core/engine, the request fields and their documentation in api/.
 * core/engine embeds the struct in a request's parameters, core/backend and shaders/cuda in what a
 * device samples by. It stands on the lowest floor because api may not see core/backend, and
 * neither core/backend nor shaders may see core/engine.
 *
 * A new parameter: a row and its place in SAMPLING_ROWS here, its effect in core/engine/sampler.c
 * and shaders/cuda/sample.cu, its place among the request fields in api/generate/gen_fields.c
 * (and in ollama/read.c or anthropic/read.c if that API has it).
 *
 * C11 and CUDA C++. Pure; any thread. */
#ifndef INFERD_BASE_SAMPLING_H
#define INFERD_BASE_SAMPLING_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* ROW(ARG, name, kind, least, most, initial, help), with any ARG that the user of the row wants.
 * Kinds: REAL, a float in [least, most]; ABOVE, a float in (least, most]; COUNT, a whole number
 * whose values below 0 mean 0. */
#define SAMPLING_TEMPERATURE(ROW, ARG)                                                             \
    ROW(ARG, temperature, REAL, 0, 2, 1, "0 always takes the most likely token.")
#define SAMPLING_TOP_P(ROW, ARG)                                                                   \
    ROW(ARG, top_p, ABOVE, 0, 1, 1,                                                                \
        "Samples from the most likely tokens whose probabilities add up to it; not 0.")
#define SAMPLING_MIN_P(ROW, ARG)                                                                   \
    ROW(ARG, min_p, REAL, 0, 1, 0,                                                                 \
        "Excludes tokens less likely than this fraction of the most likely one.")
#define SAMPLING_REPETITION_PENALTY(ROW, ARG)                                                      \
    ROW(ARG, repetition_penalty, REAL, 0.01, 10, 1,                                                \
        "Above 1, tokens of the prompt and the answer become less likely; below 1, more likely.")
#define SAMPLING_PRESENCE_PENALTY(ROW, ARG)                                                        \
    ROW(ARG, presence_penalty, REAL, -2, 2, 0,                                                     \
        "Subtracted from the logit of every token that was generated before.")
#define SAMPLING_FREQUENCY_PENALTY(ROW, ARG)                                                       \
    ROW(ARG, frequency_penalty, REAL, -2, 2, 0,                                                    \
        "Subtracted from a token's logit once for each time it was generated before.")
#define SAMPLING_TOP_K(ROW, ARG)                                                                   \
    ROW(ARG, top_k, COUNT, -1, 2147483647, 0,                                                      \
        "Samples from the k most likely tokens; 0 or -1 disables it.")

#define SAMPLING_ROWS(ROW, ARG)                                                                    \
    SAMPLING_TEMPERATURE(ROW, ARG)                                                                 \
    SAMPLING_TOP_P(ROW, ARG)                                                                       \
    SAMPLING_MIN_P(ROW, ARG)                                                                       \
    SAMPLING_REPETITION_PENALTY(ROW, ARG)                                                          \
    SAMPLING_PRESENCE_PENALTY(ROW, ARG)                                                            \
    SAMPLING_FREQUENCY_PENALTY(ROW, ARG)                                                           \
    SAMPLING_TOP_K(ROW, ARG)

#define SAMPLING_C_REAL                                              float
#define SAMPLING_C_ABOVE                                             float
#define SAMPLING_C_COUNT                                             uint32_t
#define SAMPLING_MEMBER(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP) SAMPLING_C_##KIND NAME;

/* temperature 0 is greedy, top_k 0 is off; what the others mean: core/engine/sampler.h. Devices
 * read it as it lies in memory: 4-byte members, in the order of the rows. */
struct sampling {
    SAMPLING_ROWS(SAMPLING_MEMBER, )
};

#define SAMPLING_INITIAL(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP) s.NAME = INITIAL;
static inline struct sampling sampling_default(void) {
    struct sampling s;
    SAMPLING_ROWS(SAMPLING_INITIAL, )
    return s;
}

/* ERR_INVALID with param = the name of the first parameter that is out of its bounds. */
int sampling_check(const struct sampling *s, err *e);

/* What a model's files recommend: values of the parameters for which has is set. */
#define SAMPLING_HAS(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP) bool NAME;
struct sampling_has {
    SAMPLING_ROWS(SAMPLING_HAS, )
};
struct sampling_recommended {
    struct sampling values;
    struct sampling_has has;
};

/* Takes value for the parameter of this name. ERR_INVALID, and r is unchanged: no such parameter,
 * not a whole number (top_k), or out of its bounds. */
int sampling_recommend(struct sampling_recommended *r, const char *name, double value, err *e);

#endif
