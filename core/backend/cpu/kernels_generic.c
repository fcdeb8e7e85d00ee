/* kernels_generic.c - the plain reference of every CPU kernel: C for any processor, written to be
 * read. Every reduction runs in one fixed order per output. Pure functions; any thread. */
#include "core/backend/cpu/cpu_int.h"

#include <math.h>
#include <string.h>

enum { DECODE_COLS = 256 }; /* weights decoded at a time */

/* ---- linear ---- */

/* Columns are taken DECODE_COLS at a time; each stretch is summed by itself, then added. */
static void linear_float(const struct cpu_linear_job *j) {
    float w[DECODE_COLS];
    uint64_t elem = j->type == QTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    for (uint32_t o = j->out0; o < j->out0 + j->n_outs; o++) {
        const uint8_t *row_w = j->w + o * j->w_row_bytes;
        for (uint32_t r = 0; r < j->n_rows; r++)
            j->y[r * j->y_stride + o] = 0;
        for (uint32_t c = 0; c < j->n_in; c += DECODE_COLS) {
            uint32_t n = j->n_in - c < DECODE_COLS ? j->n_in - c : DECODE_COLS;
            qtype_decode(j->type, row_w + c * elem, w, n);
            for (uint32_t r = 0; r < j->n_rows; r++) {
                const float *x = j->x + (uint64_t)r * j->n_in + c;
                float sum = 0;
                for (uint32_t i = 0; i < n; i++)
                    sum += x[i] * w[i];
                j->y[r * j->y_stride + o] += sum;
            }
        }
    }
}

/* Block b of a weight row as integers; returns its scale. */
static float unpack_block(int type, const uint8_t *row_w, uint32_t b, int8_t q[CPU_Q_ELEMS]) {
    if (type == QTYPE_Q8_0) {
        struct q8_0_block block;
        memcpy(&block, row_w + b * sizeof block, sizeof block);
        memcpy(q, block.q, sizeof block.q);
        return f16_to_f32(block.d);
    }
    struct q4_0_block block;
    memcpy(&block, row_w + b * sizeof block, sizeof block);
    for (int i = 0; i < Q_ELEMS / 2; i++) {
        q[i] = (int8_t)((block.q[i] & 15) - 8);
        q[i + Q_ELEMS / 2] = (int8_t)((block.q[i] >> 4) - 8);
    }
    return f16_to_f32(block.d);
}

static void linear_quantized(const struct cpu_linear_job *j) {
    uint32_t n_blocks = j->n_in / CPU_Q_ELEMS;
    for (uint32_t o = j->out0; o < j->out0 + j->n_outs; o++) {
        for (uint32_t r = 0; r < j->n_rows; r++)
            j->y[r * j->y_stride + o] = 0;
        for (uint32_t b = 0; b < n_blocks; b++) {
            int8_t w[CPU_Q_ELEMS];
            float d = unpack_block(j->type, j->w + o * j->w_row_bytes, b, w);
            for (uint32_t r = 0; r < j->n_rows; r++) {
                const int16_t *x = j->xq + (uint64_t)r * j->n_in + b * CPU_Q_ELEMS;
                int32_t dot = 0;
                for (int i = 0; i < CPU_Q_ELEMS; i++)
                    dot += x[i] * w[i];
                j->y[r * j->y_stride + o] += (float)dot * (d * j->xd[(uint64_t)r * n_blocks + b]);
            }
        }
    }
}

static void linear(const struct cpu_linear_job *j) {
    if (j->type == QTYPE_Q8_0 || j->type == QTYPE_Q4_0)
        linear_quantized(j);
    else
        linear_float(j);
    for (uint32_t r = 0; j->bias && r < j->n_rows; r++)
        for (uint32_t o = j->out0; o < j->out0 + j->n_outs; o++)
            j->y[r * j->y_stride + o] += j->bias[o];
}

static void quantize(const float *x, int16_t *q, float *d, uint32_t n) {
    for (uint32_t b = 0; b < n / CPU_Q_ELEMS; b++, x += CPU_Q_ELEMS, q += CPU_Q_ELEMS) {
        float max = 0;
        for (int i = 0; i < CPU_Q_ELEMS; i++)
            max = fmaxf(max, fabsf(x[i]));
        float inverse = max > 0 ? CPU_Q_MAX / max : 0;
        d[b] = max / CPU_Q_MAX;
        for (int i = 0; i < CPU_Q_ELEMS; i++)
            q[i] = (int16_t)rintf(x[i] * inverse);
    }
}

/* ---- rows ---- */

static void rmsnorm(float *x, const float *residual, const float *weight, float *out, uint32_t n,
                    float eps) {
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (residual) x[i] += residual[i];
        sum += x[i] * x[i];
    }
    float scale = 1 / sqrtf(sum / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

static void glu_silu(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

const struct cpu_isa cpu_isa_generic = {
    .name = "generic",
    .kernel_names = {[CPU_EMBED] = "embed_generic",
                     [CPU_RMSNORM] = "rmsnorm_generic",
                     [CPU_QUANTIZE_ROWS] = "quantize_rows_generic",
                     [CPU_LINEAR_F32] = "linear_f32_generic",
                     [CPU_LINEAR_F16] = "linear_f16_generic",
                     [CPU_LINEAR_BF16] = "linear_bf16_generic",
                     [CPU_LINEAR_Q8_0] = "linear_q8_0_generic",
                     [CPU_LINEAR_Q4_0] = "linear_q4_0_generic",
                     [CPU_ROPE_STORE_F32] = "rope_store_f32_generic",
                     [CPU_ROPE_STORE_F16] = "rope_store_f16_generic",
                     [CPU_ROPE_STORE_BF16] = "rope_store_bf16_generic",
                     [CPU_ROPE_STORE_Q8_0] = "rope_store_q8_0_generic",
                     [CPU_PAGED_ATTENTION_F32] = "paged_attention_f32_generic",
                     [CPU_PAGED_ATTENTION_F16] = "paged_attention_f16_generic",
                     [CPU_PAGED_ATTENTION_BF16] = "paged_attention_bf16_generic",
                     [CPU_PAGED_ATTENTION_Q8_0] = "paged_attention_q8_0_generic",
                     [CPU_GLU_SILU] = "glu_silu_generic",
                     [CPU_GATHER] = "gather_generic",
                     [CPU_KV_COPY] = "kv_copy_generic"},
    .block_step = 1,
    .linear = linear,
    .quantize = quantize,
    .rmsnorm = rmsnorm,
    .glu_silu = glu_silu,
    .encode_kv = generic_encode_kv,
    .attention = generic_attention,
    .attention_merge = generic_attention_merge,
};
