/* step_check.h - checks of what another process says of a step; see step_check.c. Private to
 * core/engine. */
#ifndef INFERD_ENGINE_STEP_CHECK_H
#define INFERD_ENGINE_STEP_CHECK_H

#include "core/engine/engine_int.h"

/* What there is here. n_windows, n_states 0: none. */
struct step_bounds {
    uint32_t n_vocab, n_blocks, n_windows, n_states, block_tokens;
};

/* The arrays of b for a step of this shape, which is within b->limits; b->stride is set. What
 * refers to the step before is checked when it begins. ERR_FORMAT names the first value that is
 * outside.
 */
int step_check(const struct step_bounds *is, const struct step_batch *b,
               const struct model_shape *s, uint32_t n_history, err *e);
/* pairs (n, 2) of blocks. */
int step_check_copies(const int32_t *pairs, uint64_t n, uint32_t n_blocks, err *e);

#endif
