/* moe.c - mixtures of experts: chooses experts for each row, sorts (row, expert) pairs by expert,
 * and has the driver of products (linear.c) multiply each expert's pairs by its matrices.
 *
 * Each pair has its own row from input to result: the rows of an expert are adjacent, so the
 * products need no index. A pair costs a copy of its input's codes, which is small compared to its
 * n_ff outputs. A pair's result does not depend on its place; the pairs of a row are added in the
 * order of their experts. All memory is allocated at open. */
#include "core/backend/cpu/linear_int.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_VALUES = 8192,  /* in a chunk of rows: a microsecond or two */
    CHUNK_CHOICES = 1024, /* scores compared, likewise */
    COMBINE_COLS = 16     /* of y at once */
};

/* Maximum pairs: max_rows * n_used. */
struct cpu_moe {
    float *scores;          /* (max_rows, n_experts) */
    uint32_t *experts;      /* (max_rows, n_used) chosen experts, ascending */
    float *weights;         /* (max_rows, n_used) their weights */
    uint32_t *pairs;        /* (max_rows, n_used) their pairs */
    uint32_t *rows;         /* (most pairs) row of a pair */
    uint32_t *first, *next; /* (n_experts + 1), (n_experts): pairs of an expert */
    struct cpu_codes codes; /* (most pairs, max_cols or n_ff): input of the next product */
    float *ffn;             /* (most pairs, n_ff) act(gate, up) */
    float *out;             /* (most pairs, max_cols): input of float experts, then the results */
};

/* ---- memory ---- */

static void *new_array(uint64_t rows, uint64_t cols) {
    uint64_t n;
    return mem_mul(rows, cols, &n) && mem_mul(n, sizeof(float), &n) ? mem_new_aligned(n) : NULL;
}

int cpu_moe_new(const struct backend_config *config, struct cpu_moe **out) {
    const struct backend_moe_limits *lim = &config->moe;
    uint64_t most = (uint64_t)config->max_rows * lim->n_used;
    uint32_t cols = config->max_cols > lim->n_ff ? config->max_cols : lim->n_ff;
    *out = NULL;
    if (!lim->n_experts) return 0;
    struct cpu_moe *m = *out = mem_new(1, sizeof *m);
    if (!m || most > UINT32_MAX || cpu_codes_new(&m->codes, most, cols, config->activation_bits))
        return ERR_NOMEM;
    m->scores = new_array(config->max_rows, lim->n_experts);
    m->experts = new_array(config->max_rows, lim->n_used);
    m->weights = new_array(config->max_rows, lim->n_used);
    m->pairs = new_array(config->max_rows, lim->n_used);
    m->rows = new_array(most, 1);
    m->first = new_array((uint64_t)lim->n_experts + 1, 1);
    m->next = new_array(lim->n_experts, 1);
    m->ffn = new_array(most, lim->n_ff);
    m->out = new_array(most, config->max_cols);
    return m->scores && m->experts && m->weights && m->pairs && m->rows && m->first && m->next &&
                   m->ffn && m->out
               ? 0
               : ERR_NOMEM;
}

void cpu_moe_free(struct cpu_moe *m) {
    if (!m) return;
    free(m->out);
    free(m->ffn);
    free(m->next);
    free(m->first);
    free(m->rows);
    free(m->pairs);
    free(m->weights);
    free(m->experts);
    free(m->scores);
    cpu_codes_free(&m->codes);
    free(m);
}

/* ---- one op ---- */

struct moe_run {
    struct cpu_backend *c;
    struct cpu_moe *m;
    const struct op_moe *op;
    struct op_input latent;         /* what the experts read, if it is not op->in */
    struct cpu_input scored, input; /* what the router, what the experts read */
    uint32_t n_in, n_ff, n_experts, n_pairs;
    bool codes, floats; /* forms of the input that gate and up read */
};

/* A stage: n_items rows or pairs, one by one, in chunks. */
struct stage {
    const struct moe_run *r;
    void (*item)(const struct moe_run *r, uint32_t item);
    uint32_t n_items, per_chunk;
};

