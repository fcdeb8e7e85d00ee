/* sample.cu - samples a token from each row of logits. One block per row; each warp has
 * consecutive columns, so that ids ascend from warp to warp. Weights are integers
 * (core/base/sample_math.h), so their sums do not depend on the order of threads.
 *
 * Every filter keeps a prefix of the tokens' ranking, so all filters together are one cut. It is
 * found by bisection over the keys of logits; each step is a pass over the few candidate tokens,
 * or over the row if there are too many. */
#include "core/base/sample_math.h"
#include "shaders/args.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum { THREADS = CUDA_SAMPLE_THREADS, WARPS = THREADS / 32, LIST = CUDA_SAMPLE_LIST };

struct row {
    const float *x;
    uint32_t n, first, end; /* columns of the row; of this warp */
    float max, temperature;
};

/* Keeps tokens with a larger key, and those with this key up to this id. */
struct cut {
    uint32_t key, id;
};

struct entry {
    uint64_t weight;
    uint32_t key, id;
};

/* Of the kernel, which alone declares shared memory: the stand-in finds it by the kernel's name. */
struct block_memory {
    uint64_t each[WARPS];
    uint32_t n_list;
    int32_t token;
};

__device__ uint64_t shuffle_xor(uint64_t v, int lanes) {
    uint32_t low = __shfl_xor_sync(CUDA_ALL, (uint32_t)v, lanes);
    uint32_t high = __shfl_xor_sync(CUDA_ALL, (uint32_t)(v >> 32), lanes);
    return (uint64_t)high << 32 | low;
}

__device__ uint64_t warp_total(uint64_t v) {
    for (int i = 16; i > 0; i /= 2)
        v += shuffle_xor(v, i);
    return v;
}

/* Sum over all threads, returned to all. each: (WARPS) shared; before its next use the caller
 * needs a barrier. */
