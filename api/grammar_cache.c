/* grammar_cache.c - a few grammars that were made lately, so that a client that sends the same
 * tools with every request does not wait for them again. Bounded in number and bytes; the one that
 * was not asked for the longest goes first. Any thread. */
#include "api/tools.h"
#include "core/base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 64 };
#define MAX_BYTES (64ull << 20)

struct entry {
    char *key; /* NULL: free */
    grammar *grammar;
    uint64_t bytes, used; /* used: when last, by the clock */
};

struct grammar_cache {
    pthread_mutex_t lock; /* guards all below */
    struct entry entries[MAX_ENTRIES];
    uint64_t bytes, clock;
};

grammar_cache *grammar_cache_new(void) {
    grammar_cache *c = mem_new(1, sizeof *c);
    if (c) pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void drop(grammar_cache *c, struct entry *entry) {
    if (!entry->key) return;
    c->bytes -= entry->bytes;
    grammar_release(entry->grammar);
    free(entry->key);
    *entry = (struct entry){0};
}

void grammar_cache_free(grammar_cache *c) {
    if (!c) return;
    for (size_t i = 0; i < MAX_ENTRIES; i++)
        drop(c, &c->entries[i]);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static struct entry *find(grammar_cache *c, const char *key) {
    for (size_t i = 0; i < MAX_ENTRIES; i++)
        if (c->entries[i].key && strcmp(c->entries[i].key, key) == 0) return &c->entries[i];
    return NULL;
}

grammar *grammar_cache_get(grammar_cache *c, const char *key) {
    pthread_mutex_lock(&c->lock);
    struct entry *entry = find(c, key);
    grammar *g = entry ? grammar_retain(entry->grammar) : NULL;
    if (entry) entry->used = ++c->clock;
    pthread_mutex_unlock(&c->lock);
    return g;
}

/* The entry that is free, or was not used the longest. */
static struct entry *oldest(grammar_cache *c) {
    struct entry *best = &c->entries[0];
    for (size_t i = 1; i < MAX_ENTRIES && best->key; i++)
        if (!c->entries[i].key || c->entries[i].used < best->used) best = &c->entries[i];
    return best;
}

static struct entry *oldest_used(grammar_cache *c) {
    struct entry *best = NULL;
    for (size_t i = 0; i < MAX_ENTRIES; i++)
        if (c->entries[i].key && (!best || c->entries[i].used < best->used)) best = &c->entries[i];
    return best;
}

void grammar_cache_put(grammar_cache *c, const char *key, const grammar *g) {
    char *copy = mem_strdup(key);
    uint64_t bytes = grammar_bytes(g) + strlen(key);
    if (!copy || bytes > MAX_BYTES) {
        free(copy);
        return;
    }
    pthread_mutex_lock(&c->lock);
    drop(c, oldest(c));
    while (c->bytes + bytes > MAX_BYTES)
        drop(c, oldest_used(c));
    struct entry *entry = find(c, key);
    if (entry) drop(c, entry); /* made twice at the same time */
    entry = oldest(c);
    *entry = (struct entry){copy, grammar_retain(g), bytes, ++c->clock};
    c->bytes += bytes;
    pthread_mutex_unlock(&c->lock);
}
