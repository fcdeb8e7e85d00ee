/* linked.c - exchanges of a CPU backend with ranks in other processes, through a link. Owns the
 * memory for what other ranks send.
 *
 * Values go in chunks, which bounds that memory. A chunk is summed by every rank, if there are two
 * ranks or it is short; otherwise each rank gets a part of it, sums that, and sends the sum. Both
 * add in the order of ranks, as group.c does, so the bits are the same. */
#include "core/backend/cpu/cpu_int.h"

#include "core/base/mem.h"
#include "core/base/min_max.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_VALUES = 1 << 18, SHORT_VALUES = 4096 };

int cpu_linked_join(struct cpu_backend *c, err *e) {
    c->received = mem_new((uint64_t)CHUNK_VALUES * c->base.n_ranks, sizeof *c->received);
    return c->received ? 0 : err_no_memory(e);
}

void cpu_linked_part(struct cpu_backend *c) {
    free(c->received);
    c->received = NULL;
}

/* ---- sums ---- */

static float *received_of(const struct cpu_backend *c, uint32_t rank) {
    return c->received + (uint64_t)CHUNK_VALUES * rank;
}

static uint32_t bytes_of(uint64_t n_values) {
    return (uint32_t)(n_values * sizeof(float));
}

/* The part of n values that rank sums; whole: each sums all. */
struct part {
    uint64_t first, n;
};
static struct part part_of(const struct cpu_backend *c, uint64_t n, uint32_t rank, bool whole) {
    const uint64_t first = n * rank / c->base.n_ranks, end = n * (rank + 1) / c->base.n_ranks;
    return whole ? (struct part){0, n} : (struct part){first, end - first};
}

/* x (n) = the sum of all ranks' x, at most CHUNK_VALUES. */
static int reduce_chunk(struct cpu_backend *c, float *x, uint64_t n) {
    const uint32_t n_ranks = c->base.n_ranks, rank = c->base.rank;
    const bool whole = n_ranks == 2 || n <= SHORT_VALUES;
    const struct part own = part_of(c, n, rank, whole);
    struct backend_piece pieces[BACKEND_MAX_RANKS];
    struct cpu_sum sum = {.to = {x + own.first}, .n_from = n_ranks, .n_to = 1, .n = own.n};
    uint32_t n_pieces = 0;
    for (uint32_t r = 0; r < n_ranks; r++) {
        const struct part its = part_of(c, n, r, whole);
        sum.from[r] = r == rank ? x + own.first : received_of(c, r);
        if (r == rank) continue;
        pieces[n_pieces++] = (struct backend_piece){.out = x + its.first,
                                                    .out_bytes = bytes_of(its.n),
                                                    .in = received_of(c, r),
                                                    .in_bytes = bytes_of(own.n),
                                                    .rank = r};
    }
    int rc = backend_link_exchange(c->base.link, pieces, n_pieces, NULL);
    if (rc) return rc;
    cpu_sum_run(c, &sum);
    if (whole) return 0;
    n_pieces = 0;
    for (uint32_t r = 0; r < n_ranks; r++) {
        const struct part its = part_of(c, n, r, whole);
        if (r == rank) continue;
        pieces[n_pieces++] = (struct backend_piece){.out = x + own.first,
                                                    .out_bytes = bytes_of(own.n),
                                                    .in = x + its.first,
                                                    .in_bytes = bytes_of(its.n),
                                                    .rank = r};
    }
    return backend_link_exchange(c->base.link, pieces, n_pieces, NULL);
}

int cpu_linked_reduce(struct cpu_backend *c, const struct op_all_reduce *a) {
    const uint64_t n = (uint64_t)a->n_rows * a->n_cols;
    float *x = a->x->host;
    int rc = 0;
    for (uint64_t at = 0; at < n && !rc; at += CHUNK_VALUES)
        rc = reduce_chunk(c, x + at, n - at < CHUNK_VALUES ? n - at : CHUNK_VALUES);
    if (!rc) cpu_count(c, &cpu_isa_generic, CPU_ALL_REDUCE);
    return rc;
}

/* ---- columns ---- */

/* A cut of each rank's part: some rows, some columns of these. */
struct cut {
    uint32_t row, n_rows, col, n_cols; /* n_cols at most */
};

static uint32_t width_of(const struct op_all_gather *a, uint32_t share, uint32_t rank) {
    return min_u32(share, a->n_cols - rank * share);
}

/* Exchanges a cut of all ranks, row by row, so that a row arrives where it belongs. A rank that
 * does not need the columns drops them. */
static int gather_cut(struct cpu_backend *c, const struct op_all_gather *a, const struct cut *cut) {
    const uint32_t share = backend_share(a->n_cols, c->base.n_ranks), rank = c->base.rank;
    const uint32_t own = width_of(a, share, rank);
    const float *part = a->part->host;
    float *out = a->out ? a->out->host : NULL;
    struct backend_piece pieces[BACKEND_MAX_PIECES];
    uint32_t n = 0;
    for (uint32_t row = cut->row; row < cut->row + cut->n_rows; row++) {
        for (uint32_t r = 0; r < c->base.n_ranks; r++) {
            const uint32_t its = width_of(a, share, r);
            const uint32_t n_out = own > cut->col ? min_u32(own - cut->col, cut->n_cols) : 0;
            const uint32_t n_in = its > cut->col ? min_u32(its - cut->col, cut->n_cols) : 0;
            const float *from = part + (uint64_t)row * own + cut->col;
            float *to =
                out ? out + (uint64_t)row * a->n_cols + r * share + cut->col : received_of(c, r);
            if (r == rank && out) memcpy(to, from, bytes_of(n_out));
            if (r == rank) continue;
            pieces[n++] = (struct backend_piece){.out = from,
                                                 .out_bytes = bytes_of(n_out),
                                                 .in = to,
                                                 .in_bytes = bytes_of(n_in),
                                                 .rank = r};
        }
    }
    return backend_link_exchange(c->base.link, pieces, n, NULL);
}

int cpu_linked_gather(struct cpu_backend *c, const struct op_all_gather *a) {
    const uint32_t share = backend_share(a->n_cols, c->base.n_ranks);
    const uint32_t rows_each = BACKEND_MAX_PIECES / c->base.n_ranks;
    int rc = 0;
    for (uint32_t row = 0; row < a->n_rows && !rc; row += rows_each)
        for (uint32_t col = 0; col < share && !rc; col += CHUNK_VALUES) {
            const struct cut cut = {row, min_u32(rows_each, a->n_rows - row), col,
                                    min_u32(CHUNK_VALUES, share - col)};
            rc = gather_cut(c, a, &cut);
        }
    if (!rc) cpu_count(c, &cpu_isa_generic, CPU_ALL_GATHER);
    return rc;
}