static void run_stage_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct stage *s = arg;
    uint32_t first = chunk * s->per_chunk;
    (void)thread;
    for (uint32_t i = first; i < s->n_items && i - first < s->per_chunk; i++)
        s->item(s->r, i);
}

static void run_stage(struct stage s) {
    if (!s.per_chunk) s.per_chunk = 1;
    uint32_t n = s.n_items / s.per_chunk + (s.n_items % s.per_chunk != 0);
    pool_run(s.r->c->pool, n, run_stage_chunk, &s);
}

/* ---- routing ---- */

static int score_rows(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    const uint32_t all[] = {0, a->n_rows};
    struct cpu_products run = {.c = r->c,
                               .codes = &r->c->linear->codes,
                               .first = all,
                               .n_groups = 1,
                               .n_rows = a->n_rows,
                               .n_in = r->scored.n_in};
    if (r->scored.floats) run.x = cpu_input_floats(r->c, &a->in);
    cpu_products_add(&run, a->router, a->router_bias, r->m->scores);
    return cpu_products_run(&run);
}

enum state { FREE, TAKEN, EXCLUDED };

/* The expert with the largest key among those free; of equal keys the first. */
static uint32_t best_expert(const float *keys, const uint8_t *state, uint32_t n) {
    uint32_t best = n;
    for (uint32_t e = 0; e < n; e++)
        if (state[e] == FREE && (best == n || keys[e] > keys[best])) best = e;
    return best;
}

/* Of a row: probabilities, and what the choice compares. */
struct choice {
    float p[BACKEND_MAX_EXPERTS], keys[BACKEND_MAX_EXPERTS];
    uint8_t state[BACKEND_MAX_EXPERTS]; /* enum state */
};

static void find_probabilities(const struct moe_run *r, const float *scores, struct choice *c) {
    const float *bias = r->op->choice_bias ? cpu_weight_of(r->op->choice_bias)->data : NULL;
    const bool sigmoid = r->op->gating == BACKEND_GATING_SIGMOID;
    const uint32_t n = r->n_experts, top = sigmoid ? 0 : best_expert(scores, c->state, n);
    float sum = 0;
    for (uint32_t e = 0; e < n; e++)
        sum += c->p[e] = sigmoid ? 1 / (1 + expf(-scores[e])) : expf(scores[e] - scores[top]);
    for (uint32_t e = 0; e < n; e++) {
        if (!sigmoid) c->p[e] /= sum;
        c->keys[e] = bias ? c->p[e] + bias[e] : c->p[e];
    }
}

/* What a group of n experts counts by. */
static float group_key(const struct op_moe *a, const float *keys, uint32_t n) {
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t e = 0; e < n; e++) {
        if (keys[e] > best) {
            second = best;
            best = keys[e];
        } else if (keys[e] > second) {
            second = keys[e];
        }
    }
    return a->gating == BACKEND_GATING_SIGMOID ? best + second : best;
}

/* Excludes the experts that are not in the best groups. */
static void choose_groups(const struct moe_run *r, const float *keys, struct choice *c) {
    const struct op_moe *a = r->op;
    const uint32_t size = r->n_experts / a->n_groups;
    float by_group[BACKEND_MAX_EXPERTS];
    uint8_t state[BACKEND_MAX_EXPERTS] = {FREE};
    for (uint32_t g = 0; g < a->n_groups; g++)
        by_group[g] = group_key(a, keys + g * size, size);
    for (uint32_t k = 0; k < a->n_groups_used; k++)
        state[best_expert(by_group, state, a->n_groups)] = TAKEN;
    for (uint32_t e = 0; e < r->n_experts; e++)
        c->state[e] = state[e / size] == TAKEN ? FREE : EXCLUDED;
}

