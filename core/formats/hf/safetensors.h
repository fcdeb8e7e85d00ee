/* safetensors.h - reads one .safetensors file, mapped read-only, never trusted.
 *
 * Source: the format's description in the safetensors library. The file, all little-endian:
 *   u64 n | n bytes of JSON | data
 *   {"__metadata__": {...}, NAME: {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [b, e]}}
 * Offsets count from the first byte of data; their difference is (product of shape) * bytes of
 * dtype, and no two tensors overlap. They need not be aligned. Every number is checked in
 * uint64_t against the file's size before it is used; an error names file, byte offset and tensor.
 *
 * THREAD SAFETY: an open file is immutable; any number of threads may read it. */
#ifndef INFERD_FORMATS_HF_SAFETENSORS_H
#define INFERD_FORMATS_HF_SAFETENSORS_H

#include "core/formats/gguf/gguf.h"

typedef struct safetensors safetensors;

enum { SAFETENSORS_MAX_DIMS = 8, SAFETENSORS_HEADER_MAX_BYTES = 100000000 };

/* Element types. ST_OTHER: a known type that no supported model needs; see type_name. ST_PACKED:
 * not of a file, see struct safetensor. */
enum safetensors_type {
    ST_F32,
    ST_F16,
    ST_BF16,
    ST_U8,
    ST_I8,
    ST_I32,
    ST_I64,
    ST_F8_E4M3,
    ST_OTHER,
    ST_PACKED
};

/* One tensor. Row-major, the last dimension is the fastest; a dimension may be 0. name and data lie
 * in the mapping; data need not be aligned. Borrowed from the safetensors. */
struct safetensor {
    gguf_str name;
    enum safetensors_type type;
    const char *type_name; /* "BF16" */
    uint32_t n_dims;       /* 0 (one element)..SAFETENSORS_MAX_DIMS */
    uint64_t dims[SAFETENSORS_MAX_DIMS];
    uint64_t n_elems;
    const uint8_t *data;
    uint64_t bytes;
    /* ST_PACKED: a matrix whose values are in several tensors; data is NULL. Else NULL. */
    const struct hf_packed *packed;
};

/* ERR_IO (cannot open), ERR_FORMAT (names offset and tensor), ERR_UNSUPPORTED (a dtype). On failure
 * *out is NULL, nothing is open. */
int safetensors_open(const char *path, safetensors **out, err *e);
void safetensors_close(safetensors *s); /* NULL is fine */
/* Over the caller's memory, which must outlive it (fuzzing, tests). */
int safetensors_open_memory(const void *bytes, uint64_t n, const char *name, safetensors **out,
                            err *e);

const char *safetensors_path(const safetensors *s);
uint64_t safetensors_bytes(const safetensors *s); /* of the file */
struct file_map;
const struct file_map *safetensors_map(const safetensors *s); /* empty, if opened over memory */
void safetensors_drop_pages(const safetensors *s);

uint64_t safetensors_n(const safetensors *s);
const struct safetensor *safetensors_at(const safetensors *s,
                                        uint64_t i); /* in the header's order */
const struct safetensor *safetensors_find(const safetensors *s, gguf_str name); /* NULL: none */

#endif
