/* dfa_draft.c - turns a draft into the minimal automaton: trimming, minimisation by refining
 * partitions of states and of edges (Hopcroft's algorithm in Valmari's form for partial automata,
 * "Fast brief practical DFA minimization", 2012: O(edges log edges)), classes of bytes, canonical
 * numbering. Also the interning of keys.
 *
 * Owns the draft while finishing it. Any thread. */
#include "core/base/mem.h"
#include "core/grammar/regex/dfa_int.h"

#include <stdlib.h>
#include <string.h>

enum {
    DRAFT_COST = 32, /* fixed cost of a draft, in states */
    DRAFT_WORK = 96, /* fixed cost of finishing it, in units of work */
    EDGES_PER_STATE = 3,
    CELLS_PER_STATE = 8
};

/* ---- drafts ---- */

void dfa_draft_init(struct dfa_draft *d, struct work *w) {
    *d = (struct dfa_draft){.n_classes = 256, .work = w};
    for (int b = 0; b < 256; b++)
        d->class_of[b] = (uint8_t)b;
    dfa_draft_state(d, false);
}

void dfa_draft_fini(struct dfa_draft *d) {
    free(d->accept);
    free(d->edges);
    *d = (struct dfa_draft){0};
}

void dfa_draft_use_bytes(struct dfa_draft *d, const bool used[256]) {
    uint32_t n = 0;
    int other = -1;
    for (int b = 0; b < 256; b++) {
        if (!used[b] && other < 0)
            other = (int)n++;
        else if (used[b])
            d->class_of[b] = (uint8_t)n++;
        if (!used[b]) d->class_of[b] = (uint8_t)other;
    }
    d->n_classes = n;
}

bool dfa_draft_spend(struct dfa_draft *d, uint64_t units) {
    if (!d->failed && !work_spend(d->work, units)) d->failed = d->work->reason;
    return !d->failed;
}

uint32_t dfa_draft_state(struct dfa_draft *d, bool accept) {
    if (!dfa_draft_spend(d, 1)) return 0;
    if (d->n_states > GRAMMAR_MAX_STATES) {
        d->failed = ERR_TOO_LONG;
        return 0;
    }
    if (!mem_grow(&d->accept, d->n_states, &d->states_capacity, 1)) {
        d->failed = ERR_NOMEM;
        return 0;
    }
    d->accept[d->n_states] = accept;
    return d->n_states++;
}

void dfa_draft_edge(struct dfa_draft *d, uint32_t from, uint8_t class, uint32_t to) {
    if (!to || !from || !dfa_draft_spend(d, 1)) return;
    if (d->n_edges == DFA_MAX_EDGES) {
        d->failed = ERR_TOO_LONG;
        return;
    }
    if (!mem_grow(&d->edges, d->n_edges, &d->edges_capacity, sizeof *d->edges)) {
        d->failed = ERR_NOMEM;
        return;
    }
    d->edges[d->n_edges++] = (struct dfa_edge){from, (uint32_t) class << 24 | to};
}

static inline uint32_t edge_to(const struct dfa_edge *x) {
    return x->class_to & 0xffffff;
}

static inline uint32_t edge_class(const struct dfa_edge *x) {
    return x->class_to >> 24;
}

/* ---- edges by one of their ends ---- */

struct adjacency {
    uint32_t *first; /* (n_states + 1) */
    uint32_t *edge;  /* (n_edges) indices */
};

static void adjacency_fini(struct adjacency *a) {
    free(a->first);
    free(a->edge);
}

static int adjacency_init(struct adjacency *a, const struct dfa_draft *d, bool by_to) {
    a->first = mem_new((uint64_t)d->n_states + 1, sizeof *a->first);
    a->edge = mem_new(d->n_edges, sizeof *a->edge);
    if (!a->first || !a->edge) return ERR_NOMEM;
    for (uint32_t i = 0; i < d->n_edges; i++)
        a->first[(by_to ? edge_to(&d->edges[i]) : d->edges[i].from)]++;
    for (uint32_t s = 0, sum = 0; s <= d->n_states; s++) {
        sum += a->first[s];
        a->first[s] = sum;
    }
    for (uint32_t i = d->n_edges; i-- > 0;)
        a->edge[--a->first[by_to ? edge_to(&d->edges[i]) : d->edges[i].from]] = i;
    return 0;
}

