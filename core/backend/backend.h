/* backend.h - one op table, several devices: cpu, metal and cuda.
 *
 * A backend owns its device memory and a stream of ops. Ops are enqueued in order; only
 * backend_sync, downloads and uploads wait for them. Buffers and weights are opaque. All
 * activations are f32, row-major, one row per scheduled token. Sizes and dtypes are checked by the
 * launchers: a mismatch is ERR_INVALID and a bug of the caller. A device failure is sticky: every
 * later op and backend_sync return ERR_DEVICE.
 *
 * BATCH INVARIANCE: an op's result for a row depends on that row's inputs alone, bit for bit:
 * not on n_rows, its place in the batch, or the number of threads.
 *
 * COUNTERS: each kernel that ran is counted where it ran, by name (backend_dispatch_count).
 *
 * THREAD SAFETY: one thread at a time per backend; counters may be read from any thread. */
#ifndef INFERD_BACKEND_H
#define INFERD_BACKEND_H

#include "core/base/err.h"
#include "core/base/qblock.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct backend backend;
typedef struct backend_buf backend_buf;       /* device memory, bytes fixed at creation */
typedef struct backend_weight backend_weight; /* a matrix (n_out, n_in) or vector, read-only */

struct backend_config {
    const char
        *name; /* "cpu", "metal", "cuda"; "auto": a GPU if build and machine have one, else cpu */
    int n_threads; /* <= 0: one for each physical core that the process may use */
    /* Of the CPU, and for auto the choice of it: "" or NULL: best found; "generic", "avx2",
     * "avx512": force (tests, bug reports). */
    const char *isa;
    uint32_t max_rows; /* most rows of any op call; scratch is sized by it once */
    uint32_t max_cols; /* most columns (n_in) of any linear; likewise */
    /* Devices of this kind that one model is spread over (0 is 1, at most BACKEND_MAX_RANKS): a
     * group. backend_open sets rank for each of them. */
    uint32_t n_ranks, rank;
    uint32_t device; /* cuda: number of the GPU, of a group the first one's */
    /* Of a device with memory of its own the part that this process should hold at most, 0..1; 0:
     * the device's default. Others do not look at it. */
    double memory_fraction;
    /* CPU: of the input of products with quantized weights: 8 (0 is 8) or 16. Metal keeps f32, CUDA
     * rounds it to f16. */
    int activation_bits;
    /* Largest op_moe; n_experts 0: there is none. */
    struct backend_moe_limits {
        uint32_t n_experts, n_used, n_ff;
    } moe;
    /* Of op_linear_attention: most heads, and their size; n_heads 0: there is none. */
    struct backend_linear_limits {
        uint32_t n_heads, head_dim;
    } linear_attention;
};

/* ERR_UNSUPPORTED (unknown name, no such device or ISA on this machine, or too few of them for
 * n_ranks; the text lists what is), ERR_INVALID (an ISA of another device), ERR_NOMEM, ERR_DEVICE.
 */
int backend_open(const struct backend_config *config, backend **out, err *e);
/* After its buffers and weights are freed. NULL is fine. Closes the whole group: only for rank 0.
 */
void backend_close(backend *be);
const char *backend_name(const backend *be); /* "cpu" */
const char *backend_isa(const backend *be);  /* "avx2" */
int backend_n_threads(const backend *be);

/* ---- groups. backend_open gives rank 0. Each rank is a backend with memory, weights and a stream
 * of its own, and is driven by a thread of its own: an exchange (backend_all_reduce,
 * backend_all_gather) ends on a rank when all of them have come to theirs, in the same order, with
 * the same shape. ---- */

enum { BACKEND_MAX_RANKS = 16 };
uint32_t backend_rank(const backend *be);    /* 0 of a backend alone */
uint32_t backend_n_ranks(const backend *be); /* 1 of a backend alone */
backend *backend_peer(backend *be, uint32_t rank);
/* The calling thread is to call be's ops from now on: where a rank's place matters (the processors
 * of a memory node) it moves there. */
void backend_place_thread(const backend *be);
/* No exchange of the group ends any more but with ERR_DEVICE, also those that wait now. For a rank
 * whose step failed: the others would wait for it. Any thread. */
