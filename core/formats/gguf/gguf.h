/* gguf.h - reads GGUF v2/v3 model files, mapped read-only and never trusted; writes GGUF v3.
 *
 * Source: the GGUF specification (ggml docs/gguf.md). Every count, length, offset and type is
 * checked in uint64_t against the file's size before it is used; an error names the file, the byte
 * offset and the field. Once gguf_open succeeds, every accessor below is safe without checks.
 *
 * THREAD SAFETY: an open gguf is immutable; any number of threads may read it. */
#ifndef INFERD_FORMATS_GGUF_GGUF_H
#define INFERD_FORMATS_GGUF_GGUF_H

#include "core/base/err.h"
#include "core/base/qblock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gguf gguf;

/* Metadata value types, numbers as in the file. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

/* Bytes inside the mapping, NOT NUL-terminated. Borrowed from the gguf. */
typedef struct gguf_str {
    const char *data;
    uint64_t len;
} gguf_str;

/* One tensor. Row-major; dims[0] is the fastest dimension. data lies inside the mapping and is
 * aligned to the file's alignment. If the file stores the tensor in another order (model_file.h),
 * data is NULL and gguf_tensor_read produces the bytes. If this build cannot read its type (only
 * with GGUF_OPEN_VOCAB_ONLY), data is NULL and bytes is 0. Borrowed from the gguf. */
typedef struct gguf_tensor {
    gguf_str name;
    int type;         /* enum qtype */
    uint32_t n_dims;  /* 1..4 */
    uint64_t dims[4]; /* unused ones are 1; dims[0] fastest */
    uint64_t n_elems; /* product of dims */
    const void *data;
    uint64_t bytes; /* of data */
} gguf_tensor;

enum gguf_open_flags {
    GGUF_OPEN_VOCAB_ONLY = 1, /* lists tensors of unsupported types instead of refusing them */
    /* A folder's tensors in the order that GGUF files of the family have, although more of them are
     * then computed: for a file that others read, too. */
    GGUF_OPEN_AS_FILE = 2
};

/* Opens and checks path. ERR_IO (cannot open), ERR_FORMAT (names offset and field),
 * ERR_UNSUPPORTED (version, big-endian, tensor type). On failure *out is NULL, nothing is open. */
int gguf_open(const char *path, int flags, gguf **out, err *e);
/* Returns the mapping's pages to the system; they are read again when accessed. For callers that
 * have copied what they need. */
void gguf_drop_pages(const gguf *g);
/* Checks that g's files did not change since they were opened (model_file.h). ERR_CHANGED names one
 * that did: data read from it since then may be wrong. Makes no system call; any thread. */
int gguf_check(const gguf *g, err *e);
void gguf_close(gguf *g); /* unmaps: every borrowed pointer dies. NULL is fine */

/* As gguf_open, over the caller's memory, which must outlive the gguf (fuzzing, tests). */
int gguf_open_memory(const void *bytes, uint64_t n, const char *name, int flags, gguf **out,
                     err *e);

const char *gguf_path(const gguf *g);
uint64_t gguf_file_bytes(const gguf *g);
/* gguf_file_bytes() bytes; NULL if the model is not a single GGUF file (model_file.h) */
const void *gguf_mapping(const gguf *g);

/* The mapping of the i-th of g's files, valid until gguf_close: base and bytes are multiples of
 * 16384, with zeros after the end of the file. A tensor's data lies in one of them or in memory
 * that g owns. false: no more files, or g was opened over memory. */
bool gguf_file_mapping(const gguf *g, uint64_t i, const void **base, uint64_t *bytes);

uint64_t gguf_n_tensors(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, uint64_t i);
const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name); /* NULL: none */

/* Copies n bytes of t, from byte `offset` on, to dst, whether or not data is set. Any thread.
 * ERR_INVALID: outside t. */
int gguf_tensor_read(const gguf *g, const gguf_tensor *t, uint64_t offset, uint64_t n, void *dst,
                     err *e);

/* Asks the system to start reading t from its file. Only a hint. */
void gguf_tensor_will_need(const gguf_tensor *t);

bool gguf_has(const gguf *g, const char *key);
/* Typed reads: 0, ERR_NOT_FOUND, or ERR_FORMAT for another type. u64 accepts any integer type with
 * a value that fits; f64 any float type. */
int gguf_get_u64(const gguf *g, const char *key, uint64_t *value, err *e);
int gguf_get_f64(const gguf *g, const char *key, double *value, err *e);
int gguf_get_bool(const gguf *g, const char *key, bool *value, err *e);
int gguf_get_str(const gguf *g, const char *key, gguf_str *value, err *e);

/* Arrays have *n elements; the readers below return element i, 0 or empty if i >= n. */
int gguf_get_array(const gguf *g, const char *key, enum gguf_type *elem, uint64_t *n, err *e);
gguf_str gguf_array_str(const gguf *g, const char *key, uint64_t i); /* O(1) */
double gguf_array_f64(const gguf *g, const char *key, uint64_t i);
int64_t gguf_array_i64(const gguf *g, const char *key, uint64_t i);

/* Writer: add all metadata, then all tensors; then call finish, or begin, put for all data in
 * pieces, and commit. Both write PATH.tmp, fsync and rename it, so PATH is complete or absent. A
 * repeated key or tensor is ERR_EXISTS; a tensor whose bytes do not fit its shape and type is
 * ERR_INVALID. One thread, except gguf_writer_put. */
typedef struct gguf_writer gguf_writer;
gguf_writer *gguf_writer_new(void);
void gguf_writer_free(gguf_writer *w); /* removes PATH.tmp unless committed. NULL is fine */
/* Copies every key of src except those already set. */
int gguf_writer_copy_metadata(gguf_writer *w, const gguf *src, err *e);
int gguf_writer_set_u32(gguf_writer *w, const char *key, uint32_t v, err *e);
int gguf_writer_set_f32(gguf_writer *w, const char *key, float v, err *e);
int gguf_writer_set_bool(gguf_writer *w, const char *key, bool v, err *e);
int gguf_writer_set_str(gguf_writer *w, const char *key, const char *v, err *e);
/* n elements of a fixed-size type / n strings; copied. */
int gguf_writer_set_array(gguf_writer *w, const char *key, enum gguf_type elem, const void *values,
                          uint64_t n, err *e);
int gguf_writer_set_texts(gguf_writer *w, const char *key, const gguf_str *texts, uint64_t n,
                          err *e);
int gguf_writer_add_tensor(gguf_writer *w, const gguf_tensor *t, err *e);
/* Borrows each tensor's data until it returns. */
int gguf_writer_finish(gguf_writer *w, const char *path, err *e);
/* Writes everything except the data; ignores the tensors' data pointers. Overwrites an old PATH.tmp
 * unless another process is writing it. ERR_IO, also if the disk has too little space. */
int gguf_writer_begin(gguf_writer *w, const char *path, err *e);
/* Writes n bytes of the tensor that was added as number `tensor`, from byte `offset` of its data
 * on. Put each byte once, in any order, from any number of threads. */
int gguf_writer_put(gguf_writer *w, uint64_t tensor, uint64_t offset, const void *data, uint64_t n,
                    err *e);
int gguf_writer_commit(gguf_writer *w, err *e); /* ERR_INVALID unless every byte was put */

#endif
