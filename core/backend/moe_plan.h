/* moe_plan.h - op_moe as the GPU backends run it: what does not depend on the device.
 *
 * Both run the same steps:
 *   score        the router's product
 *   route        each row's experts and their weights
 *   list pairs   the pairs of each expert and the tiles that they make (a single row: by route)
 *   gate and up  product of the experts, over tiles
 *   down         likewise
 *   combine      each row's sum over its experts, plus the shared expert
 * Only the device knows which experts a row uses: grids are as large as the op's sizes allow. */
#ifndef INFERD_BACKEND_MOE_PLAN_H
#define INFERD_BACKEND_MOE_PLAN_H

#include "core/backend/backend_int.h"
#include "core/base/mem.h"
#include "shaders/args_linear.h"

enum { MOE_LISTS_THREADS = 1024 }; /* most threads of moe_lists */

struct moe_traffic {
    uint64_t read, written; /* bytes */
};

struct moe_plan {
    uint32_t n_in, n_ff, n_experts, n_pairs;
    uint32_t tile_rows, n_tiles;
    struct args_moe_route route;
    struct args_moe_lists lists;
    struct args_moe_combine combine;
    uint32_t route_threads, lists_threads;
    struct moe_traffic route_traffic, lists_traffic;
};

/* Everything except the tiles, which the device chooses by these sizes. */
static inline struct moe_plan moe_plan_of(const struct op_moe *a) {
    const uint32_t n_experts = (uint32_t)a->down->n_experts, n_in = (uint32_t)a->down->n_out;
    const uint32_t n_pairs = a->n_rows * a->n_used,
                   most = n_pairs > n_experts ? n_pairs : n_experts;
    uint64_t pair_bytes = 2 * sizeof(uint32_t);
    if (a->n_rows == 1) pair_bytes += sizeof(uint32_t) + sizeof(struct args_moe_tile);
    return (struct moe_plan){
        .n_in = n_in,
        .n_ff = (uint32_t)a->down->n_in,
        .n_experts = n_experts,
        .n_pairs = n_pairs,
        .route = {.n_rows = a->n_rows,
                  .n_experts = n_experts,
                  .n_used = a->n_used,
                  .renormalize = a->renormalize,
                  .sigmoid = a->gating == BACKEND_GATING_SIGMOID,
                  .has_bias = a->choice_bias != NULL,
                  .has_expert_scale = a->expert_scale != NULL,
                  .weight_scale = a->weight_scale != 0 ? a->weight_scale : 1,
                  .n_groups = a->n_groups > 1 ? a->n_groups : 1,
                  .n_groups_used = a->n_groups > 1 ? a->n_groups_used : 1,
                  .mixer = a->gating == BACKEND_GATING_MIXER,
                  .mixer_limit = a->mixer_limit},
        .combine = {.n_in = n_in, .n_used = a->n_used, .weighed = a->weighs_input},
        .route_threads = (n_experts + 31) / 32 * 32,
        .lists_threads = most < MOE_LISTS_THREADS ? (most + 31) / 32 * 32 : MOE_LISTS_THREADS,
        .route_traffic = {.read = ((uint64_t)a->n_rows + (a->choice_bias != NULL)) * n_experts *
                                  sizeof(float),
                          .written = n_pairs * pair_bytes},
    };
}

/* Tiles of up to tile_rows pairs. moe_lists reads the pairs to count them, and again to sort them;
 * only the first read is counted as traffic. */
static inline void moe_plan_tiles(struct moe_plan *p, uint32_t tile_rows) {
    const uint64_t pairs_bytes = (uint64_t)p->n_pairs * sizeof(uint32_t);
    p->tile_rows = tile_rows;
    p->n_tiles = backend_moe_tiles(p->n_pairs, p->n_experts, tile_rows);
    p->lists = (struct args_moe_lists){.n_pairs = p->n_pairs,
                                       .n_experts = p->n_experts,
                                       .tile_rows = p->tile_rows,
                                       .n_tiles = p->n_tiles};
    p->lists_traffic = (struct moe_traffic){
        .read = pairs_bytes,
        .written = pairs_bytes + (uint64_t)p->n_tiles * sizeof(struct args_moe_tile)};
}

/* Scratch between the steps, in the order of the devices' scratch enums. */
enum moe_scratch {
    MOE_SCORES,  /* (max_rows, n_experts) f32 */
    MOE_EXPERTS, /* (pairs) u32: the pair's expert */
    MOE_WEIGHTS, /* (pairs) f32: the expert's weight */
    MOE_LIST,    /* (pairs) u32: the pairs, sorted by expert */
    MOE_TILES,   /* (tiles) struct args_moe_tile */
    MOE_FF,      /* (pairs, n_ff) f32: the activations between gate/up and down */
    MOE_OUT,     /* (pairs, out_cols) f32: the experts' results */
    MOE_N_SCRATCH
};

/* Bytes of each for the largest op of the configuration, whose limits are not 0. least_tile: the
 * smallest tile_rows that the device chooses. ERR_NOMEM: too large to count. */
static inline int moe_scratch_bytes(const struct backend_config *c, uint32_t least_tile,
                                    uint32_t out_cols, uint64_t bytes[MOE_N_SCRATCH], err *e) {
    const struct backend_moe_limits *lim = &c->moe;
    const uint64_t most = (uint64_t)c->max_rows * lim->n_used, word = sizeof(float);
    if (most > UINT32_MAX) return err_no_memory(e); /* pairs are counted in 32 bits */
    bytes[MOE_EXPERTS] = bytes[MOE_WEIGHTS] = bytes[MOE_LIST] = most * word;
    bytes[MOE_TILES] =
        backend_moe_tiles(most, lim->n_experts, least_tile) * sizeof(struct args_moe_tile);
    if (!mem_mul((uint64_t)c->max_rows * lim->n_experts, word, &bytes[MOE_SCORES]) ||
        !mem_mul(most * word, lim->n_ff, &bytes[MOE_FF]) ||
        !mem_mul(most * word, out_cols, &bytes[MOE_OUT]))
        return err_no_memory(e);
    return 0;
}

#endif
