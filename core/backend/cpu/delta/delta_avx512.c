/* delta_avx512.c - the gated delta net for AVX-512. */
#include "core/backend/cpu/avx2_int.h"

#define LANES            16
#define NX               4
#define DELTA_NAME(name) avx512_##name
typedef __m512 vec;
#define load(p)          _mm512_loadu_ps(p)
#define store(p, v)      _mm512_storeu_ps(p, v)
#define splat(x)         _mm512_set1_ps(x)
#define mul(a, b)        _mm512_mul_ps(a, b)
#define mul_add(a, b, c) _mm512_fmadd_ps(a, b, c)

/* The sums of the lower and the upper lanes. */
ALWAYS_INLINE __m256 fold_lanes(__m512 v) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    return _mm256_add_ps(_mm512_castps512_ps256(v), high);
}

#define sum_of(v) sum_lanes(fold_lanes(v))
#include "core/backend/cpu/delta/delta_kernel.h"
