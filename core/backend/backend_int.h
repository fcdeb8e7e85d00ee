/* backend_int.h - what a device implements: an op table, and the heads of its objects.
 *
 * backend.c checks shapes, types and sizes, then calls the table; a device may rely on them. What
 * only a device can check (ids, slots and block numbers inside its buffers) it checks itself where
 * that memory is readable. Device structs begin with the heads below. */
#ifndef INFERD_BACKEND_INT_H
#define INFERD_BACKEND_INT_H

#include "core/backend/backend.h"

#include <stdatomic.h>

enum { BACKEND_MAX_EXPERTS = 1024 };

struct backend_vtable {
    void (*close)(backend *be);
    int (*buf_new)(backend *be, uint64_t bytes, backend_buf **out, err *e);
    void (*buf_free)(backend_buf *buf);
    int (*upload)(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                  err *e);
    int (*download)(backend *be, const backend_buf *src, uint64_t offset, void *dst, uint64_t bytes,
                    err *e);
    int (*weight_new)(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                      err *e);
    void (*weight_free)(backend_weight *w);
    int (*sync)(backend *be, err *e);
    /* What follows may be NULL: nothing to do, or not on this device. */
    int (*range_new)(backend *be, const void *base, uint64_t bytes, backend_range **out, err *e);
    void (*range_free)(backend_range *range);
    int (*flush)(backend *be, err *e);
    int (*upload_all)(backend *be, const struct backend_upload *list, uint32_t n, err *e);
    /* All of these or none. */
    int (*host_new)(backend *be, uint64_t bytes, void **out, err *e);
    void (*host_free)(backend *be, void *p);
    int (*download_later)(backend *be, const backend_buf *src, uint64_t offset, void *to,
                          uint64_t bytes, err *e);
    int (*mark)(backend *be, uint32_t mark, err *e);
    int (*wait)(backend *be, uint32_t mark, err *e);
    int (*copy_tokens)(backend *be, const struct op_copy_tokens *a);
    int (*update_history)(backend *be, const struct op_update_history *a);
    bool keeps_recorded; /* a recording stays, under its key */
    int (*record)(backend *be, uint64_t key, err *e);
    int (*record_end)(backend *be, err *e);
    int (*run_recorded)(backend *be, err *e);
    void (*drop_recorded)(backend *be);
    uint64_t (*allocated_bytes)(const backend *be);
    uint64_t (*memory_limit)(const backend *be);
    uint64_t (*memory_free)(const backend *be);
    int (*weight_size)(const struct backend_weight_desc *desc, uint64_t *bytes,
                       err *e); /* NULL: as in the file */
    int (*copy_bandwidth)(backend *be, double *bytes_per_s, err *e);
    bool (*kv_fits)(const struct backend_kv *kv);
    /* Makes a group of n backends that were opened as its ranks and know it; NULL: there are no
     * groups. part undoes it, of rank 0, while all are still open; a join that fails has undone
     * itself. */
    int (*join)(backend *const *ranks, uint32_t n, err *e);
    void (*part)(backend *be);
    void (*break_group)(backend *be);
    void (*place_thread)(const backend *be); /* or NULL: anywhere will do */
    uint64_t (*exchange_bytes)(const backend *be, uint32_t n_rows, uint32_t n_cols); /* or none */

    int (*embed)(backend *be, const struct op_embed *a);
    int (*linear)(backend *be, const struct op_linear *a);
    int (*norm)(backend *be, const struct op_norm *a);
    int (*moe)(backend *be, const struct op_moe *a);
    int (*rope_store)(backend *be, const struct op_rope_store *a);
    int (*paged_attention)(backend *be, const struct op_paged_attention *a);
    int (*store_attend)(backend *be, const struct op_rope_store *store,
                        const struct op_paged_attention *a); /* or NULL: one, then the other */
    int (*gather)(backend *be, const struct op_gather *a);
    int (*top)(backend *be, const struct op_top *a);
    int (*sample)(backend *be, const struct op_sample *a); /* or NULL */
    int (*linear_attention)(backend *be, const struct op_linear_attention *a);
    int (*kv_copy)(backend *be, const struct backend_kv *kv, const int32_t *pairs,
                   uint32_t n_pairs);
    int (*all_reduce)(backend *be, const struct op_all_reduce *a); /* of groups alone */
    int (*all_gather)(backend *be, const struct op_all_gather *a);
};

/* Filled by the device's open, read-only afterwards but for the counters. */
struct backend {
    const struct backend_vtable *vt;
    const char *name, *isa; /* static storage */
    int n_threads;
    uint32_t max_rows, max_cols;
    struct backend_moe_limits moe;
    struct backend_linear_limits linear_attention;
    uint32_t rank, n_ranks;            /* set by backend.c; n_ranks 0: alone */
    backend *peers[BACKEND_MAX_RANKS]; /* (n_ranks) */
    atomic_uint n_kernels;             /* may grow: a name is there before it is counted */
    const char *kernel_names[BACKEND_MAX_KERNELS]; /* valid as long as the backend */
    atomic_uint_fast64_t kernel_counts[BACKEND_MAX_KERNELS];
    atomic_uint_fast64_t kernel_read[BACKEND_MAX_KERNELS], kernel_written[BACKEND_MAX_KERNELS];
};

struct backend_buf {
    backend *be;
    uint64_t bytes;
    void *host; /* (bytes) or NULL when the host cannot see the memory */
};

struct backend_range {
    backend *be;
};

struct backend_weight {
    backend *be;
    int type;           /* enum qtype */
    unsigned use;       /* of enum backend_use */
    uint64_t n_experts; /* 0: a plain weight */
    uint64_t n_out, n_in;
    uint64_t bytes; /* of device memory beside the caller's data */
};

/* For devices that take linear attention chunk by chunk: they number the chunks of a step (task)
 * and have room for the sums (n_heads, head_dim, head_dim) f32 of some of them; a step with more
 * goes in passes, from one to the next through S in the slots. Room for 128 chunks of 32 heads of
 * 64 values: 4096 rows. */
enum { BACKEND_LINEAR_STATES = 64 << 20 };
/* Numbers for the chunks of n_seqs sequences. */
uint64_t backend_linear_tasks(uint64_t n_rows, uint64_t n_seqs, uint32_t head_dim);
uint32_t backend_linear_pass(const struct backend_linear_limits *l, uint32_t max_rows); /* tasks */
/* Of a pass; 0: there is no linear attention. */
uint64_t backend_linear_pass_bytes(const struct backend_linear_limits *l, uint32_t max_rows);

/* Any thread. */
static inline void backend_count_kernel(backend *be, uint32_t kernel) {
    atomic_fetch_add_explicit(&be->kernel_counts[kernel], 1, memory_order_relaxed);
}

/* Of a mixture's pairs of a row and an expert, tiles of up to tile_rows of one expert each: at most
 * so many of n_pairs, since every expert may have one that is not full. */
static inline uint32_t backend_moe_tiles(uint64_t n_pairs, uint64_t n_experts, uint32_t tile_rows) {
    uint64_t used = n_pairs < n_experts ? n_pairs : n_experts;
    return (uint32_t)((n_pairs - used) / tile_rows + used);
}

/* Devices of this build. */
int backend_cpu_open(const struct backend_config *config, backend **out, err *e);
int backend_cuda_open(const struct backend_config *config, backend **out, err *e);
#ifdef INFERD_METAL
int backend_metal_open(const struct backend_config *config, backend **out, err *e);
#endif

#endif
