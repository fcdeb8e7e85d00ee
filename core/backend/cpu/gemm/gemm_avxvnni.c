/* gemm_avxvnni.c - products of quantized weights with AVX-VNNI (vpdpbusd in 256-bit vectors);
 * everything else is shared with AVX2. Pure functions; any thread. */
#include "core/backend/cpu/gemm/gemm_ymm_int.h"

/* Register tiles for every number of rows of one kind of product. */
#define PRODUCT(name, kind)                                                                        \
    static void name(const struct gemm_job *j) {                                                   \
        all_rows(j, kind);                                                                         \
    }                                                                                              \
    static void name##_planes(const struct gemm_job *j) {                                          \
        all_rows(j, (kind) | PLANES);                                                              \
    }
PRODUCT(plain, 0)
PRODUCT(mins, MINS)
PRODUCT(halves, HALVES)
PRODUCT(half_mins, HALVES | MINS)
#undef PRODUCT

static void multiply_job(const struct gemm_job *j) {
    static ymm_product *const products[][2] = {
        [QTYPE_Q4_0] = {plain, plain_planes},    [QTYPE_Q4_1] = {mins, mins_planes},
        [QTYPE_Q5_0] = {plain, plain_planes},    [QTYPE_Q5_1] = {mins, mins_planes},
        [QTYPE_Q8_0] = {plain, plain_planes},    [QTYPE_Q2_K] = {half_mins, half_mins_planes},
        [QTYPE_Q3_K] = {halves, halves_planes},  [QTYPE_Q4_K] = {mins, mins_planes},
        [QTYPE_Q5_K] = {mins, mins_planes},      [QTYPE_Q6_K] = {halves, halves_planes},
        [QTYPE_IQ4_NL] = {plain, plain_planes},  [QTYPE_IQ4_XS] = {plain, plain_planes},
        [QTYPE_MXFP4] = {plain, plain_planes},   [QTYPE_IQ1_W] = {halves, halves_planes},
        [QTYPE_IQ2_W] = {halves, halves_planes}, [QTYPE_IQ3_XXS_W] = {plain, plain_planes},
        [QTYPE_IQ3_S_W] = {plain, plain_planes},
    };
    multiply_by_type(j, products, sizeof products / sizeof *products);
}

const struct gemm_isa gemm_avxvnni = {
    .name = "avxvnni",
    .quantize = gemm_ymm_quantize,
    .unpack = gemm_ymm_unpack,
    .multiply = multiply_job,
};
