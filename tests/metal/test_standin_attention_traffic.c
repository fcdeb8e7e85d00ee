/* test_standin_attention_traffic.c - memory traffic of paged attention at decode, by the stand-in's
 * traffic meter: K and V are read once for all query heads of a KV head; prints the bytes of the
 * partial results between the two passes. */
#include "tests/support/attention_scene.h"

#include "tests/metal/standin/runtime/msl_traffic.h"

static struct metalsim_bytes argument(const char *kernel, const char *name) {
    struct metalsim_argument a;
    struct metalsim_bytes sum = {0};
    for (uint32_t i = 0; metalsim_traffic_argument(i, &a) == 0; i++)
        if (strcmp(a.kernel, kernel) == 0 && strcmp(a.name, name) == 0)
            sum.read += a.bytes.read, sum.written += a.bytes.written;
    return sum;
}

/* One row at the end of each sequence. */
static void check_decode(backend *be, const struct shape *s) {
    uint64_t width = (uint64_t)s->n_heads * s->head_dim, tokens = 0;
    struct scene c;
    struct rows r = {0};
    float *q = be_new(MAX_SEQS * width, 4), *out = be_new(MAX_SEQS * width, 4);
    be_fill(q, MAX_SEQS * width, 1);
    make_scene_of(&c, s, (struct features){0}, 1, MAX_CONTEXT);
    for (uint32_t i = 0; i < c.n_seqs; i++) {
        int32_t last = (int32_t)c.context[i] - 1;
        add_seq(&r, i, &last, 1, q + i * width, width);
        tokens += c.context[i];
    }
    upload_pools(be, &c);
    metalsim_traffic_reset();
    attend(be, &c, &r, out);
    metalsim_traffic_stop();
    struct backend_kv kv = kv_of(s, 1, NULL, NULL);
    double live = (double)(tokens * 2 * kv_block_size(&kv)) / s->block_tokens;
    double read = (double)argument("attention_decode", "k_pool").read +
                  (double)argument("attention_decode", "v_pool").read;
    struct metalsim_bytes partials = argument("attention_decode", "partials"),
                          sums = argument("attention_decode", "sums"),
                          merged = argument("attention_reduce", "partials");
    CHECK_MSG(read >= live && read <= 1.05 * live, "%s, group %u: %g of the live K and V",
              qtype_name(s->kv_type), s->n_heads / s->n_kv_heads, read / live);
    CHECK_MSG(partials.written > 0 && merged.read == partials.written && sums.written > 0,
              "%s, group %u: partials %llu, %llu", qtype_name(s->kv_type),
              s->n_heads / s->n_kv_heads, (unsigned long long)partials.written,
              (unsigned long long)merged.read);
    printf("     %-4s %3u %5u %10.0f %6.3f %6.3f\n", qtype_name(s->kv_type), s->head_dim,
           s->n_heads / s->n_kv_heads, live, read / live,
           (double)(partials.written + sums.written + merged.read) / live);
    free_pools(&c);
    free_scene(&c);
    free(q), free(out);
}

static void test_decode_traffic(void) {
    static const uint32_t groups[] = {1, 4, 8};
    static const uint32_t dims[] = {64, 128};
    static const int types[] = {QTYPE_F16, QTYPE_Q8_0};
    backend *be = be_open("metal", 1);
    be_need(be != NULL, "the device");
    be_rng.state = 71;
    printf("     type dim group    live K/V   read  partials, written and read\n");
    for (int t = 0; t < 2; t++)
        for (int d = 0; d < 2; d++)
            for (int g = 0; g < 3; g++)
                check_decode(be, &(struct shape){2 * groups[g], 2, dims[d], 16, types[t]});
    backend_close(be);
}

/* Of a step with sequences of one row and of several, tiles write the rows of the latter alone. */
static void test_mixed_rows(void) {
    enum { N_ROWS = 17 };
    const struct shape s = {4, 2, 64, 16, QTYPE_F16};
    const uint64_t width = (uint64_t)s.n_heads * s.head_dim, n = N_ROWS + 2;
    backend *be = be_open("metal", 1);
    struct scene c;
    struct rows r = {0};
    float *q = be_new(n * width, 4), *out = be_new(n * width, 4);
    int32_t pos[N_ROWS];
    be_need(be != NULL, "the device");
    be_rng.state = 72;
    be_fill(q, n * width, 1);
    for (make_scene_of(&c, &s, (struct features){0}, 1, 64); c.n_seqs < 3;) {
        free_scene(&c);
        make_scene_of(&c, &s, (struct features){0}, 1, 64);
    }
    for (uint32_t i = 0; i < 3; i++) {
        const int32_t rows = i == 0 ? N_ROWS : 1;
        for (int32_t k = 0; k < rows; k++)
            pos[k] = k;
        add_seq(&r, i, pos, (uint32_t)rows, q + (uint64_t)r.n * width, width);
    }
    upload_pools(be, &c);
    metalsim_traffic_reset();
    attend(be, &c, &r, out);
    metalsim_traffic_stop();
    CHECK_MSG(argument("attention_prefill", "out").written == N_ROWS * width * 4, "%llu bytes",
              (unsigned long long)argument("attention_prefill", "out").written);
    free_pools(&c);
    free_scene(&c);
    free(q), free(out);
    backend_close(be);
}

int main(void) {
    RUN(test_decode_traffic);
    RUN(test_mixed_rows);
    return check_done();
}
