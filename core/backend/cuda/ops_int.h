/* ops_int.h - the ops of the vtable, weights and groups of devices. Each op allocates its scratch
 * when the device is opened. */
#ifndef INFERD_CUDA_OPS_INT_H
#define INFERD_CUDA_OPS_INT_H

#include "core/backend/cuda/gemm_int.h"

/* ---- weights.c ---- */
int cuda_weights_open(struct cuda_backend *c, err *e);
void cuda_weights_close(struct cuda_backend *c);
int cuda_weight_size(const struct backend_weight_desc *desc, uint64_t *bytes, err *e);
int cuda_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                    err *e);
void cuda_weight_free(backend_weight *w);

/* ---- comm.c: groups ---- */
int cuda_group_join(backend *const *ranks, uint32_t n, err *e);
void cuda_group_part(backend *be);
void cuda_group_break(backend *be);
uint64_t cuda_exchange_bytes(const backend *be, uint32_t n_rows, uint32_t n_cols);
int cuda_all_reduce(backend *be, const struct op_all_reduce *a);
int cuda_all_gather(backend *be, const struct op_all_gather *a);

/* ---- moe.c ---- */
int cuda_moe(backend *be, const struct op_moe *a);
int cuda_moe_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);

/* ---- attention ---- */
bool cuda_kv_fits(const struct backend_kv *kv); /* kv.c */
int cuda_kv_copy(backend *be, const struct backend_kv *kv, const int32_t *pairs, uint32_t n_pairs);
int cuda_rope_store(backend *be, const struct op_rope_store *a); /* rope_store.c */
/* Fills the arguments of rope and store, for cuda_store_attend. ERR_UNSUPPORTED: no kernel can
 * store into this cache. */
int cuda_rope_args(const struct op_rope_store *a, struct cargs_rope_store *args);
int cuda_paged_attention(backend *be, const struct op_paged_attention *a); /* attention.c */
int cuda_store_attend(backend *be, const struct op_rope_store *store,
                      const struct op_paged_attention *a); /* attention.c */
int cuda_attention_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);
int cuda_linear_attention(backend *be,
                          const struct op_linear_attention *a); /* linear_attention.c */
int cuda_linear_attention_scratch(struct cuda_backend *c, const struct backend_config *config,
                                  err *e);

/* ---- rows, top candidates, sampling ---- */
int cuda_embed(backend *be, const struct op_embed *a);             /* rows.c */
int cuda_gather(backend *be, const struct op_gather *a);           /* rows.c */
int cuda_copy_tokens(backend *be, const struct op_copy_tokens *a); /* rows.c */
int cuda_top(backend *be, const struct op_top *a);                 /* top.c */
int cuda_top_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);
int cuda_sample(backend *be, const struct op_sample *a);                 /* sample.c */
int cuda_update_history(backend *be, const struct op_update_history *a); /* sample.c */

#endif
