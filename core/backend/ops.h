/* ops.h - the ops of a backend.
 *
 * BACKEND_OPS is the list of all ops. A row makes the function `int backend_NAME(backend *, const
 * struct op_NAME *)`, its check (check_NAME in ops.c), the entry of each device's table (cpu_NAME,
 * metal_NAME, cuda_NAME), and a counter. To add an op: a row and a struct here, a check in ops.c, a
 * launcher per device with its kernel.
 *
 * SHAPES: activations are f32, row-major, one row per scheduled token. All row counts are n_rows <=
 * max_rows; buffers hold at least the shape given. The checks compare sizes and types: a mismatch
 * is ERR_INVALID and a bug of the caller. A device without the op returns ERR_UNSUPPORTED.
 *
 * BATCH INVARIANCE: an op's result for a row depends on that row's inputs alone, bit for bit: not
 * on n_rows, on its place in the batch, or on the number of threads.
 *
 * PADDING ROWS (only on a device that keeps graphs): a row with pos < 0 pads a step to a captured
 * shape; it is a sequence of its own and comes after all rows of tokens. rope_store with slot < 0
 * stores nothing; paged attention reads neither block table nor cache for it, and its output is
 * finite; every other op computes it like any row, with token 0. */
#ifndef INFERD_BACKEND_OPS_H
#define INFERD_BACKEND_OPS_H

#include "core/backend/kv_layout.h"
#include "core/backend/state_layout.h"
#include "core/base/sampling.h"

/* OP(name, on_cpu, on_metal, on_cuda). yes: the device has the op. no: it does not. parts: it runs
 * the op's parts one after the other. PART: likewise, an op that callers reach through
 * store_attend; only tests call it directly. */
// clang-format off
#define BACKEND_OPS(OP, PART)                         \
    /* name               cpu    metal  cuda */       \
    OP(embed,             yes,   yes,   yes)          \
    OP(linear,            yes,   yes,   yes)          \
    OP(linear_heads,      yes,   yes,   yes)          \
    OP(norm,              yes,   yes,   yes)          \
    OP(moe,               yes,   yes,   yes)          \
    OP(store_attend,      parts, parts, yes)          \
    PART(rope_store,      yes,   yes,   yes)          \
    PART(paged_attention, yes,   yes,   yes)          \
    OP(gate,              yes,   yes,   yes)          \
    OP(gated,             yes,   yes,   yes)          \
    OP(add_normed,        yes,   yes,   yes)          \
    OP(linear_attention,  yes,   yes,   yes)          \
    OP(short_conv,        yes,   yes,   yes)          \
    OP(kv_copy,           yes,   yes,   yes)          \
    OP(gather,            yes,   yes,   yes)          \
    OP(top,               yes,   yes,   yes)          \
    OP(sample,            no,    no,    yes)          \
    OP(copy_tokens,       no,    no,    yes)          \
    OP(update_history,    no,    no,    yes)          \
    OP(all_reduce,        yes,   no,    yes)          \
    OP(all_gather,        yes,   no,    yes)
// clang-format on

#define BACKEND_OP_ID(name, on_cpu, on_metal, on_cuda) BACKEND_OP_##name,
enum backend_op { BACKEND_OPS(BACKEND_OP_ID, BACKEND_OP_ID) BACKEND_N_OPS };
#undef BACKEND_OP_ID

const char *backend_op_name(enum backend_op op); /* "embed" */
/* Calls of op that reached the device. An op in a captured step counts once, at its capture. */
uint64_t backend_op_count(const backend *be, enum backend_op op);
bool backend_has_op(const backend *be, enum backend_op op); /* on its device */

/* ---- rows and products ---- */

/* out (n_rows, n_cols) f32 = scale * table[ids[row]]. ids (n_rows) i32, each < n_out of table
 * (checked by the caller, the engine). */
