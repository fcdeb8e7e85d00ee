/* mpi.c - the module libinferd-mpi.so: ranks that exchange through MPI. All calls are non-blocking
 * and under one mutex (MPI_THREAD_SERIALIZED), so that waiting can end when another process dies,
 * and sleeps when it is long: MPI's own waiting spins. Owns MPI's state, of which a process has
 * one. */
#include "core/backend/link_module.h"

#include <mpi.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

/* Waiting spins, then sleeps for longer and longer: ranks of idle machines are rarely apart by more
 * than the spinning; on busy ones who sleeps is run soon, and who yields is not; and a server may
 * be idle for days. */
static const struct {
    uint64_t until_ns; /* of waiting */
    long nap_ns;
} naps[] = {{50000, 0}, {20000000, 20000}, {1000000000, 100000}, {UINT64_MAX, 1000000}};
enum { TIMER_SLACK_NS = 1000 }; /* Linux adds 50000 to a sleep by default */

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

static const char *open_group(struct link_place *out, void **self) {
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
    *self = NULL;
    *out = (struct link_place){(uint32_t)mpi.rank, (uint32_t)mpi.n, (uint32_t)host};
    return NULL;
}

static void close_group(void *self, bool sound) {
    (void)self;
    if (!sound) return;
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

/* spin_ns: while data is on its way, which moves on when MPI is called, sleeping would stretch it.
 */
static void wait_a_little(uint64_t begin_ns, uint64_t spin_ns) {
    const uint64_t passed = now_ns() - begin_ns, waited = passed > spin_ns ? passed - spin_ns : 0;
    size_t i = 0;
    while (waited >= naps[i].until_ns)
        i++;
    if (!naps[i].nap_ns) return;
#if defined(__linux__)
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0); /* of this thread */
#endif
    nanosleep(&(struct timespec){0, naps[i].nap_ns}, NULL);
}

static const char *wait_for_all(MPI_Request *requests, int n, MPI_Status *states, uint64_t spin_ns,
                                const atomic_bool *broken) {
    const uint64_t begin_ns = now_ns();
    for (;;) {
        int done = 0;
        pthread_mutex_lock(&mpi.mutex);
        int rc = MPI_Testall(n, requests, &done, states);
        const char *why = describe(rc);
        pthread_mutex_unlock(&mpi.mutex);
        if (why || done) return why;
        if (atomic_load(broken)) return "the group is broken";
        wait_a_little(begin_ns, spin_ns);
    }
}

static const char *exchange(void *self, const struct backend_piece *pieces, uint32_t n,
                            uint32_t *got, const atomic_bool *broken) {
    (void)self;
    MPI_Request requests[2 * BACKEND_MAX_PIECES];
    MPI_Status states[2 * BACKEND_MAX_PIECES];
    int n_requests = 0, rc = MPI_SUCCESS, count;
    uint64_t bytes = 0; /* sent; one takes about a nanosecond */
    pthread_mutex_lock(&mpi.mutex);
    for (uint32_t i = 0; i < n && rc == MPI_SUCCESS; i++)
        if (pieces[i].in_bytes)
            rc = MPI_Irecv(pieces[i].in, (int)pieces[i].in_bytes, MPI_BYTE, (int)pieces[i].rank, 0,
                           mpi.data, &requests[n_requests++]);
    for (uint32_t i = 0; i < n && rc == MPI_SUCCESS; bytes += pieces[i++].out_bytes)
        if (pieces[i].out_bytes)
            rc = MPI_Isend(pieces[i].out, (int)pieces[i].out_bytes, MPI_BYTE, (int)pieces[i].rank,
                           0, mpi.data, &requests[n_requests++]);
    const char *why = describe(rc);
    pthread_mutex_unlock(&mpi.mutex);
    if (!why) why = wait_for_all(requests, n_requests, states, bytes, broken);
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

static const char *beat(void *self, uint8_t word, uint64_t at_ns, struct link_heard *heard) {
    (void)self;
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
