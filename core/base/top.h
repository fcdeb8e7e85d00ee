/* top.h - the largest of a row of numbers, in the order in which tokens are ranked: value down, of
 * equal ones the lower number first; a NaN counts as -inf. Pure; any thread. */
#ifndef INFERD_BASE_TOP_H
#define INFERD_BASE_TOP_H

#include <stdint.h>

/* The k first of x (n), 1 <= k <= n, in order, to ids (k) and values (k). O(n) where few of the
 * later numbers are among them; never more than O(n k). */
void top_select(const float *x, uint32_t n, uint32_t k, int32_t *ids, float *values);

#endif
