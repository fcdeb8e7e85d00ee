/* tier.c - see tier.h: opening, names, and what is stored. restore.c has the way back. Owns the
 * draft that is being filled. Worker thread, except where said. */
#include "core/engine/tier.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/program.h"
#include "core/engine/engine_int.h"
#include "core/engine/restore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS     UINT64_C(1000000000)
#define SEGMENT_NS    300000   /* to open a segment and check its head */
#define QUEUE_WAIT_NS 10000000 /* until a draft may be free again */

#define POLL_NS 200000 /* until copies that are under way may have ended */

enum { STEP_BYTES = 1 << 20, STEP_PART = 50, IDLE_BYTES = 8 << 20 };
/* Runs of one call that turn out not to be worth it, or stored already: each costs O(chain). */
enum { RUNS_LOOKED_AT = 64, RUNS_BETWEEN_STEPS = 4 };

/* ---- open and close ---- */

/* Everything besides the tokens, the shape and the program that K/V depend on, bit for bit
 * (engine.h). */
static int write_identity(const engine *en, const struct engine_config *c, char *to, size_t n,
                          err *e) {
    const struct model_hparams *hp = &en->hp;
    const char *module = backend_module_path(en->be);
    struct hash128 code = {0, 0};
    if (module && program_hash_file(module, &code))
        return err_set(e, ERR_IO, "cannot read %s: %s", module, strerror(errno));
    uint32_t n_ctx = 0; /* some RoPE scalings depend on it */
    for (int i = 0; i < 2; i++)
        if (hp->rope[i].scaling == MODEL_ROPE_DYNAMIC || hp->rope[i].scaling == MODEL_ROPE_LONG)
            n_ctx = en->context_length;
    snprintf(to, n, "%s\n%s\n%s %s %016llx%016llx\nkv %d block %u bits %d ranks %u ctx %u",
             c->model_sha256, hp->arch, backend_name(en->be), backend_isa(en->be),
             (unsigned long long)code.hi, (unsigned long long)code.lo, c->kv_type, c->block_tokens,
             c->activation_bits > 8 ? 16 : 8, backend_n_ranks(en->be), n_ctx);
    return 0;
}

static uint32_t count_restores(const engine *en) {
    uint32_t n = TIER_RESTORES;
    while (n && !kv_windows_suffice(en->cache, en->config.max_sequences + n,
                                    en->config.max_batch_tokens))
        n--;
    return n;
}

/* Why this model cannot use the store; NULL: it can. */
static const char *find_obstacle(const engine *en, const struct engine_config *c) {
    if (en->hp.both_ways) return "its attention goes in both directions";
    if (!kv_shares_prefixes(en->cache)) return "prefix-cache is off";
    if (!c->model_sha256 || !c->model_sha256[0])
        return "it is not registered, so the hash of its files is unknown: inferd models add PATH";
    if (!count_restores(en)) return "there are too few window-blocks for one more sequence";
    return NULL;
}

/* Drafts are what the device copies into. */
static int get_memory(void *be, uint64_t bytes, void **out, err *e) {
    return backend_host_new(be, bytes, out, e);
}

static void put_memory(void *be, void *p) {
    backend_host_free(be, p);
}

int tier_open(engine *en, const struct engine_config *c, err *e) {
    struct tier *t = &en->tier;
    char identity[512];
    struct kv_stats stats;
    const char *obstacle = c->store ? find_obstacle(en, c) : NULL;
    if (!c->store) return 0;
    if (obstacle) {
        log_warn("engine: the KV store is not used for this model: %s", obstacle);
        return 0;
    }
    const struct kvstore_space_config space = {
        .label = c->model_label ? c->model_label : en->hp.name,
        .identity = identity,
        .shape = {.block_tokens = c->block_tokens,
                  .block_bytes =
                      4 * (uint64_t)c->block_tokens + kv_part_bytes(en->cache, KV_PART_BLOCK),
                  .window_bytes = kv_part_bytes(en->cache, KV_PART_WINDOW),
                  .state_bytes = kv_part_bytes(en->cache, KV_PART_STATE)},
        .memory = {.get = get_memory, .put = put_memory, .arg = en->be}};
    kv_stats_get(en->cache, &stats);
    int rc = write_identity(en, c, identity, sizeof identity, e);
    if (!rc) rc = kv_batches_open(en->cache, e);
    if (!rc) rc = kvstore_space_open(c->store, &space, &t->space, e);
    t->names = mem_new(stats.n_blocks, sizeof *t->names);
    t->named = mem_new(stats.n_blocks, sizeof *t->named);
    t->path = mem_new(stats.n_blocks, sizeof *t->path);
    if (!rc && (!t->names || !t->named || !t->path)) rc = err_no_memory(e);
    if (rc) return rc;
    t->store = c->store;
    t->all = c->store_all;
    t->idle_ns = c->store_idle_s * SECOND_NS;
    t->max_restores = count_restores(en);
    t->saved_all = true;
    return 0;
}

