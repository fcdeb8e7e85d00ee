/* metal.h - the part of the Metal backend that its tests, which are C, may use. */
#ifndef INFERD_METAL_H
#define INFERD_METAL_H

#include "core/backend/backend.h"

/* How the kernels for many rows multiply (shaders/metal/tile.h). Matrices are used only where the
 * probe found them to be a chain of fma (probe_matrix.metal), so both give the same bits. */
enum metal_tiles {
    METAL_TILES_MATRIX, /* simdgroup matrices */
    METAL_TILES_PLAIN   /* the GPU has none, or they add in another order */
};

/* Which kernels compute products and attention, for tests: all give the same bits. */
enum metal_families {
    METAL_BY_ROWS, /* few rows: vector kernels; many: tiles */
    METAL_VECTOR_ONLY,
    METAL_TILES_ONLY
};

/* Overrides the choice from the next op on. be is a Metal device with no step in flight.
 * ERR_UNSUPPORTED: this GPU has no simdgroup matrices. ERR_DEVICE: the compiler rejected a source.
 */
int backend_metal_force(backend *be, enum metal_tiles tiles, enum metal_families families);
enum metal_tiles backend_metal_tiles(const backend *be); /* the choice made at open or forced */
/* Commits a step in parts of this estimated time; 0: as a whole. */
void backend_metal_set_part_time(backend *be, double seconds);
/* The estimated time of what is encoded and not committed. */
double backend_metal_encoded_s(const backend *be);

#endif
