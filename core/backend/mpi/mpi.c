/* mpi.c - the module libinferd-mpi.so: ranks that exchange through MPI. All calls are non-blocking
 * and under one mutex (MPI_THREAD_SERIALIZED), so that waiting can end when another process dies,
 * and sleeps when it is long: MPI's own waiting spins. Owns MPI's state, of which a process has
 * one. */
#include "core/backend/link_module.h"

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

/* Waiting spins, then yields, then sleeps: the next step usually comes within a millisecond or two,
 * and a server may be idle for days. */
enum { SPIN_ROUNDS = 200 };
#define YIELD_NS UINT64_C(4000000)
#define IDLE_NS  UINT64_C(1000000000)
enum { NAP_NS = 50000, IDLE_NAP_NS = 1000000 };

static struct {
    pthread_mutex_t mutex; /* guards every call of MPI after open */
    MPI_Comm data, beats;
    int rank, n;
    uint8_t said;                        /* is being sent */
    uint8_t heard;                       /* is being received */
    MPI_Request sending[LINK_MAX_RANKS]; /* of beats */
    char text[MPI_MAX_ERROR_STRING + 1];
} mpi = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const char *describe(int rc) {
    int n = 0;
    if (rc == MPI_SUCCESS) return NULL;
    if (MPI_Error_string(rc, mpi.text, &n) != MPI_SUCCESS) return "MPI failed";
    mpi.text[n] = '\0';
    return mpi.text;
}

static const char *open_group(struct link_place *out) {
    int level, host;
    MPI_Comm here;
    int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (rc == MPI_SUCCESS && level < MPI_THREAD_SERIALIZED)
        return "this MPI does not support threads (MPI_THREAD_SERIALIZED)";
    if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_dup(MPI_COMM_WORLD, &mpi.data);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_dup(MPI_COMM_WORLD, &mpi.beats);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_rank(mpi.data, &mpi.rank);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_size(mpi.data, &mpi.n);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_split_type(mpi.data, MPI_COMM_TYPE_SHARED, mpi.rank, MPI_INFO_NULL, &here);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Allreduce(&mpi.rank, &host, 1, MPI_INT, MPI_MIN, here);
        MPI_Comm_free(&here);
    }
    if (rc != MPI_SUCCESS) return describe(rc);
    if (mpi.n > LINK_MAX_RANKS) return "too many processes: at most 16 ranks";
    for (int r = 0; r < mpi.n; r++)
        mpi.sending[r] = MPI_REQUEST_NULL;
    *out = (struct link_place){(uint32_t)mpi.rank, (uint32_t)mpi.n, (uint32_t)host};
    return NULL;
}

static void close_group(void) {
    pthread_mutex_lock(&mpi.mutex);
    MPI_Comm_free(&mpi.beats);
    MPI_Comm_free(&mpi.data);
    MPI_Finalize();
    pthread_mutex_unlock(&mpi.mutex);
}

/* ---- exchanges ---- */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wait_a_little(unsigned round, uint64_t *begin_ns) {
    if (round < SPIN_ROUNDS) return;
    uint64_t now = now_ns();
    if (!*begin_ns) *begin_ns = now;
    if (now - *begin_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    struct timespec nap = {0, now - *begin_ns < IDLE_NS ? NAP_NS : IDLE_NAP_NS};
    nanosleep(&nap, NULL);
}

static const char *wait_for_all(MPI_Request *requests, int n, MPI_Status *states,
                                const atomic_bool *broken) {
    uint64_t begin_ns = 0;
    for (unsigned round = 0;; round++) {
        int done = 0;
        pthread_mutex_lock(&mpi.mutex);
        int rc = MPI_Testall(n, requests, &done, states);
        const char *why = describe(rc);
        pthread_mutex_unlock(&mpi.mutex);
        if (why || done) return why;
        if (atomic_load(broken)) return "the group is broken";
        wait_a_little(round, &begin_ns);
    }
}

static const char *exchange(const struct backend_piece *pieces, uint32_t n, uint32_t *got,
                            const atomic_bool *broken) {
    MPI_Request requests[2 * BACKEND_MAX_PIECES];
    MPI_Status states[2 * BACKEND_MAX_PIECES];
    int n_requests = 0, rc = MPI_SUCCESS, count;
    pthread_mutex_lock(&mpi.mutex);
    for (uint32_t i = 0; i < n && rc == MPI_SUCCESS; i++)
        if (pieces[i].in_bytes)
            rc = MPI_Irecv(pieces[i].in, (int)pieces[i].in_bytes, MPI_BYTE, (int)pieces[i].rank, 0,
                           mpi.data, &requests[n_requests++]);
    for (uint32_t i = 0; i < n && rc == MPI_SUCCESS; i++)
        if (pieces[i].out_bytes)
            rc = MPI_Isend(pieces[i].out, (int)pieces[i].out_bytes, MPI_BYTE, (int)pieces[i].rank,
                           0, mpi.data, &requests[n_requests++]);
    const char *why = describe(rc);
    pthread_mutex_unlock(&mpi.mutex);
    if (!why) why = wait_for_all(requests, n_requests, states, broken);
    for (uint32_t i = 0, at = 0; i < n && !why; i++) {
        got[i] = 0;
        if (pieces[i].in_bytes && MPI_Get_count(&states[at++], MPI_BYTE, &count) == MPI_SUCCESS)
            got[i] = (uint32_t)count;
    }
    return why;
}

/* ---- beats ---- */

static int hear(int rank, uint64_t at_ns, struct link_heard *heard) {
    int there = 1, rc = MPI_SUCCESS;
    while (rc == MPI_SUCCESS && there) {
        rc = MPI_Iprobe(rank, 0, mpi.beats, &there, MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS || !there) break;
        rc = MPI_Recv(&mpi.heard, 1, MPI_BYTE, rank, 0, mpi.beats, MPI_STATUS_IGNORE);
        heard->at_ns[rank] = at_ns;
        heard->word[rank] = mpi.heard;
    }
    return rc;
}

static int say(int rank) {
    int done = 1, rc = MPI_Test(&mpi.sending[rank], &done, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS || !done) return rc;
    return MPI_Isend(&mpi.said, 1, MPI_BYTE, rank, 0, mpi.beats, &mpi.sending[rank]);
}

static const char *beat(uint8_t word, uint64_t at_ns, struct link_heard *heard) {
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&mpi.mutex);
    mpi.said = word;
    for (int r = 0; r < mpi.n && rc == MPI_SUCCESS; r++) {
        if (r == mpi.rank) continue;
        rc = say(r);
        if (rc == MPI_SUCCESS) rc = hear(r, at_ns, heard);
    }
    const char *why = describe(rc);
    pthread_mutex_unlock(&mpi.mutex);
    return why;
}

extern const struct link_module inferd_link_module;
__attribute__((visibility("default"))) const struct link_module inferd_link_module = {
    .abi = LINK_MODULE_ABI,
    .open = open_group,
    .close = close_group,
    .exchange = exchange,
    .beat = beat,
};
