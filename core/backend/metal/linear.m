/* linear.m - launches of matrix products. Owns nothing. */
#include "core/backend/metal/metal_int.h"

int metal_linear_scratch(struct metal_backend *m, const struct backend_config *c, err *e) {
    (void)m, (void)c, (void)e;
    return 0;
}

int metal_linear(backend *be, const struct op_linear *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}
