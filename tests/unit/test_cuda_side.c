/* test_cuda_side.c - the side stream: a batch of copies follows the ops before it and no others;
 * ops after a join follow it; staging memory and batches are bounded; blocks of a KV cache that are
 * reused, or read, before their copies have ended. The stand-in delays all work until something
 * waits for it, in the order in which it is waited for: there each test is also run without what
 * orders it, and must then fail. */
#include "core/kv/kv.h"
#include "tests/support/device_main.h"

#include <string.h>

enum { N = 4096, BYTES = N * (int)sizeof(int32_t) };

static bool delays; /* the stand-in */
static err e;

static backend *open_cuda(void) {
    const struct backend_config config = {.n_threads = 1, .max_rows = 16, .max_cols = 512};
    backend *be = be_open_config(config, "cuda");
    delays = strstr(backend_isa(be), "stand-in") != NULL;
    return be;
}

static backend *open_side(uint64_t most_bytes) {
    backend *be = open_cuda();
    be_need(backend_side_open(be, most_bytes, &e) == 0, "the side stream");
    return be;
}

static void fill(int32_t *to, int32_t value) {
    for (int i = 0; i < N; i++)
        to[i] = value + i;
}

static bool has(const int32_t *at, int32_t value) {
    for (int i = 0; i < N; i++)
        if (at[i] != value + i) return false;
    return true;
}

static uint64_t n_done(backend *be) {
    uint64_t n = 0;
    CHECK(backend_side_done(be, &n, &e) == 0);
    return n;
}

/* Copies out in turns with ops that write what is copied. */
static void copies_out_are_ordered(void) {
    enum { ROUNDS = 12 };
    backend *be = open_side(BYTES);
    for (int joins = delays ? 0 : 1; joins < 2; joins++) {
        backend_buf *buf = be_i32(be, NULL, N);
        int32_t from[N];
        void *got[ROUNDS];
        int n_right = 0;
        for (int r = 0; r < ROUNDS; r++) {
            CHECK(backend_host_new(be, BYTES, &got[r], &e) == 0);
            fill(from, 1000 * r);
            CHECK(backend_upload(be, buf, 0, from, BYTES, &e) == 0);
            CHECK(backend_side_begin(be, &e) == 0);
            CHECK(backend_side_out(be, buf, 0, got[r], BYTES, &e) == 0);
            CHECK(backend_side_end(be, &e) == 0);
            if (joins) CHECK(backend_side_join(be, &e) == 0);
        }
        fill(from, -1);
        CHECK(backend_upload(be, buf, 0, from, BYTES, &e) == 0);
        CHECK(backend_sync(be, &e) == 0 && backend_side_wait(be, &e) == 0);
        for (int r = 0; r < ROUNDS; r++) {
            n_right += has(got[r], 1000 * r);
            backend_host_free(be, got[r]);
        }
        CHECK_MSG(joins ? n_right == ROUNDS : n_right < ROUNDS, "%d of %d copies are right, %s",
                  n_right, (int)ROUNDS, joins ? "joined" : "not joined");
        backend_buf_free(buf);
    }
    CHECK(n_done(be) == (delays ? 2 : 1) * ROUNDS);
    backend_close(be);
}

/* An op reads what was copied in before. */
static void copies_in_are_joined(void) {
    backend *be = open_side(BYTES);
    for (int joins = delays ? 0 : 1; joins < 2; joins++) {
        backend_buf *buf = be_i32(be, NULL, N);
        int32_t from[N], got[N];
        fill(from, 4711);
        CHECK(backend_side_begin(be, &e) == 0);
        CHECK(backend_side_in(be, buf, 0, from, BYTES, &e) == 0);
        fill(from, 0); /* the call has read it */
        CHECK(backend_side_end(be, &e) == 0);
        if (joins) CHECK(backend_side_join(be, &e) == 0);
        CHECK(backend_download(be, buf, 0, got, BYTES, &e) == 0);
        CHECK(has(got, 4711) == joins);
        CHECK(backend_side_wait(be, &e) == 0);
        CHECK(backend_download(be, buf, 0, got, BYTES, &e) == 0 && has(got, 4711));
        backend_buf_free(buf);
    }
    backend_close(be);
}

