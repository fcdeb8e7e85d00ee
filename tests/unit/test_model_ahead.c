/* test_model_ahead.c - steps that a device encodes ahead or captures: the CPU backend behind a
 * vtable that records ops and runs them later with the buffers' contents at that time. Results
 * equal the plain backend's, bit for bit, for any prediction and any padding. Also: a device sees a
 * model's files before its weights. */
#include "core/backend/backend_int.h"
#include "tests/support/be.h"
#include "tests/support/gguf_make.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <unistd.h>

static char folder[] = "/tmp/inferd-ahead-XXXXXX";
static char path[64];

/* ---- a device that records ---- */

enum { MOST_OPS = 64, MOST_RECORDINGS = 96 };

/* A recorded call of an op. */
struct taped {
    enum backend_op op;
    union {
#define MEMBER(name, on_cpu, on_metal, on_cuda) struct op_##name name;
        BACKEND_OPS(MEMBER, MEMBER)
#undef MEMBER
    } args;
};

struct recording {
    uint64_t key;
    uint32_t n;
    struct taped ops[MOST_OPS];
};

static const struct backend_vtable *cpu;
static struct backend_vtable table;
static struct recording kept[MOST_RECORDINGS];
static struct recording *tape; /* being recorded, or selected to run */
static uint32_t n_kept, n_ops, n_flushes, n_wrong;
static bool recording, ready;
static uint32_t last_context; /* max_context of the attention that ran last */
static uint32_t n_padded;     /* padding rows of that attention */

static void require(bool ok) {
    n_wrong += !ok;
}

/* Replaces an op of the CPU backend; NULL: the op itself. Set for ops whose padding rows are
 * checked. */
static int (*replay[BACKEND_N_OPS])(backend *be, const void *args);

/* Runs the op on the CPU backend, or the test's replacement. */
static int run_op(backend *be, enum backend_op op, const void *args) {
    if (replay[op]) return replay[op](be, args);
    switch (op) {
#define RUN_OP(name, on_cpu, on_metal, on_cuda)                                                    \
    case BACKEND_OP_##name:                                                                        \
        return cpu->name(be, args);
        BACKEND_OPS(RUN_OP, RUN_OP)
#undef RUN_OP
    case BACKEND_N_OPS:
        break;
    }
    return ERR_INVALID;
}

static int tape_op(backend *be, enum backend_op op, const void *args, uint64_t bytes) {
    if (!recording) {
        n_ops++;
        return run_op(be, op, args);
    }
    require(tape->n < MOST_OPS);
    tape->ops[tape->n].op = op;
    memcpy(&tape->ops[tape->n++].args, args, bytes);
    return 0;
}

#define TAPE_OP(name, on_cpu, on_metal, on_cuda)                                                   \
    static int tape_##name(backend *be, const struct op_##name *a) {                               \
        return tape_op(be, BACKEND_OP_##name, a, sizeof *a);                                       \
    }
BACKEND_OPS(TAPE_OP, TAPE_OP)
#undef TAPE_OP

/* How many of n rows are tokens: padding rows come after them. */
static uint32_t count_tokens(const backend_buf *pos, uint32_t n) {
    const int32_t *p = backend_buf_host(pos);
    uint32_t n_tokens = 0;
    while (n_tokens < n && p[n_tokens] >= 0)
        n_tokens++;
    for (uint32_t i = n_tokens; i < n; i++)
        require(p[i] == -1);
    return n_tokens;
}

static int replay_rope_store(backend *be, const void *args) {
    struct op_rope_store a = *(const struct op_rope_store *)args;
    const int32_t *slots = backend_buf_host(a.slots);
    uint32_t n = count_tokens(a.pos, a.n_rows);
    for (uint32_t i = 0; i < a.n_rows; i++)
        require(i < n ? slots[i] >= 0 : slots[i] == -1);
    a.n_rows = n;
    return cpu->rope_store(be, &a);
}

