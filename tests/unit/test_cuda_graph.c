/* test_cuda_graph.c - decode steps replayed from CUDA graphs and padded with empty rows: the bits
 * of the same tokens as one prompt, which is enqueued op by op. */
#include "tests/support/device_main.h"
#include "tests/support/gguf_make.h"
#include "tests/support/runner.h"

#include <unistd.h>

enum { N_VOCAB = 320, N_TOKENS = 48, N_SEQS = RUNNER_MAX_PIECES };

static char folder[] = "/tmp/inferd-cuda-graph-XXXXXX";
static char path[64];
static int32_t tokens[N_SEQS][N_TOKENS];

static void open_runner(struct runner *r) {
    runner_open(
        r,
        &(struct runner_config){
            .path = path, .isa = "cuda", .kv_type = QTYPE_F16, .max_rows = 64, .max_tokens = 1024});
}

/* Each row's first tokens are its largest logits, in order. */
static void check_top(const struct model_output *out, uint32_t n, uint32_t n_top) {
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t k = 0; k < n_top; k++) {
            int32_t id = out->top_ids[r * n_top + k];
            float value = out->top_values[r * n_top + k];
            CHECK(id >= 0 && id < N_VOCAB && out->logits[r * N_VOCAB + (uint32_t)id] == value);
            CHECK(k == 0 || value <= out->top_values[r * n_top + k - 1]);
        }
}

static void graphs_give_the_same_bits(void) {
    static const uint32_t tops[] = {0, 1, 5, 20, 33};
    float *want = be_new((uint64_t)N_SEQS * N_TOKENS * N_VOCAB, sizeof *want);
    uint32_t at[N_SEQS] = {0}, n_steps = 0;
    struct piece pieces[N_SEQS];
    struct runner r;
    open_runner(&r);
    for (uint32_t s = 0; s < N_SEQS; s++) {
        struct piece whole = {.tokens = tokens[s], .n = N_TOKENS, .sequence = s};
        memcpy(want + (uint64_t)s * N_TOKENS * N_VOCAB, runner_step(&r, &whole, 1, true),
               (uint64_t)N_TOKENS * N_VOCAB * sizeof *want);
    }
    CHECK(model_encoded_steps(r.m).run == 0);
    for (uint32_t i = 0; i < (be_quick ? 30 : 120); i++) {
        uint32_t first = be_below(N_SEQS), n = 0, room = 1 + be_below(N_SEQS);
        for (uint32_t k = 0; k < room; k++) {
            uint32_t s = (first + k) % N_SEQS;
            if (at[s] == N_TOKENS) at[s] = 0; /* again, overwriting the cache */
            pieces[n++] = (struct piece){tokens[s], at[s], 1, s};
        }
        r.n_top = tops[be_below(5)];
        struct model_output out = runner_run(&r, pieces, n, false, 0);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t s = pieces[k].sequence;
            const float *row = want + ((uint64_t)s * N_TOKENS + at[s]++) * N_VOCAB;
            CHECK_MSG(memcmp(out.logits + k * N_VOCAB, row, N_VOCAB * sizeof *row) == 0,
                      "row %u of %u, position %u", k, n, at[s] - 1);
        }
        if (r.n_top) check_top(&out, n, r.n_top);
        n_steps++;
    }
    struct model_encoded counts = model_encoded_steps(r.m);
    CHECK_MSG(counts.run > (be_quick ? 3 : 60) && counts.run < n_steps, "%llu of %u steps",
              (unsigned long long)counts.run, n_steps);
    CHECK(mem_guard_violations() == 0);
    runner_close(&r);
    free(want);
}

static void run(void) {
    struct tiny_llama shape = {.seed = 4, .weight_type = QTYPE_Q8_0, .n_heads = 4, .head_dim = 64};
    err e = {0};
    be_need(mkdtemp(folder) != NULL, "a folder");
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    runner_need(gguf_make_tiny_llama(path, &shape, &e), &e);
    for (uint32_t i = 0; i < N_SEQS * N_TOKENS; i++)
        tokens[i / N_TOKENS][i % N_TOKENS] = (int32_t)be_below(N_VOCAB);
    RUN(graphs_give_the_same_bits);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

int main(int argc, char **argv) {
    return device_main(argc, argv, "cuda", run);
}
