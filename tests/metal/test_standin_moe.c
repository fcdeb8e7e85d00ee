/* test_standin_moe.c - memory traffic of a mixture of experts, by the stand-in's traffic meter:
 * only the selected experts' weights are read, each once, and the backend's traffic counters agree
 * with the meter. Prints the ratios. */
#include "tests/support/moe64.h"

#include "msl_traffic.h"

enum { EXPERTS = 16, USED = 3, COLS = 512, MAX_ROWS = 8 };

static backend *open_metal(void) {
    struct backend_config config = {
        .max_rows = MAX_ROWS, .max_cols = COLS, .moe = {EXPERTS, USED, COLS}};
    backend *be = be_open_config(config, "metal");
    be_need(be != NULL, "Metal");
    return be;
}

static struct moe_case decode_case(int type, uint32_t n_rows) {
    return (struct moe_case){.router = block_type_of(QTYPE_F32),
                             .gate = block_type_of(type),
                             .up = block_type_of(type),
                             .down = block_type_of(type),
                             .n_experts = EXPERTS,
                             .n_used = USED,
                             .n_in = COLS,
                             .n_ff = COLS / 2,
                             .n_rows = n_rows,
                             .bits = 16,
                             .act = BACKEND_ACT_SILU,
                             .share = MOE_SHARED_GATED,
                             .renormalize = true};
}

/* Number of experts that the layer's rows select. */
static uint32_t n_chosen(struct moe_layer *l) {
    struct moe_way w = moe_way_new(l);
    bool chosen[EXPERTS] = {false};
    uint32_t n = 0;
    moe_draw_rows(&w, l);
    for (uint32_t row = 0; row < l->c.n_rows; row++) {
        w.x = l->x + (uint64_t)row * l->c.n_in;
        be_need(moe_choose(&w), "scores apart");
        for (uint32_t e = 0; e < EXPERTS; e++) {
            n += w.weight[e] != 0 && !chosen[e];
            chosen[e] |= w.weight[e] != 0;
        }
    }
    moe_way_free(&w);
    return n;
}

/* The backend computes its counters from shapes: the bytes that cross the bus with a perfect cache.
 * It does not know which experts several rows share, so its weight bytes are an upper bound. */
static void check_counters(const backend *be, uint32_t n_rows) {
    static const char *const kernels[] = {"moe_route", "moe_lists", "moe_vector", "moe_combine"};
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        for (int k = 0; k < 4; k++) {
            struct metalsim_kernel seen;
            uint64_t read, written;
            if (strcmp(backend_kernel_name(be, i), kernels[k]) != 0) continue;
            if (metalsim_traffic(kernels[k], &seen)) {
                CHECK(k == 1 && n_rows == 1);
                continue;
            }
            backend_kernel_traffic(be, i, &read, &written);
            bool exact = k != 2 || n_rows == 1;
            CHECK_MSG(exact ? read == seen.memory.read_once : read >= seen.memory.read_once,
                      "%s, %u rows: %llu bytes read, by arithmetic %llu", kernels[k], n_rows,
                      (unsigned long long)seen.memory.read_once, (unsigned long long)read);
            CHECK_MSG(written == seen.memory.written_once && written == seen.memory.written,
                      "%s, %u rows: %llu bytes written, by arithmetic %llu", kernels[k], n_rows,
                      (unsigned long long)seen.memory.written, (unsigned long long)written);
        }
}

static void check_decode(int type, uint32_t n_rows) {
    struct moe_case c = decode_case(type, n_rows);
    struct moe_layer l = moe_layer_new(&c);
    struct metalsim_bytes weights, all;
    static float y[MAX_ROWS * COLS];
    uint64_t expert, used = n_chosen(&l);
    qtype_bytes(type, 3 * c.n_ff, c.n_in, &expert);
    backend *be = open_metal();
    struct moe_placed p = moe_place(be, &l);
    metalsim_traffic_reset();
    moe_run_rows(be, &p, &l, NULL, n_rows, y);
    metalsim_traffic_stop();
    metalsim_traffic_sum("moe_vector", "weights", &weights);
    metalsim_traffic_sum(NULL, NULL, &all);
    printf("  %-7s %u rows, %2u of %u experts: weights %.4f distinct, %.4f loaded; rest %.1f %%\n",
           qtype_name(type), n_rows, (unsigned)used, EXPERTS,
           (double)weights.read_once / (double)(used * expert),
           (double)weights.read / (double)(used * expert),
           100.0 * (double)(all.read_once + all.written_once - weights.read_once) /
               (double)weights.read_once);
    CHECK(weights.read_once == used * expert);
    CHECK((double)weights.read <= 1.02 * (double)(used * expert));
    CHECK(weights.written == 0);
    check_counters(be, n_rows);
    moe_placed_free(&p);
    backend_close(be);
    moe_layer_free(&l);
}

static void test_decode_reads_chosen_experts_once(void) {
    static const int types[] = {QTYPE_F16,  QTYPE_Q8_0, QTYPE_Q4_0, QTYPE_MXFP4,
                                QTYPE_Q4_K, QTYPE_Q5_K, QTYPE_Q6_K};
    be_rng.state = 41;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (uint32_t n_rows = 1; n_rows <= MAX_ROWS; n_rows += 7)
            check_decode(types[t], n_rows);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_decode_reads_chosen_experts_once);
    return check_done();
}
