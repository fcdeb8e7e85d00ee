/* cache.c - the cache of masks, shared by all matchers of a vocabulary. Fixed memory; entries that
 * were not used recently are replaced (clock). A key holds the whole state, not only a hash: equal
 * keys mean equal states.
 *
 * THREAD SAFETY: any thread; one mutex, held while a mask is copied. */
#include "core/base/mem.h"
#include "core/grammar/match/vocab.h"

#include <stdlib.h>
#include <string.h>

int cache_init(struct mask_cache *c, uint64_t bytes, uint32_t n_words) {
    uint64_t entry = sizeof *c->entries + (uint64_t)n_words * sizeof *c->masks + sizeof *c->heads;
    uint64_t n = bytes / entry;
    *c =
        (struct mask_cache){.n_words = n_words, .n_entries = n < (1 << 24) ? (uint32_t)n : 1 << 24};
    c->entries = mem_new(c->n_entries, sizeof *c->entries);
    c->masks = mem_new((uint64_t)c->n_entries * n_words, sizeof *c->masks);
    c->heads = mem_new(c->n_entries, sizeof *c->heads);
    if (c->entries && c->masks && c->heads && !pthread_mutex_init(&c->lock, NULL)) return 0;
    free(c->entries);
    free(c->masks);
    free(c->heads);
    return ERR_NOMEM;
}

void cache_fini(struct mask_cache *c) {
    pthread_mutex_destroy(&c->lock);
    free(c->entries);
    free(c->masks);
    free(c->heads);
}

/* ---- keys ---- */

/* The arena's frames that are in a key, in the order in which they were found. */
struct found {
    uint32_t n, at[CACHE_MAX_FRAMES];
};

/* 1 + the number of an arena's frame within the key; 0: none. */
static uint32_t number_frame(struct found *found, uint32_t frame, bool *full) {
    if (!frame) return 0;
    for (uint32_t i = 0; i < found->n; i++)
        if (found->at[i] == frame) return i + 1;
    if (found->n == CACHE_MAX_FRAMES) {
        *full = true;
        return 0;
    }
    found->at[found->n++] = frame;
    return found->n;
}

static void add_frame(struct cache_key *key, uint32_t at, const struct frame *f,
                      struct found *found, bool *full) {
    struct frame *made = &key->frames[at];
    *made = *f;
    made->parent = number_frame(found, f->parent, full);
    if (f->kind == FRAME_ARRAY || f->kind == FRAME_OBJECT)
        made->used = number_frame(found, f->used, full);
    if (f->kind == FRAME_OBJECT) made->acc = number_frame(found, f->acc, full);
}

bool cache_make_key(const struct machine *m, const struct frame *set, uint32_t n,
                    struct cache_key *key) {
    struct found found = {0};
    bool full = n > CACHE_MAX_FRAMES;
    for (uint32_t i = 0; i < n && !full; i++)
        add_frame(key, i, &set[i], &found, &full);
    for (uint32_t i = 0; i < found.n && !full; i++) {
        full = n + i == CACHE_MAX_FRAMES;
        if (!full) add_frame(key, n + i, &m->frames[found.at[i]], &found, &full);
    }
    key->grammar = m->g;
    key->serial = m->g->serial;
    key->n_set = n;
    key->n_frames = n + found.n;
    return !full;
}

static size_t frames_bytes(const struct cache_key *key) {
    return key->n_frames * sizeof key->frames[0];
}

static uint64_t key_hash(const struct cache_key *key) {
    uint64_t h = key->serial ^ (uintptr_t)key->grammar;
    for (uint64_t at = 0; at < frames_bytes(key); at += 8) {
        uint64_t word;
        memcpy(&word, (const char *)key->frames + at, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static bool same_key(const struct cache_key *a, const struct cache_key *b) {
    return a->grammar == b->grammar && a->serial == b->serial && a->n_set == b->n_set &&
           a->n_frames == b->n_frames && memcmp(a->frames, b->frames, frames_bytes(a)) == 0;
}

/* ---- entries ---- */

/* 1 + index; 0: not there. Call with the lock held. */
static uint32_t find_entry(const struct mask_cache *c, const struct cache_key *key, uint64_t hash) {
    uint32_t at = c->heads[hash % c->n_entries];
    while (at && (c->entries[at - 1].hash != hash || !same_key(&c->entries[at - 1].key, key)))
        at = c->entries[at - 1].next;
    return at;
}

static void unlink_entry(struct mask_cache *c, uint32_t index) {
    uint32_t *at = &c->heads[c->entries[index].hash % c->n_entries];
    while (*at != index + 1)
        at = &c->entries[*at - 1].next;
    *at = c->entries[index].next;
}

bool cache_find(struct mask_cache *c, const struct cache_key *key, uint32_t *mask) {
    uint64_t hash = key ? key_hash(key) : 0;
    pthread_mutex_lock(&c->lock);
    uint32_t at = key && c->n_entries ? find_entry(c, key, hash) : 0;
    c->n_masks++;
    if (at) {
        c->n_hits++;
        c->entries[at - 1].recently_used = true;
        memcpy(mask, c->masks + (uint64_t)(at - 1) * c->n_words, c->n_words * sizeof *mask);
    }
    pthread_mutex_unlock(&c->lock);
    return at != 0;
}

void cache_put(struct mask_cache *c, const struct cache_key *key, const uint32_t *mask) {
    uint64_t hash = key_hash(key);
    if (!c->n_entries) return;
    pthread_mutex_lock(&c->lock);
    if (!find_entry(c, key, hash)) {
        while (c->entries[c->hand].recently_used) {
            c->entries[c->hand].recently_used = false;
            c->hand = (c->hand + 1) % c->n_entries;
        }
        struct cache_entry *entry = &c->entries[c->hand];
        if (entry->filled) unlink_entry(c, c->hand);
        entry->hash = hash;
        entry->filled = true;
        memcpy(&entry->key, key, offsetof(struct cache_key, frames) + frames_bytes(key));
        entry->next = c->heads[hash % c->n_entries];
        c->heads[hash % c->n_entries] = c->hand + 1;
        memcpy(c->masks + (uint64_t)c->hand * c->n_words, mask, c->n_words * sizeof *mask);
        c->hand = (c->hand + 1) % c->n_entries;
    }
    pthread_mutex_unlock(&c->lock);
}
