/* delta_generic.c - the gated delta net in portable C: delta_kernel.h with one lane. */
#define LANES            1
#define NX               2
#define DELTA_NAME(name) generic_##name
typedef float vec;
#define load(p)          (*(p))
#define store(p, v)      (*(p) = (v))
#define splat(x)         (x)
#define mul(a, b)        ((a) * (b))
#define sub(a, b)        ((a) - (b))
#define exp_of(x)        expf(x)
#define mul_add(a, b, c) ((a) * (b) + (c))
#define sum_of(v)        (v)
#include "core/backend/cpu/delta/delta_kernel.h"