/* ---- trimming ---- */

/* Sets bit in seen for all states reachable from the n states in queue (n_states). */
static void mark_reachable(const struct dfa_draft *d, const struct adjacency *a, bool backwards,
                           uint8_t bit, uint8_t *seen, uint32_t *queue, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = queue[i];
        for (uint32_t j = a->first[s]; j < a->first[s + 1]; j++) {
            const struct dfa_edge *x = &d->edges[a->edge[j]];
            uint32_t t = backwards ? x->from : edge_to(x);
            if (seen[t] & bit) continue;
            seen[t] |= bit;
            queue[n++] = t;
        }
    }
}

static int mark_useful(const struct dfa_draft *d, uint8_t *seen, uint32_t *queue) {
    struct adjacency a = {0};
    int rc = adjacency_init(&a, d, false);
    if (!rc) {
        queue[0] = d->start;
        seen[d->start] |= 1;
        mark_reachable(d, &a, false, 1, seen, queue, 1);
    }
    adjacency_fini(&a);
    a = (struct adjacency){0};
    if (!rc) rc = adjacency_init(&a, d, true);
    if (!rc) {
        uint32_t n = 0;
        for (uint32_t s = 1; s < d->n_states; s++)
            if (d->accept[s]) {
                seen[s] |= 2;
                queue[n++] = s;
            }
        mark_reachable(d, &a, true, 2, seen, queue, n);
    }
    adjacency_fini(&a);
    return rc;
}

/* Drops states that are unreachable or cannot reach acceptance. start 0: the language is empty. */
static int draft_trim(struct dfa_draft *d) {
    if (!dfa_draft_spend(d, d->n_states + d->n_edges)) return d->failed;
    uint8_t *seen = mem_new(d->n_states, 1);
    uint32_t *number = mem_new(d->n_states, sizeof *number);
    int rc = seen && number ? mark_useful(d, seen, number) : ERR_NOMEM;
    if (!rc) {
        uint32_t n = 1, n_edges = 0;
        number[0] = 0;
        for (uint32_t s = 1; s < d->n_states; s++) {
            number[s] = seen[s] == 3 ? n : 0;
            d->accept[number[s]] = d->accept[s]; /* number[s] <= s; accept[0] is reset below */
            n += seen[s] == 3;
        }
        d->accept[0] = 0;
        for (uint32_t i = 0; i < d->n_edges; i++) {
            const struct dfa_edge *x = &d->edges[i];
            uint32_t from = number[x->from], to = number[edge_to(x)];
            if (from && to) d->edges[n_edges++] = (struct dfa_edge){from, edge_class(x) << 24 | to};
        }
        d->n_states = n;
        d->n_edges = n_edges;
        d->start = number[d->start];
    }
    free(seen);
    free(number);
    return rc;
}

/* ---- partitions ---- */

/* Sets of 0..n-1; members of a set are elem[first..end), marked ones first. */
struct partition {
    uint32_t *elem, *where, *set_of, *first, *end, *n_marked, *touched;
    uint32_t n_sets, n_touched;
};

static int partition_init(struct partition *p, uint32_t n) {
    uint32_t **arrays[] = {&p->elem, &p->where,    &p->set_of, &p->first,
                           &p->end,  &p->n_marked, &p->touched};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i] = mem_new((uint64_t)n + 1, sizeof **arrays[i]);
        if (!*arrays[i]) return ERR_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        p->elem[i] = p->where[i] = i;
    p->end[0] = n;
    p->n_sets = n > 0;
    return 0;
}

static void partition_fini(struct partition *p) {
    uint32_t *arrays[] = {p->elem, p->where, p->set_of, p->first, p->end, p->n_marked, p->touched};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
}