void backend_break(backend *be);

/* Zeroed device memory, all of it taken now, none at first use. ERR_NOMEM. */
int backend_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e);
void backend_buf_free(backend_buf *buf);
/* Host <-> device copies, in stream order; both wait for what was enqueued before. */
int backend_upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                   err *e);
int backend_download(backend *be, const backend_buf *src, uint64_t offset, void *dst,
                     uint64_t bytes, err *e);
/* Several uploads of a step at once, which a device with memory of its own does in one go. Bytes
 * are multiples of 4, no two write the same. */
enum { BACKEND_MAX_UPLOADS = 12 };
struct backend_upload {
    backend_buf *to;
    uint64_t offset, bytes;
    const void *from;
};
int backend_upload_all(backend *be, const struct backend_upload *list, uint32_t n, err *e);
/* The same bytes seen by the host without a copy, or NULL when the device has its own memory.
 * Contents are only defined after backend_sync. */
const void *backend_buf_host(const backend_buf *buf);

/* Host memory in which weights will lie (a mapped file, read-only is fine): a device that shares
 * the host's memory then reads them in place. base: at a multiple of 16384; bytes: what is mapped
 * behind it, to the end of its last page of 16384. The memory must stay mapped and unchanged until
 * the free, the range until its weights are freed. *out is NULL where a device has no use for it.
 */
typedef struct backend_range backend_range;
enum { BACKEND_RANGE_ALIGN = 16384 };
int backend_range_new(backend *be, const void *base, uint64_t bytes, backend_range **out, err *e);
void backend_range_free(backend_range *range);

/* What a weight is for; several together where a file uses it twice (tied embeddings). */
enum backend_use {
    BACKEND_USE_EMBED = 1,  /* table of backend_embed */
    BACKEND_USE_LINEAR = 2, /* matrix of backend_linear */
    BACKEND_USE_VECTOR = 4  /* norm or bias: F32, n_out 1 */
};

/* A weight over host bytes (usually the mapped file). data: (n_out, n_in) of type, rows contiguous;
 * a vector is (1, n). With n_experts as many such matrices (or vectors) follow each other: they are
 * for op_moe. A device keeps its own repacked copy of what is only for products
 * (backend_weight_bytes is not 0); whatever else is made of data reads it in place: it must stay
 * valid and unchanged until backend_weight_free. */
struct backend_weight_desc {
    const char *name;   /* for errors */
    int type;           /* enum qtype */
    unsigned use;       /* of enum backend_use, at least one */
    uint64_t n_experts; /* 0: a plain weight */
    uint64_t n_out, n_in;
    const void *data;
};
int backend_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                       err *e);
uint64_t backend_weight_bytes(const backend_weight *w); /* of device memory beside data */
/* What backend_weight_new takes for it on a device with memory of its own; data is not looked at.
 * ERR_UNSUPPORTED: it would be refused. */
int backend_weight_size(const backend *be, const struct backend_weight_desc *desc, uint64_t *bytes,
                        err *e);
void backend_weight_free(backend_weight *w);

/* Waits for everything enqueued. 0 or ERR_DEVICE. */
int backend_sync(backend *be, err *e);
/* Has the device begin what was enqueued; the caller goes on. 0 or ERR_DEVICE. */
int backend_flush(backend *be, err *e);

/* Steps that overlap (backend_can_overlap; cuda): what is enqueued behind a mark goes on while the
 * host waits for the mark. backend_download_later has put its bytes into `to`, memory of
 * backend_host_new, when a mark behind it was waited for. A mark that was waited for can be set
 * again. Other devices take the same calls: there a download is one that waits, and waiting for a
 * mark is backend_sync. */
enum { BACKEND_MARKS = 2 };
bool backend_can_overlap(const backend *be);
int backend_host_new(backend *be, uint64_t bytes, void **out, err *e); /* zeroed. ERR_NOMEM */
void backend_host_free(backend *be, void *p);                          /* NULL is fine */
int backend_download_later(backend *be, const backend_buf *src, uint64_t offset, void *to,
                           uint64_t bytes, err *e);
