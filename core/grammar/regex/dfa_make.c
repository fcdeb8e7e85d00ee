/* dfa_make.c - makes automata of words, of texts without stops, and of two automata combined. Owns
 * only its drafts. Any thread. */
#include "core/base/mem.h"
#include "core/grammar/regex/dfa_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

static int compare_words(const void *a, const void *b) {
    const struct dfa_word *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int order = n ? memcmp(x->bytes, y->bytes, n) : 0;
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* path[i]: the state after i bytes of the last word. */
static void add_word(struct dfa_draft *d, const struct dfa_word *last, const struct dfa_word *w,
                     uint32_t *path) {
    size_t i = 0;
    while (last && i < last->n && i < w->n && last->bytes[i] == w->bytes[i])
        i++;
    for (; i < w->n; i++) {
        path[i + 1] = dfa_draft_state(d, false);
        dfa_draft_edge(d, path[i], d->class_of[(uint8_t)w->bytes[i]], path[i + 1]);
    }
    if (!d->failed) d->accept[path[w->n]] = 1;
}

int dfa_from_words(const struct dfa_word *words, size_t n, struct work *w, struct dfa *out,
                   err *e) {
    bool used[256] = {false};
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) {
        if (words[i].n > GRAMMAR_MAX_STATES) return dfa_too_large(e);
        if (words[i].n > longest) longest = words[i].n;
        for (size_t j = 0; j < words[i].n; j++)
            used[(uint8_t)words[i].bytes[j]] = true;
    }
    struct dfa_word *sorted = mem_new(n, sizeof *sorted);
    uint32_t *path = mem_new(longest + 1, sizeof *path);
    if (!sorted || !path) {
        free(sorted);
        free(path);
        return err_no_memory(e);
    }
    struct dfa_draft d;
    dfa_draft_init(&d, w);
    dfa_draft_use_bytes(&d, used);
    path[0] = d.start = dfa_draft_state(&d, false);
    if (n && dfa_draft_spend(&d, 4 * (uint64_t)n)) {
        memcpy(sorted, words, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, compare_words);
    }
    for (size_t i = 0; i < n && !d.failed; i++)
        add_word(&d, i ? &sorted[i - 1] : NULL, &sorted[i], path);
    free(sorted);
    free(path);
    return dfa_draft_finish(&d, out, e);
}

/* ---- until ---- */

/* Aho-Corasick automaton over the classes of a draft: the stops as a trie, completed. */
struct trie {
    uint32_t n, n_classes;
    uint32_t *next; /* (n, n_classes) node 0 is the root; 0 also: no child, until completed */
    uint32_t *fail, *queue;
    uint8_t *stopped; /* a stop ends here */
};

static void stops_fini(struct trie *t) {
    free(t->next);
    free(t->fail);
    free(t->queue);
    free(t->stopped);
}

static void stops_add(struct trie *t, const uint8_t class_of[256], const char *stop) {
    uint32_t at = 0;
    for (; *stop; stop++) {
        uint32_t *next = &t->next[(size_t)at * t->n_classes + class_of[(uint8_t)*stop]];
        if (!*next) *next = t->n++;
        at = *next;
    }
    t->stopped[at] = 1;
}

static void stops_complete(struct trie *t) {
    uint32_t n = 0;
    t->queue[n++] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = t->queue[i], fail = t->fail[at];
        t->stopped[at] |= t->stopped[fail];
        for (uint32_t c = 0; c < t->n_classes; c++) {
            uint32_t *next = &t->next[(size_t)at * t->n_classes + c];
            uint32_t back = at ? t->next[(size_t)fail * t->n_classes + c] : 0;
            if (*next) {
                t->fail[*next] = back;
                t->queue[n++] = *next;
            } else {
                *next = back;
            }
        }
    }
}

static int stops_init(struct trie *t, const struct dfa_draft *d, const char *const *stops, size_t n,
                      uint64_t n_nodes) {
    t->n = 1;
    t->n_classes = d->n_classes;
    t->next = mem_new(n_nodes * t->n_classes, sizeof *t->next);
    t->fail = mem_new(n_nodes, sizeof *t->fail);
    t->queue = mem_new(n_nodes, sizeof *t->queue);
    t->stopped = mem_new(n_nodes, 1);
    if (!t->next || !t->fail || !t->queue || !t->stopped) return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        stops_add(t, d->class_of, stops[i]);
    stops_complete(t);
    return 0;
}