static void partition_mark(struct partition *p, uint32_t x) {
    uint32_t s = p->set_of[x], from = p->where[x], to = p->first[s] + p->n_marked[s];
    if (from < to) return; /* marked before */
    p->elem[from] = p->elem[to];
    p->where[p->elem[from]] = from;
    p->elem[to] = x;
    p->where[x] = to;
    if (!p->n_marked[s]++) p->touched[p->n_touched++] = s;
}

/* Splits each touched set into its marked and other members; the smaller half is the new set. */
static void partition_split(struct partition *p) {
    while (p->n_touched) {
        uint32_t s = p->touched[--p->n_touched], z = p->n_sets;
        uint32_t middle = p->first[s] + p->n_marked[s];
        if (middle == p->end[s]) {
            p->n_marked[s] = 0;
            continue;
        }
        if (p->n_marked[s] <= p->end[s] - middle) {
            p->first[z] = p->first[s];
            p->end[z] = p->first[s] = middle;
        } else {
            p->end[z] = p->end[s];
            p->first[z] = p->end[s] = middle;
        }
        for (uint32_t i = p->first[z]; i < p->end[z]; i++)
            p->set_of[p->elem[i]] = z;
        p->n_marked[s] = p->n_marked[z] = 0;
        p->n_sets++;
    }
}

/* Splits the set 0 of all edges into one set for each class that occurs. */
static void part_by_class(struct partition *edges, const struct dfa_draft *d) {
    uint32_t first[257] = {0};
    for (uint32_t i = 0; i < d->n_edges; i++)
        first[edge_class(&d->edges[i]) + 1]++;
    edges->n_sets = 0;
    for (uint32_t c = 0; c < 256; c++) {
        uint32_t n = first[c + 1], s = edges->n_sets;
        first[c + 1] += first[c];
        if (!n) continue;
        edges->first[s] = first[c];
        edges->end[s] = first[c + 1];
        edges->n_sets++;
    }
    uint32_t set_of[256], n_sets = 0;
    for (uint32_t c = 0; c < 256; c++)
        set_of[c] = first[c + 1] > first[c] ? n_sets++ : 0;
    for (uint32_t i = 0; i < d->n_edges; i++) {
        uint32_t c = edge_class(&d->edges[i]), at = first[c]++;
        edges->elem[at] = i;
        edges->where[i] = at;
        edges->set_of[i] = set_of[c];
    }
}

/* Puts states that no text distinguishes into one set. Element s - 1 of states is state s. */
static int refine_partition(struct dfa_draft *d, const struct adjacency *into,
                            struct partition *states, struct partition *edges) {
    for (uint32_t s = 1; s < d->n_states; s++)
        if (d->accept[s]) partition_mark(states, s - 1);
    partition_split(states);
    part_by_class(edges, d);
    for (uint32_t b = 1, c = 0; c < edges->n_sets; c++) {
        if (!dfa_draft_spend(d, 1 + edges->end[c] - edges->first[c])) break;
        for (uint32_t i = edges->first[c]; i < edges->end[c]; i++)
            partition_mark(states, d->edges[edges->elem[i]].from - 1);
        partition_split(states);
        for (; b < states->n_sets; b++) {
            dfa_draft_spend(d, 1 + states->end[b] - states->first[b]);
            for (uint32_t i = states->first[b]; i < states->end[b]; i++) {
                uint32_t s = states->elem[i] + 1;
                for (uint32_t j = into->first[s]; j < into->first[s + 1]; j++)
                    partition_mark(edges, into->edge[j]);
            }
            partition_split(edges);
        }
    }
    return d->failed;
}

/* ---- the finished form ---- */

