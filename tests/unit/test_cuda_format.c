/* test_cuda_format.c - weights as the CUDA backend stores them: every quantized type repacked into
 * tiles and decoded again by the device, against qtype_decode; 16-bit rows with their padding. Uses
 * private headers, so it links its own copy of the backend. test_backend tests products. */
#include "tests/support/be.h"
#include "tests/support/device_main.h"

#ifdef INFERD_CUDA_INSIDE
#include "core/backend/cuda/gemm_int.h"
#include "shaders/cuda/kernels.h"

static const int types[] = {QTYPE_Q4_0,      QTYPE_Q4_1,   QTYPE_Q5_0,  QTYPE_Q5_1,  QTYPE_Q8_0,
                            QTYPE_Q2_K,      QTYPE_Q3_K,   QTYPE_Q4_K,  QTYPE_Q5_K,  QTYPE_Q6_K,
                            QTYPE_IQ4_NL,    QTYPE_IQ4_XS, QTYPE_MXFP4, QTYPE_IQ1_W, QTYPE_IQ2_W,
                            QTYPE_IQ3_XXS_W, QTYPE_IQ3_S_W};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* Opens the linked copy of the backend, not the module. NULL without a GPU. */
static backend *open_cuda(void) {
    const struct backend_config config = {.max_rows = 4, .max_cols = 1024};
    backend *be;
    err e = {0};
    int rc = backend_cuda_open(&config, &be, &e);
    be_need(rc == 0 || rc == ERR_UNSUPPORTED, e.msg);
    if (rc) SKIP("cuda", e.msg);
    return rc ? NULL : be;
}

/* Offsets of the f16 scales in a block of the type; -1: none. */
static void half_places(int type, int at[2]) {
    at[0] = 0, at[1] = -1;
    switch (type) {
    case QTYPE_Q4_1:
    case QTYPE_Q5_1:
    case QTYPE_Q4_K:
    case QTYPE_Q5_K:
        at[1] = 2;
        break;
    case QTYPE_Q2_K:
        at[0] = 80, at[1] = 82;
        break;
    case QTYPE_Q3_K:
    case QTYPE_IQ1_W:
    case QTYPE_IQ2_W:
        at[0] = 108;
        break;
    case QTYPE_Q6_K:
        at[0] = 208;
        break;
    case QTYPE_MXFP4:
        at[0] = -1;
        break;
    default:
        break;
    }
}

/* How scales are chosen. */
enum scales { ALIKE, SPREAD, GROWING, ZERO };

/* Random blocks. Scales: ALIKE as in a real model, SPREAD over all finite halves, GROWING with the
 * position in the tensor, ZERO. */
static void fill_blocks(int type, uint8_t *data, uint64_t n_blocks, enum scales scales) {
    uint32_t block_bytes = qtype_find(type)->block_bytes;
    int at[2];
    half_places(type, at);
    for (uint64_t b = 0; b < n_blocks; b++) {
        uint8_t *block = data + b * block_bytes;
        for (uint32_t i = 0; i < block_bytes; i++)
            block[i] = (uint8_t)be_rand();
        float grown = ldexpf(1, (int)(24 * b / n_blocks) - 14);
        if (type == QTYPE_MXFP4)
            block[0] = scales == ALIKE    ? (uint8_t)(118 + be_rand() % 6)
                       : scales == SPREAD ? (uint8_t)(block[0] % 255)
                       : scales == ZERO   ? 0
                                          : (uint8_t)(100 + 40 * b / n_blocks);
        for (int i = 0; i < 2; i++) {
            uint16_t h = (uint16_t)(be_rand() & 0xffff);
            float v = (float)(be_rand() % 2001) / 1000 - 1;
            if (at[i] < 0) continue;
            if (scales == SPREAD && (h & 0x7c00) == 0x7c00) h &= 0xbfff;
            if (scales == ALIKE) h = f32_to_f16(0.01f * v);
            if (scales == GROWING) h = f32_to_f16(grown * v);
            if (scales == ZERO) h = 0;
            memcpy(block + at[i], &h, sizeof h);
        }
    }
}

