/* linear.c - the driver of matrix products (gemm.h): prepares the input once per op (residual,
 * norm, quantization, row by row), then hands out tasks of a row block times a few panels.
 *
 * Tasks are numbered row block by row block: a thread walks the panels in the order of memory and
 * keeps the block's input in its second-level cache. With few rows (GEMV) the product is bound by
 * reading the weights: a task is some 128 KB of them, and unpack prefetches. */
#include "core/backend/cpu/linear_int.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    TASK_BYTES = 128 * 1024,          /* of a weight, for one row */
    TASKS_PER_THREAD = 4,             /* at least, if there are enough panels */
    ROW_STEP = 8,                     /* row blocks are multiples of it */
    LEAST_BLOCK_ROWS = GEMM_ROWS / 2, /* of a group's blocks, if it has enough rows */
    INPUT_BYTES_PER_TASK = 1 << 20,   /* of a row block: fits the second-level cache */
    PREPARE_VALUES = 8192             /* in a chunk of rows: a microsecond or two */
};

/* A thread's own memory. */
struct linear_scratch {
    struct gemm_tile tile[GEMM_PANELS];
    _Alignas(64) float acc[2][GEMM_ROWS * GEMM_PANELS * GEMM_OUTS]; /* of two weights: gate, up */
};

/* Adjacent rows of one group. */
struct cpu_row_block {
    uint32_t row, n_rows, group;
};

_Static_assert((int)CPU_HEADS_ROWS <= (int)LEAST_BLOCK_ROWS, "a block of each head");

/* ---- memory ---- */

int cpu_codes_new(struct cpu_codes *codes, uint64_t max_rows, uint64_t max_cols, int bits) {
    uint64_t n_k_blocks = max_cols / GEMM_COLS + (max_cols % GEMM_COLS != 0), n;
    *codes = (struct cpu_codes){0};
    if (!mem_mul(n_k_blocks, GEMM_COLS, &n) || !mem_mul(n, max_rows, &n) || n > UINT64_MAX >> 8)
        return ERR_NOMEM;
    codes->q[0] = mem_new_aligned(n);
    codes->blocks = mem_new_aligned(n / GEMM_BLOCK * sizeof *codes->blocks);
    if (bits == 16) codes->q[1] = mem_new_aligned(n);
    return codes->q[0] && codes->blocks && (codes->q[1] || bits != 16) ? 0 : ERR_NOMEM;
}

void cpu_codes_free(struct cpu_codes *codes) {
    free(codes->blocks);
    free(codes->q[1]);
    free(codes->q[0]);
}

/* A group of n rows makes at most n / LEAST_BLOCK_ROWS + 1 blocks, and one of CPU_HEADS_ROWS one.
 */
static uint64_t most_row_blocks(const struct backend_config *config) {
    uint64_t n_used = config->moe.n_experts ? config->moe.n_used : 1;
    uint64_t n_groups = config->moe.n_experts ? config->moe.n_experts : 1;
    uint64_t n = config->max_rows * n_used / LEAST_BLOCK_ROWS + n_groups + 1;
    return n > config->heads.n_heads ? n : config->heads.n_heads;
}

int cpu_linear_new(const struct backend_config *config, int n_threads, struct cpu_linear **out) {
    struct cpu_linear *l = *out = mem_new(1, sizeof *l);
    uint64_t n_k_blocks = ((uint64_t)config->max_cols + GEMM_COLS - 1) / GEMM_COLS, threads;
    if (!l || n_k_blocks > UINT32_MAX / GEMM_COLS ||
        cpu_codes_new(&l->codes, config->max_rows, config->max_cols, config->activation_bits))
        return ERR_NOMEM;
    threads = (uint64_t)n_threads;
    l->max_rows = config->max_rows;
    l->max_cols = config->max_cols;
    l->row_stride = n_k_blocks * GEMM_COLS;
    l->scratch = mem_new_aligned(threads * sizeof *l->scratch);
    l->row = mem_new_aligned(threads * l->row_stride * sizeof *l->row);
    l->row_blocks = mem_new(most_row_blocks(config), sizeof *l->row_blocks);
    return l->scratch && l->row && l->row_blocks ? 0 : ERR_NOMEM;
}

