/* backend.c - opens devices and groups of them; the calls on memory, the stream and counters, with
 * the checks that all devices share. Ops are in ops.c. Owns no memory, starts no thread. */
#include "core/backend/module.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*open)(const struct backend_config *config, backend **out, err *e);
} devices[] = {
    {"cpu", backend_cpu_open},
#ifdef INFERD_METAL
    {"metal", backend_metal_open},
#endif
#if defined(INFERD_CUDA)
    {"cuda", backend_cuda_open}, /* linked in: the stand-in's build */
#elif !defined(__APPLE__)
    {"cuda", backend_module_open_cuda},
#endif
};

enum { N_DEVICES = sizeof devices / sizeof devices[0] };

/* Closes the ranks of a group that is complete or partly open, rank 0 last. */
static void close_ranks(backend *const *ranks, uint32_t n) {
    while (n-- > 0)
        ranks[n]->vt->close(ranks[n]);
}

static int open_rank(size_t i, const struct backend_config *config, backend **out, err *e) {
    int rc = devices[i].open(config, out, e);
    if (rc || (*out)->vt->group_open) return rc;
    close_ranks(out, 1);
    return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                         "backend %s supports one device only: n_ranks must be 1", devices[i].name);
}

static int check_link(const backend *be, err *e) {
    if (be->vt->links) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, "backend",
                         "backend %s: ranks that are processes need backend cpu or cuda", be->name);
}

static int open_group(size_t i, const struct backend_config *config, backend **out, err *e) {
    struct backend_config one = *config;
    backend *ranks[BACKEND_MAX_RANKS] = {NULL};
    const uint32_t n_local = config->link ? 1 : config->n_ranks;
    const uint32_t first = config->link ? backend_link_rank(config->link) : 0;
    uint32_t n = 0;
    int rc = 0;
    while (!rc && n < n_local) {
        one.rank = first + n;
        one.device = config->device + (config->link ? backend_link_here(config->link) : n);
        rc = open_rank(i, &one, &ranks[n], e);
        if (!rc) n++;
        if (rc && n) err_prefix(e, "n_ranks = %u: ", config->n_ranks);
    }
    for (uint32_t r = 0; r < n; r++) {
        ranks[r]->rank = first + r;
        ranks[r]->n_ranks = config->n_ranks;
        ranks[r]->n_local = n;
        ranks[r]->link = config->link;
        ranks[r]->link_calls = config->link ? &backend_link_calls : NULL;
        memcpy(ranks[r]->peers, ranks, n * sizeof *ranks);
    }
    if (!rc && config->link) rc = check_link(ranks[0], e);
    if (config->link) rc = backend_link_agree(config->link, rc, e);
    if (!rc) rc = ranks[0]->vt->group_open(ranks, n, e);
    if (rc) {
        close_ranks(ranks, n);
        return rc;
    }
    *out = ranks[0];
    return 0;
}

static int open_any(size_t i, const struct backend_config *config, backend **out, err *e) {
    return config->n_ranks > 1 ? open_group(i, config, out, e) : devices[i].open(config, out, e);
}

/* Opens the last device of the list that this machine has; the first one, the CPU, always works. */
static int open_best(const struct backend_config *config, backend **out, err *e) {
    struct backend_config one = *config;
    for (size_t i = config->isa && config->isa[0] ? 1 : N_DEVICES; i-- > 0;) {
        one.name = devices[i].name;
        int rc = open_any(i, &one, out, e);
        if (rc != ERR_UNSUPPORTED || i == 0) return rc;
    }
    return ERR_UNSUPPORTED;
}

static int open_device(size_t i, const struct backend_config *config, backend **out, err *e) {
    if (i > 0 && config->isa && config->isa[0])
        return err_set_param(e, ERR_INVALID, "isa",
                             "isa \"%s\" is an instruction set of the CPU: not with backend \"%s\"",
                             config->isa, config->name);
    return open_any(i, config, out, e);
}

