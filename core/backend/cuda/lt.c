/* lt.c - products by cuBLASLt, loaded at run time; without it other kernels compute them. Owns the
 * library's handle and the algorithms chosen for each shape of weights.
 *
 * BATCH INVARIANCE. Only algorithms without split-K are used, and each only after its results on
 * random data of the weight's own shape were, bit for bit, those of the sequence of tensor core
 * operations that all kernels of this backend compute (format.h). Among these the fastest wins. */
#include "core/backend/cuda/gemm_int.h"

#ifdef __has_include
#if __has_include(<cublasLt.h>)
#define HAVE_CUBLASLT
#endif
#endif

#ifdef HAVE_CUBLASLT
#include "core/base/log.h"
#include "core/base/mem.h"
#include "shaders/cuda/kernels.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdlib.h>

enum {
    MAX_PLANS = 48,
    LEAST_BUCKET = 64, /* rows; each bucket holds twice the previous one's */
    N_BUCKETS = 8,
    MIN_OUT = 256, /* smaller products are not worth a plan */
    MIN_IN = 256,
    CANDIDATES = 12,       /* that the library is asked for at once */
    LISTS = 3,             /* of them for a product of few rows */
    MOST_PAIRED = 1 << 22, /* results of each of a pair: more fill the device alone */
    WIDE_OUT = 4096,       /* outputs of a matrix whose algorithms narrower ones try, too */
    PROBE_WARPS = 256,
    PROBE_THREADS = 128
};

/* The functions used of the library. */
#define FUNCTIONS(X)                                                                               \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)

/* How products with weights of one shape are computed. */
struct lt_plan {
    uint32_t n_out, n_in;
    bool with_pairs;
    /* Of one product, and of a pair in one launch. */
    bool usable[2][N_BUCKETS];
    cublasLtMatmulAlgo_t algo[2][N_BUCKETS][2]; /* of a K split, of the last one */
};

struct cuda_lt {
    void *library;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t op;
    cublasLtMatmulPreference_t preference;
    cublasLtMatrixLayout_t w, x, y; /* column-major, as the library has it; set for each call */
    uint32_t n_plans;
    struct lt_plan plans[MAX_PLANS];
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

/* ---- opening ---- */

static bool lt_load(struct cuda_lt *lt) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    for (int i = 0; i < 3 && !lt->library; i++)
        lt->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lt->library) return false;
#define FIND(name)                                                                                 \
    *(void **)(&lt->name) = dlsym(lt->library, #name);                                             \
    if (!lt->name) return false;
    FUNCTIONS(FIND)
#undef FIND
    return true;
}

static bool lt_create(struct cuda_lt *lt) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    return !lt->cublasLtCreate(&lt->handle) &&
           !lt->cublasLtMatmulDescCreate(&lt->op, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
           !lt->cublasLtMatmulDescSetAttribute(lt->op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                               sizeof transposed) &&
           !lt->cublasLtMatrixLayoutCreate(&lt->w, CUDA_R_16F, 64, 64, 64) &&
           !lt->cublasLtMatrixLayoutCreate(&lt->x, CUDA_R_16F, 64, 64, 64) &&
           !lt->cublasLtMatrixLayoutCreate(&lt->y, CUDA_R_32F, 64, 64, 64) &&
           !lt->cublasLtMatmulPreferenceCreate(&lt->preference) &&
           !lt->cublasLtMatmulPreferenceSetAttribute(lt->preference,
                                                     CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                     &no_reduction, sizeof no_reduction);
}

void cuda_lt_close(struct cuda_backend *c) {
    struct cuda_lt *lt = c->lt;
    if (!lt) return;
    if (lt->preference) lt->cublasLtMatmulPreferenceDestroy(lt->preference);
    if (lt->y) lt->cublasLtMatrixLayoutDestroy(lt->y);
    if (lt->x) lt->cublasLtMatrixLayoutDestroy(lt->x);
    if (lt->w) lt->cublasLtMatrixLayoutDestroy(lt->w);
    if (lt->op) lt->cublasLtMatmulDescDestroy(lt->op);
    if (lt->handle) lt->cublasLtDestroy(lt->handle);
    if (lt->library) dlclose(lt->library);
    free(lt);
    c->lt = NULL;
}