/* 1 / the weight that the sparse mixer gives expert e; c->state: TAKEN of those chosen before. */
static float mixer_sum(const struct moe_run *r, const float *scores, const struct choice *c,
                       uint32_t e) {
    float sum = 0, own = scores[e];
    for (uint32_t i = 0; i < r->n_experts; i++) {
        const bool far = (own - scores[i]) / fmaxf(fabsf(scores[i]), own) > r->op->mixer_limit;
        if (c->state[i] == FREE && !far) sum += expf(scores[i] - own);
    }
    return sum;
}

/* Chooses a row's experts and their weights. Sums run in ascending order of experts. */
static void route_row(const struct moe_run *r, uint32_t row) {
    const struct op_moe *a = r->op;
    const float *scores = r->m->scores + (uint64_t)row * r->n_experts;
    uint32_t *experts = r->m->experts + (uint64_t)row * a->n_used;
    float *weights = r->m->weights + (uint64_t)row * a->n_used;
    const bool sigmoid = a->gating == BACKEND_GATING_SIGMOID,
               mixer = a->gating == BACKEND_GATING_MIXER;
    const bool by_score = !sigmoid && !a->choice_bias; /* probabilities have the scores' order */
    struct choice c;
    const float *keys = by_score ? scores : c.keys;
    uint32_t n = 0, first = 0;
    float sum = sigmoid && a->renormalize ? 1e-20f : 0;
    float scale = a->weight_scale != 0 ? a->weight_scale : 1;
    memset(c.state, FREE, sizeof c.state);
    if (!by_score) find_probabilities(r, scores, &c);
    if (a->n_groups > 1) choose_groups(r, keys, &c);
    for (uint32_t k = 0; k < a->n_used; k++) {
        uint32_t best = best_expert(keys, c.state, r->n_experts);
        if (k == 0) first = best;
        if (mixer) c.p[best] = 1 / mixer_sum(r, scores, &c, best);
        c.state[best] = TAKEN;
    }
    for (uint32_t e = 0; e < r->n_experts; e++) {
        if (c.state[e] != TAKEN && (a->renormalize || !by_score || mixer)) continue;
        float term = by_score && !mixer ? expf(scores[e] - scores[first]) : c.p[e];
        sum += term;
        if (c.state[e] != TAKEN) continue;
        experts[n] = e;
        weights[n++] = term;
    }
    if ((!by_score || mixer) && !a->renormalize) sum = 1;
    for (uint32_t k = 0; k < n; k++)
        weights[k] = weights[k] / sum * scale;
    if (!a->expert_scale) return;
    const float *by_expert = cpu_weight_of(a->expert_scale)->data;
    for (uint32_t k = 0; k < n; k++)
        weights[k] *= by_expert[experts[k]];
}

/* Sorts the pairs by expert, those of one expert by row. */
static void sort_pairs(const struct moe_run *r) {
    struct cpu_moe *m = r->m;
    memset(m->next, 0, r->n_experts * sizeof *m->next);
    for (uint32_t i = 0; i < r->n_pairs; i++)
        m->next[m->experts[i]]++;
    m->first[0] = 0;
    for (uint32_t e = 0; e < r->n_experts; e++) {
        m->first[e + 1] = m->first[e] + m->next[e];
        m->next[e] = m->first[e];
    }
    for (uint32_t i = 0; i < r->n_pairs; i++) {
        m->pairs[i] = m->next[m->experts[i]]++;
        m->rows[m->pairs[i]] = i / r->op->n_used;
    }
}

static int route_rows(const struct moe_run *r) {
    int rc = score_rows(r);
    if (rc) return rc;
    run_stage((struct stage){.r = r,
                             .item = route_row,
                             .n_items = r->op->n_rows,
                             .per_chunk = CHUNK_CHOICES / r->n_experts / r->op->n_used});
    cpu_count(r->c, &cpu_isa_generic, CPU_MOE_ROUTE);
    sort_pairs(r);
    return 0;
}

/* ---- experts ---- */

