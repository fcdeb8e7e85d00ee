/* metal_families.h - the kernels by which the Metal device can compute products and attention; a
 * row has the same bits by all of them. */
#ifndef INFERD_METAL_FAMILIES_H
#define INFERD_METAL_FAMILIES_H

#include "core/backend/metal/metal.h"
#include "tests/support/be.h"

enum { METAL_N_FAMILIES = 5 };

static const struct metal_family {
    enum metal_tiles tiles;
    enum metal_families rows;
} metal_families[METAL_N_FAMILIES] = {{METAL_TILES_PLAIN, METAL_VECTOR_ONLY},
                                      {METAL_TILES_PLAIN, METAL_TILES_ONLY},
                                      {METAL_TILES_PLAIN, METAL_BY_ROWS},
                                      {METAL_TILES_MATRIX, METAL_TILES_ONLY},
                                      {METAL_TILES_MATRIX, METAL_BY_ROWS}};

/* found: what the device chose at open. If its matrices are no chain of fma, or it has none, it has
 * the first three. */
static inline uint32_t metal_n_families(enum metal_tiles found) {
    return found == METAL_TILES_MATRIX ? METAL_N_FAMILIES : 3;
}

static inline void metal_force(backend *be, const struct metal_family *f) {
    CHECK(backend_metal_force(be, f->tiles, f->rows) == 0);
}

/* Back to the choice made at open. */
static inline void metal_unforce(backend *be, enum metal_tiles found) {
    CHECK(backend_metal_force(be, found, METAL_BY_ROWS) == 0);
}

#endif
