/* msl_rt.h - executes compute grids of compiled Metal shaders on the CPU.
 *
 * The C interface between three parties: shader objects (a .metal source that tools/metalcc
 * compiled to a .so), the grid executor (this folder) and the stand-in Metal framework
 * (../framework), which loads the objects and calls the executor.
 *
 * A threadgroup runs on one worker thread; its threads are fibers that switch only at simdgroup
 * operations and barriers. In check mode the shader object is compiled with clang's ThreadSanitizer
 * instrumentation, whose hooks this folder implements: every access is checked for bounds,
 * initialisation, constness and races.
 *
 * THREAD SAFETY: msl_rt_run may be called on any thread; one grid runs at a time. Only shader code
 * may call the functions for shader code. */
#ifndef MSL_RT_H
#define MSL_RT_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
    MSL_MAX_BUF = 31,
    MSL_MAX_TG = 31,
    MSL_SIMD = 32, /* lanes of a simdgroup */
    MSL_MAX_THREADS = 1024,
    MSL_TG_BYTES = 32768,
    MSL_MAX_FC = 256
};

/* ---- reflection, emitted by tools/mslc.py into every shader object:
 *   const msl_kernel_desc msl_kernels[]; const unsigned msl_nkernels;
 *   const msl_fc_desc msl_fcs[]; const unsigned msl_nfcs; ---- */
enum msl_argkind { MSL_A_BUFFER = 1, MSL_A_TG = 2, MSL_A_BUILTIN = 3 };
typedef struct msl_arg_desc {
    uint8_t kind, index, is_ref; /* index: of the buffer or threadgroup slot */
    uint8_t is_const;            /* 0; 1: const; | 2: in the constant address space */
    uint32_t size;               /* sizeof(pointee) */
    const char *name;
} msl_arg_desc;
/* A threadgroup variable that a kernel declares. */
typedef struct msl_tg_var {
    const void *owner; /* msl_kernel_desc.function */
    uint32_t bytes;
    const struct msl_tg_var *next;
} msl_tg_var;
struct msl_launch;
typedef struct msl_kernel_desc {
    const char *name;
    void (*entry)(const struct msl_launch *);
    const msl_arg_desc *args;
    uint32_t nargs;
    const uint16_t *fc; /* indices of the function constants that it reaches */
    uint32_t nfc;
    uint32_t max_threads; /* [[max_total_threads_per_threadgroup(n)]] or 0 */
    const void *function;
    const msl_tg_var *const *tg_vars; /* of all kernels of the object */
} msl_kernel_desc;
/* Bytes of threadgroup memory that the kernel itself declares. */
static inline uint32_t msl_rt_static_tg_bytes(const msl_kernel_desc *k) {
    uint32_t bytes = 0;
    for (const msl_tg_var *v = *k->tg_vars; v; v = v->next)
        if (v->owner == k->function) bytes += (v->bytes + 15) & ~15u;
    return bytes;
}
typedef struct msl_fc_desc {
    uint16_t index;
    const char *name, *type;
} msl_fc_desc;

/* ---- arguments of an entry: one record per worker; tgpig is updated for each threadgroup ---- */
typedef struct msl_launch {
    void *buf[MSL_MAX_BUF];
    void *tg[MSL_MAX_TG];
    uint32_t tgpig[3], ntg[3], ntptg[3], dntptg[3], grid[3];
} msl_launch;
typedef struct msl_threadpos {
    uint32_t tpitg[3], tiitg, tiisg, sgitg, nsg;
    uint32_t tptg[3];
} msl_threadpos;
const msl_threadpos *msl_rt_pos(void);

/* ---- function constants: program-scope initialisers of a shader object read the values that are
 * set in the loading thread ---- */
typedef struct msl_fc_values {
    uint8_t set[MSL_MAX_FC];
    uint8_t type[MSL_MAX_FC];
    uint64_t val[MSL_MAX_FC];
} msl_fc_values;
const msl_fc_values *msl_rt_fc(void);
void msl_rt_set_fc(const msl_fc_values *values); /* NULL: none. The caller keeps them alive. */

