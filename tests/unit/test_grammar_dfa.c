/* Automata from random drafts, words and stops, compared with naive results for all short texts;
 * the finished form must be minimal, trimmed and equal for equal languages. */
#include "check.h"
#include "core/grammar/regex/dfa_int.h"
#include "tests/support/rng.h"

#include <stdlib.h>

static struct rng rng = {88172645463325252u};

/* ---- invariants of finished automata ---- */

/* Moore's algorithm, quadratic: does some text distinguish each pair of live states? */
static bool is_minimal(const struct dfa *d) {
    uint32_t n = d->n_states, n_parts = 1;
    uint32_t *part = calloc(n, sizeof *part), *refined = calloc(n, sizeof *refined);
    for (;;) {
        uint32_t found = 0;
        for (uint32_t s = 0; s < n; s++) {
            uint32_t t = 0;
            for (; t < s; t++) {
                bool same = d->accept[s] == d->accept[t] && part[s] == part[t];
                for (uint32_t c = 0; c < d->n_classes && same; c++)
                    same = part[d->next[(size_t)s * d->n_classes + c]] ==
                           part[d->next[(size_t)t * d->n_classes + c]];
                if (same) break;
            }
            refined[s] = t < s ? refined[t] : found++;
        }
        bool done = found == n_parts;
        memcpy(part, refined, n * sizeof *part);
        n_parts = found;
        if (done) break;
    }
    free(part);
    free(refined);
    return n_parts == n;
}

static bool is_reached_in_order(const struct dfa *d) {
    uint32_t seen = 1;
    if (!d->start) return d->n_states == 1;
    if (d->start != 1) return false;
    for (uint32_t s = 1; s < d->n_states; s++) {
        if (s > seen) return false;
        for (uint32_t c = 0; c < d->n_classes; c++) {
            uint32_t to = d->next[(size_t)s * d->n_classes + c];
            if (to >= d->n_states || to > seen + 1) return false;
            if (to == seen + 1) seen++;
        }
    }
    return true;
}

static bool classes_differ(const struct dfa *d) {
    uint32_t n = 0;
    for (int b = 0; b < 256; b++) {
        if (d->class_of[b] > n) return false;
        n += d->class_of[b] == n;
    }
    for (uint32_t c = 0; c < d->n_classes; c++)
        for (uint32_t k = 0; k < c; k++) {
            uint32_t s = 0;
            while (s < d->n_states &&
                   d->next[(size_t)s * d->n_classes + c] == d->next[(size_t)s * d->n_classes + k])
                s++;
            if (s == d->n_states) return false;
        }
    return n == d->n_classes;
}

static void check_form(const struct dfa *d) {
    CHECK(!d->accept[0]);
    for (uint32_t c = 0; c < d->n_classes; c++)
        CHECK(d->next[c] == 0);
    CHECK(is_reached_in_order(d));
    CHECK(classes_differ(d));
    if (d->n_states < 300) CHECK(is_minimal(d));
}

static bool same_dfa(const struct dfa *a, const struct dfa *b) {
    return a->n_states == b->n_states && a->start == b->start && a->n_classes == b->n_classes &&
           memcmp(a->class_of, b->class_of, sizeof a->class_of) == 0 &&
           memcmp(a->accept, b->accept, a->n_states) == 0 &&
           memcmp(a->next, b->next, (size_t)a->n_states * a->n_classes * sizeof *a->next) == 0;
}

/* ---- random automata ---- */

enum { N_LETTERS = 3, LONGEST = 7 };

/* A random automaton over "abc", with its language by simulation of the draft itself. */
struct sample {
    uint32_t next[12][N_LETTERS];
    bool accept[12];
    struct dfa dfa;
};

static void sample_init(struct sample *s) {
    struct dfa_draft d;
    bool used[256] = {false};
    err e;
    uint32_t n = 1 + rng_below(&rng, 11);
    used['a'] = used['b'] = used['c'] = true;
    memset(s, 0, sizeof *s);
    dfa_draft_init(&d, NULL);
    dfa_draft_use_bytes(&d, used);
    for (uint32_t i = 1; i <= n; i++) {
        s->accept[i] = rng_below(&rng, 4) == 0;
        CHECK(dfa_draft_state(&d, s->accept[i]) == i);
    }
    for (uint32_t i = 1; i <= n; i++)
        for (uint32_t c = 0; c < N_LETTERS; c++) {
            s->next[i][c] = rng_below(&rng, 3) ? 1 + rng_below(&rng, n) : 0;
            dfa_draft_edge(&d, i, d.class_of['a' + c], s->next[i][c]);
        }
    d.start = 1;
    CHECK(dfa_draft_finish(&d, &s->dfa, &e) == 0);
    check_form(&s->dfa);
}