void cpu_linear_free(struct cpu_linear *l) {
    if (!l) return;
    free(l->normed);
    cpu_codes_free(&l->codes);
    free(l->row_blocks);
    free(l->row);
    free(l->scratch);
    free(l);
}

int cpu_linear_need_floats(struct cpu_linear *l) {
    uint64_t n;
    if (l->normed) return 0;
    if (!mem_mul(l->max_rows, l->max_cols, &n) || !mem_mul(n, sizeof *l->normed, &n))
        return ERR_NOMEM;
    l->normed = mem_new_aligned(n);
    return l->normed ? 0 : ERR_NOMEM;
}

/* ---- input ---- */

struct prepare_run {
    struct cpu_backend *c;
    const struct cpu_input *input;
};

void cpu_codes_put(const struct cpu_codes *codes, const struct gemm_isa *gemm, const float *x,
                   uint32_t n_in, uint32_t row, uint32_t n_rows) {
    for (uint32_t c = 0; c < n_in; c += GEMM_COLS) {
        uint64_t to = (uint64_t)(c / GEMM_COLS) * n_rows + row;
        int8_t *q[2] = {codes->q[0] + to * GEMM_COLS,
                        codes->q[1] ? codes->q[1] + to * GEMM_COLS : NULL};
        gemm->quantize(x + c, n_in - c < GEMM_COLS ? n_in - c : GEMM_COLS, q,
                       codes->blocks + to * GEMM_BLOCKS);
    }
}

static const float *vector_of(const backend_weight *w) {
    return w ? cpu_weight_of(w)->data : NULL;
}

/* Updates the row of `in` that starts at value `at`; with a norm the result goes to out (n_in). */
static void norm_input_row(const struct cpu_backend *c, const struct op_input *in, uint64_t at,
                           uint32_t n_in, float *out) {
    struct cpu_row r = {.x = (float *)in->x->host + at,
                        .residual = in->residual ? (const float *)in->residual->host + at : NULL,
                        .residual_norm = vector_of(in->residual_norm),
                        .norm = vector_of(in->norm),
                        .out = in->norm ? out : NULL,
                        .residual_scale = in->residual_scale != 0 ? in->residual_scale : 1,
                        .eps = in->eps,
                        .n = n_in,
                        .centred = in->centred,
                        .bias = vector_of(in->norm_bias)};
    c->isa->norm_row(&r);
}

static void prepare_row(const struct prepare_run *p, uint32_t row, int thread) {
    const struct cpu_linear *l = p->c->linear;
    const struct cpu_input *input = p->input;
    const struct op_input *in = input->in;
    uint64_t at = (uint64_t)row * input->n_in;
    const float *x = (const float *)in->x->host + at;
    if (in->norm || in->residual) {
        float *normed = input->floats ? l->normed + at : l->row + (uint64_t)thread * l->row_stride;
        norm_input_row(p->c, in, at, input->n_in, normed);
        if (in->norm) x = normed;
    }
    if (input->codes) cpu_codes_put(&l->codes, p->c->gemm, x, input->n_in, row, input->n_rows);
}

static uint32_t prepare_rows(uint32_t n_in) {
    return n_in >= PREPARE_VALUES ? 1 : PREPARE_VALUES / n_in;
}

static void prepare_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct prepare_run *p = arg;
    uint32_t n = prepare_rows(p->input->n_in), first = chunk * n;
    for (uint32_t row = first; row < p->input->n_rows && row - first < n; row++)
        prepare_row(p, row, thread);
}

