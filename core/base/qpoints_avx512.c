/* qpoints_avx512.c - the kernel of qpoints.h with sixteen lanes. Pure; any thread. */
#include <immintrin.h>

#define LANES             16
#define KERNEL            qpoints_kernel_avx512
#define ANY_LANES(mask)   _mm512_test_epi32_mask((__m512i)(mask), (__m512i)(mask))
#define LEAST_LANES(a, b) (vf) _mm512_min_ps((__m512)(a), (__m512)(b))
#include "core/base/qpoints_lanes.h"