static int dequantize(backend *be, const struct cuda_weight *w, uint64_t expert, backend_buf *out) {
    uint32_t n_in = (uint32_t)w->base.n_in, n_out = (uint32_t)w->base.n_out;
    const struct cargs_dequantize args = {
        .tiles = (const uint8_t *)w->product + expert * w->expert_bytes,
        .out = cuda_at(out),
        .n_tiles = cuda_n_tiles(n_out, n_in),
        .n_in = n_in,
        .pitch = cuda_pitch(n_in),
    };
    return cuda_launch(cuda_of(be), &(struct cuda_launch){
                                        .kernel = cuda_dequantize_kernel(w->format),
                                        .name = "dequantize",
                                        .args = &args,
                                        .args_bytes = sizeof args,
                                        .grid = {cuda_div_up(args.n_tiles, CUDA_DEQUANTIZE_TILES)},
                                        .threads = 256});
}

static bool has_min(int format) {
    return format == CUDA_FORMAT_Q4_MIN || format == CUDA_FORMAT_Q5_MIN ||
           format == CUDA_FORMAT_Q2_MIN;
}

/* Compares one expert's (n_out, n_in) values with the expected ones. In formats with a minimum, a
 * value is the difference of two numbers rounded to halves, which may exceed every value: q * scale
 * (at most the block's range) and the minimum. The error also allows a step of subnormal halves. */
static void check_values(const struct cuda_weight *w, const uint16_t *got, const float *want) {
    uint32_t n_in = (uint32_t)w->base.n_in, n_out = (uint32_t)w->base.n_out;
    uint32_t pitch = cuda_pitch(n_in), group = 16;
    for (uint32_t row = 0; row < n_out; row++) {
        for (uint32_t c = 0; c < pitch; c++) {
            double v = (double)f16_to_f32(got[(uint64_t)row * pitch + c]) * (double)w->scale;
            if (c >= n_in) {
                CHECK(v == 0);
                continue;
            }
            const float *from = want + (uint64_t)row * n_in;
            double most = 0;
            for (uint32_t i = c / group * group; i < c / group * group + group; i++)
                most = fmax(most, fabs((double)from[i]));
            double error = 0x1p-10 * fabs((double)from[c]) + 0x1p-23 * (double)w->scale;
            if (has_min(w->format)) error += 0x1p-9 * most;
            CHECK_MSG(fabs(v - (double)from[c]) <= error, "%s (%u, %u) [%u][%u]: %g, not %g",
                      qtype_name(w->base.type), n_out, n_in, row, c, v, (double)from[c]);
        }
    }
    for (uint32_t row = n_out; row < (n_out + 15) / 16 * 16; row++)
        for (uint32_t c = 0; c < pitch; c++)
            CHECK(f16_to_f32(got[(uint64_t)row * pitch + c]) == 0);
}

/* n_experts 0: a plain weight. */
static void check_type(backend *be, int type, uint32_t n_experts, uint32_t n_out, uint32_t n_in,
                       enum scales scales, unsigned use) {
    uint64_t n = n_experts ? n_experts : 1, bytes, all;
    uint64_t values = (uint64_t)n_out * n_in, padded = (n_out + 15) / 16 * 16;
    uint32_t pitch = cuda_pitch(n_in);
    qtype_bytes(type, n_out, n_in, &bytes);
    all = n * bytes;
    uint8_t *data = be_new(all, 1);
    float *want = be_new(values, 4);
    uint16_t *got = be_new(padded * pitch, 2);
    fill_blocks(type, data, all / qtype_find(type)->block_bytes, scales);
    backend_weight *weight = be_weight_for(be, use, type, n_experts, n_out, n_in, data);
    err e;
    struct cuda_weight *w = (struct cuda_weight *)weight;
    uint64_t raw = use & BACKEND_USE_EMBED ? all : 0;
    CHECK(backend_weight_bytes(weight) == n * w->expert_bytes + raw);
    CHECK(w->expert_bytes == cuda_n_tiles(n_out, n_in) * cuda_tile_bytes(w->format));
    if (scales == ZERO && type != QTYPE_MXFP4) CHECK(w->scale == 1);
    backend_buf *out = be_bytes(be, NULL, padded * pitch * 2);
    for (uint64_t i = 0; i < n; i++) {
        CHECK(dequantize(be, w, i, out) == 0);
        be_need(backend_download(be, out, 0, got, padded * pitch * 2, &e) == 0, "a download");
        qtype_decode(type, data + i * bytes, want, values);
        check_values(w, got, want);
    }
    backend_buf_free(out);
    backend_weight_free(weight);
    free(got);
    free(want);
    free(data);
}

