/* sizing.c - checks the configuration against the model and sizes the KV cache and the state blocks
 * of recurrent layers. Pure, except that
 * it reads how much memory is available: the machine's, or that of a device with a limit of its
 * own. Runs in engine_open. */
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/engine/engine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

/* An automatically sized cache holds the larger of AUTO_CONTEXTS full contexts and AUTO_TOKENS,
 * within AUTO_BYTES and a quarter of the available memory (or half of what a device may hold beside
 * the weights): a daemon that starts fast and leaves memory to others; more must be configured. A
 * GPU with memory of its own is used fully: the cache takes what the limit leaves beside weights
 * and step buffers, up to max_sequences full contexts; if n later models will be opened on it, one
 * part in 1 + n of that. memory_bytes bounds all of this; whatever it leaves, the cache then holds
 * one full context if it can, so that a model's context does not depend on its neighbours.
 *
 * Windowed layers have blocks of their own: twice as many as running sequences and a step use at
 * most, so that the others keep what later prompts need, or one for AUTO_WINDOW_SHARE blocks of the
 * cache if that is more; never more than the cache has.
 *
 * State blocks are sized first, and the cache in the memory that they leave. Automatically there
 * are AUTO_STATES for each of max_sequences, of which running sequences use one or two and the
 * others keep prefixes, within half of what an automatically sized cache may take, and
 * AUTO_STATE_BYTES where AUTO_BYTES bounds that. */
enum { AUTO_CONTEXTS = 8, AUTO_TOKENS = 65536, AUTO_STATES = 4, MIN_STATES = 2 };
/* Of blocks of the cache to one window block, if more than twice the least number are at hand. */
enum { AUTO_WINDOW_SHARE = 8 };
#define AUTO_BYTES       (UINT64_C(8) << 30)
#define AUTO_STATE_BYTES (UINT64_C(4) << 30)

/* What the engine cannot work without. The user's bounds are those of daemon/config.c. */
int engine_config_check(const struct engine_config *c, err *e) {
    const struct {
        const char *field;
        uint32_t value;
    } counts[] = {
        {"max_batch_tokens", c->max_batch_tokens},
        {"max_sequences", c->max_sequences},
        {"max_queue", c->max_queue},
        {"stream_events", c->stream_events},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (!counts[i].value)
            return err_set_param(e, ERR_INVALID, counts[i].field, "%s must be at least 1",
                                 counts[i].field);
    if (c->block_tokens != 16 && c->block_tokens != 32)
        return err_set_param(e, ERR_INVALID, "block_tokens", "block_tokens = %u: must be 16 or 32",
                             c->block_tokens);
    if (c->state_blocks && (c->state_blocks < MIN_STATES || c->state_blocks > INT32_MAX))
        return err_set_param(e, ERR_INVALID, "state_blocks",
                             "state_blocks = %llu: must be 0 or 2 to 2^31 - 1",
                             (unsigned long long)c->state_blocks);
    if (c->state_checkpoint_tokens % c->block_tokens)
        return err_set_param(e, ERR_INVALID, "state_checkpoint_tokens",
                             "state_checkpoint_tokens = %u: must be a multiple of block_tokens, "
                             "which is %u",
                             c->state_checkpoint_tokens, c->block_tokens);
    if (c->kv_type != QTYPE_F16 && c->kv_type != QTYPE_BF16 && c->kv_type != QTYPE_Q8_0 &&
        c->kv_type != QTYPE_F32)
        return err_set_param(e, ERR_INVALID, "kv_type", "kv_type must be f16, bf16, q8_0 or f32");
    return 0;
}

#ifdef __APPLE__
/* macOS has no cheap figure of available memory: half of all memory is used instead. */
static uint64_t available_bytes(void) {
    uint64_t total = 0;
    size_t n = sizeof total;
    return sysctlbyname("hw.memsize", &total, &n, NULL, 0) ? 0 : total / 2;
}
#else
/* The number after `key` in a file of "key value" lines; the file's first number if key is NULL.
 * 0: there is none. */
static uint64_t read_file_number(const char *path, const char *key) {
    char line[256];
    uint64_t value = 0;
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    while (!value && fgets(line, sizeof line, f)) {
        size_t n = key ? strlen(key) : 0;
        if (!key || !strncmp(line, key, n)) value = strtoull(line + n, NULL, 10);
    }
    fclose(f);
    return value;
}

static uint64_t available_bytes(void) {
    uint64_t bytes = read_file_number("/proc/meminfo", "MemAvailable:") * 1024;
    uint64_t limit = read_file_number("/sys/fs/cgroup/memory.max", NULL); /* "max" reads as 0 */
    uint64_t used = read_file_number("/sys/fs/cgroup/memory.current", NULL);
    uint64_t cached = read_file_number("/sys/fs/cgroup/memory.stat", "inactive_file ");
    used -= cached < used ? cached : used;
    if (limit && (limit < used || limit - used < bytes)) bytes = limit < used ? 0 : limit - used;
    return bytes;
}
#endif

/* Available memory after the weights, which are still to be loaded, have taken memory of their own.
 * 0: unknown. */
static uint64_t available_beside(const struct model_hparams *hp, const backend *be) {
    uint64_t bytes = available_bytes();
    uint64_t weights = hp->weight_bytes / backend_n_ranks(be) * backend_n_here(be);
    return bytes > weights ? bytes - weights : bytes > 0;
}

/* The memory for the cache. */
struct memory {
    uint64_t available; /* beside the weights; 0: unknown */
    uint64_t share;     /* an automatically sized cache takes 1 / share of it */
    const char *why;    /* that share, for messages */
    const char *whose;
    bool own; /* a GPU's own */
};

static unsigned long long mib(uint64_t bytes) {
    return (unsigned long long)(bytes >> 20);
}

/* Free memory of a GPU with its own, within its limit, as if the backend's scratch were not there,
 * which is a part of the step buffers (engine.c); in a group, of the rank with least. */
static uint64_t own_memory_left(backend *be, uint64_t *limit, uint64_t *used, uint64_t *unused) {
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < backend_n_local(be); r++) {
        const backend *one = backend_peer(be, r);
        uint64_t l = backend_memory_limit(one), u = backend_allocated_bytes(one);
        uint64_t own = backend_scratch_bytes(one), f = backend_memory_free(one) + own;
        u = u > own ? u - own : 0;
        uint64_t left = l > u ? l - u : 0;
        if (f < left) left = f;
        if (left >= least) continue;
        least = left, *limit = l, *used = u, *unused = f;
    }
    return least;
}