struct op_embed {
    const backend_weight *table; /* (n_vocab, n_cols) of any type */
    const backend_buf *ids;
    uint32_t n_rows;
    float scale;
    backend_buf *out;
};

/* Activation of gate and up: act(gate) * up.
 *   SILU        g / (1 + exp(-g)) * u
 *   GELU_TANH   g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3))) * u
 *   SWIGLU_OAI  g = min(g, 7), u = clamp(u, -7, 7): g / (1 + exp(-1.702 g)) * (u + 1)
 *   GELU        g / 2 * (1 + erf(g / sqrt(2))) * u */
enum backend_act {
    BACKEND_ACT_NONE,
    BACKEND_ACT_SILU,
    BACKEND_ACT_GELU_TANH,
    BACKEND_ACT_SWIGLU_OAI,
    BACKEND_ACT_GELU,
    BACKEND_N_ACTS
};

/* Bounds of SILU's inputs: g = min(g, gate), u = clamp(u, -up, up). Zeros: none. */
struct backend_bounds {
    float gate, up;
};

/* The input of a product, made from rows of the residual stream:
 *   x += residual_scale * r, if residual is given (x is updated in place), where r is residual, or
 *        with residual_norm r = residual / rms(residual) * residual_norm;
 *   in = x / rms(x) * norm; without norm in = x;
 *   centred (LayerNorm): in = (x - mean(x)) / rms(x - mean(x)) * norm (+ norm_bias).
 * rms(a) = sqrt(mean(a^2) + eps), summed in a fixed order. */
struct op_input {
    backend_buf *x;                      /* (n_rows, n_in) f32; written only with residual */
    const backend_buf *residual;         /* (n_rows, n_in) f32 or NULL */
    const backend_weight *residual_norm; /* (1, n_in) f32 or NULL; only with residual */
    float residual_scale;                /* 0 is 1 */
    const backend_weight *norm;          /* (1, n_in) f32 or NULL */
    float eps;
    bool centred;                    /* only with norm, without residual_norm */
    const backend_weight *norm_bias; /* (1, n_in) f32 or NULL; only if centred */
};

/* Up to four matrix products that read their input once (Q, K and V; gate and up; a delta net's).
 * Output: y[i] (n_rows, w[i].n_out) f32 = in * w[i]^T (+ bias[i]), i < n_weights; or with act, for
 * two weights of one shape, gate and up: y[0] = act(in * w[0]^T (+ bias[0]), in * w[1]^T (+
 * bias[1])), y[1] unused. No y may alias x or residual.
 * y_scale, softcap (without act): y = softcap * tanh(y_scale * y / softcap); without softcap
 * y_scale * y. For quantized weights `in` is rounded to activation_bits, in blocks of 32 columns.
 */
enum { BACKEND_LINEAR_MAX = 4 };
struct op_linear {
    struct op_input in;
    uint32_t n_rows, n_weights;
    const backend_weight *w[BACKEND_LINEAR_MAX];
    const backend_weight *bias[BACKEND_LINEAR_MAX]; /* (1, n_out) f32 or NULL */
    enum backend_act act;
    struct backend_bounds bounds;
    float y_scale, softcap; /* 0: none */
    backend_buf *y[BACKEND_LINEAR_MAX];
    /* The next op alone reads y[0], if it does so as its in.x without a residual, or as the
     * residual: a device may then leave y[0] out. */
    bool y_once;
};

/* A product for each head: y[row][h] = x[row][h] * w_h^T, of the first n_in values of the head; the
 * n_tail values behind them are copied behind y's n_out. x (n_rows, n_heads, n_in + n_tail) f32, y
 * (n_rows, n_heads, n_out + n_tail) f32 aliases nothing. x rounds as in op_linear. */
struct op_linear_heads {
    const backend_buf *x;
    const backend_weight *w; /* n_heads (as n_experts) of (n_out, n_in) */
    uint32_t n_rows, n_tail;
    backend_buf *y;
};

