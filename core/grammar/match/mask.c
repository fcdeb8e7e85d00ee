/* mask.c - computes masks by walking the trie with the machine. The mask of a state is the union of
 * those of its frames: frames that allow most tokens are done one by one with precomputed sets of
 * tokens, the others walk the trie together.
 *
 * Allocates nothing. */
#include "core/grammar/match/vocab.h"

#include <string.h>

/* ---- the trie ---- */

static void allow_token(const struct grammar_vocab *v, int32_t token, uint32_t *mask) {
    for (; token >= 0; token = v->same[token])
        mask[(uint32_t)token / 32] |= UINT32_C(1) << (uint32_t)token % 32;
}

/* Walks the nodes [at, end) of a trie from the sets of the path above them. */
static void walk_nodes(struct machine *m, const struct grammar_vocab *v, struct mask_work *work,
                       const struct trie *t, uint32_t at, uint32_t end, uint32_t *mask) {
    while (at < end && !machine_is_stopped(m)) {
        const struct trie_node *node = &t->nodes[at];
        uint32_t above = node->depth - 1u;
        m->n_pool = work->ends[above];
        if (m->n_frames > work->frames[above]) machine_roll_back(m, work->frames[above]);
        uint32_t first = m->n_pool;
        if (!machine_step(m, m->pool + work->first[above], work->ends[above] - work->first[above],
                          node->byte)) {
            at = node->end;
            continue;
        }
        work->first[node->depth] = first;
        work->ends[node->depth] = m->n_pool;
        work->frames[node->depth] = m->n_frames;
        if (node->token >= 0) allow_token(v, node->token, mask);
        at++;
    }
}

/* Makes the n frames at set the start of walks. */
static void begin_walk(struct machine *m, struct mask_work *work, const struct frame *set,
                       uint32_t n) {
    if (n > MACHINE_MAX_POOL - m->n_pool) {
        m->failed = true;
        return;
    }
    work->first[0] = m->n_pool;
    memcpy(m->pool + m->n_pool, set, n * sizeof *set);
    m->n_pool += n;
    work->ends[0] = m->n_pool;
    work->frames[0] = m->n_frames;
}

static void walk_all(struct machine *m, const struct grammar_vocab *v, struct mask_work *work,
                     const struct trie *t, uint32_t *mask) {
    walk_nodes(m, v, work, t, 0, t->n, mask);
}

/* ---- the trie, from one frame ---- */

/* The list of hashes that the frame's value must avoid; 0: none. */
static uint32_t used_by(const struct machine *m, const struct frame *f) {
    return f->flags & FLAG_WATCHED ? m->frames[f->parent].used : 0;
}

/* Does the frame stay a single frame for some bytes, so that it can be stepped without the machine?
 * Not if each step must check that an unused value is left; for automata of strings n_texts tells
 * when that check can be skipped. */
static bool goes_alone(const struct machine *m, const struct frame *f) {
    if (f->kind == FRAME_DFA) return !(f->flags & FLAG_WATCHED);
    if (f->kind != FRAME_STRING || f->phase != STRING_BODY) return false;
    return !used_by(m, f) || (f->flags & FLAG_CONTENT) == CONTENT_DFA ||
           m->g->strings.at[f->index].max == GRAMMAR_UNLIMITED;
}

enum alone { ALONE_DEAD, ALONE_ON, ALONE_NO_LONGER };

/* Steps a string by one byte. ALONE_NO_LONGER: the machine has to continue. */
static enum alone step_alone(struct machine *m, struct frame *f, uint8_t byte) {
    if (byte == '"' || byte == '\\') return ALONE_NO_LONGER;
    return byte >= 0x20 && string_content_byte(m, f, byte) ? ALONE_ON : ALONE_DEAD;
}

/* Walks the subtree at `at` with the machine; the frame has not consumed its byte yet. */
static void walk_below(struct machine *m, const struct grammar_vocab *v, struct mask_work *work,
                       const struct trie *t, uint32_t at, uint32_t *mask) {
    const struct trie_node *node = &t->nodes[at];
    uint32_t first = work->ends[0];
    m->n_pool = first;
    if (machine_step(m, &work->path[node->depth - 1], 1, node->byte)) {
        work->first[node->depth] = first;
        work->ends[node->depth] = m->n_pool;
        work->frames[node->depth] = m->n_frames;
        if (node->token >= 0) allow_token(v, node->token, mask);
        walk_nodes(m, v, work, t, at + 1, node->end, mask);
    }
    machine_roll_back(m, work->frames[0]);
}