static bool sample_accepts(const struct sample *s, const char *text, size_t n) {
    uint32_t at = 1;
    for (size_t i = 0; i < n; i++)
        at = s->next[at][text[i] - 'a'];
    return s->accept[at];
}

/* Text i of all texts over "abc" up to LONGEST letters. false: there are no more. */
static bool nth_text(uint32_t i, char *text, size_t *n) {
    uint32_t of_length = 1;
    for (*n = 0; i >= of_length; of_length *= N_LETTERS, ++*n)
        i -= of_length;
    for (size_t k = 0; k < *n; k++, i /= N_LETTERS)
        text[k] = (char)('a' + i % N_LETTERS);
    return *n <= LONGEST;
}

static void drafts(void) {
    for (int round = 0; round < 500; round++) {
        struct sample s;
        char text[LONGEST + 1];
        size_t n;
        sample_init(&s);
        for (uint32_t i = 0; nth_text(i, text, &n); i++)
            CHECK(dfa_accepts(&s.dfa, text, n) == sample_accepts(&s, text, n));
        CHECK(!dfa_accepts(&s.dfa, "d", 1));
        dfa_fini(&s.dfa);
    }
}

static void combinations(void) {
    for (int round = 0; round < 400; round++) {
        struct sample a, b;
        struct dfa c[3];
        char text[LONGEST + 1];
        size_t n;
        err e;
        sample_init(&a);
        sample_init(&b);
        for (int op = 0; op < 3; op++) {
            CHECK(dfa_combine(&a.dfa, &b.dfa, (enum dfa_op)op, NULL, &c[op], &e) == 0);
            check_form(&c[op]);
        }
        for (uint32_t i = 0; nth_text(i, text, &n); i++) {
            bool in_a = sample_accepts(&a, text, n), in_b = sample_accepts(&b, text, n);
            CHECK(dfa_accepts(&c[DFA_AND], text, n) == (in_a && in_b));
            CHECK(dfa_accepts(&c[DFA_OR], text, n) == (in_a || in_b));
            CHECK(dfa_accepts(&c[DFA_MINUS], text, n) == (in_a && !in_b));
        }
        /* a = (a and b) or (a minus b), struct for struct. */
        struct dfa whole, nothing;
        CHECK(dfa_combine(&c[DFA_AND], &c[DFA_MINUS], DFA_OR, NULL, &whole, &e) == 0);
        CHECK(same_dfa(&whole, &a.dfa));
        CHECK(dfa_combine(&a.dfa, &whole, DFA_MINUS, NULL, &nothing, &e) == 0);
        CHECK(dfa_is_empty(&nothing) && nothing.n_states == 1 && nothing.n_classes == 1);
        for (int op = 0; op < 3; op++)
            dfa_fini(&c[op]);
        dfa_fini(&whole);
        dfa_fini(&nothing);
        dfa_fini(&a.dfa);
        dfa_fini(&b.dfa);
    }
}

/* ---- words ---- */

struct listed {
    struct dfa_word *words;
    size_t n, at;
};

static int check_next(void *arg, const char *bytes, size_t n) {
    struct listed *l = arg;
    CHECK(l->at < l->n);
    if (l->at >= l->n) return -1;
    const struct dfa_word *w = &l->words[l->at++];
    CHECK(w->n == n && memcmp(w->bytes, bytes, n) == 0);
    return 0;
}

static int by_text(const void *a, const void *b) {
    const struct dfa_word *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return order ? order : (int)x->n - (int)y->n;
}

static int stop_at_once(void *arg, const char *bytes, size_t n) {
    (void)arg, (void)bytes, (void)n;
    return -77;
}

