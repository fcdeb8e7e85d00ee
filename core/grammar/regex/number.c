/* number.c - automata of JSON numbers within bounds and of multiples: exact, by decimal digits of
 * any length. Owns only its drafts. Any thread. */
#include "core/base/mem.h"
#include "core/grammar/regex/dfa_int.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 20000 }; /* before and after a bound's point, zeros included */

/* Digits after the point and in the exponent are bounded, well above what a double needs (17 and
 * 3): otherwise a model that has written "20.000" tends to add zeros without end. */
static const char any_number[] = "-?(0|[1-9][0-9]*)(\\.[0-9]{1,24})?([eE][+-]?[0-9]{1,4})?";
static const char plain_number[] = "(0|-?[1-9][0-9]*)";
static const char whole_number[] = "-?(0|[1-9][0-9]*)(\\.0{1,3})?";

/* ---- literals ---- */

/* 0.d1d2d3... * 10^point; d1 and the last digit are not 0. Zero has no digits. */
struct decimal {
    bool negative;
    uint8_t *digits; /* (n) 0 to 9 */
    int32_t n, point;
};

static void decimal_fini(struct decimal *a) {
    free(a->digits);
    *a = (struct decimal){0};
}

/* Reads digits and the position of their point; moves *at past them. */
static void take_digits(struct decimal *a, const char **at, int64_t *point) {
    bool after_point = false;
    *point = 0;
    for (const char *s = *at;; s++) {
        if (*s == '.' && !after_point) {
            after_point = true;
        } else if (*s >= '0' && *s <= '9') {
            if (a->n || *s != '0') a->digits[a->n++] = (uint8_t)(*s - '0');
            /* The point moves right with each digit before it, left with each leading zero after
             * it. */
            if (!after_point && a->n)
                ++*point;
            else if (after_point && !a->n)
                --*point;
        } else {
            *at = s;
            break;
        }
    }
    while (a->n && !a->digits[a->n - 1])
        a->n--;
}

static int decimal_init(struct decimal *a, const char *literal, err *e) {
    const char *s = literal;
    size_t length = strlen(literal);
    int64_t point, power = 0;
    *a = (struct decimal){.negative = *s == '-'};
    if (length > (1u << 20)) return dfa_too_large(e);
    a->digits = mem_new(length, 1);
    if (!a->digits) return err_no_memory(e);
    s += *s == '-';
    const char *first = s;
    take_digits(a, &s, &point);
    bool wrong = *first < '0' || *first > '9';
    if (*s == 'e' || *s == 'E') {
        bool down = *++s == '-';
        s += *s == '-' || *s == '+';
        for (first = s; *s >= '0' && *s <= '9'; s++)
            if (power < (1 << 30)) power = 10 * power + (*s - '0');
        wrong = wrong || s == first;
        if (down) power = -power;
    }
    if (wrong || *s) {
        decimal_fini(a);
        return err_set(e, ERR_INVALID, "\"%.40s\" is not a number.", literal);
    }
    if (!a->n) return 0;
    point += power;
    if (point > MAX_DIGITS || point < -MAX_DIGITS || a->n > MAX_DIGITS) {
        decimal_fini(a);
        return err_set(e, ERR_TOO_LONG, "The number %.40s has more than %d digits.", literal,
                       (int)MAX_DIGITS);
    }
    a->point = (int32_t)point;
    return 0;
}

/* Digit i; digit 0 is that of 10^(point - 1). */
static int digit_at(const struct decimal *a, int32_t i) {
    return i >= 0 && i < a->n ? a->digits[i] : 0;
}

/* ---- comparing ---- */

enum { LESS = 1, EQUAL = 2, MORE = 4, EVERY = 7 };

static int reverse_relations(int mask) {
    return (mask & EQUAL) | (mask & LESS ? MORE : 0) | (mask & MORE ? LESS : 0);
}

static int compare_ints(int a, int b) {
    return a < b ? LESS : a > b ? MORE : EQUAL;
}

/* The relations (a mask) that the magnitude of a number with this sign may have to |bound| if the
 * number's relation to the bound must be in mask. *against_zero: to 0 instead of |bound|. */