/* Weights a pair's input in place. */
static void weigh_pair(const struct moe_run *r, uint32_t pair) {
    const uint64_t first = (uint64_t)r->m->rows[pair] * r->op->n_used;
    uint64_t k = 0;
    while (r->m->pairs[first + k] != pair)
        k++;
    const float by = r->m->weights[first + k];
    for (uint32_t c = 0; r->codes && c < r->n_in; c += GEMM_COLS) {
        const uint32_t n = r->n_in - c < GEMM_COLS ? r->n_in - c : GEMM_COLS;
        struct gemm_block *b =
            r->m->codes.blocks + ((uint64_t)(c / GEMM_COLS) * r->n_pairs + pair) * GEMM_BLOCKS;
        for (uint32_t i = 0; i < n / GEMM_BLOCK; i++, b++) {
            b->d *= by;
            b->s = b->d * (float)b->n, b->s0 = b->d * (float)b->n0, b->s1 = b->d * (float)b->n1;
        }
    }
    for (uint32_t i = 0; r->floats && i < r->n_in; i++)
        r->m->out[(uint64_t)pair * r->n_in + i] *= by;
}

/* Copies the input of a pair's row. */
static void gather_pair(const struct moe_run *r, uint32_t pair) {
    const struct cpu_codes *from = &r->c->linear->codes, *to = &r->m->codes;
    uint32_t row = r->m->rows[pair];
    for (uint32_t c = 0; r->codes && c < r->n_in; c += GEMM_COLS) {
        uint32_t n = r->n_in - c < GEMM_COLS ? r->n_in - c : GEMM_COLS;
        uint64_t i = (uint64_t)(c / GEMM_COLS) * r->op->n_rows + row;
        uint64_t k = (uint64_t)(c / GEMM_COLS) * r->n_pairs + pair;
        for (int plane = 0; plane < 2 && to->q[plane]; plane++)
            memcpy(to->q[plane] + k * GEMM_COLS, from->q[plane] + i * GEMM_COLS, n);
        memcpy(to->blocks + k * GEMM_BLOCKS, from->blocks + i * GEMM_BLOCKS,
               n / GEMM_BLOCK * sizeof *to->blocks);
    }
    if (r->floats)
        memcpy(r->m->out + (uint64_t)pair * r->n_in,
               cpu_input_floats(r->c, r->input.in) + (uint64_t)row * r->n_in,
               r->n_in * sizeof(float));
    if (r->op->weighs_input) weigh_pair(r, pair);
}

static void quantize_pair(const struct moe_run *r, uint32_t pair) {
    const float *x = r->m->ffn + (uint64_t)pair * r->n_ff;
    cpu_codes_put(&r->m->codes, r->c->gemm, x, r->n_ff, pair, r->n_pairs);
}

/* Squared ReLU of a pair's FFN values, as op_gate has it. */
static void square_pair(const struct moe_run *r, uint32_t pair) {
    float *x = r->m->ffn + (uint64_t)pair * r->n_ff;
    for (uint32_t i = 0; i < r->n_ff; i++)
        x[i] *= x[i] > 0 ? x[i] : 0;
}

/* Multiplies all pairs, grouped by expert: gate and up give the FFN values, down gives out. */
static int run_experts(const struct moe_run *r) {
    const struct op_moe *a = r->op;
    struct cpu_moe *m = r->m;
    struct cpu_products run = {.c = r->c,
                               .codes = &m->codes,
                               .first = m->first,
                               .n_groups = r->n_experts,
                               .n_rows = r->n_pairs};
    struct cpu_products inner = run, outer = run;
    inner.n_in = r->n_in, inner.act = a->act, inner.bounds = a->bounds;
    inner.x = r->floats ? m->out : NULL;
    if (a->gate) cpu_products_add(&inner, a->gate, a->gate_bias, m->ffn);
    cpu_products_add(&inner, a->up, a->up_bias, a->gate ? NULL : m->ffn);
    int rc = cpu_products_run(&inner);
    if (rc) return rc;
    if (!a->gate) {
        run_stage((struct stage){r, square_pair, r->n_pairs, CHUNK_VALUES / r->n_ff});
        cpu_count(r->c, &cpu_isa_generic, CPU_GATE);
    }
    outer.n_in = r->n_ff;
    outer.x = cpu_is_float(a->down->type) ? m->ffn : NULL;
    if (!outer.x) {
        run_stage((struct stage){.r = r,
                                 .item = quantize_pair,
                                 .n_items = r->n_pairs,
                                 .per_chunk = CHUNK_VALUES / r->n_ff});
        backend_count_kernel(&r->c->base, r->c->quantize_counter);
    }
    cpu_products_add(&outer, a->down, a->down_bias, m->out);
    return cpu_products_run(&outer);
}

