/* gemm_halves_avx512.c - products of types with one scale per 16 columns, with AVX-512. */
#include "core/backend/cpu/gemm/gemm_codes_avx512.h"

GEMM_CODES(halves, true, false)
GEMM_CODES(halves_mins, true, true)