void tier_close(engine *en) {
    struct tier *t = &en->tier;
    kvstore_space_close(t->space);
    free(t->names);
    free(t->named);
    free(t->path);
}

/* ---- names ---- */

int tier_name_prompt(struct engine_stream *st) {
    const struct tier *t = &st->en->tier;
    const uint32_t n = (st->seq.n_tokens - 1) / st->en->config.block_tokens;
    if (!t->store || st->seq.all_rows || !n) return 0;
    st->names = mem_new(n, sizeof *st->names);
    if (!st->names) return ERR_NOMEM;
    st->n_names = n;
    kvstore_names(t->space, st->seq.salt, NULL, st->seq.tokens, n, st->names);
    kvstore_touch(t->space, st->names, n);
    return 0;
}

void tier_note_names(engine *en, const kv_seq *s, const struct kvstore_name *names, uint32_t n) {
    struct tier *t = &en->tier;
    const int32_t *blocks = kv_table(s);
    for (uint32_t i = 0; i < n; i++) {
        t->names[blocks[i]] = names[i];
        t->named[blocks[i]] = kv_block_entered(en->cache, (uint32_t)blocks[i]);
    }
}

/* Names the run's blocks, remembering those of all blocks of its chain. */
static void name_run(engine *en, const struct kv_run *run, struct kvstore_name *names) {
    struct tier *t = &en->tier;
    const uint32_t n = run->first + run->n;
    uint32_t b = run->blocks[run->n - 1], known = n;
    for (uint32_t i = n; i-- > 0; b = kv_block_parent(en->cache, b))
        t->path[i] = b;
    while (known && t->named[t->path[known - 1]] != kv_block_entered(en->cache, t->path[known - 1]))
        known--;
    for (uint32_t i = known; i < n; i++) {
        b = t->path[i];
        kvstore_names(t->space, run->salt, i ? &t->names[t->path[i - 1]] : NULL,
                      kv_block_ids(en->cache, b), 1, &t->names[b]);
        t->named[b] = kv_block_entered(en->cache, b);
    }
    for (uint32_t i = 0; i < run->n; i++)
        names[i] = t->names[run->blocks[i]];
}

/* ---- what is stored ---- */

static uint64_t run_bytes(const engine *en, const struct kv_run *run) {
    uint64_t bytes = run->n * kv_part_bytes(en->cache, KV_PART_BLOCK);
    for (uint32_t i = 0; i < run->n; i++)
        if (run->windows[i] != UINT32_MAX) bytes += kv_part_bytes(en->cache, KV_PART_WINDOW);
    return bytes + (run->state != UINT32_MAX ? kv_part_bytes(en->cache, KV_PART_STATE) : 0);
}

static bool is_worth(const engine *en, const struct kv_run *run) {
    const struct tier *t = &en->tier;
    const double compute = en->pace.row_ns * run->n * en->config.block_tokens;
    if (t->all || en->pace.row_ns <= 0) return true;
    double read = (double)run_bytes(en, run) * 1e9 / kvstore_read_rate(t->store) + SEGMENT_NS;
    return compute > 2 * read;
}

/* The store has it already, after a restart or from another time in the cache. */
static bool is_stored(engine *en, const struct kv_run *run, const struct kvstore_name *names) {
    uint8_t flags[KV_RUN_BLOCKS];
    if (kvstore_find(en->tier.space, names, run->n, flags) < run->n) return false;
    for (uint32_t i = 0; i < run->n; i++)
        if (run->windows[i] != UINT32_MAX && !(flags[i] & KVSTORE_WINDOW)) return false;
    return run->state == UINT32_MAX || (flags[run->n - 1] & KVSTORE_STATE);
}

static void fill_head(struct tier_save *s, const struct kvstore_name *names) {
    struct kvstore_draft *d = s->draft;
    d->tenant = s->run.salt;
    d->first = s->run.first;
    d->n_blocks = s->run.n;
    d->has_state = s->run.state != UINT32_MAX;
    for (uint32_t i = 0; i < s->run.n; i++) {
        d->names[i] = names[i];
        d->has_window[i] = s->run.windows[i] != UINT32_MAX;
    }
}

