/* heads.c - a product for each head (op_linear_heads): sorts the rows' heads by head, has the
 * driver of products (linear.c) multiply each head's rows by its matrix, as experts' rows are
 * (moe.c), and puts the results back. A pair of row and head has its own row in between, so its
 * result does not depend on the others. All memory is allocated at open, for a few rows at once. */
#include "core/backend/cpu/linear_int.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_VALUES = 8192 /* copied in a chunk: a microsecond or two */ };

/* Pairs: up to CPU_HEADS_ROWS rows of each head, head by head. */
struct cpu_heads {
    struct cpu_codes codes; /* (pairs, n_cols): input of quantized weights */
    float *in, *out;        /* (pairs, n_cols): of float weights; results */
    uint32_t *first;        /* (n_heads + 1): pairs of a head */
};

int cpu_heads_new(const struct backend_config *config, struct cpu_heads **out) {
    const struct backend_head_limits *lim = &config->heads;
    const uint64_t pairs = (uint64_t)lim->n_heads * CPU_HEADS_ROWS;
    uint64_t n;
    *out = NULL;
    if (!lim->n_heads) return 0;
    struct cpu_heads *h = *out = mem_new(1, sizeof *h);
    if (!h || pairs > UINT32_MAX || !mem_mul(pairs, lim->n_cols, &n) ||
        !mem_mul(n, sizeof(float), &n) ||
        cpu_codes_new(&h->codes, pairs, lim->n_cols, config->activation_bits))
        return ERR_NOMEM;
    h->in = mem_new_aligned(n);
    h->out = mem_new_aligned(n);
    h->first = mem_new((uint64_t)lim->n_heads + 1, sizeof *h->first);
    return h->in && h->out && h->first ? 0 : ERR_NOMEM;
}

void cpu_heads_free(struct cpu_heads *h) {
    if (!h) return;
    free(h->first);
    free(h->out);
    free(h->in);
    cpu_codes_free(&h->codes);
    free(h);
}

/* Rows first .. first + n_rows - 1 of an op. */
struct heads_run {
    struct cpu_backend *c;
    const struct op_linear_heads *op;
    uint32_t first, n_rows, n_heads, n_in, n_out;
    uint32_t per_chunk; /* pairs */
    bool floats;        /* what the weight reads; else codes */
};

/* x of a pair. */
static const float *input_of(const struct heads_run *r, uint32_t pair) {
    const uint64_t row = r->first + pair % r->n_rows, head = pair / r->n_rows;
    return (const float *)r->op->x->host +
           (row * r->n_heads + head) * ((uint64_t)r->n_in + r->op->n_tail);
}

static void gather_pair(const struct heads_run *r, uint32_t pair) {
    const struct cpu_heads *h = r->c->heads;
    const float *x = input_of(r, pair);
    if (r->floats)
        memcpy(h->in + (uint64_t)pair * r->n_in, x, r->n_in * sizeof *x);
    else
        cpu_codes_put(&h->codes, r->c->gemm, x, r->n_in, pair, r->n_heads * r->n_rows);
}

static void scatter_pair(const struct heads_run *r, uint32_t pair) {
    const uint64_t row = r->first + pair % r->n_rows, head = pair / r->n_rows;
    const uint32_t n_tail = r->op->n_tail;
    float *y = (float *)r->op->y->host + (row * r->n_heads + head) * ((uint64_t)r->n_out + n_tail);
    memcpy(y, r->c->heads->out + (uint64_t)pair * r->n_out, r->n_out * sizeof *y);
    memcpy(y + r->n_out, input_of(r, pair) + r->n_in, n_tail * sizeof *y);
}

static void gather_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct heads_run *r = arg;
    const uint32_t first = chunk * r->per_chunk, n = r->n_heads * r->n_rows;
    (void)thread;
    for (uint32_t i = first; i < n && i - first < r->per_chunk; i++)
        gather_pair(r, i);
}

static void scatter_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct heads_run *r = arg;
    const uint32_t first = chunk * r->per_chunk, n = r->n_heads * r->n_rows;
    (void)thread;
    for (uint32_t i = first; i < n && i - first < r->per_chunk; i++)
        scatter_pair(r, i);
}

static int run_rows(const struct heads_run *r) {
    struct cpu_heads *h = r->c->heads;
    const uint32_t n_pairs = r->n_heads * r->n_rows;
    const uint32_t n_chunks = (n_pairs + r->per_chunk - 1) / r->per_chunk;
    struct cpu_products run = {.c = r->c,
                               .codes = &h->codes,
                               .x = r->floats ? h->in : NULL,
                               .first = h->first,
                               .n_groups = r->n_heads,
                               .n_rows = n_pairs,
                               .n_in = r->n_in};
    for (uint32_t i = 0; i <= r->n_heads; i++)
        h->first[i] = i * r->n_rows;
    pool_run(r->c->pool, n_chunks, gather_chunk, r);
    if (!r->floats) backend_count_kernel(&r->c->base, r->c->quantize_counter);
    cpu_products_add(&run, r->op->w, NULL, h->out);
    int rc = cpu_products_run(&run);
    if (rc) return rc;
    pool_run(r->c->pool, n_chunks, scatter_chunk, r);
    cpu_count(r->c, &cpu_isa_generic, CPU_HEADS);
    return 0;
}

int cpu_linear_heads(backend *be, const struct op_linear_heads *a) {
    struct heads_run r = {.c = cpu_of(be),
                          .op = a,
                          .n_heads = (uint32_t)a->w->n_experts,
                          .n_in = (uint32_t)a->w->n_in,
                          .n_out = (uint32_t)a->w->n_out,
                          .floats = cpu_is_float(a->w->type)};
    r.per_chunk = CHUNK_VALUES / (r.n_in + r.n_out) + 1;
    int rc = 0;
    for (; !rc && r.first < a->n_rows; r.first += r.n_rows) {
        const uint32_t left = a->n_rows - r.first;
        r.n_rows = left < CPU_HEADS_ROWS ? left : CPU_HEADS_ROWS;
        rc = run_rows(&r);
    }
    return rc;
}
