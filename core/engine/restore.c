/* restore.c - see tier.h: sequences that wait for blocks from the KV store. Owns the readings and
 * the sequences of the cache that hold the blocks meanwhile. Worker thread, except for the wake. */
#include "core/engine/restore.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_NS   UINT64_C(1000000000) /* that a restore may take */
#define UNKNOWN_NS UINT64_C(30000000000)
#define START_NS   2000000 /* from the request to the first record */

enum { BUSY_BYTES = 4 << 20, MOST_TRIES = 2 };

/* ---- what to read ---- */

/* Blocks of a chain that are worth reading: [first, end) of st->names. */
struct target {
    uint32_t first, end, windows_from;
};

/* The deepest block up to which everything that a hit needs is there. flags: of blocks from first
 * on, n_found of them. */
static struct target find_target(const engine *en, uint32_t first, const uint8_t *flags,
                                 uint32_t n_found) {
    for (uint32_t end = first + n_found; end > first; end--) {
        uint32_t from = kv_window_begins(en->cache, end), i = end;
        if (kv_has_states(en->cache) && !(flags[end - 1 - first] & KVSTORE_STATE)) continue;
        while (i > from && i > first && (flags[i - 1 - first] & KVSTORE_WINDOW))
            i--;
        if (i > from && i > first) continue;
        return (struct target){first, end, from};
    }
    return (struct target){first, first, first};
}

static double row_ns(const engine *en, uint32_t n_blocks) {
    return en->pace.row_ns * n_blocks * en->config.block_tokens;
}

static bool is_worth(const engine *en, const struct target *t) {
    const uint32_t n = t->end - t->first;
    const kv *c = en->cache;
    double bytes = (double)n * (double)kv_part_bytes(c, KV_PART_BLOCK) +
                   (double)(t->end - t->windows_from) * (double)kv_part_bytes(c, KV_PART_WINDOW) +
                   (double)kv_part_bytes(c, KV_PART_STATE);
    if (!n) return false;
    if (en->tier.all || en->pace.row_ns <= 0) return true;
    return row_ns(en, n) > bytes * 1e9 / kvstore_read_rate(en->tier.store) + START_NS;
}

/* One that reads the block which this sequence lacks first. */
static struct tier_restore *find_same(engine *en, const struct engine_stream *st, uint32_t first) {
    for (int i = 0; i < TIER_RESTORES; i++) {
        struct tier_restore *r = &en->tier.restores[i];
        if (r->seq && first < r->n_blocks && first >= r->first &&
            hash128_same(r->salt, st->seq.salt) &&
            memcmp(&r->names[first], &st->names[first], sizeof *r->names) == 0)
            return r;
    }
    return NULL;
}

static struct tier_restore *find_unused(engine *en) {
    for (uint32_t i = 0; i < en->tier.max_restores; i++)
        if (!en->tier.restores[i].seq) return &en->tier.restores[i];
    return NULL;
}

/* ---- begin ---- */

static void on_record(void *arg) {
    engine *en = arg;
    pthread_mutex_lock(&en->lock);
    en->tier.wake = true;
    pthread_cond_signal(&en->wake);
    pthread_mutex_unlock(&en->lock);
}

static void free_restore(engine *en, struct tier_restore *r) {
    kvstore_reading_close(r->reading);
    kv_seq_free(en->cache, r->seq);
    free(r->tokens);
    free(r->names);
    memset(r, 0, sizeof *r);
}

