/* grammar_fuzz.h - shared by the targets of core/grammar. An input is a notation and, after a NUL,
 * parameters: two bytes that number the allocation that fails (0: none; little-endian), two that
 * bound the work of compiling in units of 64 (0: the target's bound), then one choice per mask. */
#ifndef INFERD_TESTS_FUZZ_GRAMMAR_FUZZ_H
#define INFERD_TESTS_FUZZ_GRAMMAR_FUZZ_H

#include "core/base/mem.h"
#include "core/grammar/grammar_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { FUZZ_MAX_BYTES = 1 << 13, FUZZ_WORK = 1 << 18, FUZZ_MASK_WORK = 1 << 16, FUZZ_STEPS = 64 };

struct fuzz_input {
    char *notation; /* with its NUL */
    size_t n;
    const uint8_t *tail; /* the choices */
    size_t n_tail;
    uint32_t fails; /* number of the failing allocation; 0: none */
    struct work work;
};

/* false: not a usable input. */
static bool fuzz_input_init(struct fuzz_input *in, const uint8_t *bytes, size_t n) {
    *in = (struct fuzz_input){.n = n};
    if (n < 1 || n > FUZZ_MAX_BYTES || !(in->notation = calloc(1, n + 1))) return false;
    memcpy(in->notation, bytes, n);
    in->n = strlen(in->notation);
    if (in->n < n) {
        in->tail = bytes + in->n + 1;
        in->n_tail = n - in->n - 1;
    }
    uint32_t head[4] = {0};
    for (size_t i = 0; i < 4 && in->n_tail; i++, in->n_tail--)
        head[i] = *in->tail++;
    in->fails = head[0] | head[1] << 8;
    uint32_t units = (head[2] | head[3] << 8) * 64;
    in->work.left = units ? units : FUZZ_WORK;
    return true;
}

static inline void fuzz_refusal(int rc, const err *e) {
    if (rc >= 0 || e->code != rc || !e->msg[0]) abort();
}

/* ---- walks ---- */

static const char *const fuzz_pieces[] = {
    "{\"", "\"}", "\":",   "\": ",  "\", \"",   "\"]",      "[[",       "]]",
    "1.0", ", 1", "10",    "\\u00", "\\n",      "null",     "true",     "ab",
    "a\"", "{}",  "[]",    "e-1",   "\xc3\xa9", "aaaaaaaa", "\xf0\x9f", "\x98\x80",
    "xy",  "  ",  "ab\":", "root",  "zz\"",     "-0."};
enum { FUZZ_PIECES = sizeof fuzz_pieces / sizeof *fuzz_pieces, FUZZ_VOCAB = 256 + FUZZ_PIECES + 1 };

static void fuzz_token(const void *arg, int32_t id, struct grammar_token *out) {
    static char bytes[256];
    (void)arg;
    *out = (struct grammar_token){.kind = GRAMMAR_TOKEN_TEXT, .n = 1};
    if (id < 256) {
        bytes[id] = (char)id;
        out->bytes = &bytes[id];
    } else if (id < 256 + FUZZ_PIECES) {
        out->bytes = fuzz_pieces[id - 256];
        out->n = strlen(out->bytes);
    } else {
        *out = (struct grammar_token){.kind = GRAMMAR_TOKEN_END};
    }
}

/* Takes tokens that the masks allow: each must be accepted, and there must always be one. Ends when
 * the budget runs out. */
static inline void fuzz_walk(const grammar *g, const struct fuzz_input *in) {
    static grammar_vocab *vocab;
    struct grammar_vocab_config config = {.n_vocab = FUZZ_VOCAB, .token = fuzz_token};
    grammar_matcher *m = NULL;
    uint32_t mask[(FUZZ_VOCAB + 31) / 32];
    err e = {0};
    if (!vocab && grammar_vocab_new(&config, &vocab, &e)) abort();
    int rc = grammar_matcher_new(g, vocab, &m, &e);
    if (rc) fuzz_refusal(rc, &e);
    for (size_t i = 0; m && i < in->n_tail && i < FUZZ_STEPS; i++) {
        uint32_t id = (in->tail[i] * 7u) % FUZZ_VOCAB, tries = 0;
        char forced[16];
        grammar_matcher_budget(m, FUZZ_MASK_WORK);
        grammar_matcher_mask(m, mask);
        if (grammar_matcher_exhausted(m)) break;
        while (!(mask[id / 32] >> id % 32 & 1) && tries++ < FUZZ_VOCAB)
            id = (id + 1) % FUZZ_VOCAB;
        if (tries > FUZZ_VOCAB || id == FUZZ_VOCAB - 1) break; /* failed, or the end */
        grammar_matcher_budget(m, UINT64_MAX);
        if (!grammar_matcher_accept(m, (int32_t)id)) abort();
        grammar_matcher_budget(m, FUZZ_MASK_WORK);
        grammar_matcher_forced(m, forced, sizeof forced);
    }
    grammar_matcher_free(m);
}

/* Builds with the failing allocation and within the work, then walks. */
static inline void fuzz_build(struct fuzz_input *in,
                              grammar_node (*make)(grammar_builder *b, void *arg), void *arg) {
    grammar *g = NULL;
    err e = {0};
    mem_fail_at(in->fails);
    grammar_builder *b = grammar_builder_new();
    if (b) {
        grammar_builder_limit(b, &in->work);
        int rc = grammar_finish(b, make(b, arg), &g, &e);
        if (rc) fuzz_refusal(rc, &e);
        if ((rc == 0) != (g != NULL)) abort();
    }
    grammar_builder_free(b);
    mem_fail_at(0);
    if (g) fuzz_walk(g, in);
    grammar_release(g);
}

/* ---- automata ---- */

/* Acceptance must be reachable from every state except the dead one. */
static inline void fuzz_check_trimmed(const struct dfa *d) {
    uint8_t *good = calloc(d->n_states, 1);
    bool more = true;
    if (!good) return;
    while (more) {
        more = false;
        for (uint32_t s = d->n_states; s-- > 1;) {
            bool is = d->accept[s];
            for (uint32_t c = 0; c < d->n_classes && !is; c++)
                is = good[d->next[(size_t)s * d->n_classes + c]];
            more = more || (is && !good[s]);
            good[s] = is;
        }
    }
    for (uint32_t s = 1; s < d->n_states; s++)
        if (!good[s]) abort();
    if (d->start >= d->n_states || d->accept[0]) abort();
    free(good);
}

#endif
