/* qtype_int.h - private to qtype.c, qencode*.c and qwiden.c. An encoder writes n values (a multiple
 * of the type's block) of src to dst, as qtype_encode says; w (n): positive weights of the squared
 * errors, at most 1, or NULL. */
#ifndef INFERD_BASE_QTYPE_INT_H
#define INFERD_BASE_QTYPE_INT_H

#include "core/base/qblock.h"

/* qencode.c */
void qencode_f32(const float *src, const float *w, void *dst, uint64_t n);
void qencode_f16(const float *src, const float *w, void *dst, uint64_t n);
void qencode_bf16(const float *src, const float *w, void *dst, uint64_t n);
void qencode_q4_0(const float *src, const float *w, void *dst, uint64_t n);
void qencode_q4_1(const float *src, const float *w, void *dst, uint64_t n);
void qencode_q5_0(const float *src, const float *w, void *dst, uint64_t n);
void qencode_q5_1(const float *src, const float *w, void *dst, uint64_t n);
void qencode_q8_0(const float *src, const float *w, void *dst, uint64_t n);
void qencode_iq4_nl(const float *src, const float *w, void *dst, uint64_t n);
void qencode_mxfp4(const float *src, const float *w, void *dst, uint64_t n);
void qencode_tq1_0(const float *src, const float *w, void *dst, uint64_t n);
void qencode_tq2_0(const float *src, const float *w, void *dst, uint64_t n);

/* qencode_k.c */
void qencode_q2_k(const float *src, const float *w, void *dst, uint64_t n);
void qencode_q3_k(const float *src, const float *w, void *dst, uint64_t n);
void qencode_q4_k(const float *src, const float *w, void *dst, uint64_t n);
void qencode_q5_k(const float *src, const float *w, void *dst, uint64_t n);
void qencode_q6_k(const float *src, const float *w, void *dst, uint64_t n);
void qencode_iq4_xs(const float *src, const float *w, void *dst, uint64_t n);

/* qencode_iq.c */
void qencode_iq2_xxs(const float *src, const float *w, void *dst, uint64_t n);
void qencode_iq2_xs(const float *src, const float *w, void *dst, uint64_t n);
void qencode_iq2_s(const float *src, const float *w, void *dst, uint64_t n);
void qencode_iq3_xxs(const float *src, const float *w, void *dst, uint64_t n);
void qencode_iq3_s(const float *src, const float *w, void *dst, uint64_t n);
void qencode_iq1_s(const float *src, const float *w, void *dst, uint64_t n);
void qencode_iq1_m(const float *src, const float *w, void *dst, uint64_t n);

/* qwiden.c: decoders; qdecode_widened for every type that qtype_widen converts. */
void qdecode_widened(int type, const void *src, float *dst, uint64_t n);
void qdecode_tq1_0(const void *src, float *dst, uint64_t n);
void qdecode_tq2_0(const void *src, float *dst, uint64_t n);

#endif
