/* test_tier.c - engines with a KV store: after a restart, an eviction or a failure of the store,
 * every answer has the tokens and, but for failures, the cached_tokens that an engine without
 * interruption gives. Models of tests/golden/arch: attention, windows, latent attention, each kind
 * of state, every KV type. Arguments: "quick", "only=DEVICE" (be.h), "models=TEXT". */
#include "core/base/clock.h"
#include "core/base/file.h"
#include "tests/support/be.h"
#include "tests/support/device_models.h"
#include "tests/support/engine_kit.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROMPT = 150, ANSWER = 24, MORE = 30, MOST = 400 };
#define LATER (clock_now_ns() + UINT64_C(30000000000))

static char root[64], folder[128], secret[128], path[256];
static const char *models = "";

static void fresh_folder(void) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", folder, secret);
    CHECK(system(command) == 0);
}

static kvstore *open_store(void) {
    kvstore *ks = NULL;
    err e = {0};
    const struct kvstore_config c = {.folder = folder,
                                     .secret = secret,
                                     .version = "1",
                                     .max_bytes = 1 << 30,
                                     .max_files = 4000};
    CHECK_MSG(kvstore_open(&c, &ks, &e) == 0, "%s", e.msg);
    return ks;
}

static struct engine_config config_of(kvstore *ks) {
    struct engine_config c = kit_config(path);
    c.backend = be_only ? be_only : "cpu";
    c.kv_cache_tokens = 2048;
    c.state_checkpoint_tokens = 64;
    c.context_length = 512;
    c.store = ks;
    c.model_sha256 = "f00d";
    c.store_all = true;
    c.store_idle_s = 3600;
    return c;
}

static void fill(int32_t *to, uint32_t n, uint32_t seed) {
    for (uint32_t i = 0; i < n; i++)
        to[i] = 5 + (int32_t)((i * 7 + seed * 13 + i * i % 11) % 80);
}

struct ask {
    const int32_t *prompt;
    uint32_t n, n_choices;
    struct hash128 salt;
};

/* Greedy answers of n_choices; those of all choices are the same. Returns cached tokens. */
static uint32_t answer(engine *en, const struct ask *a, int32_t tokens[ANSWER]) {
    struct engine_request q = {.prompt = a->prompt,
                               .n_prompt = a->n,
                               .n_choices = a->n_choices ? a->n_choices : 1,
                               .notify = bell_ring,
                               .notify_arg = &bell};
    engine_stream *streams[8];
    struct reading *r = calloc(q.n_choices, sizeof *r);
    engine_params_default(&q.params);
    q.params.max_tokens = ANSWER;
    q.params.ignore_eos = true;
    q.params.sampling.temperature = 0;
    q.params.prefix_salt = a->salt;
    kit_submit(en, &q, streams);
    for (uint32_t i = 0; i < q.n_choices; i++)
        r[i].stream = streams[i];
    read_all(r, (int)q.n_choices, &bell);
    for (uint32_t i = 0; i < q.n_choices; i++) {
        CHECK(r[i].final.finish == ENGINE_FINISH_LENGTH && r[i].n_tokens == ANSWER);
        CHECK(memcmp(r[i].tokens, r[0].tokens, ANSWER * sizeof *tokens) == 0);
    }
    memcpy(tokens, r[0].tokens, ANSWER * sizeof *tokens);
    const uint32_t n_cached = r[0].final.n_cached;
    free_all(r, (int)q.n_choices);
    free(r);
    return n_cached;
}

static uint64_t restored(engine *en) {
    struct engine_stats s;
    engine_stats_get(en, &s);
    return s.restored_tokens_total;
}

/* Two turns: the second one's prompt is the first one's, its answer, and more. */
static uint32_t second_turn(engine *en, int32_t text[MOST], const int32_t first[ANSWER],
                            int32_t second[ANSWER]) {
    memcpy(text + PROMPT, first, ANSWER * sizeof *text);
    fill(text + PROMPT + ANSWER, MORE, 99);
    return answer(en, &(struct ask){.prompt = text, .n = PROMPT + ANSWER + MORE}, second);
}

