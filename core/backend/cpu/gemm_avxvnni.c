/* gemm_avxvnni.c - products of quantized weights with AVX-VNNI (vpdpbusd in 256-bit vectors);
 * everything else is AVX2's. Pure functions; any thread. */
#include "core/backend/cpu/gemm_ymm_int.h"

/* One register tile per row count, number of planes and kind of scales. */
#define PRODUCT(name, with_halves, with_mins)                                                      \
    static void name(const struct gemm_job *j, uint32_t shift) {                                   \
        struct shape s = {.halves = with_halves, .mins = with_mins};                               \
        all_rows(j, s, shift);                                                                     \
    }                                                                                              \
    static void name##_planes(const struct gemm_job *j, uint32_t shift) {                          \
        struct shape s = {.halves = with_halves, .mins = with_mins, .planes = true};               \
        all_rows(j, s, shift);                                                                     \
    }
PRODUCT(plain, false, false)
PRODUCT(mins, false, true)
PRODUCT(halves, true, false)
PRODUCT(half_mins, true, true)
#undef PRODUCT

static void multiply(const struct gemm_job *j) {
    bool planes = j->x.q[1];
    clear_acc(j);
    switch (j->type) {
    case QTYPE_Q4_0:
    case QTYPE_Q5_0:
    case QTYPE_Q8_0:
    case QTYPE_IQ4_NL:
    case QTYPE_IQ4_XS:
    case QTYPE_MXFP4:
        (planes ? plain_planes : plain)(j, gemm_ymm_shift(j->type));
        break;
    case QTYPE_Q4_1:
    case QTYPE_Q5_1:
    case QTYPE_Q4_K:
    case QTYPE_Q5_K:
        (planes ? mins_planes : mins)(j, 0);
        break;
    case QTYPE_Q3_K:
    case QTYPE_Q6_K:
        (planes ? halves_planes : halves)(j, gemm_ymm_shift(j->type));
        break;
    case QTYPE_Q2_K:
        (planes ? half_mins_planes : half_mins)(j, 0);
        break;
    default:
        gemm_ymm_multiply_float(j);
        break;
    }
}

const struct gemm_isa gemm_avxvnni = {
    .name = "avxvnni",
    .quantize = gemm_ymm_quantize,
    .unpack = gemm_ymm_unpack,
    .multiply = multiply,
};