static int find_own_memory(const struct engine_config *c, backend *be,
                           const struct model_memory *need, struct memory *out, err *e) {
    uint64_t limit = 0, used = 0, unused = 0, all;
    uint64_t left = own_memory_left(be, &limit, &used, &unused);
    bool by_limit = limit <= used || limit - used <= unused;
    if (!mem_add(need->weights, need->steps, &all)) all = UINT64_MAX;
    if (left <= all)
        return err_set_param(
            e, ERR_NOMEM, "backend",
            "out of GPU memory: %llu MiB of weights, %llu MiB of step buffers and a KV cache are "
            "needed; backend %s may hold %llu MiB, holds %llu MiB, and %llu MiB are free: choose a "
            "smaller model, fewer max_batch_tokens or max_sequences%s",
            mib(need->weights), mib(need->steps), backend_name(be), mib(limit), mib(used),
            mib(unused),
            by_limit ? ", or a higher memory_fraction" : ", or end other processes there");
    *out = (struct memory){left - all, 1 + (uint64_t)c->n_later,
                           by_limit ? "what memory_fraction leaves beside the model"
                                    : "what is free on the GPU beside the model",
                           "the GPU's memory", true};
    return 0;
}

/* Weights and step buffers on n_ranks ranks; UINT64_MAX: overflow. */
static uint64_t model_bytes(const struct model_memory *need, const struct model_hparams *hp,
                            uint32_t n_ranks) {
    uint64_t one, all;
    if (!need->weights) return hp->weight_bytes; /* it was not measured */
    return mem_add(need->weights, need->steps, &one) && mem_mul(one, n_ranks, &all) ? all
                                                                                    : UINT64_MAX;
}

/* Takes memory_bytes into account. */
static int bound_memory(const struct engine_config *c, const struct model_hparams *hp, backend *be,
                        const struct model_memory *need, struct memory *m, err *e) {
    const uint32_t n_ranks = backend_n_here(be);
    if (!c->memory_bytes) return 0;
    uint64_t bytes = model_bytes(need, hp, m->own ? 1 : n_ranks);
    uint64_t most = c->memory_bytes / (m->own ? n_ranks : 1);
    if (most <= bytes)
        return err_set_param(e, ERR_NOMEM, "memory_bytes",
                             "the model needs %llu MiB of weights and step buffers, and a KV "
                             "cache; %llu MiB of memory_bytes are there for it",
                             mib(bytes), mib(most));
    if (m->available && m->available <= most - bytes) return 0;
    m->available = most - bytes;
    m->why = m->own ? "what memory_bytes leaves beside the model"
                    : "a quarter of what memory_bytes leaves beside the model";
    m->whose = "memory_bytes beside the model";
    return 0;
}

