/* linear_attention.m - launches of linear attention: chunk states, their scan, outputs. Owns
 * nothing.
 */
#include "core/backend/metal/metal_int.h"

int metal_linear_attention(backend *be, const struct op_linear_attention *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}
