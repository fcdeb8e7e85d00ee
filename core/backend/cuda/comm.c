/* comm.c - groups of CUDA devices: one process, with an NCCL communicator and a thread for each
 * device. Owns the communicators. NCCL is loaded at run time.
 *
 * ORDER OF SUMS. NCCL's own reductions add in an order that depends on sizes and links. So ranks
 * only gather, and each adds the gathered parts in the order of the ranks (shaders/cuda/comm.cu).
 *
 * An exchange is enqueued like a kernel and may be captured into a CUDA graph; it waits on the
 * device. Breaking a group aborts the communicators, which ends the exchanges that wait on a
 * device. A rank's mutex is held during its call into NCCL, so that a communicator is not aborted
 * during a call; such a call does not wait for other ranks, because connections are made when the
 * group is. An abort sets its flag at once but returns only when no graph holds the communicator
 * any more, so it runs in a thread of its own.
 *
 * The ranks' threads enqueue in step. A rank far ahead of the others could fill the driver's queue
 * and block there, because its device waits for theirs, while holding a lock that they need. */
#include "core/backend/cuda/ops_int.h"

#if defined(__has_include)
#if __has_include(<nccl.h>)
#define HAVE_NCCL
#endif
#endif

uint64_t cuda_exchange_bytes(const backend *be, uint32_t n_rows, uint32_t n_cols) {
    return (uint64_t)be->n_ranks * n_rows * n_cols * sizeof(float);
}

#ifdef HAVE_NCCL
#include "core/base/log.h"
#include "core/base/mem.h"
#include "shaders/cuda/kernels.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum {
    THREADS = 256,
    MIN_VERSION = 21000, /* 2.10: captures of several threads */
    MOST_AHEAD = 8       /* most exchanges that a rank may be ahead of another */
};

/* The functions used of the library. */
#define FUNCTIONS(X)                                                                               \
    X(ncclGetVersion)                                                                              \
    X(ncclGetErrorString)                                                                          \
    X(ncclCommInitAll)                                                                             \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclAllGather)

struct cuda_group {
#define MEMBER(name) __typeof__(&(name)) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    uint32_t n;
    atomic_bool broken;
    /* Held while a rank calls NCCL, or while its communicator is taken away for an abort. */
    pthread_mutex_t mutex[BACKEND_MAX_RANKS];
    ncclComm_t comms[BACKEND_MAX_RANKS]; /* NULL: none, or aborted */
    struct aborter {
        struct cuda_group *group;
        ncclComm_t comm;
        pthread_t thread;
        bool runs;
    } aborters[BACKEND_MAX_RANKS];
    atomic_uint_fast64_t n_exchanges[BACKEND_MAX_RANKS]; /* that a rank has begun to enqueue */
};

