/* memory.m - buffers, wrapped ranges of host memory, weights. All buffers are shared-mode: host and
 * device see the same bytes. Owns no thread. */
#include "core/backend/metal/metal_int.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

static int buffer_refused(const struct metal_backend *m, uint64_t bytes, err *e) {
    return err_set(e, ERR_NOMEM,
                   "out of Metal memory: no buffer of %llu bytes (at most %llu in one buffer, and "
                   "%llu in all without swapping)",
                   (unsigned long long)bytes, (unsigned long long)m->features.max_buffer_bytes,
                   (unsigned long long)m->features.working_set_bytes);
}

int metal_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e) {
    struct metal_backend *m = metal_of(be);
    struct metal_buf *buf = mem_new(1, sizeof *buf);
    if (!buf) return err_no_memory(e);
    uint64_t size = bytes ? bytes : 1;
    @autoreleasepool {
        if (size <= m->features.max_buffer_bytes)
            buf->mtl = [m->device newBufferWithLength:(NSUInteger)size
                                              options:MTLResourceStorageModeShared];
    }
    if (!buf->mtl) {
        free(buf);
        return buffer_refused(m, bytes, e);
    }
    buf->base = (backend_buf){.be = be, .bytes = bytes, .host = [buf->mtl contents]};
    memset(buf->base.host, 0, (size_t)size); /* touches each page now rather than at first use */
    metal_residency_add(m, buf->mtl);
    *out = &buf->base;
    return 0;
}

void metal_buf_free(backend_buf *buf) {
    struct metal_buf *b = (struct metal_buf *)buf;
    metal_settle(metal_of(buf->be));
    metal_residency_remove(metal_of(buf->be), b->mtl);
    [b->mtl release];
    free(b);
}

int metal_upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                 err *e) {
    int rc = metal_sync(be, e);
    if (!rc) memcpy((char *)dst->host + offset, src, bytes);
    return rc;
}

int metal_download(backend *be, const backend_buf *src, uint64_t offset, void *dst, uint64_t bytes,
                   err *e) {
    int rc = metal_sync(be, e);
    if (!rc) memcpy(dst, (const char *)src->host + offset, bytes);
    return rc;
}

uint64_t metal_allocated_bytes(const backend *be) {
    return [((const struct metal_backend *)be)->device currentAllocatedSize];
}

uint64_t metal_memory_limit(const backend *be) {
    return ((const struct metal_backend *)be)->features.working_set_bytes;
}

/* ---- ranges ---- */

static void release_parts(struct metal_range *r) {
    for (uint32_t i = 0; i < r->n_parts; i++) {
        metal_residency_remove(metal_of(r->base.be), r->parts[i]);
        [r->parts[i] release];
    }
    free(r->parts);
    free(r);
}

/* A buffer over host pages, owned by the caller; nil: the device refused. */
static id<MTLBuffer> wrap_pages(struct metal_backend *m, const uint8_t *pages, uint64_t bytes) {
    id<MTLBuffer> mtl = [m->device newBufferWithBytesNoCopy:(void *)(uintptr_t)pages
                                                     length:(NSUInteger)bytes
                                                    options:MTLResourceStorageModeShared
                                                deallocator:nil];
    [mtl setLabel:@"weights"];
    metal_residency_add(m, mtl);
    return mtl;
}

static int wrap_parts(struct metal_backend *m, struct metal_range *r, err *e) {
    r->stride = m->features.max_buffer_bytes / METAL_PAGE * METAL_PAGE;
    if (!r->stride) return buffer_refused(m, r->bytes, e);
    uint64_t n = (r->bytes - 1) / r->stride + 1;
    if (n > UINT32_MAX) return buffer_refused(m, r->bytes, e);
    r->parts = mem_new(n, sizeof *r->parts);
    if (!r->parts) return err_no_memory(e);
    for (; r->n_parts < n; r->n_parts++) {
        uint64_t at = r->n_parts * r->stride, left = r->bytes - at;
        uint64_t bytes = left < r->stride ? left : r->stride;
        r->parts[r->n_parts] = wrap_pages(m, r->host + at, bytes);
        if (!r->parts[r->n_parts]) return buffer_refused(m, bytes, e);
    }
    return 0;
}

