/* nfa.c - converts a nondeterministic automaton over characters into a deterministic one over
 * bytes.
 *
 * A configuration is a node, the state within the current character (0 between characters), and
 * the debts: the look-aheads that the rest of the text must still satisfy, as a set of states of
 * their automata. A state of the result is a set of configurations together with what precedes it:
 * the kind of the last character, and the states of the look-behinds' automata, which run from the
 * start of the text. Assertions are decided when the next byte, or the end, is known. Any thread;
 * one conversion at a time per nfa. */
#include "core/grammar/regex/nfa.h"

#include "core/base/mem.h"
#include "core/grammar/regex/dfa_int.h"

#include <stdlib.h>
#include <string.h>

/* Work bound of one pattern: about a quarter of a second. */
#define MAX_WORK       (UINT64_C(1) << 25)
#define WORK_PER_STATE 32 /* equals the cost of one draft state */

/* debts << 44 | sub << 24 | node */
#define CONFIG(node, sub, debts) ((uint64_t)(debts) << 44 | (uint64_t)(sub) << 24 | (node))
static uint32_t node_of(uint64_t config) {
    return config & 0xffffff;
}
static uint32_t sub_of(uint64_t config) {
    return config >> 24 & 0xfffff;
}
static uint32_t debts_of(uint64_t config) {
    return (uint32_t)(config >> 44);
}

struct configs {
    uint64_t *at;
    uint32_t n, capacity;
};

struct run {
    struct nfa *nfa;
    struct dfa_draft d;
    struct dfa_intern states; /* key: before, states of look-behinds, configurations */
    struct dfa_intern debts;  /* key: look-ahead slots << 32 | state; set 0 is empty */
    uint8_t *reached;         /* (nodes) reachable from start */
    uint32_t *behind;         /* (n_behind) look-behinds that are reachable */
    uint32_t n_behind;
    bool has_words, has_ends;
    uint8_t byte_of[256]; /* one byte of each class */
    bool is_word[256];    /* of each class */
    uint32_t *visited;    /* (nodes) last round in which the node was visited without debts */
    uint32_t round;
    struct configs stack, closed, closed_word, target, kernel;
    struct configs debt;          /* a set of debts under construction */
    struct configs visited_debts; /* configurations with debts, visited in this round */
};

