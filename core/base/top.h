/* top.h - the k largest values of an array, in the ranking of tokens: by descending value, equal
 * values by ascending index; NaN counts as -inf. Pure; any thread. */
#ifndef INFERD_BASE_TOP_H
#define INFERD_BASE_TOP_H

#include <stdint.h>

/* Writes the top k of x (n), 1 <= k <= n, in order to ids (k) and values (k). O(n) if few later
 * values enter the list, O(n k) at most. */
void top_select(const float *x, uint32_t n, uint32_t k, int32_t *ids, float *values);

#endif