/* out (n_rows, n_in) f32 = in, which must have a norm: the bits that a product reads, before they
 * are rounded for quantized weights. out aliases neither x nor residual. */
struct op_norm {
    struct op_input in;
    uint32_t n_rows;
    backend_buf *out;
};

/* How a router's scores become probabilities: softmax over all experts, or of each alone. */
enum backend_gating {
    BACKEND_GATING_SOFTMAX,
    BACKEND_GATING_SIGMOID,
    BACKEND_GATING_MIXER, /* see op_moe */
    BACKEND_N_GATINGS
};

/* A mixture of experts in one op. For each row:
 *   score (n_experts) = in * router^T (+ router_bias), in f32
 *   probability = softmax(score) or 1 / (1 + exp(-score))
 *   the n_used largest probability (+ choice_bias) are chosen; of equal ones the lower expert first
 *   with n_groups, of the experts in the n_groups_used best of that many equal groups only: a
 *     group counts by its largest of these numbers, of sigmoids by the sum of its two largest
 *   weight of a chosen expert: its probability; with renormalize, divided by the sum over the
 *     chosen experts (of sigmoids + 1e-20, as they may all be 0); times weight_scale; times the
 *     expert's expert_scale
 *   y = sum, in ascending order of experts, of
 *     weight * (act(gate_e(in), up_e(in)) * down_e^T (+ down_bias_e)), or with weighs_input
 *     act(gate_e(weight * in), up_e(weight * in)) * down_e^T
 *     (+ shared * 1 / (1 + exp(-shared_gate)), or + shared without a gate)
 * MIXER (Phi-MoE's sparse mixer, when it does not learn): the experts are chosen by their scores,
 * and the weight of expert e is 1 / (sum of exp(score_i - score_e) over the experts i that were not
 * chosen before e and have (score_e - score_i) / max(|score_i|, score_e) <= mixer_limit).
 * Without gate: squared ReLU, max(up_e(in), 0)^2, in the place of act. With latent the experts read
 * it instead of `in`, which may have another width: n_latent instead of n_in, except of the router.
 * `in` is computed and the products round as in op_linear. */
struct op_moe {
    struct op_input in;
    uint32_t n_rows, n_used;
    const backend_weight *router, *router_bias; /* (n_experts, n_in); (1, n_experts) f32 or NULL */
    enum backend_gating gating;
    const backend_weight *choice_bias; /* (1, n_experts) f32 or NULL: for the choice only */
    uint32_t n_groups, n_groups_used;  /* 0 is 1 */
    bool renormalize;
    bool weighs_input;  /* with gate, without latent and biases of gate and up */
    float mixer_limit;  /* of MIXER, which has no choice_bias, groups or renormalize */
    float weight_scale; /* 0 is 1 */
    const backend_weight *expert_scale;        /* (1, n_experts) f32 or NULL */
    enum backend_act act;                      /* NONE without gate, and only then */
    struct backend_bounds bounds;              /* as in op_linear */
    backend_buf *latent;                       /* (n_rows, n_latent) f32 or NULL; without shared */
    const backend_weight *gate, *up;           /* n_experts of (n_ff, n_in); gate may be NULL */
    const backend_weight *down;                /* n_experts of (n_in, n_ff) */
    const backend_weight *gate_bias, *up_bias; /* n_experts of (1, n_ff) f32, or NULL */
    const backend_weight *down_bias;           /* n_experts of (1, n_in) f32, or NULL */
    const backend_buf *shared, *shared_gate;   /* (n_rows, n_in), (n_rows, 1) f32, or NULL */
    /* In place of shared and shared_gate the shared expert itself, where backend_joins_shared says
     * so: its gate and up (n_ff, n_in), down (n_in, n_ff), router (1, n_in) or NULL; up NULL: none.
     * act is the experts'. */
    struct backend_shared_expert {
        const backend_weight *gate, *up, *down, *router;
        struct backend_bounds bounds;
    } joined;
    backend_buf *y; /* (n_rows, n_in) f32, aliases nothing */
};

