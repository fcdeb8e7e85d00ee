/* gemm_plain_avx512.c - products of types with one scale per 32 columns, with AVX-512. */
#include "core/backend/cpu/gemm/gemm_codes_avx512.h"

GEMM_CODES(plain, false, false)
GEMM_CODES(plain_mins, false, true)