static int mask_for_sign(const struct decimal *bound, bool negative, int mask, bool *against_zero) {
    *against_zero = true;
    if (!bound->n) return negative ? reverse_relations(mask) : mask;
    if (negative != bound->negative) return mask & (negative ? LESS : MORE) ? EVERY : 0;
    *against_zero = false;
    return negative ? reverse_relations(mask) : mask;
}

/* Index of a relation in arrays of three. */
static int slot_of(int relation) {
    return relation == LESS ? 0 : relation == EQUAL ? 1 : 2;
}

static const int relation_of[3] = {LESS, EQUAL, MORE};

static void add_edge(struct dfa_draft *d, uint32_t from, char c, uint32_t to) {
    dfa_draft_edge(d, from, d->class_of[(uint8_t)c], to);
}

static void add_edges(struct dfa_draft *d, uint32_t from, const char *bytes, uint32_t to) {
    for (; *bytes; bytes++)
        add_edge(d, from, *bytes, to);
}

static const char digits[] = "0123456789";

/* Fractions of numbers whose integer part equals a's: compared with a's digits from first on.
 * loose[r]: the state for digits once relation r is settled. */
struct fraction {
    const struct decimal *a;
    int32_t first;
    int mask;
    uint32_t loose[3], tails[3]; /* tails[r]: where 'e' leads with relation r; 0: not allowed */
};

static void add_tail(struct dfa_draft *d, const struct fraction *f, uint32_t from, int relation) {
    if (from && !d->failed) d->accept[from] = (f->mask & relation) != 0;
    add_edges(d, from, "eE", f->tails[slot_of(relation)]);
}

static uint32_t add_fraction(struct dfa_draft *d, const struct fraction *f) {
    int32_t n = f->a->n - f->first;
    uint32_t after_point = dfa_draft_state(d, false), at = after_point;
    if (n < 1) n = 1;
    for (int32_t i = 0; i <= n; i++) {
        uint32_t next = i < n ? dfa_draft_state(d, false) : at;
        int own = digit_at(f->a, f->first + i);
        if (i) add_tail(d, f, at, f->first + i < f->a->n ? LESS : EQUAL);
        for (int c = 0; c < 10; c++) {
            int r = compare_ints(c, own);
            add_edge(d, at, digits[c], r == EQUAL ? next : f->loose[slot_of(r)]);
        }
        at = next;
    }
    return after_point;
}

/* Settled relations: any digits follow, 'e' leads to tails. loose_point[r]: state after the point.
 */
static void add_loose(struct dfa_draft *d, struct fraction *f, uint32_t loose_point[3]) {
    for (int r = 0; r < 3; r++) {
        f->loose[r] = dfa_draft_state(d, false);
        loose_point[r] = dfa_draft_state(d, false);
        add_edges(d, f->loose[r], digits, f->loose[r]);
        add_edges(d, loose_point[r], digits, f->loose[r]);
        add_tail(d, f, f->loose[r], relation_of[r]);
    }
}

/* ---- plain numbers ---- */

/* 'e' and any exponent, which do not change the relation to zero. */
static void add_any_exponents(struct dfa_draft *d, struct fraction *f) {
    for (int r = 0; r < 3; r++) {
        uint32_t e = dfa_draft_state(d, false), sign = dfa_draft_state(d, false);
        uint32_t power = dfa_draft_state(d, (f->mask & relation_of[r]) != 0);
        add_edges(d, e, "+-", sign);
        add_edges(d, e, digits, power);
        add_edges(d, sign, digits, power);
        add_edges(d, power, digits, power);
        f->tails[r] = e;
    }
}

