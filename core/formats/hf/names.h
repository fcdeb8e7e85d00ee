/* hf/names.h - names of a folder's tensors: what each becomes. Private to hf/names.c (the tables)
 * and hf/tensors.c. */
#ifndef INFERD_FORMATS_HF_NAMES_H
#define INFERD_FORMATS_HF_NAMES_H

#include "core/formats/hf/model_int.h"

enum layout {
    AS_IS,
    ROWS_OF_Q, /* permuted if the family is HF_PERMUTED */
    ROWS_OF_K,
    CONVOLUTION,    /* (channels, 1, taps) -> (channels, taps) */
    DECAY,          /* a logarithm; GGUF has -e^x */
    LATENT_KV,      /* rows of each head's K, then V -> K transposed, and V, by head */
    QKV_BY_HEAD,    /* each head's rows of Q, K and V; GGUF has all of Q, of K, of V */
    DECAY_OF_HEADS, /* of Kimi Delta Attention: a column, whatever the shape, */
    FLAT,           /* and a vector */
    COLUMN,         /* of Mamba-2: a vector as a matrix of one column, */
    DECAY_COLUMN,
    POSITIONS,      /* of encoders, from first_position on */
    GROUPS,         /* or of a row for each group */
    ONE_ROW,        /* a matrix of one row as a vector */
    SHARED_DOWN,    /* of the shared expert, which is the whole FFN without experts */
    HALVES,         /* rows of gate, then of up */
    STACKED,        /* a file's tensor is one expert's matrix */
    GATE_UP,        /* all experts': gate's rows, then up's */
    OSS_GATE_UP,    /* gpt-oss, transposed: gate's and up's columns alternate */
    OSS_DOWN,       /* transposed */
    GATE_UP_TURNED, /* Llama 4, transposed: gate's columns, then up's */
    TURNED,         /* a matrix (inputs, outputs) */
    OSS_GATE_UP_BIAS,
    OSS_GATE_UP_BLOCKS, /* MXFP4: gate's and up's rows alternate */
    OSS_GATE_UP_SCALES,
    OSS_DOWN_BLOCKS,
    OSS_DOWN_SCALES
};

/* Expert tensors of a layer. */
enum part { PART_DOWN, PART_GATE, PART_UP, N_PARTS };
struct name_row {
    const char *from; /* after "model.layers.N."; '*' is an expert's number */
    const char *to;   /* after "blk.N."; NULL: parts of the experts */
    enum layout layout;
    uint32_t needs, excludes; /* traits */
    enum part part;
    enum hf_scale scale;
    uint32_t rank; /* STACKED: the converter's order of a layer's parts */
};

/* The row of a tensor of the model, or of a layer (without "model.layers.N."; its
 * expert's number is '*'), in families with these traits. NULL: unknown. */
const struct name_row *hf_find_model_row(const char *name, uint32_t traits);
const struct name_row *hf_find_layer_row(const char *name, uint32_t traits);

#endif