/* out[i] = x[rows[i]] (+ residual[rows[i]] if not NULL), i < n_out_rows; (.., n_cols) f32. */
struct op_gather {
    const backend_buf *x, *residual, *rows; /* rows (n_out_rows) i32 */
    uint32_t n_out_rows, n_cols;
    backend_buf *out;
};

/* ---- attention over the paged KV cache ---- */

/* Norm: q and k are normalized if q_norm and k_norm are given, over each head if the norm has
 * head_dim values, over the whole row if it has as many as the row; eps as in op_input. Then rotary
 * embedding of q (in place) and k; then k and v are stored into the pools at each row's slot.
 * Angle of pair i at position p: p * inv_freq[i] (inv_freq holds the model's base and scaling); cos
 * and sin are multiplied by magnitude. interleaved: pairs are (2i, 2i+1) as in GGUF llama files;
 * otherwise (i, i + n_rot/2). n_rot 0: no rotary embedding. norm_last: heads are rotated, then
 * normalized. With q_log_length, last of all q *= 1 + q_log_scale * log(1 + (p + q_log_from) /
 * q_log_length), the quotient in whole numbers. Where V is the head of K (kv.v_dim) only that head
 * is normalized, by k_norm alone, and the dimensions behind it are rotated. With v_normed each head
 * of v is divided by its rms. Without k only q is computed, and nothing is stored: the cache holds
 * what another layer stored. */
struct op_rope_store {
    backend_buf *q;           /* (n_rows, n_heads, head_dim) f32 */
    backend_buf *k;           /* (n_rows, n_kv_heads, head_dim) f32, may be overwritten; or NULL */
    backend_buf *v;           /* likewise; NULL with kv.v_dim or without k */
    const backend_buf *pos;   /* (n_rows) i32 */
    const backend_buf *slots; /* (n_rows) i32 */
    const backend_buf *inv_freq; /* (n_rot / 2) f32 */
    /* (1, head_dim) or (1, all heads) f32, both or NULL; with kv.v_dim (1, v_dim), k_norm alone */
    const backend_weight *q_norm, *k_norm; /* without k: k_norm NULL */
    bool v_normed;
    float eps, magnitude;            /* magnitude 0 is 1 */
    uint32_t n_rows, n_heads, n_rot; /* n_rot even, <= head_dim (- v_dim) */
    bool interleaved;
    bool norm_last;        /* norms are of (1, head_dim) */
    float q_log_scale;     /* 0 without q_log_length */
    uint32_t q_log_length; /* tokens; 0: q is not scaled */
    uint32_t q_log_from;
    struct backend_kv kv;
};

/* out[row] = softmax(score) V, score = scale * q[row] K^T, over positions 0..pos[row] of the row's
 * sequence (with window: the last `window` of them), read through its block table; with both_ways
 * over all positions up to that of the sequence's last row (with window: those less than `window`
 * away): all its rows must be in the op, in ascending order; with chunked over those of its own
 * chunk of `window` positions, counted from 0, up to pos[row]. Query head h uses KV head h /
 * (n_heads / n_kv_heads). slopes (ALiBi): score -= slopes[h] * |pos[row] - position|. softcap:
 * score = softcap * tanh(score / softcap). sinks: the softmax of head h has one more term
 * exp(sinks[h]), without a value. The rows of a sequence are contiguous: rows row_start[s] ..
 * row_start[s+1]-1 belong to sequence s. Prefill chunks and decode rows mix freely. Block tables:
 * (n_seqs, table_stride) i32. */