/* Memory of all ranks of a group on this machine; of GPUs with their own, of the rank with least.
 */
static int find_memory(const struct engine_config *c, const struct model_hparams *hp, backend *be,
                       const struct model_memory *need, struct memory *out, err *e) {
    uint64_t limit = 0, used = 0;
    for (uint32_t r = 0; r < backend_n_local(be); r++) {
        limit += backend_memory_limit(backend_peer(be, r));
        used += backend_allocated_bytes(backend_peer(be, r));
    }
    *out = (struct memory){available_beside(hp, be), 4, "a quarter of the available memory",
                           "memory", false};
    if (backend_memory_free(be)) return find_own_memory(c, be, need, out, e);
    if (!limit) return 0;
    uint64_t left = limit > used ? limit - used : 0;
    if (left <= hp->weight_bytes)
        return err_set_param(e, ERR_NOMEM, "backend",
                             "the model's weights take %llu MiB; backend %s may hold %llu MiB, of "
                             "which %llu MiB are in use: choose a smaller model, or backend cpu",
                             (unsigned long long)(hp->weight_bytes >> 20), backend_name(be),
                             (unsigned long long)(limit >> 20), (unsigned long long)(used >> 20));
    *out = (struct memory){left - hp->weight_bytes, 2,
                           "half of the device's memory beside the weights", "the device's memory",
                           false};
    return 0;
}

static uint64_t cap_blocks(uint64_t value, uint64_t limit, const char *why, const char **reason) {
    if (value <= limit) return value;
    *reason = why;
    return limit;
}

/* What blocks of the cache take, together with the window blocks that belong to them. */
struct block_cost {
    uint64_t block, window; /* bytes */
    uint64_t least;         /* window blocks that the engine needs */
    uint64_t n_windows;     /* configured window blocks; 0: sized automatically */
};

static uint64_t window_blocks(const struct block_cost *cost, uint64_t n_blocks) {
    uint64_t n = cost->n_windows, share = n_blocks / AUTO_WINDOW_SHARE;
    if (!cost->window) return 0;
    if (!n) n = cost->least + (cost->least > share ? cost->least : share);
    return n < n_blocks ? n : n_blocks;
}

/* UINT64_MAX: overflow. */
static uint64_t bytes_of(const struct block_cost *cost, uint64_t n_blocks) {
    uint64_t blocks, windows, all;
    return mem_mul(cost->block, n_blocks, &blocks) &&
                   mem_mul(cost->window, window_blocks(cost, n_blocks), &windows) &&
                   mem_add(blocks, windows, &all)
               ? all
               : UINT64_MAX;
}

/* How many blocks fit `bytes`; those of no layer need no memory. */
static uint64_t blocks_in(uint64_t bytes, const struct block_cost *cost) {
    uint64_t low = 0, high = INT32_MAX;
    while (low < high) {
        uint64_t n = high - (high - low) / 2;
        if (bytes_of(cost, n) <= bytes)
            low = n;
        else
            high = n - 1;
    }
    return low;
}

/* Blocks of an automatically sized cache. 0: not even one. */
static uint64_t auto_blocks(const struct engine_config *c, const struct memory *m, uint32_t context,
                            const struct block_cost *cost, const char **reason) {
    uint64_t per_seq = ((uint64_t)context + c->block_tokens - 1) / c->block_tokens;
    uint64_t blocks = AUTO_TOKENS / c->block_tokens;
    uint64_t most = blocks_in(m->available / m->share, cost);
    if (m->own) {
        *reason = "max_sequences full contexts";
        blocks = cap_blocks(per_seq * c->max_sequences, most, m->why, reason);
        return cap_blocks(blocks, INT32_MAX / c->block_tokens, "2^31 tokens", reason);
    }
    *reason = "64k tokens";
    if (blocks < AUTO_CONTEXTS * per_seq) {
        blocks = AUTO_CONTEXTS * per_seq;
        *reason = "8 full contexts";
    }
    blocks = cap_blocks(blocks, per_seq * c->max_sequences, "max_sequences full contexts", reason);
    blocks = cap_blocks(blocks, blocks_in(AUTO_BYTES, cost), "at most 8 GiB", reason);
    blocks = cap_blocks(blocks, most, m->why, reason);
    if (!c->memory_bytes || blocks >= per_seq) return blocks;
    *reason = "one full context";
    return cap_blocks(per_seq, blocks_in(m->available, cost),
                      "what memory_bytes leaves beside the model", reason);
}