int backend_open(const struct backend_config *config, backend **out, err *e) {
    *out = NULL;
    if (!config->name) return err_set(e, ERR_INVALID, "no backend was named");
    if (!config->max_rows || !config->max_cols)
        return err_set(e, ERR_INVALID, "backend %s: max_rows and max_cols must be at least 1",
                       config->name);
    if (config->activation_bits && config->activation_bits != 8 && config->activation_bits != 16)
        return err_set_param(e, ERR_INVALID, "activation_bits",
                             "activation_bits = %d: must be 8 or 16", config->activation_bits);
    if (config->n_ranks > BACKEND_MAX_RANKS)
        return err_set_param(e, ERR_INVALID, "n_ranks", "n_ranks = %u: at most %d", config->n_ranks,
                             BACKEND_MAX_RANKS);
    if (config->link && config->n_ranks != backend_link_n(config->link))
        return err_set_param(e, ERR_INVALID, "n_ranks", "n_ranks = %u, but there are %u processes",
                             config->n_ranks, backend_link_n(config->link));
    const struct backend_moe_limits *moe = &config->moe;
    if (moe->n_experts > BACKEND_MAX_EXPERTS ||
        (moe->n_experts && (!moe->n_used || moe->n_used > moe->n_experts || !moe->n_ff)))
        return err_set(
            e, ERR_INVALID,
            "%u of %u experts of width %u: expected at most %d experts, of which at least one is "
            "used, and a width above 0",
            moe->n_used, moe->n_experts, moe->n_ff, BACKEND_MAX_EXPERTS);
    if (strcmp(config->name, "auto") == 0) return open_best(config, out, e);
    char known[64] = "";
    for (size_t i = 0; i < N_DEVICES; i++) {
        if (strcmp(devices[i].name, config->name) == 0) return open_device(i, config, out, e);
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", devices[i].name);
    }
    return err_set_param(e, ERR_UNSUPPORTED, "backend",
                         "no backend \"%s\" in this build (it has: %s)", config->name, known);
}

void backend_close(backend *be) {
    backend *ranks[BACKEND_MAX_RANKS];
    if (!be) return;
    uint32_t n = backend_n_local(be);
    for (uint32_t r = 0; r < n; r++)
        ranks[r] = backend_peer(be, r);
    if (be->n_ranks > 1) be->vt->group_close(be);
    close_ranks(ranks, n);
}

uint32_t backend_rank(const backend *be) {
    return be->rank;
}

uint32_t backend_n_ranks(const backend *be) {
    return be->n_ranks ? be->n_ranks : 1;
}

uint32_t backend_n_local(const backend *be) {
    return be->n_local ? be->n_local : 1;
}

uint32_t backend_n_here(const backend *be) {
    return be->link ? backend_link_n_here(be->link) : backend_n_local(be);
}

backend *backend_peer(backend *be, uint32_t i) {
    return be->n_local ? be->peers[i] : be;
}

void backend_bind_thread(const backend *be) {
    if (be->n_ranks > 1 && be->vt->bind_thread) be->vt->bind_thread(be);
}

void backend_break_group(backend *be) {
    if (be->n_ranks > 1) be->vt->group_break(be);
}

const char *backend_name(const backend *be) {
    return be->name;
}

const char *backend_isa(const backend *be) {
    return be->isa;
}

int backend_n_threads(const backend *be) {
    return be->n_threads;
}

bool backend_kv_fits(const backend *be, const struct backend_kv *kv) {
    uint64_t bytes;
    return backend_kv_block_bytes(kv, &bytes) && (!be->vt->kv_fits || be->vt->kv_fits(kv));
}

/* ---- memory ---- */

int backend_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e) {
    *out = NULL;
    return be->vt->buf_new(be, bytes, out, e);
}

void backend_buf_free(backend_buf *buf) {
    if (buf) buf->be->vt->buf_free(buf);
}

const void *backend_buf_host(const backend_buf *buf) {
    return buf->host;
}

static int check_range(const backend *be, const backend_buf *buf, uint64_t offset, uint64_t bytes,
                       err *e) {
    uint64_t end;
    if (!buf || buf->be != be || !mem_add(offset, bytes, &end) || end > buf->bytes)
        return err_set(e, ERR_INVALID,
                       "a copy of %llu bytes at offset %llu exceeds its buffer of %llu bytes",
                       (unsigned long long)bytes, (unsigned long long)offset,
                       (unsigned long long)(buf ? buf->bytes : 0));
    return 0;
}