struct op_paged_attention {
    const backend_buf *q;         /* (n_rows, n_heads, head_dim) f32 */
    const backend_buf *pos;       /* (n_rows) i32 */
    const backend_buf *row_start; /* (n_seqs + 1) i32 */
    const backend_buf *tables;    /* (n_seqs, table_stride) i32 */
    uint32_t n_rows, n_seqs, n_heads, table_stride;
    uint32_t max_context; /* above every pos, <= table_stride * block_tokens; 0: that product */
    uint32_t window;      /* 0: all positions */
    bool both_ways;
    bool chunked;                 /* only with window, without both_ways */
    float scale, softcap;         /* softcap 0: none */
    const backend_weight *sinks;  /* (1, n_heads) f32 or NULL */
    const backend_weight *slopes; /* likewise; without softcap and kv.v_dim */
    struct backend_kv kv;
    backend_buf *out; /* (n_rows, n_heads, backend_kv_v_dim) f32 */
};

/* rope_store, then paged_attention of the same rows, in one launch if the device can. Both have the
 * same q, pos, n_rows, n_heads and kv; a row's slot is where its block table has its position. The
 * contents of q and k are undefined afterwards. */
struct op_store_attend {
    struct op_rope_store store;
    struct op_paged_attention attend;
};

/* Copies whole KV blocks of one layer, K and V: pairs[2i] -> pairs[2i+1] (copy-on-write), as if one
 * after the other. pairs is host memory, read before the call returns. */
struct op_kv_copy {
    struct backend_kv kv;
    const int32_t *pairs; /* (n_pairs, 2) */
    uint32_t n_pairs;
};

/* What becomes of x without a gate:
 *   SQUARED_RELU  x * max(x, 0)
 *   GELU_TANH     as BACKEND_ACT_GELU_TANH, with u = 1
 *   GELU          as BACKEND_ACT_GELU, with u = 1
 *   XIELU         x > 0: positive * x^2 + beta * x, else negative * (expm1(min(x, eps)) - x) + beta
 *                 * x (Huang, Schlag, "Deriving Activation Functions Using Integration", 2025) */
enum backend_unary {
    BACKEND_UNARY_SQUARED_RELU,
    BACKEND_UNARY_GELU_TANH,
    BACKEND_UNARY_GELU,
    BACKEND_UNARY_XIELU,
    BACKEND_N_UNARIES
};
struct backend_xielu {
    float positive, negative, beta, eps; /* eps below 0 */
};

/* x (n_rows, n_cols) f32 *= 1 / (1 + exp(-gate)), or with softplus *= log(1 + exp(gate)); gate
 * (n_rows, n_cols / span) f32, one for `span` neighbouring columns, aliases nothing. Without gate
 * x = unary(x). */
struct op_gate {
    backend_buf *x;
    const backend_buf *gate; /* or NULL */
    uint32_t n_rows, n_cols;
    enum backend_unary unary; /* only without gate */
    struct backend_xielu xielu;
    uint32_t span; /* divides n_cols; 0 is 1; only with gate, as softplus */
    bool softplus;
};

/* x (n_rows, n_cols) f32 = act(x, up), up being columns first .. first + n_cols - 1 of a buffer of
 * (n_rows, stride) f32 that is not x. */
struct op_gated {
    backend_buf *x;
    const backend_buf *up;
    uint32_t n_rows, n_cols, first, stride;
    enum backend_act act; /* not NONE */
};

/* x (n_rows, n_cols) f32 = scale * factor * (x + r): of r (n_rows, n_cols) f32, which is not x,
 * each group of as many columns as norm has is divided by its rms and multiplied by norm. */
struct op_add_normed {
    backend_buf *x;
    const backend_buf *r;         /* NULL: nothing is added */
    const backend_weight *norm;   /* (1, columns of a group) f32; NULL: r as it is */
    float eps, scale;             /* scale 0 is 1 */
    const backend_weight *factor; /* (1, 1) f32 or NULL */
    uint32_t n_rows, n_cols;
};

/* ---- recurrent state ---- */

