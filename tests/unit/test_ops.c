/* test_ops.c - every op of BACKEND_OPS that the device has runs in a served model: the golden
 * models of each architecture and the demo model answer requests through the engine, alone and on
 * two ranks, and the calls of each op are summed: an op that no model uses fails. "only=DEVICE"
 * selects the device (be.h). */
#include "core/engine/engine_int.h"
#include "tests/support/device_models.h"
#include "tests/support/engine_kit.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <unistd.h>

static const char golden[] = "tests/golden/arch";
static const char demo[] = "registry/demo/inferd-demo-q8_0.gguf";

enum { N_PROMPT = 40, N_ANSWER = 24, BLOCK = 16, VOCAB = 64 };

static uint64_t counts[BACKEND_N_OPS];
static bool has_op[BACKEND_N_OPS];
static uint32_t n_models, n_groups, n_refused;

static void add_counts(backend *be) {
    for (uint32_t r = 0; r < backend_n_ranks(be); r++)
        for (int op = 0; op < BACKEND_N_OPS; op++)
            counts[op] += backend_op_count(backend_peer(be, r), (enum backend_op)op);
#define HAS_OP(name, on_cpu, on_metal, on_cuda) has_op[BACKEND_OP_##name] |= be->vt->name != NULL;
    BACKEND_OPS(HAS_OP, HAS_OP)
#undef HAS_OP
}

/* Random tokens from a small vocabulary. Prompts of seeds s and s + 1 differ only in their last
 * token. */
static engine_stream *submit(engine *en, uint32_t seed, float temperature,
                             enum engine_pooling pooling) {
    int32_t ids[N_PROMPT];
    for (uint32_t i = 0; i < N_PROMPT; i++)
        ids[i] = (int32_t)(5 + i * 7 % (VOCAB - 5));
    ids[N_PROMPT - 1] = (int32_t)(5 + seed % (VOCAB - 5));
    struct engine_request q = {.prompt = ids,
                               .n_prompt = N_PROMPT,
                               .n_choices = 1,
                               .pooling = pooling,
                               .notify = bell_ring,
                               .notify_arg = &bell};
    engine_stream *s = NULL;
    engine_params_default(&q.params);
    q.params.sampling.temperature = temperature;
    q.params.sampling.frequency_penalty = temperature > 0 ? 0.5f : 0;
    q.params.max_tokens = N_ANSWER;
    q.params.ignore_eos = true;
    kit_submit(en, &q, &s);
    return s;
}

/* An answer that fills the block in which its prompt ends, so that it is cached; then prompts that
 * begin with a part of that block (a copy), greedy and sampled, and an embedding. */
static void serve(engine *en) {
    struct reading got[4] = {{.stream = submit(en, 1, 0, ENGINE_POOLING_NONE)}};
    uint64_t seen = bell_count(&bell);
    while (got[0].stream && reading_poll(&got[0]) && got[0].n_tokens < BLOCK) {
        bell_wait(&bell, seen);
        seen = bell_count(&bell);
    }
    got[1].stream = submit(en, 2, 0, ENGINE_POOLING_NONE);
    got[2].stream = submit(en, 3, 0.8f, ENGINE_POOLING_NONE);
    got[3].stream = submit(en, 4, 0, ENGINE_POOLING_LAST);
    for (int i = 0; i < 4; i++)
        if (!got[i].stream) return;
    read_all(got, 4, &bell);
    for (int i = 0; i < 4; i++)
        CHECK(got[i].final.finish != ENGINE_FINISH_ERROR);
    free_all(got, 4);
}

static uint32_t ranks_of(const char *path) {
    struct model_hparams hp;
    err e = {0};
    CHECK_MSG(model_read_hparams(path, &hp, &e) == 0, "%s", e.msg);
    return model_ranks_check(&hp, 2, &e) ? 1 : 2;
}

static void serve_model(const char *path, uint32_t n_ranks) {
    struct engine_config c = kit_config(path);
    if (be_only && be_is_device_set(be_only)) c.backend = be_only;
    c.n_ranks = n_ranks;
    c.kv_cache_tokens = 512, c.block_tokens = BLOCK;
    c.context_length = 2 * N_PROMPT;
    c.prefill_chunk = 16;
    c.max_sequences = c.max_queue = 4;
    c.stream_events = 32;
    engine *en = kit_open(&c);
    serve(en);
    add_counts(en->be);
    engine_close(en);
    n_models++;
    n_groups += n_ranks > 1;
}

static void test_models_are_served(void) {
    char path[512];
    DIR *dir = opendir(golden);
    be_need(dir != NULL, golden);
    for (const struct dirent *d; (d = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s/model.gguf", golden, d->d_name);
        if (access(path, R_OK)) snprintf(path, sizeof path, "%s/%s/hf", golden, d->d_name);
        if (d->d_name[0] == '.' || access(path, R_OK)) continue;
        if (!device_serves(path)) {
            n_refused++;
            continue;
        }
        serve_model(path, 1);
        if (!n_groups && be_has_ranks(be_only, 2) && ranks_of(path) == 2) serve_model(path, 2);
    }
    closedir(dir);
    serve_model(demo, 1);
    printf("     %u models served, %u of them on 2 ranks\n", n_models, n_groups);
    CHECK(n_models + n_refused >= 18);
    if (!be_only) CHECK(n_groups == 1);
}

static bool needs_group(int op) {
    return op == BACKEND_OP_all_reduce || op == BACKEND_OP_all_gather;
}

static void test_every_op_ran(void) {
    for (int op = 0; op < BACKEND_N_OPS; op++) {
        const char *name = backend_op_name((enum backend_op)op);
        if (!has_op[op] || (needs_group(op) && !n_groups)) {
            CHECK(counts[op] == 0);
            printf("     %-18s not on this device\n", name);
            continue;
        }
        printf("     %-18s %llu calls\n", name, (unsigned long long)counts[op]);
        CHECK_MSG(counts[op] > 0, "op %s is used by no served model", name);
    }
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_models_are_served);
    RUN(test_every_op_ran);
    return check_done();
}
