/* matcher.c - the state of one text between tokens: a set of frames at the start of the machine's
 * pool.
 *
 * Only grammar_matcher_new allocates. One thread at a time. */
#include "core/base/mem.h"
#include "core/grammar/match/vocab.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_START = 1 << 20 /* units of work to enter the root */ };

struct grammar_matcher {
    grammar *g;
    grammar_vocab *v;
    struct machine m;
    uint32_t n; /* frames of the set, pool[0..n) */
    struct mask_work work;
    struct cache_key key;
};

int grammar_matcher_new(const grammar *g, grammar_vocab *v, grammar_matcher **out, err *e) {
    *out = NULL;
    grammar_matcher *t = mem_new(1, sizeof *t);
    if (!t) return err_no_memory(e);
    t->g = grammar_retain(g);
    t->v = v;
    t->work.mask = mem_new(v->n_words, sizeof *t->work.mask);
    if (!t->work.mask || machine_init(&t->m, g)) {
        grammar_matcher_free(t);
        return err_no_memory(e);
    }
    t->m.limit = MAX_START;
    t->n = machine_start(&t->m);
    t->m.limit = UINT64_MAX;
    if (machine_is_stopped(&t->m)) {
        grammar_matcher_free(t);
        return err_set(
            e, ERR_TOO_LONG,
            "the grammar has too many ways to begin a text; use fewer alternatives at its start");
    }
    *out = t;
    return 0;
}

void grammar_matcher_free(grammar_matcher *t) {
    if (!t) return;
    machine_fini(&t->m);
    free(t->work.mask);
    grammar_release(t->g);
    free(t);
}

void grammar_matcher_budget(grammar_matcher *t, uint64_t units) {
    struct machine *m = &t->m;
    m->limit = units > UINT64_MAX - m->spent ? UINT64_MAX : m->spent + units;
}

bool grammar_matcher_exhausted(const grammar_matcher *t) {
    return t->m.exhausted;
}

uint64_t grammar_matcher_spent(const grammar_matcher *t) {
    return t->m.spent;
}

void grammar_matcher_mask(grammar_matcher *t, uint32_t *mask) {
    struct machine *m = &t->m;
    m->exhausted = false;
    if (m->failed) {
        memset(mask, 0, t->v->n_words * sizeof *mask);
        return;
    }
    bool keep = cache_make_key(m, m->pool, t->n, &t->key);
    if (cache_find(&t->v->cache, keep ? &t->key : NULL, mask)) return;
    mask_compute(m, t->v, &t->work, m->pool, t->n, mask);
    if (keep && !machine_is_stopped(m)) cache_put(&t->v->cache, &t->key, mask);
}

/* Steps the n frames at from by one byte. The new set replaces whatever follows the first set in
 * the pool; the first set stays. */
static uint32_t step_on(grammar_matcher *t, uint32_t from, uint32_t n, uint8_t byte) {
    struct machine *m = &t->m;
    uint32_t first = m->n_pool, size = machine_step(m, m->pool + from, n, byte);
    memmove(m->pool + t->n, m->pool + first, size * sizeof *m->pool);
    m->n_pool = t->n + size;
    return size;
}

bool grammar_matcher_accept(grammar_matcher *t, int32_t token) {
    struct machine *m = &t->m;
    m->exhausted = false;
    if (token < 0 || (uint32_t)token >= t->v->n_vocab || m->failed) return false;
    if (t->v->kinds[token] == GRAMMAR_TOKEN_END) return grammar_matcher_may_end(t);
    const uint8_t *bytes;
    uint32_t n = vocab_token_bytes(t->v, (uint32_t)token, &bytes), from = 0, size = n ? t->n : 0;
    uint32_t frames = m->n_frames;
    for (uint32_t i = 0; i < n && size && !machine_is_stopped(m); i++) {
        size = step_on(t, from, size, bytes[i]);
        from = t->n;
    }
    m->n_pool = t->n;
    if (!size || machine_is_stopped(m)) {
        machine_roll_back(m, frames);
        return false;
    }
    memmove(m->pool, m->pool + t->n, size * sizeof *m->pool);
    t->n = m->n_pool = size;
    if (m->n_frames > MACHINE_MAX_FRAMES / 2) machine_compact(m, m->pool, size);
    return true;
}

bool grammar_matcher_may_end(const grammar_matcher *t) {
    return machine_may_end(t->m.pool, t->n);
}

/* ---- forced bytes ---- */

static bool takes_space(const struct frame *f) {
    return (f->kind == FRAME_ARRAY && f->phase == CONTAINER_COMMA) ||
           (f->kind == FRAME_OBJECT &&
            (f->phase == CONTAINER_COMMA || f->phase == CONTAINER_VALUE));
}

static bool has_frame(const struct frame *set, uint32_t n, const struct frame *f) {
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(&set[i], f, sizeof *f) == 0) return true;
    return false;
}

/* Is the space optional for all n frames at from, so that nothing is lost by writing it? The set
 * after it lies at to. */
static bool is_before_space(const struct machine *m, uint32_t from, uint32_t n, uint32_t to,
                            uint32_t size) {
    bool some = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct frame *f = &m->pool[from + i];
        if (takes_space(f))
            some = true;
        else if (!has_frame(m->pool + to, size, f))
            return false;
    }
    return some;
}

static bool are_strings(const struct frame *set, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (set[i].kind != FRAME_STRING || set[i].phase != STRING_BODY) return false;
    return true;
}

/* The only byte that can follow the n frames at from; -1: there are several or none. An escape is
 * only another spelling of what can be written plainly. */
static int only_byte(struct machine *m, uint32_t from, uint32_t n) {
    uint32_t pool = m->n_pool, frames = m->n_frames;
    int only = -1, n_live = 0, escape = are_strings(m->pool + from, n) ? '\\' : -1;
    bool space = machine_step(m, m->pool + from, n, ' ') &&
                 is_before_space(m, from, n, pool, m->n_pool - pool);
    for (int i = 0; i <= 256 && !space && n_live < 2 && !machine_is_stopped(m); i++) {
        int b = i < 256 ? i : escape;
        if (i == 256 ? b < 0 || n_live : b == escape) continue;
        m->n_pool = pool;
        machine_roll_back(m, frames);
        if (!machine_step(m, m->pool + from, n, (uint8_t)b)) continue;
        n_live++;
        only = b;
    }
    m->n_pool = pool;
    machine_roll_back(m, frames);
    if (space) return ' ';
    return n_live == 1 ? only : -1;
}

size_t grammar_matcher_forced(grammar_matcher *t, char *bytes, size_t max) {
    struct machine *m = &t->m;
    uint32_t from = 0, size = t->n, frames = m->n_frames;
    size_t n = 0;
    m->exhausted = false;
    while (n < max && size && !machine_is_stopped(m) && !machine_may_end(m->pool + from, size)) {
        int byte = only_byte(m, from, size);
        if (byte < 0 || machine_is_stopped(m)) break;
        bytes[n++] = (char)byte;
        size = step_on(t, from, size, (uint8_t)byte);
        from = t->n;
    }
    m->n_pool = t->n;
    machine_roll_back(m, frames);
    return machine_is_stopped(m) ? 0 : n;
}
