/* gguf_int.h - what gguf.c (reader) and gguf_write.c (writer) share. Private to core/formats and
 * to the test support that builds files. */
#ifndef INFERD_FORMATS_GGUF_INT_H
#define INFERD_FORMATS_GGUF_INT_H

#include "core/formats/gguf.h"

enum {
    GGUF_VERSION_MIN = 2,
    GGUF_VERSION_MAX = 3,
    GGUF_ALIGNMENT_DEFAULT = 32,
    GGUF_ALIGNMENT_MIN = 8,
    GGUF_ALIGNMENT_MAX = 1 << 20,
    GGUF_KEYS_MAX = 1 << 16,    /* real files have under a hundred */
    GGUF_TENSORS_MAX = 1 << 20, /* real files have a few thousand */
    GGUF_NAME_MAX_BYTES = 65535 /* the specification's bound for keys, taken for names too */
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

uint64_t gguf_n_keys(const gguf *g);
const struct gguf_kv *gguf_key_at(const gguf *g, uint64_t i);

/* Bytes of one value of a fixed-size type, 0 for strings, arrays and unknown numbers. */
uint32_t gguf_scalar_bytes(uint32_t type);

/* Writer: adds a key with its payload as drawn above; both are copied. ERR_EXISTS. */
int gguf_writer_set_raw(gguf_writer *w, gguf_str key, enum gguf_type type, const void *payload,
                        uint64_t n, err *e);

#endif
