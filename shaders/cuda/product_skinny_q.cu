/* product_skinny_q.cu - skinny GEMM with quantized weights, except those of 4 bits. */
#include "shaders/cuda/product_skinny_tiles.cuh"

struct cuda_skinny cuda_skinny_q(int format, int n_groups) {
    switch (format) {
    case CUDA_FORMAT_Q5:
        return skinny_of<tiles<CUDA_FORMAT_Q5>>(n_groups);
    case CUDA_FORMAT_Q5_MIN:
        return skinny_of<tiles<CUDA_FORMAT_Q5_MIN>>(n_groups);
    case CUDA_FORMAT_Q8:
        return skinny_of<tiles<CUDA_FORMAT_Q8>>(n_groups);
    case CUDA_FORMAT_Q6:
        return skinny_of<tiles<CUDA_FORMAT_Q6>>(n_groups);
    case CUDA_FORMAT_Q3:
        return skinny_of<tiles<CUDA_FORMAT_Q3>>(n_groups);
    case CUDA_FORMAT_IQ1:
        return skinny_of<tiles<CUDA_FORMAT_IQ1>>(n_groups);
    case CUDA_FORMAT_IQ2:
        return skinny_of<tiles<CUDA_FORMAT_IQ2>>(n_groups);
    default:
        return skinny_of<tiles<CUDA_FORMAT_Q2_MIN>>(n_groups);
    }
}
