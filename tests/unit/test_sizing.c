/* test_sizing.c - the checks of engine_open before loading, over a fake device: the configuration's
 * numbers, and the cache's size by model, memory and a device's own limit. */
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/engine/engine_int.h"

#include "check.h"
#include "fake_device.h"

static void configuration_is_checked(void) {
    struct engine_config c;
    engine *en;
    err e;
#define REFUSED(field, value, key)                                                                 \
    do {                                                                                           \
        c = base_config();                                                                         \
        c.field = value;                                                                           \
        CHECK(engine_open(&c, &en, &e) == ERR_INVALID);                                            \
        CHECK_STR(e.param, key);                                                                   \
    } while (0)
    REFUSED(kv_cache_tokens, 15, "kv_cache_tokens");
    REFUSED(kv_cache_tokens, UINT64_MAX, "kv_cache_tokens");
    REFUSED(block_tokens, 24, "block_tokens");
    REFUSED(block_tokens, 0, "block_tokens");
    REFUSED(kv_type, QTYPE_Q4_0, "kv_type");
    REFUSED(max_batch_tokens, 0, "max_batch_tokens");
    REFUSED(max_sequences, 0, "max_sequences");
    REFUSED(max_queue, 0, "max_queue");
    REFUSED(stream_events, 0, "stream_events");
    REFUSED(context_length, 1, "context_length");
    REFUSED(state_blocks, 1, "state_blocks");
    REFUSED(state_blocks, UINT64_C(1) << 31, "state_blocks");
    REFUSED(state_checkpoint_tokens, 24, "state_checkpoint_tokens");
#undef REFUSED
    c = base_config();
    c.backend = "none";
    CHECK(engine_open(&c, &en, &e) == ERR_UNSUPPORTED);

    c = base_config(); /* the cache may be smaller than the context, or sized automatically */
    c.kv_cache_tokens = 70;
    if (!engine_open(&c, &en, &e)) {
        CHECK(engine_context_length(en) == 64);
        engine_close(en);
    }
    c.kv_cache_tokens = 0;
    c.context_length = 100;
    CHECK(engine_open(&c, &en, &e) == 0);
    struct engine_stats s;
    engine_stats_get(en, &s);
    CHECK(engine_context_length(en) == 100 && s.kv_blocks == 7 * c.max_sequences);
    engine_close(en);
    c.max_sequences = 4096; /* more than the sufficient 64k tokens */
    CHECK(engine_open(&c, &en, &e) == 0);
    engine_stats_get(en, &s);
    CHECK(s.kv_blocks == 65536 / 16);
    engine_close(en);
}

static int size_of(const struct engine_config *c, const struct model_hparams *hp,
                   struct engine_size *out, err *e) {
    static backend device;
    err_clear(e);
    return engine_size(c, hp, &device, out, e);
}

/* Sizes follow from the model and the memory; an impossible cache is refused with a message. */
static void cache_is_sized(void) {
    struct engine_config c = base_config();
    struct model_hparams hp = {
        .n_layers = 1, .n_kv_layers = 1, .n_kv_heads = 1, .head_dim = 16, .context_length = 131072};
    struct engine_size size;
    err e;
    CHECK(size_of(&c, &hp, &size, &e) == 0);
    CHECK(size.kc.n_blocks == 256 && size.context_length == 4096);
    CHECK_STR(size.reason, "kv_cache_tokens");
    c.kv_cache_tokens = 0; /* 64 bytes a token: 64 MiB */
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    CHECK(size.kc.n_blocks == 8 * 131072 / 16 && size.context_length == 131072);
    CHECK_STR(size.reason, "8 full contexts");
    hp.n_kv_layers = 64; /* 8 MiB a token: 512 TiB of them */
    hp.n_kv_heads = 128;
    hp.head_dim = 256;
    c.kv_cache_tokens = UINT64_C(1) << 26;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    CHECK_STR(e.param, "kv_cache_tokens");
    CHECK(strstr(e.msg, "67108864 needs 536870912 MiB"));
}

/* Three of four layers have a window: their blocks are as many as running sequences need and as
 * many again, which leaves memory for more tokens in the other layers. */