/* Begins a draft of something that is worth it. false: there is nothing, or no place for it. */
static bool begin_draft(engine *en, bool all) {
    struct tier *t = &en->tier;
    struct kvstore_name names[KV_RUN_BLOCKS];
    struct kv_run *run = &t->save.run;
    for (int tries = all ? RUNS_LOOKED_AT : RUNS_BETWEEN_STEPS; tries > 0; tries--) {
        if (!kv_run_next(en->cache, !all, en->n_in_flight, kvstore_max_blocks(t->space), run)) {
            t->saved_all = t->saved_all || (all && !en->n_in_flight);
            return false;
        }
        if (is_worth(en, run)) {
            name_run(en, run, names);
            if (!is_stored(en, run, names)) {
                t->save = (struct tier_save){.run = *run,
                                             .draft = kvstore_draft_take(t->space, &t->broken)};
                if (t->save.draft) fill_head(&t->save, names);
                if (!t->save.draft)
                    t->retry_ns = clock_now_ns() + (t->broken ? SECOND_NS : QUEUE_WAIT_NS);
                return t->save.draft != NULL;
            }
        }
        kv_run_kept(en->cache, run);
    }
    return false;
}

int tier_batch(engine *en) {
    struct tier *t = &en->tier;
    if (t->batch) return 1;
    const int64_t n = kv_batch_begin(en->cache, NULL);
    t->held = t->held || !n;
    if (n > 0) t->batch = (uint64_t)n;
    return n > 0 ? 1 : (int)n;
}

/* Nonzero: the device failed. */
static int end_batch(engine *en) {
    struct tier *t = &en->tier;
    if (!t->batch) return 0;
    t->batch = 0;
    return kv_batch_end(en->cache, NULL);
}

/* Drafts whose copies have ended go their way. */
static void let_go(engine *en) {
    struct tier *t = &en->tier;
    if (!t->n_leaving) return;
    const uint64_t done = kv_batches_done(en->cache);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_leaving; i++) {
        const struct tier_leaving *l = &t->leaving[i];
        if (l->batch > done)
            t->leaving[n++] = *l;
        else if (l->wanted)
            kvstore_draft_submit(l->draft);
        else
            kvstore_draft_drop(l->draft);
    }
    t->n_leaving = n;
}

/* The draft is complete, or what it is of is not there any more. */
static void end_draft(engine *en, bool wanted) {
    struct tier *t = &en->tier;
    struct tier_save *s = &t->save;
    if (!s->draft) return;
    t->leaving[t->n_leaving++] = (struct tier_leaving){s->draft, s->batch, wanted};
    s->draft = NULL;
    end_batch(en); /* a device that fails is found by the next step */
    let_go(en);
}

/* Does the record that is due exist? Otherwise moves on. false: all are done. */
static bool find_record(struct tier_save *s) {
    for (; s->block < s->run.n; s->block++, s->part = KV_PART_BLOCK)
        for (; s->part <= KV_PART_STATE; s->part++) {
            if (s->part == KV_PART_WINDOW && s->run.windows[s->block] == UINT32_MAX) continue;
            if (s->part == KV_PART_STATE && (s->block + 1 < s->run.n || s->run.state == UINT32_MAX))
                continue;
            return true;
        }
    return false;
}

static const int record_of[] = {[KV_PART_BLOCK] = KVSTORE_BLOCK,
                                [KV_PART_WINDOW] = KVSTORE_WINDOW,
                                [KV_PART_STATE] = KVSTORE_STATE};

/* A block's record begins with its token ids. */
static void write_tokens(const engine *en, struct tier_save *s) {
    const int32_t *ids = kv_block_ids(en->cache, s->run.blocks[s->block]);
    uint8_t *to = kvstore_draft_record(s->draft, KVSTORE_BLOCK, s->block);
    for (uint32_t i = 0; i < en->config.block_tokens; i++)
        kvstore_put_token(to, i, ids[i]);
    s->at = 4 * (uint64_t)en->config.block_tokens;
}

/* Has the next piece copied and counts its bytes. 1; 0: not now, since too many copies are under
 * way; negative: the device failed. */