void cpu_input_prepare(struct cpu_backend *c, const struct cpu_input *input) {
    uint32_t n = prepare_rows(input->n_in);
    const struct op_input *in = input->in;
    if (!in->norm && !in->residual && !input->codes) return;
    struct prepare_run run = {c, input};
    pool_run(c->pool, input->n_rows / n + (input->n_rows % n != 0), prepare_chunk, &run);
    if (in->norm || in->residual_norm)
        cpu_count(c, c->isa, in->centred ? CPU_LAYERNORM : CPU_RMSNORM);
    else if (in->residual)
        cpu_count(c, c->isa, CPU_ADD_ROWS);
    if (input->codes) backend_count_kernel(&c->base, c->quantize_counter);
}

struct norm_run {
    struct cpu_backend *c;
    const struct op_norm *op;
};

static void norm_chunk(const void *arg, uint32_t row, int thread) {
    const struct norm_run *run = arg;
    uint32_t n = (uint32_t)run->op->in.norm->n_in;
    uint64_t at = (uint64_t)row * n;
    (void)thread;
    norm_input_row(run->c, &run->op->in, at, n, (float *)run->op->out->host + at);
}

int cpu_norm(backend *be, const struct op_norm *a) {
    struct norm_run run = {cpu_of(be), a};
    pool_run(run.c->pool, a->n_rows, norm_chunk, &run);
    cpu_count(run.c, run.c->isa, a->in.centred ? CPU_LAYERNORM : CPU_RMSNORM);
    return 0;
}

const float *cpu_input_floats(const struct cpu_backend *c, const struct op_input *in) {
    return in->norm ? c->linear->normed : in->x->host;
}

/* ---- products ---- */

/* Rows of one group times panels of one weight. */
struct span {
    uint32_t row, n_rows, group, panel, n_panels;
};

/* acc (s->n_rows, GEMM_PANELS * GEMM_OUTS) = products with up to GEMM_PANELS panels of one pair. */
static void multiply_unit(const struct cpu_products *r, const struct cpu_product *p,
                          const struct span *s, struct linear_scratch *scratch, float *acc) {
    const struct cpu_weight *w = p->w;
    uint32_t n_in = r->n_in;
    bool floats = cpu_is_float(w->base.type);
    uint32_t in_pair = s->panel % GEMM_PANELS, pair = s->panel - in_pair; /* its first panel */
    uint32_t together = p->n_panels - pair < GEMM_PANELS ? p->n_panels - pair : GEMM_PANELS;
    const uint8_t *k_blocks = w->panels + s->group * w->expert_bytes + pair * w->panel_bytes;
    struct gemm_job j = {.type = w->base.type,
                         .tile = scratch->tile,
                         .n_panels = s->n_panels,
                         .n_rows = s->n_rows,
                         .x = {.x = floats ? r->x + (uint64_t)s->row * n_in : NULL,
                               .x_stride = n_in,
                               .q_stride = GEMM_COLS,
                               .blocks_stride = GEMM_BLOCKS},
                         .acc = acc,
                         .first = true};
    for (uint32_t c = 0; c < n_in; c += GEMM_COLS) {
        j.n_cols = n_in - c < GEMM_COLS ? n_in - c : GEMM_COLS;
        if (!floats) {
            uint64_t at = (uint64_t)(c / GEMM_COLS) * r->n_rows + s->row;
            j.x.q[0] = r->codes->q[0] + at * GEMM_COLS;
            j.x.q[1] = r->codes->q[1] ? r->codes->q[1] + at * GEMM_COLS : NULL;
            j.x.blocks = r->codes->blocks + at * GEMM_BLOCKS;
        }
        uint64_t bytes = gemm_k_block_bytes(j.type, j.n_cols);
        for (uint32_t k = 0; k < s->n_panels; k++)
            r->c->gemm->unpack(j.type, k_blocks + (in_pair + k) * bytes, j.n_cols,
                               &scratch->tile[k]);
        r->c->gemm->multiply(&j);
        k_blocks += together * bytes;
        if (floats) j.x.x += j.n_cols;
        j.first = false;
    }
}

