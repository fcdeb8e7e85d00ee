/* short_conv.c - the short convolution over state blocks. Channels do not depend on each other, so
 * an item is a span of them in all rows of one sequence: it reads the inputs before the step, goes
 * through the rows and writes what the next step reads. Owns nothing. */
#include "core/backend/cpu/delta/delta.h"

#include <string.h>

enum { SPAN = 64, WINDOW = BACKEND_STATE_MAX_TAPS - 1 };

struct conv_op {
    const struct op_short_conv *a;
    struct backend_state_parts parts;
    uint32_t n_spans; /* of a row */
};

/* n channels from `at` on. inputs: a ring of the last n_taps inputs of each. */
struct span {
    float inputs[BACKEND_STATE_MAX_TAPS][SPAN], taps[BACKEND_STATE_MAX_TAPS][SPAN];
    uint32_t at, n;
};

/* Slot of the input at position p. */
static float *input_of(struct span *s, uint32_t p, uint32_t n_taps) {
    return s->inputs[p % n_taps];
}

static void read_taps(const struct conv_op *o, struct span *s) {
    const float *conv = cpu_weight_of(o->a->conv)->data;
    const uint32_t n_taps = o->a->state.n_taps;
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t t = 0; t < n_taps; t++)
            s->taps[t][i] = conv[(uint64_t)(s->at + i) * n_taps + t];
}

/* The inputs before position pos from a block's window, which ends there; NULL: they are 0. */
static void read_window(const struct conv_op *o, struct span *s, uint32_t pos, const float *from) {
    const uint32_t n_taps = o->a->state.n_taps, n = n_taps - 1;
    for (uint32_t t = 0; t < n; t++) {
        float *to = input_of(s, pos + n_taps - n + t, n_taps);
        if (from)
            memcpy(to, from + (uint64_t)t * o->a->state.channels + s->at, s->n * sizeof *to);
        else
            memset(to, 0, s->n * sizeof *to);
    }
}

static void write_window(const struct conv_op *o, struct span *s, uint32_t pos, float *to) {
    const uint32_t n_taps = o->a->state.n_taps, n = n_taps - 1;
    for (uint32_t t = 0; t < n; t++)
        memcpy(to + (uint64_t)t * o->a->state.channels + s->at,
               input_of(s, pos + n_taps - n + t, n_taps), s->n * sizeof *to);
}

static void convolve_row(const struct conv_op *o, struct span *s, uint32_t row, uint32_t pos) {
    const struct op_short_conv *a = o->a;
    const uint64_t channels = a->state.channels;
    const uint32_t n_taps = a->state.n_taps;
    const float *b = (const float *)a->bcx->host + row * 3 * channels + s->at;
    const float *c = b + channels, *x = c + channels;
    float *out = (float *)a->out->host + row * channels + s->at, *u = input_of(s, pos, n_taps);
    float sum[SPAN] = {0};
    for (uint32_t i = 0; i < s->n; i++)
        u[i] = b[i] * x[i];
    for (uint32_t t = 0; t < n_taps; t++) {
        const float *in = input_of(s, pos + t + 1, n_taps), *taps = s->taps[t];
        for (uint32_t i = 0; i < s->n; i++)
            sum[i] += taps[i] * in[i];
    }
    for (uint32_t i = 0; i < s->n; i++)
        out[i] = c[i] * sum[i];
}

static void convolve_span(const void *arg, uint32_t item, int thread) {
    const struct conv_op *o = arg;
    const struct op_short_conv *a = o->a;
    const struct backend_state *st = &a->state;
    const uint32_t seq = item / o->n_spans;
    const int32_t *start = a->row_start->host, *table = (const int32_t *)a->tables->host + 2 * seq;
    const uint32_t first = (uint32_t)start[seq], n_rows = (uint32_t)start[seq + 1] - first;
    const uint32_t pos = (uint32_t)((const int32_t *)a->pos->host)[first], end = pos + n_rows;
    float *blocks = a->state.blocks->host, *live = blocks + (uint64_t)table[1] * o->parts.end;
    const float *source = blocks + (uint64_t)table[0] * o->parts.end;
    const float *window = pos % st->chunk ? live + o->parts.recent : source + o->parts.tail;
    struct span s = {.at = item % o->n_spans * SPAN};
    (void)thread;
    s.n = st->channels - s.at < SPAN ? st->channels - s.at : SPAN;
    read_taps(o, &s);
    read_window(o, &s, pos, pos ? window : NULL);
    for (uint32_t p = pos; p < end; p++) {
        convolve_row(o, &s, first + p - pos, p);
        if (p + 1 == end - end % st->chunk) write_window(o, &s, p + 1, live + o->parts.tail);
    }
    write_window(o, &s, end, live + o->parts.recent);
}

int cpu_short_conv(backend *be, const struct op_short_conv *a) {
    struct cpu_backend *c = cpu_of(be);
    const struct backend_state *st = &a->state;
    if (!cpu_states_ok(&(struct cpu_state_rows){a->pos, a->row_start, a->tables, a->n_rows,
                                                a->n_seqs, st->n_blocks}))
        return ERR_INVALID;
    const struct conv_op o = {
        .a = a, .parts = backend_state_parts(st), .n_spans = (st->channels + SPAN - 1) / SPAN};
    pool_run(c->pool, a->n_seqs * o.n_spans, convolve_span, &o);
    cpu_count(c, &cpu_isa_generic, CPU_SHORT_CONV);
    return 0;
}