static bool is_word_byte(int b) {
    return (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') || (b >= 'a' && b <= 'z') || b == '_';
}

void nfa_fini(struct nfa *n) {
    for (uint32_t i = 0; i < n->classes.n; i++)
        dfa_fini(&n->classes.at[i]);
    for (uint32_t i = 0; i < n->looks.n; i++)
        for (int b = 0; b < NFA_N_BEFORE; b++)
            dfa_fini(&n->looks.at[i].made[b]);
    dfa_fini(&n->whole);
    free(n->nodes.at);
    free(n->classes.at);
    free(n->looks.at);
    *n = (struct nfa){0};
}

/* Charges the pattern's own bound and the caller's budget. */
static int spend_work(struct nfa *n, uint64_t units) {
    n->work += units;
    if (n->work > MAX_WORK) return ERR_TOO_LONG;
    return work_spend(n->budget, units) ? 0 : n->budget->reason;
}

static int push_config(struct configs *c, uint64_t config) {
    if (!mem_grow(&c->at, c->n, &c->capacity, sizeof *c->at)) return ERR_NOMEM;
    c->at[c->n++] = config;
    return 0;
}

static int compare_configs(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts from index first on and removes duplicates. */
static void make_set(struct configs *c, uint32_t first) {
    uint32_t n = first;
    if (c->n - first > 1) qsort(c->at + first, c->n - first, sizeof *c->at, compare_configs);
    for (uint32_t i = first; i < c->n; i++)
        if (i == first || c->at[i] != c->at[n - 1]) c->at[n++] = c->at[i];
    c->n = n;
}

/* ---- look-arounds ---- */

static int nfa_run(struct nfa *n, uint32_t start, enum nfa_before before, struct dfa *out, err *e);

/* Does state s of d accept every text? */
static bool takes_everything(const struct dfa *d, uint32_t s, const struct dfa *whole) {
    uint32_t pair[16] = {0};
    uint32_t queue[16], n = 0;
    if (whole->n_states > 16) return false;
    pair[whole->start] = s;
    queue[n++] = whole->start;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = queue[i], t = pair[w];
        if (d->accept[t] != whole->accept[w]) return false;
        for (int b = 0; b < 256; b++) {
            uint32_t w2 = dfa_step(whole, w, (uint8_t)b), t2 = dfa_step(d, t, (uint8_t)b);
            if (!w2 != !t2 || (w2 && pair[w2] && pair[w2] != t2)) return false;
            if (!w2 || pair[w2]) continue;
            pair[w2] = t2;
            queue[n++] = w2;
        }
    }
    return true;
}

/* Makes the look-around's automaton; *slot: its number. The list of looks does not grow meanwhile.
 */
static int look_make(struct nfa *n, uint32_t index, enum nfa_before before, uint32_t *slot,
                     err *e) {
    struct nfa_look *k = &n->looks.at[index];
    struct dfa *d = &k->made[before];
    int rc = 0;
    *slot = index * NFA_N_BEFORE + before;
    if (k->is_made[before]) return 0;
    if (!n->whole.n_states) rc = nfa_run(n, n->any, NFA_BEFORE_OTHER, &n->whole, e);
    if (!rc) rc = nfa_run(n, k->start, before, d, e);
    if (!rc && k->negative && !k->behind) {
        struct dfa positive = *d;
        *d = (struct dfa){0};
        rc = dfa_combine(&n->whole, &positive, DFA_MINUS, n->budget, d, e);
        dfa_fini(&positive);
    }
    if (rc) return rc;
    for (uint32_t s = 1; s < d->n_states && !k->whole[before]; s++) {
        if (!d->accept[s]) continue;
        if ((rc = spend_work(n, 8)) != 0) return rc;
        if (takes_everything(d, s, &n->whole)) k->whole[before] = s;
    }
    k->is_made[before] = true;
    return 0;
}

static const struct dfa *slot_dfa(const struct nfa *n, uint32_t slot) {
    return &n->looks.at[slot / NFA_N_BEFORE].made[slot % NFA_N_BEFORE];
}

static uint32_t slot_whole(const struct nfa *n, uint32_t slot) {
    return n->looks.at[slot / NFA_N_BEFORE].whole[slot % NFA_N_BEFORE];
}

/* debts with one more: this state of the automaton in slot. */
static int debts_add(struct run *r, uint32_t debts, uint32_t slot, uint32_t state, uint32_t *out) {
    uint32_t n;
    const uint64_t *key = dfa_intern_key(&r->debts, debts, &n);
    r->debt.n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (push_config(&r->debt, key[i])) return ERR_NOMEM;
    if (push_config(&r->debt, (uint64_t)slot << 32 | state)) return ERR_NOMEM;
    make_set(&r->debt, 0);
    int rc = spend_work(r->nfa, n);
    return rc ? rc : dfa_intern_add(&r->debts, r->debt.at, r->debt.n, out);
}

/* The debts after a byte; *alive false: they can no longer be satisfied. */
static int debts_step(struct run *r, uint32_t debts, uint8_t byte, uint32_t *out, bool *alive) {
    uint32_t n;
    const uint64_t *key = dfa_intern_key(&r->debts, debts, &n);
    r->debt.n = 0;
    *alive = true;
    int rc = spend_work(r->nfa, n);
    if (rc) return rc;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = (uint32_t)(key[i] >> 32);
        uint32_t s = dfa_step(slot_dfa(r->nfa, slot), (uint32_t)key[i], byte);
        if (!s)
            *alive = false;
        else if (s != slot_whole(r->nfa, slot) && push_config(&r->debt, (uint64_t)slot << 32 | s))
            return ERR_NOMEM;
    }
    make_set(&r->debt, 0);
    return *alive ? dfa_intern_add(&r->debts, r->debt.at, r->debt.n, out) : 0;
}

static bool debts_paid(const struct run *r, uint32_t debts) {
    uint32_t n;
    const uint64_t *key = dfa_intern_key(&r->debts, debts, &n);
    for (uint32_t i = 0; i < n; i++)
        if (!slot_dfa(r->nfa, (uint32_t)(key[i] >> 32))->accept[(uint32_t)key[i]]) return false;
    return true;
}

/* ---- closures ---- */

/* The position of a set of configurations in the text. */
struct place {
    enum nfa_before before;
    const uint64_t *behind; /* states of the look-behinds' automata */
    bool word_after, at_end;
};

static bool border_of_word(const struct place *p) {
    return (p->before == NFA_BEFORE_WORD) != (!p->at_end && p->word_after);
}

static bool behind_holds(const struct run *r, uint32_t look, const struct place *p) {
    uint32_t i = 0;
    while (r->behind[i] != look)
        i++;
    const struct nfa_look *k = &r->nfa->looks.at[look];
    return k->made[NFA_BEFORE_NONE].accept[p->behind[i]] != k->negative;
}

