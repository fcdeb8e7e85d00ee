/* delta_avx512.c - the gated delta net for AVX-512. */
#include <immintrin.h>

#define LANES            16
#define NX               4
#define DELTA_NAME(name) avx512_##name
typedef __m512 vec;
#define load(p)          _mm512_loadu_ps(p)
#define store(p, v)      _mm512_storeu_ps(p, v)
#define splat(x)         _mm512_set1_ps(x)
#define mul_add(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "core/backend/cpu/delta/delta_kernel.h"