/* ---- called by shader code (msl/include) ---- */
#ifdef __clang__ /* not to be moved into or out of a branch */
#define MSL_CONVERGENT __attribute__((convergent))
#else
#define MSL_CONVERGENT
#endif
/* op of a simdgroup matrix product; the headers number the others. */
enum { MSL_OP_MATRIX_PRODUCT = 42 };
typedef void (*msl_reduce_fn)(const void *slots, uint32_t mask, void *result);
/* Publishes sz (<= 64) bytes and waits for the live lanes of the simdgroup; returns the 32 slots
 * (stride 64 bytes). With fn, the last lane to arrive computes the result once and every lane gets
 * its address instead. mask: the lanes that took part. */
const void *msl_rt_simd(const void *in, uint32_t sz, msl_reduce_fn fn, uint32_t op, uint32_t line,
                        uint32_t *mask) MSL_CONVERGENT;
void msl_rt_barrier(uint32_t flags, uint32_t line) MSL_CONVERGENT;
void msl_rt_simd_barrier(uint32_t flags, uint32_t line) MSL_CONVERGENT;
/* The result r of fast::name(x, y). NaN and infinity, and angles beyond pi, are reported (check
 * mode) or make the result NaN; tanh is made of exp. With msl_opts.noise r is off by up to 2 ULP,
 * equally for equal bits. */
float msl_rt_fast(float r, float x, float y, const char *name);
/* Whether the terms of a simdgroup matrix product, and of simd_sum, are added as a tree instead of
 * a chain. */
int msl_rt_sum_tree(void); /* msl_opts.sum_tree */
/* Whether subnormal halves are zero. The same for a whole grid: a compiler may call it once. */
int msl_rt_flush_halves(void) __attribute__((const)); /* msl_opts.flush_halves */
/* Announces an atomic access of sz bytes (check builds). */
enum msl_atomic_kind { MSL_AT_LOAD = 1, MSL_AT_STORE = 2, MSL_AT_UPDATE = 3 };
void msl_rt_atomic(const volatile void *p, uint32_t sz, uint32_t kind, uint32_t line);
/* The threadgroup's copy of a variable. Every thread requests the same variables in the same
 * order. */
void *msl_rt_tgvar(uint32_t size, uint32_t align, uint32_t line);

/* ---- called by the framework ---- */
typedef struct msl_dispatch {
    const msl_kernel_desc *k;
    void *dlbase_lo, *dlbase_hi; /* the shader object's image */
    const char *path;            /* its file, for line numbers of reports */
    void *buf[MSL_MAX_BUF];
    size_t buflen[MSL_MAX_BUF];
    const char *buflabel[MSL_MAX_BUF]; /* or NULL */
    uint32_t tglen[MSL_MAX_TG];
    uint32_t ntg[3], ntptg[3];
    uint32_t grid[3]; /* threads (dispatchThreads:) or 0 */
} msl_dispatch;
typedef struct msl_opts {
    int workers; /* threads that run threadgroups; check mode uses one */
    int check;   /* the shader object is a check build */
    int shuffle; /* order of lanes, simdgroups, threadgroups: 0 ascending, 1 random, 2 descending */
    uint64_t seed;
    int sum_tree; /* order of sums in a simdgroup matrix product (and simd_sum): 0 a chain of fma
                     over k ascending, 1 the products in pairs, and pairs of pairs, 2 likewise
                     where a matrix has halves, else a chain */
    int flush_halves;     /* halves that as_type makes are zero if they are subnormal */
    uint64_t noise;       /* seed of fast math's deviations; 0: none */
    uint32_t watchdog_ms; /* CPU time of one threadgroup on a worker; 0: 20 s */
} msl_opts;
/* Returns 0, or the number of reports; err holds the first one. */
int msl_rt_run(const msl_dispatch *d, const msl_opts *o, char *err, size_t errlen);

typedef struct msl_stats {
    uint64_t switches, simd_ops, simd_barriers, matrix_products, barriers, threads, loads, stores;
} msl_stats;
extern msl_stats msl_rt_stats; /* totals over all runs */
#ifdef __cplusplus
}
#endif
#endif