int backend_upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                   err *e) {
    int rc = check_range(be, dst, offset, bytes, e);
    if (rc || !bytes) return rc;
    return be->vt->upload(be, dst, offset, src, bytes, e);
}

int backend_upload_all(backend *be, const struct backend_upload *list, uint32_t n, err *e) {
    int rc = n > BACKEND_MAX_UPLOADS
                 ? err_set(e, ERR_INVALID, "%u uploads: at most %d", n, BACKEND_MAX_UPLOADS)
                 : 0;
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = check_range(be, list[i].to, list[i].offset, list[i].bytes, e);
    if (!rc && be->vt->upload_all) return be->vt->upload_all(be, list, n, e);
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = backend_upload(be, list[i].to, list[i].offset, list[i].from, list[i].bytes, e);
    return rc;
}

int backend_download(backend *be, const backend_buf *src, uint64_t offset, void *dst,
                     uint64_t bytes, err *e) {
    int rc = check_range(be, src, offset, bytes, e);
    if (rc || !bytes) return rc;
    return be->vt->download(be, src, offset, dst, bytes, e);
}

int backend_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                       err *e) {
    uint64_t bytes;
    *out = NULL;
    if (!qtype_find(desc->type))
        return err_set_param(e, ERR_UNSUPPORTED, desc->name, "tensor %s: type %s is not supported",
                             desc->name, qtype_name(desc->type));
    if (!desc->n_out || !desc->n_in || desc->n_out > UINT32_MAX || desc->n_in > UINT32_MAX ||
        desc->n_experts > BACKEND_MAX_EXPERTS ||
        !qtype_bytes(desc->type, desc->n_out, desc->n_in, &bytes) ||
        !mem_mul(bytes, desc->n_experts ? desc->n_experts : 1, &bytes))
        return err_set_param(e, ERR_INVALID, desc->name,
                             "tensor %s: shape (%llu, %llu) is not valid for type %s", desc->name,
                             (unsigned long long)desc->n_out, (unsigned long long)desc->n_in,
                             qtype_name(desc->type));
    const unsigned all = BACKEND_USE_EMBED | BACKEND_USE_LINEAR | BACKEND_USE_VECTOR;
    if (!desc->use || desc->use & ~all ||
        (desc->use & BACKEND_USE_VECTOR && (desc->type != QTYPE_F32 || desc->n_out != 1)) ||
        (desc->use & BACKEND_USE_EMBED && desc->n_experts))
        return err_set_param(e, ERR_INVALID, desc->name,
                             "tensor %s: its type or shape does not suit its use", desc->name);
    uint64_t align = desc->type == QTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    if (!desc->data || (uintptr_t)desc->data % align)
        return err_set_param(e, ERR_INVALID, desc->name, "tensor %s: data is not aligned to %llu",
                             desc->name, (unsigned long long)align);
    return be->vt->weight_new(be, desc, out, e);
}

uint64_t backend_weight_bytes(const backend_weight *w) {
    return w->bytes;
}

int backend_weight_size(const backend *be, const struct backend_weight_desc *desc, uint64_t *bytes,
                        err *e) {
    *bytes = 0;
    if (qtype_find(desc->type) && be->vt->weight_size) return be->vt->weight_size(desc, bytes, e);
    if (qtype_bytes(desc->type, desc->n_out, desc->n_in, bytes) &&
        mem_mul(*bytes, desc->n_experts ? desc->n_experts : 1, bytes))
        return 0;
    return err_set_param(e, ERR_UNSUPPORTED, desc->name,
                         "tensor %s: type %s is not supported or its shape is not valid",
                         desc->name, qtype_name(desc->type));
}

int backend_weight_watch(backend_weight *w, const struct backend_watch *watch, err *e) {
    if (!w->be->vt->watches)
        return err_set(e, ERR_UNSUPPORTED,
                       "the inputs of products are watched on the cpu alone, not on %s",
                       w->be->name);
    if (!watch->n_groups || (watch->n_groups != 1 && watch->n_groups != w->n_experts))
        return err_set(e, ERR_INVALID, "a watch of %llu groups does not fit a weight of %llu",
                       (unsigned long long)watch->n_groups, (unsigned long long)w->n_experts);
    w->watch = *watch;
    return 0;
}

