/* shares.c - see shares.h. Owns nothing beside the caller's table. */
#include "core/engine/shares.h"

#include <stddef.h>

/* A counter's unit is a hundredth of a token at weight SHARE_WEIGHT. */
enum { UNIT = 100 * SHARE_WEIGHT, GENERATED_COST = 2 };

static struct share *find_place(struct shares *t, uint64_t client) {
    struct share *idle = NULL;
    for (uint32_t i = 0; i < t->n; i++) {
        struct share *s = &t->all[i];
        if (s->client == client) return s;
        if (!s->n_seqs && (!idle || s->counter < idle->counter)) idle = s;
    }
    if (t->n < SHARES_MAX) {
        idle = &t->all[t->n++];
    } else if (!idle) {
        return &t->all[SHARES_MAX - 1];
    }
    *idle = (struct share){.client = client};
    return idle;
}

/* The lowest counter of active clients; without any that of the last one. */
static uint64_t lowest(const struct shares *t) {
    uint64_t low = t->last;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct share *s = &t->all[i];
        if (s->n_seqs && (!n++ || s->counter < low)) low = s->counter;
    }
    return low;
}

struct share *shares_enter(struct shares *t, uint64_t client, uint32_t weight) {
    struct share *s = find_place(t, client);
    if (!s->n_seqs) {
        uint64_t low = lowest(t);
        if (s->counter < low) s->counter = low;
        s->weight = 0;
        t->n_active++;
    }
    t->active_weight -= s->weight;
    s->weight = weight ? weight : SHARE_WEIGHT;
    t->active_weight += s->weight;
    s->n_seqs++;
    return s;
}

void shares_leave(struct shares *t, struct share *s) {
    if (--s->n_seqs) return;
    t->n_active--;
    t->active_weight -= s->weight;
    t->last = s->counter;
}

void share_charge(struct share *s, uint64_t n_prompt, uint64_t n_generated) {
    s->counter += (n_prompt + GENERATED_COST * n_generated) * UNIT / s->weight;
}

uint32_t share_of(const struct shares *t, const struct share *s, uint32_t n) {
    uint64_t own = t->active_weight ? (uint64_t)n * s->weight / t->active_weight : n;
    return own ? (uint32_t)own : 1;
}
