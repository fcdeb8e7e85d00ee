/* input.m - launches of what comes before a product: the residual's addition, norms. Owns nothing.
 */
#include "core/backend/metal/metal_int.h"

int metal_input(struct metal_backend *m, const struct op_input *in, uint32_t n_rows, uint32_t n_in,
                const backend_buf *out, struct metal_bind *rows) {
    (void)m, (void)in, (void)n_rows, (void)n_in, (void)out, (void)rows;
    return ERR_UNSUPPORTED;
}

int metal_norm(backend *be, const struct op_norm *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}
