/* test_qtype.c - element types: decoders against golden blocks recorded from ggml
 * (tests/data/qblock), sizes. */
#include "core/base/qblock.h"

#include "tests/unit/check.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int all_types[] = {
    QTYPE_F32,  QTYPE_F16,    QTYPE_BF16,   QTYPE_Q4_0,  QTYPE_Q4_1, QTYPE_Q5_0,
    QTYPE_Q5_1, QTYPE_Q8_0,   QTYPE_Q2_K,   QTYPE_Q3_K,  QTYPE_Q4_K, QTYPE_Q5_K,
    QTYPE_Q6_K, QTYPE_IQ4_NL, QTYPE_IQ4_XS, QTYPE_MXFP4,
};
enum { N_TYPES = sizeof all_types / sizeof all_types[0] };

static void *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *data = malloc(1 << 20);
    *n = data ? fread(data, 1, 1 << 20, f) : 0;
    fclose(f);
    return data;
}

/* Bit for bit; of a NaN only that it is one. */
static void golden(const struct qtype_info *info) {
    char path[64];
    size_t size;
    snprintf(path, sizeof path, "tests/data/qblock/%s.bin", info->name);
    uint8_t *data = read_file(path, &size);
    CHECK_MSG(data, "%s", path);
    if (!data) return;
    size_t one = info->block_bytes + info->block_elems * sizeof(float), n_blocks = size / one;
    CHECK(n_blocks >= 8 && size % one == 0);
    size_t n = n_blocks * info->block_elems;
    float *got = malloc(n * sizeof *got);
    qtype_decode(info->type, data, got, n);
    for (size_t i = 0; i < n; i++) {
        float want;
        memcpy(&want, data + n_blocks * info->block_bytes + i * sizeof want, sizeof want);
        bool same = isnan(want) ? isnan(got[i]) : memcmp(&want, &got[i], sizeof want) == 0;
        CHECK_MSG(same, "%s block %zu value %zu: got %a, want %a", info->name,
                  i / info->block_elems, i % info->block_elems, (double)got[i], (double)want);
    }
    free(got);
    free(data);
}

static void test_golden_blocks(void) {
    for (int t = 0; t < N_TYPES; t++)
        if (all_types[t] != QTYPE_F32) golden(qtype_find(all_types[t]));
}

static void test_table(void) {
    for (int t = 0; t < N_TYPES; t++) {
        const struct qtype_info *info = qtype_find(all_types[t]);
        CHECK(info && info->type == all_types[t]);
        CHECK_STR(qtype_name(all_types[t]), info->name);
        uint64_t bytes = 7, elems = info->block_elems;
        CHECK(qtype_bytes(info->type, 3, 5 * elems, &bytes) && bytes == 15 * info->block_bytes);
        CHECK(qtype_bytes(info->type, 0, elems, &bytes) && bytes == 0);
        bytes = 7;
        CHECK(elems == 1 || !qtype_bytes(info->type, 1, elems + 1, &bytes));
        CHECK(!qtype_bytes(info->type, UINT64_MAX / info->block_bytes + 1, elems, &bytes));
        CHECK(elems > info->block_bytes ||
              !qtype_bytes(info->type, 2, UINT64_MAX / elems * elems, &bytes));
        CHECK(bytes == 7);
    }
    const int others[] = {-1, 4, 5, 9, 15, 16, 21, 24, 29, 31, 38, 40, 999, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK_MSG(!qtype_find(others[i]), "%d", others[i]);
    CHECK_STR(qtype_name(16), "type 16");
}

int main(void) {
    RUN(test_table);
    RUN(test_golden_blocks);
    return check_done();
}
