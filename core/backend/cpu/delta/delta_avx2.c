/* delta_avx2.c - the gated delta net for AVX2. */
#include <immintrin.h>

#define LANES            8
#define NX               2
#define DELTA_NAME(name) avx2_##name
typedef __m256 vec;
#define load(p)          _mm256_loadu_ps(p)
#define store(p, v)      _mm256_storeu_ps(p, v)
#define splat(x)         _mm256_set1_ps(x)
#define mul_add(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "core/backend/cpu/delta/delta_kernel.h"
