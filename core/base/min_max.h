/* min_max.h - the smaller and the larger of two counts. */
#ifndef INFERD_MIN_MAX_H
#define INFERD_MIN_MAX_H

#include <stdint.h>

static inline uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static inline uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

#endif
