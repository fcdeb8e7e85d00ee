/* kernels.h - the kernels of shaders/cuda as the launchers see them: host stubs for cuda_launch. */
#ifndef INFERD_SHADERS_CUDA_KERNELS_H
#define INFERD_SHADERS_CUDA_KERNELS_H

#include "shaders/cuda/cargs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rows.cu */
const void *cuda_embed_kernel(void);
const void *cuda_gather_kernel(void);
const void *cuda_kv_copy_kernel(void);

/* finish.cu */
const void *cuda_finish_kernel(void);

/* rope.cu, top.cu, linear_attention.cu */
const void *cuda_rope_store_kernel(void);
const void *cuda_top_kernel(void);
const void *cuda_linear_attention_kernel(enum cuda_linear_kernel kernel, uint32_t head_dim);

/* lt_probe.cu */
const void *cuda_lt_fill_kernel(void);
const void *cuda_lt_probe_kernel(void);

/* product_tile.cu: by enum cuda_format and shape, 0 (small blocks) or 1. kernel is NULL: there is none. */
struct cuda_tile_kernel {
    const void *kernel;
    int threads, rows, inputs, stage_bytes; /* rows of weights and of the input of a block */
};
struct cuda_tile_kernel cuda_product_tile_kernel(int format, int shape);

#ifdef __cplusplus
}
#endif

#endif
