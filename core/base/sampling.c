/* sampling.c - checks sampling parameters against the bounds of their rows. Any thread. */
#include "core/base/sampling.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

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

#define TAKE_REAL(v)  (float)(v)
#define TAKE_ABOVE(v) (float)(v)
#define TAKE_COUNT(v) (v) < 0 ? 0 : (uint32_t)(v)
#define TAKE(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                          \
    if (strcmp(name, #NAME) == 0) {                                                                \
        whole = IS_WHOLE_##KIND;                                                                   \
        known = true;                                                                              \
        if (!whole || (value == floor(value) && value >= (LEAST) && value <= (MOST)))              \
            one.values.NAME = TAKE_##KIND(value), one.has.NAME = true;                             \
    }
#define IS_WHOLE_REAL  false
#define IS_WHOLE_ABOVE false
#define IS_WHOLE_COUNT true
#define KEEP(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                          \
    if (one.has.NAME) r->values.NAME = one.values.NAME, r->has.NAME = taken = true;

int sampling_recommend(struct sampling_recommended *r, const char *name, double value, err *e) {
    struct sampling_recommended one = {.values = sampling_default()};
    bool known = false, whole = false, taken = false;
    if (!(fabs(value) <= 1e9))
        return err_set_param(e, ERR_INVALID, name, "%s is out of bounds", name);
    SAMPLING_ROWS(TAKE, )
    if (!known) return err_set_param(e, ERR_INVALID, name, "%s is not a sampling parameter", name);
    int rc = sampling_check(&one.values, e);
    if (rc) return rc;
    SAMPLING_ROWS(KEEP, )
    if (taken) return 0;
    return err_set_param(e, ERR_INVALID, name, "%s must be a whole number of at least -1", name);
}