/* In memory, between two engines; else on disk, between two processes' stores. */
static kvstore *open_memory(void) {
    kvstore *ks = NULL;
    err e = {0};
    const struct kvstore_config c = {.version = "1", .max_memory_bytes = 1 << 28};
    CHECK_MSG(kvstore_open(&c, &ks, &e) == 0, "%s", e.msg);
    return ks;
}

static void restart_of(const char *name, int kv_type, bool memory) {
    int32_t text[MOST], first[ANSWER], second[ANSWER], again[ANSWER];
    snprintf(path, sizeof path, "tests/golden/arch/%s/hf", name);
    if (!strstr(name, models) || !device_serves(path)) return;
    fresh_folder();
    struct engine_config c = config_of(NULL);
    c.kv_type = kv_type;
    engine *en = NULL;
    err e = {0};
    if (engine_open(&c, &en, &e)) { /* a KV type that the heads do not fit */
        CHECK_MSG(kv_type == QTYPE_Q8_0, "%s: %s", name, e.msg);
        return;
    }
    fill(text, PROMPT, 1);
    answer(en, &(struct ask){.prompt = text, .n = PROMPT}, first);
    const uint32_t n_cached = second_turn(en, text, first, second);
    kit_close(en);

    kvstore *ks = memory ? open_memory() : open_store();
    c.store = ks;
    en = kit_open(&c);
    answer(en, &(struct ask){.prompt = text, .n = PROMPT}, again);
    CHECK(memcmp(first, again, sizeof first) == 0);
    CHECK(engine_save(en, LATER));
    kit_close(en);
    if (!memory) {
        kvstore_close(ks);
        ks = open_store();
    }
    c.store = ks;
    en = kit_open(&c);
    const uint32_t n = second_turn(en, text, first, again);
    CHECK_MSG(n == n_cached && n > 0, "%s: %u tokens cached, want %u", name, n, n_cached);
    CHECK_MSG(memcmp(second, again, sizeof second) == 0, "%s, KV type %d: another answer", name,
              kv_type);
    CHECK_MSG(restored(en) >= n_cached, "%s: %d tokens restored", name, (int)restored(en));
    engine_save(en, LATER);
    kit_close(en);
    struct kvstore_stats s;
    kvstore_stats_get(ks, &s);
    CHECK(s.damaged == 0 && s.failed == 0);
    CHECK((s.memory_bytes > 0) == memory && (s.files > 0) == !memory);
    kvstore_close(ks);
}

static void test_restart(void) {
    static const char *const names[] = {"llama",
                                        "gemma",
                                        "gemma2",
                                        "gemma3",
                                        "gemma4-e",
                                        "gpt-oss",
                                        "qwen35",
                                        "qwen3next",
                                        "falcon-h1",
                                        "nemotron-h",
                                        "lfm2",
                                        "deepseek2",
                                        "starcoder2-window",
                                        "kimi-linear"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i += be_quick ? 3 : 1)
        restart_of(names[i], QTYPE_F16, false);
}