static int visit_look(struct run *r, const struct nfa_node *x, uint32_t debts,
                      const struct place *p, err *e) {
    const struct nfa_look *k = &r->nfa->looks.at[x->index];
    uint32_t slot, owed = debts;
    if (k->behind)
        return behind_holds(r, x->index, p) ? push_config(&r->stack, CONFIG(x->out, 0, debts)) : 0;
    int rc = look_make(r->nfa, x->index, k->sees_before ? p->before : NFA_BEFORE_OTHER, &slot, e);
    if (rc) return rc;
    uint32_t state = slot_dfa(r->nfa, slot)->start;
    if (!state) return 0;
    if (state != slot_whole(r->nfa, slot) && (rc = debts_add(r, debts, slot, state, &owed)) != 0)
        return rc;
    return push_config(&r->stack, CONFIG(x->out, 0, owed));
}

static int visit_config(struct run *r, uint64_t config, const struct place *p, struct configs *out,
                        err *e) {
    const struct nfa_node *x = &r->nfa->nodes.at[node_of(config)];
    uint32_t debts = debts_of(config);
    bool pass = false;
    switch ((enum nfa_kind)x->kind) {
    case NFA_CHAR:
    case NFA_MATCH:
        return push_config(out, config);
    case NFA_SPLIT:
        if (push_config(&r->stack, CONFIG(x->other, 0, debts))) return ERR_NOMEM;
        pass = true;
        break;
    case NFA_START:
        pass = p->before == NFA_BEFORE_NONE;
        break;
    case NFA_END:
        pass = p->at_end;
        break;
    case NFA_WORD:
        pass = border_of_word(p);
        break;
    case NFA_NOT_WORD:
        pass = !border_of_word(p);
        break;
    case NFA_LOOK:
        return visit_look(r, x, debts, p, e);
    }
    return pass ? push_config(&r->stack, CONFIG(x->out, 0, debts)) : 0;
}

static bool was_visited(struct run *r, uint64_t config, struct configs *with_debts) {
    uint32_t node = node_of(config);
    if (!debts_of(config)) {
        bool seen = r->visited[node] == r->round;
        r->visited[node] = r->round;
        return seen;
    }
    int rc = spend_work(r->nfa, with_debts->n / 8);
    if (rc) r->d.failed = rc;
    for (uint32_t i = 0; i < with_debts->n; i++)
        if (with_debts->at[i] == config) return true;
    if (push_config(with_debts, config)) r->d.failed = ERR_NOMEM;
    return false;
}

/* The closure of the kernel: the configurations before a character, or at the match. */
static int close_over(struct run *r, const uint64_t *kernel, uint32_t n, const struct place *p,
                      struct configs *out, err *e) {
    out->n = r->stack.n = r->visited_debts.n = 0;
    r->round++;
    for (uint32_t i = n; i-- > 0;)
        if (push_config(&r->stack, kernel[i])) return ERR_NOMEM;
    while (r->stack.n) {
        uint64_t config = r->stack.at[--r->stack.n];
        if (was_visited(r, config, &r->visited_debts)) continue;
        int rc = r->d.failed ? r->d.failed : spend_work(r->nfa, 1);
        if (rc) return rc;
        if (config == CONFIG(r->nfa->any, 0, 0)) {
            /* Every text is accepted from here: no other configuration matters. */
            out->n = r->stack.n = r->visited_debts.n = 0;
            r->round++;
        }
        rc = visit_config(r, config, p, out, e);
        if (rc) return rc;
    }
    return r->d.failed;
}

/* ---- states ---- */

/* The draft's state for r->target, whose first 1 + n_behind words describe what precedes. */
static int intern_target(struct run *r, uint32_t *state) {
    uint32_t id, n = r->states.n;
    int rc = dfa_intern_add(&r->states, r->target.at, r->target.n, &id);
    if (rc) return rc;
    if (id == n && !dfa_draft_state(&r->d, false)) return r->d.failed;
    *state = id + 1;
    return 0;
}

static int step_config(struct run *r, uint64_t config, uint8_t byte, bool *between) {
    const struct nfa_node *x = &r->nfa->nodes.at[node_of(config)];
    uint32_t debts = debts_of(config), sub = sub_of(config);
    bool alive = true;
    if (x->kind != NFA_CHAR) return 0;
    const struct dfa *class = &r->nfa->classes.at[x->index];
    sub = dfa_step(class, sub ? sub : class->start, byte);
    if (!sub) return 0;
    int rc = debts ? debts_step(r, debts, byte, &debts, &alive) : 0;
    if (rc || !alive) return rc;
    *between = class->accept[sub];
    return push_config(&r->target,
                       *between ? CONFIG(x->out, 0, debts) : CONFIG(node_of(config), sub, debts));
}