/* Linear attention over the state blocks of state_layout.h: with beta a gated delta net (Yang,
 * Kautz, Hatamizadeh, "Gated Delta Networks", 2024; as transformers' modeling_qwen3_next.py has
 * it), without it Mamba-2 (Dao, Gu, "Transformers are SSMs", 2024; as modeling_falcon_h1.py has it:
 * its groups are K heads, B is K, C is Q, x is V). The channels of a row r[t] of qkv are Q, K and
 * V, of Mamba-2 V, K and Q; with k and v, qkv has Q alone. For row t of a sequence:
 *
 *   c[t] = silu(conv_bias + sum over i < n_taps of conv[channel][i] * r[t - n_taps + 1 + i]),
 *
 * with r 0 before the start. By V head, dt = softplus(alpha + dt_bias), g = a * dt, and
 *
 *   S[t] = e^g S[t-1] + k u^T;  o = S[t]^T q
 *
 * With state.channel_decay (Kimi Team, "Kimi Linear", 2025; as modeling_kimi_linear.py has it)
 * alpha, dt_bias, g and G have a value for each dimension of K, and e^g scales the rows of S: below
 * e^G S^T k is S^T (e^G k), and e^(G[t]-G[j]) (k[j].k[t]) has its factors within the sum.
 *
 * V head h has the Q and K of head h % n_k_heads if tiled, else of h / (n_v_heads / n_k_heads).
 *
 * Delta net: q and k are c's heads x * rsqrt(sum(x^2) + 1e-6), and q *= k_dim^-1/2;
 *
 *   u = b (v - (e^g S[t-1])^T k), b = 1 / (1 + exp(-beta));
 *
 *   out = norm * o / rms(o) * silu(z), by V head; rms as in op_input; with channel_decay the
 *   sigmoid of z instead of its silu.
 *
 * Mamba-2: q, k and v are c's heads; u = dt * v;
 *
 *   out = (o + skip * v) * silu(z);
 *
 * with norm then norm * out / rms(out), by each of n_norm_groups equal groups of V heads.
 *
 * A row is computed from S at the last boundary B and the pending rows since, in this order, so
 * that its bits do not depend on how the rows were cut into steps. With G[t] = sum of g over B..t:
 *
 *   u[t] = b (v - e^G[t] S[B]^T k[t] - sum over j in B..t-1 of e^(G[t]-G[j]) (k[j].k[t]) u[j]);
 *
 *   o[t] = e^G[t] S[B]^T q[t] + sum over j in B..t of e^(G[t]-G[j]) (k[j].q[t]) u[j];
 *
 * at a boundary: S = e^G[last] S[B] + sum over j of e^(G[last]-G[j]) k[j] u[j]^T; each sum in
 * ascending order.
 *
 * The rows of a sequence are contiguous, at least one each; their positions are consecutive and
 * continue what its state blocks hold. Sequences do not share a live block, and no live block is
 * another sequence's source. */
struct op_linear_attention {
    const backend_buf *qkv;       /* (n_rows, channels) f32 */
    const backend_buf *k, *v;     /* (n_rows, K's or V's channels) f32, or both NULL */
    const backend_buf *z;         /* (n_rows, n_v_heads, v_dim) f32 */
    const backend_buf *alpha;     /* (n_rows, n_v_heads or n_v_heads * k_dim) f32 */
    const backend_buf *beta;      /* (n_rows, n_v_heads) f32; NULL: Mamba-2 */
    const backend_buf *pos;       /* (n_rows) i32 */
    const backend_buf *row_start; /* (n_seqs + 1) i32 */
    const backend_buf *tables;    /* (n_seqs, 2) i32: source and live block */
    const backend_weight *conv;   /* (1, channels * n_taps) f32; with k and v of Q alone, */
    const backend_weight *conv_k, *conv_v; /* and these of K and V */
    const backend_weight *conv_bias;       /* (1, channels) f32 or NULL; of Mamba-2 */
    const backend_weight *a;               /* (1, n_v_heads) f32 */
    const backend_weight *dt_bias;         /* (1, n_v_heads or n_v_heads * k_dim) f32 */
    const backend_weight *skip;            /* (1, n_v_heads) f32; of Mamba-2 */
    const backend_weight *norm; /* (1, v_dim) f32; of Mamba-2 (1, n_v_heads * v_dim) or NULL */
    float eps;
    uint32_t n_rows, n_seqs;
    uint32_t n_norm_groups;     /* of Mamba-2 with norm: divides n_v_heads */
    bool tiled;                 /* not of Mamba-2 */
    struct backend_state state; /* k_dim = v_dim except of Mamba-2 */
    backend_buf *work;          /* (n_rows, backend_state_work) f32, in any order */
    backend_buf *out;           /* (n_rows, n_v_heads, v_dim) f32 */
};

