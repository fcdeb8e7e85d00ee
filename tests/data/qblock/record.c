/* record.c - writes the golden blocks of this folder: NAME.bin holds n blocks, then the n * block
 * values that ggml's own decoder makes of them. Build and use: see README.md. */
#include "ggml.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 64, MAX_BYTES = 256, MAX_ELEMS = 256 };

/* Offsets of the halves in a block: -1 for none. */
static const struct {
    enum ggml_type type;
    const char *name;
    int d, m;
} types[] = {
    {GGML_TYPE_F16, "F16", 0, -1},       {GGML_TYPE_BF16, "BF16", -1, -1},
    {GGML_TYPE_Q4_0, "Q4_0", 0, -1},     {GGML_TYPE_Q4_1, "Q4_1", 0, 2},
    {GGML_TYPE_Q5_0, "Q5_0", 0, -1},     {GGML_TYPE_Q5_1, "Q5_1", 0, 2},
    {GGML_TYPE_Q8_0, "Q8_0", 0, -1},     {GGML_TYPE_Q2_K, "Q2_K", 80, 82},
    {GGML_TYPE_Q3_K, "Q3_K", 108, -1},   {GGML_TYPE_Q4_K, "Q4_K", 0, 2},
    {GGML_TYPE_Q5_K, "Q5_K", 0, 2},      {GGML_TYPE_Q6_K, "Q6_K", 208, -1},
    {GGML_TYPE_IQ4_NL, "IQ4_NL", 0, -1}, {GGML_TYPE_IQ4_XS, "IQ4_XS", 0, -1},
    {GGML_TYPE_MXFP4, "MXFP4", -1, -1},  {GGML_TYPE_IQ2_XXS, "IQ2_XXS", 0, -1},
    {GGML_TYPE_IQ2_XS, "IQ2_XS", 0, -1}, {GGML_TYPE_IQ2_S, "IQ2_S", 0, -1},
    {GGML_TYPE_IQ3_S, "IQ3_S", 0, -1},   {GGML_TYPE_IQ3_XXS, "IQ3_XXS", 0, -1},
    {GGML_TYPE_IQ1_S, "IQ1_S", 0, -1},   {GGML_TYPE_IQ1_M, "IQ1_M", -1, -1},
    {GGML_TYPE_TQ1_0, "TQ1_0", 52, -1},  {GGML_TYPE_TQ2_0, "TQ2_0", 64, -1},
    {GGML_TYPE_NVFP4, "NVFP4", -1, -1},
};

/* Scale and minimum: ordinary, negative, zero, subnormal, largest, smallest, infinite, NaN. */
static const uint16_t halves[][2] = {
    {0x2c3d, 0x3111}, {0xa90f, 0x2bcd}, {0x1a05, 0xb204}, {0x0000, 0x0000},
    {0x8000, 0x2c00}, {0x0001, 0x03ff}, {0x83ff, 0x0200}, {0x7bff, 0x7bff},
    {0xfbff, 0x7bff}, {0x0001, 0x0001}, {0x7c00, 0x3c00}, {0x7e00, 0x3c00},
};
static const uint8_t exponents[] = {127, 120, 0, 1, 2, 3, 250, 252, 253, 254, 255, 130};

enum { N_HALVES = sizeof halves / sizeof halves[0] };
_Static_assert(sizeof exponents == N_HALVES, "one exponent for each pair of halves");

static uint32_t next_random(void) {
    static uint32_t state = 20240607;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static int record(int t, const char *folder) {
    static uint8_t blocks[MAX_BLOCKS * MAX_BYTES];
    static float values[MAX_BLOCKS * MAX_ELEMS];
    char path[4096];
    size_t bytes = ggml_type_size(types[t].type);
    int64_t elems = ggml_blck_size(types[t].type);
    int n = 0;
    for (int i = 0; elems > 1 && i < N_HALVES + 2; i++, n++) {
        uint8_t *b = blocks + (size_t)n * bytes;
        for (size_t k = 0; k < bytes; k++)
            b[k] = i < N_HALVES ? (uint8_t)(next_random() >> 11) : i == N_HALVES ? 0xff : 0;
        const uint16_t *h = halves[i < N_HALVES ? i : 0];
        if (types[t].d >= 0) memcpy(b + types[t].d, &h[0], 2);
        if (types[t].m >= 0) memcpy(b + types[t].m, &h[1], 2);
        if (types[t].type == GGML_TYPE_MXFP4) b[0] = exponents[i < N_HALVES ? i : 0];
        /* IQ1_M: the half's nibbles are the top nibbles of the last four 16-bit words. */
        for (int k = 0; k < 4 && types[t].type == GGML_TYPE_IQ1_M; k++)
            b[49 + 2 * k] = (uint8_t)((b[49 + 2 * k] & 15) | (h[0] >> 4 * k & 15) << 4);
    }
    for (; elems == 1 && n < MAX_BLOCKS; n++) { /* plain types: bit patterns of all magnitudes */
        uint16_t pattern = (uint16_t)(n < N_HALVES ? halves[n][0] : next_random() >> 7);
        memcpy(blocks + (size_t)n * bytes, &pattern, 2);
    }
    ggml_get_type_traits(types[t].type)->to_float(blocks, values, n * elems);
    snprintf(path, sizeof path, "%s/%s.bin", folder, types[t].name);
    FILE *f = fopen(path, "wb");
    if (!f) return 1;
    fwrite(blocks, bytes, (size_t)n, f);
    fwrite(values, sizeof *values, (size_t)(n * elems), f);
    return fclose(f);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        if (record((int)t, argv[1])) return perror(types[t].name), 1;
    return 0;
}
