/* test_parallel.c - exchanges of a group of backends against sums in plain order, bit for bit, on
 * odd sizes; models whose columns are divided unevenly against the float64 reference; a rank that
 * fails, or calls another exchange, blocks no other rank; refusals. Each architecture on two ranks:
 * test_arch_forward.c, test_arch.c; the engine: test_engine.c. */
#include "core/backend/cpu/cpu_int.h"
#include "tests/support/forward_check.h"
#include "tests/support/gguf_make.h"
#include "tests/support/llama64.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RANKS = 4, MAX_ROWS = 40, MAX_COLS = 700, ROUNDS = 200 };

/* Exchanges do not depend on the instruction set: the CPU's best, and other devices. */
static const char *const sets[] = {"", "cuda"};
static const char *set;

/* NULL: too few devices. */
static backend *open_group(uint32_t n_ranks, int n_threads) {
    return be_open_config(
        (struct backend_config){
            .n_threads = n_threads, .n_ranks = n_ranks, .max_rows = MAX_ROWS, .max_cols = MAX_COLS},
        set);
}

/* One rank's thread. */
struct rank {
    backend *be;
    pthread_t id;
    backend_buf *x, *out, *work;
    uint32_t n_rows, n_cols;
    bool gathers, wants; /* all_gather, and out */
    int rounds, rc;
};

static void *run_rank(void *arg) {
    struct rank *r = arg;
    for (int i = 0; i < r->rounds && !r->rc; i++)
        r->rc =
            r->gathers
                ? backend_all_gather(r->be, &(struct op_all_gather){.part = r->x,
                                                                    .out = r->wants ? r->out : NULL,
                                                                    .work = r->work,
                                                                    .n_rows = r->n_rows,
                                                                    .n_cols = r->n_cols})
                : backend_all_reduce(r->be, &(struct op_all_reduce){.x = r->x,
                                                                    .work = r->work,
                                                                    .n_rows = r->n_rows,
                                                                    .n_cols = r->n_cols});
    if (!r->rc) r->rc = backend_sync(r->be, NULL);
    return NULL;
}

static void run_ranks(struct rank *ranks, uint32_t n) {
    for (uint32_t r = 0; r < n; r++)
        be_need(pthread_create(&ranks[r].id, NULL, run_rank, &ranks[r]) == 0, "a thread");
    for (uint32_t r = 0; r < n; r++)
        pthread_join(ranks[r].id, NULL);
}

static void make_ranks(struct rank *ranks, backend *be, uint32_t n, struct rank what) {
    for (uint32_t r = 0; r < n; r++) {
        ranks[r] = what;
        ranks[r].be = backend_peer(be, r);
        uint64_t work = backend_exchange_bytes(be, what.n_rows, what.n_cols);
        ranks[r].x = be_bytes(ranks[r].be, NULL, MAX_ROWS * MAX_COLS * sizeof(float));
        ranks[r].out = be_bytes(ranks[r].be, NULL, MAX_ROWS * MAX_COLS * sizeof(float));
        ranks[r].work = work ? be_bytes(ranks[r].be, NULL, work) : NULL;
    }
}

static void free_ranks(struct rank *ranks, uint32_t n) {
    for (uint32_t r = 0; r < n; r++) {
        backend_buf_free(ranks[r].x);
        backend_buf_free(ranks[r].out);
        backend_buf_free(ranks[r].work);
    }
}

static void put(struct rank *r, const float *x, uint64_t n) {
    err e;
    be_need(backend_upload(r->be, r->x, 0, x, n * sizeof *x, &e) == 0, "an upload");
}