/* Adds, from state from, the unsigned texts whose relation to |a| is in mask. */
static void add_magnitude(struct dfa_draft *d, uint32_t from, const struct decimal *a, int mask) {
    int32_t k = a->n && a->point > 0 ? a->point : 1; /* digits before the point */
    int32_t first = a->point > 0 ? 0 : a->point - 1; /* index of the first of them */
    struct fraction f = {.a = a, .first = first + k, .mask = mask};
    uint32_t loose_point[3], at[3] = {from, from, from}, longer;
    if (!a->n) f.first = 0;
    if (!a->n) add_any_exponents(d, &f);
    add_loose(d, &f, loose_point);
    uint32_t equal_point = add_fraction(d, &f);
    int at_equal = f.first < a->n ? LESS : EQUAL; /* the text ends after equal digits */
    longer = dfa_draft_state(d, false);
    add_tail(d, &f, longer, MORE);
    add_edges(d, longer, digits, longer);
    add_edge(d, longer, '.', loose_point[2]);
    for (int32_t i = 0; i < k; i++) {
        uint32_t next[3];
        int own = digit_at(a, first + i);
        for (int r = 0; r < 3; r++) {
            int ended = i + 1 < k ? LESS : relation_of[r];
            next[r] = dfa_draft_state(d, false);
            add_edge(d, next[r], '.', ended == EQUAL ? equal_point : loose_point[slot_of(ended)]);
            add_tail(d, &f, next[r], ended == EQUAL ? at_equal : ended);
        }
        for (int r = 0; r < (i ? 3 : 1); r++)
            for (int c = i ? 0 : 1; c < 10; c++)
                add_edge(d, at[r], digits[c],
                         next[i && r != 1 ? r : slot_of(compare_ints(c, own))]);
        memcpy(at, next, sizeof at);
    }
    for (int r = 0; r < 3; r++)
        add_edges(d, at[r], digits, longer);
    /* A leading zero is the only digit before the point. */
    bool below_one = k == 1 && digit_at(a, first) == 0;
    uint32_t zero = dfa_draft_state(d, false);
    add_edge(d, from, '0', zero);
    add_edge(d, zero, '.', below_one ? equal_point : loose_point[0]);
    add_tail(d, &f, zero, below_one ? at_equal : LESS);
}

/* ---- with exponents ---- */

/* Adds the accepted exponents: the relation of the power to a's decides; if they are equal, the
 * relation of the digits before. Returns the state after 'e'. */
static uint32_t add_exponent(struct dfa_draft *d, int32_t power, int relation, int mask) {
    char own[16];
    uint8_t own_digits[16];
    int n = 0;
    for (uint32_t p = (uint32_t)abs(power); p; p /= 10)
        own[n++] = (char)(p % 10);
    for (int i = 0; i < n; i++)
        own_digits[i] = (uint8_t)own[n - 1 - i];
    struct decimal bound = {power < 0, own_digits, n, n};
    /* the mask of the number's relations as a mask of the power's */
    int powers = (mask & (LESS | MORE)) | (mask & relation ? EQUAL : 0);
    uint32_t start = dfa_draft_state(d, false);
    for (int negative = 0; negative < 2; negative++) {
        bool zero;
        int m = mask_for_sign(&bound, negative, powers, &zero);
        int k = zero ? 0 : n;
        uint32_t sign = dfa_draft_state(d, false);
        uint32_t zeros = dfa_draft_state(d, (m & (k ? LESS : EQUAL)) != 0);
        uint32_t longer = dfa_draft_state(d, (m & MORE) != 0), at[3] = {zeros, 0, 0};
        add_edge(d, start, negative ? '-' : '+', sign);
        add_edges(d, longer, digits, longer);
        add_edge(d, zeros, '0', zeros);
        add_edge(d, sign, '0', zeros);
        if (!negative) add_edge(d, start, '0', zeros);
        for (int i = 0; i <= k; i++) {
            uint32_t next[3];
            for (int r = 0; r < 3; r++)
                next[r] = i == k
                              ? longer
                              : dfa_draft_state(d, (m & (i + 1 < k ? LESS : relation_of[r])) != 0);
            for (int r = 0; r < (i ? 3 : 1); r++)
                for (int c = i ? 0 : 1; c < 10; c++) {
                    uint32_t to =
                        next[i && r != 1 ? r : slot_of(compare_ints(c, i < k ? own_digits[i] : 0))];
                    add_edge(d, at[r], digits[c], to);
                    if (!i) add_edge(d, sign, digits[c], to);
                    if (!i && !negative) add_edge(d, start, digits[c], to);
                }
            memcpy(at, next, sizeof at);
        }
    }
    return start;
}

/* As add_magnitude, for texts with one non-zero digit before the point and an exponent, as programs
 * print very large and very small numbers. */
