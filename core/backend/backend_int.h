/* backend_int.h - the interface of a device: its table of functions and the heads of its objects.
 *
 * backend.c and ops.c check shapes, types and sizes, then call the table; a device may rely on
 * that. Contents of buffers (ids, slots, block numbers) are checked by the device if the host can
 * read them. Structs of a device begin with the heads below. */
#ifndef INFERD_BACKEND_INT_H
#define INFERD_BACKEND_INT_H

#include "core/backend/ops.h"

#include <stdatomic.h>

enum { BACKEND_MAX_EXPERTS = 1024 };

#define BACKEND_OP_ENTRY(name, on_cpu, on_metal, on_cuda)                                          \
    int (*name)(backend * be, const struct op_##name *a);

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
    /* All functions below may be NULL: not needed or not available on this device. */
    int (*range_new)(backend *be, const void *base, uint64_t bytes, backend_range **out, err *e);
    void (*range_free)(backend_range *range);
    int (*flush)(backend *be, err *e);
    int (*recover)(backend *be, err *e); /* NULL: failures are final */
    void (*set_mode)(backend *be, enum backend_mode mode);
    int (*upload_all)(backend *be, const struct backend_upload *list, uint32_t n, err *e);
    /* Overlapping steps: all or none. */
    int (*host_new)(backend *be, uint64_t bytes, void **out, err *e);
    void (*host_free)(backend *be, void *p);
    int (*download_async)(backend *be, const backend_buf *src, uint64_t offset, void *to,
                          uint64_t bytes, err *e);
    int (*event_record)(backend *be, uint32_t event, err *e);
    int (*event_wait)(backend *be, uint32_t event, err *e);
    /* The side stream: all or none. */
    int (*side_open)(backend *be, uint64_t most_bytes, err *e);
    int (*side_begin)(backend *be, err *e);
    int (*side_out)(backend *be, const backend_buf *src, uint64_t offset, void *to, uint64_t bytes,
                    err *e);
    int (*side_in)(backend *be, backend_buf *dst, uint64_t offset, const void *from, uint64_t bytes,
                   err *e);
    int (*side_end)(backend *be, err *e);
    int (*side_done)(backend *be, uint64_t *n, err *e);
    int (*side_join)(backend *be, err *e);
    int (*side_wait)(backend *be, err *e);
    /* Captured steps: all or none. */
    bool watches;      /* weights with a watch */
    bool keeps_graphs; /* graphs are kept by their keys */
    int (*capture_begin)(backend *be, uint64_t key, err *e);
    int (*capture_end)(backend *be, err *e);
    int (*graph_launch)(backend *be, err *e);
    void (*graph_discard)(backend *be);
    uint64_t (*allocated_bytes)(const backend *be);
    uint64_t (*scratch_bytes)(const backend *be);
    uint64_t (*memory_limit)(const backend *be);
    uint64_t (*memory_free)(const backend *be);
    int (*weight_size)(const struct backend_weight_desc *desc, uint64_t *bytes,
                       err *e); /* NULL: the size in the file */
    int (*copy_bandwidth)(backend *be, double *bytes_per_s, err *e);
    bool (*fact_get)(const backend *be, uint32_t i, struct backend_fact *out);
    bool (*pipeline_get)(const backend *be, uint32_t i, struct backend_pipeline *out);
    bool (*kv_fits)(const struct backend_kv *kv);
    bool (*joins_shared)(const backend *be, const struct op_moe *a); /* NULL: never */
    bool links; /* ranks of several processes exchange through a link */
    /* Makes a group of n backends that were opened as its ranks of this process; NULL: no groups.
     * On failure it cleans up after itself. group_close undoes it, on rank 0, while all ranks are
     * still open. */
    int (*group_open)(backend *const *ranks, uint32_t n, err *e);
    void (*group_close)(backend *be);
    void (*group_break)(backend *be);
    void (*bind_thread)(const backend *be); /* NULL: threads need no place */
    uint64_t (*exchange_bytes)(const backend *be, uint32_t n_rows, uint32_t n_cols);
    /* backend_linear_sum of a group; NULL: linear, then all_reduce. */
    int (*linear_sum)(backend *be, const struct op_linear *a, backend_buf *work);

    BACKEND_OPS(BACKEND_OP_ENTRY, BACKEND_OP_ENTRY)
};
#undef BACKEND_OP_ENTRY