void backend_weight_free(backend_weight *w) {
    if (w) w->be->vt->weight_free(w);
}

int backend_range_new(backend *be, const void *base, uint64_t bytes, backend_range **out, err *e) {
    *out = NULL;
    if (!be->vt->range_new) return 0;
    if (!bytes || bytes % BACKEND_RANGE_ALIGN || (uintptr_t)base % BACKEND_RANGE_ALIGN)
        return err_set(e, ERR_INVALID,
                       "a range of %llu bytes at %p: must be whole pages of %d bytes",
                       (unsigned long long)bytes, base, BACKEND_RANGE_ALIGN);
    return be->vt->range_new(be, base, bytes, out, e);
}

void backend_range_free(backend_range *range) {
    if (range) range->be->vt->range_free(range);
}

/* ---- the stream ---- */

int backend_sync(backend *be, err *e) {
    int rc = be->link ? backend_link_failed(be->link, e) : 0;
    if (rc) be->vt->group_break(be); /* nothing on the device waits for a rank that is gone */
    return rc ? rc : be->vt->sync(be, e);
}

int backend_flush(backend *be, err *e) {
    return be->vt->flush ? be->vt->flush(be, e) : 0;
}

int backend_recover(backend *be, err *e) {
    if (be->vt->recover && be->n_ranks < 2) return be->vt->recover(be, e);
    return err_set(e, ERR_DEVICE, "backend \"%s\" cannot go on after a failure", be->name);
}

bool backend_set_mode(backend *be, enum backend_mode mode) {
    if (be->vt->set_mode) be->vt->set_mode(be, mode);
    return be->vt->set_mode != NULL;
}

bool backend_can_overlap(const backend *be) {
    return be->vt->event_record != NULL;
}

int backend_host_new(backend *be, uint64_t bytes, void **out, err *e) {
    *out = NULL;
    if (be->vt->host_new) return be->vt->host_new(be, bytes, out, e);
    *out = mem_new(bytes, 1);
    return *out ? 0 : err_no_memory(e);
}

void backend_host_free(backend *be, void *p) {
    if (p && be->vt->host_free)
        be->vt->host_free(be, p);
    else
        free(p);
}

int backend_download_async(backend *be, const backend_buf *src, uint64_t offset, void *to,
                           uint64_t bytes, err *e) {
    if (!be->vt->download_async) return backend_download(be, src, offset, to, bytes, e);
    int rc = check_range(be, src, offset, bytes, e);
    return rc || !bytes ? rc : be->vt->download_async(be, src, offset, to, bytes, e);
}

int backend_event_record(backend *be, uint32_t event, err *e) {
    if (event >= BACKEND_N_EVENTS)
        return err_set(e, ERR_INVALID, "event %u: must be below %d", event, BACKEND_N_EVENTS);
    return be->vt->event_record ? be->vt->event_record(be, event, e) : 0;
}

int backend_event_wait(backend *be, uint32_t event, err *e) {
    if (event >= BACKEND_N_EVENTS)
        return err_set(e, ERR_INVALID, "event %u: must be below %d", event, BACKEND_N_EVENTS);
    return be->vt->event_wait ? be->vt->event_wait(be, event, e) : backend_sync(be, e);
}

/* ---- the side stream ---- */

int backend_side_open(backend *be, uint64_t most_bytes, err *e) {
    return be->vt->side_open ? be->vt->side_open(be, most_bytes, e) : 0;
}

int backend_side_begin(backend *be, err *e) {
    return be->vt->side_open ? be->vt->side_begin(be, e) : 0;
}

int backend_side_out(backend *be, const backend_buf *src, uint64_t offset, void *to, uint64_t bytes,
                     err *e) {
    if (!be->vt->side_open) return backend_download(be, src, offset, to, bytes, e);
    int rc = check_range(be, src, offset, bytes, e);
    return rc || !bytes ? rc : be->vt->side_out(be, src, offset, to, bytes, e);
}

