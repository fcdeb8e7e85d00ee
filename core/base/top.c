/* top.c - keeps the k best values sorted and skips blocks without a better one. Owns nothing. */
#include "core/base/top.h"

#include <math.h>
#include <stdbool.h>

enum { BLOCK = 64 };

static bool any_above(const float *x, float least) {
    int n = 0;
    for (int i = 0; i < BLOCK; i++)
        n += x[i] > least;
    return n > 0;
}

/* Inserts v into the sorted list of n entries, which has room for n + 1. */
static void insert_entry(int32_t *ids, float *values, uint32_t n, int32_t id, float v) {
    uint32_t at = n;
    for (; at > 0 && values[at - 1] < v; at--) {
        values[at] = values[at - 1];
        ids[at] = ids[at - 1];
    }
    values[at] = v;
    ids[at] = id;
}

void top_select(const float *x, uint32_t n, uint32_t k, int32_t *ids, float *values) {
    uint32_t i = 0;
    for (; i < k; i++)
        insert_entry(ids, values, i, (int32_t)i, isnan(x[i]) ? -INFINITY : x[i]);
    while (i < n) {
        if (n - i >= BLOCK && !any_above(x + i, values[k - 1])) {
            i += BLOCK;
            continue;
        }
        uint32_t end = n - i < BLOCK ? n : i + BLOCK;
        for (; i < end; i++)
            if (x[i] > values[k - 1]) insert_entry(ids, values, k - 1, (int32_t)i, x[i]);
    }
}
