/* tensors_int.h - shared by tensors.c and expert_tensors.c, which map the tensors of a folder's
 * files to tensors of GGUF. */
#ifndef INFERD_HF_TENSORS_INT_H
#define INFERD_HF_TENSORS_INT_H

#include "core/formats/hf/model_int.h"
#include "core/formats/hf/names.h"

enum { NAME_BYTES = 192 };
enum { LATE = 1 }; /* bit 62 of order: after the tensors made first */

/* A tensor of the result. */
struct hf_entry {
    gguf_tensor tensor;
    struct hf_recipe recipe;
    uint64_t order; /* the converter's order: by the source that completes it */
    uint32_t have;  /* STACKED: sources so far */
    uint32_t rank;
    enum layout layout;
};

struct hf_mapper {
    struct hf_tensors *t;
    const struct hf_config *config;
    const char *path;         /* of the current file */
    struct hf_entry *entries; /* (n) */
    uint64_t n, capacity;
    uint64_t *experts; /* (n_layers, N_PARTS) number of an entry + 1 */
    uint64_t order;
    float *row_scales; /* of HF_SCALE_SSM_IN or HF_SCALE_CONVOLUTION, or NULL */
    err *e;
};

/* tensors.c: each returns 0, or an error in m->e. */
int hf_bad_shape(const struct hf_mapper *m, const struct safetensor *s, const char *wanted);
/* Adds an entry named "blk.N....", as in the result. *index: its number. */
int hf_add_entry(struct hf_mapper *m, const char *name, uint64_t *index);
/* Room for n sources, the first of which is s. */
int hf_set_sources(struct hf_mapper *m, struct hf_entry *entry, const struct safetensor *s,
                   uint32_t n);
/* Sets the tensor's shape from its recipe's sizes. n_dims: 1 drops rows and matrices, 2 matrices.
 */
void hf_set_dims(struct hf_entry *entry, uint32_t n_dims);

/* expert_tensors.c */
/* One expert's matrix. */
int hf_map_expert(struct hf_mapper *m, const struct safetensor *s, const struct name_row *row,
                  uint32_t layer, uint64_t expert);
/* Gate and up from one source of all experts: their rows (transposed: columns) are halves of the
 * source or alternate. */
int hf_map_gate_up(struct hf_mapper *m, const struct safetensor *s, uint32_t layer, bool transposed,
                   bool in_turns);
int hf_map_oss_down(struct hf_mapper *m, const struct safetensor *s, uint32_t layer);
/* (n_experts, 2 n_ff) -> two of (n_experts, n_ff) */
int hf_map_oss_bias(struct hf_mapper *m, const struct safetensor *s, uint32_t layer);
/* MXFP4 is stored as two tensors of bytes, in any order: blocks (n_experts, rows, blocks, 16) and
 * scales (n_experts, rows, blocks). The second one's shape must match the first one's. */
int hf_map_mxfp4(struct hf_mapper *m, const struct safetensor *s, uint32_t layer, enum part part,
                 bool in_turns, bool is_scales);
int hf_map_mxfp4_gate_up(struct hf_mapper *m, const struct safetensor *s, uint32_t layer,
                         bool is_scales);

#endif