static void windows_are_sized(void) {
    struct engine_config c = base_config();
    struct model_hparams hp = {.n_layers = 16,
                               .n_kv_layers = 16,
                               .n_kv_heads = 8,
                               .head_dim = 128,
                               .context_length = 131072,
                               .window = 512,
                               .weight_bytes = UINT64_C(5) << 30};
    struct engine_size size;
    err e;
    for (uint32_t i = 0; i < hp.n_layers; i++)
        hp.layers[i] = i % 4 == 3 ? 0 : MODEL_LAYER_WINDOWED;
    c.max_sequences = 8, c.max_batch_tokens = 512;
    const uint64_t least = 8 * (512 / 16 + 4) + 512 / 16, layer = 16 * 4096;
    c.kv_cache_tokens = 32768;
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    CHECK(size.kc.window == 512 && size.kc.n_blocks == 2048 && !size.windowed[3]);
    CHECK(size.kc.n_window_blocks == 2 * least && size.windowed[0] && size.windowed[14]);
    CHECK(kv_block_bytes(&size.kc) == 4 * layer && kv_window_bytes(&size.kc) == 12 * layer);
    c.kv_cache_tokens = 2048; /* never more than the cache */
    CHECK(size_of(&c, &hp, &size, &e) == 0 && size.kc.n_window_blocks == 128);
    c.kv_cache_tokens = 32768, c.window_blocks = least;
    CHECK(size_of(&c, &hp, &size, &e) == 0 && size.kc.n_window_blocks == least);
    c.window_blocks = least - 1;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_INVALID);
    CHECK_STR(e.param, "window_blocks");
    c.kv_cache_tokens = 8 * 16; /* as many as the cache has are enough */
    c.window_blocks = 4;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_INVALID && strstr(e.msg, "need at least 8, or 0"));
    c.window_blocks = 8;
    CHECK(size_of(&c, &hp, &size, &e) == 0 && size.kc.n_window_blocks == 8);
    c.kv_cache_tokens = 0, c.window_blocks = 0; /* within 1 GiB */
    fake_memory_limit = UINT64_C(8) << 30, fake_allocated = UINT64_C(1) << 30;
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    uint64_t n = size.kc.n_blocks, windows = least + (n / 8 > least ? n / 8 : least);
    CHECK(size.kc.n_window_blocks == windows);
    CHECK(4 * layer * n + 12 * layer * windows <= UINT64_C(1) << 30);
    CHECK(4 * layer * (n + 2) + 12 * layer * (windows + 1) > UINT64_C(1) << 30);
    fake_memory_limit = fake_allocated = 0;
    hp.window = 131072; /* as long as the context: one pool */
    CHECK(size_of(&c, &hp, &size, &e) == 0 && !size.kc.window && !size.kc.n_window_blocks);
}

/* A device's own limit replaces the machine's memory: weights and other allocations are
 * subtracted. */
static void a_device_has_its_own_limit(void) {
    struct engine_config c = base_config();
    struct model_hparams hp = {.n_layers = 16,
                               .n_kv_layers = 16,
                               .n_kv_heads = 8,
                               .head_dim = 128,
                               .context_length = 131072,
                               .weight_bytes = UINT64_C(5) << 30};
    struct engine_size size; /* 64 KiB a token */
    err e;
    c.kv_cache_tokens = 0;
    fake_memory_limit = UINT64_C(8) << 30, fake_allocated = UINT64_C(1) << 30;
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    CHECK((uint64_t)size.kc.n_blocks * size.kc.block_tokens == (UINT64_C(1) << 30) >> 16);
    CHECK_STR(size.reason, "half of the device's memory beside the weights");
    fake_memory_limit = UINT64_C(1) << 50; /* above the machine's rule */
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    CHECK((uint64_t)size.kc.n_blocks * size.kc.block_tokens == (UINT64_C(8) << 30) >> 16);
    CHECK_STR(size.reason, "at most 8 GiB");
    fake_memory_limit = UINT64_C(8) << 30;
    c.kv_cache_tokens = 32768; /* 2 GiB of 2 */
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    c.kv_cache_tokens = 32768 + 16;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    CHECK_STR(e.param, "kv_cache_tokens");
    CHECK_MSG(strstr(e.msg, "2048 MiB of the device's memory"), "%s", e.msg);
    hp.weight_bytes = UINT64_C(7) << 30;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    CHECK_STR(e.param, "backend");
    CHECK_MSG(strstr(e.msg, "7168 MiB") && strstr(e.msg, "8192 MiB") && strstr(e.msg, "1024 MiB"),
              "%s", e.msg);
    fake_memory_limit = fake_allocated = 0;
    hp.head_dim = 33; /* the fake device has no kernels for it */
    CHECK(size_of(&c, &hp, &size, &e) == ERR_UNSUPPORTED);
    CHECK_STR(e.param, "backend");
}