/* flags: of the blocks from target.first on, changed to what is wanted of each. */
static int begin_reading(engine *en, struct tier_restore *r, const struct engine_stream *st,
                         const struct target *t, uint8_t *flags) {
    const uint32_t n_tokens = t->end * en->config.block_tokens;
    const struct kv_prompt prompt = {.tokens = st->seq.tokens, .n = n_tokens, .salt = st->seq.salt};
    uint32_t n_cached;
    *r = (struct tier_restore){.salt = st->seq.salt,
                               .first = t->first,
                               .n_blocks = t->end,
                               .windows_from = t->windows_from,
                               .n_whole = t->first,
                               .tokens = mem_new(n_tokens, sizeof *r->tokens),
                               .names = mem_new(t->end, sizeof *r->names)};
    if (!r->tokens || !r->names) return ERR_NOMEM;
    memcpy(r->tokens, st->seq.tokens, n_tokens * sizeof *r->tokens);
    memcpy(r->names, st->names, t->end * sizeof *r->names);
    for (uint32_t i = t->first; i < t->end; i++) {
        int want = KVSTORE_BLOCK;
        if (kv_has_windows(en->cache) && i >= t->windows_from) want |= KVSTORE_WINDOW;
        if (kv_has_states(en->cache) && i + 1 == t->end) want |= KVSTORE_STATE;
        flags[i - t->first] = (uint8_t)want;
    }
    r->seq = kv_import_begin(en->cache, &prompt, &n_cached);
    if (!r->seq) return ERR_FULL;
    const struct kvstore_wanted wanted = {.tenant = r->salt,
                                          .names = st->names + t->first,
                                          .flags = flags,
                                          .n = t->end - t->first,
                                          .notify = on_record,
                                          .arg = en};
    const double ns = row_ns(en, t->end - t->first);
    uint64_t most = ns > 0 ? (uint64_t)ns : UNKNOWN_NS;
    r->deadline_ns = clock_now_ns() + (most < LEAST_NS ? LEAST_NS : most);
    return kvstore_read(en->tier.space, &wanted, &r->reading, NULL);
}

/* Blocks that running sequences may need soon stay free, as at an admission (sched.h 3). */
static bool has_room(const engine *en, const struct target *t) {
    return t->end - t->first + sched_n_running(en->sch) / 4 < kv_n_free(en->cache);
}

/* The restore that the sequence waits for; NULL: it computes. */
static struct tier_restore *begin_restore(engine *en, const struct engine_stream *st) {
    const struct kv_prompt prompt = {
        .tokens = st->seq.tokens, .n = st->seq.n_tokens, .salt = st->seq.salt};
    const uint32_t first = kv_prompt_blocks(en->cache, &prompt);
    if (first >= st->n_names) return NULL;
    struct tier_restore *r = find_same(en, st, first);
    if (r) return r;
    uint8_t *flags = mem_new(st->n_names - first, 1);
    if (!flags) return NULL;
    uint32_t n = kvstore_find(en->tier.space, st->names + first, st->n_names - first, flags);
    const struct target t = find_target(en, first, flags, n);
    r = is_worth(en, &t) && has_room(en, &t) ? find_unused(en) : NULL;
    if (r && begin_reading(en, r, st, &t, flags)) {
        free_restore(en, r);
        r = NULL;
    }
    free(flags);
    if (r) en->totals.restores_total++;
    return r;
}

static void wait_for(struct engine_stream *st, struct tier_restore *r) {
    st->restore = r;
    st->n_restores++;
    st->seq.paused = true;
}

void tier_add(engine *en, struct engine_stream *st) {
    if (!en->tier.store) return;
    if (st->seq.leader) { /* it waits with its leader, whose blocks it will share */
        struct tier_restore *r = stream_of(st->seq.leader)->restore;
        if (r) wait_for(st, r);
    } else if (st->n_names) {
        struct tier_restore *r = begin_restore(en, st);
        if (r) wait_for(st, r);
    }
}

/* ---- records ---- */

static const enum kv_part part_of[] = {[KVSTORE_BLOCK] = KV_PART_BLOCK,
                                       [KVSTORE_WINDOW] = KV_PART_WINDOW,
                                       [KVSTORE_STATE] = KV_PART_STATE};

/* Is the block complete with this record? */
static void note_record(const engine *en, struct tier_restore *r, int what, uint32_t block) {
    if (what == KVSTORE_STATE) r->has_state = true;
    bool windowed = kv_has_windows(en->cache) && block >= r->windows_from;
    if (what == (windowed ? KVSTORE_WINDOW : KVSTORE_BLOCK)) r->n_whole = block + 1;
}

/* Does the block's record begin with the ids that its name stands for? */
static bool has_tokens(const engine *en, const struct tier_restore *r, uint32_t block,
                       const uint8_t *record) {
    const uint32_t n = en->config.block_tokens;
    for (uint32_t i = 0; i < n; i++)
        if (kvstore_token(record, i) != r->tokens[(uint64_t)block * n + i]) return false;
    return true;
}

/* Has the next piece of a record copied into its block. 1; 0: not now, since too many copies are
 * under way; negative: the device failed. */
