/* weights.c - loads weights. The device repacks quantized matrices for products into tiles
 * (shaders/cuda/repack.cu); rows of 16-bit matrices are padded to the pitch; BF16 becomes F16;
 * everything else stays as in the file. Owns two pinned buffers for the file's bytes and device
 * memory for a chunk of raw rows, so that reading, uploading and repacking overlap. Runs on the
 * thread that opens a model. */
#include "core/backend/cuda/ops_int.h"

#include "core/base/file.h"
#include "core/base/mem.h"
#include "shaders/cuda/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 8 << 20, LARGEST_BLOCKS = 512, RESCALE_BLOCKS = 512, HALVES_BLOCKS = 1024 };

int cuda_weights_open(struct cuda_backend *c, err *e) {
    struct cuda_loader *l = &c->loader;
    for (int i = 0; i < 2; i++) {
        cudaError_t rc = cudaMallocHost((void **)&l->pinned[i], CHUNK);
        if (!rc) rc = cudaEventCreateWithFlags(&l->uploaded[i], cudaEventDisableTiming);
        if (rc)
            return err_set(e, ERR_NOMEM, "cannot allocate pinned memory for weights: %s",
                           cudaGetErrorString(rc));
    }
    int rc = cuda_memory_new(c, CHUNK, &l->rows, e);
    return rc ? rc : cuda_memory_new(c, sizeof *l->state, (void **)&l->state, e);
}

void cuda_weights_close(struct cuda_backend *c) {
    struct cuda_loader *l = &c->loader;
    for (int i = 0; i < 2; i++) {
        if (l->uploaded[i]) cudaEventDestroy(l->uploaded[i]);
        if (l->pinned[i]) cudaFreeHost(l->pinned[i]);
    }
    cuda_memory_free(c, l->rows, CHUNK);
    cuda_memory_free(c, l->state, sizeof *l->state);
}

static int check_load(struct cuda_backend *c, cudaError_t rc) {
    return rc ? cuda_fail(c, "loading weights", rc) : 0;
}

/* Enqueues a copy of n_rows rows to the device, padded there with zeros from row_bytes to pitch; at
 * most CHUNK bytes in all. */
static int upload_rows(struct cuda_backend *c, void *to, uint64_t pitch, const uint8_t *rows,
                       uint64_t row_bytes, uint64_t n_rows) {
    struct cuda_loader *l = &c->loader;
    int at = l->next;
    l->next = 1 - at;
    int rc = check_load(c, cudaEventSynchronize(l->uploaded[at]));
    if (rc) return rc;
    file_read_pages(rows, n_rows * row_bytes);
    if (pitch == row_bytes) {
        memcpy(l->pinned[at], rows, n_rows * row_bytes);
    } else {
        for (uint64_t i = 0; i < n_rows; i++) {
            memcpy(l->pinned[at] + i * pitch, rows + i * row_bytes, row_bytes);
            memset(l->pinned[at] + i * pitch + row_bytes, 0, pitch - row_bytes);
        }
    }
    cudaError_t crc =
        cudaMemcpyAsync(to, l->pinned[at], n_rows * pitch, cudaMemcpyHostToDevice, c->stream);
    return check_load(c, crc ? crc : cudaEventRecord(l->uploaded[at], c->stream));
}

/* The same for any number of consecutive rows, chunk by chunk. */
static int upload_all_rows(struct cuda_backend *c, void *to, uint64_t pitch, const uint8_t *rows,
                           uint64_t row_bytes, uint64_t n_rows) {
    uint64_t most = CHUNK / pitch;
    int rc = 0;
    for (uint64_t i = 0; i < n_rows && !rc; i += most) {
        uint64_t n = n_rows - i < most ? n_rows - i : most;
        rc = upload_rows(c, (uint8_t *)to + i * pitch, pitch, rows + i * row_bytes, row_bytes, n);
    }
    return rc;
}

/* ---- matrices for products ---- */

