/* moe.m - launches of a mixture of experts: routing, the experts' products, their sum. Owns
 * nothing.
 */
#include "core/backend/metal/metal_int.h"

int metal_moe_scratch(struct metal_backend *m, const struct backend_config *c, err *e) {
    (void)m, (void)c, (void)e;
    return 0;
}

int metal_moe(backend *be, const struct op_moe *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}