#ifdef INFERD_CUDA_STANDIN
static bool load_nccl(struct cuda_group *g) {
#define FIND(name) g->name = name;
    FUNCTIONS(FIND)
#undef FIND
    return true;
}
#else
/* Stays loaded for the life of the process, because it has threads of its own. */
static bool load_nccl(struct cuda_group *g) {
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
#define FIND(name)                                                                                 \
    *(void **)(&g->name) = dlsym(library, #name);                                                  \
    if (!g->name) return false;
    FUNCTIONS(FIND)
#undef FIND
    return true;
}
#endif

static int nccl_fail(struct cuda_backend *c, const char *what, ncclResult_t rc) {
    if (c->failed.code) return c->failed.code;
    return err_set(&c->failed, ERR_DEVICE, "the CUDA device failed: %s: NCCL: %s", what,
                   c->group->ncclGetErrorString(rc));
}

/* ---- exchanges ---- */

/* Waits until no rank is far behind, and polls the device meanwhile. false: the group is broken. */
static bool keep_step(const struct cuda_backend *c, struct cuda_group *g, uint32_t rank) {
    uint64_t own = atomic_fetch_add(&g->n_exchanges[rank], 1) + 1;
    for (uint32_t r = 0; r < g->n; r++)
        while (atomic_load(&g->n_exchanges[r]) + MOST_AHEAD < own) {
            if (atomic_load(&g->broken)) return false;
            if (!c->capturing) cudaStreamQuery(c->stream);
            sched_yield();
        }
    return true;
}

/* parts (n_ranks, n) = x (n) of each rank. */
static int gather_parts(struct cuda_backend *c, const float *x, float *parts, uint64_t n) {
    struct cuda_group *g = c->group;
    uint32_t rank = c->base.rank;
    ncclResult_t rc = ncclSuccess;
    if (c->failed.code) return c->failed.code;
    cuda_enter(c);
    bool intact = keep_step(c, g, rank);
    pthread_mutex_lock(&g->mutex[rank]);
    intact = intact && g->comms[rank];
    if (intact) rc = g->ncclAllGather(x, parts, n, ncclFloat32, g->comms[rank], c->stream);
    pthread_mutex_unlock(&g->mutex[rank]);
    if (!intact) return err_set(&c->failed, ERR_DEVICE, "another rank of the group failed");
    if (rc) return nccl_fail(c, "an exchange", rc);
    cuda_count(c, &(struct cuda_launch){.kernel = (const void *)g,
                                        .name = "nccl_all_gather",
                                        .read = n * sizeof *x,
                                        .written = g->n * n * sizeof *x});
    return 0;
}

int cuda_all_reduce(backend *be, const struct op_all_reduce *a) {
    struct cuda_backend *c = cuda_of(be);
    const struct cargs_sum_parts args = {.parts = cuda_at(a->work),
                                         .out = cuda_at(a->x),
                                         .n = (uint64_t)a->n_rows * a->n_cols,
                                         .n_parts = be->n_ranks};
    int rc = gather_parts(c, cuda_at(a->x), cuda_at(a->work), args.n);
    if (rc) return rc;
    return cuda_launch(
        c, &(struct cuda_launch){.kernel = cuda_sum_parts_kernel(),
                                 .name = "sum_parts",
                                 .args = &args,
                                 .args_bytes = sizeof args,
                                 .grid = {cuda_div_up(args.n, THREADS * CUDA_SUM_VALUES)},
                                 .threads = THREADS,
                                 .read = be->n_ranks * args.n * sizeof(float),
                                 .written = args.n * sizeof(float),
                                 .no_overlap = true});
}

int cuda_all_gather(backend *be, const struct op_all_gather *a) {
    struct cuda_backend *c = cuda_of(be);
    uint32_t share = backend_share(a->n_cols, be->n_ranks);
    const struct cargs_join_parts args = {.parts = cuda_at(a->work),
                                          .out = cuda_at(a->out),
                                          .stride = (uint64_t)a->n_rows * share,
                                          .n_rows = a->n_rows,
                                          .n_cols = a->n_cols,
                                          .share = share};
    uint64_t bytes = (uint64_t)a->n_rows * a->n_cols * sizeof(float);
    int rc = gather_parts(c, cuda_at(a->part), cuda_at(a->work), args.stride);
    if (rc || !a->out) return rc;
    return cuda_launch(c,
                       &(struct cuda_launch){.kernel = cuda_join_parts_kernel(),
                                             .name = "join_parts",
                                             .args = &args,
                                             .args_bytes = sizeof args,
                                             .grid = {cuda_div_up(a->n_cols, THREADS), a->n_rows},
                                             .threads = THREADS,
                                             .read = bytes,
                                             .written = bytes,
                                             .no_overlap = true});
}

/* ---- the group ---- */

/* Does one exchange, which makes the connections. */
static int connect_ranks(backend *const *ranks, struct cuda_group *g, err *e) {
    void *scratch[BACKEND_MAX_RANKS] = {NULL};
    ncclResult_t rc = ncclSuccess, ended = ncclSuccess;
    int failed = 0;
    for (uint32_t r = 0; r < g->n && !failed; r++)
        failed = cuda_memory_new(cuda_of(ranks[r]), (g->n + 1) * sizeof(float), &scratch[r], e);
    if (!failed) {
        rc = g->ncclGroupStart();
        for (uint32_t r = 0; r < g->n && !rc; r++) {
            struct cuda_backend *c = cuda_of(ranks[r]);
            cudaSetDevice(c->features.ordinal);
            rc = g->ncclAllGather((float *)scratch[r] + g->n, scratch[r], 1, ncclFloat32,
                                  g->comms[r], c->stream);
        }
        ended = g->ncclGroupEnd();
    }
    for (uint32_t r = 0; r < g->n; r++) {
        if (!failed && !rc && !ended) failed = cuda_sync(ranks[r], e);
        cuda_memory_free(cuda_of(ranks[r]), scratch[r], (g->n + 1) * sizeof(float));
    }
    if (failed || (!rc && !ended)) return failed;
    return err_set_param(e, ERR_DEVICE, "n_ranks", "the GPUs cannot exchange data: NCCL: %s",
                         g->ncclGetErrorString(rc ? rc : ended));
}

static int make_comms(backend *const *ranks, struct cuda_group *g, err *e) {
    int ordinals[BACKEND_MAX_RANKS], version = 0;
    for (uint32_t r = 0; r < g->n; r++)
        ordinals[r] = cuda_of(ranks[r])->features.ordinal;
    ncclResult_t rc = g->ncclGetVersion(&version);
    if (rc || version < MIN_VERSION)
        return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                             "n_ranks above 1 needs NCCL 2.10 (21000) or newer; found %d", version);
    rc = g->ncclCommInitAll(g->comms, (int)g->n, ordinals);
    if (rc)
        return err_set_param(e, ERR_DEVICE, "n_ranks",
                             "NCCL cannot connect %u GPUs: %s (set NCCL_DEBUG=INFO for details)",
                             g->n, g->ncclGetErrorString(rc));
    log_info("cuda: %u GPUs connected by NCCL %d", g->n, version);
    return connect_ranks(ranks, g, e);
}

