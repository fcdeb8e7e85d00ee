/* attention.m - launches of paged attention. Owns nothing. */
#include "core/backend/metal/metal_int.h"

int metal_attention_scratch(struct metal_backend *m, const struct backend_config *c, err *e) {
    (void)m, (void)c, (void)e;
    return 0;
}

int metal_paged_attention(backend *be, const struct op_paged_attention *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}
