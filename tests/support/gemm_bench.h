/* gemm_bench.h - the speed of matrix product kernels by type and row count, as a table on standard
 * output. Weights in the second-level cache show the kernels' limit; weights in memory, with a
 * thread per processor, the limit of decoding one stream. */
#ifndef INFERD_TESTS_GEMM_BENCH_H
#define INFERD_TESTS_GEMM_BENCH_H

#include "core/backend/cpu/gemm/gemm.h"

/* type: enum qtype, or -1 for all. planes: 1 or 2. */
void gemm_bench(const struct gemm_isa *isa, int type, int planes);

#endif
