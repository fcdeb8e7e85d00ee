/* rope64.h - frequencies of rotary embedding in float64, each formula as its paper or transformers'
 * modeling_rope_utils.py states it; for tests. */
#ifndef INFERD_TESTS_ROPE64_H
#define INFERD_TESTS_ROPE64_H

#include <math.h>
#include <stdbool.h>

/* theta_i = base^(-2i/n) */
static inline void rope64_plain(double base, int n, double *f) {
    for (int i = 0; i < n / 2; i++)
        f[i] = 1 / pow(base, 2.0 * i / n);
}

/* YaRN, section 3.2 (NTK-by-parts): with r = L theta_i / 2 pi rotations in the original context L,
 * frequencies with more than beta_fast rotations are kept, those with less than beta_slow are
 * divided. The ramp is linear in i between the two bounds, which transformers rounds outwards. */
static inline double rope64_yarn(double base, int n, double factor, double context, bool rounded,
                                 double *f) {
    const double two_pi = 2 * acos(-1.0), beta_fast = 32, beta_slow = 1;
    double from = n * log(context / (beta_fast * two_pi)) / (2 * log(base));
    double to = n * log(context / (beta_slow * two_pi)) / (2 * log(base));
    if (rounded) from = floor(from), to = ceil(to);
    if (from < 0) from = 0;
    if (to > n - 1) to = n - 1;
    for (int i = 0; i < n / 2; i++) {
        double theta = 1 / pow(base, 2.0 * i / n);
        double interpolated = i <= from ? 0 : i >= to ? 1 : (i - from) / (to - from);
        f[i] = interpolated * theta / factor + (1 - interpolated) * theta;
    }
    return 0.1 * log(factor) + 1;
}

#endif
