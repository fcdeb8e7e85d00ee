/* pace.h - how many prompt tokens a step may compute while other sequences wait for their next
 * token, so that the step takes at most a multiple of its time without them. Private to
 * core/engine. Learns from the times of finished steps; pure: no clock, no thread. */
#ifndef INFERD_ENGINE_PACE_H
#define INFERD_ENGINE_PACE_H

#include <stdint.h>

/* A zeroed one has seen no step. */
struct pace {
    double decode_ns; /* a step of decode_rows rows that all decode; 0: none seen */
    double decode_rows;
    double row_ns; /* one additional prompt row in a step; 0: none seen */
};

/* A step of n_prefill + n_decode rows took ns. */
void pace_note(struct pace *p, uint32_t n_prefill, uint32_t n_decode, uint64_t ns);

/* Prompt rows for a step in which n_decode (>= 1) sequences wait for their next token and n_prefill
 * (>= 1) for their first: as many as keep the step within about twice its time without them, more
 * when the latter outnumber the former. At least 8, at most `most`. */
uint32_t pace_chunk(const struct pace *p, uint32_t n_decode, uint32_t n_prefill, uint32_t most);

#endif