/* A short convolution over state blocks (Liquid AI's LFM2; as transformers' modeling_lfm2.py has
 * it). For row t of a sequence, with B, C and x of row t of bcx, by channel:
 *   u[t] = B[t] * x[t]
 *   out[t] = C[t] * (sum over i < n_taps of conv[channel][i] * u[t - n_taps + 1 + i]), u 0 before
 *   the start, summed in ascending order of i
 * The state keeps u. Rows, positions and blocks as in op_linear_attention; a row's bits do not
 * depend on how the rows were cut into steps. */
struct op_short_conv {
    const backend_buf *bcx;       /* (n_rows, 3, channels) f32 */
    const backend_buf *pos;       /* (n_rows) i32 */
    const backend_buf *row_start; /* (n_seqs + 1) i32 */
    const backend_buf *tables;    /* (n_seqs, 2) i32: source and live block */
    const backend_weight *conv;   /* (1, channels * n_taps) f32 */
    uint32_t n_rows, n_seqs;
    struct backend_state state; /* without heads */
    backend_buf *out;           /* (n_rows, channels) f32 */
};

/* ---- tokens from logits ---- */

/* The k largest logits of each row in the samplers' total order: logits descending, equal ones by
 * ascending id; NaN counts as -inf. k <= BACKEND_MAX_TOP, k <= n_cols. */
enum { BACKEND_MAX_TOP = 64 };
struct op_top {
    const backend_buf *x; /* (n_rows, n_cols) f32 */
    uint32_t n_rows, n_cols, k;
    backend_buf *ids;    /* (n_rows, k) i32 */
    backend_buf *values; /* (n_rows, k) f32 */
};

/* How a token is sampled from a row of logits, in this order: repetition penalty (positive logits
 * are divided by it, others multiplied), presence and frequency penalty (of generated tokens: minus
 * presence + frequency * count), temperature, top_k, top_p, min_p, the random draw. Tokens are
 * ranked by logit, equal ones by id; NaN counts as -inf. Probabilities and random numbers:
 * core/base/sample_math.h. */
struct backend_sampling {
    struct sampling params;            /* temperature below 0: no token is sampled */
    uint32_t first_history, n_history; /* the row's entries of the penalty history */
    uint32_t seed[2], index[2];        /* low word first */
};

struct backend_sampled {
    int32_t token; /* -1: not sampled, or no logit is finite */
    float logit;   /* of the token, before penalties */
    float log_sum; /* log of the sum of exp over the row, before penalties: log-probability =
                      logit - log_sum */
};

/* An entry of the penalty history. No row has two entries of one token. */
struct backend_penalty_entry {
    int32_t token;   /* -1: unused entry */
    int32_t count;   /* times generated; 0: only in the prompt */
    int32_t scratch; /* for the device */
};