static const uint32_t shapes[][2] = {{1, 1},   {1, 3},    {1, 511}, {3, 64},      {7, 333},
                                     {5, 256}, {40, 700}, {2, 4},   {MAX_ROWS, 1}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static void check_reduce(backend *be, uint32_t n_ranks, const uint32_t shape[2]) {
    struct rank ranks[MAX_RANKS];
    static float in[MAX_RANKS][MAX_ROWS * MAX_COLS], got[MAX_ROWS * MAX_COLS];
    uint64_t n = (uint64_t)shape[0] * shape[1];
    make_ranks(ranks, be, n_ranks,
               (struct rank){.n_rows = shape[0], .n_cols = shape[1], .rounds = 1});
    for (uint32_t r = 0; r < n_ranks; r++) {
        be_fill(in[r], n, powf(10, (float)r)); /* different sizes reveal another order */
        put(&ranks[r], in[r], n);
    }
    run_ranks(ranks, n_ranks);
    for (uint32_t r = 0; r < n_ranks; r++) {
        uint64_t wrong = 0;
        be_get(ranks[r].be, ranks[r].x, got, n);
        for (uint64_t i = 0; i < n; i++) {
            volatile float sum = in[0][i];
            for (uint32_t k = 1; k < n_ranks; k++)
                sum = sum + in[k][i];
            wrong += memcmp(&got[i], (const float *)&sum, sizeof sum) != 0;
        }
        CHECK_MSG(ranks[r].rc == 0 && !wrong, "%u ranks, (%u, %u), rank %u: rc %d, %llu wrong",
                  n_ranks, shape[0], shape[1], r, ranks[r].rc, (unsigned long long)wrong);
    }
    free_ranks(ranks, n_ranks);
}

static void test_all_reduce(void) {
    for (uint32_t n_ranks = 2; n_ranks <= MAX_RANKS; n_ranks++) {
        backend *be = open_group(n_ranks, 5);
        if (!be) continue;
        CHECK(backend_n_ranks(be) == n_ranks && backend_rank(be) == 0);
        int n_threads = 0;
        for (uint32_t r = 0; r < n_ranks; r++) {
            CHECK(backend_rank(backend_peer(be, r)) == r);
            CHECK(backend_n_ranks(backend_peer(be, r)) == n_ranks);
            n_threads += backend_n_threads(backend_peer(be, r));
        }
        if (be_is_cpu(be)) CHECK(n_threads == 5);
        for (int i = 0; i < N_SHAPES; i++)
            check_reduce(be, n_ranks, shapes[i]);
        backend_close(be);
    }
}

static void check_gather(backend *be, uint32_t n_ranks, const uint32_t shape[2]) {
    struct rank ranks[MAX_RANKS];
    static float all[MAX_ROWS * MAX_COLS], part[MAX_ROWS * MAX_COLS], got[MAX_ROWS * MAX_COLS];
    uint32_t n_cols = shape[1], share = backend_share(n_cols, n_ranks);
    uint64_t n = (uint64_t)shape[0] * n_cols;
    if (share * (n_ranks - 1) >= n_cols) return; /* a rank without a column */
    make_ranks(ranks, be, n_ranks,
               (struct rank){.n_rows = shape[0], .n_cols = n_cols, .rounds = 1, .gathers = true});
    be_fill(all, n, 1);
    for (uint32_t r = 0; r < n_ranks; r++) {
        uint32_t first = r * share, width = n_cols - first < share ? n_cols - first : share;
        for (uint32_t row = 0; row < shape[0]; row++)
            memcpy(part + row * width, all + (uint64_t)row * n_cols + first, width * sizeof *part);
        put(&ranks[r], part, (uint64_t)shape[0] * width);
        ranks[r].wants = r != 1;
    }
    run_ranks(ranks, n_ranks);
    for (uint32_t r = 0; r < n_ranks; r++) {
        be_get(ranks[r].be, ranks[r].out, got, n);
        bool same = memcmp(got, all, n * sizeof *all) == 0;
        CHECK_MSG(ranks[r].rc == 0 && same == (r != 1), "%u ranks, (%u, %u), rank %u: rc %d",
                  n_ranks, shape[0], n_cols, r, ranks[r].rc);
    }
    free_ranks(ranks, n_ranks);
}

static void test_all_gather(void) {
    for (uint32_t n_ranks = 2; n_ranks <= MAX_RANKS; n_ranks++) {
        backend *be = open_group(n_ranks, 3);
        if (!be) continue;
        for (int i = 0; i < N_SHAPES; i++)
            check_gather(be, n_ranks, shapes[i]);
        backend_close(be);
    }
}

/* Many exchanges in sequence: a rank that is ahead must not write where others read. */
static void test_rounds(void) {
    struct rank ranks[MAX_RANKS];
    static float ones[MAX_COLS], got[MAX_COLS];
    backend *be = open_group(2, 2);
    make_ranks(ranks, be, 2, (struct rank){.n_rows = 1, .n_cols = 129, .rounds = 20});
    for (int i = 0; i < 129; i++)
        ones[i] = (float)i;
    put(&ranks[0], ones, 129);
    put(&ranks[1], ones, 129);
    run_ranks(ranks, 2);
    be_get(ranks[1].be, ranks[1].x, got, 129);
    for (int i = 0; i < 129; i++)
        CHECK(got[i] == (float)i * (1 << 20));
    free_ranks(ranks, 2);
    backend_close(be);
}

/* ---- a product whose result the ranks sum, then one that has the sums as its residual ---- */

enum { SUM_IN = 96, SUM_OUT = 64, SUM_NEXT = 80 };

/* Of a rank. */
struct sum_run {
    backend *be;
    pthread_t id;
    backend_weight *w, *next;
    backend_buf *in, *sums, *x, *out, *work;
    uint32_t n_rows;
    bool at_once; /* backend_linear_sum; else the product, then the sum */
    int rc;
};

static void *run_sum(void *arg) {
    struct sum_run *r = arg;
    const struct op_linear product = {
        .in.x = r->in, .n_rows = r->n_rows, .n_weights = 1, .w = {r->w}, .y = {r->sums}};
    const struct op_all_reduce sum = {
        .x = r->sums, .work = r->work, .n_rows = r->n_rows, .n_cols = SUM_OUT};
    const struct op_linear next = {.in = {.x = r->x, .residual = r->sums},
                                   .n_rows = r->n_rows,
                                   .n_weights = 1,
                                   .w = {r->next},
                                   .y = {r->out}};
    if (r->at_once) {
        r->rc = backend_linear_sum(r->be, &product, r->work);
    } else {
        r->rc = backend_linear(r->be, &product);
        if (!r->rc) r->rc = backend_all_reduce(r->be, &sum);
    }
    if (!r->rc) r->rc = backend_linear(r->be, &next);
    if (!r->rc) r->rc = backend_sync(r->be, NULL);
    return NULL;
}

/* The residual stream, then what the next product gives, of all ranks. */
struct sum_result {
    float x[2][MAX_ROWS * SUM_OUT], out[2][MAX_ROWS * SUM_NEXT];
};

static void sum_both_ways(backend *be, uint32_t n_rows, bool at_once, struct sum_result *got) {
    static float in[2][MAX_ROWS * SUM_IN], w[2][SUM_OUT * SUM_IN], next[SUM_NEXT * SUM_OUT];
    static float x[MAX_ROWS * SUM_OUT];
    struct sum_run runs[2];
    be_rng.state = 11;
    be_fill(x, MAX_ROWS * SUM_OUT, 1);
    be_fill(next, SUM_NEXT * SUM_OUT, 1);
    for (uint32_t r = 0; r < 2; r++) {
        backend *own = backend_peer(be, r);
        be_fill(in[r], MAX_ROWS * SUM_IN, 1);
        be_fill(w[r], SUM_OUT * SUM_IN, 1);
        runs[r] = (struct sum_run){.be = own,
                                   .n_rows = n_rows,
                                   .at_once = at_once,
                                   .w = be_weight(own, QTYPE_F32, SUM_OUT, SUM_IN, w[r]),
                                   .next = be_weight(own, QTYPE_F32, SUM_NEXT, SUM_OUT, next),
                                   .in = be_f32(own, in[r], MAX_ROWS * SUM_IN),
                                   .x = be_f32(own, x, MAX_ROWS * SUM_OUT),
                                   .sums = be_bytes(own, NULL, MAX_ROWS * SUM_OUT * sizeof(float)),
                                   .out = be_bytes(own, NULL, MAX_ROWS * SUM_NEXT * sizeof(float))};
        const uint64_t work = backend_exchange_bytes(be, MAX_ROWS, SUM_OUT);
        if (work) runs[r].work = be_bytes(own, NULL, work);
    }
    for (uint32_t r = 0; r < 2; r++)
        be_need(pthread_create(&runs[r].id, NULL, run_sum, &runs[r]) == 0, "a thread");
    for (uint32_t r = 0; r < 2; r++)
        pthread_join(runs[r].id, NULL);
    for (uint32_t r = 0; r < 2; r++) {
        CHECK(runs[r].rc == 0);
        be_get(runs[r].be, runs[r].x, got->x[r], (uint64_t)n_rows * SUM_OUT);
        be_get(runs[r].be, runs[r].out, got->out[r], (uint64_t)n_rows * SUM_NEXT);
        backend_weight_free(runs[r].w);
        backend_weight_free(runs[r].next);
        backend_buf *const bufs[] = {runs[r].in, runs[r].x, runs[r].sums, runs[r].out,
                                     runs[r].work};
        for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
            backend_buf_free(bufs[i]);
    }
}

/* Both ways give the same bits, also where a device computes the rows in parts. */
static void test_linear_sum(void) {
    static struct sum_result want, got;
    static const uint32_t rows[] = {1, 15, 16, 17, 33, MAX_ROWS};
    backend *be = open_group(2, 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sum_both_ways(be, rows[i], false, &want);
        sum_both_ways(be, rows[i], true, &got);
        for (uint32_t r = 0; r < 2; r++) {
            CHECK_MSG(!memcmp(got.x[r], want.x[r], rows[i] * SUM_OUT * sizeof(float)),
                      "%u rows, rank %u: the sums", rows[i], r);
            CHECK_MSG(!memcmp(got.out[r], want.out[r], rows[i] * SUM_NEXT * sizeof(float)),
                      "%u rows, rank %u: the next product", rows[i], r);
        }
    }
    backend_close(be);
}

static void *break_soon(void *arg) {
    backend_break_group(arg);
    return NULL;
}

/* A rank is missing: the others get an error. */
static void test_break(void) {
    struct rank ranks[MAX_RANKS];
    backend *be = open_group(3, 3);
    if (!be) return;
    pthread_t breaker;
    make_ranks(ranks, be, 3, (struct rank){.n_rows = 1, .n_cols = 8, .rounds = ROUNDS});
    ranks[2].rounds = ROUNDS / 2; /* leaves early */
    for (uint32_t r = 0; r < 3; r++)
        be_need(pthread_create(&ranks[r].id, NULL, run_rank, &ranks[r]) == 0, "a thread");
    pthread_join(ranks[2].id, NULL);
    be_need(pthread_create(&breaker, NULL, break_soon, ranks[2].be) == 0, "a thread");
    pthread_join(breaker, NULL);
    pthread_join(ranks[0].id, NULL);
    pthread_join(ranks[1].id, NULL);
    CHECK(ranks[0].rc == ERR_DEVICE && ranks[1].rc == ERR_DEVICE && ranks[2].rc == 0);
    ranks[2].rounds = 1;
    run_rank(&ranks[2]);
    CHECK(ranks[2].rc == ERR_DEVICE); /* for good */
    free_ranks(ranks, 3);
    backend_close(be);
}

/* Ranks that disagree on an exchange all get an error, on devices that detect it. */
static void test_shapes_differ(void) {
    struct rank ranks[MAX_RANKS];
    backend *be = open_group(2, 2);
    if (!be_is_cpu(be)) {
        backend_close(be);
        return;
    }
    make_ranks(ranks, be, 2, (struct rank){.n_rows = 1, .n_cols = 8, .rounds = 1});
    ranks[1].n_cols = 7;
    run_ranks(ranks, 2);
    CHECK(ranks[0].rc == ERR_INVALID && ranks[1].rc == ERR_INVALID);
    free_ranks(ranks, 2);
    backend_close(be);
}

static void exchanges(const char *name) {
    set = name;
    printf("     %s\n", *name ? name : "cpu");
    RUN(test_all_reduce);
    RUN(test_all_gather);
    RUN(test_rounds);
    RUN(test_linear_sum);
    RUN(test_break);
    RUN(test_shapes_differ);
}

static void test_refusals(void) {
    struct backend_config config = {
        .name = "cpu", .n_ranks = BACKEND_MAX_RANKS + 1, .max_rows = 4, .max_cols = 64};
    backend *be;
    err e = {0};
    CHECK(backend_open(&config, &be, &e) == ERR_INVALID && !be);
    CHECK(strstr(e.msg, "n_ranks = 17") != NULL);
    be = be_open(NULL, 1);
    CHECK(backend_n_ranks(be) == 1 && backend_rank(be) == 0 && backend_peer(be, 0) == be);
    backend_buf *x = be_bytes(be, NULL, 64 * sizeof(float));
    backend_buf *y = be_bytes(be, NULL, 64 * sizeof(float));
    backend_break_group(be); /* no rank waits */
    CHECK(backend_all_reduce(be, &(struct op_all_reduce){.x = x, .n_rows = 1, .n_cols = 64}) == 0);
    CHECK(backend_all_reduce(be, &(struct op_all_reduce){.x = x, .n_rows = 1, .n_cols = 65}) ==
          ERR_INVALID);
    CHECK(backend_all_gather(
              be, &(struct op_all_gather){.part = x, .out = x, .n_rows = 1, .n_cols = 64}) ==
          ERR_INVALID);
    CHECK(backend_all_gather(
              be, &(struct op_all_gather){.part = x, .out = y, .n_rows = 1, .n_cols = 64}) ==
          ERR_UNSUPPORTED);
    backend_buf_free(x);
    backend_buf_free(y);
    backend_close(be);
}

/* ---- memory nodes ---- */

static uint64_t n_cpus(const struct cpu_place *p) {
    uint64_t n = 0;
    for (int i = 0; i < CPU_PLACE_WORDS; i++)
        n += (uint64_t)__builtin_popcountll(p->cpus[i]);
    return n;
}

static void write_node(const char *dir, int node, const char *list) {
    char name[96];
    snprintf(name, sizeof name, "%s/node%d", dir, node);
    be_need(mkdir(name, 0700) == 0, "a folder");
    snprintf(name, sizeof name, "%s/node%d/cpulist", dir, node);
    FILE *f = fopen(name, "w");
    be_need(f != NULL, "a file");
    fprintf(f, "%s\n", list);
    fclose(f);
}

static void remove_node(const char *dir, int node) {
    char name[96];
    snprintf(name, sizeof name, "%s/node%d/cpulist", dir, node);
    unlink(name);
    snprintf(name, sizeof name, "%s/node%d", dir, node);
    rmdir(name);
}

/* Ranks are assigned to nodes in blocks if that is even; a node without processors does not count.
 * A list may have several ranges. */
static void test_nodes(void) {
    char dir[] = "/tmp/inferd-test-nodes-XXXXXX", rest[32];
    struct cpu_place all = cpu_place_of("/nonexistent", 0, 2), before;
    uint64_t n = n_cpus(&all);
    CHECK(all.node == -1);
    if (n < 2 || n > 64 || all.cpus[0] != (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1)) {
        SKIP("test_nodes", "it needs processors 0 to some other");
        return;
    }
    be_need(mkdtemp(dir) != NULL, "a folder");
    snprintf(rest, sizeof rest, "0,2-%d", (int)n);
    write_node(dir, 0, n > 2 ? rest : "0");
    write_node(dir, 1, "");
    write_node(dir, 3, "1-1,900");
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct cpu_place p = cpu_place_of(dir, rank, 4);
        CHECK(p.node == (rank < 2 ? 0 : 3) && n_cpus(&p) == (rank < 2 ? n - 1 : 1));
        CHECK(p.cpus[0] == (rank < 2 ? all.cpus[0] - 2 : 2));
        CHECK(cpu_place_of(dir, rank, 5).node == -1); /* uneven over the nodes */
    }
    CHECK(cpu_place_of(dir, 0, 1).node == -1);
    struct cpu_place one = cpu_place_of(dir, 1, 2), now;
    before = cpu_place_enter(&one);
    now = cpu_place_enter(&before);
    CHECK(n_cpus(&before) == n && n_cpus(&now) == 1 && now.cpus[0] == 2);
    const struct cpu_place here = {.node = 0};
    uint8_t *memory = cpu_host_new(&here, 3 << 20);
    CHECK(memory && !memory[0] && !memory[(3 << 20) - 1]);
    cpu_host_free(memory, 3 << 20);
    remove_node(dir, 0), remove_node(dir, 1), remove_node(dir, 3);
    rmdir(dir);
}

