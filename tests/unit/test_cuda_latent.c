/* test_cuda_latent.c - attention over latent rows of 512 + 64 dimensions on the tensor cores
 * (attention_latent.cu), over contexts of several spans: a row has the same bits alone, with a few
 * others, in a prompt, and in a batch of any size, whatever the cache holds after its position;
 * errors against float64; padding. test_mla tests the op on every device. */
#include "tests/support/device_main.h"
#include "tests/support/latent_scene.h"

enum { SPAN = 1024 /* tokens, on CUDA */ };

static const struct latent_case cases[] = {
    {16, 48, QTYPE_BF16, 77, 0, true}, {5, 16, QTYPE_F16, 1000, 30, true},
    {20, 32, QTYPE_BF16, 0, 0, false}, {16, 16, QTYPE_F16, 0, 0, false},
    {70, 16, QTYPE_F16, 0, 0, false},
};
enum { N_CASES = sizeof cases / sizeof *cases, N_QUICK = 2 };

static backend *open_cuda(void) {
    return be_open_config((struct backend_config){.max_rows = 300, .max_cols = 64}, "cuda");
}

static void test_bits(void) {
    backend *be = open_cuda();
    be_rng.state = 61;
    for (int i = 0; i < (be_quick ? N_QUICK : N_CASES); i++)
        check_case(be, &cases[i], SPAN - 10);
    CHECK(be_dispatches(be, "attention_latent") > 0 &&
          be_dispatches(be, "attention_latent_tiles") > 0 &&
          be_dispatches(be, "attention_plain") == 0);
    backend_close(be);
}

/* Many sequences of several lengths, so that KV splits are spans: the bits of one alone, whose
 * splits are chunks. */
static void test_batch(void) {
    static const int32_t lengths[] = {SPAN + 90, 30, SPAN - 1, 700, -1 /* padding */};
    enum { N_LENGTHS = sizeof lengths / sizeof *lengths };
    const struct latent_case c = {16, 16, QTYPE_F16, 0, 0, false};
    const uint32_t n = be_quick ? 40 : 160;
    const uint64_t q_row = (uint64_t)c.n_heads * DIM, row = (uint64_t)c.n_heads * V_DIM;
    backend *be = open_cuda();
    struct scene s;
    int32_t pos[160];
    be_rng.state = 71;
    scene_open(&s, &c, be);
    float *q = be_new(n * q_row, 4), *all = be_new(n * row, 4), *one = be_new(N_LENGTHS * row, 4);
    be_fill(q, q_row, 1);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(q + i * q_row, q, q_row * 4);
        pos[i] = lengths[i % 3 ? 0 : i / 3 % N_LENGTHS];
    }
    attend(be, &s, &(struct batch){q, pos, n, 1}, all);
    for (uint32_t i = 0; i < N_LENGTHS; i++)
        attend(be, &s, &(struct batch){q, lengths + i, 1, 1}, one + i * row);
    for (uint32_t i = 0; i < n; i++) {
        const float *got = all + i * row, *want = one + (i % 3 ? 0 : i / 3 % N_LENGTHS) * row;
        CHECK_MSG(memcmp(got, want, row * 4) == 0, "sequence %u of %u", i, n);
        for (uint64_t d = 0; pos[i] < 0 && d < row; d++)
            if (got[d] != 0) CHECK_MSG(false, "padding: %g", (double)got[d]);
    }
    free(one);
    free(all);
    free(q);
    scene_close(&s);
    backend_close(be);
}

static void run(void) {
    RUN(test_bits);
    RUN(test_batch);
}

int main(int argc, char **argv) {
    return device_main(argc, argv, "cuda", run);
}