int metal_range_new(backend *be, const void *base, uint64_t bytes, backend_range **out, err *e) {
    struct metal_backend *m = metal_of(be);
    struct metal_range *r = mem_new(1, sizeof *r);
    if (!r) return err_no_memory(e);
    r->base.be = be;
    r->host = base;
    r->bytes = bytes;
    int rc;
    @autoreleasepool {
        rc = wrap_parts(m, r, e);
    }
    if (rc) {
        release_parts(r);
        return rc;
    }
    r->next = m->ranges;
    m->ranges = r;
    *out = &r->base;
    return 0;
}

void metal_range_free(backend_range *range) {
    struct metal_range *r = (struct metal_range *)range;
    struct metal_range **link = &metal_of(range->be)->ranges;
    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
    metal_settle(metal_of(range->be));
    release_parts(r);
}

/* A buffer that holds all of data in place, owned by the caller, and the offset in it: one of the
 * range's buffers (*in_range), or for data that crosses two of them a new one over its pages. nil:
 * data lies in no range. */
static id<MTLBuffer> find_place(struct metal_backend *m, const uint8_t *data, uint64_t bytes,
                                uint64_t *offset, bool *in_range) {
    const struct metal_range *r = m->ranges;
    while (r && (data < r->host || (uint64_t)(data - r->host) >= r->bytes))
        r = r->next;
    if (!r || bytes > r->bytes - (uint64_t)(data - r->host)) return nil;
    uint64_t at = (uint64_t)(data - r->host), i = at / r->stride;
    *offset = at - i * r->stride;
    *in_range = *offset + bytes <= [r->parts[i] length];
    if (*in_range) return [r->parts[i] retain];
    *offset = at % METAL_PAGE;
    uint64_t pages = (*offset + bytes + METAL_PAGE - 1) / METAL_PAGE * METAL_PAGE;
    return pages <= r->stride ? wrap_pages(m, data - *offset, pages) : nil;
}

/* ---- weights ---- */

int metal_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                     err *e) {
    struct metal_backend *m = metal_of(be);
    struct metal_weight *w = mem_new(1, sizeof *w);
    uint64_t bytes, row, n = desc->n_experts ? desc->n_experts : 1;
    if (!w) return err_no_memory(e);
    w->base = (backend_weight){.be = be,
                               .type = desc->type,
                               .use = desc->use,
                               .n_experts = desc->n_experts,
                               .n_out = desc->n_out,
                               .n_in = desc->n_in};
    qtype_bytes(desc->type, desc->n_out * n, desc->n_in, &bytes); /* checked by backend.c */
    qtype_bytes(desc->type, 1, desc->n_in, &row);
    if (row > UINT32_MAX) {
        free(w);
        return err_set_param(
            e, ERR_UNSUPPORTED, desc->name,
            "tensor %s has rows of %llu bytes; backend \"metal\" needs less than 4 GiB", desc->name,
            (unsigned long long)row);
    }
    @autoreleasepool {
        w->mtl = find_place(m, desc->data, bytes, &w->offset, &w->in_range);
        if (!w->mtl && bytes <= m->features.max_buffer_bytes) {
            w->offset = 0;
            w->mtl = [m->device newBufferWithBytes:desc->data
                                            length:(NSUInteger)bytes
                                           options:MTLResourceStorageModeShared];
            [w->mtl setLabel:@"weights"];
            metal_residency_add(m, w->mtl);
            w->base.bytes = bytes;
        }
    }
    if (!w->mtl) {
        free(w);
        return buffer_refused(m, bytes, e);
    }
    *out = &w->base;
    return 0;
}

void metal_weight_free(backend_weight *w) {
    struct metal_weight *mw = (struct metal_weight *)w;
    metal_settle(metal_of(w->be));
    if (!mw->in_range) metal_residency_remove(metal_of(w->be), mw->mtl);
    [mw->mtl release];
    free(mw);
}