/* ---- models ---- */

static char path[] = "/tmp/inferd-test-parallel-XXXXXX";

/* Shares of different widths: 7 blocks of the FFN dimension, 321 tokens. Sums are divided
 * differently than on one rank, so the tolerances are those of test_model.c. */
static void test_uneven_shares(void) {
    static const struct {
        struct tiny_llama shape;
        uint32_t n_ranks;
        double tolerance;
    } cases[] = {
        {{.seed = 1, .n_heads = 8, .n_kv_heads = 4, .n_ff = 224, .n_vocab = 321}, 4, 1e-4},
        {{.seed = 2,
          .weight_type = QTYPE_Q8_0,
          .n_heads = 8,
          .n_kv_heads = 4,
          .n_ff = 224,
          .n_vocab = 321,
          .tied = true},
         4,
         0.02},
        {{.seed = 3, .weight_type = QTYPE_BF16, .n_heads = 6, .n_kv_heads = 3, .n_ff = 97},
         3,
         1e-4},
        {{.seed = 4, .weight_type = QTYPE_Q4_0, .n_kv_heads = 2}, 2, 5e-3},
    };
    int32_t tokens[FORWARD64_MAX_TOKENS];
    double *want = be_new((uint64_t)FORWARD64_MAX_TOKENS * 321, sizeof *want);
    err e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct forward64 f;
        runner_need(gguf_make_tiny_llama(path, &cases[i].shape, &e), &e);
        gguf *g = llama64_open(path, &f);
        random_tokens(tokens, FORWARD64_MAX_TOKENS, f.n_vocab);
        forward64_run(g, &f, tokens, 130, want);
        gguf_close(g);
        struct forward_case c = {.path = path,
                                 .kv_type = QTYPE_F32,
                                 .tolerance = cases[i].tolerance,
                                 .n_ranks = cases[i].n_ranks};
        for (int k = 0; k < BE_N_ISAS; k++) {
            c.isa = be_isas[k];
            if (be_has_ranks(c.isa, c.n_ranks)) forward_check(&c, tokens, want);
        }
    }
    free(want);
    CHECK(mem_guard_violations() == 0);
}

