/* parts.c - while files of core/backend/cuda are still to come (NO_name): their ops refuse, so that
 * the others can be tested. To be deleted with its lines in standin.mk when all are there. */
#include "core/backend/cuda/cuda_int.h"

#define REFUSE(name, op)                                                                           \
    int name(backend *be, const struct op *a) {                                                    \
        (void)a;                                                                                   \
        return cuda_fail(cuda_of(be), #name " is not there yet", cudaErrorNotSupported);           \
    }
#define NO_SCRATCH(name)                                                                           \
    int name(struct cuda_backend *c, const struct backend_config *config, err *e) {                \
        (void)c, (void)config, (void)e;                                                            \
        return 0;                                                                                  \
    }

#ifdef NO_lt
int cuda_lt_open(struct cuda_backend *c, err *e) {
    (void)c, (void)e;
    return 0;
}
void cuda_lt_close(struct cuda_backend *c) {
    (void)c;
}
bool cuda_lt_product(struct cuda_backend *c, const struct cuda_lt_product *p) {
    (void)c, (void)p;
    return false;
}
#endif
#ifdef NO_linear
NO_SCRATCH(cuda_linear_scratch)
REFUSE(cuda_linear, op_linear)
int cuda_product(struct cuda_backend *c, const struct cuda_product *p) {
    (void)p;
    return cuda_fail(c, "cuda_product is not there yet", cudaErrorNotSupported);
}
#endif
#ifdef NO_large
NO_SCRATCH(cuda_large_scratch)
bool cuda_large_product(struct cuda_backend *c, const struct cuda_product *p, int *rc) {
    (void)c, (void)p, (void)rc;
    return false;
}
#endif
#ifdef NO_attention
NO_SCRATCH(cuda_attention_scratch)
REFUSE(cuda_paged_attention, op_paged_attention)
bool cuda_kv_fits(const struct backend_kv *kv) {
    (void)kv;
    return true;
}
#endif
#ifdef NO_moe
NO_SCRATCH(cuda_moe_scratch)
REFUSE(cuda_moe, op_moe)
#endif
#ifdef NO_top
NO_SCRATCH(cuda_top_scratch)
REFUSE(cuda_top, op_top)
#endif
#ifdef NO_linear_attention
NO_SCRATCH(cuda_linear_attention_scratch)
REFUSE(cuda_linear_attention, op_linear_attention)
#endif
#ifdef NO_rope_store
REFUSE(cuda_rope_store, op_rope_store)
#endif
#ifdef NO_input
REFUSE(cuda_norm, op_norm)
int cuda_input(struct cuda_backend *c, const struct op_input *in, uint32_t n_rows, uint32_t n_in,
               enum cuda_in kind, float *f32) {
    (void)in, (void)n_rows, (void)n_in, (void)kind, (void)f32;
    return cuda_fail(c, "cuda_input is not there yet", cudaErrorNotSupported);
}
#endif
#ifdef NO_weights
int cuda_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                    err *e) {
    (void)be, (void)desc;
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED, "cuda_weight_new is not there yet");
}
void cuda_weight_free(backend_weight *w) {
    (void)w;
}
#endif
