/* linear.c - launches matrix products: quantizes the input once per op where a weight wants it,
 * then hands out panels of outputs. A panel's weights are read from memory once and stay in the
 * second-level cache while the rows pass over them. */
#include "core/backend/cpu/cpu_int.h"

#include <stddef.h>

enum {
    PANEL_BYTES = 64 * 1024, /* of weights */
    PANEL_STEP = 8,          /* outputs */
    PANEL_MAX = 64,          /* outputs */
    ROWS_PER_TASK = 128,
    QUANTIZE_ROWS = 8
};

struct panels {
    struct cpu_linear_job job; /* whole weight */
    uint32_t width, n_panels, first_task;
};

struct linear_run {
    const struct cpu_isa *isa;
    uint32_t n_weights, n_row_blocks;
    struct panels w[BACKEND_LINEAR_MAX];
};

static int kernel_of(int type) {
    switch (type) {
    case QTYPE_F16:
        return CPU_LINEAR_F16;
    case QTYPE_BF16:
        return CPU_LINEAR_BF16;
    case QTYPE_Q8_0:
        return CPU_LINEAR_Q8_0;
    case QTYPE_Q4_0:
        return CPU_LINEAR_Q4_0;
    default:
        return CPU_LINEAR_F32;
    }
}

static bool is_quantized(int type) {
    return type == QTYPE_Q8_0 || type == QTYPE_Q4_0;
}

struct quantize_run {
    const struct cpu_isa *isa;
    const float *x; /* (n_rows, n_in) */
    int16_t *q;
    float *d;
    uint32_t n_rows, n_in;
};

static void quantize_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct quantize_run *r = arg;
    (void)thread;
    for (uint32_t i = 0; i < QUANTIZE_ROWS; i++) {
        uint64_t row = (uint64_t)chunk * QUANTIZE_ROWS + i;
        if (row >= r->n_rows) return;
        r->isa->quantize(r->x + row * r->n_in, r->q + row * r->n_in,
                         r->d + row * (r->n_in / CPU_Q_ELEMS), r->n_in);
    }
}

/* Tasks of one weight: row blocks of a panel follow each other, so that threads share it. */
static void linear_task(const void *arg, uint32_t task, int thread) {
    const struct linear_run *r = arg;
    uint32_t i = r->n_weights - 1;
    (void)thread;
    while (task < r->w[i].first_task)
        i--;
    const struct panels *p = &r->w[i];
    struct cpu_linear_job j = p->job;
    uint32_t panel = (task - p->first_task) / r->n_row_blocks;
    uint64_t row = (uint64_t)((task - p->first_task) % r->n_row_blocks) * ROWS_PER_TASK;
    j.out0 = panel * p->width;
    if (j.n_outs - j.out0 < p->width)
        j.n_outs -= j.out0;
    else
        j.n_outs = p->width;
    j.n_rows = j.n_rows - row < ROWS_PER_TASK ? j.n_rows - (uint32_t)row : ROWS_PER_TASK;
    j.x += row * j.n_in;
    j.xq += row * j.n_in;
    j.xd += row * (j.n_in / CPU_Q_ELEMS);
    j.y += row * j.y_stride;
    r->isa->linear(&j);
}

static uint32_t panel_width(uint64_t row_bytes) {
    uint64_t width = PANEL_BYTES / row_bytes / PANEL_STEP * PANEL_STEP;
    if (width < PANEL_STEP) return PANEL_STEP;
    return width > PANEL_MAX ? PANEL_MAX : (uint32_t)width;
}

int cpu_linear(backend *be, const struct op_linear *a) {
    struct cpu_backend *c = cpu_of(be);
    struct linear_run run = {.isa = c->isa,
                             .n_weights = a->n_weights,
                             .n_row_blocks = (a->n_rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK};
    uint32_t n_in = (uint32_t)a->w[0]->n_in;
    uint64_t n_tasks = 0;
    bool quantize = false;
    for (uint32_t i = 0; i < a->n_weights; i++) {
        const struct cpu_weight *w = cpu_weight_of(a->w[i]);
        struct panels *p = &run.w[i];
        uint32_t n_out = (uint32_t)w->base.n_out;
        p->job =
            (struct cpu_linear_job){.type = w->base.type,
                                    .x = a->x->host,
                                    .xq = c->xq,
                                    .xd = c->xd,
                                    .n_rows = a->n_rows,
                                    .n_in = n_in,
                                    .w = w->data,
                                    .w_row_bytes = w->row_bytes,
                                    .bias = a->bias[i] ? cpu_weight_of(a->bias[i])->data : NULL,
                                    .y = a->y[i]->host,
                                    .y_stride = n_out,
                                    .n_outs = n_out};
        p->width = panel_width(w->row_bytes);
        p->n_panels = (n_out + p->width - 1) / p->width;
        p->first_task = (uint32_t)n_tasks;
        n_tasks += (uint64_t)p->n_panels * run.n_row_blocks;
        quantize = quantize || is_quantized(w->base.type);
    }
    if (n_tasks >= UINT32_MAX) return ERR_INVALID;
    if (quantize) {
        struct quantize_run q = {c->isa, a->x->host, c->xq, c->xd, a->n_rows, n_in};
        pool_run(c->pool, (a->n_rows + QUANTIZE_ROWS - 1) / QUANTIZE_ROWS, quantize_chunk, &q);
        cpu_count(c, c->isa, CPU_QUANTIZE_ROWS);
    }
    pool_run(c->pool, (uint32_t)n_tasks, linear_task, &run);
    for (uint32_t i = 0; i < a->n_weights; i++)
        cpu_count(c, c->isa, (uint32_t)kernel_of(a->w[i]->type));
    return 0;
}