int backend_mark(backend *be, uint32_t mark, err *e); /* < BACKEND_MARKS */
int backend_wait(backend *be, uint32_t mark, err *e);

/* A step encoded ahead, while the device still runs the one before: between record and record_end
 * ops are encoded and not run; backend_run_recorded runs them, once, with what the buffers hold by
 * then (uploads are not recorded: they happen at once). Recording again, or backend_drop_recorded,
 * throws away what was not run. backend_can_record: false (cpu): record is ERR_UNSUPPORTED.
 *
 * Where backend_keeps_recorded (cuda), a recording is kept under its key (not 0) and can run any
 * number of times, as long as the buffers and weights that it names are there: record returns 1
 * where it has one (nothing is to be encoded), and drop_recorded only takes back the choice. */
bool backend_can_record(const backend *be);
bool backend_keeps_recorded(const backend *be);
int backend_record(backend *be, uint64_t key, err *e);
int backend_record_end(backend *be, err *e);
int backend_run_recorded(backend *be, err *e);
void backend_drop_recorded(backend *be);

/* ---- ops. All rows counts n_rows <= max_rows; buffers hold at least the shape given. ----
 *
 * NO ROW (only of a device that keeps recordings): a row with pos < 0, which is a sequence of its
 * own behind those that are tokens, fills a step up to a shape that was recorded. rope_store with
 * slot < 0 stores nothing; paged attention reads neither table nor cache for it and its out is
 * finite; every other op computes it as any row, of token 0. */

/* out (n_rows, n_cols) f32 = scale * table[ids[row]]. ids (n_rows) i32, each < table n_out (checked
 * by the caller: the engine). */
struct op_embed {
    const backend_weight *table; /* (n_vocab, n_cols) any type */
    const backend_buf *ids;
    uint32_t n_rows;
    float scale;
    backend_buf *out;
};
int backend_embed(backend *be, const struct op_embed *a);

/* gate, up -> act(gate) * up:
 *   SILU        g / (1 + exp(-g)) * u
 *   GELU_TANH   g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3))) * u
 *   SWIGLU_OAI  g = min(g, 7), u = clamp(u, -7, 7): g / (1 + exp(-1.702 g)) * (u + 1) */
enum backend_act {
    BACKEND_ACT_NONE,
    BACKEND_ACT_SILU,
    BACKEND_ACT_GELU_TANH,
    BACKEND_ACT_SWIGLU_OAI,
    BACKEND_N_ACTS
};

/* Rows of the residual stream on their way into a product:
 *   x += residual_scale * r, if residual is given (x is updated in place), where r is residual, or
 *        with residual_norm r = residual / rms(residual) * residual_norm;
 *   in = x / rms(x) * norm; without norm in = x.
 * rms(a) = sqrt(mean(a^2) + eps), summed in a fixed order. */
struct op_input {
    backend_buf *x;                      /* (n_rows, n_in) f32; written only with residual */
    const backend_buf *residual;         /* (n_rows, n_in) f32 or NULL */
    const backend_weight *residual_norm; /* (1, n_in) f32 or NULL; only with residual */
    float residual_scale;                /* 0 is 1 */
    const backend_weight *norm;          /* (1, n_in) f32 or NULL */
    float eps;
};

/* Matrix products that share one pass over their input, up to three (QKV, gate and up).
 * Output: y[i] (n_rows, w[i].n_out) f32 = in * w[i]^T (+ bias[i]), i < n_weights; or with act, for
 * two weights of one shape, gate and up: y[0] = act(in * w[0]^T (+ bias[0]), in * w[1]^T (+
 * bias[1])), y[1] unused. No y may alias x or residual.
 * y_scale, softcap (no act): y = softcap * tanh(y_scale * y / softcap), without softcap y_scale *
 * y. For quantized weights in is rounded to activation_bits, in blocks of 32 columns. */