static void test_quantized(void) {
    static const uint32_t outs[] = {1, 15, 17, 100};
    backend *be = open_cuda();
    if (!be) return;
    for (int i = 0; i < N_TYPES; i++) {
        uint32_t block = qtype_find(types[i])->block_elems;
        for (int k = 0; k < 4; k++) {
            uint32_t n_in = block == 32 ? (uint32_t[]){32, 288, 512, 96}[k] : 256u * (1 + k % 3);
            check_type(be, types[i], 0, outs[k], n_in, ALIKE, BACKEND_USE_LINEAR);
            check_type(be, types[i], 0, outs[3 - k], n_in, SPREAD,
                       BACKEND_USE_LINEAR | BACKEND_USE_EMBED);
        }
        check_type(be, types[i], 0, 18, 512, ZERO, BACKEND_USE_LINEAR);
        check_type(be, types[i], 3, 32, 256, ALIKE, BACKEND_USE_LINEAR);
        /* every expert needs another power of two than the previous ones */
        check_type(be, types[i], 5, 18, 512, GROWING, BACKEND_USE_LINEAR);
    }
    backend_close(be);
}

/* Weights larger than one upload chunk. */
static void test_chunks(void) {
    backend *be = open_cuda();
    if (!be) return;
    check_type(be, QTYPE_Q8_0, 0, 1000, 8192, GROWING, BACKEND_USE_LINEAR);
    backend_close(be);
}

/* A broken file's infinite scale makes NaN of its own block and leaves the others as they were. */
static void test_infinite(void) {
    enum { N_OUT = 17, N_IN = 512 };
    backend *be = open_cuda();
    if (!be) return;
    for (int i = 0; i < N_TYPES; i++) {
        uint64_t bytes;
        int at[2];
        half_places(types[i], at);
        if (at[0] < 0) continue;
        qtype_bytes(types[i], N_OUT, N_IN, &bytes);
        uint32_t block = qtype_find(types[i])->block_elems;
        uint8_t *data = be_new(bytes, 1);
        float *want = be_new((uint64_t)N_OUT * N_IN, 4);
        uint16_t *got = be_new((uint64_t)32 * N_IN, 2), inf = 0x7c00;
        err e;
        fill_blocks(types[i], data, (uint64_t)N_OUT * N_IN / block, ALIKE);
        memcpy(data + at[0], &inf, sizeof inf);
        backend_weight *weight = be_weight(be, types[i], N_OUT, N_IN, data);
        struct cuda_weight *w = (struct cuda_weight *)weight;
        backend_buf *out = be_bytes(be, NULL, (uint64_t)32 * N_IN * 2);
        CHECK(dequantize(be, w, 0, out) == 0);
        be_need(backend_download(be, out, 0, got, (uint64_t)32 * N_IN * 2, &e) == 0, "a download");
        qtype_decode(types[i], data, want, (uint64_t)N_OUT * N_IN);
        bool finite = true;
        for (uint32_t c = 0; c < block; c++)
            finite = finite && isfinite(f16_to_f32(got[c]));
        CHECK(!finite);
        for (uint32_t c = block; c < N_OUT * N_IN; c++) {
            double v = (double)f16_to_f32(got[c]) * (double)w->scale;
            CHECK(fabs(v - (double)want[c]) <= 0x1p-9 * fabs((double)want[c]) + 0.05);
        }
        backend_buf_free(out);
        backend_weight_free(weight);
        free(got);
        free(want);
        free(data);
    }
    backend_close(be);
}

