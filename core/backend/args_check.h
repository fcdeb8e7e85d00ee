/* args_check.h - asserts that the constants which the kernels restate (shaders/args.h) are those of
 * the op table (backend.h, backend_int.h), and fills what the devices' argument structs share.
 * Included by each device that launches such kernels. */
#ifndef INFERD_BACKEND_ARGS_CHECK_H
#define INFERD_BACKEND_ARGS_CHECK_H

#include "core/backend/backend_int.h"
#include "shaders/args_attention.h"

#define ARGS_EQUAL(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

ARGS_EQUAL(ARGS_ACT_NONE, BACKEND_ACT_NONE);
ARGS_EQUAL(ARGS_ACT_SILU, BACKEND_ACT_SILU);
ARGS_EQUAL(ARGS_ACT_GELU_TANH, BACKEND_ACT_GELU_TANH);
ARGS_EQUAL(ARGS_ACT_SWIGLU_OAI, BACKEND_ACT_SWIGLU_OAI);
ARGS_EQUAL(ARGS_ACT_GELU, BACKEND_ACT_GELU);
ARGS_EQUAL(ARGS_N_ACTS, BACKEND_N_ACTS);
ARGS_EQUAL(ARGS_UNARY_SQUARED_RELU, BACKEND_UNARY_SQUARED_RELU);
ARGS_EQUAL(ARGS_UNARY_GELU_TANH, BACKEND_UNARY_GELU_TANH);
ARGS_EQUAL(ARGS_UNARY_GELU, BACKEND_UNARY_GELU);
ARGS_EQUAL(ARGS_UNARY_XIELU, BACKEND_UNARY_XIELU);
ARGS_EQUAL(ARGS_N_UNARIES, BACKEND_N_UNARIES);
ARGS_EQUAL(ARGS_TOP_MAX, BACKEND_MAX_TOP);
ARGS_EQUAL(ARGS_MOE_EXPERTS, BACKEND_MAX_EXPERTS);
ARGS_EQUAL(MARGS_STATE_MAX_K_DIM, BACKEND_STATE_MAX_K_DIM);
ARGS_EQUAL(MARGS_STATE_MAX_V_DIM, BACKEND_STATE_MAX_V_DIM);
ARGS_EQUAL(MARGS_STATE_MAX_TAPS, BACKEND_STATE_MAX_TAPS);

static inline struct args_state args_state_of(const struct backend_state *s, uint32_t n_seqs) {
    const struct backend_state_parts p = backend_state_parts(s);
    return (struct args_state){
        .tail = p.tail,
        .recent = p.recent,
        .k = p.k,
        .u = p.u,
        .g = p.g,
        .end = p.end,
        .n_seqs = n_seqs,
        .n_blocks = s->n_blocks,
    };
}

#endif