int cuda_lt_open(struct cuda_backend *c, err *e) {
    struct cuda_lt *lt = mem_new(1, sizeof *lt);
    if (!lt) return err_no_memory(e);
    c->lt = lt;
    bool found = lt_load(lt);
    if (found && lt_create(lt)) {
        log_info("cuda: using cuBLASLt %zu", lt->cublasLtGetVersion());
        return 0;
    }
    if (lt->library && !found)
        log_info("cuda: cuBLASLt is too old (functions are missing) and stays unused");
    else if (found)
        log_info("cuda: cuBLASLt does not start and stays unused");
    else
        log_info("cuda: no cuBLASLt: libcublasLt.so is not installed");
    cuda_lt_close(c);
    return 0;
}

/* ---- products ---- */

/* apart: elements from the matrix to that of a second product; n: products. */
static void set_layout(struct cuda_lt *lt, cublasLtMatrixLayout_t layout, uint32_t type,
                       uint64_t rows, uint64_t cols, int64_t pitch, int32_t n, int64_t apart) {
    lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof type);
    lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows);
    lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols);
    lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_LD, &pitch, sizeof pitch);
    lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &apart, sizeof apart);
}

/* Columns of the K split that begins at column first. */
static uint32_t split_cols(uint32_t n_in, uint32_t first) {
    uint32_t left = cuda_pitch(n_in) - first, most = cuda_split_cols(n_in);
    return left < most ? left : most;
}

static void set_layouts(struct cuda_lt *lt, const struct cuda_lt_product *p, uint32_t cols) {
    const uint32_t pitch = cuda_pitch(p->n_in);
    const int32_t n = p->w2 ? 2 : 1;
    const int64_t w = n > 1 ? (const uint16_t *)p->w2 - (const uint16_t *)p->w : 0;
    set_layout(lt, lt->w, CUDA_R_16F, cols, p->n_out, pitch, n, w);
    set_layout(lt, lt->x, CUDA_R_16F, cols, p->n_rows, pitch, n, 0);
    set_layout(lt, lt->y, CUDA_R_32F, p->n_out, p->n_rows, p->y_pitch, n, n > 1 ? p->y2 - p->y : 0);
}

/* Bytes of the workspace: few rows have the part of a branch wherever they run, so that the
 * algorithms chosen for them fit it. */
static size_t workspace_bytes(uint32_t n_rows) {
    return n_rows <= CUDA_BRANCH_ROWS ? CUDA_LT_PART : CUDA_LT_WORKSPACE;
}

/* y = (first split) or += (later ones) the product over the K split that begins at first. */
static bool lt_multiply_split(struct cuda_backend *c, const struct cuda_lt_product *p,
                              uint32_t first, const cublasLtMatmulAlgo_t *algo) {
    const float alpha = p->scale, beta = first ? 1 : 0;
    struct cuda_lt *lt = c->lt;
    uint8_t *workspace = cuda_scratch(c, CUDA_SCRATCH_LT);
    workspace += (size_t)c->branches.at * CUDA_LT_PART;
    set_layouts(lt, p, split_cols(p->n_in, first));
    return lt->cublasLtMatmul(lt->handle, lt->op, &alpha, (const uint16_t *)p->w + first, lt->w,
                              (const uint16_t *)p->x + first, lt->x, &beta, p->y, lt->y, p->y,
                              lt->y, algo, workspace, workspace_bytes(p->n_rows),
                              c->stream) == CUBLAS_STATUS_SUCCESS;
}

static bool lt_multiply(struct cuda_backend *c, const struct cuda_lt_product *p,
                        const cublasLtMatmulAlgo_t algo[2]) {
    uint32_t n_splits = cuda_n_splits(p->n_in), cols = cuda_split_cols(p->n_in);
    for (uint32_t i = 0; i < n_splits; i++)
        if (!lt_multiply_split(c, p, i * cols, &algo[i + 1 == n_splits])) return false;
    return true;
}

static int find_bucket(uint32_t n_rows) {
    int i = 0;
    while (i + 1 < N_BUCKETS && (uint32_t)LEAST_BUCKET << i < n_rows)
        i++;
    return i;
}

static struct lt_plan *find_plan(struct cuda_lt *lt, uint32_t n_out, uint32_t n_in) {
    for (uint32_t i = 0; i < lt->n_plans; i++) {
        struct lt_plan *p = &lt->plans[i];
        if (p->n_out == n_out && p->n_in == n_in) return p;
    }
    return NULL;
}

