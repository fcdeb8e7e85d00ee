/* overlap.c - products beside exchanges: where a product's result is a part of the ranks' sum
 * (linear_sum), its rows are computed in two parts, and the first part's sum runs in a stream of
 * its own while the second part is computed. The sums may still be running when linear_sum returns:
 * the next product, if they are its residual, takes its rows in the same parts, each when its sum
 * is there; any other call waits for all (cuda_enter). Rows have the same bits in any number
 * (shaders/cuda/format.h). More parts of 2,048 rows were slower: products of fewer rows are. The
 * stream and its events are comm.c's. */
#include "core/backend/cuda/ops_int.h"

#include "core/base/min_max.h"

enum {
#ifdef INFERD_CUDA_STANDIN
    PART_ROWS = 8, /* at least, of a part */
#else
    PART_ROWS = 512,
#endif
};

/* The rows of buf, n_cols f32 each, from `first` on. */
static struct cuda_buf rows_from(const backend_buf *buf, uint32_t first, uint64_t n_cols) {
    struct cuda_buf view = *(const struct cuda_buf *)buf;
    view.dev = (float *)view.dev + first * n_cols;
    return view;
}

/* Rows first .. first + n_rows - 1 of a. */
static int linear_part(struct cuda_backend *c, const struct op_linear *a, uint32_t first,
                       uint32_t n_rows) {
    struct op_linear part = *a;
    struct cuda_buf x = rows_from(a->in.x, first, a->w[0]->n_in), residual, y[BACKEND_LINEAR_MAX];
    part.n_rows = n_rows;
    part.in.x = &x.base;
    part.y_once = false; /* the next part's sums take the place of this one's */
    if (a->in.residual) {
        residual = rows_from(a->in.residual, first, a->w[0]->n_in);
        part.in.residual = &residual.base;
    }
    for (uint32_t i = 0; i < a->n_weights; i++) {
        if (!a->y[i]) continue;
        y[i] = rows_from(a->y[i], first, a->w[i]->n_out);
        part.y[i] = &y[i].base;
    }
    return cuda_linear_rows(c, &part);
}

static uint32_t count_parts(uint32_t n_rows) {
    return min_u32(n_rows / PART_ROWS, CUDA_OVERLAP_PARTS);
}

static uint32_t part_begin(uint32_t n_rows, uint32_t n_parts, uint32_t i) {
    return (uint32_t)((uint64_t)n_rows * i / n_parts);
}

int cuda_linear(backend *be, const struct op_linear *a) {
    struct cuda_backend *c = cuda_of(be);
    const struct cuda_pending p = c->pending;
    int rc = c->failed.code;
    if (!p.x || !a->in.residual || cuda_at(a->in.residual) != p.x || a->n_rows != p.n_rows)
        return cuda_linear_rows(c, a);
    c->pending.x = NULL; /* waited for here */
    for (uint32_t i = 0; i < p.n_parts && !rc; i++) {
        const uint32_t first = part_begin(p.n_rows, p.n_parts, i);
        const uint32_t end = part_begin(p.n_rows, p.n_parts, i + 1);
        cudaError_t crc = cudaStreamWaitEvent(c->stream, c->summed[i], 0);
        if (crc) return cuda_fail(c, "waiting for a sum", crc);
        c->after_other = true;
        rc = linear_part(c, a, first, end - first);
    }
    return rc;
}

/* Sums rows of y in the stream of sums, when the product's stream has come here. */
static int sum_part(struct cuda_backend *c, float *y, float *work, uint64_t n, int i) {
    const cudaStream_t stream = c->stream;
    cudaError_t crc = cudaEventRecord(c->made[i], stream);
    if (!crc) crc = cudaStreamWaitEvent(c->sums, c->made[i], 0);
    if (crc) return cuda_fail(c, "beginning a sum", crc);
    c->stream = c->sums;
    c->after_other = true;
    int rc = cuda_sum_ranks(c, y, work, n);
    c->stream = stream;
    c->after_other = true;
    crc = cudaEventRecord(c->summed[i], c->sums);
    return rc || !crc ? rc : cuda_fail(c, "ending a sum", crc);
}

int cuda_linear_sum(backend *be, const struct op_linear *a, backend_buf *work) {
    struct cuda_backend *c = cuda_of(be);
    const uint32_t n_cols = (uint32_t)a->w[0]->n_out;
    const uint32_t n_parts = count_parts(a->n_rows);
    const bool parted = c->sums && !c->capturing && n_parts > 1;
    int rc = 0;
    if (!parted) {
        const uint64_t n = (uint64_t)a->n_rows * n_cols;
        cuda_peer_announce(c, cuda_at(a->y[0]), n);
        rc = cuda_linear(be, a);
        if (!rc) rc = cuda_sum_ranks(c, cuda_at(a->y[0]), cuda_at(work), n);
        c->outgoing.x = NULL;
        return rc;
    }
    cuda_enter(c);
    for (uint32_t i = 0; i < n_parts && !rc; i++) {
        const uint32_t first = part_begin(a->n_rows, n_parts, i);
        const uint32_t end = part_begin(a->n_rows, n_parts, i + 1);
        rc = linear_part(c, a, first, end - first);
        if (!rc)
            rc = sum_part(c, (float *)cuda_at(a->y[0]) + (uint64_t)first * n_cols, cuda_at(work),
                          (uint64_t)(end - first) * n_cols, (int)i);
    }
    if (!rc) c->pending = (struct cuda_pending){cuda_at(a->y[0]), a->n_rows, n_parts};
    return rc;
}