/* Samples on the device. x is unchanged afterwards. */
struct op_sample {
    backend_buf *x;              /* (n_rows, n_cols) f32 */
    const backend_buf *sampling; /* (n_rows) struct backend_sampling */
    backend_buf *history;        /* (n_history) struct backend_penalty_entry */
    uint32_t n_rows, n_cols;
    uint32_t n_history; /* capacity of history; every row's entries are inside it */
    backend_buf *out;   /* (n_rows) struct backend_sampled */
};
bool backend_can_sample(const backend *be);

/* One token id that a step takes from the results of the previous step. */
struct backend_token_copy {
    int32_t to;   /* index in ids */
    int32_t from; /* row of the previous step's logits */
};

/* ids[to] = max(from[from * stride], 0) for copies first .. first + n - 1: moves tokens from the
 * step that found them (backend_sampled, or ids of op_top) to the ids of the next step. The caller
 * has checked the copies. Only where backend_can_overlap. */
struct op_copy_tokens {
    const backend_buf *from;   /* i32 */
    const backend_buf *copies; /* (first + n) struct backend_token_copy */
    uint32_t stride, first, n;
    backend_buf *ids; /* i32 */
};

/* One sequence whose penalty history receives the token that the previous step samples. */
struct backend_history_update {
    int32_t first, n; /* its entries; entry first + n exists as well, unused */
    int32_t from;     /* row of sampled */
};

/* Adds the previous step's sampled tokens to the penalty history: if the token is among an update's
 * n entries its count is incremented and entry first + n stays unused (-1); otherwise entry
 * first + n becomes that token with count 1. The caller has checked the updates. Only where
 * backend_can_overlap. */
struct op_update_history {
    const backend_buf *sampled; /* struct backend_sampled */
    const backend_buf *updates; /* (n) struct backend_history_update */
    uint32_t n;
    backend_buf *history; /* as in op_sample */
};

/* ---- exchanges of a group ---- */

/* x (n_rows, n_cols) f32 = x of rank 0 + x of rank 1 + ..., added in that order, with the same bits
 * on all ranks. work: device memory of backend_exchange_bytes, or NULL for none. Without a group
 * nothing happens. */
struct op_all_reduce {
    backend_buf *x, *work;
    uint32_t n_rows, n_cols;
};

/* backend_linear of one weight without act, then backend_all_reduce of y[0]; a device may do both
 * at once. Without a group the product alone. */
int backend_linear_sum(backend *be, const struct op_linear *a, backend_buf *work);

/* Joins the ranks' columns. With w = backend_share(n_cols, n_ranks), rank r passes columns r * w ..
 * min((r + 1) * w, n_cols) - 1 of out as part: that many f32 per row in a buffer of (n_rows, w).
 * out (n_rows, n_cols), or NULL on ranks that do not need it. Every rank must have a column.
 * ERR_UNSUPPORTED without a group. */
struct op_all_gather {
    const backend_buf *part;
    backend_buf *out, *work; /* work as above */
    uint32_t n_rows, n_cols;
};
static inline uint32_t backend_share(uint32_t n_cols, uint32_t n_ranks) {
    return n_cols / n_ranks + (n_cols % n_ranks != 0);
}
/* Bytes of work for an exchange to which each rank brings up to n_rows * n_cols values; in a gather
 * these are its share. */
uint64_t backend_exchange_bytes(const backend *be, uint32_t n_rows, uint32_t n_cols);

/* Does backend_moe take this shared expert (a->joined)? Otherwise its output is to be given. With
 * the same weights the answer depends on n_rows alone. The bits are the same. */
bool backend_joins_shared(const backend *be, const struct op_moe *a);

/* ---- the calls ---- */

#define BACKEND_OP_CALL(name, on_cpu, on_metal, on_cuda)                                           \
    int backend_##name(backend *be, const struct op_##name *a);
#define BACKEND_NO_CALL(name, on_cpu, on_metal, on_cuda)
BACKEND_OPS(BACKEND_OP_CALL, BACKEND_NO_CALL)

#endif