bool cuda_lt_product(struct cuda_backend *c, const struct cuda_lt_product *p) {
    if (!c->lt || c->failed.code) return false;
    const struct lt_plan *plan = find_plan(c->lt, p->n_out, p->n_in);
    const int bucket = find_bucket(p->n_rows), n = p->w2 ? 2 : 1;
    if (!plan || !plan->usable[n - 1][bucket]) return false;
    if (n > 1 && ((uintptr_t)p->w2 < (uintptr_t)p->w || (uintptr_t)p->y2 < (uintptr_t)p->y ||
                  (uintptr_t)p->y2 % 16 != 0))
        return false; /* not what was measured */
    if (!lt_multiply(c, p, plan->algo[n - 1][bucket])) return false;
    const uint64_t inputs = (uint64_t)p->n_rows * p->n_in * 2,
                   weights = (uint64_t)n * p->n_out * p->n_in * 2;
    cuda_count(c, &(struct cuda_launch){.kernel = (const void *)cuda_lt_product,
                                        .name = "cublaslt",
                                        .read = inputs + weights,
                                        .written = (uint64_t)n * p->n_rows * p->n_out * 4});
    return true;
}

/* ---- plans ---- */

/* Random operands of the largest product of a plan. */
struct trial {
    struct cuda_lt_product product; /* w, x and y: memory of the trial; n_rows: of the bucket */
    uint64_t w_bytes, x_bytes, y_bytes;
    uint32_t n_w, next_w;             /* matrices, which the timed runs take in turns */
    void *w, *x, *y, *wrong;          /* wrong: u32, number of results that differ */
    const cublasLtMatmulAlgo_t *algo; /* (2) that is timed */
    float best;                       /* ms of the algorithm that was chosen */
};

static void trial_free(struct cuda_backend *c, struct trial *t) {
    cudaStreamSynchronize(c->stream);
    cuda_memory_free(c, t->w, t->n_w * t->w_bytes);
    cuda_memory_free(c, t->x, t->x_bytes);
    cuda_memory_free(c, t->y, t->y_bytes);
    cuda_memory_free(c, t->wrong, sizeof(uint32_t));
}

