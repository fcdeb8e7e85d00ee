/* test_model_ahead.c - steps that a device encodes ahead: the CPU backend behind a table that can
 * record. Ops that are recorded are kept and run later, with what the buffers hold by then; results
 * are the plain backend's, bit for bit, whatever was guessed. And what a device is told of a
 * model's files. */
#include "core/backend/backend_int.h"
#include "tests/support/be.h"
#include "tests/support/gguf_make.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <unistd.h>

static char folder[] = "/tmp/inferd-ahead-XXXXXX";
static char path[64];

/* ---- a device that records ---- */

enum { MOST_OPS = 64 };

/* One op, as it was asked for. */
struct taped {
    int (*run)(backend *be, const void *op);
    union {
        struct op_embed embed;
        struct op_linear linear;
        struct op_rope_store rope_store;
        struct op_paged_attention attention;
        struct op_gather gather;
        struct op_top top;
    } op;
};

static const struct backend_vtable *cpu;
static struct backend_vtable table;
static struct taped tape[MOST_OPS];
static uint32_t n_taped, n_ops, n_flushes, n_wrong;
static bool recording, ready;
static uint32_t last_context; /* max_context of the attention that ran last */

static void require(bool ok) {
    n_wrong += !ok;
}

static int do_op(backend *be, int (*run)(backend *be, const void *op), const void *op,
                 uint64_t bytes) {
    if (!recording) {
        n_ops++;
        return run(be, op);
    }
    require(n_taped < MOST_OPS);
    tape[n_taped].run = run;
    memcpy(&tape[n_taped++].op, op, bytes);
    return 0;
}

#define TAPED(name)                                                                                \
    static int run_##name(backend *be, const void *op) {                                           \
        return cpu->name(be, op);                                                                  \
    }                                                                                              \
    static int tape_##name(backend *be, const struct op_##name *op) {                              \
        return do_op(be, run_##name, op, sizeof *op);                                              \
    }
TAPED(embed)
TAPED(linear)
TAPED(rope_store)
TAPED(gather)
TAPED(top)
#undef TAPED

static int run_attention(backend *be, const void *op) {
    last_context = ((const struct op_paged_attention *)op)->max_context;
    return cpu->paged_attention(be, op);
}
static int tape_attention(backend *be, const struct op_paged_attention *op) {
    return do_op(be, run_attention, op, sizeof *op);
}

static int record_steps(backend *be, err *e) {
    (void)be, (void)e;
    require(!recording && !ready);
    n_taped = 0;
    return recording = true, 0;
}

static int record_end(backend *be, err *e) {
    (void)be, (void)e;
    require(recording);
    recording = false;
    return ready = true, 0;
}

static int run_recorded(backend *be, err *e) {
    require(!recording && ready);
    ready = false;
    for (uint32_t i = 0; i < n_taped; i++) {
        int rc = tape[i].run(be, &tape[i].op);
        if (rc) return err_set(e, rc, "op %u of a recorded step", i);
    }
    return 0;
}

static void drop_recorded(backend *be) {
    (void)be;
    recording = ready = false;
}

static int flush(backend *be, err *e) {
    (void)be, (void)e;
    require(!recording);
    return n_flushes++, 0;
}

static int sync_ops(backend *be, err *e) {
    require(!recording);
    return cpu->sync(be, e);
}

static void make_recording(backend *be) {
    cpu = be->vt;
    table = *cpu;
    table.embed = tape_embed, table.linear = tape_linear, table.gather = tape_gather;
    table.rope_store = tape_rope_store, table.paged_attention = tape_attention;
    table.top = tape_top, table.sync = sync_ops, table.flush = flush;
    table.record = record_steps, table.record_end = record_end;
    table.run_recorded = run_recorded, table.drop_recorded = drop_recorded;
    be->vt = &table;
    n_taped = n_ops = n_flushes = n_wrong = 0;
    recording = ready = false;
}

/* ---- steps ---- */

enum { N_VOCAB = 320, MOST_TOKENS = 600, N_SEQUENCES = 3 };

static struct runner_config config(void) {
    return (struct runner_config){.path = path,
                                  .isa = "",
                                  .n_threads = 2,
                                  .kv_type = QTYPE_F16,
                                  .max_rows = 64,
                                  .max_tokens = MOST_TOKENS};
}

