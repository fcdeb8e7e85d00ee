/* state_layout.h - the recurrent state of linear attention and of short convolutions, in blocks of
 * a pool.
 *
 * Each recurrent layer has one pool of n_blocks state blocks. A block of a layer, all f32, with
 * channels = 2 * n_k_heads * k_dim + n_v_heads * v_dim (Q, K and V before the convolution):
 *   S       (n_v_heads, k_dim, v_dim)  the state at a boundary, a position that is a multiple of
 *                                      chunk: S[h][i][j] belongs to dimension i of K and j of V
 *   tail    (n_taps - 1, channels)     the last inputs of the convolution before the boundary
 *   recent  (n_taps - 1, channels)     its last inputs before the sequence's end
 *   K       (chunk, n_k_heads, k_dim)  the pending rows after the boundary: K,
 *   U       (chunk, n_v_heads, v_dim)  what they add to the state,
 *   G       (chunk, n_v_heads, n)      the sums of the logarithms of their decays; n is k_dim with
 *                                      channel_decay, else 1
 * Of a layer that is a convolution alone (n_v_heads 0) a block holds tail and recent only.
 *
 * A sequence has two blocks, which may be the same one: `source` with S and tail at the last
 * boundary at or before its end, and `live` with recent and the pending rows. The step in which a
 * sequence reaches a boundary writes S and tail of `live`, which is the source from then on. So a
 * block whose boundary is worth keeping is kept by giving the sequence another live block: nothing
 * is copied, and sequences may share a source. Source is not read by a sequence at position 0, and
 * a new live block needs no contents. */
#ifndef INFERD_BACKEND_STATE_LAYOUT_H
#define INFERD_BACKEND_STATE_LAYOUT_H

#include "core/backend/backend.h"

enum {
    BACKEND_STATE_MAX_TAPS = 4,
    BACKEND_STATE_MAX_CHUNK = 32,
    BACKEND_STATE_MAX_HEADS = 1024,
    BACKEND_STATE_MAX_K_DIM = 256,
    BACKEND_STATE_MAX_V_DIM = 128,
    BACKEND_STATE_MAX_CHANNELS = 1 << 20 /* of a convolution alone */
};

struct backend_state {
    backend_buf *blocks; /* (n_blocks, backend_state_block_bytes / 4) f32 */
    uint32_t n_blocks;
    uint32_t chunk;  /* 16 or 32: the block_tokens of the KV cache */
    uint32_t n_taps; /* of the convolution, 2 .. BACKEND_STATE_MAX_TAPS */
    uint32_t n_k_heads,
        n_v_heads;         /* n_v_heads a multiple of n_k_heads; both 0: a convolution alone */
    uint32_t k_dim, v_dim; /* of Q's and K's heads, of V's: multiples of 16, at most
                              BACKEND_STATE_MAX_K_DIM and _V_DIM; 0 without heads */
    uint32_t channels;     /* of a convolution alone; 0 with heads */
    bool channel_decay;    /* each dimension of K decays by itself; k_dim = v_dim */
};

/* Offsets of a block's parts, in floats. */
struct backend_state_parts {
    uint64_t s, tail, recent, k, u, g, end;
};

static inline uint64_t backend_state_channels(const struct backend_state *s) {
    return 2 * (uint64_t)s->n_k_heads * s->k_dim + (uint64_t)s->n_v_heads * s->v_dim + s->channels;
}

/* Floats of op_linear_attention's work for a row: its channels after the convolution; and of each K
 * head, what a chunk's rows take of each other (cuda). */
static inline uint64_t backend_state_work(const struct backend_state *s) {
    return backend_state_channels(s) + 2 * (uint64_t)s->n_k_heads * s->chunk;
}

/* Decays of one V head. */
static inline uint32_t backend_state_decays(const struct backend_state *s) {
    return s->channel_decay ? s->k_dim : 1;
}

/* Is this a shape that the ops support? Does not read blocks and n_blocks. */
bool backend_state_ok(const struct backend_state *s);
/* Of a shape that is. */
struct backend_state_parts backend_state_parts(const struct backend_state *s);
/* Bytes of a block of one layer. 0: the shape is not supported. */
uint64_t backend_state_block_bytes(const struct backend_state *s);

#endif