static bool trial_new(struct cuda_backend *c, const struct lt_plan *plan, uint32_t most_rows,
                      struct trial *t) {
    uint64_t pitch = cuda_pitch(plan->n_in), values = (uint64_t)most_rows * plan->n_out;
    uint64_t out = (plan->n_out + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS * CUDA_TILE_ROWS;
    const uint32_t n = plan->with_pairs ? 2 : 1; /* at once */
    if (n > 1 && values < 2 * MOST_PAIRED)
        values = values < MOST_PAIRED ? 2 * values : 2 * MOST_PAIRED;
    *t = (struct trial){
        .w_bytes = out * pitch * 2, .x_bytes = most_rows * pitch * 2, .y_bytes = values * 4};
    t->n_w = (cuda_cold_copies(t->w_bytes) + n - 1) / n * n;
    t->product = (struct cuda_lt_product){
        .n_out = plan->n_out, .n_in = plan->n_in, .y_pitch = plan->n_out, .scale = 1};
    err e = {0};
    if (cuda_memory_new(c, t->n_w * t->w_bytes, &t->w, &e) ||
        cuda_memory_new(c, t->x_bytes, &t->x, &e) || cuda_memory_new(c, t->y_bytes, &t->y, &e) ||
        cuda_memory_new(c, sizeof(uint32_t), &t->wrong, &e) ||
        cuda_random_fill(c, t->w, t->n_w * t->w_bytes) || cuda_random_fill(c, t->x, t->x_bytes)) {
        trial_free(c, t);
        return false;
    }
    t->product.w = t->w, t->product.x = t->x, t->product.y = t->y;
    return true;
}

/* Counts results of w and x, at y, that differ from the reference sequence of operations, scaled.
 */
static bool probe(struct cuda_backend *c, const struct trial *t, const struct cuda_lt_product *p,
                  const void *w, const float *y) {
    const struct cargs_lt_probe args = {.w = w,
                                        .x = p->x,
                                        .y = y,
                                        .wrong = t->wrong,
                                        .n_rows = p->n_rows,
                                        .n_out = p->n_out,
                                        .pitch = cuda_pitch(p->n_in),
                                        .split_cols = cuda_split_cols(p->n_in),
                                        .scale = p->scale};
    return !cuda_launch(c, &(struct cuda_launch){.kernel = cuda_lt_probe_kernel(),
                                                 .name = "lt_probe",
                                                 .args = &args,
                                                 .args_bytes = sizeof args,
                                                 .grid = {PROBE_WARPS * 32 / PROBE_THREADS},
                                                 .threads = PROBE_THREADS});
}

/* Are n_rows rows of results, sampled at random places, bit-identical to the reference? */
static bool has_reference_sums(struct cuda_backend *c, const struct trial *t, uint32_t n_rows,
                               float scale, const cublasLtMatmulAlgo_t algo[2]) {
    struct cuda_lt_product p = t->product;
    const uint64_t values = (p.w2 ? (uint64_t)(p.y2 - p.y) : 0) + (uint64_t)n_rows * p.n_out;
    uint32_t wrong = 1;
    p.n_rows = n_rows, p.scale = scale;
    if (cudaMemsetAsync(t->y, 0xff, values * 4, c->stream) ||
        cudaMemsetAsync(t->wrong, 0, sizeof(uint32_t), c->stream) || !lt_multiply(c, &p, algo) ||
        !probe(c, t, &p, p.w, p.y) || (p.w2 && !probe(c, t, &p, p.w2, p.y2)) ||
        cudaMemcpyAsync(&wrong, t->wrong, sizeof wrong, cudaMemcpyDeviceToHost, c->stream) ||
        cudaStreamSynchronize(c->stream))
        return false;
    return wrong == 0;
}

static bool run_trial(struct cuda_backend *c, void *of) {
    struct trial *t = of;
    struct cuda_lt_product p = t->product;
    p.w = (const uint8_t *)t->w + t->next_w * t->w_bytes;
    if (p.w2) p.w2 = (const uint8_t *)p.w + t->w_bytes;
    t->next_w = (t->next_w + (p.w2 ? 2 : 1)) % t->n_w;
    return lt_multiply(c, &p, t->algo);
}

static bool is_split_k(const struct cuda_lt *lt, const cublasLtMatmulAlgo_t *algo) {
    int32_t n = 0;
    uint32_t scheme = 0;
    size_t got;
    lt->cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &n, sizeof n,
                                             &got);
    lt->cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                             sizeof scheme, &got);
    return (n != 0 && n != 1) || scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
}

/* Asks the library for algorithms for the K split that begins at first. Returns their number. With
 * few rows it also asks for those of twice as many and of wider matrices, because its own choice
 * for few rows of narrow matrices is slow (H200, CUDA 13): 2,048 by 4,096 took 23.6 us with 64 rows
 * and 11.1 us with 128; 1,024 by 4,096 took 20 us with 64 rows, 4,096 by 4,096 12.4. */
static int list_algorithms(struct cuda_lt *lt, const struct trial *t, uint32_t first,
                           cublasLtMatmulHeuristicResult_t found[LISTS * CANDIDATES]) {
    const uint32_t n_out = t->product.n_out, wide = n_out < WIDE_OUT ? WIDE_OUT : n_out;
    const int n_lists = t->product.n_rows > CUDA_BRANCH_ROWS ? 1 : n_out < WIDE_OUT ? 3 : 2;
    const uint64_t workspace = workspace_bytes(t->product.n_rows);
    int n_found = 0;
    if (lt->cublasLtMatmulPreferenceSetAttribute(
            lt->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace))
        return 0;
    for (int i = 0; i < n_lists; i++) {
        struct cuda_lt_product p = t->product;
        int n = 0;
        if (i == 1) p.n_rows *= 2;
        if (i == 2) p.n_out = p.y_pitch = wide;
        set_layouts(lt, &p, split_cols(p.n_in, first));
        if (!lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, lt->op, lt->w, lt->x, lt->y, lt->y,
                                                lt->preference, CANDIDATES, found + n_found, &n))
            n_found += n;
    }
    return n_found;
}

/* Chooses the fastest listed algorithm that keeps the order of sums. A shorter last K split uses
 * the algorithm of the same index in its own list, or the same algorithm if that list is shorter.
 */