/* Outputs of the span that exist in the weight. */
static uint32_t span_outs(const struct cpu_product *p, const struct span *s) {
    uint64_t left = p->w->base.n_out - (uint64_t)s->panel * GEMM_OUTS;
    return left < s->n_panels * GEMM_OUTS ? (uint32_t)left : s->n_panels * GEMM_OUTS;
}

static void add_bias(const struct cpu_product *p, const struct span *s, float *acc) {
    uint32_t n = span_outs(p, s);
    if (!p->bias) return;
    const float *bias = p->bias + s->group * p->w->base.n_out + (uint64_t)s->panel * GEMM_OUTS;
    for (uint32_t row = 0; row < s->n_rows; row++, acc += GEMM_PANELS * GEMM_OUTS)
        for (uint32_t o = 0; o < n; o++)
            acc[o] += bias[o];
}

/* NaN stays NaN. */
static void bound_row(struct backend_bounds b, float *gate, float *up, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        gate[i] = gate[i] > b.gate ? b.gate : gate[i];
        up[i] = up[i] > b.up ? b.up : up[i] < -b.up ? -b.up : up[i];
    }
}

/* The epilogue: writes a unit's rows of y. acc (the gate, or the only product) and up have the
 * shape of multiply_unit's acc. */
static void run_epilogue(const struct cpu_products *r, const struct cpu_product *p,
                         const struct span *s, float *acc, float *up) {
    uint32_t n = span_outs(p, s);
    uint64_t n_out = p->w->base.n_out;
    float *y = p->y + s->row * n_out + (uint64_t)s->panel * GEMM_OUTS;
    float scale = r->y_scale != 0 ? r->y_scale : 1;
    for (uint32_t row = 0; row < s->n_rows; row++, y += n_out) {
        uint32_t at = row * GEMM_PANELS * GEMM_OUTS;
        if (r->bounds.up > 0) bound_row(r->bounds, acc + at, up + at, n);
        if (up)
            r->c->isa->glu[r->act](acc + at, up + at, y, n);
        else if (r->softcap != 0)
            r->c->isa->softcap(acc + at, y, n, scale / r->softcap, r->softcap);
        else
            for (uint32_t o = 0; o < n; o++)
                y[o] = acc[at + o] * scale;
    }
}

/* Multiplies as many panels as acc holds for these rows: first the first weight's, then the
 * second's, so that each weight is read sequentially. */
static void multiply_span(const struct cpu_products *r, const struct cpu_product *p,
                          const struct span *s, struct linear_scratch *scratch) {
    bool gated = r->act != BACKEND_ACT_NONE;
    uint32_t acc_floats = s->n_rows * GEMM_PANELS * GEMM_OUTS;
    for (int i = 0; i < 1 + gated; i++) {
        uint32_t at = 0;
        for (uint32_t k = 0; k < s->n_panels; k += r->unit_panels, at += acc_floats) {
            uint32_t left = s->n_panels - k, n = left < r->unit_panels ? left : r->unit_panels;
            struct span unit = {s->row, s->n_rows, s->group, s->panel + k, n};
            multiply_unit(r, p + i, &unit, scratch, scratch->acc[i] + at);
            add_bias(p + i, &unit, scratch->acc[i] + at);
            if (i == gated)
                run_epilogue(r, p, &unit, scratch->acc[0] + at,
                             gated ? scratch->acc[1] + at : NULL);
        }
    }
}

static void product_task(const void *arg, uint32_t task, int thread) {
    const struct cpu_products *r = arg;
    const struct cpu_row_block *block = &r->c->linear->row_blocks[task / r->n_block_tasks];
    const struct cpu_product *p = &r->p[r->n_products - 1];
    task %= r->n_block_tasks;
    while (task < p->first_task)
        p--;
    uint32_t panel = (task - p->first_task) * p->task_panels, most, left, n;
    left = p->n_panels - panel < p->task_panels ? p->n_panels - panel : p->task_panels;
    most = GEMM_ROWS / block->n_rows * r->unit_panels;
    for (; left; left -= n, panel += n) {
        n = left < most ? left : most;
        struct span s = {block->row, block->n_rows, block->group, panel, n};
        multiply_span(r, p, &s, &r->c->linear->scratch[thread]);
    }
}