/* Refuses a cache that does not fit, before the out-of-memory killer does. 0 available: unknown. */
static int check_memory(const struct memory *m, uint64_t tokens, uint64_t bytes, err *e) {
    if (!m->available || bytes <= m->available) return 0;
    return err_set_param(e, ERR_NOMEM, "kv_cache_tokens",
                         "kv_cache_tokens = %llu needs %llu MiB, but %llu MiB of %s are "
                         "available: choose fewer tokens",
                         (unsigned long long)tokens, (unsigned long long)(bytes >> 20),
                         (unsigned long long)(m->available >> 20), m->whose);
}

uint32_t engine_context_wanted(const struct engine_config *config, const struct model_hparams *hp) {
    uint32_t wanted = config->context_length;
    if (!wanted || wanted > hp->context_length) wanted = hp->context_length;
    /* In both directions a text is one step. */
    return hp->both_ways && wanted > config->max_batch_tokens ? config->max_batch_tokens : wanted;
}

/* Which K/V layers are windowed, if the window is shorter than the context. */
static void find_windows(const struct engine_config *c, const struct model_hparams *hp,
                         struct engine_size *out) {
    uint32_t at = 0;
    if (!hp->window || hp->window >= engine_context_wanted(c, hp)) return;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        if (!model_layer_stores_kv(hp->layers[i])) continue;
        out->windowed[at] = hp->layers[i] & MODEL_LAYER_WINDOWED;
        if (out->windowed[at++]) out->kc.window = hp->window;
    }
    if (out->kc.window) out->kc.windowed = out->windowed;
}

/* Of models whose layers differ in their heads: those of each of n_ranks ranks. */
static void find_heads(const struct model_hparams *hp, uint32_t n_ranks, struct engine_size *out) {
    uint32_t at = 0;
    if (!hp->window_head_dim && !hp->n_window_kv_heads) return;
    for (uint32_t i = 0; i < hp->n_layers; i++)
        if (model_layer_stores_kv(hp->layers[i]))
            out->heads[at++] = (struct kv_heads){model_n_kv_heads(hp, hp->layers[i]) / n_ranks,
                                                 model_head_dim(hp, hp->layers[i])};
    out->kc.heads = out->heads;
}

/* Can the device keep K/V of such heads? */
static int check_heads(const struct kv_config *kc, const struct kv_heads *heads, backend *be,
                       err *e) {
    if (kc->kv_type == QTYPE_Q8_0 && heads->head_dim % Q_ELEMS)
        return err_set_param(e, ERR_INVALID, "kv_type",
                             "kv_type q8_0 requires heads of a multiple of %d dimensions; this "
                             "model's have %u: choose f16 or bf16",
                             Q_ELEMS, heads->head_dim);
    const struct backend_kv cache = {.kv_type = kc->kv_type,
                                     .n_kv_heads = heads->n_kv_heads,
                                     .block_tokens = kc->block_tokens,
                                     .head_dim = heads->head_dim,
                                     .v_dim = kc->v_dim};
    if (backend_kv_fits(be, &cache)) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, "backend",
                         "backend %s has no kernels for a KV cache in blocks of %u tokens with "
                         "%s of %u dimensions: choose backend cpu",
                         backend_name(be), cache.block_tokens,
                         cache.v_dim ? "latent rows (multi-head latent attention)" : "heads",
                         cache.head_dim);
}

/* The form of the KV cache and of state blocks, without their numbers. */
static int find_form(const struct engine_config *c, const struct model_hparams *hp, backend *be,
                     struct engine_size *out, err *e) {
    const uint32_t n_ranks = backend_n_ranks(be);
    struct kv_config *kc = &out->kc;
    *kc = (struct kv_config){
        .n_layers = hp->n_kv_layers,
        .n_kv_heads = hp->n_kv_heads / n_ranks,
        .head_dim = hp->head_dim,
        .v_dim = hp->mla.kv_rank,
        .kv_type = c->kv_type,
        .n_state_layers = hp->recurrent.n_layers,
        .block_tokens = c->block_tokens,
        .max_seqs = c->max_sequences,
        .prefix_cache = c->prefix_cache && !hp->both_ways,
    };
    find_windows(c, hp, out);
    find_heads(hp, n_ranks, out);
    kc->state = model_state_shape(hp, n_ranks, c->block_tokens);
    if (!kc->n_layers && kc->n_state_layers) return 0;
    const struct kv_heads all = {kc->n_kv_heads, kc->head_dim};
    for (uint32_t i = 0; i < kc->n_layers; i++) {
        int rc = check_heads(kc, kc->heads ? &kc->heads[i] : &all, be, e);
        if (rc || !kc->heads) return rc;
    }
    return 0;
}

