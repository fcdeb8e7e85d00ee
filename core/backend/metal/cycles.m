/* cycles.m - what dispatches cost on the ALUs, in cycles of one lane. The tables hold what
 * tests/metal/standin/tools/metalcycles counts in the optimised kernels; scripts/check-metal holds
 * them to it. Tiles, recurrent states and lists of experts are not in them: they count as 0. Owns
 * nothing. */
#include "core/backend/metal/metal_int.h"

#include <string.h>

/* Of a weight in the vector family: with one row, and for each further row of a pass. */
static const struct {
    int type;
    float one, more;
} products[] = {
    {QTYPE_F32, 1.69, 1.12},       {QTYPE_F16, 1.69, 1.12},     {QTYPE_Q4_0, 5.25, 1.15},
    {QTYPE_Q4_1, 4.38, 1.15},      {QTYPE_Q5_0, 6.38, 1.17},    {QTYPE_Q5_1, 5.50, 1.17},
    {QTYPE_Q8_0, 4.94, 1.12},      {QTYPE_Q2_K, 4.58, 1.33},    {QTYPE_Q3_K, 6.77, 1.35},
    {QTYPE_Q4_K, 3.95, 1.13},      {QTYPE_Q5_K, 5.23, 1.16},    {QTYPE_Q6_K, 5.86, 1.43},
    {QTYPE_IQ4_NL, 13.62, 1.15},   {QTYPE_IQ4_XS, 14.30, 1.19}, {QTYPE_BF16, 1.69, 1.12},
    {QTYPE_MXFP4, 8.00, 1.13},     {QTYPE_IQ1_W, 9.14, 1.35},   {QTYPE_IQ2_W, 10.14, 1.35},
    {QTYPE_IQ3_XXS_W, 9.05, 1.19}, {QTYPE_IQ3_S_W, 7.92, 1.19},
};

/* Of an element of K or V with head_dim 128: for itself, and for each query head that it meets. */
static const struct {
    int type;
    float own, per_head;
} attention[] = {
    {QTYPE_F16, 1.56, 1.12},
    {QTYPE_Q8_0, 3.84, 1.12},
};

/* Of a byte that is read or written. */
static const struct {
    const char *kernel;
    float per_byte;
} rows[] = {
    {"input_rows", 1.32},       {"embed", 2.66}, {"gather", 2.25}, {"rope_store", 6.75},
    {"attention_reduce", 2.00}, {"top", 3.31},
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

uint64_t metal_product_cycles(int type, uint32_t n_rows, uint64_t n_weights) {
    for (size_t i = 0; i < COUNT(products); i++)
        if (products[i].type == type)
            return (uint64_t)((products[i].one + (float)(n_rows - 1) * products[i].more) *
                              (double)n_weights);
    return 0;
}

uint64_t metal_attention_cycles(int type, uint32_t n_heads, uint64_t n_elements) {
    for (size_t i = 0; i < COUNT(attention); i++)
        if (attention[i].type == type)
            return (uint64_t)((attention[i].own + (float)n_heads * attention[i].per_head) *
                              (double)n_elements);
    return 0;
}

uint64_t metal_cycles(const struct metal_launch *l) {
    if (l->cycles) return l->cycles;
    for (size_t i = 0; i < COUNT(rows); i++)
        if (strcmp(rows[i].kernel, l->kernel) == 0)
            return (uint64_t)(rows[i].per_byte * (double)(l->read + l->written));
    return 0;
}