static void test_kv_types(void) {
    static const int types[] = {QTYPE_F32, QTYPE_BF16, QTYPE_Q8_0};
    static const char *const names[] = {"llama", "gemma3", "qwen35", "deepseek2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t t = be_quick ? 2 : 0; t < sizeof types / sizeof types[0]; t++)
            restart_of(names[i], types[t], false);
}

static void test_memory(void) {
    static const char *const names[] = {"llama", "gemma3", "qwen35"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        restart_of(names[i], QTYPE_F16, true);
}

/* A pool for one conversation and a half: what it loses comes back. */
static void test_eviction(void) {
    enum { N = 6 };
    static const char *const names[] = {"llama", "gemma3", "qwen35"};
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++) {
        int32_t text[N][MOST], want[N][ANSWER], got[ANSWER];
        snprintf(path, sizeof path, "tests/golden/arch/%s/hf", names[m]);
        if (!strstr(names[m], models) || !device_serves(path)) continue;
        fresh_folder();
        kvstore *ks = open_store();
        struct engine_config c = config_of(ks);
        c.kv_cache_tokens = 480;
        c.max_sequences = 4;
        c.context_length = 256;
        engine *en = kit_open(&c);
        for (int round = 0; round < 3; round++)
            for (int i = 0; i < N; i++) {
                fill(text[i], PROMPT, (uint32_t)i + 10);
                const struct ask a = {.prompt = text[i], .n = PROMPT};
                uint32_t n = answer(en, &a, got);
                if (!round) memcpy(want[i], got, sizeof got);
                CHECK_MSG(memcmp(want[i], got, sizeof got) == 0, "%s: another answer", names[m]);
                CHECK_MSG(!round == !n, "%s, round %d: %u cached", names[m], round, n);
                CHECK(kvstore_flush(ks, LATER));
                usleep(30000); /* what found no draft is tried again */
            }
        CHECK(restored(en) >= 2 * N * 64);
        kit_close(en);
        kvstore_close(ks);
    }
}

/* Another tenant neither gets what was stored nor learns that it is there. */
static void test_tenants(void) {
    int32_t text[MOST], want[ANSWER] = {0}, got[ANSWER] = {0};
    snprintf(path, sizeof path, "tests/golden/arch/llama/hf");
    if (!device_serves(path)) return;
    fresh_folder();
    fill(text, PROMPT, 3);
    for (int i = 0; i < 3; i++) {
        kvstore *ks = open_store();
        const struct engine_config c = config_of(ks);
        engine *en = kit_open(&c);
        const struct hash128 salt = {7, i == 1 ? 8 : 9};
        uint32_t n = answer(en, &(struct ask){text, PROMPT, 1, salt}, got);
        CHECK_MSG((n > 0) == (i == 2) && (restored(en) > 0) == (i == 2), "%d: %u cached", i, n);
        if (!i) memcpy(want, got, sizeof got);
        CHECK(memcmp(want, got, sizeof got) == 0);
        engine_save(en, LATER);
        kit_close(en);
        kvstore_close(ks);
    }
}

/* Whatever changes a bit of K/V keeps models apart; what does not, does not. */
static void test_identity(void) {
    enum { CHANGES = 8, N_APART = 5 };
    int32_t text[MOST], first[ANSWER], got[ANSWER];
    snprintf(path, sizeof path, "tests/golden/arch/llama/hf");
    if (!device_serves(path)) return;
    fresh_folder();
    fill(text, PROMPT, 8);
    for (int i = 0; i < CHANGES; i++) {
        kvstore *ks = open_store();
        struct engine_config c = config_of(ks);
        if (i == 1) c.model_sha256 = "f00e";
        if (i == 2) c.kv_type = QTYPE_BF16;
        if (i == 3) c.block_tokens = 32;
        if (i == 4) c.isa = strcmp(c.backend, "cpu") == 0 ? "generic" : c.isa;
        if (i == 5) c.max_batch_tokens = 64, c.max_sequences = 3;
        if (i == 6) c.context_length = 256, c.kv_cache_tokens = 1024;
        if (i == 7) c.model_label = "another name";
        bool apart = i < N_APART && !(i == 4 && strcmp(c.backend, "cpu") != 0);
        engine *en = kit_open(&c);
        uint32_t n = answer(en, &(struct ask){.prompt = text, .n = PROMPT}, got);
        CHECK_MSG(apart ? n == 0 : n > 0, "change %d: %u cached", i, n);
        if (!i) memcpy(first, got, sizeof got);
        CHECK_MSG(apart || memcmp(first, got, sizeof got) == 0, "change %d: another answer", i);
        engine_save(en, LATER);
        kit_close(en);
        kvstore_close(ks);
    }
}

/* The choices of a request wait for one restore. */
static void test_choices(void) {
    int32_t text[MOST], want[ANSWER] = {0}, got[ANSWER] = {0};
    snprintf(path, sizeof path, "tests/golden/arch/llama/hf");
    if (!device_serves(path)) return;
    fresh_folder();
    fill(text, PROMPT, 4);
    for (int i = 0; i < 2; i++) {
        kvstore *ks = open_store();
        const struct engine_config c = config_of(ks);
        engine *en = kit_open(&c);
        uint32_t n = answer(en, &(struct ask){text, PROMPT, 5, {0, 0}}, i ? got : want);
        struct engine_stats s;
        engine_stats_get(en, &s);
        CHECK(s.restores_total == (uint64_t)i && (n >= 128) == (i == 1));
        engine_save(en, LATER);
        kit_close(en);
        kvstore_close(ks);
    }
    CHECK(memcmp(want, got, sizeof got) == 0);
}

/* Changes every record of each segment behind its head, or cuts it. */
static void damage_all(bool cut) {
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char file[400];
        struct stat st;
        snprintf(file, sizeof file, "%s/%s", folder, d->d_name);
        if (!strstr(d->d_name, ".kv") || stat(file, &st)) continue;
        if (cut) {
            CHECK(truncate(file, st.st_size / 2) == 0);
            continue;
        }
        FILE *f = fopen(file, "r+b");
        for (long at = st.st_size / 4; f && at < st.st_size; at += 64) {
            CHECK(fseek(f, at, SEEK_SET) == 0);
            int byte = fgetc(f);
            CHECK(fseek(f, at, SEEK_SET) == 0 && fputc(byte ^ 16, f) != EOF);
        }
        CHECK(f && fclose(f) == 0);
    }
    if (dir) closedir(dir);
}

