/* grammar_cache.c - recently made grammars, and failures to make one. A client that sends the same
 * tools with every request does not wait again, and a grammar that is too expensive is tried once.
 * Bounded in number and bytes; the least recently used entry is dropped first. Two threads never
 * make the same grammar at the same time. Any thread; the lock is never held while a grammar is
 * made. */
#include "api/generate/grammar_cache.h"
#include "core/base/clock.h"
#include "core/base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ENTRIES = 64,
    LOOK_MS = 20,     /* how often a waiting request checks whether it is still wanted, */
    LOOK_UNITS = 8192 /* and the units it spends on that; enough that work_spend checks */
};
#define MAX_BYTES (64ull << 20)

struct entry {
    char *key;            /* NULL: free */
    grammar *grammar;     /* NULL: it cannot be made, */
    err *why;             /* which is why; owned */
    uint64_t bytes, used; /* used: time of the last use, by clock */
};

struct grammar_cache {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t ended; /* of a claim */
    struct entry entries[MAX_ENTRIES];
    struct grammar_claim *claims;
    uint64_t bytes, clock;
};

grammar_cache *grammar_cache_new(void) {
    grammar_cache *c = mem_new(1, sizeof *c);
    if (!c) return NULL;
    pthread_mutex_init(&c->lock, NULL);
    clock_cond_init(&c->ended);
    return c;
}

static void drop_entry(grammar_cache *c, struct entry *entry) {
    if (!entry->key) return;
    c->bytes -= entry->bytes;
    grammar_release(entry->grammar);
    free(entry->why);
    free(entry->key);
    *entry = (struct entry){0};
}

void grammar_cache_free(grammar_cache *c) {
    if (!c) return;
    for (size_t i = 0; i < MAX_ENTRIES; i++)
        drop_entry(c, &c->entries[i]);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static struct entry *find_entry(grammar_cache *c, const char *key) {
    for (size_t i = 0; i < MAX_ENTRIES; i++)
        if (c->entries[i].key && strcmp(c->entries[i].key, key) == 0) return &c->entries[i];
    return NULL;
}

static bool is_claimed(const grammar_cache *c, const char *key) {
    const struct grammar_claim *claim = c->claims;
    while (claim && strcmp(claim->key, key) != 0)
        claim = claim->next;
    return claim != NULL;
}

/* With the lock held; releases it meanwhile. */
static void wait_for_claim(grammar_cache *c) {
    clock_cond_wait(&c->ended, &c->lock, clock_now_ns() + LOOK_MS * UINT64_C(1000000));
}

enum grammar_found grammar_cache_begin(grammar_cache *c, struct grammar_claim *claim,
                                       struct work *wait, grammar **g, err *e) {
    enum grammar_found found = GRAMMAR_MINE;
    struct entry *entry;
    *g = NULL;
    pthread_mutex_lock(&c->lock);
    while (!(entry = find_entry(c, claim->key)) && is_claimed(c, claim->key) && wait &&
           work_spend(wait, LOOK_UNITS))
        wait_for_claim(c);
    if (entry) {
        entry->used = ++c->clock;
        found = entry->grammar ? GRAMMAR_FOUND : GRAMMAR_FAILED;
        if (entry->grammar)
            *g = grammar_retain(entry->grammar);
        else if (e)
            *e = *entry->why;
    } else if (is_claimed(c, claim->key)) {
        found = GRAMMAR_BUSY;
    } else {
        claim->next = c->claims;
        c->claims = claim;
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* A free entry, else the least recently used one. */
static struct entry *entry_to_replace(grammar_cache *c) {
    struct entry *best = &c->entries[0];
    for (size_t i = 1; i < MAX_ENTRIES && best->key; i++)
        if (!c->entries[i].key || c->entries[i].used < best->used) best = &c->entries[i];
    return best;
}

static struct entry *least_recently_used(grammar_cache *c) {
    struct entry *best = NULL;
    for (size_t i = 0; i < MAX_ENTRIES; i++)
        if (c->entries[i].key && (!best || c->entries[i].used < best->used)) best = &c->entries[i];
    return best;
}

/* With the lock held. Takes key, why and a reference of g. */
static void add_entry(grammar_cache *c, char *key, grammar *g, err *why) {
    uint64_t bytes = strlen(key) + (g ? grammar_bytes(g) : sizeof *why);
    struct entry made = {key, g, why, bytes, ++c->clock};
    c->bytes += bytes;
    if (bytes > MAX_BYTES) {
        drop_entry(c, &made);
        return;
    }
    drop_entry(c, entry_to_replace(c));
    while (c->bytes > MAX_BYTES)
        drop_entry(c, least_recently_used(c));
    *entry_to_replace(c) = made;
}

static void end_claim(grammar_cache *c, struct grammar_claim *claim) {
    struct grammar_claim **link = &c->claims;
    while (*link != claim)
        link = &(*link)->next;
    *link = claim->next;
    pthread_cond_broadcast(&c->ended);
}

void grammar_cache_end(grammar_cache *c, struct grammar_claim *claim, const grammar *g,
                       const err *why) {
    char *key = g || why ? mem_strdup(claim->key) : NULL;
    err *copy = why ? mem_new(1, sizeof *copy) : NULL;
    if (copy) *copy = *why;
    bool kept = key && (!why || copy);
    pthread_mutex_lock(&c->lock);
    if (kept) add_entry(c, key, g ? grammar_retain(g) : NULL, copy);
    end_claim(c, claim);
    pthread_mutex_unlock(&c->lock);
    if (kept) return;
    free(key);
    free(copy);
}
