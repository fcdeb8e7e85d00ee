/* dfa.c - queries of a finished automaton: does it accept a text, how many texts are there, which.
 * Owns nothing; never changes an automaton. Any thread. */
#include "core/base/mem.h"
#include "core/grammar/regex/dfa_int.h"

#include <stdlib.h>
#include <string.h>

int dfa_too_large(err *e) {
    return err_set(e, ERR_TOO_LONG,
                   "The pattern needs an automaton of more than %d states: use smaller bounds.",
                   (int)GRAMMAR_MAX_STATES);
}

int dfa_failure(int rc, err *e) {
    switch (rc) {
    case ERR_TOO_LONG:
        return dfa_too_large(e);
    case ERR_WORK:
        return err_set(
            e, rc,
            "The pattern takes more work to compile than is allowed: use smaller bounds, "
            "fewer alternatives and look-aheads.");
    case ERR_DEADLINE:
    case ERR_CANCELLED:
        return work_error(rc, e);
    default:
        return err_no_memory(e);
    }
}

void dfa_fini(struct dfa *d) {
    free(d->next);
    free(d->accept);
    *d = (struct dfa){0};
}

bool dfa_accepts(const struct dfa *d, const char *bytes, size_t n) {
    uint32_t state = d->start;
    for (size_t i = 0; i < n && state; i++)
        state = dfa_step(d, state, (uint8_t)bytes[i]);
    return state && d->accept[state];
}

/* ---- walks over all texts, depth first ---- */

struct frame {
    uint32_t state;
    uint32_t label; /* the next class, or byte, to follow */
};

/* Sorts the states so that each comes before all that lead to it. order (n_states); *n: their
 * number. false: there is a cycle. stack (n_states), mark (n_states) zeroed. */
static bool states_in_order(const struct dfa *d, struct frame *stack, uint8_t *mark,
                            uint32_t *order, uint32_t *n) {
    enum { OPEN = 1, DONE };
    uint32_t depth = 0;
    *n = 0;
    stack[depth++] = (struct frame){d->start, 0};
    mark[d->start] = OPEN;
    while (depth) {
        struct frame *f = &stack[depth - 1];
        if (f->label == d->n_classes) {
            mark[f->state] = DONE;
            order[(*n)++] = f->state;
            depth--;
            continue;
        }
        uint32_t to = d->next[(size_t)f->state * d->n_classes + f->label++];
        if (!to || mark[to] == DONE) continue;
        if (mark[to] == OPEN) return false;
        mark[to] = OPEN;
        stack[depth++] = (struct frame){to, 0};
    }
    return true;
}

static uint32_t texts_from(const struct dfa *d, uint32_t state, const uint32_t n_bytes[256],
                           const uint32_t *texts, uint32_t limit) {
    uint64_t sum = d->accept[state];
    for (uint32_t c = 0; c < d->n_classes && sum < limit; c++)
        sum += (uint64_t)n_bytes[c] * texts[d->next[(size_t)state * d->n_classes + c]];
    return sum < limit ? (uint32_t)sum : limit;
}

uint32_t dfa_count(const struct dfa *d, uint32_t limit) {
    uint32_t n_bytes[256] = {0}, n = 0, count = limit;
    if (dfa_is_empty(d)) return 0;
    for (int b = 0; b < 256; b++)
        n_bytes[d->class_of[b]]++;
    struct frame *stack = mem_new(d->n_states, sizeof *stack);
    uint8_t *mark = mem_new(d->n_states, 1);
    uint32_t *order = mem_new(d->n_states, sizeof *order);
    uint32_t *texts = mem_new(d->n_states, sizeof *texts);
    /* Every state leads to acceptance, so a cycle means infinitely many texts. Without memory the
     * answer is the safe one: limit. */
    if (stack && mark && order && texts && states_in_order(d, stack, mark, order, &n)) {
        for (uint32_t i = 0; i < n; i++)
            texts[order[i]] = texts_from(d, order[i], n_bytes, texts, limit);
        count = texts[d->start];
    }
    free(stack);
    free(mark);
    free(order);
    free(texts);
    return count;
}

static int each_text(const struct dfa *d, struct frame *stack, char *text,
                     int (*each)(void *arg, const char *bytes, size_t n), void *arg) {
    uint32_t depth = 0;
    stack[depth++] = (struct frame){d->start, 0};
    while (depth) {
        struct frame *f = &stack[depth - 1];
        if (f->label == 0 && d->accept[f->state]) {
            int rc = each(arg, text, depth - 1);
            if (rc) return rc;
        }
        uint32_t to = 0;
        while (f->label < 256 && !to)
            to = dfa_step(d, f->state, (uint8_t)f->label++);
        if (!to) {
            depth--;
            continue;
        }
        text[depth - 1] = (char)(f->label - 1);
        stack[depth++] = (struct frame){to, 0};
    }
    return 0;
}

int dfa_each(const struct dfa *d, uint32_t limit,
             int (*each)(void *arg, const char *bytes, size_t n), void *arg) {
    if (dfa_is_empty(d)) return 0;
    if (limit == UINT32_MAX || dfa_count(d, limit + 1) > limit) return ERR_TOO_LONG;
    /* The language is finite, so no text visits a state twice. */
    struct frame *stack = mem_new(d->n_states, sizeof *stack);
    char *text = mem_new(d->n_states, 1);
    int rc = stack && text ? each_text(d, stack, text, each, arg) : ERR_NOMEM;
    free(stack);
    free(text);
    return rc;
}