static int write_piece(engine *en, struct tier_restore *r, enum kv_part part, uint32_t block,
                       const uint8_t *from) {
    int rc = tier_batch(en);
    if (rc <= 0) return rc;
    rc = kv_piece_write(en->cache, r->seq, part, block, r->piece, from, NULL);
    if (rc == ERR_FULL) en->tier.held = true;
    return rc == ERR_FULL ? 0 : rc ? rc : 1;
}

/* Has records copied until max_bytes are. 0: more will come; 1: it is over. Negative: the device
 * failed. */
static int take_records(engine *en, struct tier_restore *r, uint64_t *max_bytes) {
    struct kvstore_record record;
    int rc = 0;
    while (*max_bytes && (rc = kvstore_reading_next(r->reading, &record)) == 1) {
        const enum kv_part part = part_of[record.what];
        const uint32_t block = r->first + record.block;
        if (record.what == KVSTORE_BLOCK && !r->piece) {
            if (!has_tokens(en, r, block, record.bytes)) return 1;
            r->at = 4 * (uint64_t)en->config.block_tokens;
        }
        for (; *max_bytes && r->piece < kv_part_pieces(en->cache, part); r->piece++) {
            const uint64_t bytes = kv_piece_bytes(en->cache, part, r->piece);
            rc = write_piece(en, r, part, block, record.bytes + r->at);
            if (rc <= 0) return rc;
            r->at += bytes;
            *max_bytes -= bytes < *max_bytes ? bytes : *max_bytes;
        }
        if (r->piece < kv_part_pieces(en->cache, part)) return 0;
        r->piece = 0;
        r->at = 0;
        note_record(en, r, record.what, block);
        kvstore_reading_pop(r->reading);
    }
    if (!*max_bytes || rc == 0) return 0;
    if (rc == ERR_NOT_FOUND) en->totals.restores_cut_total++;
    return 1;
}

/* ---- end ---- */

static void end_restore(engine *en, struct tier_restore *r, bool commit) {
    if (commit) {
        uint32_t before = r->first * en->config.block_tokens;
        uint32_t after = r->n_whole * en->config.block_tokens;
        bool state = r->has_state && r->n_whole == r->n_blocks;
        kv_import_commit(en->cache, r->seq, r->tokens, r->n_whole, state);
        tier_note_names(en, r->seq, r->names, r->n_whole);
        en->totals.restored_tokens_total += after - before;
    } else {
        kv_states_lost(en->cache, r->seq);
    }
    free_restore(en, r);
}

static bool is_awaited(const engine *en, const struct tier_restore *r) {
    for (const struct engine_stream *st = en->live; st; st = st->live_next)
        if (st->restore == r) return true;
    return false;
}

/* Those that waited for r go on. again: one that lacks more may begin another. */
static void release_waiting(engine *en, const struct tier_restore *r, bool again) {
    for (struct engine_stream *st = en->live; st; st = st->live_next) {
        st->restore_over = st->restore == r;
        if (st->restore_over) st->restore = NULL; /* all of them first: forks ask their leader's */
    }
    for (struct engine_stream *st = en->live; st; st = st->live_next) {
        if (!st->restore_over) continue;
        if (again && st->n_restores < MOST_TRIES) tier_add(en, st);
        if (!st->restore) st->seq.paused = st->full || st->mask_deferred;
    }
}

void restore_run(engine *en, bool busy) {
    uint64_t left = busy ? BUSY_BYTES : UINT64_MAX;
    for (int i = 0; i < TIER_RESTORES; i++) {
        struct tier_restore *r = &en->tier.restores[i];
        if (!r->seq) continue;
        int rc = is_awaited(en, r) ? take_records(en, r, &left) : 1;
        if (!rc && clock_now_ns() >= r->deadline_ns) {
            en->totals.restores_late_total++;
            rc = 1;
        }
        if (!rc) continue;
        end_restore(en, r, rc > 0);
        release_waiting(en, r, rc > 0);
    }
}

uint64_t restore_due_ns(const engine *en) {
    uint64_t due = 0;
    for (int i = 0; i < TIER_RESTORES; i++) {
        const struct tier_restore *r = &en->tier.restores[i];
        if (r->seq && (!due || r->deadline_ns < due)) due = r->deadline_ns;
    }
    return due;
}

void restore_drop(engine *en) {
    for (int i = 0; i < TIER_RESTORES; i++) {
        struct tier_restore *r = &en->tier.restores[i];
        if (!r->seq) continue;
        end_restore(en, r, false);
        release_waiting(en, r, false);
    }
}