/* A device declares its ops with BACKEND_OPS(DECLARE, DECLARE) and fills its table with
 * BACKEND_OPS(ENTRY, ENTRY), where DECLARE(name, on_cpu, on_metal, on_cuda) is, on the CPU,
 * BACKEND_DECLARE_##on_cpu(cpu, name), and ENTRY likewise BACKEND_ENTRY_##on_cpu(cpu, name). */
#define BACKEND_DECLARE_yes(device, name)                                                          \
    int device##_##name(backend *be, const struct op_##name *a);
#define BACKEND_DECLARE_no(device, name)
#define BACKEND_DECLARE_parts(device, name)
#define BACKEND_ENTRY_yes(device, name) .name = device##_##name,
#define BACKEND_ENTRY_no(device, name)
#define BACKEND_ENTRY_parts(device, name) .name = backend_##name##_parts,

/* Filled by the device's open; afterwards only the counters change. */
struct backend {
    const struct backend_vtable *vt;
    const char *name, *isa; /* static storage */
    int n_threads;
    uint32_t max_rows, max_cols;
    struct backend_moe_limits moe;
    struct backend_head_limits heads;
    uint64_t n_batches;                /* backend.c's: ended, of a device without a side stream */
    uint32_t rank, n_ranks;            /* set by backend.c; n_ranks 0: no group */
    uint32_t n_local;                  /* likewise: ranks in this process; 0: no group */
    backend *peers[BACKEND_MAX_RANKS]; /* (n_local) */
    backend_link *link;                /* to the other ranks; NULL: all are in this process */
    const struct backend_link_calls *link_calls; /* with link */
    atomic_uint_fast64_t op_counts[BACKEND_N_OPS];
    atomic_uint n_kernels; /* may grow: a kernel's name is set before it is counted */
    const char *kernel_names[BACKEND_MAX_KERNELS]; /* valid as long as the backend */
    atomic_uint_fast64_t kernel_counts[BACKEND_MAX_KERNELS];
    atomic_uint_fast64_t kernel_read[BACKEND_MAX_KERNELS], kernel_written[BACKEND_MAX_KERNELS];
    atomic_uint_fast64_t kernel_hidden[BACKEND_MAX_KERNELS], kernel_cycles[BACKEND_MAX_KERNELS];
    atomic_uint_fast64_t kernel_ns[BACKEND_MAX_KERNELS];
};

struct backend_buf {
    backend *be;
    uint64_t bytes;
    void *host; /* (bytes), or NULL if the host cannot read the memory */
};

struct backend_range {
    backend *be;
};

struct backend_weight {
    backend *be;
    int type;           /* enum qtype */
    unsigned use;       /* enum backend_use */
    uint64_t n_experts; /* 0: a plain weight */
    uint64_t n_out, n_in;
    uint64_t bytes;             /* device memory besides the caller's data */
    struct backend_watch watch; /* sums NULL: none */
};

/* ---- counters; any thread ---- */

static inline void backend_count_kernel(backend *be, uint32_t kernel) {
    atomic_fetch_add_explicit(&be->kernel_counts[kernel], 1, memory_order_relaxed);
}

static inline void backend_count_op(backend *be, enum backend_op op) {
    atomic_fetch_add_explicit(&be->op_counts[op], 1, memory_order_relaxed);
}

/* ---- parts of ops ---- */

/* The parts by themselves, for tests. */
BACKEND_OPS(BACKEND_NO_CALL, BACKEND_OP_CALL)

/* store_attend as two ops, whose arguments are checked. */
static inline int backend_store_attend_parts(backend *be, const struct op_store_attend *a) {
    backend_count_op(be, BACKEND_OP_rope_store);
    int rc = be->vt->rope_store(be, &a->store);
    if (rc) return rc;
    backend_count_op(be, BACKEND_OP_paged_attention);
    return be->vt->paged_attention(be, &a->attend);
}

/* ---- tiles of a mixture of experts ---- */

/* Maximum number of tiles, of up to tile_rows pairs (row, expert) of one expert each, for n_pairs:
 * each expert may have one partial tile. */
static inline uint32_t backend_moe_tiles(uint64_t n_pairs, uint64_t n_experts, uint32_t tile_rows) {
    uint64_t used = n_pairs < n_experts ? n_pairs : n_experts;
    return (uint32_t)((n_pairs - used) / tile_rows + used);
}

/* ---- devices of this build ---- */

int backend_cpu_open(const struct backend_config *config, backend **out, err *e);
int backend_cuda_open(const struct backend_config *config, backend **out, err *e);
#ifdef INFERD_METAL
int backend_metal_open(const struct backend_config *config, backend **out, err *e);
#endif

#endif
