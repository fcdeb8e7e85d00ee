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
#define sub(a, b)        _mm512_sub_ps(a, b)
#define exp_of(x)        exp_lanes(x)
#define mul_add(a, b, c) _mm512_fmadd_ps(a, b, c)

/* The sums of the lower and the upper lanes. */
ALWAYS_INLINE __m256 fold_lanes(__m512 v) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    return _mm256_add_ps(_mm512_castps512_ps256(v), high);
}

/* e^x as exp_ps has it, with smaller x's subnormal results. */
ALWAYS_INLINE __m512 exp_lanes(__m512 x) {
    const __m512 one = splat(1), n = _mm512_roundscale_ps(mul(x, splat(0x1.715476p+0f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, splat(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, splat(0x1.7f7d1cp-20f), r);
    __m512 p = splat(1.0f / 5040);
    p = mul_add(p, r, splat(1.0f / 720));
    p = mul_add(p, r, splat(1.0f / 120));
    p = mul_add(p, r, splat(1.0f / 24));
    p = mul_add(p, r, splat(1.0f / 6));
    p = mul_add(p, r, splat(0.5f));
    return _mm512_scalef_ps(mul_add(mul_add(p, r, one), r, one), n);
}

#define sum_of(v) sum_lanes(fold_lanes(v))
#include "core/backend/cpu/delta/delta_kernel.h"
