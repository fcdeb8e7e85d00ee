/* comm.c - groups of CUDA devices: an NCCL communicator for each device, whose ranks are threads of
 * one process, or processes that meet through a link. Owns the communicators, the streams of sums,
 * and with a link a thread that breaks the group when the link fails. NCCL is loaded at run time.
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
#include "core/base/thread.h"
#include "shaders/cuda/kernels.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    THREADS = 256,
    MIN_VERSION = 21000, /* 2.10: captures of several threads */
    MOST_AHEAD = 8,      /* most exchanges that a rank may be ahead of another */
    WATCH_MS = 50        /* how often a link is asked whether it has failed */
};

/* The functions used of the library. */
#define FUNCTIONS(X)                                                                               \
    X(ncclGetVersion)                                                                              \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitAll)                                                                             \
    X(ncclCommInitRank)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclAllGather)

struct cuda_group {
#define MEMBER(name) __typeof__(&(name)) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    uint32_t n, first, n_local; /* ranks; this process has first .. first + n_local - 1 */
    atomic_bool broken;
    uint32_t *stop;     /* pinned memory: 1 once broken, for kernels that wait */
    backend_link *link; /* NULL: all ranks are in this process */
    const struct backend_link_calls *calls;
    pthread_t watcher;      /* of the link */
    bool watching, meeting; /* meeting: processes have begun to connect */
    atomic_bool stopping;
    /* By rank of this process. Held while a rank calls NCCL, or while its communicator is taken
     * away for an abort. */
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

static uint32_t place_of(const struct cuda_backend *c) {
    return c->base.rank - c->group->first;
}

/* Waits until no rank of this process is far behind, and polls the device meanwhile. false: the
 * group is broken. */
static bool keep_step(const struct cuda_backend *c, struct cuda_group *g, uint32_t rank) {
    uint64_t own = atomic_fetch_add(&g->n_exchanges[rank], 1) + 1;
    for (uint32_t r = 0; r < g->n_local; r++)
        while (atomic_load(&g->n_exchanges[r]) + MOST_AHEAD < own) {
            if (atomic_load(&g->broken)) return false;
            if (!c->capturing) cudaStreamQuery(c->stream);
            sched_yield();
        }
    return true;
}

/* Before an exchange. ERR_DEVICE: the group is broken. */
static int begin_exchange(struct cuda_backend *c) {
    if (c->failed.code) return c->failed.code;
    cuda_enter(c);
    if (keep_step(c, c->group, place_of(c)) && !atomic_load(&c->group->broken)) return 0;
    return err_set(&c->failed, ERR_DEVICE, "another rank of the group failed");
}

/* parts (n_ranks, n) = x (n) of each rank, by NCCL. */
static int gather_nccl(struct cuda_backend *c, const float *x, float *parts, uint64_t n) {
    struct cuda_group *g = c->group;
    const uint32_t rank = place_of(c);
    ncclResult_t rc = ncclSuccess;
    pthread_mutex_lock(&g->mutex[rank]);
    const bool intact = g->comms[rank] != NULL;
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
    return cuda_sum_ranks(c, cuda_at(a->x), cuda_at(a->work), (uint64_t)a->n_rows * a->n_cols);
}

int cuda_sum_ranks(struct cuda_backend *c, float *x, float *work, uint64_t n) {
    const struct cargs_sum_parts args = {
        .parts = work, .out = x, .n = n, .n_parts = c->base.n_ranks};
    int rc = begin_exchange(c);
    if (!rc && cuda_peer_takes(c)) return cuda_peer_defer(c, x, n) ? 0 : cuda_peer_sum(c, x, n);
    if (!rc) rc = gather_nccl(c, x, work, n);
    if (rc) return rc;
    return cuda_launch(
        c, &(struct cuda_launch){.kernel = cuda_sum_parts_kernel(),
                                 .name = "sum_parts",
                                 .args = &args,
                                 .args_bytes = sizeof args,
                                 .grid = {cuda_div_up(args.n, THREADS * CUDA_SUM_VALUES)},
                                 .threads = THREADS,
                                 .read = args.n_parts * n * sizeof(float),
                                 .written = n * sizeof(float),
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
    int rc = begin_exchange(c);
    if (!rc && cuda_peer_takes(c))
        return cuda_peer_gather(c, cuda_at(a->part), cuda_at(a->out), a->n_rows, a->n_cols);
    if (!rc) rc = gather_nccl(c, cuda_at(a->part), cuda_at(a->work), args.stride);
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

/* The stream of sums beside products (overlap.c). */
static int open_sums(struct cuda_backend *c, err *e) {
    int least = 0, greatest = 0;
    cudaSetDevice(c->features.ordinal);
    cudaError_t rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    /* Its few blocks go before those of the product beside it. */
    if (!rc) rc = cudaStreamCreateWithPriority(&c->sums, cudaStreamNonBlocking, greatest);
    for (int i = 0; i < CUDA_OVERLAP_PARTS && !rc; i++) {
        rc = cudaEventCreateWithFlags(&c->made[i], cudaEventDisableTiming);
        if (!rc) rc = cudaEventCreateWithFlags(&c->summed[i], cudaEventDisableTiming);
    }
    return rc ? err_set(e, ERR_DEVICE, "cannot create a stream: %s", cudaGetErrorString(rc)) : 0;
}

static void close_sums(struct cuda_backend *c) {
    for (int i = 0; i < CUDA_OVERLAP_PARTS; i++) {
        if (c->made[i]) cudaEventDestroy(c->made[i]);
        if (c->summed[i]) cudaEventDestroy(c->summed[i]);
        c->made[i] = c->summed[i] = NULL;
    }
    if (c->sums) cudaStreamDestroy(c->sums);
    c->sums = NULL;
}

static int nccl_refuse(const struct cuda_group *g, const char *what, ncclResult_t rc, err *e) {
    return err_set_param(e, ERR_DEVICE, "n_ranks", "%s: NCCL: %s (set NCCL_DEBUG=INFO for details)",
                         what, g->ncclGetErrorString(rc));
}

/* Does one exchange, which makes the connections. */
static int connect_ranks(backend *const *ranks, struct cuda_group *g, err *e) {
    void *scratch[BACKEND_MAX_RANKS] = {NULL};
    ncclResult_t rc = ncclSuccess, ended = ncclSuccess;
    int failed = 0;
    for (uint32_t r = 0; r < g->n_local && !failed; r++)
        failed = cuda_memory_new(cuda_of(ranks[r]), (g->n + 1) * sizeof(float), &scratch[r], e);
    if (!failed) {
        if (!g->link) rc = g->ncclGroupStart();
        for (uint32_t r = 0; r < g->n_local && !rc; r++) {
            struct cuda_backend *c = cuda_of(ranks[r]);
            cudaSetDevice(c->features.ordinal);
            rc = g->ncclAllGather((float *)scratch[r] + g->n, scratch[r], 1, ncclFloat32,
                                  g->comms[r], c->stream);
        }
        if (!g->link) ended = g->ncclGroupEnd();
    }
    for (uint32_t r = 0; r < g->n_local; r++) {
        if (!failed && !rc && !ended) failed = cuda_sync(ranks[r], e);
        cuda_memory_free(cuda_of(ranks[r]), scratch[r], (g->n + 1) * sizeof(float));
    }
    if (failed || (!rc && !ended)) return failed;
    return nccl_refuse(g, "the GPUs cannot exchange data", rc ? rc : ended, e);
}

static int check_version(const struct cuda_group *g, int *version, err *e) {
    ncclResult_t rc = g->ncclGetVersion(version);
    if (!rc && *version >= MIN_VERSION) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                         "n_ranks above 1 needs NCCL 2.10 (21000) or newer; found %d", *version);
}

static int meet_threads(backend *const *ranks, struct cuda_group *g, err *e) {
    int ordinals[BACKEND_MAX_RANKS];
    for (uint32_t r = 0; r < g->n; r++)
        ordinals[r] = cuda_of(ranks[r])->features.ordinal;
    ncclResult_t rc = g->ncclCommInitAll(g->comms, (int)g->n, ordinals);
    return rc ? nccl_refuse(g, "the GPUs cannot be connected", rc, e) : 0;
}

/* A process's way into the communicator, which waits for all others: in a thread of its own,
 * because nothing but the end of the process ends it if another one hangs. */
struct meeting {
    __typeof__(&ncclCommInitRank) init;
    ncclUniqueId id;
    uint32_t n, rank;
    int ordinal;
    ncclComm_t comm; /* the thread's until done, like rc */
    ncclResult_t rc;
    atomic_bool done;
};

static void *meet_main(void *arg) {
    struct meeting *m = arg;
    m->rc = cudaSetDevice(m->ordinal) ? ncclUnhandledCudaError
                                      : m->init(&m->comm, (int)m->n, m->id, (int)m->rank);
    atomic_store(&m->done, true);
    return NULL;
}

static void nap(long ms) {
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

/* Rank 0's id of the group goes to all. A process that fails once it has begun to meet the others
 * makes the link fail, which ends their waiting. */
static int meet_processes(struct cuda_backend *c, struct cuda_group *g, int rc, err *e) {
    ncclUniqueId own, ids[BACKEND_MAX_RANKS];
    memset(&own, 0, sizeof own);
    ncclResult_t got = rc || g->first ? ncclSuccess : g->ncclGetUniqueId(&own);
    if (got) rc = nccl_refuse(g, "the processes' GPUs cannot be connected", got, e);
    rc = g->calls->agree(g->link, rc, e);
    if (!rc) rc = g->calls->gather(g->link, &own, sizeof own, ids, e);
    if (rc) return rc;
    g->meeting = true;
    struct meeting *m = mem_new(1, sizeof *m);
    if (!m) return err_no_memory(e);
    *m = (struct meeting){.init = g->ncclCommInitRank,
                          .id = ids[0],
                          .n = g->n,
                          .rank = g->first,
                          .ordinal = c->features.ordinal};
    pthread_t thread;
    if ((rc = thread_start(&thread, meet_main, m, "connects the GPUs", e))) {
        free(m);
        return rc;
    }
    while (!atomic_load(&m->done) && !rc) {
        nap(1);
        rc = g->calls->failed(g->link, e);
    }
    if (rc) {
        pthread_detach(thread); /* m is its own from now on; the process is about to end */
        return rc;
    }
    pthread_join(thread, NULL);
    g->comms[0] = m->comm;
    if (m->rc) rc = nccl_refuse(g, "the processes' GPUs cannot be connected", m->rc, e);
    free(m);
    return rc;
}

static void *watch_main(void *arg) {
    backend *be = arg;
    struct cuda_group *g = cuda_of(be)->group;
    while (!atomic_load(&g->stopping) && !g->calls->failed(g->link, NULL))
        nap(WATCH_MS);
    if (!atomic_load(&g->stopping)) cuda_group_break(be);
    return NULL;
}

static int make_comms(backend *const *ranks, struct cuda_group *g, int rc, err *e) {
    int version = 0;
    if (!rc) rc = check_version(g, &version, e);
    if (g->link)
        rc = meet_processes(cuda_of(ranks[0]), g, rc, e);
    else if (!rc)
        rc = meet_threads(ranks, g, e);
    if (rc) return rc;
    log_info("cuda: %u GPUs connected by NCCL %d", g->n, version);
    if (g->link) rc = thread_start(&g->watcher, watch_main, ranks[0], "watches the others", e);
    g->watching = g->link && !rc;
    if (!rc) rc = connect_ranks(ranks, g, e);
    for (uint32_t r = 0; r < g->n_local && !rc; r++)
        rc = open_sums(cuda_of(ranks[r]), e);
    return rc ? rc : cuda_peer_open(ranks, g->n_local, e);
}

int cuda_group_join(backend *const *ranks, uint32_t n, err *e) {
    struct cuda_group *g = mem_new(1, sizeof *g);
    int rc = 0;
    if (!g) {
        rc = err_no_memory(e);
        /* The others, which are processes, wait for this one's result. */
        return ranks[0]->link ? ranks[0]->link_calls->agree(ranks[0]->link, rc, e) : rc;
    }
    g->n = ranks[0]->n_ranks;
    g->first = ranks[0]->rank;
    g->n_local = n;
    g->link = ranks[0]->link;
    g->calls = ranks[0]->link_calls;
    if (!load_nccl(g))
        rc = err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                           "n_ranks above 1 with backend cuda needs NCCL, but libnccl.so.2 is not "
                           "found; install it");
    if (!rc && cudaHostAlloc((void **)&g->stop, sizeof *g->stop, cudaHostAllocPortable))
        rc = err_set(e, ERR_NOMEM, "cannot allocate pinned memory");
    if (g->stop) *g->stop = 0;
    for (uint32_t r = 0; r < n; r++) {
        pthread_mutex_init(&g->mutex[r], NULL);
        cuda_of(ranks[r])->group = g;
        cuda_of(ranks[r])->group_broken = &g->broken;
        cuda_of(ranks[r])->group_stop = g->stop;
    }
    rc = make_comms(ranks, g, rc, e);
    if (!rc) return 0;
    if (g->meeting) g->calls->fail(g->link, e ? e->msg : "the GPUs cannot be connected");
    cuda_group_part(ranks[0]);
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
    for (uint32_t r = 0; r < g->n_local; r++) {
        struct cuda_backend *c = cuda_of(be->peers[r]);
        cudaSetDevice(c->features.ordinal);
        cudaStreamSynchronize(c->stream);
        if (c->sums) cudaStreamSynchronize(c->sums);
        cuda_graphs_free(c);
    }
    atomic_store(&g->stopping, true);
    if (g->watching) pthread_join(g->watcher, NULL);
    for (uint32_t r = 0; r < g->n_local; r++)
        cuda_peer_close(cuda_of(be->peers[r]));
    for (uint32_t r = 0; r < g->n_local; r++)
        close_sums(cuda_of(be->peers[r]));
    for (uint32_t r = 0; r < g->n_local; r++) {
        if (g->comms[r]) g->ncclCommDestroy(g->comms[r]);
        if (g->aborters[r].runs) pthread_join(g->aborters[r].thread, NULL);
        pthread_mutex_destroy(&g->mutex[r]);
    }
    for (uint32_t r = 0; r < g->n_local; r++) {
        cuda_of(be->peers[r])->group = NULL;
        cuda_of(be->peers[r])->group_broken = NULL;
        cuda_of(be->peers[r])->group_stop = NULL;
    }
    if (g->stop) cudaFreeHost(g->stop);
    free(g);
}

void cuda_group_break(backend *be) {
    struct cuda_group *g = cuda_of(be)->group;
    if (atomic_exchange(&g->broken, true)) return;
    if (g->stop) __atomic_store_n(g->stop, 1, __ATOMIC_RELAXED);
    if (g->link) g->calls->fail(g->link, "a step failed on this rank");
    for (uint32_t r = 0; r < g->n_local; r++) {
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

int cuda_sum_ranks(struct cuda_backend *c, float *x, float *work, uint64_t n) {
    (void)c, (void)x, (void)work, (void)n;
    return ERR_UNSUPPORTED;
}

int cuda_all_gather(backend *be, const struct op_all_gather *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}

#endif