/* How one weight is stored. */
struct weight_plan {
    const uint8_t *data;
    uint64_t row_bytes, n_rows; /* of the file, all experts */
    /* Rows repacked in one run: all, or one expert's if an expert does not end with a whole tile.
     */
    uint64_t run_rows, n_runs;
    uint64_t pitch;                   /* bytes of a row, if not quantized */
    struct cuda_repack_format format; /* if quantized */
    bool quantized, shared;           /* shared: products read the rows of the file */
    uint64_t product_bytes, raw_bytes;
};

/* Repacks one chunk of rows, on the device, into tiles. */
static int repack_rows(struct cuda_backend *c, const struct cuda_weight *w,
                       const struct weight_plan *p, const void *rows, uint32_t n_rows,
                       uint64_t tile, uint32_t chunk) {
    uint32_t n_in = (uint32_t)w->base.n_in;
    uint8_t *tiles = (uint8_t *)(uintptr_t)w->product;
    const struct cargs_repack args = {
        .rows = rows,
        .tiles = tiles + tile * p->format.tile_bytes,
        .state = c->loader.state,
        .row_bytes = p->row_bytes,
        .n_rows = n_rows,
        .n_in = n_in,
    };
    const struct cargs_rescale scale_args = {
        .tiles = tiles,
        .state = c->loader.state,
        .n_tiles = tile,
        .tile_bytes = p->format.tile_bytes,
        .scale_at = p->format.scale_at,
        .scale_words = p->format.scale_words,
        .chunk = chunk,
        .exponent = p->format.exponent,
    };
    uint64_t bytes = n_rows * p->row_bytes;
    const struct cuda_launch launches[] = {
        {.kernel = cuda_largest_kernel(w->base.type),
         .name = "largest_scale",
         .args = &args,
         .args_bytes = sizeof args,
         .grid = {LARGEST_BLOCKS},
         .threads = 256,
         .read = bytes},
        {.kernel = cuda_rescale_kernel(),
         .name = "rescale",
         .args = &scale_args,
         .args_bytes = sizeof scale_args,
         .grid = {RESCALE_BLOCKS},
         .threads = 256},
        {.kernel = cuda_repack_kernel(w->base.type),
         .name = "repack",
         .args = &args,
         .args_bytes = sizeof args,
         .grid = {cuda_div_up(n_in, CUDA_TILE_COLS), cuda_div_up(n_rows, CUDA_TILE_ROWS)},
         .threads = 128,
         .read = bytes,
         .written = cuda_n_tiles(n_rows, n_in) * p->format.tile_bytes},
    };
    int rc = 0;
    for (int i = 0; i < 3 && !rc; i++)
        rc = cuda_launch(c, &launches[i]);
    return rc;
}

/* Reads the power of two that products must multiply the repacked weights by. Waits. */
static int read_scale(struct cuda_backend *c, int at, float *scale) {
    struct cuda_repack_state state;
    int rc = check_load(c, cudaMemcpyAsync(&state, c->loader.state, sizeof state,
                                           cudaMemcpyDeviceToHost, c->stream));
    if (!rc) rc = check_load(c, cudaStreamSynchronize(c->stream));
    if (!rc) *scale = scalbnf(1, -state.shift[at]);
    return rc;
}

static int make_tiles(struct cuda_backend *c, struct cuda_weight *w, const struct weight_plan *p) {
    struct cuda_loader *l = &c->loader;
    uint64_t most = CHUNK / p->row_bytes / CUDA_TILE_ROWS * CUDA_TILE_ROWS, tile = 0;
    uint32_t chunk = 0;
    int rc = check_load(c, cudaMemsetAsync(l->state, 0, sizeof *l->state, c->stream));
    for (uint64_t run = 0; run < p->n_runs; run++) {
        for (uint64_t i = 0; i < p->run_rows && !rc; i += most, chunk++) {
            uint64_t n = p->run_rows - i < most ? p->run_rows - i : most;
            uint64_t first = (run * p->run_rows + i) * p->row_bytes;
            const void *rows = w->raw ? (const uint8_t *)w->raw + first : l->rows;
            if (!w->raw)
                rc = upload_rows(c, l->rows, p->row_bytes, p->data + first, p->row_bytes, n);
            if (!rc) rc = repack_rows(c, w, p, rows, (uint32_t)n, tile, chunk);
            tile += cuda_n_tiles((uint32_t)n, (uint32_t)w->base.n_in);
        }
    }
    return rc ? rc : read_scale(c, (int)(chunk % 2), &w->scale);
}

