/* memory_int.h - device memory, copies between it and the host, events in the stream, and
 * descriptors for sm_90's TMA. */
#ifndef INFERD_CUDA_MEMORY_INT_H
#define INFERD_CUDA_MEMORY_INT_H

#include "core/backend/cuda/state_int.h"

/* ---- memory.c: allocation ---- */

/* Bytes that the driver takes for an allocation of this size. */
uint64_t cuda_memory_taken(uint64_t bytes);
/* Bytes that all backends of this process hold on the device. */
uint64_t cuda_memory_held(const struct cuda_backend *c);
/* Raw device memory, counted. ERR_NOMEM says how much is free. */
int cuda_memory_new(struct cuda_backend *c, uint64_t bytes, void **out, err *e);
void cuda_memory_free(struct cuda_backend *c, void *p, uint64_t bytes);
int cuda_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e);
void cuda_buf_free(backend_buf *buf);
/* A scratch buffer; nothing is allocated for 0 bytes. ERR_NOMEM. */
int cuda_scratch_new(struct cuda_backend *c, enum cuda_scratch which, uint64_t bytes, err *e);
/* Fills values with finite f16 numbers of many magnitudes, the same each time: for probes. 0 or
 * ERR_DEVICE. */
int cuda_random_fill(struct cuda_backend *c, void *values, uint64_t bytes);

/* ---- transfer.c: uploads, downloads, events ---- */

/* Allocates the staging buffer and the events; the stream exists. */
int cuda_transfer_open(struct cuda_backend *c, err *e);
void cuda_transfer_close(struct cuda_backend *c);
int cuda_upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                err *e);
int cuda_upload_all(backend *be, const struct backend_upload *list, uint32_t n, err *e);
int cuda_download(backend *be, const backend_buf *src, uint64_t offset, void *dst, uint64_t bytes,
                  err *e);
int cuda_host_new(backend *be, uint64_t bytes, void **out, err *e);
void cuda_host_free(backend *be, void *p);
int cuda_download_later(backend *be, const backend_buf *src, uint64_t offset, void *to,
                        uint64_t bytes, err *e);
int cuda_event_record(backend *be, uint32_t event, err *e);
int cuda_event_wait(backend *be, uint32_t event, err *e);
int cuda_copy_bandwidth(backend *be, double *bytes_per_s, err *e);

/* ---- side.c: the side stream (core/backend/backend.h) ---- */

void cuda_side_close(struct cuda_backend *c);
int cuda_side_open(backend *be, uint64_t most_bytes, err *e);
int cuda_side_begin(backend *be, err *e);
int cuda_side_out(backend *be, const backend_buf *src, uint64_t offset, void *to, uint64_t bytes,
                  err *e);
int cuda_side_in(backend *be, backend_buf *dst, uint64_t offset, const void *from, uint64_t bytes,
                 err *e);
int cuda_side_end(backend *be, err *e);
int cuda_side_done(backend *be, uint64_t *n, err *e);
int cuda_side_join(backend *be, err *e);
int cuda_side_wait(backend *be, err *e);

/* ---- tensor_map.c ---- */

/* ERR_UNSUPPORTED: the driver is too old. */
int cuda_tensor_maps_open(struct cuda_backend *c, err *e);
/* Describes w, (n_rows, pitch) f16 in device memory, to the TMA: boxes of box_rows rows by
 * box_groups groups of 64 columns. 0 or ERR_DEVICE. */
int cuda_tensor_map(struct cuda_backend *c, const void *w, uint64_t n_rows, uint32_t pitch,
                    uint32_t box_rows, uint32_t box_groups, struct cuda_tensor_map *out);

#endif