int backend_side_in(backend *be, backend_buf *dst, uint64_t offset, const void *from,
                    uint64_t bytes, err *e) {
    if (!be->vt->side_open) return backend_upload(be, dst, offset, from, bytes, e);
    int rc = check_range(be, dst, offset, bytes, e);
    return rc || !bytes ? rc : be->vt->side_in(be, dst, offset, from, bytes, e);
}

int backend_side_end(backend *be, err *e) {
    if (be->vt->side_open) return be->vt->side_end(be, e);
    be->n_batches++;
    return 0;
}

int backend_side_done(backend *be, uint64_t *n, err *e) {
    *n = be->n_batches;
    return be->vt->side_open ? be->vt->side_done(be, n, e) : 0;
}

int backend_side_join(backend *be, err *e) {
    return be->vt->side_open ? be->vt->side_join(be, e) : 0;
}

int backend_side_wait(backend *be, err *e) {
    return be->vt->side_open ? be->vt->side_wait(be, e) : 0;
}

bool backend_can_capture(const backend *be) {
    return be->vt->capture_begin != NULL;
}

bool backend_keeps_graphs(const backend *be) {
    return be->vt->keeps_graphs;
}

int backend_capture_begin(backend *be, uint64_t key, err *e) {
    if (!be->vt->capture_begin)
        return err_set(e, ERR_UNSUPPORTED, "backend %s cannot capture a step", be->name);
    return be->vt->capture_begin(be, key, e);
}

int backend_capture_end(backend *be, err *e) {
    return be->vt->capture_end ? be->vt->capture_end(be, e) : ERR_UNSUPPORTED;
}

int backend_graph_launch(backend *be, err *e) {
    return be->vt->graph_launch ? be->vt->graph_launch(be, e) : ERR_UNSUPPORTED;
}

void backend_graph_discard(backend *be) {
    if (be->vt->graph_discard) be->vt->graph_discard(be);
}

/* ---- counters ---- */

uint32_t backend_n_kernels(const backend *be) {
    return be->n_kernels;
}

const char *backend_kernel_name(const backend *be, uint32_t i) {
    return be->kernel_names[i];
}

uint64_t backend_dispatch_count(const backend *be, uint32_t i) {
    return atomic_load_explicit(&be->kernel_counts[i], memory_order_relaxed);
}

void backend_kernel_traffic(const backend *be, uint32_t i, uint64_t *read, uint64_t *written) {
    *read = atomic_load_explicit(&be->kernel_read[i], memory_order_relaxed);
    *written = atomic_load_explicit(&be->kernel_written[i], memory_order_relaxed);
}

void backend_kernel_costs(const backend *be, uint32_t i, struct backend_kernel_costs *out) {
    *out = (struct backend_kernel_costs){
        .most_hidden = atomic_load_explicit(&be->kernel_hidden[i], memory_order_relaxed),
        .cycles = atomic_load_explicit(&be->kernel_cycles[i], memory_order_relaxed),
        .ns = atomic_load_explicit(&be->kernel_ns[i], memory_order_relaxed)};
}

bool backend_fact_get(const backend *be, uint32_t i, struct backend_fact *out) {
    return be->vt->fact_get && be->vt->fact_get(be, i, out);
}

bool backend_pipeline_get(const backend *be, uint32_t i, struct backend_pipeline *out) {
    return be->vt->pipeline_get && be->vt->pipeline_get(be, i, out);
}

uint64_t backend_allocated_bytes(const backend *be) {
    return be->vt->allocated_bytes ? be->vt->allocated_bytes(be) : 0;
}

uint64_t backend_scratch_bytes(const backend *be) {
    return be->vt->scratch_bytes ? be->vt->scratch_bytes(be) : 0;
}

uint64_t backend_memory_limit(const backend *be) {
    return be->vt->memory_limit ? be->vt->memory_limit(be) : 0;
}

int backend_copy_bandwidth(backend *be, double *bytes_per_s, err *e) {
    *bytes_per_s = 0;
    return be->vt->copy_bandwidth ? be->vt->copy_bandwidth(be, bytes_per_s, e) : 0;
}

uint64_t backend_memory_free(const backend *be) {
    return be->vt->memory_free ? be->vt->memory_free(be) : 0;
}
