/* tensor_map.h - what tells the copying unit of an sm_90 multiprocessor where a matrix of halves
 * lies. Shared by host and kernels. */
#ifndef INFERD_SHADERS_CUDA_TENSOR_MAP_H
#define INFERD_SHADERS_CUDA_TENSOR_MAP_H

#include <stdint.h>

/* The driver's CUtensorMap. Before sm_90, which has no such unit, plainly: the matrix's address,
 * bytes from row to row, rows, groups of 64 halves of a row. */
struct cuda_tensor_map {
    uint64_t words[16];
} __attribute__((aligned(64)));

#endif
