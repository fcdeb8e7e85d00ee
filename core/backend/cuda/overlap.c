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
    SHORT_COLS = 4096 /* with 400 GB/s between GPUs and 700 TFLOP/s both take the same time */
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
    if (a->in.residual) {
        residual = rows_from(a->in.residual, first, a->w[0]->n_in);
        part.in.residual = &residual.base;
    }
    for (uint32_t i = 0; i < a->n_weights; i++) {
        if (!a->y[i]) continue;
        y[i] = rows_from(a->y[i], first, a->w[i]->n_out);
        part.y[i] = &y[i].base;
    }
    c->part = (struct cuda_part){first, a->n_rows};
    const int rc = cuda_linear_rows(c, &part);
    c->part.first = c->part.of = 0;
    return rc;
}

static uint32_t count_parts(uint32_t n_rows) {
    return min_u32(n_rows / PART_ROWS, CUDA_OVERLAP_PARTS);
}

/* The parts of rows of a sum. A product of few columns takes less time than the exchange of its
 * results: its first part is smaller, so that its exchange ends with the second part's product. */
static struct cuda_pending divide(const struct op_linear *a, uint32_t n_parts) {
    const bool is_short = a->w[0]->n_in < SHORT_COLS && a->n_rows >= 4 * PART_ROWS;
    struct cuda_pending p = {cuda_at(a->y[0]), a->n_rows, n_parts, {0}};
    for (uint32_t i = 0; i < n_parts; i++)
        p.end[i] = (uint32_t)((uint64_t)a->n_rows * (i + 1) / n_parts);
    if (n_parts == 2 && is_short) p.end[0] = a->n_rows / 4;
    return p;
}

/* ---- the epilogue of a pair that was put off (large.c): from the parts of gate and up to those of
 * down, while launches that do not concern it would begin it ---- */

_Static_assert((int)CUDA_OVERLAP_PARTS == 2, "what two parts put off has no gap");

/* Adds that of a part to `all`. */
static void collect_gated(struct cuda_backend *c, struct cuda_put_off *all) {
    const uint32_t n_rows = all->args.y ? all->args.n_rows : 0;
    if (!c->put_off.args.y) return;
    if (!n_rows) *all = c->put_off;
    all->args.n_rows = n_rows + c->put_off.args.n_rows;
    c->put_off.args.y = NULL;
}

/* Takes what makes all rows of a's input. y NULL: nothing is put off, or a's partial sums of K
 * splits would have the place of its sums (tile.c). */
static struct cuda_put_off take_gated(struct cuda_backend *c, const struct op_linear *a) {
    struct cuda_put_off all = c->put_off;
    if (all.args.y != cuda_at(a->in.x) || all.args.n_rows != a->n_rows ||
        all.args.n_out != a->w[0]->n_in || cuda_n_splits(all.args.n_out) > 1)
        all.args.y = NULL;
    else
        c->put_off.args.y = NULL;
    return all;
}

/* Puts rows first .. first + n_rows - 1 of it off again. */
static void put_off_rows(struct cuda_backend *c, const struct cuda_put_off *all, uint32_t first,
                         uint32_t n_rows) {
    const uint64_t at = (uint64_t)first * all->args.n_out;
    struct cargs_apply_epilogue *part = &c->put_off.args;
    if (!all->args.y) return;
    c->put_off = *all;
    part->sums += at;
    part->pair_sums += at;
    part->y += at;
    part->in_scale += first;
    part->n_rows = n_rows;
}

int cuda_linear(backend *be, const struct op_linear *a) {
    struct cuda_backend *c = cuda_of(be);
    const struct cuda_pending p = c->pending;
    struct cuda_put_off gated = {.args.y = NULL};
    int rc = c->failed.code;
    if (!p.x || !a->in.residual || cuda_at(a->in.residual) != p.x || a->n_rows != p.n_rows)
        return cuda_linear_rows(c, a);
    c->pending.x = NULL; /* waited for here */
    for (uint32_t i = 0, first = 0; i < p.n_parts && !rc; first = p.end[i++]) {
        cudaError_t crc = cudaStreamWaitEvent(c->stream, c->summed[i], 0);
        if (crc) return cuda_fail(c, "waiting for a sum", crc);
        c->after_other = true;
        rc = linear_part(c, a, first, p.end[i] - first);
        collect_gated(c, &gated);
    }
    c->put_off = gated;
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

int cuda_linear_sum(backend *be, const struct op_linear *op, backend_buf *work) {
    struct cuda_backend *c = cuda_of(be);
    struct op_linear product = *op;
    const struct op_linear *a = &product;
    const uint32_t n_cols = (uint32_t)a->w[0]->n_out;
    const uint32_t n_parts = count_parts(a->n_rows);
    const bool parted = c->sums && !c->capturing && n_parts > 1;
    int rc = 0;
    product.y_once = false; /* the sum reads it, too */
    if (!parted) {
        const uint64_t n = (uint64_t)a->n_rows * n_cols;
        cuda_peer_announce(c, cuda_at(a->y[0]), n);
        rc = cuda_linear(be, a);
        if (!rc) rc = cuda_sum_ranks(c, cuda_at(a->y[0]), cuda_at(work), n);
        c->outgoing.x = NULL;
        return rc;
    }
    const struct cuda_put_off gated = take_gated(c, a);
    const struct cuda_pending parts = divide(a, n_parts);
    cuda_enter(c);
    for (uint32_t i = 0, first = 0; i < n_parts && !rc; first = parts.end[i++]) {
        float *y = (float *)cuda_at(a->y[0]) + (uint64_t)first * n_cols;
        const uint32_t n_rows = parts.end[i] - first;
        const uint64_t n = (uint64_t)n_rows * n_cols;
        put_off_rows(c, &gated, first, n_rows);
        cuda_peer_announce_beside(c, y, n, n_rows);
        rc = linear_part(c, a, first, n_rows);
        if (!rc) rc = sum_part(c, y, cuda_at(work), n, (int)i);
        c->outgoing.x = NULL;
    }
    if (!rc) c->pending = parts;
    return rc;
}
