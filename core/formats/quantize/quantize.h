/* quantize.h - converts a model (GGUF or folder, model_file.h) to a GGUF with weights of another
 * type.
 *
 * A plan states the new type of each tensor; running it writes the file. Type names are
 * llama.cpp's: a plain type ("Q8_0"), or a mix ("Q4_K_M") that gives sensitive tensors more bits.
 * Mixes follow llama.cpp's llama-quantize, so a name means the same types in both. With an
 * importance matrix errors are weighed by it; types of less than three bits need one.
 *
 * THREAD SAFETY: one thread per plan; running it uses several. */
#ifndef INFERD_FORMATS_QUANTIZE_QUANTIZE_H
#define INFERD_FORMATS_QUANTIZE_QUANTIZE_H

#include "core/base/str.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/imatrix.h"

struct quantize_options {
    const char *type; /* "Q4_K_M", "q8_0"; case-insensitive */
    /* Plain types for the output head (the embedding if they are tied) and for the embedding; NULL:
     * as `type` says. */
    const char *output_type, *embedding_type;
    bool pure;              /* every matrix gets the mix's main type */
    bool allow_requantize;  /* accept quantized sources */
    const imatrix *imatrix; /* borrowed until the plan is freed; or NULL */
};

/* Read-only for callers. */
struct quantize_tensor {
    const gguf_tensor *source; /* borrowed from the gguf */
    int wanted;                /* enum qtype, by the options */
    int type;       /* enum qtype of the result; differs from wanted if rows are not whole blocks */
    uint64_t bytes; /* of type */
    const struct imatrix_entry *importance; /* NULL: all values count the same */
    bool lacks_importance;                  /* and its type needs it: quantize_run refuses */
    /* After quantize_run: sums over all values of the squared error and of the squared value.
     * Root-mean-square error = sqrt(error_sq / source->n_elems). */
    double error_sq, value_sq;
};

typedef struct quantize_plan quantize_plan;

/* src is borrowed until the plan is freed. ERR_INVALID: unknown type, src is quantized, or the
 * importance matrix is of another model; ERR_UNSUPPORTED: one part of a split model; a type that
 * this build cannot write. */
int quantize_plan_new(const gguf *src, const struct quantize_options *o, quantize_plan **out,
                      err *e);
void quantize_plan_free(quantize_plan *p); /* NULL is fine */

const char *quantize_plan_type(const quantize_plan *p); /* "Q4_K_M" */
uint64_t quantize_plan_n(const quantize_plan *p);       /* tensors, in src's order */
const struct quantize_tensor *quantize_plan_at(const quantize_plan *p, uint64_t i);

struct quantize_output {
    const char *path;
    bool overwrite;     /* an existing file */
    uint32_t n_threads; /* 0: as many as the process may use */
    /* Bytes of src done, and in total; called from the calling thread. Nonzero stops. NULL: none.
     */
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    /* Adds keys before those of src are copied; they take precedence. NULL: none. */
    int (*add_keys)(void *arg, gguf_writer *w, err *e);
    void *arg; /* for both */
};

/* Writes path with src's metadata, tensor order and alignment, and its own general.file_type and
 * general.quantization_version. The bytes do not depend on n_threads. Memory: a few MiB per thread.
 * After ERR_EXISTS, ERR_INVALID (path is src; a tensor lacks its importance; a value is not finite
 * or too large for its type),
 * ERR_IO or ERR_STOPPING path is unchanged. */
int quantize_run(quantize_plan *p, const struct quantize_output *o, err *e);

/* Appends the names of quantize_options.type, "F32, F16, ...", in lines of at most width characters
 * (0: one line). */
void quantize_add_types(str *out, size_t width);

#endif