/* As walk_alone, if only the state of an automaton changes. */
static void walk_automaton(struct machine *m, const struct grammar_vocab *v, struct mask_work *work,
                           const struct trie *t, uint32_t *mask) {
    const struct frame f = work->path[0];
    const struct dfa *d = &m->g->dfas.at[f.index];
    bool string = f.kind == FRAME_STRING, watched = f.flags & FLAG_WATCHED,
         ends = f.parent && !string;
    uint32_t n_nodes = 0; /* eight of them cost about as much as a frame */
    uint32_t n_used = used_n(m, used_by(m, &f));
    const uint16_t *n_texts = m->g->n_texts[f.index];
    work->states[0] = f.x;
    for (uint32_t at = 0; at < t->n && !machine_is_stopped(m);) {
        const struct trie_node *node = &t->nodes[at];
        if ((++n_nodes & 7) == 0) machine_spend(m, 1);
        uint32_t before = work->states[node->depth - 1], x = dfa_step(d, before, node->byte);
        bool leaves = string ? node->byte == '"' || node->byte == '\\' : ends && d->accept[x];
        if (string && node->byte < 0x20) x = 0;
        if (n_used && x) leaves |= n_texts[x] <= n_used;
        work->bytes[node->depth] = node->byte;
        if (leaves) {
            struct frame *at_leave = &work->path[node->depth - 1];
            *at_leave = f;
            at_leave->x = before;
            for (uint32_t i = 1; string && watched && i < node->depth; i++)
                at_leave->bits = hash_byte(at_leave->bits, work->bytes[i]);
            walk_below(m, v, work, t, at, mask);
        }
        if (!x || leaves) {
            at = node->end;
            continue;
        }
        work->states[node->depth] = x;
        if (node->token >= 0) allow_token(v, node->token, mask);
        at++;
    }
}

/* As walk_all, for a single frame that begin_walk was given and that goes_alone. */
static void walk_alone(struct machine *m, const struct grammar_vocab *v, struct mask_work *work,
                       const struct trie *t, uint32_t *mask) {
    const struct frame *from = &m->pool[work->first[0]];
    bool counts = from->kind == FRAME_STRING && (from->flags & FLAG_CONTENT) != CONTENT_DFA;
    work->path[0] = *from;
    if (!counts) {
        walk_automaton(m, v, work, t, mask);
        return;
    }
    for (uint32_t at = 0; at < t->n && !machine_is_stopped(m);) {
        const struct trie_node *node = &t->nodes[at];
        struct frame *f = &work->path[node->depth];
        machine_spend(m, 1);
        *f = work->path[node->depth - 1];
        enum alone went = step_alone(m, f, node->byte);
        if (went == ALONE_NO_LONGER) walk_below(m, v, work, t, at, mask);
        if (went == ALONE_ON && node->token >= 0) allow_token(v, node->token, mask);
        at = went == ALONE_ON ? at + 1 : node->end;
    }
}

/* ---- strings ---- */

/* Every plain token of at most this many code points is allowed in f (VOCAB_MAX_PLAIN: of any
 * number); 0: unknown. */
static uint32_t plain_code_points(const struct machine *m, const struct frame *f) {
    if (f->kind != FRAME_STRING || f->phase != STRING_BODY) return 0;
    if ((f->flags & FLAG_CONTENT) == CONTENT_DFA)
        return m->g->state_flags[f->index][f->x] & STATE_PLAIN ? VOCAB_MAX_PLAIN : 0;
    if ((f->flags & FLAG_CONTENT) != CONTENT_COUNT || f->acc) return 0;
    uint32_t max = m->g->strings.at[f->index].max, left = max - f->x;
    if (max == GRAMMAR_UNLIMITED || left > VOCAB_MAX_PLAIN) return VOCAB_MAX_PLAIN;
    return f->flags & FLAG_WATCHED ? 0 : left;
}

static void allow_string_tokens(struct machine *m, const struct grammar_vocab *v,
                                struct mask_work *work, uint32_t n_code_points, uint32_t *mask) {
    machine_spend(m, 1 + v->n_words / 64);
    const uint32_t *plain = v->plain + (uint64_t)n_code_points * v->n_words;
    for (uint32_t i = 0; i < v->n_words; i++)
        mask[i] |= plain[i];
    if (goes_alone(m, &m->pool[work->first[0]]))
        walk_alone(m, v, work, &v->not_plain, mask);
    else
        walk_all(m, v, work, &v->not_plain, mask);
}

/* ---- automata that loop on most bytes ---- */

/* The state that most bytes lead to; 0: none. */
static uint32_t main_target(const struct dfa *d, uint32_t state) {
    uint32_t best = 0, votes = 0;
    for (int b = 0; b < 256; b++) {
        uint32_t to = dfa_step(d, state, (uint8_t)b);
        if (!votes) best = to;
        if (to == best)
            votes++;
        else
            votes--;
    }
    return best;
}

/* A state that most bytes lead to and stay in; 0: there is none, or too many tokens contain another
 * byte. */
