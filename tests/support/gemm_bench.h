/* gemm_bench.h - how fast the kernels of matrix products are, by type and row count: a table on
 * standard output. Weights that stay in the second-level cache tell what the kernels can do;
 * weights that come from memory, with a thread on each processor, what decoding one stream can. */
#ifndef INFERD_TESTS_GEMM_BENCH_H
#define INFERD_TESTS_GEMM_BENCH_H

#include "core/backend/cpu/gemm/gemm.h"

/* type: enum qtype, or -1 for all. planes: 1 or 2. */
void gemm_bench(const struct gemm_isa *isa, int type, int planes);

#endif
