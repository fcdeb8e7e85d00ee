/* imatrix.h - importance matrices: for each weight of a model, how large the inputs of its products
 * are, column by column, as the means of their squares over a text. A quantizer loses less of what
 * matters if it weighs errors by them.
 *
 * Read in both forms that llama.cpp's llama-imatrix writes (tools/imatrix/imatrix.cpp): GGUF with
 * the tensors NAME.in_sum2 (n_mats, n_in) and NAME.counts (n_mats, 1), and the older one:
 *
 *   i32 entries, then for each: i32 bytes of the name, the name, i32 calls, i32 n, f32 sums[n];
 *   optional: i32 chunks, i32 bytes of the text's name, the name
 *
 * where a sum divided by the calls is the mean. Written as GGUF.
 *
 * THREAD SAFETY: one thread while it is filled; afterwards any number may read it. */
#ifndef INFERD_FORMATS_IMATRIX_H
#define INFERD_FORMATS_IMATRIX_H

#include "core/formats/gguf/gguf.h"

typedef struct imatrix imatrix;

/* What one tensor's products read: n_mats matrices (experts, heads) with inputs of n_in columns.
 * The older form does not say how many: n_mats is 1 and n_in the product of both. */
struct imatrix_entry {
    char *name; /* of the tensor */
    uint64_t n_in, n_mats;
    double *sums;   /* (n_mats, n_in) of squares; the caller of imatrix_add may add to them, */
    double *counts; /* (n_mats) and to the number of rows */
};

/* What is known of the text. */
struct imatrix_text {
    char *name; /* owned; NULL: not known */
    uint32_t n_chunks, chunk_tokens;
};

/* ERR_IO, ERR_FORMAT (names the field), ERR_NOMEM. */
int imatrix_open(const char *path, imatrix **out, err *e);
/* Over the caller's memory, which is not needed afterwards. name: for errors. */
int imatrix_open_memory(const void *bytes, uint64_t n, const char *name, imatrix **out, err *e);
/* An empty one, to be filled. NULL: no memory. */
imatrix *imatrix_new(void);
void imatrix_free(imatrix *m); /* NULL is fine */

/* Adds a zeroed entry; *out is NULL if there is one of that name. *out is valid until imatrix_free.
 * ERR_NOMEM. */
int imatrix_add(imatrix *m, const char *name, uint64_t n_in, uint64_t n_mats,
                struct imatrix_entry **out, err *e);
uint64_t imatrix_n_entries(const imatrix *m);
const struct imatrix_entry *imatrix_at(const imatrix *m, uint64_t i); /* i < n_entries */
const struct imatrix_text *imatrix_text(const imatrix *m);
/* text->name is copied. ERR_NOMEM. */
int imatrix_set_text(imatrix *m, const struct imatrix_text *text, err *e);
/* Of a matrix that was opened: NULL if it has none. */
const struct imatrix_entry *imatrix_find(const imatrix *m, gguf_str name);

/* Means i .. i + n - 1 of an entry that has n_in * n_mats of them; 1 where no row was counted, as
 * an expert that no token chose. */
void imatrix_means(const struct imatrix_entry *entry, uint64_t i, uint64_t n, float *out);

/* Writes an entry of each name once, in order of names. */
int imatrix_write(const imatrix *m, const char *path, err *e);

#endif
