/* sampling.c - checks sampling parameters against the bounds of their rows. Any thread. */
#include "core/base/sampling.h"

#include <stdbool.h>
#include <stddef.h>

/* A value as the check sees it. Bounds are compared as floats: 0.01 is what a float makes of it. */
struct bounded {
    const char *name;
    double value, least, most;
    bool above; /* the least value is excluded */
};

#define FLOAT_REAL(v)  ((double)(float)(v))
#define FLOAT_ABOVE(v) ((double)(float)(v))
#define FLOAT_COUNT(v) ((double)(v))
#define IS_ABOVE_REAL  false
#define IS_ABOVE_ABOVE true
#define IS_ABOVE_COUNT false
#define BOUNDED(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                       \
    {#NAME, (double)s->NAME, FLOAT_##KIND(LEAST), FLOAT_##KIND(MOST), IS_ABOVE_##KIND},

int sampling_check(const struct sampling *s, err *e) {
    const struct bounded all[] = {SAMPLING_ROWS(BOUNDED, )};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct bounded *b = &all[i];
        bool low_enough = b->value <= b->most; /* NaN fails */
        if (low_enough && (b->above ? b->value > b->least : b->value >= b->least)) continue;
        return err_set_param(e, ERR_INVALID, b->name, "%s must be %s%g and at most %g", b->name,
                             b->above ? "greater than " : "at least ", b->least, b->most);
    }
    return 0;
}
