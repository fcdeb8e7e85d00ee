/* metal.h - the part of the Metal backend that its tests, which are C, may use. */
#ifndef INFERD_METAL_H
#define INFERD_METAL_H

#include "core/backend/backend.h"

/* Which family of kernels computes products and attention. Both give the same bits if the device's
 * simdgroup_multiply_accumulate is a chain of fma (probe_matrix.metal). If it is not, one family
 * must compute all rows: otherwise a row's result would depend on the number of rows. */
enum metal_products {
    METAL_BOTH,        /* few rows: plain fma; many: simdgroup matrices */
    METAL_MATRIX_ONLY, /* the probe found another order of sums */
    METAL_VECTOR_ONLY  /* no simdgroup matrices on this GPU */
};

/* Overrides the choice from the next op on (backend_metal_products: the choice made at open). be is
 * a Metal device. ERR_UNSUPPORTED: this GPU has no simdgroup matrices. */
int backend_metal_force_products(backend *be, enum metal_products products);
/* Commits a step in parts of this estimated time; 0: as a whole. */
void backend_metal_set_part_time(backend *be, double seconds);
/* The estimated time of what is encoded and not committed. */
double backend_metal_encoded_s(const backend *be);
enum metal_products backend_metal_products(const backend *be);

#endif