/* One step on both; the same results. */
static void step(struct runner *ahead, struct runner *plain, const struct piece *pieces,
                 uint32_t n) {
    struct model_output a = runner_run(ahead, pieces, n, false, 0);
    plain->n_top = ahead->n_top;
    struct model_output b = runner_run(plain, pieces, n, false, 0);
    uint64_t n_top = (uint64_t)n * ahead->n_top;
    CHECK(memcmp(a.logits, b.logits, (uint64_t)n * N_VOCAB * sizeof(float)) == 0);
    CHECK(!n_top == !a.top_ids && !n_top == !b.top_ids);
    if (!n_top) return;
    CHECK(memcmp(a.top_ids, b.top_ids, n_top * sizeof(int32_t)) == 0);
    CHECK(memcmp(a.top_values, b.top_values, n_top * sizeof(float)) == 0);
    for (uint32_t r = 0; r < n; r++) /* the first one is the row's largest */
        for (uint32_t v = 0; v < N_VOCAB; v++)
            CHECK(a.logits[r * N_VOCAB + v] <= a.top_values[r * ahead->n_top]);
}

static void decode_ahead(void) {
    struct runner ahead, plain;
    struct runner_config c = config();
    static int32_t tokens[N_SEQUENCES][MOST_TOKENS];
    struct piece pieces[N_SEQUENCES];
    be_seed = 3;
    for (int i = 0; i < N_SEQUENCES * MOST_TOKENS; i++)
        tokens[i / MOST_TOKENS][i % MOST_TOKENS] = (int32_t)be_below(N_VOCAB);
    runner_open(&ahead, &c);
    runner_open(&plain, &c);
    make_recording(ahead.be);
    uint32_t at = 0, n_right = 0, n_wrong_guesses = 0;
    for (uint32_t n; at < 500; at += n) { /* the prompt; no guess is right but the last */
        n = at + 21 > 500 ? 500 - at : 21;
        for (uint32_t s = 0; s < N_SEQUENCES; s++)
            pieces[s] = (struct piece){tokens[s], at, n, s};
        ahead.next = (struct model_shape){0};
        step(&ahead, &plain, pieces, N_SEQUENCES);
    }
    CHECK(n_ops == n_flushes * (n_ops / n_flushes) && n_taped == 0);
    struct model_recorded counts = model_recorded_steps(ahead.m);
    CHECK(counts.run == 0 && counts.dropped == 0);
    for (uint32_t i = 0, n_seqs = N_SEQUENCES; i < 60; i++, at++) {
        struct model_shape guess = ahead.next;
        uint32_t before = n_ops;
        for (uint32_t s = 0; s < n_seqs; s++)
            pieces[s] = (struct piece){tokens[s], at, 1, s};
        /* Sometimes the guess at the step behind this one is wrong: another count of sequences or
         * of first tokens, or contexts that it does not reach. */
        uint32_t next_seqs = 1 + be_below(N_SEQUENCES), kind = be_below(6);
        ahead.next = (struct model_shape){.n_rows = next_seqs,
                                          .n_seqs = next_seqs,
                                          .n_logit_rows = next_seqs,
                                          .n_top = i % 5 > 2 ? 7 : 0,
                                          .max_context = at + 2};
        struct model_shape truth = ahead.next;
        if (kind == 0) ahead.next.n_rows = ahead.next.n_seqs = ahead.next.n_logit_rows = 4;
        if (kind == 1) ahead.next.n_top = 3;
        if (kind == 2) ahead.next.max_context = 1030;
        if (kind == 0 && be_rand() & 1) ahead.next = (struct model_shape){0};
        step(&ahead, &plain, pieces, n_seqs);
        CHECK(last_context == (at + 1 <= 512 ? 512 : MOST_TOKENS / 16 * 16 + 16));
        bool right = n_ops == before && i > 0;
        n_right += right;
        n_wrong_guesses += !right && guess.n_rows;
        n_seqs = next_seqs, ahead.n_top = truth.n_top;
    }
    counts = model_recorded_steps(ahead.m);
    CHECK_MSG(counts.run == n_right && counts.dropped == n_wrong_guesses,
              "%llu run, not %u; %llu dropped, not %u", (unsigned long long)counts.run, n_right,
              (unsigned long long)counts.dropped, n_wrong_guesses);
    CHECK(n_right > 15 && n_wrong_guesses > 10 && n_wrong == 0);
    CHECK(mem_guard_violations() == 0);
    ahead.be->vt = cpu;
    runner_close(&ahead);
    runner_close(&plain);
}