/* Damage, found while a request waits: it computes the rest. */
static void test_damage(void) {
    static const char *const names[] = {"llama", "gemma3", "qwen35"};
    for (int k = 0; k < 6; k++) {
        int32_t text[MOST], want[ANSWER] = {0}, got[ANSWER] = {0};
        const bool cut = k % 2;
        snprintf(path, sizeof path, "tests/golden/arch/%s/hf", names[k / 2]);
        if (!strstr(names[k / 2], models) || !device_serves(path)) continue;
        fresh_folder();
        fill(text, PROMPT, 5);
        for (int i = 0; i < 2; i++) {
            kvstore *ks = open_store();
            const struct engine_config c = config_of(ks);
            engine *en = kit_open(&c);
            if (i) damage_all(cut);
            answer(en, &(struct ask){.prompt = text, .n = PROMPT}, i ? got : want);
            struct engine_stats s;
            struct kvstore_stats ss;
            engine_stats_get(en, &s);
            kvstore_stats_get(ks, &ss);
            CHECK_MSG((s.restores_cut_total > 0) == (i == 1) && (ss.damaged > 0) == (i == 1),
                      "%s, cut %d: %d restores, %d cut, %d damaged", names[k / 2], cut,
                      (int)s.restores_total, (int)s.restores_cut_total, (int)ss.damaged);
            if (!i) engine_save(en, LATER);
            kit_close(en);
            kvstore_close(ks);
        }
        CHECK(memcmp(want, got, sizeof got) == 0);
    }
}

/* Every call to the file system fails in turn while one is read back: the answer is the same. */
static void test_failing_reads(void) {
    int32_t text[MOST], want[ANSWER] = {0}, got[ANSWER] = {0};
    snprintf(path, sizeof path, "tests/golden/arch/llama/hf");
    if (!device_serves(path)) return;
    fresh_folder();
    fill(text, PROMPT, 6);
    kvstore *ks = open_store();
    struct engine_config c = config_of(ks);
    engine *en = kit_open(&c);
    answer(en, &(struct ask){.prompt = text, .n = PROMPT}, want);
    engine_save(en, LATER);
    kit_close(en);
    for (uint64_t n = 1; n < 15; n += 3) {
        en = kit_open(&c);
        file_fail_at(n, EIO);
        answer(en, &(struct ask){.prompt = text, .n = PROMPT}, got);
        file_fail_at(0, 0);
        CHECK(memcmp(want, got, sizeof got) == 0);
        kit_close(en);
    }
    kvstore_close(ks);
}