/* A GPU with its own memory is filled: the cache gets the rest of its limit, or of its free
 * memory. */
static void a_gpu_is_filled(void) {
    const uint64_t gib = UINT64_C(1) << 30;
    struct engine_config c = base_config();
    struct model_hparams hp = {.n_layers = 16,
                               .n_kv_layers = 16,
                               .n_kv_heads = 8,
                               .head_dim = 128,
                               .context_length = 131072};
    struct engine_size size = {.memory = {5 * gib, gib}}; /* 64 KiB a token */
    err e;
    c.kv_cache_tokens = 0, c.max_sequences = 64;
    fake_memory_limit = 80 * gib, fake_allocated = gib, fake_memory_free = 90 * gib;
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    CHECK((uint64_t)size.kc.n_blocks * size.kc.block_tokens == 73 * gib >> 16);
    CHECK_STR(size.reason, "what memory_fraction leaves beside the model");
    c.n_later = 1;
    CHECK(size_of(&c, &hp, &size, &e) == 0);
    CHECK(size.kc.n_blocks == (73 * gib >> 16) / 16 / 2);
    c.n_later = 0, fake_memory_free = 10 * gib;
    CHECK(size_of(&c, &hp, &size, &e) == 0);
    CHECK((uint64_t)size.kc.n_blocks * size.kc.block_tokens == 4 * gib >> 16);
    CHECK_STR(size.reason, "what is free on the GPU beside the model");
    fake_memory_free = 90 * gib, c.max_sequences = 2; /* 16 GiB */
    CHECK(size_of(&c, &hp, &size, &e) == 0);
    CHECK(size.kc.n_blocks == 2 * 131072 / 16);
    CHECK_STR(size.reason, "max_sequences full contexts");
    c.kv_cache_tokens = (73 * gib >> 16) + 16;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    CHECK_MSG(strstr(e.msg, "74752 MiB of the GPU's memory"), "%s", e.msg);
    c.kv_cache_tokens = 0, size.memory.weights = 78 * gib;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    CHECK_MSG(strstr(e.msg, "79872 MiB") && strstr(e.msg, "1024 MiB of step buffers") &&
                  strstr(e.msg, "81920 MiB") && strstr(e.msg, "92160 MiB are free") &&
                  strstr(e.msg, "a higher memory_fraction"),
              "%s", e.msg);
    fake_memory_free = 70 * gib;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    CHECK_MSG(strstr(e.msg, "end other processes there"), "%s", e.msg);
    fake_memory_limit = fake_allocated = fake_memory_free = 0;
    engine *en;
    c = base_config();
    c.memory_fraction = 0.5;
    CHECK(engine_open(&c, &en, &e) == ERR_INVALID);
    CHECK_STR(e.param, "memory_fraction");
}

