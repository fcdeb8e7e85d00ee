/* device.m - opens the Metal device: features, libraries from the embedded sources, scratch; closes
 * in reverse order. Runs on the thread that opens it. */
#include "core/backend/metal/metal_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void metal_close(backend *be) {
    struct metal_backend *m = metal_of(be);
    @autoreleasepool {
        if (m->queue) metal_sync(be, NULL);
        metal_graph_discard(be);
        for (int i = 0; i < METAL_N_SCRATCH; i++)
            backend_buf_free(m->scratch[i]);
        metal_residency_close(m);
        for (uint32_t i = 0; m->pipelines && i < METAL_MAX_PIPELINES; i++)
            [m->pipelines[i].state release];
        for (uint32_t i = 0; i < m->n_libraries; i++)
            [m->libraries[i] release];
        [m->queue release];
        [m->device release];
    }
    free(m->pipelines);
    free(m->libraries);
    free(m->names);
    free(m);
}

#define ENTRY(name, on_cpu, on_metal, on_cuda) BACKEND_ENTRY_##on_metal(metal, name)

static const struct backend_vtable vtable = {.close = metal_close,
                                             .buf_new = metal_buf_new,
                                             .buf_free = metal_buf_free,
                                             .upload = metal_upload,
                                             .download = metal_download,
                                             .weight_new = metal_weight_new,
                                             .weight_free = metal_weight_free,
                                             .sync = metal_sync,
                                             .range_new = metal_range_new,
                                             .range_free = metal_range_free,
                                             .flush = metal_flush,
                                             .recover = metal_recover,
                                             .set_mode = metal_set_mode,
                                             .fact_get = metal_fact_get,
                                             .pipeline_get = metal_pipeline_get,
                                             .capture_begin = metal_capture_begin,
                                             .capture_end = metal_capture_end,
                                             .graph_launch = metal_graph_launch,
                                             .graph_discard = metal_graph_discard,
                                             .allocated_bytes = metal_allocated_bytes,
                                             .memory_limit = metal_memory_limit,
                                             .kv_fits = metal_kv_fits,
                                             BACKEND_OPS(ENTRY, ENTRY)};

/* ---- libraries ---- */

/* Sources named *_matrix.metal use simdgroup matrices, which not every GPU has. Those named
 * *_plain.metal stand in for them, and are compiled only if they are needed. */
static bool wants(const struct metal_backend *m, const struct metal_source *s, bool plain) {
    if (strstr(s->name, "_plain.metal")) return plain;
    return !plain && (m->features.simdgroup_matrix || !strstr(s->name, "_matrix.metal"));
}

static int compile_source(struct metal_backend *m, const struct metal_source *s,
                          MTLCompileOptions *options, err *e) {
    NSError *error = nil;
    id<MTLLibrary> lib = [m->device newLibraryWithSource:[NSString stringWithUTF8String:s->text]
                                                 options:options
                                                   error:&error];
    const char *text = error ? [[error localizedDescription] UTF8String] : "no reason given";
    if (!lib) {
        log_error("metal: the compiler rejected %s: %s", s->name, text);
        return err_set(e, ERR_DEVICE, "the Metal compiler rejected %s: %s", s->name, text);
    }
    if (error) log_warn("metal: the compiler says of %s: %s", s->name, text);
    m->libraries[m->n_libraries++] = lib;
    return 0;
}

/* Fast math is off: sums keep their order, and NaN stays NaN. If a source is rejected, the others
 * are compiled all the same, so that the log has all that the compiler says. */
static int compile_sources(struct metal_backend *m, bool plain, err *e) {
    int rc = 0;
    MTLCompileOptions *options = [MTLCompileOptions new];
    options.languageVersion = MTLLanguageVersion3_0;
    options.fastMathEnabled = NO;
    for (uint32_t i = 0; i < metal_n_sources; i++) {
        if (!wants(m, &metal_sources[i], plain)) continue;
        int failed = compile_source(m, &metal_sources[i], options, rc ? NULL : e);
        if (!rc) rc = failed;
    }
    [options release];
    return rc;
}