enum { BACKEND_LINEAR_MAX = 3 };
struct op_linear {
    struct op_input in;
    uint32_t n_rows, n_weights;
    const backend_weight *w[BACKEND_LINEAR_MAX];
    const backend_weight *bias[BACKEND_LINEAR_MAX]; /* (1, n_out) f32 or NULL */
    enum backend_act act;
    float y_scale, softcap; /* 0: none */
    backend_buf *y[BACKEND_LINEAR_MAX];
};
int backend_linear(backend *be, const struct op_linear *a);

/* out (n_rows, n_in) f32 = in, which has a norm: the very bits that a product reads, before they
 * are rounded for quantized weights. out aliases neither x nor residual. */
struct op_norm {
    struct op_input in;
    uint32_t n_rows;
    backend_buf *out;
};
int backend_norm(backend *be, const struct op_norm *a);

/* A mixture of experts in one op. Of each row:
 *   score (n_experts) = in * router^T (+ router_bias), in f32
 *   the n_used largest scores are chosen, of equal ones the lower expert
 *   weight of a chosen expert: softmax over all scores; with renormalize, divided by the sum over
 *     the chosen (which is the softmax over the chosen alone); times weight_scale
 *   y = sum, in ascending order of experts, of
 *     weight * (act(gate_e(in), up_e(in)) * down_e^T (+ down_bias_e))
 *     (+ shared * 1 / (1 + exp(-shared_gate)), or + shared without a gate)
 * In is prepared as in op_linear; the products round as there. */
struct op_moe {
    struct op_input in;
    uint32_t n_rows, n_used;
    const backend_weight *router, *router_bias; /* (n_experts, n_in); (1, n_experts) f32 or NULL */
    bool renormalize;
    float weight_scale;                        /* 0 is 1 */
    enum backend_act act;                      /* not NONE */
    const backend_weight *gate, *up;           /* n_experts of (n_ff, n_in) */
    const backend_weight *down;                /* n_experts of (n_in, n_ff) */
    const backend_weight *gate_bias, *up_bias; /* n_experts of (1, n_ff) f32, or NULL */
    const backend_weight *down_bias;           /* n_experts of (1, n_in) f32, or NULL */
    const backend_buf *shared, *shared_gate;   /* (n_rows, n_in), (n_rows, 1) f32, or NULL */
    backend_buf *y;                            /* (n_rows, n_in) f32, aliases nothing */
};
int backend_moe(backend *be, const struct op_moe *a);

/* Where K/V live: one K and one V pool per layer, (n_blocks, n_kv_heads) runs of bytes. A slot is
 * block * block_tokens + offset in block. The run of one block and head:
 *   K (head_dim, block_tokens): a dimension's tokens lie side by side, so that a vector register
 *     takes several keys and no score needs a sum across lanes
 *   V (block_tokens, head_dim)
 * F32, F16, BF16: the values. Q8_0 (head_dim a multiple of 32): the values as int8 in that shape,
 * then an f16 scale for each 32 dimensions of a token: K (head_dim / 32, block_tokens), V
 * (block_tokens, head_dim / 32); value = scale * int8. F16 stores what is beyond its range as its
 * largest value. */
struct backend_kv {
    backend_buf *k, *v;
    int kv_type; /* QTYPE_F32, QTYPE_F16, QTYPE_BF16 or QTYPE_Q8_0 */
    uint32_t n_blocks, n_kv_heads, block_tokens, head_dim;
};

/* Bytes of K (as many: of V) of one block, all heads; k, v and n_blocks are not looked at. false:
 * the type cannot hold K/V, a count is 0, head_dim does not fit the type, or overflow. */
bool backend_kv_block_bytes(const struct backend_kv *kv, uint64_t *bytes);

/* Has the device kernels for such a cache? As above. */
bool backend_kv_fits(const backend *be, const struct backend_kv *kv);

/* q and k are normed, if q_norm and k_norm are given: over each head where the norm has head_dim
 * values, over the whole row where it has as many as the row; eps as in op_input. Then rotary
 * embedding on q (in place) and k, then k and v are scattered into the pools at each row's slot.
 * Angle of pair i at position p: p * inv_freq[i] (inv_freq holds the model's base and scaling); cos
 * and sin are multiplied by magnitude. interleaved: pairs are (2i, 2i+1) as in GGUF llama files;
 * else (i, i + n_rot/2). n_rot 0: nothing turns. */