/* State blocks are sized first; an automatically sized cache takes what they leave. */
static void states_are_sized(void) {
    const uint64_t gib = UINT64_C(1) << 30;
    struct engine_config c = base_config();
    /* 16 KiB of K/V a token; a state block is 24 layers of 2,689,024 bytes, 61.55 MiB. */
    struct model_hparams hp = {.n_layers = 32,
                               .n_kv_layers = 8,
                               .n_kv_heads = 2,
                               .head_dim = 256,
                               .context_length = 131072,
                               .recurrent = {.n_layers = 24,
                                             .n_taps = 4,
                                             .n_k_heads = 16,
                                             .n_v_heads = 32,
                                             .k_dim = 128,
                                             .v_dim = 128,
                                             .tiled = true}};
    struct engine_size size = {.memory = {5 * gib, gib}};
    const uint64_t block = 24 * UINT64_C(2689024);
    err e;
    c.kv_cache_tokens = 0, c.state_blocks = 0, c.max_sequences = 16;
    fake_memory_limit = 80 * gib, fake_allocated = gib, fake_memory_free = 90 * gib;
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    CHECK(kv_state_bytes(&size.kc) == block && size.kc.state.chunk == 16);
    CHECK(size.kc.n_layers == 8 && size.kc.n_state_layers == 24);
    CHECK(size.kc.state.n_blocks == 64 && size.kc.n_blocks == 16 * 131072 / 16);
    CHECK_STR(size.state_reason, "4 for each of max_sequences");
    c.max_sequences = 1024; /* more than half of the 73 GiB for states: the cache has the rest */
    CHECK(size_of(&c, &hp, &size, &e) == 0);
    CHECK(size.kc.state.n_blocks == 73 * gib / 2 / block);
    CHECK(size.kc.n_blocks == (73 * gib - size.kc.state.n_blocks * block) / (16 * 16384));
    CHECK_STR(size.state_reason, "half of what an automatically sized KV cache may take");
    c.state_blocks = 1000; /* as configured, though the cache gets less than half */
    CHECK(size_of(&c, &hp, &size, &e) == 0);
    CHECK(size.kc.state.n_blocks == 1000);
    CHECK(size.kc.n_blocks == (73 * gib - 1000 * block) / (16 * 16384));
    CHECK_STR(size.state_reason, "state_blocks");
    c.kv_cache_tokens = (73 * gib - 1000 * block) / 16384 + 16;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    CHECK_STR(e.param, "kv_cache_tokens");
    c.state_blocks = 73 * gib / block + 1;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    CHECK_STR(e.param, "state_blocks");
    CHECK_MSG(strstr(e.msg, "state_blocks = 1215 needs") && strstr(e.msg, "74752 MiB of the GPU's"),
              "%s", e.msg);
    c.state_blocks = 0, c.kv_cache_tokens = 0; /* not even two */
    fake_memory_limit = 7 * gib + 2 * block;
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    CHECK_STR(e.param, "state_blocks");

    fake_memory_limit = UINT64_C(1) << 50, fake_memory_free = fake_allocated = 0;
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    CHECK(size.kc.state.n_blocks == 4 * gib / block);
    CHECK_STR(size.state_reason, "at most 4 GiB");
    hp.n_kv_layers = 0; /* no attention at all: block tables keep the books */
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    CHECK(size.kc.n_blocks == 8 * 131072 / 16 && kv_block_bytes(&size.kc) == 0);
    fake_memory_limit = 0;
}

/* A model without attention layers runs on states alone. */
static void no_attention_layers(void) {
    const struct kv_config kc = {.be = (backend *)&fake_errors,
                                 .n_blocks = 8,
                                 .block_tokens = 16,
                                 .max_seqs = 2,
                                 .max_blocks_per_seq = 4,
                                 .prefix_cache = true,
                                 .n_state_layers = 3,
                                 .state = {.chunk = 16,
                                           .n_blocks = 4,
                                           .n_taps = 4,
                                           .n_k_heads = 1,
                                           .n_v_heads = 2,
                                           .k_dim = 16,
                                           .v_dim = 16}};
    kv *c = NULL;
    err e;
    CHECK(kv_open(&kc, &c, &e) == 0 && kv_states(c)[2].n_blocks == 4);
    CHECK(kv_states(c)[2].blocks->bytes == 4 * kv_state_bytes(&kc) / 3);
    kv_close(c);
    struct kv_config bad = kc;
    bad.state.k_dim = 17;
    CHECK(kv_open(&bad, &c, &e) == ERR_INVALID && kv_state_bytes(&bad) == UINT64_MAX);
    bad = kc, bad.state.n_blocks = 1;
    CHECK(kv_open(&bad, &c, &e) == ERR_INVALID);
    bad = kc, bad.state.chunk = 32;
    CHECK(kv_open(&bad, &c, &e) == ERR_INVALID);
}

/* memory_bytes bounds weights, step buffers and cache; a need of one context is met by what it
 * says, whatever else could be had. */