static int forward(struct runner *r, struct backend_kv *kv, err *e) {
    static const int32_t zeros[8], row_start[] = {0, 1};
    struct model_output out;
    memset(e, 0, sizeof *e);
    return model_forward(
        r->m,
        &(struct model_batch){
            .shape = {.n_rows = 1, .n_seqs = 1, .n_logit_rows = 1, .max_context = 1},
            .token_ids = zeros,
            .positions = zeros,
            .slots = zeros,
            .row_start = row_start,
            .tables = zeros,
            .out_rows = zeros,
            .kv = kv},
        &out, e);
}

/* A rank refuses an op: the step ends on all ranks with that rank's message; so do later steps. */
static void test_failing_rank(void) {
    for (uint32_t bad = 0; bad < 2; bad++) {
        struct tiny_llama shape = {.seed = 5};
        struct backend_kv kv[RUNNER_MAX_POOLS];
        struct runner r;
        err e = {0};
        runner_need(gguf_make_tiny_llama(path, &shape, &e), &e);
        runner_open(&r, &(struct runner_config){.path = path,
                                                .n_threads = 2,
                                                .n_ranks = 2,
                                                .kv_type = QTYPE_F32,
                                                .max_rows = 4,
                                                .max_tokens = 16});
        memcpy(kv, r.kv, sizeof kv);
        CHECK(forward(&r, kv, &e) == 0);
        kv[bad * r.hp.n_layers + 1].n_blocks++; /* differs from the pool's content */
        CHECK(forward(&r, kv, &e) == ERR_INVALID);
        CHECK_MSG((strncmp(e.msg, "rank 1: ", 8) == 0) == (bad == 1), "%s", e.msg);
        CHECK_MSG(strstr(e.msg, "refused"), "%s", e.msg);
        CHECK(forward(&r, r.kv, &e) == ERR_DEVICE);
        runner_close(&r);
    }
}

