/* product_skinny_q4.cu - skinny GEMM with 4-bit weights. */
#include "shaders/cuda/product_skinny_tiles.cuh"

struct cuda_skinny cuda_skinny_q4(int format, int n_groups) {
    switch (format) {
    case CUDA_FORMAT_Q4:
        return skinny_of<tiles<CUDA_FORMAT_Q4>>(n_groups);
    case CUDA_FORMAT_Q4_MIN:
        return skinny_of<tiles<CUDA_FORMAT_Q4_MIN>>(n_groups);
    case CUDA_FORMAT_IQ4:
        return skinny_of<tiles<CUDA_FORMAT_IQ4>>(n_groups);
    case CUDA_FORMAT_IQ3_XXS:
        return skinny_of<tiles<CUDA_FORMAT_IQ3_XXS>>(n_groups);
    case CUDA_FORMAT_IQ3_S:
        return skinny_of<tiles<CUDA_FORMAT_IQ3_S>>(n_groups);
    default:
        return skinny_of<tiles<CUDA_FORMAT_MXFP4>>(n_groups);
    }
}
