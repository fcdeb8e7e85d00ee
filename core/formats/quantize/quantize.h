/* quantize.h - rewrites a model, a GGUF or a folder (model_file.h), as a GGUF with its weights in
 * another type.
 *
 * A plan says for each tensor what it becomes; running it writes the new file. Types are named as
 * users know them: a plain type ("Q8_0"), or a mix ("Q4_K_M") that gives the tensors that suffer
 * most a better type. Which those are follows llama.cpp's llama-quantize without an importance
 * matrix, so that a name means the same file everywhere.
 *
 * THREAD SAFETY: one thread for a plan; it may run on several. */
#ifndef INFERD_FORMATS_QUANTIZE_QUANTIZE_H
#define INFERD_FORMATS_QUANTIZE_QUANTIZE_H

#include "core/base/str.h"
#include "core/formats/gguf/gguf.h"

struct quantize_options {
    const char *type; /* "Q4_K_M", "q8_0": case does not matter */
    /* Plain types for the output head (the embedding where it is both) and for the embedding, or
     * NULL: as the type says. */
    const char *output_type, *embedding_type;
    bool pure;             /* the type's main one for every matrix, no mix */
    bool allow_requantize; /* also from types that have lost precision already */
};

/* Read-only for callers. */
struct quantize_tensor {
    const gguf_tensor *source; /* borrowed from the gguf */
    int wanted;                /* enum qtype that the options ask for */
    int type;                  /* what it becomes: another one where rows are no whole blocks */
    uint64_t bytes;            /* of type */
    /* After quantize_run: sums of squares over all values of what was lost and of what was there.
     * Root-mean-square error = sqrt(error_sq / source->n_elems). */
    double error_sq, value_sq;
};

typedef struct quantize_plan quantize_plan;

/* src is borrowed until the plan is freed. ERR_INVALID: no such type, or src is quantized already;
 * ERR_UNSUPPORTED: a part of a split model; a type that this build cannot write. */
int quantize_plan_new(const gguf *src, const struct quantize_options *o, quantize_plan **out,
                      err *e);
void quantize_plan_free(quantize_plan *p); /* NULL is fine */

const char *quantize_plan_type(const quantize_plan *p); /* "Q4_K_M" */
uint64_t quantize_plan_n(const quantize_plan *p);       /* tensors, in src's order */
const struct quantize_tensor *quantize_plan_at(const quantize_plan *p, uint64_t i);

struct quantize_output {
    const char *path;
    bool overwrite;     /* of a file that is there */
    uint32_t n_threads; /* 0: as many as the process may use */
    /* Bytes of src so far, of all. From the calling thread, NULL: none; anything but 0 stops. */
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    /* Adds keys that src does not have, before any of src's is copied. NULL: none. */
    int (*add_keys)(void *arg, gguf_writer *w, err *e);
    void *arg; /* of both */
};

/* Writes path with src's metadata, tensor order and alignment; general.file_type and
 * general.quantization_version say what it is. The bytes do not depend on n_threads. Memory: a few
 * MiB a thread, whatever the model's size. ERR_EXISTS, ERR_INVALID (path is src; a value that is
 * no number or too large for its type), ERR_IO, ERR_STOPPING: path is as it was before. */
int quantize_run(quantize_plan *p, const struct quantize_output *o, err *e);

/* Appends the names that quantize_options.type takes, "F32, F16, ...", in lines of at most width
 * characters (0: one line). */
void quantize_add_types(str *out, size_t width);

#endif
