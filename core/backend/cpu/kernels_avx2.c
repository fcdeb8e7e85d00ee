/* kernels_avx2.c - the AVX2 row kernels, and the table of all AVX2 kernels. A row's last columns
 * are padded and use the same vector code as the others. Pure functions; any thread. */
#include "core/backend/cpu/avx2_int.h"
#include "core/backend/cpu/delta/delta.h"

#include <math.h>

enum { LANES = 8 };

ALWAYS_INLINE __m256 load_some(const float *p, uint32_t n) {
    return n >= LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, lanes_below(n));
}

ALWAYS_INLINE void store_some(float *p, __m256 v, uint32_t n) {
    if (n >= LANES)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, lanes_below(n), v);
}

static float inverse_rms(__m256 sum, const struct cpu_row *r) {
    return 1 / sqrtf(sum_lanes(sum) / (float)r->n + r->eps);
}

/* The factor of a normed residual. */
static float residual_scale(const struct cpu_row *r) {
    __m256 sum = _mm256_setzero_ps();
    for (uint32_t i = 0; i < r->n; i += LANES) {
        __m256 v = load_some(r->residual + i, r->n - i);
        sum = _mm256_fmadd_ps(v, v, sum);
    }
    return r->residual_scale * inverse_rms(sum, r);
}

/* x += scale * residual (* residual_norm); returns the sum of its squares. residual and normed are
 * constants. */
ALWAYS_INLINE __m256 update_vector(const struct cpu_row *r, bool residual, bool normed,
                                   float scale) {
    __m256 sum = _mm256_setzero_ps(), k = _mm256_set1_ps(scale);
    const struct cpu_row at = *r; /* the compiler must assume that stores change *r */
    for (uint32_t i = 0, n = at.n; i < n; i += LANES) {
        __m256 v = load_some(at.x + i, n - i);
        if (residual) {
            __m256 add = load_some(at.residual + i, n - i);
            if (normed) add = _mm256_mul_ps(add, load_some(at.residual_norm + i, n - i));
            v = _mm256_fmadd_ps(add, k, v);
            store_some(at.x + i, v, n - i);
        }
        sum = _mm256_fmadd_ps(v, v, sum);
    }
    return sum;
}

/* x - mean at column i, 0 beyond the row's n columns. */
ALWAYS_INLINE __m256 center(const float *x, uint32_t i, uint32_t n, __m256 mean) {
    __m256 v = _mm256_sub_ps(load_some(x + i, n - i), mean);
    return n - i >= LANES ? v : _mm256_and_ps(v, _mm256_castsi256_ps(lanes_below(n - i)));
}

/* out = (x - mean) / rms(x - mean) * norm + bias */
static void center_row(const struct cpu_row *r) {
    const struct cpu_row at = *r;
    const uint32_t n = at.n;
    __m256 sum = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    for (uint32_t i = 0; i < n; i += LANES)
        sum = _mm256_add_ps(sum, load_some(at.x + i, n - i));
    const __m256 mean = _mm256_set1_ps(sum_lanes(sum) / (float)n);
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 v = center(at.x, i, n, mean);
        squares = _mm256_fmadd_ps(v, v, squares);
    }
    const __m256 scale = _mm256_set1_ps(inverse_rms(squares, r));
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 v = _mm256_mul_ps(center(at.x, i, n, mean), scale);
        v = _mm256_mul_ps(v, load_some(at.norm + i, n - i));
        if (at.bias) v = _mm256_add_ps(v, load_some(at.bias + i, n - i));
        store_some(at.out + i, v, n - i);
    }
}

void avx2_norm_row(const struct cpu_row *r) {
    const float *x = r->x, *norm = r->norm;
    float *out = r->out;
    const uint32_t n = r->n;
    __m256 sum = r->residual_norm ? update_vector(r, true, true, residual_scale(r))
                 : r->residual    ? update_vector(r, true, false, r->residual_scale)
                                  : update_vector(r, false, false, 0);
    if (!norm) return;
    if (r->centred) {
        center_row(r);
        return;
    }
    __m256 scale = _mm256_set1_ps(inverse_rms(sum, r));
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 v = _mm256_mul_ps(load_some(x + i, n - i), scale);
        store_some(out + i, _mm256_mul_ps(v, load_some(norm + i, n - i)), n - i);
    }
}

