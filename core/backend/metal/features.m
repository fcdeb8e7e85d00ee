/* features.m - finds the features of the GPU and the families of kernels that it can run. Owns
 * nothing. */
#include "core/backend/metal/metal_int.h"

#include <math.h>
#include <string.h>

const char *metal_tiles_name(const struct metal_backend *m) {
    if (m->features.tiles == METAL_TILES_MATRIX) return "tiles on simdgroup matrices";
    return m->features.simdgroup_matrix
               ? "tiles on plain fma, because simdgroup matrices add in another order"
               : "tiles on plain fma, for want of simdgroup matrices";
}

int backend_metal_force(backend *be, enum metal_tiles tiles, enum metal_families families) {
    struct metal_backend *m = metal_of(be);
    if (tiles == METAL_TILES_MATRIX && !m->features.simdgroup_matrix) return ERR_UNSUPPORTED;
    int rc = tiles == METAL_TILES_PLAIN ? metal_compile_plain(m, NULL) : 0;
    if (rc) return rc;
    m->features.tiles = tiles;
    m->families = families;
    return 0;
}

enum metal_tiles backend_metal_tiles(const backend *be) {
    return ((const struct metal_backend *)be)->features.tiles;
}

/* The first GPU family that has each feature the kernels use
 * (https://developer.apple.com/metal/Metal-Feature-Set-Tables.pdf). Every GPU accepted below has
 * simdgroup reductions; bfloat is not needed, since BF16 is widened by a shift. */
static const struct {
    MTLGPUFamily family;
    size_t at; /* a bool of struct metal_features */
} table[] = {
    {MTLGPUFamilyApple7, offsetof(struct metal_features, simdgroup_matrix)},
};

int metal_features_find(struct metal_backend *m, err *e) {
    struct metal_features *f = &m->features;
    if (![m->device supportsFamily:MTLGPUFamilyApple7] &&
        ![m->device supportsFamily:MTLGPUFamilyMac2])
        return err_set_param(
            e, ERR_UNSUPPORTED, "backend",
            "backend \"metal\" needs a GPU of family Apple7 (M1) or Mac2, and this "
            "Mac's is older; use backend = cpu");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        *(bool *)((char *)f + table[i].at) = [m->device supportsFamily:table[i].family];
    f->max_buffer_bytes = [m->device maxBufferLength];
    f->working_set_bytes = [m->device recommendedMaxWorkingSetSize];
    f->tiles = f->simdgroup_matrix ? METAL_TILES_MATRIX : METAL_TILES_PLAIN;
    return 0;
}

/* ---- the probe ---- */

enum { PROBE_SETS = 16, PROBE_VALUES = PROBE_SETS * 64 };

/* Values of many magnitudes, so that the order of additions shows in the last bits. */
static void fill_probe(float *x, uint32_t n, uint32_t *seed) {
    for (uint32_t i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        float v = (float)(int32_t)*seed * 0x1p-31f;
        *seed = *seed * 1664525u + 1013904223u;
        x[i] = v * (float)(1u << (*seed >> 27 & 15));
    }
}

/* The same, rounded to values that halves have, every fourth one subnormal. */
static void fill_halves(float *x, uint32_t n, uint32_t *seed) {
    for (uint32_t i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        float v = (float)((int32_t)*seed >> 21);
        *seed = *seed * 1664525u + 1013904223u;
        x[i] = v * (i % 4 ? (float)(1u << (*seed >> 27 & 3)) : 0x1p-24f);
    }
}

/* How far a value is from what a chain gives, in units of that one's last place. */
static double ulps(float value, float chain) {
    int exponent;
    frexpf(chain, &exponent);
    return fabs((double)value - (double)chain) / ldexp(1, exponent - 24);
}