static void memory_is_bounded(void) {
    const uint64_t gib = UINT64_C(1) << 30;
    struct engine_config c = base_config();
    struct model_hparams hp = {.n_layers = 16,
                               .n_kv_layers = 16,
                               .n_kv_heads = 8,
                               .head_dim = 128,
                               .context_length = 32768};
    struct engine_size size = {.memory = {gib, gib / 2}}; /* 64 KiB a token: 2 GiB a context */
    static backend device;
    err e;
    c.kv_cache_tokens = 0, c.max_sequences = 8;
    c.memory_bytes = 16 * gib + gib / 2 + gib;
    CHECK_MSG(engine_size_alone(&c, &hp, &device, &size, &e) == 0, "%s", e.msg);
    CHECK((uint64_t)size.kc.n_blocks * size.kc.block_tokens == 4 * gib >> 16);
    CHECK_STR(size.reason, "a quarter of what memory_bytes leaves beside the model");
    CHECK(engine_size_bytes(&size, 1, 0) == gib + gib / 2);
    CHECK(engine_size_bytes(&size, 1, size.kc.n_blocks) == 5 * gib + gib / 2);
    const uint64_t least = engine_size_bytes(&size, 1, 32768 / 16);
    CHECK(least == 3 * gib + gib / 2);
    c.memory_bytes = least;
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    CHECK(size.context_length == 32768 && size.kc.n_blocks == 32768 / 16);
    CHECK_STR(size.reason, "one full context");
    c.memory_bytes = 2 * gib; /* a shorter context */
    CHECK(engine_size_alone(&c, &hp, &device, &size, &e) == 0);
    CHECK(size.context_length == (gib / 2) >> 16);
    CHECK(engine_size_bytes(&size, 1, size.kc.n_blocks) <= 2 * gib);
    c.memory_bytes = gib;
    CHECK(engine_size_alone(&c, &hp, &device, &size, &e) == ERR_NOMEM);
    CHECK_STR(e.param, "memory_bytes");
    CHECK_MSG(strstr(e.msg, "1536 MiB") && strstr(e.msg, "1024 MiB of memory_bytes"), "%s", e.msg);
    c.memory_bytes = 0; /* the device's limit counts, not what is left of it */
    fake_memory_limit = 80 * gib, fake_allocated = 79 * gib, fake_memory_free = gib;
    CHECK_MSG(engine_size_alone(&c, &hp, &device, &size, &e) == 0, "%s", e.msg);
    CHECK(size.context_length == 32768);
    uint64_t limit;
    CHECK(engine_device_left(&device, &limit) == gib && limit == 80 * gib);
    CHECK(size_of(&c, &hp, &size, &e) == ERR_NOMEM);
    fake_scratch = 2 * gib; /* it is counted with the model's own buffers, and not twice */
    CHECK(engine_device_left(&device, &limit) == 3 * gib && limit == 80 * gib);
    CHECK_MSG(size_of(&c, &hp, &size, &e) == 0, "%s", e.msg);
    fake_memory_limit = fake_allocated = fake_memory_free = fake_scratch = 0;
    CHECK(engine_device_left(&device, &limit) == UINT64_MAX && limit == UINT64_MAX);
}

/* What engine_need_find says is what the engine then has. */
static void a_need_is_met(void) {
    struct engine_config c = base_config();
    struct engine_need need;
    engine *en;
    err e;
    c.kv_cache_tokens = 0;
    CHECK_MSG(engine_need_find(&c, &need, &e) == 0, "%s", e.msg);
    CHECK(need.least > need.weights + need.steps && need.device_limit == UINT64_MAX);
    c.memory_bytes = need.least;
    c.context_length = need.context_length;
    CHECK_MSG(engine_open(&c, &en, &e) == 0, "%s", e.msg);
    CHECK(engine_bytes(en) == need.least && engine_context_length(en) == need.context_length);
    engine_close(en);
    c.memory_bytes = need.weights;
    CHECK(engine_open(&c, &en, &e) == ERR_NOMEM && engine_need_find(&c, &need, &e) == ERR_NOMEM);
}

int main(void) {
    RUN(configuration_is_checked);
    RUN(cache_is_sized);
    RUN(windows_are_sized);
    RUN(a_device_has_its_own_limit);
    RUN(a_gpu_is_filled);
    RUN(states_are_sized);
    RUN(no_attention_layers);
    RUN(memory_is_bounded);
    RUN(a_need_is_met);
    return check_done();
}