__device__ uint64_t block_total(uint64_t v, uint64_t *each) {
    v = warp_total(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_total(each[threadIdx.x % 32]);
}

__device__ double block_sum(double v, uint64_t *each) {
    double *sums = reinterpret_cast<double *>(each), total = 0;
    for (int i = 16; i > 0; i /= 2) {
        union {
            double d;
            uint64_t u;
        } other;
        other.d = v;
        other.u = shuffle_xor(other.u, i);
        v += other.d;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        total += sums[i];
    return total;
}

/* The largest key, and of those the lowest id. */
__device__ cut block_first(cut best, uint64_t *each) {
    uint64_t v = (uint64_t)best.key << 32 | (uint32_t)~best.id;
    for (int i = 16; i > 0; i /= 2) {
        uint64_t other = shuffle_xor(v, i);
        v = other > v ? other : v;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        v = each[i] > v ? each[i] : v;
    return {(uint32_t)(v >> 32), ~(uint32_t)v};
}

__device__ uint64_t weight_at(const row &r, float logit) {
    return logit == logit ? sample_weight(logit, r.max, r.temperature) : 0;
}

__device__ bool keeps(cut c, uint32_t key, uint32_t id) {
    return key > c.key || (key == c.key && id <= c.id);
}

/* ---- the cut ---- */

/* Number of tokens, or their weight, at or before c in rank. by_weight: only among list (n). */
__device__ uint64_t reach(const row &r, cut c, bool by_weight, cut within, const entry *list,
                          uint32_t n, uint64_t *each) {
    uint64_t sum = 0;
    if (list) {
        for (uint32_t i = threadIdx.x; i < n; i += THREADS)
            if (keeps(c, list[i].key, list[i].id)) sum += list[i].weight;
    } else {
        for (uint32_t i = r.first + threadIdx.x % 32; i < r.end; i += 32) {
            uint32_t key = sample_key(r.x[i]);
            if (keeps(c, key, i) && keeps(within, key, i))
                sum += by_weight ? weight_at(r, r.x[i]) : 1;
        }
    }
    return block_total(sum, each);
}

/* The first cut in rank whose number or weight reaches want. */
__device__ cut find_cut(const row &r, uint64_t want, bool by_weight, cut within, const entry *list,
                        uint32_t n, uint64_t *each) {
    uint32_t low = 0, high = sample_key(r.max); /* the key is in [low, high] */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2 + 1;
        if (reach(r, {middle, UINT32_MAX}, by_weight, within, list, n, each) >= want)
            low = middle;
        else
            high = middle - 1;
    }
    uint32_t first = 0, last = r.n - 1;
    while (first < last) {
        uint32_t middle = first + (last - first) / 2;
        if (reach(r, {low, middle}, by_weight, within, list, n, each) >= want)
            last = middle;
        else
            first = middle + 1;
    }
    return {low, first};
}

/* Total weight of the tokens that c keeps. */
__device__ uint64_t kept_weight(const row &r, cut c, uint64_t least, uint64_t *each) {
    uint64_t sum = 0;
    for (uint32_t i = r.first + threadIdx.x % 32; i < r.end; i += 32) {
        uint64_t w = weight_at(r, r.x[i]);
        if (w >= least && keeps(c, sample_key(r.x[i]), i)) sum += w;
    }
    return block_total(sum, each);
}

/* Collects tokens that `within` keeps, with at least this key and weight, in list (up to LIST of
 * them); returns their number. With by_weight false each counts 1. */
__device__ uint32_t gather(const row &r, cut within, uint32_t key, uint64_t weight, bool by_weight,
                           entry *list, uint32_t *n_list) {
    __syncthreads();
    if (threadIdx.x == 0) *n_list = 0;
    __syncthreads();
    for (uint32_t i = r.first + threadIdx.x % 32; i < r.end; i += 32) {
        uint32_t k = sample_key(r.x[i]);
        if (k < key || !keeps(within, k, i)) continue;
        uint64_t w = by_weight ? weight_at(r, r.x[i]) : 1;
        if (w < weight || !w) continue;
        uint32_t at = atomicAdd(n_list, 1u);
        if (at < LIST) list[at] = {w, k, i};
    }
    __syncthreads();
    return *n_list;
}

/* The cut of top_k. At least k tokens are not below the k-th best of the threads' best keys:
 * usually only few more, and they fit the list. */
__device__ cut first_k(const row &r, uint32_t k, entry *list, block_memory &m) {
    uint32_t best = 0, low = 0, high = sample_key(r.max);
    for (uint32_t i = r.first + threadIdx.x % 32; i < r.end; i += 32)
        best = max(best, sample_key(r.x[i]));
    while (low < high) {
        uint32_t middle = low + (high - low) / 2 + 1;
        if ((uint32_t)__syncthreads_count(best >= middle) >= k)
            low = middle;
        else
            high = middle - 1;
    }
    uint32_t n = gather(r, {0, UINT32_MAX}, low, 1, false, list, &m.n_list);
    return find_cut(r, k, false, {0, UINT32_MAX}, n <= LIST ? list : nullptr, n, m.each);
}

/* The cut of top_p within `within`. A token lighter than (1 - top_p) * total / n is outside for
 * any number n of tokens: usually few remain, and they fit the list. */
__device__ cut nucleus(const row &r, float top_p, cut within, entry *list, block_memory &m) {
    uint64_t total = kept_weight(r, within, 0, m.each), want = sample_mass(top_p, total);
    uint64_t lightest = (uint64_t)((1.0 - (double)top_p) * (double)total / r.n);
    uint32_t n = gather(r, within, within.key, lightest, true, list, &m.n_list);
    return find_cut(r, want, true, within, n <= LIST ? list : nullptr, n, m.each);
}

/* ---- the random choice ---- */

/* The id at which the running sum of the kept weights, in the order of ids, exceeds target. */
__device__ void walk(const row &r, cut c, uint64_t least, uint64_t target, uint64_t *each,
                     int32_t *token) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t sum = 0, before = 0;
    for (uint32_t i = r.first + lane; i < r.end; i += 32) {
        uint64_t w = weight_at(r, r.x[i]);
        if (w >= least && keeps(c, sample_key(r.x[i]), i)) sum += w;
    }
    sum = warp_total(sum);
    __syncthreads();
    if (lane == 0) each[warp] = sum;
    __syncthreads();
    for (uint32_t i = 0; i < warp; i++)
        before += each[i];
    if (target < before || target >= before + sum) return; /* in another warp's columns */
    for (uint32_t base = r.first; base < r.end; base += 32) {
        uint32_t i = base + lane;
        uint64_t w = i < r.end ? weight_at(r, r.x[i]) : 0, upto;
        if (w < least || i >= r.end || !keeps(c, sample_key(r.x[i]), i)) w = 0;
        upto = w;
        for (int step = 1; step < 32; step *= 2) {
            uint32_t low = __shfl_up_sync(CUDA_ALL, (uint32_t)upto, step);
            uint32_t high = __shfl_up_sync(CUDA_ALL, (uint32_t)(upto >> 32), step);
            if (lane >= (uint32_t)step) upto += (uint64_t)high << 32 | low;
        }
        uint32_t passed = __ballot_sync(CUDA_ALL, before + upto > target);
        if (passed) {
            if (lane == 0) *token = (int32_t)(base + __ffs(passed) - 1);
            return;
        }
        uint32_t low = __shfl_sync(CUDA_ALL, (uint32_t)upto, 31);
        uint32_t high = __shfl_sync(CUDA_ALL, (uint32_t)(upto >> 32), 31);
        before += (uint64_t)high << 32 | low;
    }
}

__device__ int32_t sample_row(const row &r, const cargs_sampling &d, block_memory &m) {
    CUDA_SHARED(entry, list);
    cut c = {0, UINT32_MAX};
    if (d.params.top_k && d.params.top_k < r.n) c = first_k(r, d.params.top_k, list, m);
    if (d.params.top_p < 1.0f) c = nucleus(r, d.params.top_p, c, list, m);
    uint64_t least =
        d.params.min_p > 0
            ? (uint64_t)ceil((double)d.params.min_p * (double)(UINT64_C(1) << SAMPLE_ONE_BITS))
            : 1;
    if (!least) least = 1;
    uint64_t total = kept_weight(r, c, least, m.each);
    walk(r, c, least, sample_target(d.seed, d.index, total), m.each, &m.token);
    __syncthreads();
    return m.token;
}

/* The best token of the row as it is now. */
__device__ cut best_of(const row &r, uint64_t *each) {
    cut best = {0, UINT32_MAX};
    for (uint32_t i = r.first + threadIdx.x % 32; i < r.end; i += 32) {
        uint32_t key = sample_key(r.x[i]);
        if (key > best.key) best = {key, i};
    }
    return block_first(best, each);
}

/* Applies the penalties of the row's history; each entry keeps its token's logit. */
__device__ void apply_penalties(float *x, uint32_t n_cols, const cargs_sampling &d,
                                cargs_penalty_entry *history) {
    const sampling &p = d.params;
    for (uint32_t i = threadIdx.x; i < d.n_history; i += THREADS) {
        cargs_penalty_entry *e = &history[(uint64_t)d.first_history + i];
        if ((uint32_t)e->token >= n_cols) continue;
        float v = x[e->token];
        e->logit = v;
        if (p.repetition_penalty != 1.0f)
            v = v > 0 ? v / p.repetition_penalty : v * p.repetition_penalty;
        if (e->count) v -= fmaf(p.frequency_penalty, (float)e->count, p.presence_penalty);
        x[e->token] = v;
    }
}

__device__ void undo_penalties(float *x, uint32_t n_cols, const cargs_sampling &d,
                               const cargs_penalty_entry *history) {
    for (uint32_t i = threadIdx.x; i < d.n_history; i += THREADS) {
        const cargs_penalty_entry *e = &history[(uint64_t)d.first_history + i];
        if ((uint32_t)e->token < n_cols) x[e->token] = e->logit;
    }
}

CUDA_KERNEL_MIN(CUDA_SAMPLE_THREADS, 1) sample(CUDA_ARGS(struct cargs_sample) a) {
    __shared__ block_memory m;
    pdl_launch();
    pdl_wait();
    const cargs_sampling d = a.sampling[blockIdx.x];
    float *x = a.x + (uint64_t)blockIdx.x * a.n_cols;
    uint32_t run = ((a.n_cols + WARPS - 1) / WARPS + 31) / 32 * 32, first = threadIdx.x / 32 * run;
    row r = {x,
             a.n_cols,
             first < a.n_cols ? first : a.n_cols,
             first + run < a.n_cols ? first + run : a.n_cols,
             0,
             d.params.temperature};
    cargs_sampled sampled = {-1, 0, 0};
    cut best = best_of(r, m.each);
    r.max = best.id < r.n ? x[best.id] : -INFINITY;
    if (d.params.temperature >= 0 && r.max > -INFINITY &&
        r.max < INFINITY) { /* the same in all threads */
        double sum = 0;
        for (uint32_t i = r.first + threadIdx.x % 32; i < r.end; i += 32)
            if (x[i] == x[i]) sum += (double)expf(x[i] - r.max);
        sum = block_sum(sum, m.each);
        sampled.log_sum = (float)((double)r.max + log(sum));
        bool penalties = d.n_history && d.first_history <= a.n_history &&
                         d.n_history <= a.n_history - d.first_history;
        if (penalties) {
            apply_penalties(x, a.n_cols, d, a.history);
            __syncthreads();
            best = best_of(r, m.each);
            r.max = x[best.id];
        }
        if (r.max > -INFINITY && r.max < INFINITY)
            sampled.token = d.params.temperature > 0 ? sample_row(r, d, m) : (int32_t)best.id;
        __syncthreads();
        if (penalties) undo_penalties(x, a.n_cols, d, a.history);
        __syncthreads();
        if (sampled.token >= 0) sampled.logit = x[sampled.token];
    }
    if (threadIdx.x == 0) a.out[blockIdx.x] = sampled;
}

CUDA_KERNEL(256) update_history(CUDA_ARGS(struct cargs_update_history) a) {
    pdl_launch();
    pdl_wait();
    const cargs_history_update update = a.updates[blockIdx.x];
    cargs_penalty_entry *history = a.history + update.first;
    int32_t token = a.sampled[update.from].token;
    bool found = false;
    for (int32_t i = threadIdx.x; i < update.n; i += blockDim.x) {
        if (history[i].token != token) continue;
        history[i].count++; /* no other entry has this token */
        found = true;
    }
    found = __syncthreads_or(found);
    if (threadIdx.x) return;
    history[update.n].token = found ? -1 : token;
    history[update.n].count = 1;
}

} // namespace

const void *cuda_sample_kernel(void) {
    return (const void *)sample;
}

const void *cuda_update_history_kernel(void) {
    return (const void *)update_history;
}
