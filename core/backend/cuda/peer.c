/* peer.c - exchanges of a group whose GPUs reach each other's memory: each rank writes its values
 * into the others' memory and adds up what it gets, in the order of the ranks
 * (shaders/cuda/comm.cu): in one kernel, or beside a product, which needs the multiprocessors, by
 * the copy engines. Owns a rank's places for the others' values and what is mapped of other
 * processes'. GPUs that do not reach each other, and large gathers, have NCCL (comm.c).
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
#ifdef INFERD_CUDA_STANDIN
    FEW_VALUES = 1 << 10, /* tests reach the other kernel, too */
#else
    FEW_VALUES = 1 << 18, /* from there on peer_many is as fast: tests/cuda/bench_exchange.c */
#endif
    FEW_SLOTS = FEW_VALUES / 2, /* of each rank, in each of two sets */
    FEW_SLOT_BYTES = 16,
    FEW_BLOCKS_OF_AN_SM = 2, /* all of them run at once: comm.cu */
    MANY_VALUES = 1 << 22,   /* of all ranks, in each set */
    BESIDE_VALUES = 1 << 23, /* likewise */
    STATE_BYTES = 256        /* of each of two struct cargs_peer_state */
};

/* Where things are in a rank's memory, in bytes from its beginning. */
struct layout {
    uint64_t few, marks, values, beside_marks, beside_values, end;
    uint32_t n_pieces; /* of peer_many, of each rank */
    uint32_t n_beside; /* values beside a product, of each rank */
};

static struct layout layout_of(uint32_t n_ranks) {
    struct layout l = {.few = 2 * STATE_BYTES};
    l.n_pieces = MANY_VALUES / CUDA_MANY_PIECE / n_ranks;
    l.marks = l.few + (uint64_t)2 * n_ranks * FEW_SLOTS * FEW_SLOT_BYTES;
    l.values = l.marks + ((uint64_t)2 * n_ranks * l.n_pieces * sizeof(uint32_t) + 255) / 256 * 256;
    l.beside_marks =
        l.values + (uint64_t)2 * n_ranks * l.n_pieces * CUDA_MANY_PIECE * sizeof(float);
    l.beside_values = l.beside_marks + STATE_BYTES;
    l.n_beside = BESIDE_VALUES / n_ranks / 64 * 64;
    l.end = l.beside_values + (uint64_t)2 * n_ranks * l.n_beside * sizeof(float);
    return l;
}

struct cuda_peer {
    void *memory[CUDA_MAX_PEERS]; /* of each rank; this rank's is its own */
    bool mapped[CUDA_MAX_PEERS];  /* of another process */
    struct layout at;
    uint32_t n_exchanges; /* beside products, so far */
};

void cuda_peer_close(struct cuda_backend *c) {
    struct cuda_peer *p = c->peer;
    if (!p) return;
    c->peer = NULL;
    cudaSetDevice(c->features.ordinal);
    for (uint32_t r = 0; r < CUDA_MAX_PEERS; r++)
        if (p->mapped[r]) cudaIpcCloseMemHandle(p->memory[r]);
    cuda_memory_free(c, p->memory[c->base.rank], p->at.end);
    free(p);
}

/* Allocates and clears what a rank has. false: there is no memory. */
static bool open_own(struct cuda_backend *c) {
    struct cuda_peer *p = c->peer = mem_new(1, sizeof *p);
    if (!p) return false;
    void **own = &p->memory[c->base.rank];
    p->at = layout_of(c->base.n_ranks);
    cudaSetDevice(c->features.ordinal);
    bool ok = !cuda_memory_new(c, p->at.end, own, NULL) &&
              !cudaMemsetAsync(*own, 0, p->at.end, c->stream) && !cudaStreamSynchronize(c->stream);
    if (!ok) {
        cudaGetLastError();
        cuda_peer_close(c);
        return false;
    }
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
            cuda_of(ranks[r])->peer->memory[k] = cuda_of(ranks[k])->peer->memory[k];
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
        ok = !cudaIpcOpenMemHandle(&p->memory[r], all[r].handle, cudaIpcMemLazyEnablePeerAccess);
        p->mapped[r] = ok;
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
    own.ok = open_own(c) && !cudaIpcGetMemHandle(&own.handle, c->peer->memory[be->rank]);
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
        log_info("cuda: sums of the ranks %s",
                 ok ? "through the GPUs' memory" : "by NCCL: the GPUs do not reach each other");
    return rc;
}

bool cuda_peer_takes(const struct cuda_backend *c, const float *x, uint64_t n, bool sums) {
    if (!c->peer || c->force.exchange == CUDA_EXCHANGE_NCCL) return false;
    return n <= FEW_VALUES || (sums && n % 4 == 0 && (uintptr_t)x % 16 == 0);
}

static void *place(const struct cuda_peer *p, uint32_t rank, uint64_t at) {
    return (char *)p->memory[rank] + at;
}

/* Where an exchange of few values has its slots. */
static void few_places(const struct cuda_peer *p, struct cargs_peer *a) {
    a->state = place(p, a->rank, 0);
    a->n_slots = FEW_SLOTS;
    for (uint32_t r = 0; r < a->n_ranks; r++)
        a->slots[r] = place(p, r, p->at.few);
}