/* ---- division of products into tasks; does not affect results ---- */

/* Divides a group into even blocks. */
static void plan_group(struct cpu_products *r, uint32_t group, uint32_t most) {
    uint32_t row = r->first[group], end = r->first[group + 1];
    uint32_t n_blocks = (end - row + most - 1) / most;
    if (!n_blocks) return;
    uint32_t even = (end - row + n_blocks - 1) / n_blocks;
    even = (even + ROW_STEP - 1) / ROW_STEP * ROW_STEP;
    for (; row < end; row += even)
        r->c->linear->row_blocks[r->n_blocks++] =
            (struct cpu_row_block){row, end - row < even ? end - row : even, group};
}

static void plan_rows(struct cpu_products *r) {
    uint64_t row_bytes = (uint64_t)r->n_in * (r->x ? sizeof(float) : r->codes->q[1] ? 3 : 2);
    uint64_t fit = INPUT_BYTES_PER_TASK / row_bytes / ROW_STEP * ROW_STEP;
    uint32_t most = fit < LEAST_BLOCK_ROWS ? LEAST_BLOCK_ROWS
                    : fit > GEMM_ROWS      ? GEMM_ROWS
                                           : (uint32_t)fit;
    r->n_blocks = 0;
    for (uint32_t g = 0; g < r->n_groups; g++)
        plan_group(r, g, most);
}

static void plan_panels(struct cpu_products *r) {
    uint64_t all = 0, want = (uint64_t)TASKS_PER_THREAD * (uint32_t)r->c->base.n_threads;
    for (uint32_t i = 0; i < r->n_products; i++)
        all += (uint64_t)r->p[i].n_panels * r->n_blocks;
    r->unit_panels = all < want * GEMM_PANELS ? 1 : GEMM_PANELS;
    r->n_block_tasks = 0;
    for (uint32_t i = 0; i < r->n_products; i++) {
        struct cpu_product *p = &r->p[i];
        uint64_t cost = p->w->panel_bytes * (1 + r->n_rows / r->n_blocks / ROW_STEP);
        uint64_t n = TASK_BYTES / cost, most = all / want;
        if (n > most) n = most;
        n = n / r->unit_panels * r->unit_panels;
        p->task_panels = n < r->unit_panels ? r->unit_panels : (uint32_t)n;
        p->first_task = r->n_block_tasks;
        r->n_block_tasks += (p->n_panels + p->task_panels - 1) / p->task_panels;
    }
}

void cpu_products_add(struct cpu_products *r, const backend_weight *w, const backend_weight *bias,
                      float *y) {
    r->p[r->n_weights++] =
        (struct cpu_product){.w = cpu_weight_of(w),
                             .bias = vector_of(bias),
                             .y = y,
                             .n_panels = (uint32_t)((w->n_out + GEMM_OUTS - 1) / GEMM_OUTS)};
}

/* ---- watched weights ---- */

enum { WATCH_COLS = 64 }; /* of a task */

struct watch_run {
    const struct cpu_products *r;
    const struct cpu_weight *w;
};

/* out (n) = columns c .. of a row as products read it; n is at most WATCH_COLS, within a K block.
 */
static void read_input(const struct cpu_products *r, bool floats, uint32_t row, uint32_t c,
                       uint32_t n, float *out) {
    if (floats) {
        memcpy(out, r->x + (uint64_t)row * r->n_in + c, n * sizeof *out);
        return;
    }
    const uint64_t at = (uint64_t)(c / GEMM_COLS) * r->n_rows + row;
    const struct gemm_block *blocks = r->codes->blocks + at * GEMM_BLOCKS;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t in_block = c % GEMM_COLS + i;
        int q = r->codes->q[0][at * GEMM_COLS + in_block];
        if (r->codes->q[1]) q = GEMM_PLANE * q + r->codes->q[1][at * GEMM_COLS + in_block];
        out[i] = blocks[in_block / GEMM_BLOCK].d * (float)q;
    }
}