/* act(gate, up); act is a constant. max and min return their second operand if either is NaN. */
ALWAYS_INLINE __m256 apply_gate(enum backend_act act, __m256 g, __m256 u) {
    /* e^-x is bounded, so g must be, too */
    g = _mm256_max_ps(_mm256_set1_ps(CPU_GATE_MIN), g);
    __m256 x = g;
    if (act == BACKEND_ACT_GELU_TANH) {
        __m256 slope = _mm256_fmadd_ps(_mm256_mul_ps(g, g), _mm256_set1_ps(CPU_GELU_CUBIC),
                                       _mm256_set1_ps(CPU_GELU_LINEAR));
        x = _mm256_mul_ps(g, slope);
    } else if (act == BACKEND_ACT_SWIGLU_OAI) {
        const __m256 most = _mm256_set1_ps(CPU_OAI_LIMIT), least = _mm256_set1_ps(-CPU_OAI_LIMIT);
        g = _mm256_min_ps(most, g);
        u = _mm256_min_ps(most, _mm256_max_ps(least, u));
        u = _mm256_add_ps(u, _mm256_set1_ps(1));
        x = _mm256_mul_ps(g, _mm256_set1_ps(CPU_OAI_ALPHA));
    }
    __m256 e = exp_ps(_mm256_sub_ps(_mm256_setzero_ps(), x));
    return _mm256_mul_ps(_mm256_div_ps(g, _mm256_add_ps(e, _mm256_set1_ps(1))), u);
}

ALWAYS_INLINE void glu_row(enum backend_act act, const float *gate, const float *up, float *out,
                           uint32_t n) {
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 g = load_some(gate + i, n - i), u = load_some(up + i, n - i);
        store_some(out + i, apply_gate(act, g, u), n - i);
    }
}

void avx2_glu_silu(const float *gate, const float *up, float *out, uint32_t n) {
    glu_row(BACKEND_ACT_SILU, gate, up, out, n);
}

void avx2_glu_gelu_tanh(const float *gate, const float *up, float *out, uint32_t n) {
    glu_row(BACKEND_ACT_GELU_TANH, gate, up, out, n);
}

void avx2_glu_swiglu_oai(const float *gate, const float *up, float *out, uint32_t n) {
    glu_row(BACKEND_ACT_SWIGLU_OAI, gate, up, out, n);
}

void avx2_gate(float *x, const float *gate, uint32_t n) {
    const __m256 one = _mm256_set1_ps(1), zero = _mm256_setzero_ps();
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 e = exp_ps(_mm256_sub_ps(zero, load_some(gate + i, n - i)));
        store_some(x + i, _mm256_div_ps(load_some(x + i, n - i), _mm256_add_ps(e, one)), n - i);
    }
}

void avx2_softcap(const float *x, float *out, uint32_t n, float scale, float cap) {
    const __m256 k = _mm256_set1_ps(scale), limit = _mm256_set1_ps(cap);
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 v = tanh_ps(_mm256_mul_ps(load_some(x + i, n - i), k));
        store_some(out + i, _mm256_mul_ps(v, limit), n - i);
    }
}

const struct cpu_isa cpu_isa_avx2 = {
    .name = "avx2",
    .kernel_names = {[CPU_RMSNORM] = "rmsnorm_avx2",
                     [CPU_LAYERNORM] = "layernorm_avx2",
                     [CPU_ADD_ROWS] = "add_rows_avx2",
                     [CPU_ROPE_STORE_F32] = "rope_store_f32_avx2",
                     [CPU_ROPE_STORE_F16] = "rope_store_f16_avx2",
                     [CPU_ROPE_STORE_BF16] = "rope_store_bf16_avx2",
                     [CPU_ROPE_STORE_Q8_0] = "rope_store_q8_0_avx2",
                     [CPU_PAGED_ATTENTION_F32] = "paged_attention_f32_avx2",
                     [CPU_PAGED_ATTENTION_F16] = "paged_attention_f16_avx2",
                     [CPU_PAGED_ATTENTION_BF16] = "paged_attention_bf16_avx2",
                     [CPU_PAGED_ATTENTION_Q8_0] = "paged_attention_q8_0_avx2",
                     [CPU_GLU_SILU] = "glu_silu_avx2",
                     [CPU_GLU_GELU_TANH] = "glu_gelu_tanh_avx2",
                     [CPU_GLU_SWIGLU_OAI] = "glu_swiglu_oai_avx2",
                     [CPU_SOFTCAP] = "softcap_avx2",
                     [CPU_GATE] = "gate_avx2",
                     [CPU_LINEAR_ATTENTION] = "linear_attention_avx2"},
    .block_step = LANES,
    .norm_row = avx2_norm_row,
    .glu = {[BACKEND_ACT_SILU] = avx2_glu_silu,
            [BACKEND_ACT_GELU_TANH] = avx2_glu_gelu_tanh,
            [BACKEND_ACT_SWIGLU_OAI] = avx2_glu_swiglu_oai,
            [BACKEND_ACT_GELU] = generic_glu_gelu},
    .softcap = avx2_softcap,
    .gate = avx2_gate,
    .rotate = avx2_rotate,
    .encode_kv = avx2_encode_kv,
    .attention = avx2_attention,
    .attention_merge = avx2_attention_merge,
    .delta_conv = avx2_delta_conv,
    .delta_run = avx2_delta_run,
    .delta_norm = avx2_delta_norm,
};