/* ---- results ---- */

/* acc (COMBINE_COLS) += scale * x (n); with a constant n compilers vectorize the loop. */
static void add_scaled(float *acc, const float *x, float scale, uint32_t n) {
    if (n == COMBINE_COLS)
        for (uint32_t i = 0; i < COMBINE_COLS; i++)
            acc[i] += scale * x[i];
    else
        for (uint32_t i = 0; i < n; i++)
            acc[i] += scale * x[i];
}

static void combine_row(const struct moe_run *r, uint32_t row) {
    const struct op_moe *a = r->op;
    const uint32_t *pairs = r->m->pairs + (uint64_t)row * a->n_used;
    const float *weights = r->m->weights + (uint64_t)row * a->n_used;
    const float *shared = a->shared ? (const float *)a->shared->host + (uint64_t)row * r->n_in : 0;
    float *y = (float *)a->y->host + (uint64_t)row * r->n_in, share = 1;
    if (a->shared_gate) share = 1 / (1 + expf(-((const float *)a->shared_gate->host)[row]));
    for (uint32_t c = 0; c < r->n_in; c += COMBINE_COLS) {
        uint32_t n = r->n_in - c < COMBINE_COLS ? r->n_in - c : COMBINE_COLS;
        float acc[COMBINE_COLS] = {0};
        for (uint32_t k = 0; k < a->n_used; k++)
            add_scaled(acc, r->m->out + (uint64_t)pairs[k] * r->n_in + c,
                       a->weighs_input ? 1 : weights[k], n);
        if (shared) add_scaled(acc, shared + c, share, n);
        memcpy(y + c, acc, n * sizeof *y);
    }
}

int cpu_moe(backend *be, const struct op_moe *a) {
    struct cpu_backend *c = cpu_of(be);
    struct moe_run r = {.c = c,
                        .m = c->moe,
                        .op = a,
                        .n_in = (uint32_t)a->down->n_out,
                        .n_ff = (uint32_t)a->down->n_in,
                        .n_experts = (uint32_t)a->down->n_experts,
                        .n_pairs = a->n_rows * a->n_used};
    r.latent = (struct op_input){.x = a->latent};
    r.scored =
        (struct cpu_input){.in = &a->in, .n_rows = a->n_rows, .n_in = (uint32_t)a->router->n_in};
    r.input = (struct cpu_input){
        .in = a->latent ? &r.latent : &a->in, .n_rows = a->n_rows, .n_in = r.n_in};
    if (a->gate) cpu_input_is_for(&r.input, a->gate);
    cpu_input_is_for(&r.input, a->up);
    r.codes = r.input.codes, r.floats = r.input.floats;
    if (!a->latent) r.scored = r.input;
    cpu_input_is_for(&r.scored, a->router);
    cpu_input_prepare(c, &r.scored);
    int rc = route_rows(&r);
    if (rc) return rc;
    if (a->latent) cpu_input_prepare(c, &r.input);
    run_stage((struct stage){&r, gather_pair, r.n_pairs, CHUNK_VALUES / r.n_in});
    cpu_count(c, &cpu_isa_generic, CPU_MOE_GATHER);
    rc = run_experts(&r);
    if (rc) return rc;
    run_stage((struct stage){&r, combine_row, a->n_rows, CHUNK_VALUES / r.n_in / a->n_used});
    cpu_count(c, &cpu_isa_generic, CPU_MOE_COMBINE);
    return 0;
}
