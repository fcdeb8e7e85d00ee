/* tensor_map.c - describes matrices to sm_90's TMA (shaders/cuda/tensor_map.h), with the driver
 * API's cuTensorMapEncodeTiled, which the runtime looks up. Owns nothing. */
#include "core/backend/cuda/memory_int.h"

enum { /* cuda.h */
       FIRST_VERSION = 12000,
       DATA_TYPE_FLOAT16 = 6,
       INTERLEAVE_NONE = 0,
       SWIZZLE_128B = 3,
       L2_PROMOTION_256B = 3,
       OOB_FILL_NONE = 0
};
enum { RANK = 3, GROUP = 64 /* halves */ };

int cuda_tensor_maps_open(struct cuda_backend *c, err *e) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *f = NULL;
    if (c->features.sm < 90) return 0;
    cudaError_t rc =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, FIRST_VERSION, 0, &found);
    if (rc || !f || found != cudaDriverEntryPointSuccess)
        return err_set(e, ERR_UNSUPPORTED,
                       "backend \"cuda\": the NVIDIA driver is older than CUDA 12 (it has no "
                       "cuTensorMapEncodeTiled); install a newer one");
    *(void **)&c->encode_tensor_map = f;
    return 0;
}

int cuda_tensor_map(struct cuda_backend *c, const void *w, uint64_t n_rows, uint32_t pitch,
                    uint32_t box_rows, uint32_t box_groups, struct cuda_tensor_map *out) {
    uint64_t row_bytes = (uint64_t)pitch * 2, n_groups = pitch / GROUP;
    const uint64_t dims[RANK] = {GROUP, n_rows, n_groups};
    const uint64_t strides[RANK - 1] = {row_bytes, GROUP * 2};
    const uint32_t box[RANK] = {GROUP, box_rows, box_groups}, steps[RANK] = {1, 1, 1};
    *out = (struct cuda_tensor_map){{(uintptr_t)w, row_bytes, n_rows, n_groups}};
    if (!c->encode_tensor_map) return 0;
    int rc = c->encode_tensor_map(out, DATA_TYPE_FLOAT16, RANK, (void *)(uintptr_t)w, dims, strides,
                                  box, steps, INTERLEAVE_NONE, SWIZZLE_128B, L2_PROMOTION_256B,
                                  OOB_FILL_NONE);
    return rc ? cuda_fail(c, "cuTensorMapEncodeTiled", cudaErrorInvalidValue) : 0;
}
