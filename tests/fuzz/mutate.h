/* mutate.h - LLVMFuzzerCustomMutator for notations: a table of rules generates plausible texts; a
 * mutation inserts one, repeats a span, or changes bytes as libFuzzer does. Bytes after the first
 * NUL of an input are not text and are left to libFuzzer.
 *
 * Only in libFuzzer's builds (-DLIBFUZZER): replay.c runs files unchanged. */
#ifndef INFERD_TESTS_FUZZ_MUTATE_H
#define INFERD_TESTS_FUZZ_MUTATE_H

#ifdef LIBFUZZER
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* The forms of one rule; '@' and a letter stand for a form of that rule (A, B, ...). The first two
 * must be the shortest: at the depth limit only these are used. NULL ends the forms. */
typedef const char *const fuzz_rule[24];

enum {
    FUZZ_DEPTH = 7,
    FUZZ_TEXT = 1024,
    FUZZ_COPIES = 70 /* more than two capacities of a list */
};

struct fuzz_text {
    char at[FUZZ_TEXT];
    size_t n;
    uint32_t seed;
};

static uint32_t fuzz_below(struct fuzz_text *t, uint32_t n) {
    t->seed = t->seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(t->seed >> 4) * n) >> 28);
}

static void fuzz_write(struct fuzz_text *t, const fuzz_rule *rules, char rule, int depth) {
    const char *const *forms = rules[rule - 'A'];
    uint32_t n = 0;
    while (n < 24 && forms[n])
        n++;
    uint32_t choice = depth ? fuzz_below(t, n) : fuzz_below(t, n < 2 ? n : 2);
    for (const char *s = forms[choice]; *s; s++) {
        if (*s == '@' && s[1] >= 'A' && s[1] <= 'Z') {
            fuzz_write(t, rules, *++s, depth ? depth - 1 : 0);
        } else if (t->n < FUZZ_TEXT) {
            t->at[t->n++] = *s;
        }
    }
}

/* Replaces [from, to) by n bytes. Returns the new size; size if there is no room. */
static size_t fuzz_put(uint8_t *data, size_t size, size_t max, size_t from, size_t to,
                       const char *bytes, size_t n) {
    if (size - (to - from) + n > max) return size;
    memmove(data + from + n, data + to, size - to);
    memcpy(data + from, bytes, n);
    return size - (to - from) + n;
}

/* rules (n_rules): from 'A' on; 'A' is a whole text. */
static size_t fuzz_mutate(uint8_t *data, size_t size, size_t max, unsigned seed,
                          const fuzz_rule *rules, uint32_t n_rules) {
    struct fuzz_text t = {.n = 0, .seed = seed * 2654435761u + 1};
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    size_t from = n ? fuzz_below(&t, (uint32_t)n + 1) : 0;
    size_t to =
        from + (n - from ? fuzz_below(&t, (uint32_t)(n - from < 24 ? n - from : 24) + 1) : 0);
    switch (fuzz_below(&t, 8)) {
    case 0: /* a new text */
        fuzz_write(&t, rules, 'A', FUZZ_DEPTH);
        return fuzz_put(data, size, max, 0, n, t.at, t.n);
    case 1:
    case 2:        /* insert a part */
        to = from; /* fallthrough */
    case 3:        /* or replace a span by it */
        fuzz_write(&t, rules, (char)('A' + fuzz_below(&t, n_rules)), 3);
        return fuzz_put(data, size, max, from, to, t.at, t.n);
    case 4: { /* repeat a span */
        uint32_t copies = 1 + fuzz_below(&t, FUZZ_COPIES);
        while (copies-- && to > from && t.n + (to - from) <= FUZZ_TEXT) {
            memcpy(t.at + t.n, data + from, to - from);
            t.n += to - from;
        }
        return fuzz_put(data, size, max, to, to, t.at, t.n);
    }
    default:
        return LLVMFuzzerMutate(data, size, max);
    }
}

#define FUZZ_MUTATOR(rules)                                                                        \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {   \
        return fuzz_mutate(data, size, max_size, seed, rules, sizeof(rules) / sizeof *(rules));    \
    }
#endif

#endif
