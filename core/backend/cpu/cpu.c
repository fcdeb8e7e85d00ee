/* cpu.c - opens the CPU device: picks the instruction set, starts the pool, allocates all scratch
 * memory. Owns buffers (host memory). */
#include "core/backend/cpu/cpu_int.h"

#include "core/base/log.h"
#include "core/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_THREADS = 1024, MAPPED_BYTES = 1 << 20, HUGE_PAGE_BYTES = 2 << 20 };

static void close_backend(backend *be) {
    struct cpu_backend *c = cpu_of(be);
    pool_free(c->pool);
    cpu_rope_free(c->rope);
    cpu_attn_free(c->attn);
    cpu_heads_free(c->heads);
    cpu_moe_free(c->moe);
    cpu_linear_free(c->linear);
    free(c);
}

/* Commits every page now, as huge pages if the system has them. false: out of memory. */
static bool commit_pages(void *p, size_t bytes) {
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE); /* best effort */
#endif
#ifdef MADV_POPULATE_WRITE
    int rc;
    do
        rc = madvise(p, bytes, MADV_POPULATE_WRITE);
    while (rc && (errno == EINTR || errno == EAGAIN));
    if (!rc) return true;
    if (errno != EINVAL) return false;
#endif
    long page = sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i<bytes; i += page> 0 ? (size_t)page : 4096)
        ((volatile char *)p)[i] = 0;
    return true;
}

/* Maps memory at a multiple of the huge page size; otherwise the system uses small pages. */
static void *map_aligned(uint64_t bytes) {
    uint64_t all = bytes + HUGE_PAGE_BYTES, page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX - HUGE_PAGE_BYTES - page) return NULL;
    void *p = mmap(NULL, (size_t)all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (p == MAP_FAILED) return NULL;
    char *first = p;
    uint64_t before = -(uintptr_t)first % HUGE_PAGE_BYTES, used = (bytes + page - 1) / page * page;
    if (before) munmap(first, before);
    if (all - before > used) munmap(first + before + used, (size_t)(all - before - used));
    return first + before;
}

/* A large buffer (a KV pool, a weight) is mapped, zeroed by the system and committed at once, so
 * that a running daemon is not killed for lack of memory when its cache fills up. */
void *cpu_host_new(const struct cpu_place *place, uint64_t bytes) {
    if (bytes < MAPPED_BYTES) return mem_new_aligned(bytes);
    if (bytes > SIZE_MAX) return NULL;
    void *p = map_aligned(bytes);
    if (!p) return NULL;
    cpu_place_memory(place, p, bytes);
    if (commit_pages(p, (size_t)bytes)) return p;
    munmap(p, (size_t)bytes);
    return NULL;
}

void cpu_host_free(void *host, uint64_t bytes) {
    if (bytes < MAPPED_BYTES)
        free(host);
    else
        munmap(host, (size_t)bytes);
}

static int buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e) {
    backend_buf *buf = mem_new(1, sizeof *buf);
    void *host = buf ? cpu_host_new(&cpu_of(be)->place, bytes) : NULL;
    if (!host) {
        free(buf);
        return err_set(e, ERR_NOMEM, "out of memory: a buffer of %llu bytes",
                       (unsigned long long)bytes);
    }
    *buf = (backend_buf){.be = be, .bytes = bytes, .host = host};
    *out = buf;
    return 0;
}

static void buf_free(backend_buf *buf) {
    cpu_host_free(buf->host, buf->bytes);
    free(buf);
}

static int upload_bytes(backend *be, backend_buf *dst, uint64_t offset, const void *src,
                        uint64_t bytes, err *e) {
    (void)be, (void)e;
    memcpy((char *)dst->host + offset, src, bytes);
    return 0;
}

static int download_bytes(backend *be, const backend_buf *src, uint64_t offset, void *dst,
                          uint64_t bytes, err *e) {
    (void)be, (void)e;
    memcpy(dst, (const char *)src->host + offset, bytes);
    return 0;
}

static int sync_ops(backend *be, err *e) {
    (void)be, (void)e; /* every op has finished when it returns */
    return 0;
}

static void place_thread(const backend *be) {
    const struct cpu_backend *c = (const struct cpu_backend *)be;
    if (c->place.node >= 0) cpu_place_enter(&c->place);
}

#define ENTRY(name, on_cpu, on_metal, on_cuda) BACKEND_ENTRY_##on_cpu(cpu, name)

static const struct backend_vtable vtable = {.close = close_backend,
                                             .watches = true,
                                             .buf_new = buf_new,
                                             .buf_free = buf_free,
                                             .upload = upload_bytes,
                                             .download = download_bytes,
                                             .weight_new = cpu_weight_new,
                                             .weight_free = cpu_weight_free,
                                             .sync = sync_ops,
                                             .links = true,
                                             .group_open = cpu_group_join,
                                             .group_close = cpu_group_part,
                                             .group_break = cpu_group_break,
                                             .bind_thread = place_thread,
                                             BACKEND_OPS(ENTRY, ENTRY)};

