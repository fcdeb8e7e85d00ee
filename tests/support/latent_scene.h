/* latent_scene.h - one sequence of latent rows of 512 + 64 dimensions in a pool, and attention over
 * it: in a prompt, alone and with a few others, against float64. For the tests of devices' kernels;
 * test_mla tests the op on every device. */
#ifndef INFERD_TESTS_LATENT_SCENE_H
#define INFERD_TESTS_LATENT_SCENE_H

#include "tests/support/be.h"
#include "tests/support/kv_pool.h"
#include "tests/unit/check.h"

enum { DIM = 576, V_DIM = 512, MOST = 1400, MOST_HEADS = 70, BLOCKS = 100 };

struct latent_case {
    uint32_t n_heads, block_tokens;
    int kv_type;
    uint32_t window;
    float softcap;
    bool sinks;
};

/* One sequence of MOST tokens in blocks in any order; the rest of the pool is NaN. */
struct scene {
    struct latent_case c;
    struct backend_kv kv;
    float *k; /* (MOST, DIM), as stored */
    int32_t table[BLOCKS];
    float sinks[MOST_HEADS];
    void *pool;
    uint64_t bytes;
    backend_weight *sink_weight;
};

static inline void scene_open(struct scene *s, const struct latent_case *c, backend *be) {
    *s = (struct scene){.c = *c};
    s->kv = (struct backend_kv){.kv_type = c->kv_type,
                                .n_blocks = BLOCKS,
                                .n_kv_heads = 1,
                                .block_tokens = c->block_tokens,
                                .head_dim = DIM,
                                .v_dim = V_DIM};
    s->k = be_new((uint64_t)MOST * DIM, sizeof(float));
    be_fill(s->k, (uint64_t)MOST * DIM, 1);
    s->bytes = BLOCKS * kv_block_size(&s->kv);
    s->pool = be_new(s->bytes, 1);
    memset(s->pool, 0xff, s->bytes);
    for (int32_t b = 0; b < BLOCKS; b++)
        s->table[b] = (b * 37 + 11) % BLOCKS;
    for (uint32_t t = 0; t < MOST; t++) {
        struct kv_row row = {.kv = &s->kv,
                             .pool = s->pool,
                             .is_k = true,
                             .slot = (uint32_t)s->table[t / c->block_tokens] * c->block_tokens +
                                     t % c->block_tokens};
        kv_put(&row, s->k + (uint64_t)t * DIM);
    }
    for (uint32_t h = 0; h < c->n_heads; h++)
        s->sinks[h] = h % 3 == 2 ? -INFINITY : be_real() * 4;
    s->kv.k = be_bytes(be, s->pool, s->bytes);
    if (c->sinks) s->sink_weight = be_weight(be, QTYPE_F32, 1, c->n_heads, s->sinks);
}

static inline void scene_close(struct scene *s) {
    backend_weight_free(s->sink_weight);
    backend_buf_free(s->kv.k);
    free(s->pool);
    free(s->k);
}

/* Rows of one or of several sequences, all over the scene's blocks. */
struct batch {
    const float *q; /* (n_rows, n_heads, DIM) */
    const int32_t *pos;
    uint32_t n_rows, rows; /* rows: of a sequence */
};

static inline void attend(backend *be, const struct scene *s, const struct batch *b, float *out) {
    const uint32_t n_seqs = b->n_rows / b->rows;
    const uint64_t n_out = (uint64_t)b->n_rows * s->c.n_heads * V_DIM;
    int32_t *tables = be_new((uint64_t)n_seqs * BLOCKS, 4), *start = be_new(n_seqs + 1, 4);
    for (uint32_t i = 0; i <= n_seqs; i++) {
        start[i] = (int32_t)(i * b->rows);
        if (i < n_seqs) memcpy(tables + (uint64_t)i * BLOCKS, s->table, sizeof s->table);
    }
    struct op_paged_attention op = {.q = be_f32(be, b->q, (uint64_t)b->n_rows * s->c.n_heads * DIM),
                                    .pos = be_i32(be, b->pos, b->n_rows),
                                    .row_start = be_i32(be, start, n_seqs + 1),
                                    .tables = be_i32(be, tables, (uint64_t)n_seqs * BLOCKS),
                                    .n_rows = b->n_rows,
                                    .n_seqs = n_seqs,
                                    .n_heads = s->c.n_heads,
                                    .table_stride = BLOCKS,
                                    .window = s->c.window,
                                    .scale = 0.1f,
                                    .softcap = s->c.softcap,
                                    .sinks = s->sink_weight,
                                    .kv = s->kv,
                                    .out = be_f32(be, NULL, n_out)};
    CHECK(backend_paged_attention(be, &op) == 0);
    be_get(be, op.out, out, n_out);
    const backend_buf *bufs[] = {op.q, op.pos, op.row_start, op.tables, op.out};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        backend_buf_free((backend_buf *)bufs[i]);
    free(start);
    free(tables);
}

