/* chars.c - sets of code points as sorted ranges, and their UTF-8 as automata. Owns only the
 * ranges. Any thread. */
#include "core/grammar/regex/chars.h"

#include "core/base/mem.h"
#include "core/grammar/regex/dfa_int.h"
#include "core/text/property.h"
#include "core/text/utf8.h"

#include <stdlib.h>

enum { SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

void chars_fini(struct chars *c) {
    free(c->at);
    *c = (struct chars){0};
}

void chars_add(struct chars *c, uint32_t first, uint32_t last) {
    if (!mem_grow(&c->at, c->n, &c->capacity, sizeof *c->at)) {
        c->failed = true;
        return;
    }
    c->at[c->n++] = (struct chars_range){first, last};
}

void chars_add_all(struct chars *c, const struct chars *other) {
    c->failed = c->failed || other->failed;
    for (uint32_t i = 0; i < other->n; i++)
        chars_add(c, other->at[i].first, other->at[i].last);
}

static int compare_ranges(const void *a, const void *b) {
    const struct chars_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Removes the surrogates from the ranges. */
static void cut_surrogates(struct chars *c) {
    for (uint32_t i = 0, n = c->n; i < n; i++) {
        struct chars_range r = c->at[i];
        if (r.first > SURROGATE_LAST || r.last < SURROGATE_FIRST) continue;
        bool below = r.first<SURROGATE_FIRST, above = r.last> SURROGATE_LAST;
        if (below)
            c->at[i].last = SURROGATE_FIRST - 1;
        else if (above)
            c->at[i].first = SURROGATE_LAST + 1;
        else
            c->at[i] = (struct chars_range){1, 0}; /* empty: merged away */
        if (below && above) chars_add(c, SURROGATE_LAST + 1, r.last);
    }
}

void chars_normalise(struct chars *c) {
    uint32_t n = 0;
    if (!c->n) return;
    cut_surrogates(c);
    qsort(c->at, c->n, sizeof *c->at, compare_ranges);
    for (uint32_t i = 0; i < c->n; i++) {
        struct chars_range r = c->at[i];
        if (r.first > r.last) continue;
        if (n && r.first <= c->at[n - 1].last + 1) {
            if (r.last > c->at[n - 1].last) c->at[n - 1].last = r.last;
        } else {
            c->at[n++] = r;
        }
    }
    c->n = n;
}

void chars_negate(struct chars *c) {
    struct chars out = {.failed = c->failed};
    uint32_t next = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->at[i].first > next) chars_add(&out, next, c->at[i].first - 1);
        next = c->at[i].last + 1;
    }
    if (next <= CHARS_LAST) chars_add(&out, next, CHARS_LAST);
    chars_normalise(&out);
    chars_fini(c);
    *c = out;
}

static void add_range(void *context, uint32_t first, uint32_t last) {
    chars_add(context, first, last);
}

bool chars_add_property(struct chars *c, const char *name, size_t n) {
    return property_ranges(name, n, add_range, c);
}

/* ---- reading characters ---- */

uint32_t chars_take(const char **at) {
    unsigned len;
    uint32_t c = utf8_decode_valid(*at, &len);
    *at += len;
    return c;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool chars_take_hex(const char **at, unsigned n, uint32_t *c) {
    *c = 0;
    for (unsigned i = 0; i < n; i++) {
        int digit = hex_digit((*at)[i]);
        if (digit < 0) return false;
        *c = *c << 4 | (uint32_t)digit;
    }
    *at += n;
    return true;
}

bool chars_take_count(const char **at, uint32_t *count) {
    uint64_t sum = 0;
    const char *from = *at;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        sum = 10 * sum + (uint64_t)(**at - '0');
        if (sum >= GRAMMAR_UNLIMITED) sum = GRAMMAR_UNLIMITED - 1;
    }
    if (*at == from) return false;
    *count = (uint32_t)sum;
    return true;
}

/* ---- as automata ---- */

struct builder {
    const struct chars *set;
    struct dfa_draft d;
    uint32_t full[4]; /* states that accept any 0 to 3 continuation bytes; 0: not made */
};

enum coverage { NONE, PART, ALL };

static enum coverage coverage_of(const struct chars *set, uint32_t first, uint32_t last) {
    uint32_t low = 0, high = set->n;
    while (low < high) { /* the first range that does not end before first */
        uint32_t middle = low + (high - low) / 2;
        if (set->at[middle].last < first)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == set->n || set->at[low].first > last) return NONE;
    return set->at[low].first <= first && set->at[low].last >= last ? ALL : PART;
}

static uint32_t full_state(struct builder *b, uint32_t n) {
    if (b->full[n]) return b->full[n];
    b->full[n] = dfa_draft_state(&b->d, n == 0);
    for (uint32_t i = 0; i < 64 && n; i++)
        dfa_draft_edge(&b->d, b->full[n], (uint8_t)(0x80 + i), full_state(b, n - 1));
    return b->full[n];
}

/* The state from which n continuation bytes lead to the code points of the set from base on, except
 * those below least, which have shorter encodings. */
static uint32_t block_state(struct builder *b, uint32_t base, uint32_t least, uint32_t n) {
    uint32_t size = 1u << (6 * n);
    if (base + size <= least) return 0;
    enum coverage in = coverage_of(b->set, base < least ? least : base, base + size - 1);
    if (in == NONE) return 0;
    if (in == ALL && base >= least) return full_state(b, n);
    uint32_t state = dfa_draft_state(&b->d, false);
    for (uint32_t i = 0; i < 64 && state; i++)
        dfa_draft_edge(&b->d, state, (uint8_t)(0x80 + i),
                       block_state(b, base + i * (size >> 6), least, n - 1));
    return state;
}

int chars_dfa(const struct chars *c, struct work *w, struct dfa *out, err *e) {
    static const struct {
        uint32_t n_leads, first_lead, least;
    } forms[4] = {{128, 0, 0}, {32, 0xC0, 0x80}, {16, 0xE0, 0x800}, {5, 0xF0, 0x10000}};
    struct builder b = {.set = c};
    if (c->failed) return err_no_memory(e);
    dfa_draft_init(&b.d, w);
    b.d.start = dfa_draft_state(&b.d, false);
    for (uint32_t n = 0; n < 4; n++)
        for (uint32_t i = 0; i < forms[n].n_leads; i++)
            dfa_draft_edge(&b.d, b.d.start, (uint8_t)(forms[n].first_lead + i),
                           block_state(&b, i << (6 * n), forms[n].least, n));
    return dfa_draft_finish(&b.d, out, e);
}