/* Positions that the shape does not reach would leave an encoded grid. */
static void contexts_are_checked(void) {
    struct runner_config c = config();
    struct runner r;
    struct model_output out;
    runner_open(&r, &c);
    int32_t zero[64] = {0}, pos = 5, start[2] = {0, 1};
    struct model_batch batch = {
        .shape = {.n_rows = 1, .n_seqs = 1, .n_logit_rows = 1, .max_context = 6},
        .token_ids = zero,
        .positions = &pos,
        .slots = zero,
        .row_start = start,
        .tables = zero,
        .out_rows = zero,
        .kv = r.kv};
    err e = {0};
    CHECK_MSG(model_forward(r.m, &batch, &out, &e) == 0, "%s", e.msg);
    batch.shape.max_context = 5;
    CHECK(model_forward(r.m, &batch, &out, &e) == ERR_INVALID);
    batch.shape.max_context = 6, batch.shape.n_top = BACKEND_MAX_TOP + 1;
    CHECK(model_forward(r.m, &batch, &out, &e) == ERR_INVALID);
    runner_close(&r);
}

/* ---- files ---- */

static const void *range_base;
static uint64_t range_bytes, n_ranges, n_weights, n_inside;

static int range_new(backend *be, const void *base, uint64_t bytes, backend_range **out, err *e) {
    (void)e;
    range_base = base, range_bytes = bytes, n_ranges++;
    CHECK(n_weights == 0);
    *out = calloc(1, sizeof **out);
    (*out)->be = be;
    return 0;
}

static void range_free(backend_range *range) {
    CHECK(n_weights == 0); /* they read it */
    n_ranges--;
    free(range);
}

static int weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                      err *e) {
    uint64_t at = (uint64_t)((const char *)desc->data - (const char *)range_base);
    CHECK(n_ranges == 1);
    n_inside += at < range_bytes;
    n_weights++;
    return cpu->weight_new(be, desc, out, e);
}

static void weight_free(backend_weight *w) {
    CHECK(n_ranges == 1);
    n_weights--;
    cpu->weight_free(w);
}

static void files_are_shown_before_weights(void) {
    struct model_hparams hp;
    struct backend_config bc = {.name = "cpu", .n_threads = 1, .max_rows = 4};
    struct model_limits limits = {
        .max_rows = 4, .max_logit_rows = 4, .max_seqs = 1, .table_stride = 4};
    backend *be;
    model *m;
    err e = {0};
    runner_need(model_read_hparams(path, &hp, &e), &e);
    model_backend_limits(&hp, &bc);
    runner_need(backend_open(&bc, &be, &e), &e);
    cpu = be->vt;
    table = *cpu;
    table.range_new = range_new, table.range_free = range_free;
    table.weight_new = weight_new, table.weight_free = weight_free;
    be->vt = &table;
    CHECK_MSG(model_open(path, be, &limits, &m, &e) == 0, "%s", e.msg);
    CHECK(n_ranges == 1 && n_weights > 10 && n_inside == n_weights);
    CHECK((uintptr_t)range_base % BACKEND_RANGE_ALIGN == 0 &&
          range_bytes % BACKEND_RANGE_ALIGN == 0);
    model_close(m);
    CHECK(n_ranges == 0 && n_weights == 0);
    backend_close(be);
}

static void make_model(void) {
    struct tiny_llama shape = {.seed = 9, .weight_type = QTYPE_Q8_0};
    err e = {0};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    runner_need(gguf_make_tiny_llama(path, &shape, &e), &e);
}

static void remove_model(void) {
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

int main(void) {
    RUN(make_model);
    RUN(decode_ahead);
    RUN(contexts_are_checked);
    RUN(files_are_shown_before_weights);
    RUN(remove_model);
    return check_done();
}