static int step_class(struct run *r, uint32_t from, const struct configs *closed, uint32_t class) {
    uint32_t first = 1 + r->n_behind, to;
    uint8_t byte = r->byte_of[class];
    bool between = false;
    r->target.n = 0;
    for (uint32_t i = 0; i < first; i++)
        if (push_config(&r->target, r->kernel.at[i])) return ERR_NOMEM;
    int rc = spend_work(r->nfa, closed->n);
    for (uint32_t i = 0; i < closed->n && !rc; i++)
        rc = step_config(r, closed->at[i], byte, &between);
    if (rc || r->target.n == first) return rc;
    make_set(&r->target, first);
    for (uint32_t i = 0; i < r->n_behind; i++)
        r->target.at[1 + i] = dfa_step(&r->nfa->looks.at[r->behind[i]].made[NFA_BEFORE_NONE],
                                       (uint32_t)r->target.at[1 + i], byte);
    r->target.at[0] =
        between && r->has_words && r->is_word[class] ? NFA_BEFORE_WORD : NFA_BEFORE_OTHER;
    rc = intern_target(r, &to);
    if (!rc) dfa_draft_edge(&r->d, from, (uint8_t) class, to);
    return rc ? rc : r->d.failed;
}

/* May the text end in the state whose key is r->kernel? closed: its closure, not at the end. */
static int may_end(struct run *r, const struct configs *closed, const struct place *p, bool *yes,
                   err *e) {
    uint32_t first = 1 + r->n_behind;
    struct place end = *p;
    end.at_end = true;
    if (r->has_ends) {
        int rc = close_over(r, r->kernel.at + first, r->kernel.n - first, &end, &r->closed_word, e);
        if (rc) return rc;
        closed = &r->closed_word;
    }
    *yes = false;
    for (uint32_t i = 0; i < closed->n && !*yes; i++)
        *yes = r->nfa->nodes.at[node_of(closed->at[i])].kind == NFA_MATCH &&
               debts_paid(r, debts_of(closed->at[i]));
    return 0;
}

static int expand_state(struct run *r, uint32_t id, err *e) {
    uint32_t n, first = 1 + r->n_behind;
    const uint64_t *key = dfa_intern_key(&r->states, id, &n);
    r->kernel.n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (push_config(&r->kernel, key[i])) return ERR_NOMEM;
    struct place p = {(enum nfa_before)r->kernel.at[0], r->kernel.at + 1, false, false};
    const struct configs *closed = &r->closed, *closed_word = closed;
    int rc = 0;
    if (sub_of(r->kernel.at[first])) { /* within a character */
        r->closed.n = 0;
        for (uint32_t i = first; i < n && !rc; i++)
            rc = push_config(&r->closed, r->kernel.at[i]);
    } else {
        bool yes = false;
        rc = close_over(r, r->kernel.at + first, n - first, &p, &r->closed, e);
        if (!rc) rc = may_end(r, closed, &p, &yes, e);
        if (!rc) r->d.accept[id + 1] = yes;
        if (!rc && r->has_words) {
            p.word_after = true;
            closed_word = &r->closed_word;
            rc = close_over(r, r->kernel.at + first, n - first, &p, &r->closed_word, e);
        }
    }
    for (uint32_t c = 0; c < r->d.n_classes && !rc; c++)
        rc = step_class(r, id + 1, r->is_word[c] ? closed_word : closed, c);
    return rc;
}

/* ---- the run ---- */