struct op_rope_store {
    backend_buf *q;              /* (n_rows, n_heads, head_dim) f32 */
    backend_buf *k;              /* (n_rows, n_kv_heads, head_dim) f32, may be overwritten */
    const backend_buf *v;        /* (n_rows, n_kv_heads, head_dim) f32 */
    const backend_buf *pos;      /* (n_rows) i32 */
    const backend_buf *slots;    /* (n_rows) i32 */
    const backend_buf *inv_freq; /* (n_rot / 2) f32 */
    const backend_weight *q_norm, *k_norm; /* (1, head_dim) or (1, all heads) f32; both or NULL */
    float eps, magnitude;                  /* magnitude 0 is 1 */
    uint32_t n_rows, n_heads, n_rot;       /* n_rot even, <= head_dim */
    bool interleaved;
    struct backend_kv kv;
};
int backend_rope_store(backend *be, const struct op_rope_store *a);

/* out[row] = softmax(score) V, score = scale * q[row] K^T, over positions 0..pos[row] of the row's
 * sequence, with window over the last `window` of them only, read through its block table; query
 * head h uses KV head h / (n_heads / n_kv_heads). softcap: score = softcap * tanh(score / softcap).
 * sinks: the softmax of head h has one more term exp(sinks[h]), which weighs no value. Rows of one
 * sequence are contiguous: rows row_start[s] .. row_start[s+1]-1 belong to sequence s. Prefill
 * chunks and decode rows mix freely. Block tables: (n_seqs, table_stride) i32. */
struct op_paged_attention {
    const backend_buf *q;         /* (n_rows, n_heads, head_dim) f32 */
    const backend_buf *pos;       /* (n_rows) i32 */
    const backend_buf *row_start; /* (n_seqs + 1) i32 */
    const backend_buf *tables;    /* (n_seqs, table_stride) i32 */
    uint32_t n_rows, n_seqs, n_heads, table_stride;
    uint32_t max_context; /* every pos is below it, <= table_stride * block_tokens; 0: that */
    uint32_t window;      /* 0: all positions */
    float scale, softcap; /* softcap 0: none */
    const backend_weight *sinks; /* (1, n_heads) f32 or NULL */
    struct backend_kv kv;
    backend_buf *out; /* (n_rows, n_heads, head_dim) f32 */
};
int backend_paged_attention(backend *be, const struct op_paged_attention *a);

/* backend_rope_store, then backend_paged_attention of the same rows, in one launch where the device
 * can: both have the same q, pos, n_rows, n_heads and kv. A row's slot is where its table has its
 * position. What becomes of q and k is not said. */
int backend_store_attend(backend *be, const struct op_rope_store *store,
                         const struct op_paged_attention *a);

/* out[i] = x[rows[i]] (+ residual[rows[i]] if not NULL), i < n_out_rows; (.., n_cols) f32. */
struct op_gather {
    const backend_buf *x, *residual, *rows; /* rows (n_out_rows) i32 */
    uint32_t n_out_rows, n_cols;
    backend_buf *out;
};
int backend_gather(backend *be, const struct op_gather *a);

/* The k largest logits of each row in the samplers' total order: logit down, of equal ones the
 * lower id first; NaN counts as -inf. k <= BACKEND_MAX_TOP, k <= n_cols. */
enum { BACKEND_MAX_TOP = 64 };
struct op_top {
    const backend_buf *x; /* (n_rows, n_cols) f32 */
    uint32_t n_rows, n_cols, k;
    backend_buf *ids;    /* (n_rows, k) i32 */
    backend_buf *values; /* (n_rows, k) f32 */
};
int backend_top(backend *be, const struct op_top *a);

/* How to sample a token from one row of logits, in this order: repetition penalty (positive logits
 * are divided by it, others multiplied), presence and frequency penalty (generated tokens: minus
 * presence + frequency * count), temperature, top_k, top_p, min_p, random choice. Tokens are ranked
 * by logit, equal logits by id; NaN counts as -inf. Weights and random numbers:
 * core/base/sample_math.h. */
