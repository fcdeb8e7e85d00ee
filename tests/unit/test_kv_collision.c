/* test_kv_collision.c - the prefix table with constant hash collisions: compiles prefix.c with
 * hashes of one bit, so only tokens and parents distinguish blocks. */
#define KV_HASH_MASK UINT64_C(1)
#include "core/kv/prefix.c"

#include "tests/support/rng.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { BT = 2, N_SEQS = 40, MAX_TOKENS = 12 };
#define PROMPT(ids, n_ids)                                                                         \
    (&(const struct kv_prompt){.tokens = (ids), .n = (n_ids), .salt = salts[i]})

/* Sequences over two token ids, all kept: any two of the same salt share exactly the blocks of
 * their common prefix. */
static void test_every_hash_collides(void) {
    struct kv_config config = {.n_blocks = N_SEQS * MAX_TOKENS / BT,
                               .block_tokens = BT,
                               .max_seqs = N_SEQS,
                               .max_blocks_per_seq = MAX_TOKENS / BT,
                               .prefix_cache = true};
    static int32_t tokens[N_SEQS][MAX_TOKENS];
    static struct hash128 salts[N_SEQS];
    kv_seq *seqs[N_SEQS];
    kv *c = NULL;
    err e = {0};
    CHECK(kv_open(&config, &c, &e) == 0);
    struct rng rng = {7};
    for (int i = 0; i < N_SEQS; i++) {
        uint32_t n_cached;
        salts[i] = (struct hash128){2 * (rng_next(&rng) % 2), 2 * (rng_next(&rng) % 2)};
        for (int t = 0; t < MAX_TOKENS; t++)
            tokens[i][t] = rng_next(&rng) % 2;
        seqs[i] = kv_seq_new(c, PROMPT(tokens[i], MAX_TOKENS), &n_cached);
        CHECK(kv_seq_reserve(c, seqs[i], n_cached, MAX_TOKENS) == 0);
        CHECK(kv_flush_copies(c, &e) == 0);
        kv_commit(c, seqs[i], tokens[i], MAX_TOKENS);
        CHECK_MSG(kv_check(c, &e) == 0, "%s", e.msg);
        for (int j = 0; j < i; j++) {
            int same = hash128_same(salts[i], salts[j]) ? 0 : -1;
            while (same >= 0 && same < MAX_TOKENS && tokens[i][same] == tokens[j][same])
                same++;
            for (int b = 0; b < MAX_TOKENS / BT; b++)
                CHECK((kv_table(seqs[i])[b] == kv_table(seqs[j])[b]) == ((b + 1) * BT <= same));
        }
    }
    for (int i = 0; i < N_SEQS; i++)
        kv_seq_free(c, seqs[i]);
    CHECK(kv_check(c, &e) == 0 && kv_n_free(c) == config.n_blocks);
    kv_close(c);
}

int main(void) {
    RUN(test_every_hash_collides);
    return check_done();
}
