/* test_metal_latent.c - attention over latent rows of 512 + 64 dimensions on Metal
 * (attention_latent.metal) around the end of a chunk: a row has the same bits alone, where its
 * chunks are split, and in a prompt, where they may not be; errors against float64; with a window,
 * a soft-cap and sinks. */
#include "tests/support/device_main.h"
#include "tests/support/latent_scene.h"

enum { CHUNK = 256 /* tokens */ };

static const struct latent_case cases[] = {
    {16, 32, QTYPE_BF16, 77, 0, true},
    {5, 16, QTYPE_F16, 200, 30, true},
    {16, 16, QTYPE_F16, 0, 0, false},
    {70, 16, QTYPE_BF16, 0, 0, false},
};
enum { N_CASES = sizeof cases / sizeof *cases, N_QUICK = 2 };

static void test_bits(void) {
    backend *be = be_open_config((struct backend_config){.max_rows = 300, .max_cols = 64}, "metal");
    be_rng.state = 61;
    for (int i = 0; i < (be_quick ? N_QUICK : N_CASES); i++)
        check_case(be, &cases[i], CHUNK - 10);
    /* The window lies in two chunks by halves, so that either may have the largest score. */
    check_case(be, &cases[1], CHUNK + 90);
    CHECK(be_dispatches(be, "attention_latent") > 0 &&
          be_dispatches(be, "attention_latent_reduce") > 0);
    backend_close(be);
}

static void run(void) {
    RUN(test_bits);
}

int main(int argc, char **argv) {
    return device_main(argc, argv, "metal", run);
}