/* Merges equal columns of next (n_states, n_classes); classes are numbered by their first byte. */
static int merge_classes(struct dfa *a) {
    uint64_t hash[256] = {0};
    uint32_t kept[256] = {0}, n = 0;
    uint8_t class_of[256];
    for (size_t s = 0; s < a->n_states; s++)
        for (uint32_t c = 0; c < a->n_classes; c++)
            hash[c] = (hash[c] ^ a->next[s * a->n_classes + c]) * UINT64_C(0x9e3779b97f4a7c15);
    for (int b = 0; b < 256; b++) {
        uint32_t c = a->class_of[b], k = 0;
        for (; k < n; k++) {
            size_t s = 0;
            if (hash[kept[k]] != hash[c]) continue;
            while (s < a->n_states &&
                   a->next[s * a->n_classes + kept[k]] == a->next[s * a->n_classes + c])
                s++;
            if (s == a->n_states) break;
        }
        if (k == n) kept[n++] = c;
        class_of[b] = (uint8_t)k;
    }
    uint32_t *merged = mem_new((uint64_t)a->n_states * n, sizeof *merged);
    if (!merged) return ERR_NOMEM;
    for (size_t s = 0; s < a->n_states; s++)
        for (uint32_t k = 0; k < n; k++)
            merged[s * n + k] = a->next[s * a->n_classes + kept[k]];
    free(a->next);
    a->next = merged;
    a->n_classes = n;
    memcpy(a->class_of, class_of, sizeof class_of);
    return 0;
}

/* Numbers the states in breadth-first order, least byte first. */
static int renumber_states(struct dfa *a) {
    uint32_t *number = mem_new(a->n_states, sizeof *number);
    uint32_t *order = mem_new(a->n_states, sizeof *order);
    uint32_t *next = mem_new((uint64_t)a->n_states * a->n_classes, sizeof *next);
    uint8_t *accept = mem_new(a->n_states, 1);
    int rc = number && order && next && accept ? 0 : ERR_NOMEM;
    if (!rc) {
        uint32_t n = 1;
        order[n] = a->start;
        number[a->start] = n++;
        for (uint32_t i = 1; i < n; i++) {
            accept[i] = a->accept[order[i]];
            for (uint32_t c = 0; c < a->n_classes; c++) {
                uint32_t to = a->next[(size_t)order[i] * a->n_classes + c];
                if (to && !number[to]) {
                    order[n] = to;
                    number[to] = n++;
                }
                next[(size_t)i * a->n_classes + c] = number[to];
            }
        }
        a->start = 1;
        uint32_t *old_next = a->next;
        uint8_t *old_accept = a->accept;
        a->next = next;
        a->accept = accept;
        next = old_next;
        accept = old_accept;
    }
    free(number);
    free(order);
    free(next);
    free(accept);
    return rc;
}

static int build_table(struct dfa_draft *d, const struct partition *states, struct dfa *a) {
    a->n_states = states->n_sets + 1;
    a->n_classes = d->n_classes;
    memcpy(a->class_of, d->class_of, sizeof a->class_of);
    if ((uint64_t)a->n_states * a->n_classes > DFA_MAX_CELLS) return ERR_TOO_LONG;
    /* Filling, merging, copying and numbering each pass over the whole table. */
    if (!dfa_draft_spend(d, (uint64_t)a->n_states * a->n_classes / 4)) return d->failed;
    a->next = mem_new((uint64_t)a->n_states * a->n_classes, sizeof *a->next);
    a->accept = mem_new(a->n_states, 1);
    if (!a->next || !a->accept) return ERR_NOMEM;
    for (uint32_t s = 1; s < d->n_states; s++)
        if (d->accept[s]) a->accept[states->set_of[s - 1] + 1] = 1;
    for (uint32_t i = 0; i < d->n_edges; i++) {
        const struct dfa_edge *x = &d->edges[i];
        size_t from = states->set_of[x->from - 1] + 1;
        a->next[from * a->n_classes + edge_class(x)] = states->set_of[edge_to(x) - 1] + 1;
    }
    if (d->start) a->start = states->set_of[d->start - 1] + 1;
    int rc = merge_classes(a);
    return rc || !a->start ? rc : renumber_states(a);
}

static int minimise_dfa(struct dfa_draft *d, struct dfa *a) {
    struct partition states = {0}, edges = {0};
    struct adjacency into = {0};
    int rc = draft_trim(d);
    if (!rc && (rc = partition_init(&states, d->n_states - 1)) == 0 &&
        (rc = partition_init(&edges, d->n_edges)) == 0 &&
        (rc = adjacency_init(&into, d, true)) == 0 &&
        (rc = d->start ? refine_partition(d, &into, &states, &edges) : 0) == 0)
        rc = build_table(d, &states, a);
    partition_fini(&states);
    partition_fini(&edges);
    adjacency_fini(&into);
    return rc;
}

