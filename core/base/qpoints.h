/* qpoints.h - private to the encoders of the IQ types: what they ask of all points of a grid at
 * once. A lane of a vector holds one point and no sum crosses lanes, so a kernel of any number of
 * lanes gives the same bits (qencode_iq.c says what a and b are). Pure; any thread. */
#ifndef INFERD_BASE_QPOINTS_H
#define INFERD_BASE_QPOINTS_H

#include <stdbool.h>
#include <stdint.h>

/* The number of points is a multiple of the most lanes. */
enum { QPOINTS_MAX = 2048, QPOINTS_MAX_LANES = 16, QPOINTS_ALIGN = 64 };

/* A unit of 4 or 8 values, their weights; shift is added to every coordinate. flips: the sign of
 * the value that costs least is wrong (units without a shift). */
struct qpoints_unit {
    const float *x, *w;
    uint32_t n;
    float shift;
    bool flips;
};

/* A point, and the line d b - 2 a of its error. */
struct qpoints_line {
    float a, b;
    uint32_t point;
};
/* Several; room for QPOINTS_MAX_LANES behind the last. */
struct qpoints_lines {
    float a[QPOINTS_MAX + QPOINTS_MAX_LANES] __attribute__((aligned(QPOINTS_ALIGN)));
    float b[QPOINTS_MAX + QPOINTS_MAX_LANES] __attribute__((aligned(QPOINTS_ALIGN)));
    uint16_t point[QPOINTS_MAX];
};
/* Which of them count: below level at d, with b between these. */
struct qpoints_cut {
    float d, level, b_below, b_above;
};

/* All arrays are aligned to QPOINTS_ALIGN bytes; a, b: (n_points). */
struct qpoints_kernel {
    uint32_t n_lanes; /* coordinate i of point p of units of n is grid[(p / n_lanes * n + i) *
                         n_lanes + p % n_lanes] */
    void (*lines)(const float *grid, uint32_t n_points, const struct qpoints_unit *unit, float *a,
                  float *b);
    /* The point whose d b - 2 a is lowest; of equal ones that with the lowest b, then that with the
     * lowest p % 4, then with the lowest p. */
    uint32_t (*lowest)(const float *a, const float *b, uint32_t n_points, float d);
    /* Those with d b - 2 a < level, rising, to *out (n_points). Returns how many. */
    uint32_t (*below)(const float *a, const float *b, uint32_t n_points, float d, float level,
                      uint16_t *out);
    /* Moves those of n lines that count before the others, each in exchange for the first that does
     * not; *lowest: the first of the lowest of them at d, if any. Returns how many. */
    uint32_t (*split)(struct qpoints_lines *lines, uint32_t n, const struct qpoints_cut *cut,
                      struct qpoints_line *lowest);
};

extern const struct qpoints_kernel qpoints_kernel_4;
#if defined(__x86_64__)
extern const struct qpoints_kernel qpoints_kernel_avx2, qpoints_kernel_avx512;
#endif

enum { QPOINTS_MAX_KERNELS = 3 };
/* The kernels that this machine can run, the fastest first. Returns how many. */
uint32_t qpoints_kernels(const struct qpoints_kernel *out[QPOINTS_MAX_KERNELS]);

/* Encodes to one of the IQ1, IQ2 and IQ3 types with that kernel: as qencode_* of qtype_int.h. */
void qencode_iq_by(const struct qpoints_kernel *kernel, int type, const float *src, const float *w,
                   void *dst, uint64_t n);

#endif
