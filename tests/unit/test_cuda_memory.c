/* test_cuda_memory.c - a model takes as much GPU memory as was estimated before it is opened, for
 * weights of every type, with and without experts; the device's memory limits; uploads and
 * downloads that overlap later work. */
#include "tests/support/blocks.h"
#include "tests/support/device_main.h"
#include "tests/support/gguf_make.h"
#include "tests/support/runner.h"

#include <unistd.h>

static char folder[] = "/tmp/inferd-cuda-memory-XXXXXX";
static char path[64];

static backend *open_cuda(double fraction) {
    struct backend_config config = {
        .n_threads = 1, .max_rows = 16, .max_cols = 512, .memory_fraction = fraction};
    return be_open_config(config, "cuda");
}

static void limits_are_reported(void) {
    backend *be = open_cuda(0), *half = open_cuda(0.5);
    uint64_t limit = backend_memory_limit(be), other = backend_memory_limit(half);
    CHECK(limit > 0 && backend_memory_free(be) > 0);
    CHECK_MSG(other > limit * 5 / 9 - 10 && other < limit * 5 / 9 + 10, "%llu, and half: %llu",
              (unsigned long long)limit, (unsigned long long)other);
    /* What is held is that of both, as the limit is. */
    uint64_t held = backend_allocated_bytes(be), own = backend_scratch_bytes(half);
    CHECK(held == backend_allocated_bytes(half) && own > 0);
    CHECK(held == own + backend_scratch_bytes(be));
    backend_close(half);
    CHECK(backend_allocated_bytes(be) == held - own);
    backend_close(be);
}

/* Single tensors of odd sizes. */
static void weights_take_the_estimate(void) {
    backend *be = open_cuda(0);
    be_rng.state = 3;
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

/* A whole model; the driver may round up each of its buffers. */
static void models_take_the_estimate(void) {
    static const struct tiny_llama shapes[] = {{.seed = 1, .weight_type = QTYPE_Q8_0, .tied = true},
                                               {.seed = 2, .weight_type = QTYPE_F16}};
    enum { ROUNDING = 32 * (2 << 20) };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct model_limits limits = {.max_rows = 16,
                                      .max_logit_rows = 8,
                                      .max_seqs = 8,
                                      .table_stride = 32,
                                      .max_history = 99};
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
                  "%llu bytes, estimated %llu and %llu", (unsigned long long)taken,
                  (unsigned long long)said.weights, (unsigned long long)said.steps);
        model_close(m);
        CHECK(backend_allocated_bytes(be) == before);
        backend_close(be);
    }
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

/* Uploads n values in one piece, or in pieces of any size, one or several per call. */
static void upload_values(backend *be, backend_buf *buf, const int32_t *from, uint32_t n,
                          bool in_pieces) {
    struct backend_upload list[BACKEND_MAX_UPLOADS];
    err e = {0};
    for (uint32_t at = 0, n_list = 0, part; at < n; at += part) {
        uint32_t most = be_below(4) ? 3000 : 60000;
        part = at + most < n && in_pieces ? 1 + be_below(most) : n - at;
        list[n_list++] = (struct backend_upload){buf, at * 4, part * 4, from + at};
        if (n_list < 1 + be_below(BACKEND_MAX_UPLOADS) && at + part < n) continue;
        if (n_list == 1)
            CHECK(backend_upload(be, buf, at * 4, from + at, part * 4, &e) == 0);
        else
            CHECK_MSG(backend_upload_all(be, list, n_list, &e) == 0, "%s", e.msg);
        n_list = 0;
    }
}

/* Asynchronous uploads of several times the staging buffer, each read back after the next one; a
 * few are larger than the buffer. */
static void copies_overlap(void) {
    enum { N = 300000, ROUNDS = 60 };
    backend *be = open_cuda(0);
    backend_buf *buf = be_i32(be, NULL, 2 * N);
    int32_t *sent[BACKEND_N_EVENTS];
    void *got[BACKEND_N_EVENTS];
    uint32_t n[BACKEND_N_EVENTS] = {0};
    err e = {0};
    CHECK(backend_can_overlap(be));
    CHECK(backend_event_record(be, BACKEND_N_EVENTS, &e) == ERR_INVALID);
    for (int i = 0; i < BACKEND_N_EVENTS; i++) {
        sent[i] = be_new(2 * N, sizeof *sent[i]);
        CHECK(backend_host_new(be, 2 * N * sizeof *sent[i], &got[i], &e) == 0);
    }
    for (uint32_t round = 0; round <= ROUNDS; round++) {
        uint32_t at = round % BACKEND_N_EVENTS, before = (round + 1) % BACKEND_N_EVENTS;
        if (round < ROUNDS) {
            n[at] = 1 + be_below(round % 16 ? N : 2 * N);
            for (uint32_t k = 0; k < n[at]; k++)
                sent[at][k] = (int32_t)be_rand();
            upload_values(be, buf, sent[at], n[at], round % 8 != 0);
            CHECK(backend_download_async(be, buf, 0, got[at], n[at] * 4, &e) == 0);
            CHECK(backend_event_record(be, at, &e) == 0);
        }
        if (!round) continue;
        CHECK(backend_event_wait(be, before, &e) == 0);
        CHECK_MSG(memcmp(got[before], sent[before], n[before] * 4) == 0, "round %u", round);
    }
    for (int i = 0; i < BACKEND_N_EVENTS; i++) {
        free(sent[i]);
        backend_host_free(be, got[i]);
    }
    backend_buf_free(buf);
    backend_close(be);
}

static void tokens_are_copied(void) {
    enum { N = 700, STRIDE = 3 };
    backend *be = open_cuda(0);
    int32_t from[N * STRIDE], ids[N], want[N];
    struct backend_token_copy copies[N];
    for (int i = 0; i < N * STRIDE; i++)
        from[i] = (int32_t)be_below(1000) - 100;
    for (int32_t i = 0; i < N; i++) {
        copies[i].to = i * 3 % N; /* each once */
        copies[i].from = (int32_t)be_below(N);
        want[i] = -7;
    }
    backend_buf *f = be_i32(be, from, N * STRIDE), *p = be_bytes(be, copies, sizeof copies);
    for (uint32_t n = 1; n < N; n += 1 + n / 2) {
        memcpy(ids, want, sizeof ids);
        backend_buf *to = be_i32(be, ids, N);
        const struct op_copy_tokens a = {f, p, STRIDE, 5, n < N - 5 ? n : N - 5, to};
        for (uint32_t i = a.first; i < a.first + a.n; i++) {
            int32_t token = from[copies[i].from * STRIDE];
            ids[copies[i].to] = token < 0 ? 0 : token;
        }
        CHECK(backend_copy_tokens(be, &a) == 0);
        int32_t out[N];
        err e = {0};
        CHECK(backend_download(be, to, 0, out, sizeof out, &e) == 0);
        CHECK(memcmp(out, ids, sizeof out) == 0);
        backend_buf_free(to);
    }
    backend_buf_free(f);
    backend_buf_free(p);
    backend_close(be);
}

static void run(void) {
    be_need(mkdtemp(folder) != NULL, "a folder");
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    RUN(limits_are_reported);
    RUN(weights_take_the_estimate);
    RUN(models_take_the_estimate);
    RUN(copies_overlap);
    RUN(tokens_are_copied);
}

int main(int argc, char **argv) {
    setenv("CUDASIM_LATE", "1", 0); /* the stand-in runs work only when it is waited for */
    return device_main(argc, argv, "cuda", run);
}