/* Many copies in of any size, more than the staging memory holds, each into a place of its own. */
static void staging_is_bounded(void) {
    enum { PLACES = 200, MOST = 300000 /* bytes */ };
    backend *be = open_side(MOST);
    backend_buf *buf = be_i32(be, NULL, PLACES * (MOST / 4));
    int32_t *from = be_new(MOST, 1), *got = be_new(MOST, 1);
    uint32_t sizes[PLACES], n_full = 0;
    be_rng.state = 5;
    CHECK(backend_side_begin(be, &e) == 0);
    for (int p = 0; p < PLACES; p++) {
        sizes[p] = p % 5 ? 4 + be_below(MOST / 4 - 4) * 4 : MOST;
        for (uint32_t i = 0; i < sizes[p] / 4; i++)
            from[i] = (int32_t)(p * 1000003 + i);
        int rc;
        while ((rc = backend_side_in(be, buf, (uint64_t)p * MOST, from, sizes[p], &e)) ==
               ERR_FULL) {
            n_full++;
            CHECK(backend_side_end(be, &e) == 0 && backend_side_wait(be, &e) == 0);
            CHECK(backend_side_begin(be, &e) == 0);
        }
        CHECK_MSG(rc == 0, "%s", e.msg);
    }
    CHECK(backend_side_end(be, &e) == 0 && backend_side_join(be, &e) == 0);
    for (int p = 0; p < PLACES; p++) {
        bool same = true;
        CHECK(backend_download(be, buf, (uint64_t)p * MOST, got, sizes[p], &e) == 0);
        for (uint32_t i = 0; i < sizes[p] / 4; i++)
            same = same && got[i] == (int32_t)(p * 1000003 + i);
        CHECK_MSG(same, "place %d, %u bytes", p, sizes[p]);
    }
    CHECK_MSG(n_full > 0, "%u times full", n_full);
    CHECK(backend_side_begin(be, &e) == 0);
    CHECK(backend_side_in(be, buf, 0, from, 17 << 20, &e) ==
          ERR_INVALID); /* beyond what it is for */
    CHECK(backend_side_end(be, &e) == 0 && backend_side_wait(be, &e) == 0);
    free(from);
    free(got);
    backend_buf_free(buf);
    backend_close(be);
}

/* ---- with a KV cache ---- */

enum { BT = 16, BLOCKS = 24, DIM = 64, BLOCK = BT * DIM * 2 /* bytes of K: f16 */ };

static kv *open_cache(backend *be) {
    const struct kv_config config = {.be = be,
                                     .n_layers = 1,
                                     .n_kv_heads = 1,
                                     .head_dim = DIM,
                                     .kv_type = QTYPE_F16,
                                     .n_blocks = BLOCKS,
                                     .block_tokens = BT,
                                     .max_seqs = 4,
                                     .max_blocks_per_seq = BLOCKS,
                                     .prefix_cache = true};
    kv *c = NULL;
    be_need(kv_open(&config, &c, &e) == 0, "a cache");
    be_need(kv_batches_open(c, &e) == 0, "the side stream");
    return c;
}

/* A step of one sequence of n tokens from `first` on, which writes value + b into block b of it
 * that was not cached. Without `waits` it does not wait for copies. */
static void step(kv *c, backend *be, int32_t first, uint32_t n, int32_t value, bool waits) {
    int32_t tokens[BLOCKS * BT];
    uint8_t bytes[BLOCK];
    uint32_t n_cached;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = first + (int32_t)i;
    const struct kv_prompt prompt = {.tokens = tokens, .n = n};
    kv_seq *s = kv_seq_new(c, &prompt, &n_cached);
    be_need(s && kv_seq_reserve(c, s, n_cached, n) == 0, "blocks");
    kv_step_begun(c);
    if (waits) CHECK(kv_flush_copies(c, &e) == 0);
    for (uint32_t b = n_cached / BT; b < kv_seq_n_blocks(s); b++) {
        memset(bytes, value + (int32_t)b, sizeof bytes);
        CHECK(backend_upload(be, kv_layers(c)->k, (uint64_t)kv_table(s)[b] * BLOCK, bytes, BLOCK,
                             &e) == 0);
    }
    kv_commit(c, s, tokens, n);
    kv_seq_free(c, s);
}

static bool is_all(const uint8_t *at, int32_t value) {
    for (int i = 0; i < BLOCK; i++)
        if (at[i] != (uint8_t)value) return false;
    return true;
}

