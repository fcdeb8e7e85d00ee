/* quantize_int.h - shared by quantize/plan.c (chooses types) and quantize.c (converts). Private to
 * core/formats. */
#ifndef INFERD_FORMATS_QUANTIZE_QUANTIZE_INT_H
#define INFERD_FORMATS_QUANTIZE_QUANTIZE_INT_H

#include "core/formats/quantize/quantize.h"

struct quantize_plan {
    const gguf *src;
    const imatrix *imatrix; /* or NULL */
    const char *type;
    uint32_t file_type;              /* general.file_type of the result */
    struct quantize_tensor *tensors; /* (n_tensors) in src's order */
    uint64_t n_tensors;
};

#endif