/* Marks the nodes that are reachable from start, and which assertions are among them. */
static int survey_nodes(struct run *r, uint32_t start, enum nfa_before before, err *e) {
    const struct nfa *n = r->nfa;
    r->stack.n = 0;
    if (push_config(&r->stack, start)) return ERR_NOMEM;
    while (r->stack.n) {
        uint32_t i = (uint32_t)r->stack.at[--r->stack.n];
        const struct nfa_node *x = &n->nodes.at[i];
        if (r->reached[i]) continue;
        r->reached[i] = 1;
        bool border = x->kind == NFA_WORD || x->kind == NFA_NOT_WORD;
        /* Only this run knows the character before a look-ahead. */
        r->has_words =
            r->has_words || border || (x->kind == NFA_LOOK && n->looks.at[x->index].sees_before);
        r->has_ends = r->has_ends || border || x->kind == NFA_END;
        if (x->kind == NFA_LOOK && n->looks.at[x->index].behind) {
            uint32_t k = 0;
            while (k < r->n_behind && r->behind[k] != x->index)
                k++;
            if (k == r->n_behind) r->behind[r->n_behind++] = x->index;
        }
        if (x->kind != NFA_MATCH && push_config(&r->stack, x->out)) return ERR_NOMEM;
        if (x->kind == NFA_SPLIT && push_config(&r->stack, x->other)) return ERR_NOMEM;
    }
    if (r->n_behind && before != NFA_BEFORE_NONE)
        return err_set(e, ERR_UNSUPPORTED,
                       "a look-behind inside a look-ahead is supported only at the start");
    return 0;
}

/* Bytes that no class and no assertion distinguishes share a class of the draft. */
static void part_bytes(struct run *r) {
    const struct nfa *n = r->nfa;
    uint8_t *part = r->d.class_of;
    uint32_t n_parts = 1;
    memset(part, 0, 256);
    for (uint32_t k = 0; k <= n->classes.n; k++) {
        uint16_t seen[256] = {0};
        uint32_t found = 0;
        uint8_t refined[256];
        for (int b = 0; b < 256; b++) {
            unsigned own =
                k < n->classes.n ? n->classes.at[k].class_of[b] : (r->has_words && is_word_byte(b));
            uint16_t both = (uint16_t)(part[b] << 8 | own);
            uint32_t c = 0;
            while (c < found && seen[c] != both)
                c++;
            if (c == found) seen[found++] = both;
            refined[b] = (uint8_t)c;
        }
        memcpy(part, refined, 256);
        n_parts = found;
    }
    r->d.n_classes = n_parts;
    for (int b = 255; b >= 0; b--) {
        r->byte_of[part[b]] = (uint8_t)b;
        r->is_word[part[b]] = r->has_words && is_word_byte(b);
    }
}

static int make_states(struct run *r, uint32_t start, enum nfa_before before, err *e) {
    struct nfa *n = r->nfa;
    uint32_t slot, none;
    int rc = survey_nodes(r, start, before, e);
    if (!rc) rc = dfa_intern_add(&r->debts, NULL, 0, &none);
    for (uint32_t i = 0; i < r->n_behind && !rc; i++)
        rc = look_make(n, r->behind[i], NFA_BEFORE_NONE, &slot, e);
    if (rc) return rc;
    part_bytes(r);
    if (push_config(&r->target, before)) return ERR_NOMEM;
    for (uint32_t i = 0; i < r->n_behind; i++)
        if (push_config(&r->target, n->looks.at[r->behind[i]].made[NFA_BEFORE_NONE].start))
            return ERR_NOMEM;
    if (push_config(&r->target, CONFIG(start, 0, 0))) return ERR_NOMEM;
    rc = intern_target(r, &r->d.start);
    for (uint32_t id = 0; id < r->states.n && !rc; id++)
        rc = expand_state(r, id, e);
    return rc;
}

static int nfa_run(struct nfa *n, uint32_t start, enum nfa_before before, struct dfa *out, err *e) {
    struct run r = {.nfa = n};
    int rc = ERR_NOMEM;
    err_clear(e);
    dfa_draft_init(&r.d, n->budget);
    r.reached = mem_new(n->nodes.n, 1);
    r.visited = mem_new(n->nodes.n, sizeof *r.visited);
    r.behind = mem_new(n->looks.n, sizeof *r.behind);
    if (r.reached && r.visited && r.behind) rc = make_states(&r, start, before, e);
    struct configs *lists[] = {&r.stack,  &r.closed, &r.closed_word,  &r.target,
                               &r.kernel, &r.debt,   &r.visited_debts};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->at);
    free(r.reached);
    free(r.visited);
    free(r.behind);
    dfa_intern_fini(&r.states);
    dfa_intern_fini(&r.debts);
    if (!rc) return dfa_draft_finish(&r.d, out, e);
    dfa_draft_fini(&r.d);
    if (rc == ERR_UNSUPPORTED) return rc;
    return dfa_failure(rc, e);
}

int nfa_dfa(struct nfa *n, uint32_t start, struct dfa *out, err *e) {
    int rc = nfa_run(n, start, NFA_BEFORE_NONE, out, e);
    if (!rc) out->cost += (uint32_t)(n->work / WORK_PER_STATE);
    return rc;
}