static int open_on(uint32_t n_ranks, const struct tiny_llama *shape, err *e) {
    struct backend_config config = {
        .name = "cpu", .n_threads = 1, .n_ranks = n_ranks, .max_rows = 4};
    struct model_limits limits = {
        .max_rows = 4, .max_logit_rows = 4, .max_seqs = 1, .table_stride = 4};
    struct model_hparams hp;
    backend *be;
    model *m;
    memset(e, 0, sizeof *e);
    runner_need(gguf_make_tiny_llama(path, shape, e), e);
    runner_need(model_read_hparams(path, &hp, e), e);
    model_backend_limits(&hp, &config);
    runner_need(backend_open(&config, &be, e), e);
    int rc = model_open(path, be, &limits, &m, e);
    CHECK((rc == 0) == (m != NULL));
    model_close(m);
    backend_close(be);
    return rc;
}

static void test_refused_models(void) {
    static const struct {
        uint32_t n_ranks;
        struct tiny_llama shape;
        const char *says;
    } cases[] = {
        {3, {.seed = 6}, "4 heads"},
        {4, {.seed = 6}, "2 KV heads"},
        {4,
         {.seed = 6, .weight_type = QTYPE_Q8_0, .n_kv_heads = 4, .n_ff = 128},
         "in blocks of 32 columns: a rank's 16 columns of 64"},
        {4,
         {.seed = 6, .weight_type = QTYPE_Q8_0, .n_heads = 8, .n_kv_heads = 4},
         "96 columns of ffn_down.weight are 3 blocks of 32"},
    };
    err e;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(open_on(cases[i].n_ranks, &cases[i].shape, &e) == ERR_UNSUPPORTED);
        CHECK_STR(e.param, "n_ranks");
        CHECK_MSG(strstr(e.msg, cases[i].says), "\"%s\" lacks \"%s\"", e.msg, cases[i].says);
    }
    struct model_hparams hp = {.arch = "olmo2", .n_heads = 4, .n_kv_heads = 4, .n_vocab = 64};
    CHECK(model_ranks_check(&hp, 1, &e) == 0);
    CHECK(model_ranks_check(&hp, 2, &e) == ERR_UNSUPPORTED && strstr(e.msg, "attn_q_norm"));
    hp = (struct model_hparams){.arch = "llama", .n_heads = 4, .n_kv_heads = 4, .n_vocab = 3};
    CHECK(model_ranks_check(&hp, 4, &e) == ERR_UNSUPPORTED && strstr(e.msg, "3 tokens"));
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    int fd = mkstemp(path);
    be_need(fd >= 0, "a file");
    close(fd);
    be_rng.state = 5;
    setenv("CUDASIM_DEVICES", "4", 0); /* the stand-in's, in its build */
    for (int i = 0; i < 2; i++)
        if (be_has_ranks(sets[i], 2)) exchanges(sets[i]);
    RUN(test_refusals);
    RUN(test_nodes);
    RUN(test_uneven_shares);
    RUN(test_failing_rank);
    RUN(test_refused_models);
    unlink(path);
    return check_done();
}
