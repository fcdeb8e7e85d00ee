/* qpoints_avx2.c - the kernel of qpoints.h with eight lanes. Pure; any thread. */
#include <immintrin.h>

#define LANES             8
#define KERNEL            qpoints_kernel_avx2
#define ANY_LANES(mask)   (uint32_t) _mm256_movemask_ps((__m256)(mask))
#define LEAST_LANES(a, b) (vf) _mm256_min_ps((__m256)(a), (__m256)(b))
#include "core/base/qpoints_lanes.h"