static bool choose_algorithm(struct cuda_backend *c, struct trial *t,
                             cublasLtMatmulAlgo_t algo[2]) {
    cublasLtMatmulHeuristicResult_t found[LISTS * CANDIDATES], last[LISTS * CANDIDATES];
    uint32_t n_in = t->product.n_in, n_rows = t->product.n_rows;
    uint32_t at_last = (cuda_n_splits(n_in) - 1) * cuda_split_cols(n_in);
    int n = list_algorithms(c->lt, t, 0, found), n_last = list_algorithms(c->lt, t, at_last, last),
        refused = 0;
    bool any = false;
    float best = 0;
    for (int i = 0; i < n; i++) {
        const cublasLtMatmulAlgo_t both[2] = {found[i].algo,
                                              i < n_last ? last[i].algo : found[i].algo};
        if (is_split_k(c->lt, &both[0]) || is_split_k(c->lt, &both[1])) continue;
        t->algo = both;
        const float ms = cuda_time_runs(c, run_trial, t);
        if (ms < 0 || (any && ms >= best)) continue;
        if (!has_reference_sums(c, t, n_rows, 1, both) ||
            !has_reference_sums(c, t, n_rows / 2 + 1, 0x1p-9f, both)) {
            refused++;
            continue;
        }
        any = true, best = ms, algo[0] = both[0], algo[1] = both[1];
    }
    t->best = best;
    if (any)
        log_debug("cuda: cuBLASLt: %s%u x %u, %u rows: %.1f us", t->product.w2 ? "2 x " : "",
                  t->product.n_out, n_in, n_rows, (double)best * 1e3);
    if (refused)
        log_info("cuda: cuBLASLt: %u x %u, %u rows: %d of %d algorithms add in "
                 "another order and stay unused",
                 t->product.n_out, n_in, n_rows, refused, n);
    return any;
}

/* Chooses what multiplies a pair of such matrices in one launch, if that is faster. single: ms of
 * one product. */
static bool choose_pair(struct cuda_backend *c, struct trial *t, float single,
                        cublasLtMatmulAlgo_t algo[2]) {
    struct cuda_lt_product *p = &t->product;
    if ((uint64_t)p->n_rows * p->n_out > MOST_PAIRED) return false;
    t->next_w = 0;
    p->w2 = (const uint8_t *)t->w + t->w_bytes;
    p->y2 = p->y + t->y_bytes / sizeof(float) / 2;
    const bool found = choose_algorithm(c, t, algo);
    p->w2 = NULL;
    return found && t->best < 2 * single;
}

void cuda_lt_prepare(struct cuda_backend *c, uint32_t n_out, uint32_t n_in, bool pairs) {
    struct cuda_lt *lt = c->lt;
    if (!lt || c->failed.code || n_out < MIN_OUT || n_in < MIN_IN ||
        c->base.max_rows <= CUDA_SKINNY_ROWS || lt->n_plans == MAX_PLANS ||
        find_plan(lt, n_out, n_in))
        return;
    struct lt_plan *plan = &lt->plans[lt->n_plans];
    *plan = (struct lt_plan){.n_out = n_out, .n_in = n_in, .with_pairs = pairs};
    int last = find_bucket(c->base.max_rows);
    struct trial t;
    if (!trial_new(c, plan, LEAST_BUCKET << last, &t))
        return; /* out of memory: the next weight may try again */
    for (int i = 0; i <= last; i++) {
        t.product.n_rows = LEAST_BUCKET << i;
        plan->usable[0][i] = choose_algorithm(c, &t, plan->algo[0][i]);
        if (pairs && plan->usable[0][i])
            plan->usable[1][i] = choose_pair(c, &t, t.best, plan->algo[1][i]);
    }
    trial_free(c, &t);
    lt->n_plans++;
}

#else /* no cublasLt.h */

int cuda_lt_open(struct cuda_backend *c, err *e) {
    (void)c, (void)e;
    return 0;
}

void cuda_lt_close(struct cuda_backend *c) {
    (void)c;
}

void cuda_lt_prepare(struct cuda_backend *c, uint32_t n_out, uint32_t n_in, bool pairs) {
    (void)c, (void)n_out, (void)n_in, (void)pairs;
}

bool cuda_lt_product(struct cuda_backend *c, const struct cuda_lt_product *p) {
    (void)c, (void)p;
    return false;
}

#endif
