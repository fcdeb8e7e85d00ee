/* sim_nccl.c - NCCL for devices of the stand-in: an exchange is a host function in each stream,
 * which waits until all ranks have reached theirs. Streams with exchanges defer their work, so that
 * only a thread that waits for a stream waits for other ranks; asking whether it is done does not.
 * It releases the runtime's lock while it waits, so other threads' streams proceed. One thread per
 * rank, except between ncclGroupStart and ncclGroupEnd.
 *
 * Ranks that are processes (ncclCommInitRank) exchange through a file in memory that the
 * unique id names, in pieces: each rank writes one when all others have read its piece before. */
#include "include/nccl.h"
#include "sim_int.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 16, PIECE = 64 << 10 };

struct shared {
    atomic_uint joined;
    atomic_uint_fast64_t n_written[MAX_RANKS], n_read[MAX_RANKS];
    char pieces[MAX_RANKS][PIECE];
};

/* An exchange of one rank. */
struct part {
    struct part *next; /* of the group */
    ncclComm_t comm;
    cudaStream_t stream;
    const void *send;
    void *recv;
    size_t bytes;
    bool here; /* it has arrived, and waits for others in this round */
    unsigned round;
};
struct ncclComm {
    struct group *group;
    int rank, device;
};
struct group {
    struct group *next; /* aborted: kept, because streams may still reach its exchanges */
    int n, n_here, n_refs;
    unsigned round;
    atomic_bool aborted;
    struct shared *shared; /* with other processes; then comms[rank] alone is used */
    uint64_t n_pieces;     /* exchanged so far */
    struct ncclComm comms[MAX_RANKS];
    struct part *here[MAX_RANKS], *parts;
    pthread_cond_t changed;
};
static struct group *aborted;

static __thread int depth;
static __thread struct part *queued[MAX_RANKS];
static __thread int n_queued;

ncclResult_t ncclGetVersion(int *version) {
    *version = 22809;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t rc) {
    return rc == ncclSuccess           ? "no error"
           : rc == ncclInvalidArgument ? "invalid argument"
                                       : "unhandled cuda error";
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
    if (n < 1 || n > MAX_RANKS) return ncclInvalidArgument;
    struct group *g = calloc(1, sizeof *g);
    g->n = g->n_refs = n;
    pthread_cond_init(&g->changed, NULL);
    for (int i = 0; i < n; i++) {
        g->comms[i] = (struct ncclComm){g, i, devices[i]};
        comms[i] = &g->comms[i];
    }
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    int fd = memfd_create("cudasim-nccl", MFD_CLOEXEC); /* open as long as the process */
    if (fd < 0 || ftruncate(fd, sizeof(struct shared))) return ncclSystemError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", (int)getpid(), fd);
    return ncclSuccess;
}

static void nap(void) {
    nanosleep(&(struct timespec){0, 50000}, NULL);
}

/* Waits for all ranks, like NCCL. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank) {
    int device, fd = open(id.internal, O_RDWR | O_CLOEXEC);
    if (n < 1 || n > MAX_RANKS || rank < 0 || rank >= n) return ncclInvalidArgument;
    if (fd < 0) return ncclSystemError;
    void *at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) return ncclSystemError;
    struct group *g = calloc(1, sizeof *g);
    cudaGetDevice(&device);
    g->n = n;
    g->n_refs = 1;
    g->shared = at;
    pthread_cond_init(&g->changed, NULL);
    g->comms[rank] = (struct ncclComm){g, rank, device};
    atomic_fetch_add(&g->shared->joined, 1);
    while (atomic_load(&g->shared->joined) < (unsigned)n)
        nap();
    *comm = &g->comms[rank];
    return ncclSuccess;
}

/* Under the lock. */
static void drop(struct group *g) {
    if (--g->n_refs || g->aborted) return;
    while (g->parts) {
        struct part *p = g->parts;
        g->parts = p->next;
        free(p);
    }
    if (g->shared) munmap(g->shared, sizeof *g->shared);
    pthread_cond_destroy(&g->changed);
    free(g);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    sim_enter();
    drop(comm->group);
    sim_leave(cudaSuccess);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    struct group *g = comm->group;
    const bool was = atomic_exchange(&g->aborted, true); /* ends waiting, which has the lock */
    sim_enter();
    if (!was) {
        g->next = aborted;
        aborted = g;
    }
    pthread_cond_broadcast(&g->changed);
    sim_leave(cudaSuccess);
    return ncclCommDestroy(comm);
}

