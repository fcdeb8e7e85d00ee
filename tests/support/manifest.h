/* manifest.h - what a model file contains, as text: a line for each key of the architecture and one
 * for each tensor, with a hash of its bytes. Single thread. */
#ifndef INFERD_TESTS_MANIFEST_H
#define INFERD_TESTS_MANIFEST_H

#include "core/formats/gguf/gguf.h"

enum { MANIFEST_MAX_LINES = 1024 };

/*   qwen3.block_count u32 28
 *   mimo2.attention.head_count_kv i32s 1 2 2 1           (of an array)
 *   blk.0.attn_k.weight BF16 32x48 0123456789abcdef      (FNV-1a)
 * Dimensions of 1 at the end of a shape are left out, and the keys general.* and tokenizer.* except
 * general.architecture. */
struct manifest {
    char *text; /* the lines, with NUL between them */
    char *lines[MANIFEST_MAX_LINES];
    size_t n;
};

/* Of g, sorted. The caller calls manifest_free, also on failure. */
int manifest_of(const gguf *g, struct manifest *m, err *e);
/* The lines of the file at path; none if it cannot be read. The caller calls manifest_free. */
void manifest_read(const char *path, struct manifest *m);
void manifest_free(struct manifest *m);

/* Sets the keys that m lists. */
int manifest_set_keys(const struct manifest *m, gguf_writer *w, err *e);
/* Writes a file to path: m's keys, those that add_keys(arg) sets besides, and g's tensors. */
int manifest_write_file(const struct manifest *m, const gguf *g,
                        int (*add_keys)(void *arg, gguf_writer *w, err *e), void *arg,
                        const char *path, err *e);

#endif
