/* gguf.h - reads GGUF v2/v3 model files, mapped read-only, never trusted; and writes them.
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

/* One tensor. Row-major; n_cols is GGUF's first (fastest) dimension. data lies wholly inside the
 * mapping and is aligned to the file's alignment. Of a tensor that a file stores in another order
 * (model_file.h) data is NULL: gguf_tensor_read makes its bytes. Of a type that this build cannot
 * read (possible with GGUF_OPEN_VOCAB_ONLY alone) data is NULL and bytes 0. Borrowed from the
 * gguf. */
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
    GGUF_OPEN_VOCAB_ONLY = 1 /* tensors of types this build cannot read are listed, not refused */
};

/* Opens and checks path. ERR_IO (cannot open), ERR_FORMAT (names offset and field),
 * ERR_UNSUPPORTED (version, big-endian, tensor type). On failure *out is NULL, nothing is open. */
int gguf_open(const char *path, int flags, gguf **out, err *e);
/* Gives the mapping's pages back to the system: they are read again when they are touched. For
 * who has copied what it needs. */
void gguf_drop_pages(const gguf *g);
/* Are g's files still what was opened (model_file.h)? ERR_CHANGED names one that is not: what was
 * read of it since may be wrong. Makes no system call; any thread. */
int gguf_check(const gguf *g, err *e);
void gguf_close(gguf *g); /* unmaps: every borrowed pointer dies. NULL is fine */

/* As gguf_open over caller's memory, which must outlive the gguf (fuzzing, tests). */
int gguf_open_memory(const void *bytes, uint64_t n, const char *name, int flags, gguf **out,
                     err *e);

const char *gguf_path(const gguf *g);
uint64_t gguf_file_bytes(const gguf *g);
/* gguf_file_bytes() bytes; NULL of a model that is no single GGUF file (model_file.h) */
const void *gguf_mapping(const gguf *g);

/* The memory that the i-th of g's files is mapped to, to the end of its last 16384 bytes, zeros
 * behind the file's end; base at a multiple of 16384. A tensor's data lie in one of them, or in
 * memory of g's own. False: there are no more, or g is not over files. Until gguf_close. */
bool gguf_file_mapping(const gguf *g, uint64_t i, const void **base, uint64_t *bytes);

uint64_t gguf_n_tensors(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, uint64_t i);
const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name); /* NULL: none */

/* n bytes from byte `offset` of t's data on, to dst, whether or not it has data in place. Any
 * thread. ERR_INVALID: not inside t. */
int gguf_tensor_read(const gguf *g, const gguf_tensor *t, uint64_t offset, uint64_t n, void *dst,
                     err *e);

/* Has the system begin to read t from its file, as far as it is not in memory. Only a wish. */
void gguf_tensor_will_need(const gguf_tensor *t);

bool gguf_has(const gguf *g, const char *key);
/* Typed reads: 0, ERR_NOT_FOUND, or ERR_FORMAT when the type does not fit (any integer type is
 * accepted for u64 where the value fits; any float type for f64). */
int gguf_get_u64(const gguf *g, const char *key, uint64_t *value, err *e);
int gguf_get_f64(const gguf *g, const char *key, double *value, err *e);
int gguf_get_bool(const gguf *g, const char *key, bool *value, err *e);
int gguf_get_str(const gguf *g, const char *key, gguf_str *value, err *e);

/* Arrays: *n elements of scalar type; element i via the readers below (i < n, else 0/empty). */
int gguf_get_array(const gguf *g, const char *key, enum gguf_type *elem, uint64_t *n, err *e);
gguf_str gguf_array_str(const gguf *g, const char *key, uint64_t i); /* O(1) */
double gguf_array_f64(const gguf *g, const char *key, uint64_t i);
int64_t gguf_array_i64(const gguf *g, const char *key, uint64_t i);

/* Writer: add all metadata, then all tensors; then either finish, or begin, put all data in pieces,
 * commit. Both write PATH.tmp, fsync and rename it, so that PATH is whole or not there. A key or
 * tensor that is there already is ERR_EXISTS; a tensor whose bytes do not fit its shape and type is
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
/* n elements of a fixed-size type, as they lie in memory; copied, as the texts of a list are. */
int gguf_writer_set_array(gguf_writer *w, const char *key, enum gguf_type elem, const void *values,
                          uint64_t n, err *e);
int gguf_writer_set_texts(gguf_writer *w, const char *key, const gguf_str *texts, uint64_t n,
                          err *e);
int gguf_writer_add_tensor(gguf_writer *w, const gguf_tensor *t, err *e);
/* Each tensor's data are borrowed until this returns. */
int gguf_writer_finish(gguf_writer *w, const char *path, err *e);
/* Writes all but the data; the tensors' data pointers are not looked at. An old PATH.tmp is
 * overwritten unless another process is writing it. ERR_IO, also when the disk is too small. */
int gguf_writer_begin(gguf_writer *w, const char *path, err *e);
/* n bytes of the tensor that was added as number `tensor`, from byte `offset` of its data on. Each
 * byte is put once, in any order, from any threads at the same time. */
int gguf_writer_put(gguf_writer *w, uint64_t tensor, uint64_t offset, const void *data, uint64_t n,
                    err *e);
int gguf_writer_commit(gguf_writer *w, err *e); /* ERR_INVALID unless every byte was put */

#endif