static uint16_t half_at(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* n values of a BF16 file as f16 times scale: exact down to 2^-32 of the largest. */
static void check_halves(const uint8_t *data, const uint8_t *got, uint64_t n, float scale,
                         float largest) {
    for (uint64_t i = 0; i < n; i++) {
        float want = bf16_to_f32(half_at(data + 2 * i)), v = f16_to_f32(half_at(got + 2 * i));
        double is = (double)v * (double)scale, most = (double)largest;
        if (!isfinite(want)) {
            CHECK(isnan(want) ? isnan(v) : v == want);
            continue;
        }
        CHECK(fabs((double)v) < 65536 && signbit(v) == signbit(want));
        bool exact = fabs((double)want) >= 0x1p-32 * most;
        CHECK_MSG(fabs(is - (double)want) <= (exact ? 0 : 0x1p-40 * most), "%g, not %g (of %g)", is,
                  (double)want, most);
    }
}

/* The largest finite value; checks that its half is in [2^15, 2^16) if a normal scale can do that.
 */
static float largest_of(const uint8_t *data, uint64_t n, float scale) {
    float largest = 0;
    for (uint64_t i = 0; i < n; i++) {
        float v = fabsf(bf16_to_f32(half_at(data + 2 * i)));
        if (isfinite(v) && v > largest) largest = v;
    }
    double half = (double)largest / (double)scale;
    CHECK(largest == 0 ? scale == 1 : half < 0x1p16 && (half >= 0x1p15 || scale == 0x1p-126f));
    return largest;
}

/* Rows of an unquantized matrix as products read them, and the table that embed reads. */
static void check_rows(backend *be, int type, uint32_t n_experts, uint32_t n_out, uint32_t n_in,
                       unsigned use) {
    uint64_t n = n_experts ? n_experts : 1, size = type == QTYPE_F32 ? 4 : 2;
    uint64_t pitch = type == QTYPE_F32 ? n_in : cuda_pitch(n_in);
    uint64_t rows = type == QTYPE_F32 ? n_out : (n_out + 15) / 16 * 16, bytes = rows * pitch * size;
    uint8_t *data = be_new(n * n_out * n_in, size), *got = be_new(n * bytes, 1), zero[256] = {0};
    for (uint64_t i = 0; i < n * n_out * n_in * size; i++)
        data[i] = (uint8_t)be_rand();
    backend_weight *weight = be_weight_for(be, use, type, n_experts, n_out, n_in, data);
    err e;
    struct cuda_weight *w = (struct cuda_weight *)weight;
    bool halves = type == QTYPE_BF16;
    float largest = halves ? largest_of(data, n * n_out * n_in, w->scale) : 0;
    CHECK(w->expert_bytes == bytes && (halves || w->scale == 1));
    bool one = pitch == n_in || use == BACKEND_USE_LINEAR;
    CHECK(backend_weight_bytes(weight) == n * bytes + (one ? 0 : n * n_out * n_in * size));
    struct cuda_buf view = {.base = {.be = be, .bytes = n * bytes}, .dev = (void *)w->product};
    be_need(backend_download(be, &view.base, 0, got, n * bytes, &e) == 0, "a download");
    for (uint64_t r = 0; r < n * rows; r++) {
        const uint8_t *row = got + r * pitch * size;
        uint64_t from = r / rows * n_out + r % rows;
        bool there = r % rows < n_out;
        if (there && halves)
            check_halves(data + from * n_in * size, row, n_in, w->scale, largest);
        else if (there)
            CHECK(memcmp(row, data + from * n_in * size, n_in * size) == 0);
        for (uint64_t i = there ? n_in * size : 0; i < pitch * size; i++)
            CHECK(row[i] == zero[0]);
    }
    if (w->raw && !(halves && w->raw == w->product)) {
        view.dev = (void *)w->raw;
        be_need(backend_download(be, &view.base, 0, got, n * n_out * n_in * size, &e) == 0, "raw");
        CHECK(memcmp(got, data, n * n_out * n_in * size) == 0);
    }
    backend_weight_free(weight);
    free(got);
    free(data);
}

static void test_rows(void) {
    static const int plain[] = {QTYPE_F32, QTYPE_F16, QTYPE_BF16};
    const unsigned both = BACKEND_USE_LINEAR | BACKEND_USE_EMBED;
    backend *be = open_cuda();
    if (!be) return;
    for (int i = 0; i < 3; i++) {
        check_rows(be, plain[i], 0, 1, 1, BACKEND_USE_LINEAR);
        check_rows(be, plain[i], 0, 33, 97, both);
        check_rows(be, plain[i], 0, 17, 128, both);
        check_rows(be, plain[i], 3, 20, 65, BACKEND_USE_LINEAR);
        check_rows(be, plain[i], 3, 32, 64, BACKEND_USE_LINEAR);
    }
    check_rows(be, QTYPE_F16, 0, 1100, 4001, both); /* larger than one upload chunk */
    backend_close(be);
}

int main(void) {
    RUN(test_quantized);
    RUN(test_chunks);
    RUN(test_infinite);
    RUN(test_rows);
    return check_done();
}
#else
DEVICE_MAIN_SKIPS("cuda", "the CUDA backend is not linked in")
#endif