static int copy_piece(engine *en, uint64_t *copied) {
    struct tier_save *s = &en->tier.save;
    if (s->piece == kv_part_pieces(en->cache, s->part)) {
        if (s->part == KV_PART_BLOCK && !s->piece) write_tokens(en, s);
        s->piece = 0;
        s->at = 0;
        s->part++;
        return 1;
    }
    int rc = tier_batch(en);
    if (rc <= 0) return rc;
    const uint64_t bytes = kv_piece_bytes(en->cache, s->part, s->piece);
    if (s->part == KV_PART_BLOCK && !s->piece) write_tokens(en, s);
    uint8_t *to = kvstore_draft_record(s->draft, record_of[s->part], s->block);
    rc = kv_piece_read(en->cache, &s->run, s->part, s->block, s->piece, to + s->at, NULL);
    s->batch = en->tier.batch;
    s->piece++;
    s->at += bytes;
    *copied += bytes;
    return rc ? rc : 1;
}

/* Copies max_bytes, and more until until_ns. all: of anything, else of what will be reused before
 * long. */
static void save_some(engine *en, bool all, uint64_t max_bytes, uint64_t until_ns) {
    struct tier *t = &en->tier;
    uint64_t copied = 0;
    if (t->save.draft && !kv_run_intact(en->cache, &t->save.run)) end_draft(en, false);
    if (t->retry_ns && clock_now_ns() < t->retry_ns && !t->save.draft) return;
    t->retry_ns = 0;
    while (copied < max_bytes || clock_now_ns() < until_ns) {
        if (!t->save.draft && !begin_draft(en, all)) return;
        if (!find_record(&t->save)) {
            kv_run_kept(en->cache, &t->save.run);
            end_draft(en, true);
            continue;
        }
        const int rc = copy_piece(en, &copied);
        if (rc > 0) continue;
        if (rc < 0) {
            end_draft(en, false); /* the device failed: the next step will find it */
            t->retry_ns = clock_now_ns() + SECOND_NS;
        }
        return;
    }
}

/* ---- the worker's calls ---- */

/* engine_save waits: everything, until its deadline. */
static void save_wanted(engine *en, uint64_t until_ns) {
    struct tier *t = &en->tier;
    bool over = en->failure.code;
    t->saved_all = false;
    if (!over) save_some(en, true, IDLE_BYTES, 0);
    over = over || (t->saved_all && !t->n_leaving) || t->broken;
    t->saving = !over && clock_now_ns() < until_ns;
    if (t->saving) return;
    pthread_mutex_lock(&en->lock);
    t->save_until_ns = 0;
    t->save_done = over;
    pthread_cond_broadcast(&en->done);
    pthread_mutex_unlock(&en->lock);
}

void tier_run(engine *en, bool busy) {
    struct tier *t = &en->tier;
    if (!t->store) return;
    pthread_mutex_lock(&en->lock);
    const uint64_t until_ns = t->save_until_ns;
    t->wake = false;
    pthread_mutex_unlock(&en->lock);
    if (en->failure.code && !until_ns) return;
    t->held = false;
    let_go(en);
    restore_run(en, busy);
    const uint64_t now = clock_now_ns(), step_ns = now - t->run_ns;
    if (busy) {
        t->active_ns = now;
        t->saved_all = false;
    }
    if (until_ns)
        save_wanted(en, until_ns);
    else if (busy)
        save_some(en, false, STEP_BYTES, now + step_ns / STEP_PART);
    else if (!t->saved_all && now >= t->active_ns + t->idle_ns)
        save_some(en, true, IDLE_BYTES, 0);
    else if (t->save.draft || t->retry_ns)
        save_some(en, false, IDLE_BYTES, 0);
    end_batch(en);
    let_go(en);
    t->run_ns = clock_now_ns();
}

uint64_t tier_due_ns(const engine *en) {
    const struct tier *t = &en->tier;
    uint64_t due = restore_due_ns(en), save = t->active_ns + t->idle_ns;
    if (!t->store || en->failure.code) return 0;
    const uint64_t poll = t->n_leaving || t->held ? t->run_ns + POLL_NS : 0;
    if (t->held || (t->saved_all && t->n_leaving))
        save = poll; /* there is nothing to do before */
    else if (t->saving || t->save.draft || t->retry_ns)
        save = 1;
    if (save < t->retry_ns) save = t->retry_ns;
    if ((save == 1 || t->retry_ns || !t->saved_all) && (!due || save < due)) due = save;
    return poll && (!due || poll < due) ? poll : due;
}

void tier_drop(engine *en) {
    struct tier *t = &en->tier;
    if (!t->store) return;
    end_draft(en, false);
    end_batch(en);
    restore_drop(en);
    const int rc = kv_batches_wait(en->cache);
    for (; t->n_leaving; t->n_leaving--) {
        const struct tier_leaving *l = &t->leaving[t->n_leaving - 1];
        if (l->wanted && !rc)
            kvstore_draft_submit(l->draft);
        else
            kvstore_draft_drop(l->draft);
    }
}