/* The row kernels that go with the instruction set of the products. */
static const struct cpu_isa *row_kernels(const struct gemm_isa *gemm) {
#if defined(__x86_64__)
    if (gemm == &gemm_avx512) return &cpu_isa_avx512;
    if (gemm != &gemm_generic) return &cpu_isa_avx2;
#elif defined(__aarch64__)
    if (gemm != &gemm_generic) return &cpu_isa_neon;
#endif
    (void)gemm;
    return &cpu_isa_generic;
}

static const struct gemm_isa *pick_isa(const char *name, err *e) {
    char known[64] = "";
    const struct gemm_isa *isa;
    for (uint32_t i = 0; (isa = gemm_isa_at(i)) != NULL; i++) {
        if (!name || !name[0] || strcmp(name, isa->name) == 0) return isa;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", isa->name);
    }
    err_set_param(e, ERR_UNSUPPORTED, "isa",
                  "this machine lacks instruction set \"%s\" (it has: %s)", name, known);
    return NULL;
}

static uint32_t add_counter(struct cpu_backend *c, const char *name) {
    c->base.kernel_names[c->base.n_kernels] = name;
    return c->base.n_kernels++;
}

static void add_counters(struct cpu_backend *c, const struct cpu_isa *isa) {
    for (int i = 0; i < CPU_N_KERNELS; i++) {
        if (!isa->kernel_names[i]) continue;
        c->counters[isa != c->isa][i] = add_counter(c, isa->kernel_names[i]);
    }
}

/* Kernels of products are named after the type and the instruction set. */
static void add_gemm_counters(struct cpu_backend *c) {
    char *name = c->gemm_names[CPU_N_TYPES];
    snprintf(name, sizeof c->gemm_names[0], "quantize_rows_%s", c->gemm->name);
    c->quantize_counter = add_counter(c, name);
    for (int type = 0; type < CPU_N_TYPES; type++) {
        if (!gemm_has_type(type)) continue;
        name = c->gemm_names[type];
        snprintf(name, sizeof c->gemm_names[0], "linear_%s_%s", qtype_name(type), c->gemm->name);
        for (char *p = name; *p; p++)
            if (*p >= 'A' && *p <= 'Z') *p += 'a' - 'A';
        c->linear_counters[type] = add_counter(c, name);
    }
}

/* A rank's share of the configured threads; a process shares them with those ranks that may use the
 * same processors. */
static int share_of_threads(int n_threads, const struct backend_config *config) {
    uint32_t n_sharing = config->n_ranks, own = config->rank;
    if (config->link) own = backend_link_share(config->link, &n_sharing);
    int64_t n = n_threads, rank = own, n_ranks = n_sharing;
    int share = (int)(n * (rank + 1) / n_ranks - n * rank / n_ranks);
    return share > 0 ? share : 1;
}

/* Starts a rank's threads; they inherit its place. */
static int open_pool(struct cpu_backend *c, const struct backend_config *config, int n_threads,
                     err *e) {
    c->place = cpu_place_of("/sys/devices/system/node", config->rank,
                            config->link ? 1 : config->n_ranks); /* the launcher places processes */
    if (c->place.node < 0) return pool_new(n_threads, &c->pool, e);
    log_info("cpu: rank %u computes on memory node %d", config->rank, c->place.node);
    struct cpu_place before = cpu_place_enter(&c->place);
    int rc = pool_new(n_threads, &c->pool, e);
    cpu_place_enter(&before);
    return rc;
}

int backend_cpu_open(const struct backend_config *config, backend **out, err *e) {
    const struct gemm_isa *gemm = pick_isa(config->isa, e);
    if (!gemm) return ERR_UNSUPPORTED;
    const struct cpu_isa *isa = row_kernels(gemm);
    int n_threads = config->n_threads > 0 ? config->n_threads : pool_default_threads();
    if (config->n_ranks > 1) n_threads = share_of_threads(n_threads, config);
    if (n_threads > MAX_THREADS)
        return err_set_param(e, ERR_INVALID, "threads", "%d threads, expected at most %d",
                             n_threads, MAX_THREADS);
    struct cpu_backend *c = mem_new(1, sizeof *c);
    if (!c || cpu_moe_new(config, &c->moe) || cpu_heads_new(config, &c->heads) ||
        cpu_linear_new(config, n_threads, &c->linear) ||
        cpu_attn_new(config->max_rows, n_threads, &c->attn) ||
        cpu_rope_new(config->max_rows, &c->rope))
        goto no_memory;
    int rc = open_pool(c, config, n_threads, e);
    if (rc) {
        close_backend(&c->base);
        return rc;
    }
    c->isa = isa;
    c->gemm = gemm;
    c->base.vt = &vtable;
    c->base.name = "cpu";
    c->base.isa = gemm->name;
    c->base.n_threads = n_threads;
    c->base.max_rows = config->max_rows;
    c->base.max_cols = config->max_cols;
    c->base.moe = config->moe;
    c->base.heads = config->heads;
    add_counters(c, isa);
    if (isa != &cpu_isa_generic) add_counters(c, &cpu_isa_generic);
    add_gemm_counters(c);
    *out = &c->base;
    return 0;

no_memory:
    if (c) close_backend(&c->base);
    return err_set(e, ERR_NOMEM,
                   "out of memory: scratch of %u rows of %u columns; choose a smaller max_rows",
                   config->max_rows, config->max_cols);
}