static void words(void) {
    enum { MANY = 60, LONG = 6 };
    static char text[MANY][LONG];
    for (int round = 0; round < 300; round++) {
        struct dfa_word w[MANY];
        size_t n = rng_below(&rng, MANY), n_distinct = 0;
        struct dfa d;
        err e;
        for (size_t i = 0; i < n; i++) {
            w[i] = (struct dfa_word){text[i], rng_below(&rng, LONG)};
            for (size_t k = 0; k < w[i].n; k++)
                text[i][k] =
                    (char)(rng_below(&rng, 8) ? 'a' + rng_below(&rng, 2) : rng_below(&rng, 256));
        }
        CHECK(dfa_from_words(w, n, NULL, &d, &e) == 0);
        check_form(&d);
        qsort(w, n, sizeof *w, by_text);
        for (size_t i = 0; i < n; i++)
            if (!i || by_text(&w[i], &w[i - 1])) w[n_distinct++] = w[i];
        CHECK(dfa_count(&d, 1000) == n_distinct);
        CHECK(dfa_count(&d, 3) == (n_distinct < 3 ? n_distinct : 3));
        struct listed l = {w, n_distinct, 0};
        CHECK(dfa_each(&d, MANY, check_next, &l) == 0);
        CHECK(l.at == n_distinct);
        if (n_distinct) {
            CHECK(dfa_each(&d, MANY, stop_at_once, NULL) == -77);
            CHECK(dfa_each(&d, (uint32_t)n_distinct - 1, check_next, &l) == ERR_TOO_LONG);
        }
        dfa_fini(&d);
    }
}

static void infinite_languages_have_no_count(void) {
    struct dfa d;
    err e;
    CHECK(dfa_from_until(NULL, 0, NULL, &d, &e) == 0);
    check_form(&d);
    CHECK(d.n_states == 2 && d.n_classes == 1);
    CHECK(dfa_count(&d, 5) == 5 && dfa_count(&d, UINT32_MAX) == UINT32_MAX);
    CHECK(dfa_each(&d, 1000, stop_at_once, NULL) == ERR_TOO_LONG);
    CHECK(dfa_each(&d, UINT32_MAX, stop_at_once, NULL) == ERR_TOO_LONG);
    dfa_fini(&d);
}

/* ---- stops ---- */

static bool contains(const char *text, size_t n, const char *stop) {
    size_t len = strlen(stop);
    for (size_t i = 0; i + len <= n; i++)
        if (memcmp(text + i, stop, len) == 0) return true;
    return false;
}

static void until(void) {
    for (int round = 0; round < 300; round++) {
        char stop[4][5];
        const char *stops[4];
        size_t n_stops = rng_below(&rng, 5), n;
        struct dfa d;
        char text[LONGEST + 1];
        err e;
        for (size_t i = 0; i < n_stops; i++) {
            size_t len = 1 + rng_below(&rng, 4);
            for (size_t k = 0; k < len; k++)
                stop[i][k] = (char)('a' + rng_below(&rng, 2));
            stop[i][len] = 0;
            stops[i] = stop[i];
        }
        CHECK(dfa_from_until(stops, n_stops, NULL, &d, &e) == 0);
        check_form(&d);
        for (uint32_t i = 0; nth_text(i, text, &n); i++) {
            bool clean = true;
            for (size_t k = 0; k < n_stops; k++)
                clean = clean && !contains(text, n, stops[k]);
            CHECK(dfa_accepts(&d, text, n) == clean);
        }
        CHECK(dfa_accepts(&d, "\xff\x00\x80", 3));
        dfa_fini(&d);
    }
}

static void until_nothing(void) {
    const char *stop = "";
    struct dfa d;
    err e;
    CHECK(dfa_from_until(&stop, 1, NULL, &d, &e) == 0); /* it occurs in every text */
    CHECK(dfa_is_empty(&d));
    dfa_fini(&d);
}

static void bounds(void) {
    size_t n = GRAMMAR_MAX_STATES + 8;
    char *text = malloc(n);
    struct dfa_word word = {text, n};
    struct dfa d = {0};
    err e;
    memset(text, 'x', n);
    text[n - 1] = 0;
    const char *stop = text;
    CHECK(dfa_from_words(&word, 1, NULL, &d, &e) == ERR_TOO_LONG && !d.next);
    CHECK(dfa_from_until(&stop, 1, NULL, &d, &e) == ERR_TOO_LONG && !d.next);
    word.n = 100000;
    CHECK(dfa_from_words(&word, 1, NULL, &d, &e) == 0);
    CHECK(d.n_states == 100002 && d.n_classes == 2);
    CHECK(dfa_count(&d, 9) == 1);
    dfa_fini(&d);
    free(text);
}

int main(void) {
    RUN(drafts);
    RUN(combinations);
    RUN(words);
    RUN(infinite_languages_have_no_count);
    RUN(until);
    RUN(until_nothing);
    RUN(bounds);
    return check_done();
}