/* Converts all rows of a BF16 weight, on the device, to f16. */
static int make_halves(struct cuda_backend *c, struct cuda_weight *w, const struct weight_plan *p) {
    const struct cargs_halves args = {.values = (void *)(uintptr_t)w->product,
                                      .state = c->loader.state,
                                      .n = p->product_bytes / sizeof(uint16_t)};
    const struct cuda_launch launches[] = {{.kernel = cuda_largest_value_kernel(),
                                            .name = "largest_value",
                                            .args = &args,
                                            .args_bytes = sizeof args,
                                            .grid = {HALVES_BLOCKS},
                                            .threads = 256,
                                            .read = p->product_bytes},
                                           {.kernel = cuda_halves_kernel(),
                                            .name = "halves",
                                            .args = &args,
                                            .args_bytes = sizeof args,
                                            .grid = {HALVES_BLOCKS},
                                            .threads = 256,
                                            .read = p->product_bytes,
                                            .written = p->product_bytes}};
    int rc = check_load(c, cudaMemsetAsync(args.state, 0, sizeof *args.state, c->stream));
    for (int i = 0; i < 2 && !rc; i++)
        rc = cuda_launch(c, &launches[i]);
    return rc ? rc : read_scale(c, 0, &w->scale);
}

/* Pads rows to the pitch, and their number to a whole tile with rows of zeros. */
static int make_rows(struct cuda_backend *c, struct cuda_weight *w, const struct weight_plan *p) {
    uint8_t *to = (uint8_t *)(uintptr_t)w->product;
    uint64_t n_runs = p->n_runs, used = p->run_rows * p->pitch, all = p->product_bytes / n_runs;
    int rc = 0;
    for (uint64_t run = 0; run < n_runs && !rc; run++, to += all) {
        if (all > used) rc = check_load(c, cudaMemsetAsync(to + used, 0, all - used, c->stream));
        if (!rc && !p->shared)
            rc = upload_all_rows(c, to, p->pitch, p->data + run * p->run_rows * p->row_bytes,
                                 p->row_bytes, p->run_rows);
    }
    return rc || w->base.type != QTYPE_BF16 ? rc : make_halves(c, w, p);
}

/* ---- weights ---- */

static int report_too_large(const struct backend_weight_desc *desc, err *e) {
    return err_set_param(e, ERR_UNSUPPORTED, desc->name,
                         "tensor %s (%llu, %llu) is too large for the CUDA backend", desc->name,
                         (unsigned long long)desc->n_out, (unsigned long long)desc->n_in);
}

static int plan_product(const struct backend_weight_desc *desc, struct cuda_weight *w,
                        struct weight_plan *p, err *e) {
    uint64_t n_experts = desc->n_experts ? desc->n_experts : 1, rows, band = CUDA_TILE_ROWS;
    if (desc->n_in > CUDA_MAX_COLS || desc->n_out > UINT32_MAX - band)
        return report_too_large(desc, e);
    rows = (desc->n_out + band - 1) / band * band;
    p->run_rows = rows == desc->n_out ? p->n_rows : desc->n_out;
    p->n_runs = rows == desc->n_out ? 1 : n_experts;
    p->pitch = cuda_pitch((uint32_t)desc->n_in) * sizeof(uint16_t);
    p->quantized = false;
    w->scale = 1;
    switch (desc->type) {
    case QTYPE_F32:
        w->format = CUDA_FORMAT_F32;
        p->pitch = p->row_bytes;
        rows = desc->n_out;
        break;
    case QTYPE_F16:
    case QTYPE_BF16:
        w->format = CUDA_FORMAT_F16;
        break;
    default:
        cuda_repack_format(desc->type, &p->format);
        w->format = p->format.format;
        p->quantized = true;
    }
    w->expert_bytes = p->quantized ? cuda_n_tiles((uint32_t)desc->n_out, (uint32_t)desc->n_in) *
                                         p->format.tile_bytes
                                   : rows * p->pitch;
    if (!mem_mul(w->expert_bytes, n_experts, &p->product_bytes)) return report_too_large(desc, e);
    p->shared = !p->quantized && desc->use & BACKEND_USE_EMBED && p->pitch == p->row_bytes;
    return 0;
}