/* A model without a known hash, and one whose attention goes both ways, run without the store. */
static void test_unused(void) {
    struct kvstore_stats s;
    snprintf(path, sizeof path, "tests/golden/arch/llama/hf");
    if (!device_serves(path)) return;
    fresh_folder();
    kvstore *ks = open_store();
    struct engine_config c = config_of(ks);
    c.model_sha256 = "";
    engine *en = kit_open(&c);
    int32_t text[MOST], got[ANSWER];
    fill(text, PROMPT, 1);
    answer(en, &(struct ask){.prompt = text, .n = PROMPT}, got);
    engine_save(en, LATER);
    kit_close(en);
    kvstore_stats_get(ks, &s);
    CHECK(s.files == 0);
    kvstore_close(ks);
}

/* Many conversations in a small pool at once, with cancels: every complete answer is the one that
 * an engine alone gives, and the invariants hold all the time. */
static void test_crowd(void) {
    enum { N = 12, ROUNDS = 4 };
    static const char *const names[] = {"llama", "gemma3", "qwen35"};
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++) {
        static int32_t text[N][MOST], want[N][ANSWER];
        struct reading *r = calloc(N, sizeof *r);
        struct rng rng = {.state = 5 + m};
        snprintf(path, sizeof path, "tests/golden/arch/%s/hf", names[m]);
        if (!strstr(names[m], models) || !device_serves(path)) continue;
        fresh_folder();
        struct engine_config c = config_of(NULL);
        engine *en = kit_open(&c);
        for (int i = 0; i < N; i++) {
            fill(text[i], PROMPT, (uint32_t)(i % 4) + 40); /* some begin alike */
            fill(text[i] + 70, PROMPT - 70, (uint32_t)i + 40);
            answer(en, &(struct ask){.prompt = text[i], .n = PROMPT}, want[i]);
        }
        kit_close(en);
        kvstore *ks = open_store();
        c.store = ks;
        c.kv_cache_tokens = 640;
        c.context_length = 256;
        en = kit_open(&c);
        for (int round = 0; round < ROUNDS; round++) {
            bool cancel[N];
            memset(r, 0, N * sizeof *r);
            for (int i = 0; i < N; i++) {
                struct engine_request q = {.prompt = text[i],
                                           .n_prompt = PROMPT,
                                           .n_choices = 1,
                                           .notify = bell_ring,
                                           .notify_arg = &bell};
                engine_params_default(&q.params);
                q.params.max_tokens = ANSWER;
                q.params.ignore_eos = true;
                q.params.sampling.temperature = 0;
                kit_submit(en, &q, &r[i].stream);
                cancel[i] = rng_below(&rng, 5) == 0;
                if (cancel[i]) engine_stream_cancel(r[i].stream);
                err e = {0};
                if (i % 3 == 0) CHECK_MSG(engine_check(en, &e) == 0, "%s", e.msg);
            }
            read_all(r, N, &bell);
            for (int i = 0; i < N; i++)
                if (r[i].final.finish == ENGINE_FINISH_LENGTH)
                    CHECK_MSG(memcmp(r[i].tokens, want[i], sizeof want[i]) == 0, "%s, %d: another",
                              names[m], i);
                else
                    CHECK(cancel[i]);
            free_all(r, N);
            if (round == 1) engine_save(en, LATER);
        }
        CHECK(restored(en) > 0);
        kit_close(en);
        kvstore_close(ks);
        free(r);
    }
}

int main(int argc, char **argv) {
    const char *tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    be_args(argc, argv);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "models=", 7) == 0) models = argv[i] + 7;
    snprintf(root, sizeof root, "%s/inferd-tier-XXXXXX", tmp);
    if (!mkdtemp(root)) return 1;
    snprintf(folder, sizeof folder, "%s/kv", root);
    snprintf(secret, sizeof secret, "%s/kv.secret", root);
    RUN(test_restart);
    RUN(test_kv_types);
    RUN(test_memory);
    RUN(test_eviction);
    RUN(test_tenants);
    RUN(test_identity);
    RUN(test_choices);
    RUN(test_damage);
    RUN(test_failing_reads);
    RUN(test_unused);
    RUN(test_crowd);
    fresh_folder();
    rmdir(root);
    return check_done();
}
