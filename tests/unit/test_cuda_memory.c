/* test_cuda_memory.c - what a model is said to take of a GPU's memory before it is opened is what
 * it takes, for weights of every type, of experts too; and what the device says of its memory. */
#include "tests/support/blocks.h"
#include "tests/support/gguf_make.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <unistd.h>

static char folder[] = "/tmp/inferd-cuda-memory-XXXXXX";
static char path[64];

static backend *open_cuda(double fraction) {
    struct backend_config config = {
        .n_threads = 1, .max_rows = 16, .max_cols = 512, .memory_fraction = fraction};
    return be_open_config(config, "cuda");
}

static void limits_are_said(void) {
    backend *be = open_cuda(0), *half = open_cuda(0.5);
    uint64_t limit = backend_memory_limit(be), other = backend_memory_limit(half);
    CHECK(limit > 0 && backend_memory_free(be) > 0);
    CHECK_MSG(other > limit * 5 / 9 - 10 && other < limit * 5 / 9 + 10, "%llu, and half: %llu",
              (unsigned long long)limit, (unsigned long long)other);
    backend_close(half);
    backend_close(be);
}

/* One tensor after the other, of odd sizes. */
static void weights_take_what_is_said(void) {
    backend *be = open_cuda(0);
    be_seed = 3;
    for (int t = 0; t < N_BLOCK_TYPES; t++)
        for (int n = 0; n < 6; n++) {
            const struct qtype_info *type = qtype_find(block_types[t].type);
            struct backend_weight_desc desc = {.name = "t",
                                               .type = block_types[t].type,
                                               .use = BACKEND_USE_LINEAR,
                                               .n_experts = n % 3 ? 0 : 3,
                                               .n_out = 1 + be_below(n < 3 ? 99 : 999),
                                               .n_in = type->block_elems * (1 + be_below(4))};
            if (n % 3 == 1) desc.use |= BACKEND_USE_EMBED;
            if (n % 3 == 2) desc.use = BACKEND_USE_EMBED;
            uint64_t bytes, said, before = backend_allocated_bytes(be);
            backend_weight *w;
            err e = {0};
            be_need(qtype_bytes(desc.type, desc.n_out * 3, desc.n_in, &bytes), "a size");
            desc.data = be_new(bytes, 1);
            CHECK_MSG(backend_weight_size(be, &desc, &said, &e) == 0, "%s", e.msg);
            CHECK_MSG(backend_weight_new(be, &desc, &w, &e) == 0, "%s", e.msg);
            CHECK_MSG(backend_allocated_bytes(be) - before == said,
                      "%s (%llu, %llu) use %u: %llu bytes, not %llu", type->name,
                      (unsigned long long)desc.n_out, (unsigned long long)desc.n_in, desc.use,
                      (unsigned long long)(backend_allocated_bytes(be) - before),
                      (unsigned long long)said);
            backend_weight_free(w);
            CHECK(backend_allocated_bytes(be) == before);
            free((void *)(uintptr_t)desc.data);
        }
    backend_close(be);
}

/* A whole model: each of its buffers may be rounded up by the driver. */
static void models_take_what_is_said(void) {
    static const struct tiny_llama shapes[] = {{.seed = 1, .weight_type = QTYPE_Q8_0, .tied = true},
                                               {.seed = 2, .weight_type = QTYPE_F16}};
    enum { ROUNDING = 32 * (2 << 20) };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct model_limits limits = {
            .max_rows = 16, .max_logit_rows = 8, .max_seqs = 8, .table_stride = 32};
        struct model_memory said;
        backend *be = open_cuda(0);
        model *m;
        err e = {0};
        runner_need(gguf_make_tiny_llama(path, &shapes[i], &e), &e);
        uint64_t before = backend_allocated_bytes(be);
        CHECK_MSG(model_memory_find(path, be, &limits, &said, &e) == 0, "%s", e.msg);
        CHECK(backend_allocated_bytes(be) == before);
        runner_need(model_open(path, be, &limits, &m, &e), &e);
        uint64_t taken = backend_allocated_bytes(be) - before, all = said.weights + said.steps;
        CHECK_MSG(said.weights > 0 && taken >= all && taken - all < ROUNDING,
                  "%llu bytes, said were %llu and %llu", (unsigned long long)taken,
                  (unsigned long long)said.weights, (unsigned long long)said.steps);
        model_close(m);
        CHECK(backend_allocated_bytes(be) == before);
        backend_close(be);
    }
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    backend *be = open_cuda(0);
    if (!be) {
        SKIP("cuda", "no module or no GPU here, or others were asked for");
        return check_done();
    }
    backend_close(be);
    be_need(mkdtemp(folder) != NULL, "a folder");
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    RUN(limits_are_said);
    RUN(weights_take_what_is_said);
    RUN(models_take_what_is_said);
    return check_done();
}