struct backend_sampling {
    float temperature;                     /* 0: greedy; below 0: no token is sampled */
    float top_p, min_p;                    /* 1, 0: off */
    float repetition, presence, frequency; /* 1, 0, 0: off */
    uint32_t top_k;                        /* 0: off */
    uint32_t first_history, n_history;     /* the row's entries of the penalty history */
    uint32_t seed[2], index[2];            /* low word first */
};

struct backend_sampled {
    int32_t token; /* -1: none was asked for, or no logit is finite */
    float logit;   /* the token's, before penalties */
    float log_sum; /* log of the sum of exp over the row, before penalties: logprob = logit -
                      log_sum */
};

/* An entry of the penalty history: a token and how often it was generated. No row has two entries
 * of one token. */
struct backend_penalty_entry {
    int32_t token;   /* -1: unused entry */
    int32_t count;   /* times generated; 0: only in the prompt */
    int32_t scratch; /* the device's */
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
bool backend_can_sample(const backend *be); /* false (cpu, metal): the op is ERR_UNSUPPORTED */
int backend_sample(backend *be, const struct op_sample *a);

/* One token id that a step takes from the results of the previous step. */
struct backend_token_copy {
    int32_t to;   /* index in ids */
    int32_t from; /* row of the previous step's logits */
};

/* ids[to] = max(from[from * stride], 0) for copies first .. first + n - 1: moves tokens from the
 * step that found them (backend_sampled, or op_top's ids) to the ids of the next step. The caller
 * has checked the copies. */
struct op_copy_tokens {
    const backend_buf *from;   /* i32 */
    const backend_buf *copies; /* (first + n) struct backend_token_copy */
    uint32_t stride, first, n;
    backend_buf *ids; /* i32 */
};
int backend_copy_tokens(backend *be, const struct op_copy_tokens *a); /* backend_can_overlap */

/* One sequence whose penalty history gets the token that the previous step samples. */
struct backend_history_update {
    int32_t first, n; /* its entries; entry first + n exists, too, and is unused */
    int32_t from;     /* row of sampled */
};

/* Adds the previous step's sampled tokens to the penalty history: if the token is among an update's
 * n entries its count is incremented and entry first + n is left unused (-1); otherwise entry
 * first + n becomes that token with count 1. The caller has checked the updates. */
struct op_update_history {
    const backend_buf *sampled; /* struct backend_sampled */
    const backend_buf *updates; /* (n) struct backend_history_update */
    uint32_t n;
    backend_buf *history; /* as in op_sample */
};
int backend_update_history(backend *be,
                           const struct op_update_history *a); /* backend_can_overlap */

/* Linear attention with a decay per head, causal, a state in place of a KV cache:
 *   out[t] = scale * sum over s <= t of decay^(t - s) * (q[t] . k[s]) * v[s]
 * (Katharopoulos et al., "Transformers are RNNs", 2020; decay as in Sun et al., "Retentive
 * Network", 2023), computed in chunks of C positions counted from a sequence's beginning. The state
 * slot of a sequence that has been given n positions holds for each head, each f32:
 *   S (head_dim, head_dim)  of its n / C whole chunks: sum over s of decay^(last - s) k[s]^T v[s],
 *                           last the last position of them; undefined while there is none
 *   K (C, head_dim)         the n % C rows behind them; the rest is undefined
 *   V (C, head_dim)         likewise
 * so that a row's result and the state do not depend on how the rows were split into steps, bit for
 * bit. A sequence that begins with position 0 needs no cleared slot: what is undefined is not read.
 *
 * Rows of one sequence are contiguous, rows row_start[s] .. row_start[s+1]-1, at least one each;
 * their positions follow each other and what the slot holds. No two sequences share a slot. */
enum { BACKEND_LINEAR_CHUNK_64 = 32, BACKEND_LINEAR_CHUNK_128 = 16 }; /* C, by head_dim */
struct op_linear_attention {
    const backend_buf *q, *k, *v;               /* (n_rows, n_heads, head_dim) f32 */
    const backend_buf *pos;                     /* (n_rows) i32 */
    const backend_buf *row_start;               /* (n_seqs + 1) i32 */
    const backend_buf *slots;                   /* (n_seqs) i32, each < n_slots */
    const backend_weight *decay;                /* (1, n_heads) f32 in (0, 1], or NULL: 1 */
    uint32_t n_rows, n_seqs, n_heads, head_dim; /* heads as opened for; head_dim 64 or 128 */
    uint32_t n_slots;
    float scale;
    backend_buf *state; /* (n_slots, n_heads, backend_linear_state_bytes / 4) f32 */
    backend_buf *out;   /* (n_rows, n_heads, head_dim) f32 */
};
uint32_t backend_linear_chunk(uint32_t head_dim);       /* C; 0: no such head */
uint64_t backend_linear_state_bytes(uint32_t head_dim); /* of one slot and head; 0: no such head */
int backend_linear_attention(backend *be, const struct op_linear_attention *a);

/* Of a group, an exchange: x (n_rows, n_cols) f32 = x of rank 0 + x of rank 1 + ..., added in that
 * order, the same bits on all ranks. work: backend_exchange_bytes of memory of the device's own, or
 * NULL for none. On a backend alone nothing happens. */
struct op_all_reduce {
    backend_buf *x, *work;
    uint32_t n_rows, n_cols;
};
int backend_all_reduce(backend *be, const struct op_all_reduce *a);

/* Of a group, an exchange: the ranks' columns side by side. With w = backend_share(n_cols, n_ranks)
 * rank r has columns r * w .. min((r + 1) * w, n_cols) - 1 of out in part, (n_rows, that many) f32
 * in a buffer of (n_rows, w). out (n_rows, n_cols), or NULL on ranks that do not want it. Every
 * rank must have a column. ERR_UNSUPPORTED on a backend alone. */
struct op_all_gather {
    const backend_buf *part;
    backend_buf *out, *work; /* work as above */
    uint32_t n_rows, n_cols;
};
int backend_all_gather(backend *be, const struct op_all_gather *a);
static inline uint32_t backend_share(uint32_t n_cols, uint32_t n_ranks) {
    return n_cols / n_ranks + (n_cols % n_ranks != 0);
}
/* Of work where each rank brings up to n_rows * n_cols values: to a gather its share. */
uint64_t backend_exchange_bytes(const backend *be, uint32_t n_rows, uint32_t n_cols);

/* Copies whole KV blocks of one layer, K and V: pairs[2i] -> pairs[2i+1] (copy-on-write), as if one
 * after the other. pairs is host memory, read before the return. */
int backend_kv_copy(backend *be, const struct backend_kv *kv, const int32_t *pairs,
                    uint32_t n_pairs);

/* ---- counters ---- */
enum { BACKEND_MAX_KERNELS = 160 };
uint32_t backend_n_kernels(const backend *be);
const char *backend_kernel_name(const backend *be, uint32_t i); /* "paged_attention_f16_avx2" */
uint64_t backend_dispatch_count(const backend *be, uint32_t i);
/* Bytes of device memory that kernel i was to read and to write in all its dispatches, by the
 * shapes it was given; pages of the KV cache, whose number only the device knows, are not in it.
 * Both 0 where a device does not say (cpu). */
void backend_kernel_traffic(const backend *be, uint32_t i, uint64_t *read, uint64_t *written);
/* Bytes that the device holds for this process now, by its own count; 0: it has none. */
uint64_t backend_allocated_bytes(const backend *be);
/* Bytes that the device should hold for this process at most, weights read in place among them; 0:
 * no limit of its own (cpu). */
uint64_t backend_memory_limit(const backend *be);
/* Bytes that nobody holds now on a device with memory of its own, less what its driver takes while
 * it computes (at least 1); 0: its memory is the host's. */
uint64_t backend_memory_free(const backend *be);
/* Measures how fast the device copies its own memory: bytes read and written a second, the median
 * of a few copies that no cache holds. 0: this device has no such measure. ERR_NOMEM, ERR_DEVICE.
 */
int backend_copy_bandwidth(backend *be, double *bytes_per_s, err *e);

#endif