/* Adds the squares of some columns, row after row. */
static void watch_columns(const void *arg, uint32_t task, int thread) {
    const struct watch_run *run = arg;
    const struct cpu_products *r = run->r;
    const struct backend_watch *to = &run->w->base.watch;
    const uint32_t first = task * WATCH_COLS, left = r->n_in - first;
    const uint32_t n = left < WATCH_COLS ? left : WATCH_COLS;
    const bool floats = cpu_is_float(run->w->base.type);
    float x[WATCH_COLS];
    (void)thread;
    for (uint32_t g = 0; g < r->n_groups; g++) {
        double *sums = to->sums + (to->n_groups == 1 ? 0 : (uint64_t)g * r->n_in) + first;
        for (uint32_t row = r->first[g]; row < r->first[g + 1]; row++) {
            read_input(r, floats, row, first, n, x);
            for (uint32_t i = 0; i < n; i++)
                sums[i] += (double)x[i] * (double)x[i];
        }
    }
}

static void watch_inputs(const struct cpu_products *r) {
    for (uint32_t i = 0; i < r->n_weights; i++) {
        const struct watch_run run = {r, r->p[i].w};
        const struct backend_watch *to = &run.w->base.watch;
        if (!to->sums) continue;
        for (uint32_t g = 0; g < r->n_groups; g++)
            to->counts[to->n_groups == 1 ? 0 : g] += r->first[g + 1] - r->first[g];
        pool_run(r->c->pool, (r->n_in - 1) / WATCH_COLS + 1, watch_columns, &run);
    }
}

int cpu_products_run(struct cpu_products *r) {
    struct cpu_backend *c = r->c;
    bool gated = r->act != BACKEND_ACT_NONE;
    r->n_products = gated ? 1 : r->n_weights;
    plan_rows(r);
    plan_panels(r);
    uint64_t n_tasks = (uint64_t)r->n_block_tasks * r->n_blocks;
    if (n_tasks >= UINT32_MAX) return ERR_INVALID;
    pool_run(c->pool, (uint32_t)n_tasks, product_task, r);
    watch_inputs(r);
    for (uint32_t i = 0; i < r->n_weights; i++)
        backend_count_kernel(&c->base, c->linear_counters[r->p[i].w->base.type]);
    if (gated) cpu_count(c, c->isa, CPU_GLU_SILU + r->act - BACKEND_ACT_SILU);
    if (r->softcap != 0) cpu_count(c, c->isa, CPU_SOFTCAP);
    return 0;
}

/* ---- the op ---- */

int cpu_linear(backend *be, const struct op_linear *a) {
    struct cpu_backend *c = cpu_of(be);
    const uint32_t all[] = {0, a->n_rows};
    struct cpu_input input = {.in = &a->in, .n_rows = a->n_rows, .n_in = (uint32_t)a->w[0]->n_in};
    struct cpu_products run = {.c = c,
                               .codes = &c->linear->codes,
                               .first = all,
                               .n_groups = 1,
                               .n_rows = a->n_rows,
                               .n_in = input.n_in,
                               .act = a->act,
                               .bounds = a->bounds,
                               .y_scale = a->y_scale,
                               .softcap = a->softcap};
    for (uint32_t i = 0; i < a->n_weights; i++) {
        bool written = a->act == BACKEND_ACT_NONE || i == 0;
        cpu_input_is_for(&input, a->w[i]);
        cpu_products_add(&run, a->w[i], a->bias[i], written ? a->y[i]->host : NULL);
    }
    if (input.floats) run.x = cpu_input_floats(c, &a->in);
    cpu_input_prepare(c, &input);
    return cpu_products_run(&run);
}
