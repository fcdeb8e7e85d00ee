/* heads.h - what the kernels of op_linear_heads share: the rows of a head as linear.h reads them.
 */
#ifndef INFERD_METAL_HEADS_H
#define INFERD_METAL_HEADS_H

#include "shaders/metal/linear.h"

/* Rows from `first` on of one head. */
struct head_rows {
    device const float *x; /* of the head in row 0 */
    uint first, n_rows, n_heads, n_in, n_tail;
};

static inline uint rows_n(thread const head_rows &r) {
    return r.n_rows - r.first;
}

static inline device const float *rows_x(thread const head_rows &r, uint i) {
    return r.x + ulong(min(r.first + i, r.n_rows - 1)) * r.n_heads * (r.n_in + r.n_tail);
}

static inline ulong rows_y(thread const head_rows &r, uint i, uint n_out) {
    return ulong(r.first + i) * r.n_heads * (n_out + r.n_tail);
}

static inline head_rows
rows_of_head(constant margs_heads &a, uint head, uint first, device const float *x) {
    return {x + ulong(head) * (a.linear.n_in + a.n_tail),
            first,
            a.linear.n_rows,
            a.n_heads,
            a.linear.n_in,
            a.n_tail};
}

/* Tile `at` of a head's outputs. */
static inline linear_tile
head_outputs(constant margs_heads &a, uint head, uint at, device const uchar *w, device float *y) {
    device const uchar *own = w + ulong(head) * a.linear.n_out[0] * a.linear.row_bytes[0];
    device float *to = y + ulong(head) * (a.linear.n_out[0] + a.n_tail);
    device const float *none = to; /* no bias */
    return {{own, own}, {none, none}, to, a.linear.n_out[0], at, false};
}

/* Copies the tails of up to n rows; thread `at` of `threads`. */
static inline void copy_tails(constant margs_heads &a,
                              thread const head_rows &rows,
                              thread const linear_tile &t,
                              uint n,
                              uint at,
                              uint threads) {
    const uint values = min(n, rows_n(rows)) * a.n_tail;
    for (uint i = at; i < values; i += threads)
        t.y[rows_y(rows, i / a.n_tail, t.n_out) + t.n_out + i % a.n_tail] =
            rows_x(rows, i / a.n_tail)[a.linear.n_in + i % a.n_tail];
}

#endif