/* Node i is state i + 1 of the draft. A node where a stop ends has no outgoing edges. */
static void draft_of_trie(struct dfa_draft *d, const struct trie *t) {
    for (uint32_t i = 0; i < t->n && !d->failed; i++)
        dfa_draft_state(d, !t->stopped[i]);
    for (uint32_t i = 0; i < t->n && !d->failed; i++) {
        for (uint32_t c = 0; c < t->n_classes && !t->stopped[i]; c++)
            dfa_draft_edge(d, i + 1, (uint8_t)c, t->next[(size_t)i * t->n_classes + c] + 1);
    }
    d->start = t->stopped[0] ? 0 : 1;
}

int dfa_from_until(const char *const *stops, size_t n, struct work *w, struct dfa *out, err *e) {
    bool used[256] = {false};
    uint64_t n_nodes = 1;
    struct dfa_draft d;
    struct trie t = {0};
    for (size_t i = 0; i < n; i++) {
        for (const char *s = stops[i]; *s; s++, n_nodes++)
            used[(uint8_t)*s] = true;
        if (n_nodes > GRAMMAR_MAX_STATES) return dfa_too_large(e);
    }
    dfa_draft_init(&d, w);
    dfa_draft_use_bytes(&d, used);
    if (n_nodes * d.n_classes > DFA_MAX_CELLS) d.failed = ERR_TOO_LONG;
    dfa_draft_spend(&d, n_nodes * d.n_classes / 4);
    if (!d.failed && (d.failed = stops_init(&t, &d, stops, n, n_nodes)) == 0) draft_of_trie(&d, &t);
    stops_fini(&t);
    return dfa_draft_finish(&d, out, e);
}

/* ---- two automata combined ---- */

struct product {
    const struct dfa *a, *b;
    enum dfa_op op;
    struct dfa_draft d;
    struct dfa_intern pairs; /* pair i is state i + 1 of the draft */
    uint8_t class_a[256], class_b[256];
};

static bool accepts_both(enum dfa_op op, bool a, bool b) {
    return op == DFA_AND ? a && b : op == DFA_OR ? a || b : a && !b;
}

/* The draft's state for a pair of states; 0 if no text is accepted from it. */
static uint32_t pair_state(struct product *p, uint32_t a, uint32_t b) {
    bool hopeless = p->op == DFA_AND ? !a || !b : p->op == DFA_OR ? !a && !b : !a;
    uint64_t key = (uint64_t)a << 32 | b;
    uint32_t id, n = p->pairs.n;
    if (hopeless || p->d.failed) return 0;
    int rc = dfa_intern_add(&p->pairs, &key, 1, &id);
    if (rc) {
        p->d.failed = rc;
        return 0;
    }
    if (id == n) dfa_draft_state(&p->d, accepts_both(p->op, p->a->accept[a], p->b->accept[b]));
    return id + 1;
}

static void pair_classes(struct product *p) {
    uint16_t seen[256] = {0};
    uint32_t n = 0;
    for (int i = 0; i < 256; i++) {
        uint16_t both = (uint16_t)(p->a->class_of[i] << 8 | p->b->class_of[i]);
        uint32_t c = 0;
        while (c < n && seen[c] != both)
            c++;
        if (c == n) {
            seen[n] = both;
            p->class_a[n] = p->a->class_of[i];
            p->class_b[n++] = p->b->class_of[i];
        }
        p->d.class_of[i] = (uint8_t)c;
    }
    p->d.n_classes = n;
}

int dfa_combine(const struct dfa *a, const struct dfa *b, enum dfa_op op, struct work *w,
                struct dfa *out, err *e) {
    struct product p = {.a = a, .b = b, .op = op};
    dfa_draft_init(&p.d, w);
    pair_classes(&p);
    p.d.start = pair_state(&p, a->start, b->start);
    for (uint32_t i = 0; i < p.pairs.n && !p.d.failed; i++) {
        uint32_t n;
        dfa_draft_spend(&p.d, p.d.n_classes);
        uint64_t key = *dfa_intern_key(&p.pairs, i, &n);
        const uint32_t *row_a = a->next + (size_t)(key >> 32) * a->n_classes;
        const uint32_t *row_b = b->next + (size_t)(uint32_t)key * b->n_classes;
        for (uint32_t c = 0; c < p.d.n_classes; c++)
            dfa_draft_edge(&p.d, i + 1, (uint8_t)c,
                           pair_state(&p, row_a[p.class_a[c]], row_b[p.class_b[c]]));
    }
    dfa_intern_fini(&p.pairs);
    return dfa_draft_finish(&p.d, out, e);
}