/* Bytes of a block of K/V, or of state, on all ranks of this machine; on GPUs with their own
 * memory, on one: heads are shared out evenly. */
static int find_block_bytes(uint64_t one, const struct memory *m, backend *be, const char *what,
                            uint64_t *out, err *e) {
    if (one == UINT64_MAX || !mem_mul(one, m->own ? 1 : backend_n_here(be), out))
        return err_set(e, ERR_INVALID, "the model's %s cannot be cached as configured", what);
    return 0;
}

/* Numbers the state blocks and takes their memory off m. */
static int size_states(const struct engine_config *c, struct memory *m, backend *be,
                       struct engine_size *out, err *e) {
    struct kv_config *kc = &out->kc;
    uint64_t one, bytes, n = c->state_blocks;
    out->state_reason = NULL;
    if (!kc->n_state_layers) return 0;
    int rc = find_block_bytes(kv_state_bytes(kc), m, be, "recurrent state", &one, e);
    if (rc) return rc;
    out->state_reason = "state_blocks";
    if (!n) {
        out->state_reason = "4 for each of max_sequences";
        n = cap_blocks((uint64_t)AUTO_STATES * c->max_sequences, m->available / m->share / 2 / one,
                       "half of what an automatically sized KV cache may take", &out->state_reason);
        if (!m->own) n = cap_blocks(n, AUTO_STATE_BYTES / one, "at most 4 GiB", &out->state_reason);
        if (n < MIN_STATES)
            return err_set_param(
                e, ERR_NOMEM, "state_blocks",
                "%llu MiB of %s are available, whose share for state does not hold "
                "two state blocks (%llu bytes each): set state_blocks, or choose a "
                "smaller model",
                mib(m->available), m->whose, (unsigned long long)one);
    }
    if (!mem_mul(n, one, &bytes)) bytes = UINT64_MAX;
    if (m->available && bytes > m->available)
        return err_set_param(
            e, ERR_NOMEM, "state_blocks",
            "state_blocks = %llu needs %llu MiB (%llu bytes each), but %llu MiB of "
            "%s are available: choose fewer blocks",
            (unsigned long long)n, mib(bytes), (unsigned long long)one, mib(m->available),
            m->whose);
    kc->state.n_blocks = (uint32_t)n;
    if (m->available)
        m->available = bytes < m->available ? m->available - bytes : 1; /* 0: unknown */
    return 0;
}

static int size_within(const struct engine_config *config, const struct model_hparams *hp,
                       backend *be, struct memory memory, struct engine_size *out, err *e) {
    struct kv_config *kc = &out->kc;
    struct block_cost cost = {.n_windows = config->window_blocks};
    int rc = bound_memory(config, hp, be, &out->memory, &memory, e);
    if (rc) return rc;
    uint32_t context = engine_context_wanted(config, hp);
    if (context < 2)
        return err_set_param(e, ERR_INVALID, "context_length",
                             "context_length must be at least 2 tokens");
    rc = find_form(config, hp, be, out, e);
    if (!rc) rc = find_block_bytes(kv_block_bytes(kc), &memory, be, "K/V", &cost.block, e);
    if (!rc) rc = find_block_bytes(kv_window_bytes(kc), &memory, be, "K/V", &cost.window, e);
    if (!rc && !cost.block && !cost.window && !kc->n_state_layers)
        rc = err_set(e, ERR_INVALID, "the model has no layers whose K/V or state could be cached");
    if (!rc) rc = size_states(config, &memory, be, out, e);
    if (rc) return rc;
    cost.least = kv_window_least(kc->window, config->block_tokens, config->max_sequences,
                                 config->max_batch_tokens);
    out->reason = "kv_cache_tokens";
    uint64_t blocks = config->kv_cache_tokens
                          ? config->kv_cache_tokens / config->block_tokens
                          : auto_blocks(config, &memory, context, &cost, &out->reason);
    if (!blocks && config->kv_cache_tokens)
        return err_set_param(e, ERR_INVALID, "kv_cache_tokens",
                             "kv_cache_tokens = %llu is less than one block of %u tokens",
                             (unsigned long long)config->kv_cache_tokens, config->block_tokens);
    if (!blocks)
        return err_set_param(e, ERR_NOMEM, "kv_cache_tokens",
                             "%s does not hold one block of the KV cache (%llu bytes): set "
                             "kv_cache_tokens",
                             memory.why, (unsigned long long)bytes_of(&cost, 1));
    if (blocks > INT32_MAX / config->block_tokens) /* slots are int32 */
        return err_set_param(e, ERR_INVALID, "kv_cache_tokens",
                             "kv_cache_tokens must be below 2^31");
    uint64_t capacity = blocks * config->block_tokens, windows = window_blocks(&cost, blocks);
    if (windows < blocks && windows < cost.least && cost.window)
        return err_set_param(e, ERR_INVALID, "window_blocks",
                             "window_blocks = %llu: this model's window of %u tokens, "
                             "max_sequences and max_batch_tokens need at least %llu, or 0",
                             (unsigned long long)config->window_blocks, kc->window,
                             (unsigned long long)(cost.least < blocks ? cost.least : blocks));
    if (config->kv_cache_tokens &&
        (rc = check_memory(&memory, config->kv_cache_tokens, bytes_of(&cost, blocks), e)))
        return rc;
    if (capacity < context) context = (uint32_t)capacity;
    kc->n_blocks = (uint32_t)blocks;
    kc->n_window_blocks = (uint32_t)windows;
    kc->max_blocks_per_seq = (context + config->block_tokens - 1) / config->block_tokens;
    out->context_length = context;
    return 0;
}

