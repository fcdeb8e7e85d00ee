/* kernels.h - what the launchers see of the kernels in shaders/cuda: host stubs for cuda_launch. */
#ifndef INFERD_SHADERS_CUDA_KERNELS_H
#define INFERD_SHADERS_CUDA_KERNELS_H

#include "shaders/args_attention.h"
#include "shaders/args_linear.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* rows.cu */
const void *cuda_embed_kernel(void);
const void *cuda_gather_kernel(void);
const void *cuda_gated_kernel(void);
const void *cuda_add_normed_kernel(void);
const void *cuda_gate_kernel(void);
const void *cuda_copy_tokens_kernel(void);
const void *cuda_upload_kernel(void);
const void *cuda_kv_copy_kernel(void);

/* comm.cu */
const void *cuda_sum_parts_kernel(void);
const void *cuda_join_parts_kernel(void);
const void *cuda_peer_sum_kernel(int fours); /* four values at once, aligned to 16 bytes */
const void *cuda_peer_gather_kernel(int fours);
const void *cuda_peer_meet_kernel(void);
const void *cuda_peer_add_kernel(void);

/* epilogue.cu */
const void *cuda_epilogue_kernel(void);

/* rope.cu, top.cu */
const void *cuda_rope_store_kernel(int wide); /* wide: heads of over CUDA_ROPE_DIM */
const void *cuda_top_kernel(void);

/* delta_net.cu */
const void *cuda_delta_kernel(enum cuda_delta_kernel kernel);
const void *cuda_delta_prefill_kernel(enum cuda_delta_kernel kernel); /* delta_prefill.cu's */
const void *cuda_delta_step_kernel(void);                             /* delta_step.cu */

/* short_conv.cu; keep: what the next step reads, after a step with several rows of a sequence */
const void *cuda_short_conv_kernel(int keep);

/* lt_probe.cu */
const void *cuda_lt_fill_kernel(void);
const void *cuda_lt_probe_kernel(void);

/* product_tile.cu, by enum cuda_format and shape: 0 (small blocks) or 1. kernel NULL: not
 * available. */
struct cuda_tile_kernel {
    const void *kernel;
    int threads, rows, inputs, stage_bytes; /* weight rows and input rows of a block */
};
struct cuda_tile_kernel cuda_product_tile_kernel(int format, int shape);
/* product_wgmma.cu: the same for sm_90 and quantized formats, 3 stages; the z dimension of the
 * grid counts K splits. */
struct cuda_tile_kernel cuda_product_wgmma_kernel(int format, int shape);

/* input.cu: n groups of four columns per thread; plain: no residual and no norms */
const void *cuda_input_kernel(uint32_t n, int plain);
/* With struct cargs_input_sum; NULL: not for that n. */
const void *cuda_input_sum_kernel(uint32_t n);
/* With struct cargs_input_gated; NULL: not for rows of that pitch. */
struct cuda_input_gated {
    const void *kernel;
    uint32_t groups; /* of four columns per thread */
};
struct cuda_input_gated cuda_input_gated_kernel(uint32_t pitch);

/* product_skinny*.cu, for n_groups (1, 2 or 4) groups of 8 rows; 0: for a single row, with
 * x_row: also experts with slots or the shared expert. A block has W consumer warps, at most
 * CARGS_SKINNY_CONSUMERS, and after them loaders (a multiple of n_turns) and, without x_row,
 * n_turns that copy the input, all in all at most CARGS_SKINNY_CONSUMERS + CARGS_SKINNY_PRODUCERS.
 * It takes n_stages * stage_bytes (+ slots * x_row) bytes of shared memory, at least W * n_groups *
 * 512 and a multiple of 1024, as is stage_bytes: W * tile_bytes and, without x_row, from the next
 * multiple of 1024 on, n_splits * 8 n_groups * 2 cols, rounded up. */
struct cuda_skinny {
    const void *kernel;
    uint32_t cols, tile_bytes; /* cols: of a stage */
};
struct cuda_skinny cuda_skinny16(int n_groups);
struct cuda_skinny cuda_skinny_q4(int format, int n_groups); /* Q4, Q4_MIN, IQ3_*, IQ4, MXFP4 */
struct cuda_skinny cuda_skinny_q(int format, int n_groups);  /* the other quantized formats */

/* product_f32.cu: threads 32 * CARGS_F32_WARPS; a warp takes `outs` outputs and group_rows = `rows`
 * rows. block_tiles is the number of tiles; grid x: their warps, without experts times the groups
 * of rows; grid y: experts' tiles. */
struct cuda_f32 {
    const void *kernel;
    uint32_t outs, rows;
};
struct cuda_f32 cuda_product_f32_kernel(uint32_t n_rows, uint32_t n_out);

/* moe.cu */
const void *cuda_moe_route_kernel(void);
const void *cuda_moe_lists_kernel(void);
const void *cuda_moe_combine_kernel(void);

/* heads.cu */
const void *cuda_heads_input_kernel(void);

/* dequantize.cu, by enum cuda_format; NULL: not quantized */
const void *cuda_dequantize_kernel(int format);

/* repack.cu, by enum qtype; NULL: not quantized */
const void *cuda_largest_kernel(int type);
const void *cuda_repack_kernel(int type);
const void *cuda_rescale_kernel(void);
/* BF16: its largest value, and its conversion to F16. */
const void *cuda_largest_value_kernel(void);
const void *cuda_halves_kernel(void);
/* f stays as it is if the type is not quantized. */
void cuda_repack_format(int type, struct cuda_repack_format *f);

/* attention*.cu */
const void *cuda_attention_decode_kernel(enum cuda_attention_type type,
                                         enum cuda_attention_dims dims);
/* Of heads of 512 dimensions. */
const void *cuda_attention_decode_merge_kernel(void);
/* Bytes of shared memory of a block of attention_decode; with makes_rows it stores K and V too. */
uint32_t cuda_attention_decode_shared(enum cuda_attention_type type, enum cuda_attention_dims dims,
                                      int makes_rows);
const void *cuda_attention_prefill_kernel(enum cuda_attention_type type,
                                          enum cuda_attention_dims dims);
/* attention_prefill of heads of 512 dimensions: queries of a tile, bytes of shared memory. */
uint32_t cuda_attention_wide_tile(enum cuda_attention_type type);
uint32_t cuda_attention_wide_shared(enum cuda_attention_type type);
const void *cuda_attention_plain_kernel(void);
/* For type F16 or BF16, n_groups (1..CUDA_LATENT_GROUPS) groups of 8 queries. */
const void *cuda_attention_latent_kernel(enum cuda_attention_type type, uint32_t n_groups);
const void *cuda_attention_latent_merge_kernel(void);
/* Bytes of shared memory of a block of attention_latent, with n_quarters in its ring. */
uint32_t cuda_attention_latent_shared(enum cuda_attention_type type, uint32_t n_groups,
                                      uint32_t n_quarters);
/* sample.cu */
const void *cuda_sample_kernel(void);
const void *cuda_update_history_kernel(void);

#ifdef __cplusplus
}
#endif

#endif
