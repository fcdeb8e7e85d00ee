/* peer.c - small exchanges of a group whose GPUs reach each other's memory: one kernel in which
 * each rank writes its values into the others' memory and adds up what it gets, in the order of the
 * ranks (shaders/cuda/comm.cu: peer). Owns a rank's slots and what is mapped of other processes'.
 * Larger exchanges, and GPUs that do not reach each other, are NCCL's (comm.c).
 *
 * Ranks of one process address each other's memory once peer access is on; ranks that are processes
 * of one machine map it by CUDA's handles. All ranks use it or none does. */
#include "core/backend/cuda/ops_int.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "shaders/cuda/kernels.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* From there on NCCL is faster: measured on two H100s and two H200s (README.md). */
    MOST_VALUES = 1 << 19,
    N_SLOTS = MOST_VALUES / 2, /* of each rank, in each of two sets */
    SLOT_BYTES = 16,
    STATE_BYTES = 256,   /* of struct cargs_peer_state, before the slots */
    BLOCKS_OF_AN_SM = 2, /* all of them run at once: comm.cu */
};

struct cuda_peer {
    void *memory; /* of this rank: its state, then its slots */
    uint64_t bytes;
    void *slots[CUDA_MAX_PEERS];  /* of each rank */
    void *mapped[CUDA_MAX_PEERS]; /* other processes' memory; NULL: none */
};

static uint64_t memory_bytes(uint32_t n_ranks) {
    return STATE_BYTES + (uint64_t)2 * n_ranks * N_SLOTS * SLOT_BYTES;
}

static void *slots_of(void *memory) {
    return (char *)memory + STATE_BYTES;
}

void cuda_peer_close(struct cuda_backend *c) {
    struct cuda_peer *p = c->peer;
    if (!p) return;
    c->peer = NULL;
    cudaSetDevice(c->features.ordinal);
    for (uint32_t r = 0; r < CUDA_MAX_PEERS; r++)
        if (p->mapped[r]) cudaIpcCloseMemHandle(p->mapped[r]);
    cuda_memory_free(c, p->memory, p->bytes);
    free(p);
}

/* Allocates and clears what a rank has. false: there is no memory. */
static bool open_own(struct cuda_backend *c) {
    struct cuda_peer *p = c->peer = mem_new(1, sizeof *p);
    if (!p) return false;
    p->bytes = memory_bytes(c->base.n_ranks);
    cudaSetDevice(c->features.ordinal);
    bool ok = !cuda_memory_new(c, p->bytes, &p->memory, NULL) &&
              !cudaMemsetAsync(p->memory, 0, p->bytes, c->stream) &&
              !cudaStreamSynchronize(c->stream);
    if (!ok) {
        cudaGetLastError();
        cuda_peer_close(c);
        return false;
    }
    p->slots[c->base.rank] = slots_of(p->memory);
    return true;
}

/* ---- ranks of one process ---- */

static bool reaches(const struct cuda_backend *c, const struct cuda_backend *other) {
    int can = 0;
    cudaSetDevice(c->features.ordinal);
    if (cudaDeviceCanAccessPeer(&can, c->features.ordinal, other->features.ordinal) || !can)
        return false;
    cudaError_t rc = cudaDeviceEnablePeerAccess(other->features.ordinal, 0);
    if (rc) cudaGetLastError();
    return !rc || rc == cudaErrorPeerAccessAlreadyEnabled;
}

static bool open_threads(backend *const *ranks, uint32_t n) {
#ifdef INFERD_CUDA_STANDIN
    return false; /* its devices take turns: a kernel cannot wait for another one's */
#endif
    bool ok = true;
    for (uint32_t r = 0; r < n && ok; r++) {
        for (uint32_t k = 0; k < n && ok; k++)
            ok = k == r || reaches(cuda_of(ranks[r]), cuda_of(ranks[k]));
        ok = ok && open_own(cuda_of(ranks[r]));
    }
    for (uint32_t r = 0; r < n && ok; r++)
        for (uint32_t k = 0; k < n; k++)
            cuda_of(ranks[r])->peer->slots[k] = slots_of(cuda_of(ranks[k])->peer->memory);
    return ok;
}