int dfa_draft_finish(struct dfa_draft *d, struct dfa *out, err *e) {
    struct dfa a = {0};
    uint32_t cost = DRAFT_COST + d->n_states + d->n_edges / EDGES_PER_STATE;
    dfa_draft_spend(d, DRAFT_WORK);
    int rc = d->failed ? d->failed : minimise_dfa(d, &a);
    dfa_draft_fini(d);
    if (rc) {
        dfa_fini(&a);
        return dfa_failure(rc, e);
    }
    *out = a;
    out->cost = cost + (uint32_t)((uint64_t)a.n_states * a.n_classes / CELLS_PER_STATE);
    return 0;
}

/* ---- interning ---- */

void dfa_intern_fini(struct dfa_intern *t) {
    free(t->words);
    free(t->ends);
    free(t->slots);
    *t = (struct dfa_intern){0};
}

const uint64_t *dfa_intern_key(const struct dfa_intern *t, uint32_t id, uint32_t *n) {
    uint64_t first = id ? t->ends[id - 1] : 0;
    *n = (uint32_t)(t->ends[id] - first);
    return first ? t->words + first : t->words; /* words may be NULL if it is empty */
}

static uint64_t hash_words(const uint64_t *key, uint32_t n) {
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ key[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    /* The low bits choose the slot, so the high bits of the last word must reach them. */
    h = (h ^ h >> 32) * UINT64_C(0xff51afd7ed558ccd);
    return h ^ h >> 32;
}

static int intern_grow(struct dfa_intern *t, uint32_t n) {
    if (!mem_grow(&t->ends, t->n, &t->ends_capacity, sizeof *t->ends)) return ERR_NOMEM;
    uint64_t capacity = t->words_capacity ? t->words_capacity : 256;
    while (t->n_words + n > capacity)
        capacity *= 2;
    if (capacity != t->words_capacity) {
        uint64_t *words = mem_resize(t->words, capacity, sizeof *words);
        if (!words) return ERR_NOMEM;
        t->words = words;
        t->words_capacity = capacity;
    }
    if (2 * (uint64_t)t->n < t->n_slots) return 0;
    uint32_t n_slots = t->n_slots ? 2 * t->n_slots : 256;
    uint32_t *slots = mem_new(n_slots, sizeof *slots);
    if (!slots) return ERR_NOMEM;
    for (uint32_t id = 0; id < t->n; id++) {
        uint32_t len;
        const uint64_t *key = dfa_intern_key(t, id, &len);
        uint64_t at = hash_words(key, len);
        while (slots[at & (n_slots - 1)])
            at++;
        slots[at & (n_slots - 1)] = id + 1;
    }
    free(t->slots);
    t->slots = slots;
    t->n_slots = n_slots;
    return 0;
}

int dfa_intern_add(struct dfa_intern *t, const uint64_t *key, uint32_t n, uint32_t *id) {
    if (t->n > GRAMMAR_MAX_STATES || t->n_words + n > DFA_MAX_WORDS) return ERR_TOO_LONG;
    int rc = intern_grow(t, n);
    if (rc) return rc;
    uint64_t at = hash_words(key, n);
    for (; t->slots[at & (t->n_slots - 1)]; at++) {
        uint32_t other = t->slots[at & (t->n_slots - 1)] - 1, len;
        const uint64_t *have = dfa_intern_key(t, other, &len);
        if (len != n || (n && memcmp(have, key, n * sizeof *key) != 0)) continue;
        *id = other;
        return 0;
    }
    if (n) memcpy(t->words + t->n_words, key, n * sizeof *key);
    t->n_words += n;
    t->ends[t->n] = t->n_words;
    t->slots[at & (t->n_slots - 1)] = t->n + 1;
    *id = t->n++;
    return 0;
}
