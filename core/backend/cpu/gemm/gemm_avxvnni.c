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
    bool planes = j->x.q[1];
    clear_acc(j);
    switch (j->type) {
    case QTYPE_Q4_0:
    case QTYPE_Q5_0:
    case QTYPE_Q8_0:
    case QTYPE_IQ4_NL:
    case QTYPE_IQ4_XS:
    case QTYPE_MXFP4:
        (planes ? plain_planes : plain)(j);
        break;
    case QTYPE_Q4_1:
    case QTYPE_Q5_1:
    case QTYPE_Q4_K:
    case QTYPE_Q5_K:
        (planes ? mins_planes : mins)(j);
        break;
    case QTYPE_Q3_K:
    case QTYPE_Q6_K:
        (planes ? halves_planes : halves)(j);
        break;
    case QTYPE_Q2_K:
        (planes ? half_mins_planes : half_mins)(j);
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
    .multiply = multiply_job,
};
