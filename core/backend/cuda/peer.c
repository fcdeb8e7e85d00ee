/* peer.c - exchanges of a group whose GPUs reach each other's memory: each rank writes its values
 * into the others' memory and adds up what it gets, in the order of the ranks
 * (shaders/cuda/comm.cu): in one kernel, or beside a product, which needs the multiprocessors, by
 * the copy engines. Owns a rank's places for the others' values and what is mapped of other
 * processes'. GPUs that do not reach each other have NCCL (comm.c).
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
    VALUES = 1 << 12, /* tests reach exchanges in pieces, too */
#else
    VALUES = 1 << 21,
#endif
    BLOCKS_OF_AN_SM = 2,
    BESIDE_VALUES = 1 << 24, /* three quarters of 2,048 rows of 4,096, on two ranks */
    BESIDE_SCALES = 4096,    /* of a rank's rows, with one more */
    MARKS_BYTES = 256
};

/* Between two exchanges of a set there must be another one (peer.cuh). Those outside of a graph
 * take turns. In a graph the first one has a set of its own, the others take turns: whatever ran
 * before the graph, or the same one, used another set. A graph has at least two (end_capture). */
enum { SET_EAGER = 0, SET_GRAPH = 2, SET_GRAPH_FIRST = 4, N_SETS = 5 };

/* Where things are in a rank's memory, in bytes from its beginning; first are the places of the
 * exchanges: (N_SETS, n_ranks, n_slots) f32. Beside products: (2, n_ranks) marks, (2, n_ranks,
 * BESIDE_SCALES) f32 and (2, n_ranks, n_beside) f32. */
struct layout {
    uint64_t beside_marks, beside_scales, beside_values, end;
    uint32_t n_slots, n_beside; /* values, of each rank, in each set */
};

static struct layout layout_of(uint32_t n_ranks) {
    struct layout l = {.n_slots = VALUES / n_ranks / 64 * 64,
                       .n_beside = BESIDE_VALUES / n_ranks / 64 * 64};
    l.beside_marks = (uint64_t)N_SETS * n_ranks * l.n_slots * sizeof(float);
    l.beside_scales = l.beside_marks + MARKS_BYTES;
    l.beside_values = l.beside_scales + (uint64_t)2 * n_ranks * BESIDE_SCALES * sizeof(float);
    l.end = l.beside_values + (uint64_t)2 * n_ranks * l.n_beside * sizeof(float);
    return l;
}

struct cuda_peer {
    void *memory[CUDA_MAX_PEERS]; /* of each rank; this rank's is its own */
    bool mapped[CUDA_MAX_PEERS];  /* of another process */
    struct layout at;
    uint32_t n_eager, n_beside; /* exchanges so far; the former only of those outside of graphs */
    uint32_t n_in_graph;        /* of capture number `capture` */
    uint64_t capture;
};

void cuda_peer_close(struct cuda_backend *c) {
    struct cuda_peer *p = c->peer;
    if (!p) return;
    c->peer = NULL;
    c->end_capture = NULL;
    cudaSetDevice(c->features.ordinal);
    for (uint32_t r = 0; r < CUDA_MAX_PEERS; r++)
        if (p->mapped[r]) cudaIpcCloseMemHandle(p->memory[r]);
    cuda_memory_free(c, p->memory[c->base.rank], p->at.end);
    free(p);
}

