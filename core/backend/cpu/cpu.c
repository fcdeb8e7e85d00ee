/* cpu.c - opens the CPU device: picks the instruction set, starts the pool, takes all scratch
 * memory once. Owns buffers (host memory) and the heads of weights, whose bytes stay where they
 * are. */
#include "core/backend/cpu/cpu_int.h"

#include "core/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_THREADS = 1024, MAPPED_BYTES = 1 << 20 };

static void close_backend(backend *be) {
    struct cpu_backend *c = cpu_of(be);
    pool_free(c->pool);
    cpu_rope_free(c->rope);
    cpu_attn_free(c->attn);
    free(c->xd);
    free(c->xq);
    free(c);
}

/* Makes the system give every page now, huge ones where it has them. false: it has not enough. */
static bool commit_pages(void *p, size_t bytes) {
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE); /* a wish; a kernel without it refuses */
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

/* A big buffer (a KV pool) is mapped, zeroed by the system, and committed at once: a daemon that
 * started has its memory and cannot be killed by its own cache filling up. */
static void *host_new(uint64_t bytes) {
    if (bytes < MAPPED_BYTES) return mem_new_aligned(bytes);
    if (bytes > SIZE_MAX) return NULL;
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (commit_pages(p, (size_t)bytes)) return p;
    munmap(p, (size_t)bytes);
    return NULL;
}

static void host_free(void *host, uint64_t bytes) {
    if (bytes < MAPPED_BYTES)
        free(host);
    else
        munmap(host, (size_t)bytes);
}

static int buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e) {
    backend_buf *buf = mem_new(1, sizeof *buf);
    void *host = buf ? host_new(bytes) : NULL;
    if (!host) {
        free(buf);
        return err_set(e, ERR_NOMEM, "no memory for a buffer of %llu bytes",
                       (unsigned long long)bytes);
    }
    *buf = (backend_buf){.be = be, .bytes = bytes, .host = host};
    *out = buf;
    return 0;
}

static void buf_free(backend_buf *buf) {
    host_free(buf->host, buf->bytes);
    free(buf);
}

static int upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                  err *e) {
    (void)be, (void)e;
    memcpy((char *)dst->host + offset, src, bytes);
    return 0;
}

static int download(backend *be, const backend_buf *src, uint64_t offset, void *dst, uint64_t bytes,
                    err *e) {
    (void)be, (void)e;
    memcpy(dst, (const char *)src->host + offset, bytes);
    return 0;
}

/* Types that the kernels read. */
static bool has_kernels(int type) {
    return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16 || type == QTYPE_Q8_0 ||
           type == QTYPE_Q4_0;
}

static int weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                      err *e) {
    if (!has_kernels(desc->type))
        return err_set_param(e, ERR_UNSUPPORTED, desc->name,
                             "tensor %s: the CPU backend has no kernels for %s", desc->name,
                             qtype_name(desc->type));
    struct cpu_weight *w = mem_new(1, sizeof *w);
    if (!w) return err_set(e, ERR_NOMEM, "no memory for tensor %s", desc->name);
    w->base = (struct backend_weight){
        .be = be, .type = desc->type, .n_out = desc->n_out, .n_in = desc->n_in};
    qtype_bytes(desc->type, 1, desc->n_in, &w->row_bytes);
    w->data = desc->data;
    *out = &w->base;
    return 0;
}

static void weight_free(backend_weight *w) {
    free(w);
}

static int sync_ops(backend *be, err *e) {
    (void)be, (void)e; /* every op has finished when it returns */
    return 0;
}

static const struct backend_vtable vtable = {
    .close = close_backend,
    .buf_new = buf_new,
    .buf_free = buf_free,
    .upload = upload,
    .download = download,
    .weight_new = weight_new,
    .weight_free = weight_free,
    .sync = sync_ops,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .linear = cpu_linear,
    .rope_store = cpu_rope_store,
    .paged_attention = cpu_paged_attention,
    .glu = cpu_glu,
    .gather = cpu_gather,
    .kv_copy = cpu_kv_copy,
};

static bool always(void) {
    return true;
}

/* Best first. */
static const struct {
    const struct cpu_isa *isa;
    bool (*available)(void);
} isas[] = {
#if defined(__x86_64__)
    {&cpu_isa_avx512, cpu_has_avx512},
    {&cpu_isa_avx2, cpu_has_avx2},
#endif
    {&cpu_isa_generic, always},
};

static const struct cpu_isa *pick_isa(const char *name, err *e) {
    char known[64] = "";
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (!isas[i].available()) continue;
        if (!name || !name[0] || strcmp(name, isas[i].isa->name) == 0) return isas[i].isa;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", isas[i].isa->name);
    }
    err_set_param(e, ERR_UNSUPPORTED, "isa",
                  "instruction set \"%s\" is not on this machine (it has: %s)", name, known);
    return NULL;
}

static void add_counters(struct cpu_backend *c, const struct cpu_isa *isa) {
    for (int i = 0; i < CPU_N_KERNELS; i++) {
        if (!isa->kernel_names[i]) continue;
        c->counters[isa != c->isa][i] = c->base.n_kernels;
        c->base.kernel_names[c->base.n_kernels++] = isa->kernel_names[i];
    }
}

int backend_cpu_open(const struct backend_config *config, backend **out, err *e) {
    const struct cpu_isa *isa = pick_isa(config->isa, e);
    if (!isa) return ERR_UNSUPPORTED;
    int n_threads = config->n_threads > 0 ? config->n_threads : pool_default_threads();
    if (n_threads > MAX_THREADS)
        return err_set_param(e, ERR_INVALID, "threads", "%d threads: at most %d", n_threads,
                             MAX_THREADS);
    uint64_t n_blocks = ((uint64_t)config->max_cols + CPU_Q_ELEMS - 1) / CPU_Q_ELEMS, n_scratch;
    struct cpu_backend *c = mem_new(1, sizeof *c);
    if (!c || !mem_mul(n_blocks, config->max_rows, &n_scratch) || n_scratch > UINT64_MAX >> 8)
        goto no_memory;
    c->xq = mem_new_aligned(n_scratch * CPU_Q_ELEMS * sizeof *c->xq);
    c->xd = mem_new_aligned(n_scratch * sizeof *c->xd);
    if (!c->xq || !c->xd || cpu_attn_new(config->max_rows, n_threads, &c->attn) ||
        cpu_rope_new(config->max_rows, &c->rope))
        goto no_memory;
    int rc = pool_new(n_threads, &c->pool, e);
    if (rc) {
        close_backend(&c->base);
        return rc;
    }
    c->isa = isa;
    c->base.vt = &vtable;
    c->base.name = "cpu";
    c->base.isa = isa->name;
    c->base.n_threads = n_threads;
    c->base.max_rows = config->max_rows;
    c->base.max_cols = config->max_cols;
    add_counters(c, isa);
    if (isa != &cpu_isa_generic) add_counters(c, &cpu_isa_generic);
    *out = &c->base;
    return 0;

no_memory:
    if (c) close_backend(&c->base);
    return err_set(e, ERR_NOMEM, "no memory for %u rows of %u columns of scratch", config->max_rows,
                   config->max_cols);
}