int cuda_group_join(backend *const *ranks, uint32_t n, err *e) {
    struct cuda_group *g = mem_new(1, sizeof *g);
    if (!g) return err_no_memory(e);
    g->n = n;
    if (!load_nccl(g)) {
        free(g);
        return err_set_param(
            e, ERR_UNSUPPORTED, "n_ranks",
            "n_ranks above 1 with backend cuda needs NCCL, but libnccl.so.2 is not "
            "found; install it");
    }
    for (uint32_t r = 0; r < n; r++) {
        pthread_mutex_init(&g->mutex[r], NULL);
        cuda_of(ranks[r])->group = g;
        cuda_of(ranks[r])->group_broken = &g->broken;
    }
    int rc = make_comms(ranks, g, e);
    if (rc) cuda_group_part(ranks[0]);
    return rc;
}

static void *abort_main(void *arg) {
    struct aborter *a = arg;
    a->group->ncclCommAbort(a->comm);
    return NULL;
}

/* NCCL waits for the CUDA graphs that hold its kernels, so these go first. */
void cuda_group_part(backend *be) {
    struct cuda_group *g = cuda_of(be)->group;
    for (uint32_t r = 0; r < be->n_ranks; r++) {
        struct cuda_backend *c = cuda_of(be->peers[r]);
        cudaSetDevice(c->features.ordinal);
        cudaStreamSynchronize(c->stream);
        cuda_graphs_free(c);
    }
    for (uint32_t r = 0; r < g->n; r++) {
        if (g->comms[r]) g->ncclCommDestroy(g->comms[r]);
        if (g->aborters[r].runs) pthread_join(g->aborters[r].thread, NULL);
        pthread_mutex_destroy(&g->mutex[r]);
    }
    for (uint32_t r = 0; r < be->n_ranks; r++) {
        cuda_of(be->peers[r])->group = NULL;
        cuda_of(be->peers[r])->group_broken = NULL;
    }
    free(g);
}

void cuda_group_break(backend *be) {
    struct cuda_group *g = cuda_of(be)->group;
    if (atomic_exchange(&g->broken, true)) return;
    for (uint32_t r = 0; r < g->n; r++) {
        struct aborter *a = &g->aborters[r];
        pthread_mutex_lock(&g->mutex[r]);
        *a = (struct aborter){.group = g, .comm = g->comms[r]};
        g->comms[r] = NULL;
        pthread_mutex_unlock(&g->mutex[r]);
        if (!a->comm) continue;
        a->runs = pthread_create(&a->thread, NULL, abort_main, a) == 0;
        if (!a->runs) abort_main(a);
    }
}

#else /* no nccl.h */

int cuda_group_join(backend *const *ranks, uint32_t n, err *e) {
    (void)ranks, (void)n;
    return err_set_param(
        e, ERR_UNSUPPORTED, "n_ranks",
        "n_ranks above 1 with backend cuda needs a build with NCCL; this one found no nccl.h");
}

void cuda_group_part(backend *be) {
    (void)be;
}

void cuda_group_break(backend *be) {
    (void)be;
}

int cuda_all_reduce(backend *be, const struct op_all_reduce *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}

int cuda_all_gather(backend *be, const struct op_all_gather *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}

#endif