static void reused_blocks_are_copied_first(void) {
    for (int waits = 0; waits < 2; waits++) {
        backend *be = open_cuda();
        kv *c = open_cache(be);
        struct kv_run r;
        void *to;
        int n_right = 0;
        step(c, be, 1000, 10 * BT + 1, 7, true);
        CHECK(backend_sync(be, &e) == 0); /* the step has ended */
        CHECK(kv_run_next(c, false, 0, 64, &r) && r.n == 10);
        CHECK(backend_host_new(be, (uint64_t)r.n * BLOCK, &to, &e) == 0);
        CHECK(kv_batch_begin(c, &e) == 1);
        for (uint32_t i = 0; i < r.n; i++)
            CHECK(kv_piece_read(c, &r, KV_PART_BLOCK, i, 0, (uint8_t *)to + i * BLOCK, &e) == 0);
        CHECK(kv_batch_end(c, &e) == 0);
        kv_run_kept(c, &r);
        step(c, be, 5000, 22 * BT, 99, waits || !delays); /* takes eight of the ten */
        CHECK(backend_sync(be, &e) == 0 && kv_batches_wait(c) == 0 && kv_batches_done(c) == 1);
        for (uint32_t i = 0; i < r.n; i++)
            n_right += is_all((uint8_t *)to + i * BLOCK, 7 + (int32_t)i);
        CHECK_MSG(waits || !delays ? n_right == 10 : n_right == 2, "%d of 10 copies are right",
                  n_right);
        backend_host_free(be, to);
        kv_close(c);
        backend_close(be);
    }
}

/* What comes back is there for the first step that reads it; what was given up disturbs none. */
static void imported_blocks_are_there(void) {
    for (int waits = 0; waits < 2; waits++)
        for (int commits = 0; commits < 2; commits++) {
            backend *be = open_cuda();
            kv *c = open_cache(be);
            int32_t tokens[4 * BT];
            uint8_t bytes[BLOCK];
            uint32_t n_cached;
            int n_right = 0;
            for (int i = 0; i < 4 * BT; i++)
                tokens[i] = 3000 + i;
            const struct kv_prompt prompt = {.tokens = tokens, .n = 4 * BT};
            kv_seq *s = kv_import_begin(c, &prompt, &n_cached);
            int32_t blocks[4];
            CHECK(s && n_cached == 0 && kv_batch_begin(c, &e) == 1);
            for (uint32_t b = 0; b < 4; b++) {
                memset(bytes, 50 + (int)b, sizeof bytes);
                CHECK(kv_piece_write(c, s, KV_PART_BLOCK, b, 0, bytes, &e) == 0);
                blocks[b] = kv_table(s)[b];
            }
            CHECK(kv_batch_end(c, &e) == 0);
            if (commits) kv_import_commit(c, s, tokens, 4, false);
            kv_seq_free(c, s);
            /* The same tokens: they are found, or their blocks, freed last, are taken again. */
            step(c, be, commits ? 3000 : 9000, 4 * BT + 1, 80, waits || !delays);
            for (uint32_t b = 0; b < 4; b++) {
                CHECK(backend_download(be, kv_layers(c)->k, (uint64_t)blocks[b] * BLOCK, bytes,
                                       BLOCK, &e) == 0);
                if (!commits) CHECK(kv_batches_wait(c) == 0);
                if (!commits)
                    CHECK(backend_download(be, kv_layers(c)->k, (uint64_t)blocks[b] * BLOCK, bytes,
                                           BLOCK, &e) == 0);
                n_right += commits ? is_all(bytes, 50 + (int)b) : bytes[0] >= 80;
            }
            CHECK_MSG(waits || !delays ? n_right == 4 : n_right == 0, "%d of 4 blocks, %s", n_right,
                      commits ? "committed" : "given up");
            CHECK(kv_batches_wait(c) == 0);
            kv_close(c);
            backend_close(be);
        }
}

static void run(void) {
    RUN(copies_out_are_ordered);
    RUN(copies_in_are_joined);
    RUN(staging_is_bounded);
    RUN(reused_blocks_are_copied_first);
    RUN(imported_blocks_are_there);
}

int main(int argc, char **argv) {
    setenv("CUDASIM_LATE", "1", 1); /* the stand-in runs work only when it is waited for */
    return device_main(argc, argv, "cuda", run);
}
