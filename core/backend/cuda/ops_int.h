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
/* x (n) f32 = the ranks' x added in their order, in c->stream; work as in op_all_reduce. */
int cuda_sum_ranks(struct cuda_backend *c, float *x, float *work, uint64_t n);
uint64_t cuda_exchange_bytes(const backend *be, uint32_t n_rows, uint32_t n_cols);

/* ---- peer.c: exchanges through the ranks' memory ---- */

/* All ranks of a group at once: finds out whether they reach each other's memory. Only a failure of
 * the link is an error; without c->peer there are no such exchanges. */
int cuda_peer_open(backend *const *ranks, uint32_t n, err *e);
void cuda_peer_close(struct cuda_backend *c); /* nothing runs on the device */
/* Are exchanges done so? The same answer on all ranks. */
bool cuda_peer_takes(const struct cuda_backend *c);
/* x (n) = the ranks' x added in their order. 0 or ERR_DEVICE. */
int cuda_peer_sum(struct cuda_backend *c, float *x, uint64_t n);
/* As op_all_gather. 0 or ERR_DEVICE. */
int cuda_peer_gather(struct cuda_backend *c, const float *x, float *out, uint32_t n_rows,
                     uint32_t n_cols);
/* Before the product that makes x (n), whose sum comes next: its kernel may send x (c->outgoing),
 * if there is such an exchange. */
void cuda_peer_announce(struct cuda_backend *c, float *x, uint64_t n);
/* The same before a product of n_rows rows that makes x (n), whose sum runs beside the next one: it
 * may leave its scales to that (c->outgoing.row_scale). */
void cuda_peer_announce_beside(struct cuda_backend *c, float *x, uint64_t n, uint32_t n_rows);
/* Puts off the sum x (n) = the ranks' x added (c->deferred). false: it has too many values. */
bool cuda_peer_defer(struct cuda_backend *c, float *x, uint64_t n);

/* ---- overlap.c: backend_linear and backend_linear_sum ---- */
int cuda_linear_sum(backend *be, const struct op_linear *a, backend_buf *work);

/* ---- scratch of ops ---- */
int cuda_heads_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);
int cuda_moe_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);

bool cuda_joins_shared(const backend *be, const struct op_moe *a); /* moe.c */

/* ---- attention ---- */
bool cuda_kv_fits(const struct backend_kv *kv); /* kv.c */
/* Fills the arguments of rope and store, for cuda_store_attend. ERR_UNSUPPORTED: no kernel can
 * store into this cache. */
int cuda_rope_args(const struct op_rope_store *a, struct cargs_rope_store *args);
int cuda_attention_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);

int cuda_delta_scratch(struct cuda_backend *c, err *e);
int cuda_top_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);

#endif