static int plan_weight(const struct backend_weight_desc *desc, struct cuda_weight *w,
                       struct weight_plan *p, err *e) {
    *p = (struct weight_plan){.data = desc->data};
    if (!mem_mul(desc->n_out, desc->n_experts ? desc->n_experts : 1, &p->n_rows) ||
        !qtype_bytes(desc->type, 1, desc->n_in, &p->row_bytes) ||
        !mem_mul(p->n_rows, p->row_bytes, &p->raw_bytes) || p->row_bytes > CHUNK / CUDA_TILE_ROWS)
        return report_too_large(desc, e);
    if (desc->use & BACKEND_USE_LINEAR) {
        int rc = plan_product(desc, w, p, e);
        if (rc) return rc;
    }
    if (!(desc->use & (BACKEND_USE_EMBED | BACKEND_USE_VECTOR)) || p->shared) p->raw_bytes = 0;
    return 0;
}

static float find_largest(const uint8_t *data, uint64_t n) {
    float largest = 0;
    for (uint64_t i = 0; i < n; i++) {
        float v;
        memcpy(&v, data + i * sizeof v, sizeof v);
        if (!isfinite(v)) return INFINITY;
        if (fabsf(v) > largest) largest = fabsf(v);
    }
    return largest;
}

static int fill_weight(struct cuda_backend *c, struct cuda_weight *w, const struct weight_plan *p) {
    int rc = 0;
    if (p->shared) w->raw = w->product;
    if (w->raw)
        rc = upload_all_rows(c, (void *)(uintptr_t)w->raw, p->row_bytes, p->data, p->row_bytes,
                             p->n_rows);
    if (w->base.use & BACKEND_USE_VECTOR)
        w->largest = find_largest(p->data, p->n_rows * p->row_bytes / sizeof(float));
    if (!rc && w->product) rc = p->quantized ? make_tiles(c, w, p) : make_rows(c, w, p);
    return rc;
}

int cuda_weight_size(const struct backend_weight_desc *desc, uint64_t *bytes, err *e) {
    struct cuda_weight w = {0};
    struct weight_plan p;
    int rc = plan_weight(desc, &w, &p, e);
    if (!rc) *bytes = cuda_memory_taken(p.product_bytes) + cuda_memory_taken(p.raw_bytes);
    return rc;
}

int cuda_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                    err *e) {
    struct cuda_backend *c = cuda_of(be);
    struct weight_plan p;
    struct cuda_weight *w = mem_new(1, sizeof *w);
    if (!w) return err_no_memory(e);
    w->base = (struct backend_weight){.be = be,
                                      .type = desc->type,
                                      .use = desc->use,
                                      .n_experts = desc->n_experts,
                                      .n_out = desc->n_out,
                                      .n_in = desc->n_in};
    int rc = plan_weight(desc, w, &p, e);
    if (!rc && p.product_bytes) {
        rc = cuda_memory_new(c, p.product_bytes, (void **)(uintptr_t)&w->product, e);
        w->product_bytes = rc ? 0 : p.product_bytes;
    }
    if (!rc && p.raw_bytes) {
        rc = cuda_memory_new(c, p.raw_bytes, (void **)(uintptr_t)&w->raw, e);
        w->raw_bytes = rc ? 0 : p.raw_bytes;
    }
    if (!rc && (rc = fill_weight(c, w, &p)) && e) *e = c->failed;
    w->base.bytes = w->product_bytes + w->raw_bytes;
    if (rc) {
        cuda_weight_free(&w->base);
        return rc;
    }
    if (w->product) cuda_tune_weight(c, w);
    *out = &w->base;
    return 0;
}

void cuda_weight_free(backend_weight *base) {
    struct cuda_weight *w = (struct cuda_weight *)base;
    struct cuda_backend *c = cuda_of(base->be);
    cuda_memory_free(c, (void *)(uintptr_t)w->product, w->product_bytes);
    if (w->raw != w->product) cuda_memory_free(c, (void *)(uintptr_t)w->raw, w->raw_bytes);
    free(w);
}