int engine_size(const struct engine_config *config, const struct model_hparams *hp, backend *be,
                struct engine_size *out, err *e) {
    struct memory memory;
    int rc = find_memory(config, hp, be, &out->memory, &memory, e);
    return rc ? rc : size_within(config, hp, be, memory, out, e);
}

uint64_t engine_device_left(backend *be, uint64_t *limit) {
    uint64_t used, unused, left = UINT64_MAX;
    *limit = UINT64_MAX;
    if (backend_memory_free(be)) return own_memory_left(be, limit, &used, &unused);
    for (uint32_t r = 0; r < backend_n_local(be); r++) {
        uint64_t l = backend_memory_limit(backend_peer(be, r));
        uint64_t u = backend_allocated_bytes(backend_peer(be, r)), one = l > u ? l - u : 0;
        if (!l) continue;
        *limit = r ? *limit + l : l;
        left = r ? left + one : one;
    }
    return left;
}

int engine_size_alone(const struct engine_config *config, const struct model_hparams *hp,
                      backend *be, struct engine_size *out, err *e) {
    uint64_t limit, bytes;
    struct memory all = {INT64_MAX, 4, "a quarter of the available memory", "memory", false};
    engine_device_left(be, &limit);
    if (limit != UINT64_MAX) {
        bool own = backend_memory_free(be) != 0;
        bytes = model_bytes(&out->memory, hp, own ? 1 : backend_n_here(be));
        if (limit <= bytes)
            return err_set_param(e, ERR_NOMEM, "backend",
                                 "the model needs %llu MiB of weights and step buffers, and a KV "
                                 "cache; backend %s may hold %llu MiB",
                                 mib(bytes), backend_name(be), mib(limit));
        all =
            own ? (struct memory){limit - bytes, 1, "what memory_fraction leaves beside the model",
                                  "the GPU's memory", true}
                : (struct memory){limit - bytes, 2,
                                  "half of the device's memory beside the weights",
                                  "the device's memory", false};
    }
    return size_within(config, hp, be, all, out, e);
}

uint64_t engine_size_bytes(const struct engine_size *size, uint32_t n_ranks, uint64_t n_blocks) {
    const struct kv_config *kc = &size->kc;
    const uint64_t n_windows = kc->n_window_blocks < n_blocks ? kc->n_window_blocks : n_blocks;
    uint64_t sum, part, all;
    bool ok = mem_add(size->memory.weights, size->memory.steps, &sum) &&
              mem_mul(kv_block_bytes(kc), n_blocks, &part) && mem_add(sum, part, &sum) &&
              mem_mul(kv_window_bytes(kc), n_windows, &part) && mem_add(sum, part, &sum) &&
              mem_mul(kv_state_bytes(kc), kc->state.n_blocks, &part) && mem_add(sum, part, &sum) &&
              mem_mul(sum, n_ranks, &all);
    return ok ? all : UINT64_MAX;
}
