/* delta_avx2.c - the gated delta net for AVX2. */
#include "core/backend/cpu/avx2_int.h"

#define LANES            8
#define NX               2
#define DELTA_NAME(name) avx2_##name
typedef __m256 vec;
#define load(p)          _mm256_loadu_ps(p)
#define store(p, v)      _mm256_storeu_ps(p, v)
#define splat(x)         _mm256_set1_ps(x)
#define mul(a, b)        _mm256_mul_ps(a, b)
#define sub(a, b)        _mm256_sub_ps(a, b)
#define exp_of(x)        exp_ps(x)
#define mul_add(a, b, c) _mm256_fmadd_ps(a, b, c)
#define sum_of(v)        sum_lanes(v)
#include "core/backend/cpu/delta/delta_kernel.h"