static void add_scientific(struct dfa_draft *d, uint32_t from, const struct decimal *a, int mask) {
    struct fraction f = {.a = a, .first = 1};
    uint32_t loose_point[3];
    for (int r = 0; r < 3; r++)
        f.tails[r] = add_exponent(d, a->point - 1, relation_of[r], mask);
    add_loose(d, &f, loose_point);
    uint32_t equal_point = add_fraction(d, &f);
    for (int r = 0; r < 3; r++) {
        uint32_t one = dfa_draft_state(d, false);
        add_edge(d, one, '.', r == 1 ? equal_point : loose_point[r]);
        add_tail(d, &f, one, r == 1 && a->n > 1 ? LESS : relation_of[r]);
        for (int c = 1; c < 10; c++)
            if (slot_of(compare_ints(c, a->digits[0])) == r) add_edge(d, from, digits[c], one);
    }
}

/* ---- bounds ---- */

static void number_draft(struct dfa_draft *d, struct work *w) {
    bool used[256] = {false};
    for (const char *c = "0123456789+-.eE"; *c; c++)
        used[(uint8_t)*c] = true;
    dfa_draft_init(d, w);
    dfa_draft_use_bytes(d, used);
    d->start = dfa_draft_state(d, false);
}

/* Makes the automaton of numbers whose relation to the bound is in mask. */
static int make_bounded(const struct decimal *bound, int mask, struct work *w, struct dfa *out,
                        err *e) {
    static const struct decimal zero = {0};
    struct dfa plain = {0}, scientific = {0};
    struct dfa_draft p, s;
    number_draft(&p, w);
    number_draft(&s, w);
    for (int negative = 0; negative < 2; negative++) {
        bool against_zero;
        int m = mask_for_sign(bound, negative, mask, &against_zero);
        uint32_t from_p = p.start, from_s = s.start;
        if (negative) {
            add_edge(&p, p.start, '-', from_p = dfa_draft_state(&p, false));
            add_edge(&s, s.start, '-', from_s = dfa_draft_state(&s, false));
        }
        add_magnitude(&p, from_p, against_zero ? &zero : bound, m);
        if (!against_zero) add_scientific(&s, from_s, bound, m);
    }
    int rc = dfa_draft_finish(&p, &plain, e);
    int rc_s = dfa_draft_finish(&s, &scientific, rc ? NULL : e);
    if (!rc && !(rc = rc_s)) rc = dfa_combine(&plain, &scientific, DFA_OR, w, out, e);
    if (!rc) out->cost += plain.cost + scientific.cost;
    dfa_fini(&plain);
    dfa_fini(&scientific);
    return rc;
}

/* ---- multiples ---- */

/* Remainders, modulo step, of 10^places times the number read so far. */
struct remainders {
    uint32_t step, places;
    uint32_t first; /* state of remainder 0 before the point; places + 1 rows of step states */
    uint32_t zeros; /* state: only zeros may follow */
};

static uint32_t remainder_state(const struct remainders *m, uint32_t place, uint32_t remainder) {
    return m->first + place * m->step + remainder;
}

/* Row place: after that many digits after the point; row 0: before the point. */
static void add_row(struct dfa_draft *d, const struct remainders *m, uint32_t place) {
    for (uint32_t r = 0; r < m->step && dfa_draft_spend(d, 1 + m->places); r++) {
        uint32_t at = remainder_state(m, place, r), point;
        uint64_t rest = r;
        for (uint32_t i = place; i < m->places; i++)
            rest = rest * 10 % m->step;
        d->accept[at] = rest == 0;
        if (place == 0) {
            for (uint32_t c = 0; c < 10; c++)
                add_edge(d, at, digits[c],
                         remainder_state(m, 0, (uint32_t)((10 * (uint64_t)r + c) % m->step)));
            add_edge(d, at, '.', point = dfa_draft_state(d, false));
        } else {
            point = at;
        }
        for (uint32_t c = 0; c < 10; c++) {
            uint32_t next = (uint32_t)((10 * (uint64_t)r + c) % m->step);
            if (place < m->places)
                add_edge(d, point, digits[c], remainder_state(m, place + 1, next));
            else if (c == 0 && r == 0)
                add_edge(d, point, '0', m->zeros);
        }
    }
}

