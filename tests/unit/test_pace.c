/* test_pace.c - on a simulated machine whose step takes a + b * rows, the chunk brings a step near
 * twice its time without prompts. */
#include "core/engine/pace.h"
#include "tests/unit/check.h"

struct machine {
    double fixed_ns, decode_row_ns, prefill_row_ns;
};

static uint64_t step_ns(const struct machine *m, uint32_t n_prefill, uint32_t n_decode) {
    return (uint64_t)(m->fixed_ns + n_decode * m->decode_row_ns + n_prefill * m->prefill_row_ns);
}

/* A prompt alone, its answer, then a second prompt beside it, paced. Returns the time of the last
 * mixed step, relative to one without prompts. */
static double stretch_on(const struct machine *m, uint32_t n_decode) {
    struct pace p = {0};
    for (int i = 0; i < 4; i++)
        pace_note(&p, 512, 0, step_ns(m, 512, 0));
    for (int i = 0; i < 50; i++)
        pace_note(&p, 0, n_decode, step_ns(m, 0, n_decode));
    uint32_t chunk = 0;
    for (int i = 0; i < 50; i++) {
        chunk = pace_chunk(&p, n_decode, 1, 512);
        pace_note(&p, chunk, n_decode, step_ns(m, chunk, n_decode));
    }
    return (double)step_ns(m, chunk, n_decode) / (double)step_ns(m, 0, n_decode);
}

static void test_a_step_takes_about_twice(void) {
    static const struct machine machines[] = {
        {20e6, 2e6, 2e6},   /* a small processor, 1.1 G parameters */
        {2e6, 0.1e6, .1e6}, /* a fast one */
        {20e6, .2e6, .05e6} /* prompts are much cheaper than answers */
    };
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
        for (uint32_t n_decode = 1; n_decode <= 32; n_decode *= 2) {
            double stretch = stretch_on(&machines[i], n_decode);
            CHECK_MSG(stretch > 1.7 && stretch < 2.5, "machine %zu, %u rows: %.2f", i, n_decode,
                      stretch);
        }
}

static void test_bounds(void) {
    struct pace p = {0};
    CHECK(pace_chunk(&p, 1, 1, 512) == 64); /* nothing known */
    CHECK(pace_chunk(&p, 1, 1, 20) == 20);
    pace_note(&p, 100, 0, 1000000000);
    pace_note(&p, 0, 4, 1000000);
    CHECK(pace_chunk(&p, 4, 1, 512) == 8); /* a row takes longer than a step */
    CHECK(pace_chunk(&p, 4, 1, 5) == 5);
    p = (struct pace){0};
    pace_note(&p, 100, 0, 1000);
    pace_note(&p, 0, 4, 1000000);
    CHECK(pace_chunk(&p, 4, 1, 512) == 512);
}

/* One streaming sequence does not delay many that wait. */
static void test_many_wait(void) {
    const struct machine m = {20e6, 2e6, 2e6};
    struct pace p = {0};
    pace_note(&p, 512, 0, step_ns(&m, 512, 0));
    pace_note(&p, 0, 1, step_ns(&m, 0, 1));
    uint32_t alone = pace_chunk(&p, 1, 1, 512);
    CHECK(pace_chunk(&p, 4, 4, 512) < 2 * alone);
    CHECK(pace_chunk(&p, 1, 4, 512) >= 3 * alone);
    CHECK(pace_chunk(&p, 1, 31, 512) <= 8 * alone + 8);
}

/* A mixed step that took far too long (on a busy machine) does not stop prefill. */
static void test_outlier(void) {
    const struct machine m = {20e6, 2e6, 2e6};
    struct pace p = {0};
    pace_note(&p, 512, 0, step_ns(&m, 512, 0));
    for (int i = 0; i < 20; i++)
        pace_note(&p, 0, 8, step_ns(&m, 0, 8));
    uint32_t before = pace_chunk(&p, 8, 1, 512);
    pace_note(&p, before, 8, 100 * step_ns(&m, before, 8));
    CHECK(pace_chunk(&p, 8, 1, 512) >= before / 2);
}

int main(void) {
    RUN(test_a_step_takes_about_twice);
    RUN(test_bounds);
    RUN(test_many_wait);
    RUN(test_outlier);
    return check_done();
}