/* Runs the probe on the inputs in bufs[0] to bufs[2] and compares what it computed. */
static int run_probe(struct metal_backend *m, backend_buf *bufs[5], bool halves,
                     struct metal_probe_result *result, err *e) {
    uint32_t none = 0;
    struct metal_launch l = {.kernel = "probe_matrix",
                             .n_consts = 1,
                             .consts = {{0, halves}},
                             .args = &none,
                             .args_bytes = sizeof none,
                             .n_binds = 5,
                             .groups = {PROBE_SETS, 1, 1},
                             .threads = {32, 1, 1}};
    for (int i = 0; i < 5; i++)
        l.binds[i] = metal_at(bufs[i]);
    if (metal_dispatch(m, &l) || metal_sync(&m->base, e)) {
        if (e) *e = m->failed;
        return m->failed.code;
    }
    const float *d = bufs[3]->host, *chain = bufs[4]->host;
    *result = (struct metal_probe_result){.n_values = PROBE_VALUES};
    for (uint32_t i = 0; i < PROBE_VALUES; i++) {
        if (!memcmp(&d[i], &chain[i], sizeof d[i])) continue;
        result->n_unequal++;
        result->most_ulp = fmax(result->most_ulp, ulps(d[i], chain[i]));
    }
    return 0;
}

static int probe_matrices(struct metal_backend *m, backend_buf *bufs[5], err *e) {
    uint32_t seed = 1;
    int rc = 0;
    for (int i = 0; i < 5 && !rc; i++) {
        rc = backend_buf_new(&m->base, PROBE_VALUES * sizeof(float), &bufs[i], e);
        if (!rc && i < 3) fill_probe(bufs[i]->host, PROBE_VALUES, &seed);
    }
    struct metal_features *f = &m->features;
    if (!rc) rc = run_probe(m, bufs, false, &f->chain_probe, e);
    if (!rc) fill_halves(bufs[1]->host, PROBE_VALUES, &seed);
    if (!rc) rc = run_probe(m, bufs, true, &f->half_probe, e);
    f->half_matrices = !f->half_probe.n_unequal;
    if (f->chain_probe.n_unequal) f->tiles = METAL_TILES_PLAIN;
    return rc;
}

/* Are halves below 2^-14 what IEEE says, as operands of f32 and of their own subtraction? Decoders
 * (decode.h) make integers of them. */
static int probe_halves(struct metal_backend *m, err *e) {
    enum { N = 1024 };
    const uint32_t none = 0;
    backend_buf *out = NULL;
    int rc = backend_buf_new(&m->base, 2 * N * sizeof(float), &out, e);
    if (rc) return rc;
    const struct metal_launch l = {.kernel = "probe_halves",
                                   .args = &none,
                                   .args_bytes = sizeof none,
                                   .n_binds = 1,
                                   .binds = {metal_at(out)},
                                   .groups = {N / 32, 1, 1},
                                   .threads = {32, 1, 1}};
    if (metal_dispatch(m, &l) || metal_sync(&m->base, NULL)) {
        if (e) *e = m->failed;
        rc = m->failed.code;
    }
    const float *got = out->host;
    for (int i = 0; i < N && !rc; i++)
        if (got[i] != (float)i || got[N + i] != (float)(i - N / 2))
            rc =
                err_set_param(e, ERR_UNSUPPORTED, "backend",
                              "this GPU has no subnormal halves, backend \"metal\" needs them; use "
                              "backend = cpu");
    backend_buf_free(out);
    return rc;
}

/* Apple's GPUs have simdgroups of 32 lanes; AMD GPUs in older Macs may have 64, for which every
 * reduction here would be wrong. */
static int check_width(struct metal_backend *m, err *e) {
    uint32_t width = metal_simd_width(m, &(struct metal_launch){.kernel = "gather"});
    if (!width) {
        if (e) *e = m->failed;
        return m->failed.code;
    }
    if (width == METAL_SIMD) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, "backend",
                         "this GPU has simdgroups of %u lanes, backend \"metal\" needs %d; use "
                         "backend = cpu",
                         width, METAL_SIMD);
}

int metal_probe(struct metal_backend *m, err *e) {
    backend_buf *bufs[5] = {NULL};
    int rc = check_width(m, e);
    if (!rc) rc = probe_halves(m, e);
    if (!rc && m->features.simdgroup_matrix) rc = probe_matrices(m, bufs, e);
    for (int i = 0; i < 5; i++)
        backend_buf_free(bufs[i]);
    return rc || m->features.tiles == METAL_TILES_MATRIX ? rc : metal_compile_plain(m, e);
}
