/* metal.h - what the tests of this room, which are C, may know of the Metal device. */
#ifndef INFERD_METAL_H
#define INFERD_METAL_H

#include "core/backend/backend.h"

/* Which family of kernels computes products and attention. Both give the same bits where the
 * device's simdgroup_multiply_accumulate is a chain of fma (probe_matrix.metal); elsewhere one must
 * do all rows, or a row's result would depend on how many came with it. */
enum metal_products {
    METAL_BOTH,        /* few rows: plain fma; many: simdgroup matrices */
    METAL_MATRIX_ONLY, /* the probe found another order */
    METAL_VECTOR_ONLY  /* no simdgroup matrices on this GPU */
};

/* From the next op on; what the device was found to be: backend_metal_products. be is a Metal
 * device. ERR_UNSUPPORTED: this GPU has no simdgroup matrices. */
int backend_metal_force_products(backend *be, enum metal_products products);
enum metal_products backend_metal_products(const backend *be);

#endif