/* The largest error of one head's output against float64. */
static inline double worst_of(const struct scene *s, int32_t pos, uint32_t head, const float *q,
                              const float *out) {
    static double p[MOST];
    double top = -INFINITY, sum = 0, worst = 0;
    const int32_t first =
        s->c.window && pos >= (int32_t)s->c.window ? pos + 1 - (int32_t)s->c.window : 0;
    for (int32_t t = first; t <= pos; t++) {
        p[t] = 0;
        for (uint32_t d = 0; d < DIM; d++)
            p[t] += 0.1f * (double)q[d] * (double)s->k[(uint64_t)t * DIM + d];
        if (s->c.softcap != 0) p[t] = (double)s->c.softcap * tanh(p[t] / (double)s->c.softcap);
        top = fmax(top, p[t]);
    }
    if (s->c.sinks) top = fmax(top, (double)s->sinks[head]);
    for (int32_t t = first; t <= pos; t++)
        sum += p[t] = exp(p[t] - top);
    if (s->c.sinks) sum += exp((double)s->sinks[head] - top);
    for (uint32_t d = 0; d < V_DIM; d++) {
        double want = 0;
        for (int32_t t = first; t <= pos; t++)
            want += p[t] / sum * (double)s->k[(uint64_t)t * DIM + d];
        worst = fmax(worst, fabs(want - (double)out[d]));
    }
    return worst;
}

/* A prompt's rows from position `first` on, and each of some of them alone and with a few others.
 */
static inline void check_case(backend *be, const struct latent_case *c, int32_t first) {
    static const uint32_t steps[] = {1, 2, 4, 13};
    const uint32_t n = c->n_heads > 60 ? 13 : be_quick ? 18 : 40;
    const uint64_t q_row = (uint64_t)c->n_heads * DIM, row = (uint64_t)c->n_heads * V_DIM;
    struct scene s;
    int32_t pos[40];
    scene_open(&s, c, be);
    float *q = be_new(n * q_row, 4), *all = be_new(n * row, 4), *some = be_new(13 * row, 4);
    be_fill(q, n * q_row, 1);
    for (uint32_t i = 0; i < n; i++)
        pos[i] = first + (int32_t)i;
    attend(be, &s, &(struct batch){q, pos, n, n}, all);
    for (int k = 0; k < 4; k++)
        for (uint32_t at = 0; at + steps[k] <= n; at += be_quick ? 12 : 5) {
            attend(be, &s, &(struct batch){q + at * q_row, pos + at, steps[k], steps[k]}, some);
            CHECK_MSG(memcmp(some, all + at * row, steps[k] * row * 4) == 0,
                      "%u heads, %s: %u rows from %u on", c->n_heads, qtype_name(c->kv_type),
                      steps[k], at);
        }
    const double allowed = c->kv_type == QTYPE_BF16 ? 4e-3 : 5e-4;
    for (uint32_t i = 0; i < n; i += 6) {
        const uint32_t h = i * 7 % c->n_heads;
        const double worst =
            worst_of(&s, pos[i], h, q + i * q_row + h * DIM, all + i * row + h * V_DIM);
        check_note_error(worst / allowed);
        CHECK_MSG(worst <= allowed, "%u heads, %s, row %u: off by %g", c->n_heads,
                  qtype_name(c->kv_type), i, worst);
    }
    free(some);
    free(all);
    free(q);
    scene_close(&s);
}

#endif