static void exchange(struct group *g) {
    for (int to = 0; to < g->n; to++)
        for (int from = 0; from < g->n; from++) {
            struct part *p = g->here[from];
            if (p->bytes != g->here[to]->bytes)
                cudasim_fail("ranks %d and %d of %d gather %zu and %zu bytes", from, to, g->n,
                             p->bytes, g->here[to]->bytes);
            memmove((char *)g->here[to]->recv + from * p->bytes, p->send, p->bytes);
        }
}

static bool wait_for(struct group *g, const atomic_uint_fast64_t *counts, uint64_t least) {
    for (int r = 0; r < g->n; r++)
        while (atomic_load(&counts[r]) < least) {
            if (g->aborted) return false;
            nap();
        }
    return true;
}

static void exchange_pieces(struct group *g, const struct part *p) {
    struct shared *s = g->shared;
    const int rank = p->comm->rank;
    for (size_t at = 0; at < p->bytes; at += PIECE) {
        const size_t n = p->bytes - at < PIECE ? p->bytes - at : PIECE;
        if (!wait_for(g, s->n_read, g->n_pieces)) return;
        memcpy(s->pieces[rank], (const char *)p->send + at, n);
        atomic_store(&s->n_written[rank], ++g->n_pieces);
        if (!wait_for(g, s->n_written, g->n_pieces)) return;
        for (int r = 0; r < g->n; r++)
            memcpy((char *)p->recv + (size_t)r * p->bytes + at, s->pieces[r], n);
        atomic_store(&s->n_read[rank], g->n_pieces);
    }
}

/* In stream order, under the lock. */
static void arrive(void *arg) {
    struct part *p = arg;
    struct group *g = p->comm->group;
    if (g->aborted) return;
    if (g->shared) {
        exchange_pieces(g, p);
        return;
    }
    if (!p->here) {
        p->round = g->round;
        g->here[p->comm->rank] = p;
        if (++g->n_here == g->n) {
            exchange(g);
            g->n_here = 0;
            g->round++;
            pthread_cond_broadcast(&g->changed);
            return;
        }
        p->here = true;
    }
    if (g->round == p->round && sim_stops_asking()) return;
    g->n_refs++;
    while (g->round == p->round && !g->aborted)
        sim_wait(&g->changed);
    p->here = false;
    drop(g);
}

ncclResult_t ncclGroupStart(void) {
    depth++;
    return ncclSuccess;
}

/* The exchanges that this thread has enqueued for a whole group. */
ncclResult_t ncclGroupEnd(void) {
    if (--depth || !n_queued) return ncclSuccess;
    struct group *g = queued[0]->comm->group;
    if (n_queued != g->n) cudasim_fail("%d of %d ranks in a group of calls", n_queued, g->n);
    for (int i = 0; i < n_queued; i++) {
        cudaSetDevice(queued[i]->comm->device);
        if (cudaStreamSynchronize(queued[i]->stream)) return ncclUnhandledCudaError;
    }
    sim_enter();
    for (int i = 0; i < n_queued; i++)
        g->here[queued[i]->comm->rank] = queued[i];
    exchange(g);
    n_queued = 0;
    sim_leave(cudaSuccess);
    return ncclSuccess;
}

static void check_range(const char *what, const void *p, size_t bytes) {
    uint64_t left;
    if (sim_where(p, &left) != SIM_DEVICE || left < bytes)
        cudasim_fail("ncclAllGather: %s of %zu bytes at %p is not in device memory", what, bytes,
                     p);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    if (type != ncclFloat32 || !comm) return ncclInvalidArgument;
    struct part *p = calloc(1, sizeof *p);
    struct group *g = comm->group;
    size_t bytes = count * sizeof(float);
    sim_enter();
    check_range("an input", send, bytes);
    check_range("an output", recv, bytes * (size_t)g->n);
    *p = (struct part){g->parts, comm, stream, send, recv, bytes, false, 0};
    g->parts = p;
    if (!depth) sim_stream_late(stream); /* no call waits for the others */
    sim_leave(cudaSuccess);
    if (depth) {
        queued[n_queued++] = p;
        return ncclSuccess;
    }
    return cudaLaunchHostFunc(stream, arrive, p) ? ncclUnhandledCudaError : ncclSuccess;
}
