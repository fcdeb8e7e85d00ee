/* pace.c - running means of two times, and the chunk that follows from them. Owns nothing. */
#include "core/engine/pace.h"

/* SLOWDOWN: the longest time of a step with prompt rows, relative to one without. Streams stay
 * steady (people notice gaps of three times the usual), and prompts get more than half of the
 * machine. LEAST rows are cheap on any device: the weights are read for them anyway. */
#define SLOWDOWN 2.2
#define NEWEST   0.2 /* weight of the newest step in a mean */
enum { LEAST = 8, UNKNOWN = 64, MANY_ROWS = 16, MOST_OUTNUMBERED = 8 };

static void mean_add(double *mean, double value) {
    *mean = *mean > 0 ? *mean + NEWEST * (value - *mean) : value;
}

/* The expected time of a step of n decoding rows. It differs from the measured batch size's by the
 * cost of the rows, at most in proportion. */
static double decode_ns(const struct pace *p, uint32_t n) {
    double ns = p->decode_ns + (n - p->decode_rows) * p->row_ns;
    double least = p->decode_ns * (n < p->decode_rows ? n / p->decode_rows : 1);
    return ns > least ? ns : least;
}

void pace_note(struct pace *p, uint32_t n_prefill, uint32_t n_decode, uint64_t ns) {
    double t = (double)ns;
    if (n_prefill == 0 && n_decode > 0) {
        if (n_decode != p->decode_rows) p->decode_ns = 0; /* a mean is of one size */
        p->decode_rows = n_decode;
        mean_add(&p->decode_ns, t);
    } else if (n_decode == 0 && n_prefill >= MANY_ROWS) {
        mean_add(&p->row_ns, t / n_prefill);
    } else if (n_prefill >= LEAST && p->decode_ns > 0 && p->row_ns > 0) {
        double row = (t - decode_ns(p, n_decode)) / n_prefill;
        if (row > p->row_ns / 4) mean_add(&p->row_ns, row < 4 * p->row_ns ? row : 4 * p->row_ns);
    }
}

uint32_t pace_chunk(const struct pace *p, uint32_t n_decode, uint32_t n_prefill, uint32_t most) {
    double chunk = UNKNOWN, share = (double)n_prefill / n_decode;
    if (share < 1) share = 1;
    if (share > MOST_OUTNUMBERED) share = MOST_OUTNUMBERED;
    if (p->decode_ns > 0 && p->row_ns > 0)
        chunk = (SLOWDOWN - 1) * decode_ns(p, n_decode) / p->row_ns * share;
    if (chunk < LEAST) chunk = LEAST;
    return chunk < most ? (uint32_t)chunk : most;
}