static int launch_few(struct cuda_backend *c, const struct cargs_peer *a) {
    const uint32_t most = (uint32_t)c->features.n_sms * FEW_BLOCKS_OF_AN_SM;
    const uint32_t blocks = cuda_div_up(((uint64_t)a->n + 1) / 2, CUDA_FEW_THREADS);
    const uint64_t bytes = (uint64_t)a->n * sizeof(float) * a->n_ranks;
    return cuda_launch(c, &(struct cuda_launch){.kernel = cuda_peer_few_kernel(),
                                                .name = "peer_few",
                                                .args = a,
                                                .args_bytes = sizeof *a,
                                                .grid = {blocks < most ? blocks : most},
                                                .threads = CUDA_FEW_THREADS,
                                                .read = 2 * bytes,
                                                .written = 2 * bytes});
}

static int launch_many(struct cuda_backend *c, struct cargs_peer *a) {
    const struct cuda_peer *p = c->peer;
    const uint32_t pieces = cuda_div_up(a->n, CUDA_MANY_PIECE), most = (uint32_t)c->features.n_sms;
    const uint64_t bytes = (uint64_t)a->n * sizeof(float);
    a->state = place(p, a->rank, STATE_BYTES);
    a->n_slots = p->at.n_pieces;
    for (uint32_t r = 0; r < a->n_ranks; r++) {
        a->slots[r] = place(p, r, p->at.marks);
        a->values[r] = place(p, r, p->at.values);
    }
    return cuda_launch(c, &(struct cuda_launch){.kernel = cuda_peer_many_kernel(),
                                                .name = "peer_many",
                                                .args = a,
                                                .args_bytes = sizeof *a,
                                                .grid = {pieces < most ? pieces : most},
                                                .threads = CUDA_MANY_THREADS,
                                                .read = (a->n_ranks + 1) * bytes,
                                                .written = a->n_ranks * bytes});
}

static int launch_beside(struct cuda_backend *c, const struct cargs_peer *a, const void *kernel,
                         const char *name, uint32_t blocks, uint32_t threads) {
    const uint64_t bytes = blocks > 1 ? (uint64_t)a->n * sizeof(float) : 0;
    return cuda_launch(c, &(struct cuda_launch){.kernel = kernel,
                                                .name = name,
                                                .args = a,
                                                .args_bytes = sizeof *a,
                                                .grid = {blocks},
                                                .threads = threads,
                                                .read = a->n_ranks * bytes,
                                                .written = bytes});
}

static int sum_beside(struct cuda_backend *c, struct cargs_peer *a) {
    struct cuda_peer *p = c->peer;
    const uint64_t bytes = (uint64_t)a->n * sizeof(float);
    const uint32_t set = p->n_exchanges % 2;
    a->mark = p->n_exchanges++ | 0x80000000u;
    a->n_slots = p->at.n_beside;
    for (uint32_t r = 0; r < a->n_ranks; r++) {
        a->slots[r] = place(p, r, p->at.beside_marks);
        a->values[r] = place(p, r, p->at.beside_values);
        if (r == a->rank) continue;
        float *to = a->values[r] + ((uint64_t)set * a->n_ranks + a->rank) * a->n_slots;
        cudaError_t rc = cudaMemcpyAsync(to, a->x, bytes, cudaMemcpyDeviceToDevice, c->stream);
        if (rc) return cuda_fail(c, "a copy to another GPU", rc);
    }
    c->after_other = true;
    int rc = launch_beside(c, a, cuda_peer_mark_kernel(), "peer_mark", 1, CUDA_MAX_PEERS);
    if (!rc) rc = launch_beside(c, a, cuda_peer_wait_kernel(), "peer_wait", 1, CUDA_MAX_PEERS);
    if (rc) return rc;
    return launch_beside(c, a, cuda_peer_add_kernel(), "peer_add",
                         cuda_div_up(a->n, 4 * CUDA_FEW_THREADS), CUDA_FEW_THREADS);
}

static struct cargs_peer exchange_of(const struct cuda_backend *c, const float *x, float *out,
                                     uint64_t n, bool sums) {
    return (struct cargs_peer){.x = x,
                               .out = out,
                               .stop = c->group_stop,
                               .n = (uint32_t)n,
                               .rank = c->base.rank,
                               .n_ranks = c->base.n_ranks,
                               .sums = sums};
}

bool cuda_peer_defer(struct cuda_backend *c, float *x, uint64_t n) {
    if (n > FEW_VALUES || c->force.exchange || c->stream == c->sums) return false;
    struct cargs_peer args = exchange_of(c, x, x, n, true);
    few_places(c->peer, &args);
    c->deferred = (struct cuda_deferred){args, launch_few};
    return true;
}

int cuda_peer_exchange(struct cuda_backend *c, const float *x, float *out, uint64_t n, bool sums) {
    const struct layout *at = &c->peer->at;
    const bool few = n <= FEW_VALUES && c->force.exchange != CUDA_EXCHANGE_MANY;
    const bool beside = sums && c->stream == c->sums && n % 4 == 0;
    const uint64_t most = beside ? at->n_beside
                          : few  ? FEW_VALUES
                                 : (uint64_t)at->n_pieces * CUDA_MANY_PIECE;
    int rc = 0;
    for (uint64_t done = 0; done < n && !rc; done += most) {
        struct cargs_peer args =
            exchange_of(c, x + done, out + done, n - done < most ? n - done : most, sums);
        if (few) few_places(c->peer, &args);
        rc = beside ? sum_beside(c, &args) : few ? launch_few(c, &args) : launch_many(c, &args);
    }
    return rc;
}