/* Allocates and empties what a rank has. false: there is no memory. */
static bool open_own(struct cuda_backend *c) {
    struct cuda_peer *p = c->peer = mem_new(1, sizeof *p);
    if (!p) return false;
    void **own = &p->memory[c->base.rank];
    p->at = layout_of(c->base.n_ranks);
    cudaSetDevice(c->features.ordinal);
    bool ok = !cuda_memory_new(c, p->at.end, own, NULL) &&
              !cudaMemsetAsync(*own, 0xff, p->at.beside_marks, c->stream) && /* CUDA_PEER_EMPTY */
              !cudaMemsetAsync((char *)*own + p->at.beside_marks, 0, MARKS_BYTES, c->stream) &&
              !cudaStreamSynchronize(c->stream);
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

/* ---- exchanges in one kernel ---- */

/* What lies `at` bytes after the beginning of a rank's memory. */
static void *place(const struct cuda_peer *p, uint32_t rank, uint64_t at) {
    return (char *)p->memory[rank] + at;
}

bool cuda_peer_takes(const struct cuda_backend *c) {
    return c->peer && c->force.exchange != CUDA_EXCHANGE_NCCL;
}

static uint32_t next_set(struct cuda_backend *c) {
    struct cuda_peer *p = c->peer;
    if (!c->capturing) return SET_EAGER + p->n_eager++ % 2;
    if (p->capture != c->n_captures) p->capture = c->n_captures, p->n_in_graph = 0;
    const uint32_t n = p->n_in_graph++;
    return n ? SET_GRAPH + n % 2 : SET_GRAPH_FIRST;
}

/* An exchange of x (n), at most n_slots, in a set of its own. */
static struct cargs_peer exchange_of(struct cuda_backend *c, const float *x, float *out,
                                     uint64_t n) {
    const struct cuda_peer *p = c->peer;
    struct cargs_peer a = {.x = x,
                           .out = out,
                           .stop = c->group_stop,
                           .n = (uint32_t)n,
                           .rank = c->base.rank,
                           .n_ranks = c->base.n_ranks};
    const uint64_t first = (uint64_t)next_set(c) * a.n_ranks;
    for (uint32_t r = 0; r < a.n_ranks; r++) {
        a.to[r] = (float *)p->memory[r] + (first + a.rank) * p->at.n_slots;
        a.from[r] = (float *)p->memory[a.rank] + (first + r) * p->at.n_slots;
    }
    return a;
}

/* Can all threads take four values at once? */
static bool is_whole(const float *x, uint64_t n) {
    return n % 4 == 0 && (uintptr_t)x % 16 == 0;
}

static int launch_exchange(struct cuda_backend *c, const struct cargs_peer *a, const void *kernel,
                           const char *name, bool fours) {
    const uint32_t most = (uint32_t)c->features.n_sms * BLOCKS_OF_AN_SM;
    const uint32_t blocks = cuda_div_up(a->n, CUDA_PEER_THREADS * (fours ? 4 : 1));
    const uint64_t bytes = (uint64_t)a->n * sizeof(float) * a->n_ranks;
    return cuda_launch(c, &(struct cuda_launch){.kernel = kernel,
                                                .name = name,
                                                .args = a,
                                                .args_bytes = sizeof *a,
                                                .grid = {blocks < most ? blocks : most},
                                                .threads = CUDA_PEER_THREADS,
                                                .read = bytes,
                                                .written = 2 * bytes});
}

static int launch_sum(struct cuda_backend *c, const struct cargs_peer *a) {
    const bool fours = is_whole(a->x, a->n);
    return launch_exchange(c, a, cuda_peer_sum_kernel(fours), "peer_sum", fours);
}

void cuda_peer_announce(struct cuda_backend *c, float *x, uint64_t n) {
    if (cuda_peer_takes(c) && n <= c->peer->at.n_slots) c->outgoing = exchange_of(c, x, x, n);
}

bool cuda_peer_defer(struct cuda_backend *c, float *x, uint64_t n) {
    if (c->stream == c->sums || n > c->peer->at.n_slots) return false;
    c->deferred = (struct cuda_deferred){c->outgoing, launch_sum};
    if (c->outgoing.x != x) c->deferred.args = exchange_of(c, x, x, n);
    c->outgoing.x = NULL;
    return true;
}

/* Adds a second exchange to a graph that has only one; its values are not read. */
static int end_capture(struct cuda_backend *c) {
    struct cuda_peer *p = c->peer;
    if (p->capture != c->n_captures || p->n_in_graph != 1) return 0;
    float *nothing = place(p, c->base.rank, p->at.beside_values);
    const struct cargs_peer args = exchange_of(c, nothing, nothing, 1);
    return launch_sum(c, &args);
}

/* ---- sums beside a product ---- */

void cuda_peer_announce_beside(struct cuda_backend *c, float *x, uint64_t n, uint32_t n_rows) {
    if (cuda_peer_takes(c) && is_whole(x, n) && n <= c->peer->at.n_beside && n_rows < BESIDE_SCALES)
        c->outgoing = (struct cargs_peer){.x = x, .out = x, .n = (uint32_t)n};
}

static int launch_beside(struct cuda_backend *c, const struct cargs_peer_beside *a,
                         const void *kernel, const char *name, uint32_t blocks) {
    const uint64_t bytes = blocks > 1 ? (uint64_t)a->n * sizeof(float) : 0;
    return cuda_launch(c, &(struct cuda_launch){.kernel = kernel,
                                                .name = name,
                                                .args = a,
                                                .args_bytes = sizeof *a,
                                                .grid = {blocks},
                                                .threads = CUDA_PEER_THREADS,
                                                .read = a->n_ranks * bytes,
                                                .written = bytes});
}

/* The next exchange beside a product, of x (n), in one of two sets. */
static struct cargs_peer_beside beside_of(struct cuda_backend *c, float *x, uint64_t n) {
    struct cuda_peer *p = c->peer;
    const struct cargs_peer *left = &c->outgoing; /* what the product left to do */
    const uint32_t rank = c->base.rank, n_ranks = c->base.n_ranks;
    const uint64_t first = (uint64_t)(p->n_beside % 2) * n_ranks;
    struct cargs_peer_beside a = {.x = x,
                                  .out = x,
                                  .stop = c->group_stop,
                                  .n = (uint32_t)n,
                                  .rank = rank,
                                  .n_ranks = n_ranks,
                                  .mark = p->n_beside++ | 0x80000000u};
    if (left->x == x && left->row_scale) {
        a.row_scale = left->row_scale;
        a.scale = left->scale;
        a.n_cols = left->n_cols;
        a.n_rows = (uint32_t)(n / left->n_cols);
    }
    for (uint32_t r = 0; r < n_ranks; r++) {
        const uint64_t ours = first + rank, theirs = first + r;
        uint32_t *marks[] = {place(p, r, p->at.beside_marks), place(p, rank, p->at.beside_marks)};
        float *scales[] = {place(p, r, p->at.beside_scales), place(p, rank, p->at.beside_scales)};
        const float *values = place(p, rank, p->at.beside_values);
        a.to[r] = marks[0] + ours;
        a.from[r] = marks[1] + theirs;
        a.to_scales[r] = scales[0] + ours * BESIDE_SCALES;
        a.scales[r] = scales[1] + theirs * BESIDE_SCALES;
        a.values[r] = values + theirs * p->at.n_beside;
    }
    return a;
}

static int sum_beside(struct cuda_backend *c, float *x, uint64_t n) {
    const struct cuda_peer *p = c->peer;
    const struct cargs_peer_beside a = beside_of(c, x, n);
    const float *values = place(p, a.rank, p->at.beside_values);
    const uint64_t ours = (uint64_t)(a.values[a.rank] - values);
    for (uint32_t r = 0; r < a.n_ranks; r++) {
        float *to = place(p, r, p->at.beside_values);
        if (r == a.rank) continue;
        cudaError_t rc =
            cudaMemcpyAsync(to + ours, x, n * sizeof(float), cudaMemcpyDeviceToDevice, c->stream);
        if (rc) return cuda_fail(c, "a copy to another GPU", rc);
    }
    c->after_other = true;
    int rc = launch_beside(c, &a, cuda_peer_meet_kernel(), "peer_meet", 1);
    return rc ? rc
              : launch_beside(c, &a, cuda_peer_add_kernel(), "peer_add",
                              cuda_div_up(n, 4 * CUDA_PEER_THREADS));
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
    for (uint32_t r = 0; r < n && ok; r++)
        cuda_of(ranks[r])->end_capture = end_capture;
    if (!rc)
        log_info("cuda: sums of the ranks %s",
                 ok ? "through the GPUs' memory" : "by NCCL: the GPUs do not reach each other");
    return rc;
}

int cuda_peer_sum(struct cuda_backend *c, float *x, uint64_t n) {
    const struct layout *at = &c->peer->at;
    const bool beside = c->stream == c->sums && is_whole(x, n);
    const uint64_t most = beside ? at->n_beside : at->n_slots;
    int rc = 0;
    for (uint64_t done = 0; done < n && !rc; done += most) {
        const uint64_t piece = n - done < most ? n - done : most;
        if (beside) {
            rc = sum_beside(c, x + done, piece);
            continue;
        }
        const struct cargs_peer args = exchange_of(c, x + done, x + done, piece);
        rc = launch_sum(c, &args);
    }
    return rc;
}

int cuda_peer_gather(struct cuda_backend *c, const float *x, float *out, uint32_t n_rows,
                     uint32_t n_cols) {
    const uint32_t share = backend_share(n_cols, c->base.n_ranks), most = c->peer->at.n_slots;
    const uint64_t n = (uint64_t)n_rows * share;
    const bool fours = n_cols % 4 == 0 && share % 4 == 0 && is_whole(x, n) && is_whole(out, 0);
    int rc = 0;
    for (uint64_t done = 0; done < n && !rc; done += most) {
        struct cargs_peer args = exchange_of(c, x + done, out, n - done < most ? n - done : most);
        args.first = (uint32_t)done;
        args.n_rows = n_rows;
        args.n_cols = n_cols;
        args.share = share;
        rc = launch_exchange(c, &args, cuda_peer_gather_kernel(fours), "peer_gather", fours);
    }
    return rc;
}
