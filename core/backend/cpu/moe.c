/* moe.c - launches mixtures of experts. */
#include "core/backend/cpu/cpu_int.h"

int cpu_moe(backend *be, const struct op_moe *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}