static int make_multiples(const struct decimal *step, struct work *w, struct dfa *out, err *e) {
    struct remainders m = {0};
    uint64_t value = 0;
    int32_t places = step->n > step->point ? step->n - step->point : 0;
    for (int32_t i = 0; i < step->point + places && value <= GRAMMAR_MAX_STATES; i++)
        value = 10 * value + (uint64_t)digit_at(step, i);
    if (!step->n || step->negative)
        return err_set(e, ERR_INVALID, "multipleOf must be greater than 0.");
    if (value * ((uint64_t)places + 2) > GRAMMAR_MAX_STATES)
        return err_set(e, ERR_UNSUPPORTED, "multipleOf has too many digits to be enforced.");
    m.step = (uint32_t)value;
    m.places = (uint32_t)places;
    struct dfa_draft d;
    number_draft(&d, w);
    uint32_t minus = dfa_draft_state(&d, false), zero = dfa_draft_state(&d, true);
    uint32_t zero_point = dfa_draft_state(&d, false);
    m.zeros = dfa_draft_state(&d, true);
    add_edge(&d, m.zeros, '0', m.zeros);
    m.first = d.n_states;
    for (uint64_t i = 0; i < value * ((uint64_t)places + 1) && !d.failed; i++)
        dfa_draft_state(&d, false);
    for (uint32_t place = 0; place <= m.places; place++)
        add_row(&d, &m, place);
    add_edge(&d, d.start, '-', minus);
    add_edge(&d, d.start, '0', zero);
    add_edge(&d, minus, '0', zero);
    add_edge(&d, zero, '.', zero_point);
    for (uint32_t c = 0; c < 10; c++) {
        if (c) add_edge(&d, d.start, digits[c], remainder_state(&m, 0, c % m.step));
        if (c) add_edge(&d, minus, digits[c], remainder_state(&m, 0, c % m.step));
        if (m.places)
            add_edge(&d, zero_point, digits[c], remainder_state(&m, 1, c % m.step));
        else if (!c)
            add_edge(&d, zero_point, '0', m.zeros);
    }
    return dfa_draft_finish(&d, out, e);
}

/* ---- numbers ---- */

/* Intersects d with other, which is freed. */
static int intersect_with(struct dfa *d, struct dfa *other, struct work *w, err *e) {
    struct dfa both = {0};
    int rc = dfa_combine(d, other, DFA_AND, w, &both, e);
    both.cost += d->cost + other->cost;
    dfa_fini(d);
    dfa_fini(other);
    *d = both;
    return rc;
}

static int narrow_to_bound(struct dfa *d, const char *literal, int mask, struct work *w, err *e) {
    struct decimal bound;
    struct dfa within = {0};
    int rc = decimal_init(&bound, literal, e);
    if (rc) return rc;
    rc = make_bounded(&bound, mask, w, &within, e);
    decimal_fini(&bound);
    return rc ? rc : intersect_with(d, &within, w, e);
}

static int narrow_to_multiples(struct dfa *d, const char *literal, struct work *w, err *e) {
    struct decimal step;
    struct dfa within = {0};
    int rc = decimal_init(&step, literal, e);
    if (rc) return rc;
    rc = make_multiples(&step, w, &within, e);
    decimal_fini(&step);
    return rc ? rc : intersect_with(d, &within, w, e);
}

int dfa_from_number(const struct dfa_number *spec, struct work *w, struct dfa *out, err *e) {
    struct dfa d = {0};
    const char *all = spec->plain ? plain_number : spec->integer ? whole_number : any_number;
    int rc = dfa_from_regex(all, 0, w, &d, e);
    bool one = spec->min && spec->max && strcmp(spec->min, spec->max) == 0 &&
               !spec->exclusive_min && !spec->exclusive_max;
    if (!rc && one) rc = narrow_to_bound(&d, spec->min, EQUAL, w, e);
    if (!rc && spec->min && !one)
        rc = narrow_to_bound(&d, spec->min, spec->exclusive_min ? MORE : MORE | EQUAL, w, e);
    if (!rc && spec->max && !one)
        rc = narrow_to_bound(&d, spec->max, spec->exclusive_max ? LESS : LESS | EQUAL, w, e);
    if (!rc && spec->multiple_of) rc = narrow_to_multiples(&d, spec->multiple_of, w, e);
    if (rc) {
        dfa_fini(&d);
        return rc;
    }
    *out = d;
    return 0;
}
