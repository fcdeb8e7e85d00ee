/* schema/takes.c - which alternatives take a value at all, by what is known so far of the sets in
 * them; how many different scalars there are. */
#include "core/grammar/schema/schema_int.h"

enum { ENDLESS = 1 << 20 /* different values are as good as any number of them */ };

/* ---- arrays ---- */

static bool takes(const struct s_ctx *c, uint32_t set) {
    return set != GRAMMAR_NONE && c->sets.at[set].takes;
}

static const struct s_place *place_at(const struct s_array *a, uint32_t i) {
    return i < a->n ? &a->places[i] : &a->more;
}

/* Is there a number of items with enough, and not too many, that contains is about? */
static bool contains_fit(const struct s_ctx *c, const struct s_array *a, uint32_t max) {
    if (a->min_contains == 0 && a->max_contains == GRAMMAR_UNLIMITED) return true;
    uint64_t can = 0, must = 0;
    for (uint64_t n = 0; n <= max; n++) {
        if (n >= a->min && can >= a->min_contains && must <= a->max_contains) return true;
        if (must > a->max_contains) return false;
        const struct s_place *p = place_at(a, (uint32_t)n);
        uint64_t step = 1;
        if (n >= a->n) { /* all places from here on are alike: go straight to the length */
            if (can < a->min_contains && !takes(c, p->contains)) return false;
            step = n < a->min ? a->min - n : 0;
            if (can < a->min_contains && step < a->min_contains - can) step = a->min_contains - can;
            if (!step || n + step > max) return false;
            n += step - 1;
        }
        can += takes(c, p->contains) ? step : 0;
        must += takes(c, p->rest) ? 0 : step;
    }
    return false;
}

/* Items that differ: all places must draw on one and the same supply, or on endless ones. */
static int limit_unique(struct s_ctx *c, const struct s_array *a, uint32_t *max) {
    uint32_t used = *max < a->n ? *max : a->n, n = 0, least = *max < ENDLESS ? *max : ENDLESS;
    bool same = true;
    for (uint32_t i = 0; i <= used && i < *max; i++) {
        const struct s_place *p = place_at(a, i);
        int rc = s_count_scalars(c, p->value, least, &n);
        if (rc) return rc;
        if (n == GRAMMAR_NONE)
            return s_fail(c, ERR_UNSUPPORTED, a->unique_node,
                          "can be enforced where all items are null, booleans, numbers or strings; "
                          "here they may be arrays or objects: leave it out");
        same = same && p->value == place_at(a, 0)->value;
        if (n < least) {
            if (!same && n < a->n + 1 + a->min) break;
            least = n;
        }
    }
    if (!same && least < ENDLESS && least < *max)
        return s_fail(c, ERR_UNSUPPORTED, a->unique_node,
                      "beside places that have few values each cannot be enforced: leave it out");
    if (least < ENDLESS) *max = least;
    return 0;
}

int s_array_takes(struct s_ctx *c, const struct s_array *a, uint32_t *max, bool *yes) {
    int rc = 0;
    *max = a->max;
    for (uint32_t i = 0; i <= a->n && i < *max; i++)
        if (!takes(c, place_at(a, i)->value)) *max = i;
    if (a->unique && *max > 1) rc = limit_unique(c, a, max);
    *yes = !rc && *max >= a->min && contains_fit(c, a, *max);
    return rc;
}

/* ---- objects ---- */

int s_object_takes(struct s_ctx *c, const struct s_object *o, bool *takes) {
    uint64_t n = 0;
    *takes = false;
    for (uint32_t i = 0; i < o->n_properties; i++) {
        bool may = c->sets.at[o->properties[i].set].takes;
        if (o->properties[i].required && !may) return 0;
        n += may;
    }
    for (uint32_t i = 0; i < o->n_keys && n < o->min; i++) {
        const struct dfa *d = s_dfa(c, o->keys[i].dfa);
        if (!c->sets.at[o->keys[i].set].takes) continue;
        int rc = s_work(c, dfa_size(d), 0);
        if (rc) return rc;
        n += dfa_count(d, o->min - (uint32_t)n);
    }
    *takes = n >= o->min;
    return 0;
}

/* ---- alternatives ---- */

int s_alt_takes(struct s_ctx *c, const struct s_alt *alt, bool *takes) {
    uint32_t max;
    *takes = true; /* empty automata have been left out */
    uint64_t n = alt->kind == G_ALT_ARRAY    ? alt->array->n
                 : alt->kind == G_ALT_OBJECT ? alt->object->n_properties
                                             : 0;
    int rc = s_work(c, 1 + n / 4, 0);
    if (rc) return rc;
    if (alt->kind == G_ALT_ARRAY) return s_array_takes(c, alt->array, &max, takes);
    if (alt->kind == G_ALT_OBJECT) return s_object_takes(c, alt->object, takes);
    return 0;
}

int s_count_scalars(struct s_ctx *c, uint32_t set, uint32_t limit, uint32_t *n) {
    static const char *const once =
        "^(null|true|false|0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\\.[0-9]*[1-9])$";
    uint64_t sum = 0;
    *n = 0;
    for (const struct s_alt *a = c->sets.at[set].alts; a; a = a->next) {
        uint32_t dfa = a->dfa;
        bool takes;
        int rc = 0;
        if (a->kind == G_ALT_ARRAY || a->kind == G_ALT_OBJECT) {
            rc = s_alt_takes(c, a, &takes);
            if (!rc && takes) *n = GRAMMAR_NONE;
            if (rc || takes) return rc;
            continue;
        }
        if (a->kind == G_ALT_TEXT) { /* one text of each number */
            uint32_t plain;
            rc = s_pattern(c, once, 0, &plain);
            if (!rc) rc = s_combine(c, dfa, plain, DFA_AND, &dfa);
        } else if (dfa == GRAMMAR_NONE) {
            rc = a->max_len < 4 ? s_lengths(c, a->min_len, a->max_len, &dfa) : 0;
        }
        if (rc) return rc;
        if (dfa != GRAMMAR_NONE) rc = s_work(c, dfa_size(s_dfa(c, dfa)), 0);
        if (rc) return rc;
        sum += dfa == GRAMMAR_NONE ? limit : dfa_count(s_dfa(c, dfa), limit);
    }
    *n = sum < limit ? (uint32_t)sum : limit;
    return 0;
}