/* Gives each kernel function of the libraries from `first` on a counter. */
static int name_kernels(struct metal_backend *m, uint32_t first, err *e) {
    for (uint32_t i = first; i < m->n_libraries; i++)
        for (NSString *name in [m->libraries[i] functionNames]) {
            uint32_t n = m->base.n_kernels;
            if (n == BACKEND_MAX_KERNELS)
                return err_set(e, ERR_DEVICE,
                               "the shaders have more kernels than the %u that can be counted", n);
            snprintf(m->names[n], sizeof m->names[n], "%s", [name UTF8String]);
            m->base.kernel_names[n] = m->names[n];
            m->base.n_kernels++;
        }
    return 0;
}

static int compile(struct metal_backend *m, bool plain, err *e) {
    const uint32_t first = m->n_libraries;
    const uint64_t start = clock_now_ns();
    int rc = compile_sources(m, plain, e);
    m->features.compile_ms += (double)(clock_now_ns() - start) * 1e-6;
    return rc ? rc : name_kernels(m, first, e);
}

int metal_compile_plain(struct metal_backend *m, err *e) {
    if (m->has_plain_tiles) return 0;
    int rc;
    @autoreleasepool {
        rc = compile(m, true, e);
    }
    m->has_plain_tiles = !rc;
    return rc;
}

static int open_device(struct metal_backend *m, const struct backend_config *config, err *e) {
    int rc;
    m->device = MTLCreateSystemDefaultDevice();
    if (!m->device)
        return err_set_param(
            e, ERR_UNSUPPORTED, "backend",
            "backend \"metal\": this machine has no Metal device; use backend = cpu");
    m->pipelines = mem_new(METAL_MAX_PIPELINES, sizeof *m->pipelines);
    m->libraries = mem_new(metal_n_sources, sizeof *m->libraries);
    m->names = mem_new(BACKEND_MAX_KERNELS, sizeof *m->names);
    if (!m->pipelines || !m->libraries || !m->names) return err_no_memory(e);
    if ((rc = metal_features_find(m, e))) return rc;
    m->queue = [m->device newCommandQueue];
    if (!m->queue) return err_set(e, ERR_DEVICE, "the Metal device returned no command queue");
    metal_residency_open(m, config->resident_s);
    m->most_s = config->command_buffer_ms * 1e-3;
    if ((rc = compile(m, false, e)) || (rc = metal_probe(m, e))) return rc;
    snprintf(m->isa, sizeof m->isa, "%s", [[m->device name] UTF8String]);
    log_info("metal: %s, %s, buffers up to %llu MiB, working set %llu MiB", m->isa,
             metal_tiles_name(m), (unsigned long long)m->features.max_buffer_bytes >> 20,
             (unsigned long long)m->features.working_set_bytes >> 20);
    if ((rc = metal_input_scratch(m, config, e)) || (rc = metal_attention_scratch(m, config, e)) ||
        (rc = metal_moe_scratch(m, config, e)) || (rc = metal_top_scratch(m, config, e)))
        return rc;
    return 0;
}

int backend_metal_open(const struct backend_config *config, backend **out, err *e) {
    struct metal_backend *m = mem_new(1, sizeof *m);
    if (!m) return err_no_memory(e);
    m->base.vt = &vtable;
    m->base.name = "metal";
    m->base.isa = m->isa;
    m->base.n_threads = 1;
    m->base.max_rows = config->max_rows;
    m->base.max_cols = config->max_cols;
    m->base.moe = config->moe;
    m->base.heads = config->heads;
    int rc;
    @autoreleasepool {
        rc = open_device(m, config, e);
    }
    if (rc) {
        metal_close(&m->base);
        return rc;
    }
    *out = &m->base;
    return 0;
}