static uint32_t loop_of(struct machine *m, const struct grammar_vocab *v, const struct frame *f) {
    if (f->kind != FRAME_DFA || (f->flags & FLAG_WATCHED)) return 0;
    const struct dfa *d = &m->g->dfas.at[f->index];
    uint32_t loop = main_target(d, f->x);
    uint64_t others = 0;
    machine_spend(m, 64);
    if (!loop) return 0;
    for (int b = 0; b < 256; b++)
        if (dfa_step(d, loop, (uint8_t)b) != loop)
            others += v->byte_first[b + 1] - v->byte_first[b];
    for (uint32_t at = 0; at < v->trie.n; at = v->trie.nodes[at].end)
        if (dfa_step(d, f->x, v->trie.nodes[at].byte) != loop) others += v->trie.nodes[at].end - at;
    return others < v->n_vocab / 2 ? loop : 0;
}

static bool takes_token(struct machine *m, const struct grammar_vocab *v, struct mask_work *work,
                        uint32_t id) {
    const uint8_t *bytes;
    uint32_t n = vocab_token_bytes(v, id, &bytes), from = work->first[0], size = 1;
    m->n_pool = work->ends[0];
    for (uint32_t i = 0; i < n && size && !machine_is_stopped(m); i++) {
        uint32_t next = m->n_pool;
        size = machine_step(m, m->pool + from, size, bytes[i]);
        from = next;
    }
    machine_roll_back(m, work->frames[0]);
    return size && !machine_is_stopped(m);
}

/* Allows all tokens that stay in the loop; checks the others one by one. */
static void allow_loop_tokens(struct machine *m, const struct grammar_vocab *v,
                              struct mask_work *work, const struct frame *f, uint32_t loop,
                              uint32_t *mask) {
    const struct dfa *d = &m->g->dfas.at[f->index];
    uint32_t *own = work->mask;
    machine_spend(m, 1 + v->n_words / 32);
    memcpy(own, v->all, v->n_words * sizeof *own);
    for (int b = 0; b < 256; b++) {
        if (dfa_step(d, loop, (uint8_t)b) == loop) continue;
        for (uint32_t i = v->byte_first[b]; i < v->byte_first[b + 1] && !m->exhausted; i++) {
            uint32_t id = (uint32_t)v->byte_tokens[i];
            if (!takes_token(m, v, work, id)) own[id / 32] &= ~(UINT32_C(1) << id % 32);
        }
    }
    for (uint32_t at = 0; at < v->trie.n; at = v->trie.nodes[at].end) {
        const struct trie_node *root = &v->trie.nodes[at];
        if (dfa_step(d, f->x, root->byte) == loop) continue;
        for (uint32_t i = at; i < root->end; i++)
            for (int32_t id = v->trie.nodes[i].token; id >= 0; id = v->same[id])
                own[(uint32_t)id / 32] &= ~(UINT32_C(1) << (uint32_t)id % 32);
        walk_nodes(m, v, work, &v->trie, at, root->end, own);
    }
    for (uint32_t i = 0; i < v->n_words; i++)
        mask[i] |= own[i];
}

/* ---- masks ---- */

void mask_compute(struct machine *m, const struct grammar_vocab *v, struct mask_work *work,
                  const struct frame *set, uint32_t n, uint32_t *mask) {
    uint32_t pool = m->n_pool, frames = m->n_frames;
    memset(mask, 0, v->n_words * sizeof *mask);
    if (machine_may_end(set, n)) memcpy(mask, v->ends, v->n_words * sizeof *mask);
    uint32_t rest = m->n_pool, n_rest = 0;
    for (uint32_t i = 0; i < n && rest + n <= MACHINE_MAX_POOL && !machine_is_stopped(m); i++) {
        const struct frame *f = &set[i];
        uint32_t plain = plain_code_points(m, f), loop = plain ? 0 : loop_of(m, v, f);
        if (!plain && !loop && !goes_alone(m, f)) {
            m->pool[rest + n_rest++] = *f;
            continue;
        }
        m->n_pool = rest + n;
        begin_walk(m, work, f, 1);
        if (plain)
            allow_string_tokens(m, v, work, plain, mask);
        else if (!loop)
            walk_alone(m, v, work, &v->trie, mask);
        else
            allow_loop_tokens(m, v, work, f, loop, mask);
        machine_roll_back(m, frames);
    }
    m->n_pool = rest + n;
    if (n_rest && !machine_is_stopped(m)) {
        begin_walk(m, work, m->pool + rest, n_rest);
        walk_all(m, v, work, &v->trie, mask);
        machine_roll_back(m, frames);
    }
    m->n_pool = pool;
    if (machine_is_stopped(m)) memset(mask, 0, v->n_words * sizeof *mask);
}
