/* schema/takes.c - which alternatives accept any value, given what is known so far of the sets
 * within them; the number of different scalars. */
#include "core/grammar/schema/schema_int.h"

enum { ENDLESS = 1 << 20 /* this many different values count as infinitely many */ };

/* ---- arrays ---- */

static bool set_takes(const struct s_ctx *c, uint32_t set) {
    return set != GRAMMAR_NONE && c->sets.at[set].takes;
}

static const struct s_place *place_at(const struct s_array *a, uint32_t i) {
    return i < a->n ? &a->places[i] : &a->more;
}

/* Is there a length for which the number of matches of contains can be within its bounds? */
static bool contains_fits(const struct s_ctx *c, const struct s_array *a, uint32_t max) {
    if (a->min_contains == 0 && a->max_contains == GRAMMAR_UNLIMITED) return true;
    uint64_t can = 0, must = 0;
    for (uint64_t n = 0; n <= max; n++) {
        if (n >= a->min && can >= a->min_contains && must <= a->max_contains) return true;
        if (must > a->max_contains) return false;
        const struct s_place *p = place_at(a, (uint32_t)n);
        uint64_t step = 1;
        if (n >= a->n) { /* all further positions are alike: go straight to the length */
            if (can < a->min_contains && !set_takes(c, p->contains)) return false;
            step = n < a->min ? a->min - n : 0;
            if (can < a->min_contains && step < a->min_contains - can) step = a->min_contains - can;
            if (!step || n + step > max) return false;
            n += step - 1;
        }
        can += set_takes(c, p->contains) ? step : 0;
        must += set_takes(c, p->rest) ? 0 : step;
    }
    return false;
}

/* uniqueItems: bounds the length by the number of different values. All positions must have the
 * same set, or (practically) infinitely many values. */
static int limit_unique(struct s_ctx *c, const struct s_array *a, uint32_t *max) {
    uint32_t used = *max < a->n ? *max : a->n, n = 0, least = *max < ENDLESS ? *max : ENDLESS;
    bool same = true;
    for (uint32_t i = 0; i <= used && i < *max; i++) {
        const struct s_place *p = place_at(a, i);
        int rc = s_count_scalars(c, p->value, least, &n);
        if (rc) return rc;
        if (n == GRAMMAR_NONE)
            return s_fail(c, ERR_UNSUPPORTED, a->unique_node,
                          "can only be enforced if all items are null, booleans, numbers or "
                          "strings; here they may be arrays or objects: omit it");
        same = same && p->value == place_at(a, 0)->value;
        if (n < least) {
            if (!same && n < a->n + 1 + a->min) break;
            least = n;
        }
    }
    if (!same && least < ENDLESS && least < *max)
        return s_fail(
            c, ERR_UNSUPPORTED, a->unique_node,
            "cannot be enforced for positions with different small sets of values: omit it");
    if (least < ENDLESS) *max = least;
    return 0;
}

int s_array_takes(struct s_ctx *c, const struct s_array *a, uint32_t *max, bool *yes) {
    int rc = 0;
    *max = a->max;
    for (uint32_t i = 0; i <= a->n && i < *max; i++)
        if (!set_takes(c, place_at(a, i)->value)) *max = i;
    if (a->unique && *max > 1) rc = limit_unique(c, a, max);
    *yes = !rc && *max >= a->min && contains_fits(c, a, *max);
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
    *takes = true; /* empty automata were dropped */
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
        if (a->kind == G_ALT_TEXT) { /* one text for each number */
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