/* ---- ranks that are processes ---- */

/* What a process tells the others of its memory. */
struct offer {
    cudaIpcMemHandle_t handle;
    uint32_t ok;
};

static bool map_others(struct cuda_backend *c, const struct offer *all) {
    struct cuda_peer *p = c->peer;
    bool ok = true;
    for (uint32_t r = 0; r < c->base.n_ranks; r++)
        ok = ok && all[r].ok;
    for (uint32_t r = 0; r < c->base.n_ranks && ok; r++) {
        if (r == c->base.rank) continue;
        ok = !cudaIpcOpenMemHandle(&p->mapped[r], all[r].handle, cudaIpcMemLazyEnablePeerAccess);
        if (ok)
            p->slots[r] = slots_of(p->mapped[r]);
        else
            p->mapped[r] = NULL;
    }
    if (!ok) cudaGetLastError();
    return ok;
}

/* Two exchanges on the link: handles, then whether all could be mapped. */
static int open_processes(struct cuda_backend *c, bool *out, err *e) {
    const backend *be = &c->base;
    struct offer own, all[BACKEND_MAX_RANKS];
    uint32_t mapped, all_mapped[BACKEND_MAX_RANKS];
    memset(&own, 0, sizeof own);
    own.ok = open_own(c) && !cudaIpcGetMemHandle(&own.handle, c->peer->memory);
    if (!own.ok) cudaGetLastError();
    int rc = be->link_calls->gather(be->link, &own, sizeof own, all, e);
    if (rc) return rc;
    mapped = map_others(c, all);
    rc = be->link_calls->gather(be->link, &mapped, sizeof mapped, all_mapped, e);
    *out = !rc;
    for (uint32_t r = 0; r < be->n_ranks && *out; r++)
        *out = all_mapped[r];
    return rc;
}

/* ---- the calls ---- */

int cuda_peer_open(backend *const *ranks, uint32_t n, err *e) {
    const backend *be = ranks[0];
    const bool here = !be->link || be->link_calls->n_here(be->link) == be->n_ranks;
    bool ok = false;
    int rc = 0;
    if (be->n_ranks > CUDA_MAX_PEERS || !here) return 0;
    if (be->link)
        rc = open_processes(cuda_of(ranks[0]), &ok, e);
    else
        ok = open_threads(ranks, n);
    for (uint32_t r = 0; r < n && !ok; r++)
        cuda_peer_close(cuda_of(ranks[r]));
    if (!rc)
        log_info("cuda: exchanges of up to %u values: %s", MOST_VALUES,
                 ok ? "through the GPUs' memory"
                    : "NCCL's, since the GPUs cannot reach each other");
    return rc;
}

bool cuda_peer_takes(const struct cuda_backend *c, uint64_t n) {
    return c->peer && n <= MOST_VALUES;
}

int cuda_peer_exchange(struct cuda_backend *c, const float *x, float *out, uint64_t n, bool sums) {
    const struct cuda_peer *p = c->peer;
    const uint32_t n_ranks = c->base.n_ranks, most = (uint32_t)c->features.n_sms * BLOCKS_OF_AN_SM;
    const uint32_t blocks = cuda_div_up((n + 1) / 2, CUDA_PEER_THREADS);
    struct cargs_peer args = {.x = x,
                              .out = out,
                              .state = p->memory,
                              .stop = c->group_stop,
                              .n = (uint32_t)n,
                              .n_slots = N_SLOTS,
                              .rank = c->base.rank,
                              .n_ranks = n_ranks,
                              .sums = sums};
    for (uint32_t r = 0; r < n_ranks; r++)
        args.slots[r] = p->slots[r];
    return cuda_launch(c, &(struct cuda_launch){.kernel = cuda_peer_kernel(),
                                                .name = sums ? "peer_sum" : "peer_gather",
                                                .args = &args,
                                                .args_bytes = sizeof args,
                                                .grid = {blocks < most ? blocks : most},
                                                .threads = CUDA_PEER_THREADS,
                                                .read = 2 * n_ranks * n * sizeof *x,
                                                .written = 3 * n_ranks * n * sizeof *x});
}