static int replay_paged_attention(backend *be, const void *args) {
    struct op_paged_attention a = *(const struct op_paged_attention *)args;
    const int32_t *row_start = backend_buf_host(a.row_start);
    uint32_t n = count_tokens(a.pos, a.n_rows), n_cols = a.n_heads * a.kv.head_dim;
    float *out = (float *)(uintptr_t)backend_buf_host(a.out);
    last_context = a.max_context;
    for (uint32_t i = n; i < a.n_rows; i++, a.n_seqs--) {
        require(row_start[a.n_seqs] - row_start[a.n_seqs - 1] == 1);
        for (uint32_t k = 0; k < n_cols; k++)
            out[(uint64_t)i * n_cols + k] = be_real() * 1000;
    }
    n_padded += a.n_rows - n;
    a.n_rows = n;
    return cpu->paged_attention(be, &a);
}

static int record_steps(backend *be, uint64_t key, err *e) {
    (void)e;
    require(!recording && !ready);
    bool keeps = be->vt->keeps_graphs;
    require(!key == !keeps);
    for (uint32_t i = 0; keeps && i < n_kept; i++)
        if (kept[i].key == key) {
            tape = &kept[i];
            ready = true;
            return 1;
        }
    be_need(n_kept < MOST_RECORDINGS, "room for recordings");
    tape = &kept[keeps ? n_kept++ : 0];
    tape->key = key;
    tape->n = 0;
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
    for (uint32_t i = 0; i < tape->n; i++) {
        int rc = run_op(be, tape->ops[i].op, &tape->ops[i].args);
        if (rc) return err_set(e, rc, "op %u of a captured step", i);
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

static void make_recording(backend *be, bool keeps) {
    cpu = be->vt;
    table = *cpu;
#define TAPE_ENTRY(name, on_cpu, on_metal, on_cuda)                                                \
    if (cpu->name) table.name = tape_##name;
    BACKEND_OPS(TAPE_ENTRY, TAPE_ENTRY)
#undef TAPE_ENTRY
    table.store_attend = cpu->store_attend; /* calls other ops, which are recorded */
    replay[BACKEND_OP_rope_store] = replay_rope_store;
    replay[BACKEND_OP_paged_attention] = replay_paged_attention;
    table.sync = sync_ops, table.flush = flush;
    table.capture_begin = record_steps, table.capture_end = record_end;
    table.graph_launch = run_recorded, table.graph_discard = drop_recorded;
    table.keeps_graphs = keeps;
    be->vt = &table;
    tape = kept;
    tape->n = n_kept = n_ops = n_flushes = n_wrong = n_padded = 0;
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

/* Runs one step on both backends and compares. */
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
    for (uint32_t r = 0; r < n; r++) /* the first is the row's largest value */
        for (uint32_t v = 0; v < N_VOCAB; v++)
            CHECK(a.logits[r * N_VOCAB + v] <= a.top_values[r * ahead->n_top]);
}

static void decode_ahead(void) {
    struct runner ahead, plain;
    struct runner_config c = config();
    static int32_t tokens[N_SEQUENCES][MOST_TOKENS];
    struct piece pieces[N_SEQUENCES];
    be_rng.state = 3;
    for (int i = 0; i < N_SEQUENCES * MOST_TOKENS; i++)
        tokens[i / MOST_TOKENS][i % MOST_TOKENS] = (int32_t)be_below(N_VOCAB);
    runner_open(&ahead, &c);
    runner_open(&plain, &c);
    make_recording(ahead.be, false);
    uint32_t at = 0, n_right = 0, n_wrong_guesses = 0;
    for (uint32_t n; at < 500; at += n) { /* the prompt; only the last prediction is right */
        n = at + 21 > 500 ? 500 - at : 21;
        for (uint32_t s = 0; s < N_SEQUENCES; s++)
            pieces[s] = (struct piece){tokens[s], at, n, s};
        ahead.next = (struct model_shape){0};
        step(&ahead, &plain, pieces, N_SEQUENCES);
    }
    CHECK(n_ops == n_flushes * (n_ops / n_flushes) && tape->n == 0);
    struct model_encoded counts = model_encoded_steps(ahead.m);
    CHECK(counts.run == 0 && counts.dropped == 0);
    for (uint32_t i = 0, n_seqs = N_SEQUENCES; i < 60; i++, at++) {
        struct model_shape guess = ahead.next;
        uint32_t before = n_ops;
        for (uint32_t s = 0; s < n_seqs; s++)
            pieces[s] = (struct piece){tokens[s], at, 1, s};
        /* Sometimes the prediction of the next step is wrong: another number of sequences or of
         * first tokens, or contexts beyond its maximum. */
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
    counts = model_encoded_steps(ahead.m);
    CHECK_MSG(counts.run == n_right && counts.dropped == n_wrong_guesses,
              "%llu run, not %u; %llu dropped, not %u", (unsigned long long)counts.run, n_right,
              (unsigned long long)counts.dropped, n_wrong_guesses);
    CHECK(n_right > 15 && n_wrong_guesses > 10 && n_wrong == 0);
    CHECK(mem_guard_violations() == 0);
    ahead.be->vt = cpu;
    runner_close(&ahead);
    runner_close(&plain);
}

/* Sequences start and end, so the number of rows varies: a captured step with a few more rows gives
 * the plain backend's results. Prompts and mixed steps are enqueued op by op. */
static void decode_from_captured_steps(void) {
    struct runner keeps, plain;
    struct runner_config c = config();
    static int32_t tokens[RUNNER_MAX_PIECES][MOST_TOKENS];
    static const uint32_t tops[] = {0, 1, 3, 7, 17, 21, BACKEND_MAX_TOP};
    struct piece pieces[RUNNER_MAX_PIECES];
    uint32_t at[RUNNER_MAX_PIECES] = {0}, n_decode = 0, n_mixed = 0;
    for (int i = 0; i < RUNNER_MAX_PIECES * MOST_TOKENS; i++)
        tokens[i / MOST_TOKENS][i % MOST_TOKENS] = (int32_t)be_below(N_VOCAB);
    runner_open(&keeps, &c);
    runner_open(&plain, &c);
    make_recording(keeps.be, true);
    at[0] = at[1] = 490; /* their contexts pass the next power of two */
    for (uint32_t from = 0, n; from < 490; from += n) {
        n = 490 - from < 32 ? 490 - from : 32;
        for (uint32_t k = 0; k < 2; k++)
            pieces[k] = (struct piece){tokens[k], from, n, k};
        step(&keeps, &plain, pieces, 2);
    }
    CHECK(n_kept == 0 && n_ops > 0);
    for (uint32_t i = 0; i < 150; i++) {
        uint32_t n = 1 + be_below(RUNNER_MAX_PIECES), first = be_below(RUNNER_MAX_PIECES);
        uint32_t before = n_ops, longest = 0;
        bool mixed = be_below(5) == 0;
        for (uint32_t s = 0; s < n; s++) {
            uint32_t sequence = (first + s) % RUNNER_MAX_PIECES;
            pieces[s] = (struct piece){tokens[sequence], at[sequence], 1, sequence};
            if (mixed && s == n - 1) pieces[s].n = 3;
            at[sequence] += pieces[s].n;
            if (at[sequence] > longest) longest = at[sequence];
        }
        keeps.n_top = tops[be_below(sizeof tops / sizeof tops[0])];
        step(&keeps, &plain, pieces, n);
        CHECK(last_context == (longest <= 512 ? 512 : MOST_TOKENS / 16 * 16 + 16));
        CHECK((n_ops == before) == !mixed);
        n_decode += !mixed, n_mixed += mixed;
    }
    struct model_encoded counts = model_encoded_steps(keeps.m);
    CHECK_MSG(counts.run + n_kept == n_decode && counts.dropped == 0, "%llu run, %u kept of %u",
              (unsigned long long)counts.run, n_kept, n_decode);
    CHECK(counts.run > 10 && n_mixed > 5 && n_padded > 20 && n_wrong == 0);
    CHECK(mem_guard_violations() == 0);
    keeps.be->vt = cpu;
    runner_close(&keeps);
    runner_close(&plain);
}

/* Positions beyond the shape would exceed the encoded grid. */
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
    RUN(decode_from_captured_steps);
    RUN(contexts_are_checked);
    RUN(files_are_shown_before_weights);
    RUN(remove_model);
    return check_done();
}
