/* test_standin_latent_traffic.c - memory traffic of attention over latent rows at decode, by the
 * stand-in's traffic meter: a tile of query heads shares one read of each row, as K and as V. */
#include "tests/support/be.h"
#include "tests/support/kv_pool.h"
#include "tests/unit/check.h"

#include "tests/metal/standin/runtime/msl_traffic.h"

enum { DIM = 576, V_DIM = 512, BLOCK = 16, BLOCKS = 40, TOKENS = 600, TILE = 8 };

static struct metalsim_bytes argument(const char *kernel, const char *name) {
    struct metalsim_argument a;
    struct metalsim_bytes sum = {0};
    for (uint32_t i = 0; metalsim_traffic_argument(i, &a) == 0; i++)
        if (strcmp(a.kernel, kernel) == 0 && strcmp(a.name, name) == 0)
            sum.read += a.bytes.read, sum.written += a.bytes.written;
    return sum;
}

/* One row at the end of a sequence. */
static void check_decode(backend *be, uint32_t n_heads, int kv_type) {
    const uint64_t n_q = (uint64_t)n_heads * DIM;
    const int32_t pos = TOKENS - 1, start[] = {0, 1};
    struct backend_kv kv = {.kv_type = kv_type,
                            .n_blocks = BLOCKS,
                            .n_kv_heads = 1,
                            .block_tokens = BLOCK,
                            .head_dim = DIM,
                            .v_dim = V_DIM};
    int32_t table[BLOCKS];
    float *q = be_new(n_q, sizeof *q);
    const uint64_t block = kv_block_size(&kv);
    char *pool = be_new(BLOCKS, block); /* zeros */
    for (int32_t b = 0; b < BLOCKS; b++)
        table[b] = (b * 37 + 11) % BLOCKS;
    be_fill(q, n_q, 1);
    kv.k = be_bytes(be, pool, BLOCKS * block);
    struct op_paged_attention op = {.q = be_f32(be, q, n_q),
                                    .pos = be_i32(be, &pos, 1),
                                    .row_start = be_i32(be, start, 2),
                                    .tables = be_i32(be, table, BLOCKS),
                                    .n_rows = 1,
                                    .n_seqs = 1,
                                    .n_heads = n_heads,
                                    .table_stride = BLOCKS,
                                    .scale = 0.1f,
                                    .kv = kv,
                                    .out = be_f32(be, NULL, (uint64_t)n_heads * V_DIM)};
    metalsim_traffic_reset();
    CHECK(backend_paged_attention(be, &op) == 0);
    be_get(be, op.out, q, (uint64_t)n_heads * V_DIM);
    metalsim_traffic_stop();
    const double live = (double)(block / BLOCK * TOKENS), tiles = (n_heads + TILE - 1) / TILE;
    const double read = (double)argument("attention_latent", "k_pool").read / tiles;
    const struct metalsim_bytes partials = argument("attention_latent", "partials"),
                                merged = argument("attention_latent_reduce", "partials");
    CHECK_MSG(read >= live && read <= 1.02 * live, "%s, %u heads: %g of the live rows",
              qtype_name(kv_type), n_heads, read / live);
    CHECK_MSG(partials.written > 0 && merged.read == partials.written,
              "%s, %u heads: partials %llu, %llu", qtype_name(kv_type), n_heads,
              (unsigned long long)partials.written, (unsigned long long)merged.read);
    printf("     %-4s %3u %10.0f %6.3f %6.3f\n", qtype_name(kv_type), n_heads, live, read / live,
           (double)(partials.written + merged.read) / live);
    const backend_buf *bufs[] = {op.q, op.pos, op.row_start, op.tables, op.out, kv.k};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        backend_buf_free((backend_buf *)bufs[i]);
    free(pool);
    free(q);
}

static void test_decode_traffic(void) {
    backend *be = be_open("metal", 1);
    be_need(be != NULL, "the device");
    be_rng.state = 73;
    printf("     type heads  live rows   read of a tile  partials, written and read\n");
    check_decode(be, 8, QTYPE_F16);
    check_decode(be, 20, QTYPE_F16);
    check_decode(be, 16, QTYPE_Q8_0);
    backend_close(be);
}

int main(void) {
    RUN(test_decode_traffic);
    return check_done();
}
