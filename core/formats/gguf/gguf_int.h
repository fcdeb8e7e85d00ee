/* gguf_int.h - what gguf.c (reader) and gguf/write.c (writer) share. Private to core/formats and
 * to the test support that builds files. */
#ifndef INFERD_FORMATS_GGUF_GGUF_INT_H
#define INFERD_FORMATS_GGUF_GGUF_INT_H

#include "core/formats/file_map.h"
#include "core/formats/gguf/gguf.h"

#include <string.h>

enum {
    GGUF_VERSION_MIN = 2,
    GGUF_VERSION_MAX = 3,
    GGUF_ALIGNMENT_DEFAULT = 32,
    GGUF_ALIGNMENT_MIN = 8,
    GGUF_ALIGNMENT_MAX = 1 << 20,
    GGUF_KEYS_MAX = 1 << 16,    /* real files have under a hundred */
    GGUF_TENSORS_MAX = 1 << 20, /* real files have a few thousand */
    GGUF_NAME_MAX_BYTES = 65535 /* the specification's limit for keys, applied to names too */
};

/* One metadata entry. value (value_bytes) is the payload as it lies in the file, after the type
 * word; an array's payload begins with its element type (u32) and count (u64).
 *   scalar  | value |
 *   string  | u64 length | bytes |
 *   array   | u32 element type | u64 n | elements |          */
struct gguf_kv {
    gguf_str key;
    enum gguf_type type;
    enum gguf_type elem; /* arrays only */
    uint64_t n;          /* arrays only: elements */
    const uint8_t *value;
    uint64_t value_bytes;
    uint64_t *str_offsets; /* string arrays: (n) offset in the file of each length word */
};

enum { GGUF_ARRAY_HEAD_BYTES = 4 + 8 };

/* Source of tensors that are not in the gguf's own bytes: the other parts of a split model, the
 * files of a folder. Any member may be NULL. */
struct gguf_source {
    void *state;
    /* As gguf_tensor_read, for tensor number i, whose data is NULL. The range lies inside it. */
    int (*read)(const void *state, uint64_t i, uint64_t offset, uint64_t n, void *dst, err *e);
    void (*drop_pages)(const void *state);
    const char *(*path)(const void *state, uint64_t i); /* of its i-th file; NULL after the last */
    const struct file_map *(*map)(const void *state, uint64_t i); /* of the same files */
    void (*close)(void *state);
    uint64_t bytes; /* of its files */
};

struct gguf {
    const uint8_t *base; /* (bytes): map's, or the caller's */
    uint64_t bytes;
    struct file_map map;
    char *path;
    uint32_t version;
    uint64_t n_keys, n_tensors;
    struct gguf_kv *keys;                /* (n_keys) in file order */
    const struct gguf_kv **keys_by_name; /* (n_keys) sorted */
    gguf_tensor *tensors;                /* (n_tensors) in file order */
    const gguf_tensor **tensors_by_name; /* (n_tensors) sorted */
    struct gguf_source source;
};

/* Replaces g's tensors by n others: the array is copied, names and data are borrowed from source's
 * state. g owns source afterwards, also on failure; then g must be closed. ERR_FORMAT: a name
 * occurs twice. */
int gguf_set_tensors(gguf *g, const gguf_tensor *tensors, uint64_t n,
                     const struct gguf_source *source, err *e);

/* Path of the i-th file of g; NULL after the last. */
const char *gguf_source_path(const gguf *g, uint64_t i);

/* Removes the keys whose names begin with prefix. */
void gguf_forget_keys(gguf *g, const char *prefix);

static inline gguf_str gguf_str_of(const char *text) {
    return (gguf_str){text, strlen(text)};
}
int gguf_str_compare(gguf_str a, gguf_str b); /* as memcmp */
/* For qsort and bsearch over arrays of pointers: by key, by name. */
int gguf_key_compare(const void *a, const void *b);
int gguf_tensor_compare(const void *a, const void *b);

/* A name from a file for use in an error line: printable ASCII, cut. */
enum { GGUF_NAME_SHOWN_BYTES = 64 };
void gguf_show_name(char out[GGUF_NAME_SHOWN_BYTES + 4], gguf_str name);

const char *gguf_type_name(enum gguf_type type);

/* Offset of p, which points into g's bytes. */
static inline uint64_t gguf_offset_of(const gguf *g, const void *p) {
    return (uint64_t)((const uint8_t *)p - g->base);
}

uint64_t gguf_n_keys(const gguf *g);
const struct gguf_kv *gguf_key_at(const gguf *g, uint64_t i);

/* Bytes of one value of a fixed-size type, 0 for strings, arrays and unknown numbers. */
uint32_t gguf_scalar_bytes(uint32_t type);

/* Writer: its keys as the bytes of a complete file (n); ERR_INVALID if it has tensors. The caller
 * frees *bytes. */
int gguf_writer_to_memory(const gguf_writer *w, void **bytes, uint64_t *n, err *e);

/* Writer: adds a key with its payload, laid out as described above; both are copied. ERR_EXISTS. */
int gguf_writer_set_raw(gguf_writer *w, gguf_str key, enum gguf_type type, const void *payload,
                        uint64_t n, err *e);

#endif
