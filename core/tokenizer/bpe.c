/* bpe.c - the merge tables and the merging. Short pieces are merged by a linear search for the
 * lowest rank; long ones with a heap, so that time is O(n log n) for any text. Immutable after
 * bpe_new. */
#include "core/tokenizer/bpe_int.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHORT_UNITS = 40,           /* linear search is faster up to here */
    MAX_PIECE_BYTES = 64 << 20, /* needs some 2 GB to merge */
    SHOWN_BYTES = 60            /* of a text in an error message */
};
#define NO_RANK UINT32_MAX

static const char space_mark[] = "\xe2\x96\x81";

int bpe_rules_init(struct bpe_rules *r, err *e) {
    r->flags = mem_new(1, sizeof *r->flags);
    if (r->flags) unicode_flags_init(r->flags);
    r->pretok = r->flags ? pretok_new(r->flags) : NULL;
    return r->pretok ? 0 : err_no_memory(e);
}

void bpe_rules_fini(struct bpe_rules *r) {
    pretok_free(r->pretok);
    free(r->flags);
    memset(r, 0, sizeof *r);
}

size_t bpe_bytes_of_text(const char *text, size_t n, char *out) {
    size_t used = 0;
    if (!utf8_valid(text, n)) return SIZE_MAX;
    for (size_t i = 0; i < n;) {
        unsigned len;
        int b = unicode_byte_of(utf8_decode_valid(text + i, &len));
        if (b < 0) return SIZE_MAX;
        out[used++] = (char)b;
        i += len;
    }
    return used;
}

/* The bytes under which a token is indexed. */
static const char *key_of(const struct bpe *b, int32_t id, uint32_t *n) {
    const struct token *k = &b->t->tokens[id];
    *n = b->rules.byte_level ? k->bytes_len : k->text_len;
    return b->t->blob + (b->rules.byte_level ? k->bytes_at : k->text_at);
}

static uint32_t hash_bytes(const char *p, size_t n) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t v = 0;
    memcpy(&v, p, n);
    h = (h ^ v) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h ^ h >> 29);
}

int32_t bpe_find_text(const struct bpe *b, const char *text, size_t n) {
    for (uint32_t at = hash_bytes(text, n) & b->text_mask;; at = (at + 1) & b->text_mask) {
        uint32_t len;
        int32_t id = b->texts[at];
        if (id == NO_ID) return NO_ID;
        const char *key = key_of(b, id, &len);
        if (len == n && memcmp(key, text, n) == 0) return id;
    }
}

static inline uint32_t hash_pair(int32_t left, int32_t right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

static inline const struct merge_slot *find_merge(const struct bpe *b, int32_t left,
                                                  int32_t right) {
    for (uint32_t at = hash_pair(left, right) & b->merge_mask;; at = (at + 1) & b->merge_mask) {
        const struct merge_slot *m = &b->merges[at];
        if (m->left == left && m->right == right) return m;
        if (m->left == NO_ID) return NULL;
    }
}

/* A power of two that holds n entries at a load of at most one half. */
static uint32_t table_size(uint32_t n) {
    uint32_t size = 16;
    while (size / 2 < n)
        size *= 2;
    return size;
}

static bool is_ordinary(const struct token *k) {
    return k->type != TOKEN_CONTROL && k->type != TOKEN_UNKNOWN && k->type != TOKEN_USER_DEFINED &&
           k->type != TOKEN_BYTE;
}

/* May text become this token by SentencePiece's merging? */
static bool can_merge(const struct token *k) {
    return !k->hidden && (k->type == TOKEN_NORMAL || k->type == TOKEN_USER_DEFINED);
}

/* Indexes tokens by text. Of tokens with equal text the ordinary one is found; two ordinary ones
 * are an error. */
static int index_texts(struct bpe *b, err *e) {
    uint32_t n = (uint32_t)b->t->n_tokens, size = table_size(n), len;
    b->texts = mem_new(size, sizeof *b->texts);
    if (!b->texts) return err_no_memory(e);
    b->text_mask = size - 1;
    memset(b->texts, 0xff, size * sizeof *b->texts);
    for (int32_t id = 0; id < b->t->n_tokens; id++) {
        const char *key = key_of(b, id, &len);
        if (!len || (b->scored && !can_merge(&b->t->tokens[id]))) continue;
        int32_t other = bpe_find_text(b, key, len);
        if (other != NO_ID) {
            bool ordinary = is_ordinary(&b->t->tokens[id]);
            if (ordinary && is_ordinary(&b->t->tokens[other]))
                return err_set(e, ERR_FORMAT,
                               "tokens %" PRId32 " and %" PRId32 " have the same text", other, id);
            if (!ordinary) continue;
        }
        uint32_t at = hash_bytes(key, len) & b->text_mask;
        while (b->texts[at] != NO_ID && b->texts[at] != other)
            at = (at + 1) & b->text_mask;
        b->texts[at] = id;
    }
    return 0;
}

/* The id of a merge's part, given as written in the file. */
static int32_t find_part(const struct bpe *b, const char *text, uint32_t n) {
    char bytes[2 * VOCAB_MAX_TEXT_BYTES];
    if (!b->rules.byte_level || n > sizeof bytes) return n ? bpe_find_text(b, text, n) : NO_ID;
    size_t len = bpe_bytes_of_text(text, n, bytes);
    if (len == SIZE_MAX) return bpe_find_text(b, text, n);
    return len ? bpe_find_text(b, bytes, len) : NO_ID;
}

static int refuse_merge(const struct bpe *b, const struct vocab_merge *m, uint32_t rank, err *e) {
    bool left = find_part(b, m->left, m->left_len) == NO_ID;
    bool right = find_part(b, m->right, m->right_len) == NO_ID;
    const char *text = left ? m->left : m->right;
    uint32_t n = left ? m->left_len : m->right_len;
    str shown;
    str_init(&shown, 4 * SHOWN_BYTES);
    utf8_add_lossy(&shown, text, n < SHOWN_BYTES ? n : SHOWN_BYTES);
    int rc = err_set(e, ERR_FORMAT, "merge %" PRIu32 " %s unknown token '%s'", rank,
                     left || right ? "names the" : "makes an", str_cstr(&shown));
    str_fini(&shown);
    return rc;
}

/* Merges that produce control tokens are not added. */
static int add_merge(struct bpe *b, const struct vocab_merge *m, uint32_t rank, err *e) {
    char joined[2 * VOCAB_MAX_TEXT_BYTES];
    int32_t left = find_part(b, m->left, m->left_len), right = find_part(b, m->right, m->right_len);
    int32_t result = NO_ID;
    if (left != NO_ID && right != NO_ID && m->left_len + m->right_len <= sizeof joined) {
        memcpy(joined, m->left, m->left_len);
        memcpy(joined + m->left_len, m->right, m->right_len);
        result = find_part(b, joined, m->left_len + m->right_len);
    }
    if (result == NO_ID) return refuse_merge(b, m, rank, e);
    const struct token *k = &b->t->tokens[result];
    if (k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN) return 0;
    uint32_t at = hash_pair(left, right) & b->merge_mask;
    while (b->merges[at].left != NO_ID) {
        if (b->merges[at].left == left && b->merges[at].right == right) return 0;
        at = (at + 1) & b->merge_mask;
    }
    b->merges[at] = (struct merge_slot){left, right, rank, result};
    return 0;
}

static bool new_merges(struct bpe *b, uint32_t n) {
    uint32_t size = table_size(n);
    b->merges = mem_new(size, sizeof *b->merges);
    if (!b->merges) return false;
    b->merge_mask = size - 1;
    memset(b->merges, 0xff, size * sizeof *b->merges);
    return true;
}

static int index_merges(struct bpe *b, const struct vocab *v, err *e) {
    int rc = 0;
    if (!new_merges(b, v->n_merges)) return err_no_memory(e);
    for (uint32_t i = 0; !rc && i < v->n_merges; i++) {
        const struct vocab_merge *m = &v->merges[i];
        if (m->left_len > VOCAB_MAX_TEXT_BYTES || m->right_len > VOCAB_MAX_TEXT_BYTES)
            return err_set(e, ERR_FORMAT, "a part of merge %" PRIu32 " has more than %d bytes", i,
                           VOCAB_MAX_TEXT_BYTES);
        rc = add_merge(b, m, i, e);
    }
    return rc;
}

/* A token and its score; the highest score sorts first. */
struct scored {
    float score;
    int32_t id;
};

static int compare_scored(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

/* The pairs of tokens that merge into one token. */
struct slot_list {
    struct merge_slot *slots; /* (n) */
    uint32_t n, capacity;
};

static bool add_cuts(const struct bpe *b, int32_t id, uint32_t rank, struct slot_list *l) {
    uint32_t n;
    const char *text = key_of(b, id, &n);
    for (uint32_t i = 1; i < n; i++) {
        if (utf8_continues(text[i])) continue;
        int32_t left = bpe_find_text(b, text, i);
        int32_t right = left == NO_ID ? NO_ID : bpe_find_text(b, text + i, n - i);
        if (right == NO_ID) continue;
        if (l->n == l->capacity) {
            uint32_t capacity = l->capacity ? 2 * l->capacity : 1 << 16;
            if (capacity > 2u * VOCAB_MAX_MERGES) return false;
            struct merge_slot *slots = mem_resize(l->slots, capacity, sizeof *slots);
            if (!slots) return false;
            l->slots = slots;
            l->capacity = capacity;
        }
        l->slots[l->n++] = (struct merge_slot){left, right, rank, id};
    }
    return true;
}

/* Tokens of equal score have the same rank, so their leftmost merge comes first. */
static int index_scores(struct bpe *b, const struct vocab *v, err *e) {
    struct scored *order = mem_new((uint64_t)b->t->n_tokens, sizeof *order);
    struct slot_list list = {0};
    uint32_t n = 0, rank = 0;
    bool ok = order;
    for (int32_t id = 0; ok && id < b->t->n_tokens; id++)
        if (can_merge(&b->t->tokens[id])) order[n++] = (struct scored){v->tokens[id].score, id};
    if (ok && n) qsort(order, n, sizeof *order, compare_scored);
    for (uint32_t i = 0; ok && i < n; i++) {
        rank += i && order[i].score != order[i - 1].score;
        ok = add_cuts(b, order[i].id, rank, &list);
    }
    if (ok) ok = new_merges(b, list.n);
    for (uint32_t i = 0; ok && i < list.n; i++) {
        const struct merge_slot *m = &list.slots[i];
        uint32_t at = hash_pair(m->left, m->right) & b->merge_mask;
        while (b->merges[at].left != NO_ID)
            at = (at + 1) & b->merge_mask;
        b->merges[at] = *m;
    }
    free(list.slots);
    free(order);
    return ok ? 0 : err_no_memory(e);
}

static void index_units(struct bpe *b) {
    uint32_t n_bytes = 0;
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        b->units[i] = b->rules.byte_level ? bpe_find_text(b, &c, 1) : b->t->byte_ids[i];
        /* A single byte that is a control token's text remains text. */
        if (b->units[i] != NO_ID && b->t->tokens[b->units[i]].type == TOKEN_CONTROL)
            b->units[i] = NO_ID;
        n_bytes += b->units[i] != NO_ID;
    }
    if (!b->rules.byte_level && n_bytes < 256) b->rules.byte_fallback = false;
}

/* If no token contains a space mark after another character, no merge crosses the position before a
 * mark, and each part can be merged separately. */
static void find_cuts(struct bpe *b) {
    b->cuts_at_mark = !b->rules.byte_level && bpe_find_text(b, space_mark, 3) != NO_ID;
    for (int32_t id = 0; b->cuts_at_mark && id < b->t->n_tokens; id++) {
        const struct token *k = &b->t->tokens[id];
        const char *text = b->t->blob + k->text_at;
        bool after_other = false;
        for (uint32_t i = 0; i < k->text_len && is_ordinary(k);) {
            bool mark = k->text_len - i >= 3 && memcmp(text + i, space_mark, 3) == 0;
            if (mark && after_other) b->cuts_at_mark = false;
            after_other = !mark;
            i += mark ? 3 : 1;
        }
    }
}

int bpe_new(const struct tokenizer *t, struct vocab *v, struct bpe **out, err *e) {
    struct bpe *b = mem_new(1, sizeof *b);
    *out = NULL;
    if (!b) return err_no_memory(e);
    b->t = t;
    b->unk = v->unk;
    b->rules = v->rules;
    memset(&v->rules, 0, sizeof v->rules);
    int rc = index_texts(b, e);
    if (!rc) rc = index_merges(b, v, e);
    if (!rc && b->rules.model == BPE_UNIGRAM) rc = unigram_init(b, v, e);
    if (rc) {
        bpe_free(b);
        return rc;
    }
    index_units(b);
    find_cuts(b);
    *out = b;
    return 0;
}

int bpe_new_scored(const struct tokenizer *t, const struct vocab *v, struct bpe **out, err *e) {
    struct bpe *b = mem_new(1, sizeof *b);
    *out = NULL;
    if (!b) return err_no_memory(e);
    b->t = t;
    b->unk = NO_ID;
    b->scored = true;
    b->rules.marks_spaces = b->rules.byte_fallback = true;
    int rc = bpe_rules_init(&b->rules, e);
    if (!rc) rc = index_texts(b, e);
    if (!rc) rc = index_scores(b, v, e);
    if (rc) {
        bpe_free(b);
        return rc;
    }
    index_units(b);
    b->cuts_at_mark = t->cuts_at_space;
    *out = b;
    return 0;
}

void bpe_free(struct bpe *b) {
    if (!b) return;
    bpe_rules_fini(&b->rules);
    free(b->merges);
    free(b->texts);
    free(b->scores);
    free(b);
}

void bpe_work_free(struct bpe_work *w) {
    if (!w) return;
    pretok_work_fini(&w->pretok);
    str_fini(&w->marked);
    free(w->units);
    free(w->heap);
    free(w->nodes);
    free(w);
}

/* Merges few units, ids[0..n), with the rank of each and its right neighbour. */
static int merge_short(const struct bpe *b, int32_t *ids, size_t n, struct id_list *out, err *e) {
    uint32_t ranks[SHORT_UNITS];
    int32_t results[SHORT_UNITS];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct merge_slot *m = find_merge(b, ids[i], ids[i + 1]);
        ranks[i] = m ? m->rank : NO_RANK;
        results[i] = m ? m->result : NO_ID;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == NO_RANK) break;
        ids[best] = results[best];
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        memmove(ranks + best, ranks + best + 1, (n - best) * sizeof *ranks);
        memmove(results + best, results + best + 1, (n - best) * sizeof *results);
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct merge_slot *m = find_merge(b, ids[i], ids[i + 1]);
            ranks[i] = m ? m->rank : NO_RANK;
            results[i] = m ? m->result : NO_ID;
        }
    }
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++)
        rc = id_list_add(out, ids[i], e);
    return rc;
}

static bool heap_push(struct bpe_work *w, uint64_t item) {
    if (w->n_heap == w->heap_capacity) {
        size_t capacity = w->heap_capacity ? 2 * w->heap_capacity : 1024;
        uint64_t *heap = mem_resize(w->heap, capacity, sizeof *heap);
        if (!heap) return false;
        w->heap = heap;
        w->heap_capacity = capacity;
    }
    size_t at = w->n_heap++;
    for (; at && w->heap[(at - 1) / 2] > item; at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = item;
    return true;
}

static uint64_t heap_pop(struct bpe_work *w) {
    uint64_t top = w->heap[0], item = w->heap[--w->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->n_heap; at = child) {
        if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child]) child++;
        if (w->heap[child] >= item) break;
        w->heap[at] = w->heap[child];
    }
    w->heap[at] = item;
    return top;
}

/* Stores the merge of units[at] with its right neighbour. */
static bool note_merge(const struct bpe *b, struct bpe_work *w, uint32_t at, uint32_t n) {
    struct unit *u = &w->units[at];
    const struct merge_slot *m = u->next < n ? find_merge(b, u->id, w->units[u->next].id) : NULL;
    u->rank = m ? m->rank : NO_RANK;
    u->result = m ? m->result : NO_ID;
    return !m || heap_push(w, (uint64_t)m->rank << 32 | at);
}

/* Merges w->units[0..n), whose ids are set. */
static int merge_long(const struct bpe *b, struct bpe_work *w, uint32_t n, struct id_list *out,
                      err *e) {
    bool ok = true;
    w->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        w->units[i].previous = i - 1; /* the first wraps around: none */
        w->units[i].next = i + 1;
    }
    for (uint32_t i = 0; ok && i < n; i++)
        ok = note_merge(b, w, i, n);
    while (ok && w->n_heap) {
        uint64_t top = heap_pop(w);
        struct unit *u = &w->units[(uint32_t)top];
        if (u->id == NO_ID || u->rank != top >> 32) continue; /* outdated */
        struct unit *right = &w->units[u->next];
        u->id = u->result;
        u->next = right->next;
        right->id = NO_ID;
        if (u->next < n) w->units[u->next].previous = (uint32_t)top;
        ok = note_merge(b, w, (uint32_t)top, n);
        if (ok && u->previous < n) ok = note_merge(b, w, u->previous, n);
    }
    if (!ok) return err_no_memory(e);
    int rc = 0;
    for (uint32_t i = 0; !rc && i < n; i = w->units[i].next)
        rc = id_list_add(out, w->units[i].id, e);
    return rc;
}

static bool reserve_units(struct bpe_work *w, size_t n) {
    if (n <= w->capacity) return true;
    free(w->units);
    w->units = mem_new(n, sizeof *w->units);
    w->capacity = w->units ? n : 0;
    return w->units;
}

/* Splits a piece into its units and returns their number, at most n. Id i is written to
 * ids[i * stride]. Characters without a token are dropped if there is no unknown token. */
static size_t find_units(const struct bpe *b, const char *text, size_t n, int32_t *ids,
                         size_t stride) {
    size_t n_units = 0;
    bool was_unknown = false;
    for (size_t i = 0; i < n;) {
        unsigned len = 1;
        int32_t id = NO_ID;
        if (b->rules.byte_level) {
            id = b->units[(unsigned char)text[i]];
        } else {
            utf8_decode_valid(text + i, &len);
            id = bpe_find_text(b, text + i, len);
            if (id != NO_ID && b->t->tokens[id].type == TOKEN_CONTROL) id = NO_ID;
        }
        bool unknown = id == NO_ID;
        if (unknown && b->rules.byte_fallback && !b->rules.byte_level) {
            for (unsigned k = 0; k < len; k++)
                ids[stride * n_units++] = b->units[(unsigned char)text[i + k]];
            unknown = false;
        } else if (!unknown) {
            ids[stride * n_units++] = id;
        } else if (b->unk != NO_ID && !(was_unknown && b->rules.fuse_unk)) {
            ids[stride * n_units++] = b->unk;
        }
        was_unknown = unknown;
        i += len;
    }
    return n_units;
}

static int encode_part(const struct bpe *b, struct bpe_work *w, const char *text, size_t n,
                       struct id_list *out, err *e) {
    if (n <= SHORT_UNITS) {
        int32_t ids[SHORT_UNITS];
        return merge_short(b, ids, find_units(b, text, n, ids, 1), out, e);
    }
    if (n > MAX_PIECE_BYTES)
        return err_set(e, ERR_TOO_LONG, "a word of %zu bytes is too long (expected at most %d)", n,
                       MAX_PIECE_BYTES);
    if (!reserve_units(w, n)) return err_no_memory(e);
    size_t stride = sizeof *w->units / sizeof(int32_t);
    size_t n_units = find_units(b, text, n, &w->units->id, stride);
    return merge_long(b, w, (uint32_t)n_units, out, e);
}

bool bpe_makes_all(const struct bpe *b) {
    struct bpe_work w = {0};
    struct id_list made = {.max = VOCAB_MAX_TEXT_BYTES};
    bool all = true;
    for (int32_t id = 0; all && id < b->t->n_tokens; id++) {
        uint32_t n;
        const char *text = key_of(b, id, &n);
        if (!n || !is_ordinary(&b->t->tokens[id])) continue;
        made.n = 0;
        all = encode_part(b, &w, text, n, &made, NULL) == 0 && made.n == 1 && made.ids[0] == id;
    }
    free(made.ids);
    free(w.units);
    free(w.heap);
    return all;
}

/* Length of a first part of text that can be merged separately. */
static size_t part_length(const struct bpe *b, const char *text, size_t n) {
    if (!b->cuts_at_mark) return n;
    for (size_t i = 3; i + 3 <= n; i++)
        if (text[i] == space_mark[0] && memcmp(text + i, space_mark, 3) == 0 &&
            memcmp(text + i - 3, space_mark, 3) != 0)
            return i;
    return n;
}

struct sink_context {
    const struct bpe *b;
    struct bpe_work *w;
    struct id_list *out;
};

static int encode_piece(void *context, const char *text, size_t n, err *e) {
    const struct sink_context *c = context;
    if (c->b->rules.model == BPE_WORDPIECE) return wordpiece_encode(c->b, text, n, c->out, e);
    if (c->b->rules.model == BPE_UNIGRAM) return unigram_encode(c->b, c->w, text, n, c->out, e);
    /* In vocabularies with marked spaces, line ends have tokens but no merges. */
    bool lines = c->b->rules.marks_spaces && !c->b->scored && text[0] == '\n';
    if (c->b->rules.ignore_merges || lines) {
        int32_t id = bpe_find_text(c->b, text, n);
        if (id != NO_ID && is_ordinary(&c->b->t->tokens[id])) return id_list_add(c->out, id, e);
    }
    int rc = 0;
    for (size_t i = 0; !rc && i < n;) {
        size_t part = part_length(c->b, text + i, n - i);
        rc = encode_part(c->b, c->w, text + i, part, c->out, e);
        i += part;
    }
    return rc;
}

static struct bpe_work *work_new(void) {
    struct bpe_work *w = mem_new(1, sizeof *w);
    if (!w) return NULL;
    pretok_work_init(&w->pretok);
    str_init(&w->marked, SIZE_MAX / 2);
    return w;
}

/* Replaces spaces by marks. */
static void mark_spaces(str *out, const char *text, size_t n) {
    str_clear(out);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ')
            str_add_n(out, space_mark, 3);
        else
            str_add_char(out, text[i]);
    }
}

int bpe_encode(const struct bpe *b, struct bpe_work **work, const char *text, size_t n,
               bool at_start, struct id_list *out, err *e) {
    if (!*work && !(*work = work_new())) return err_no_memory(e);
    struct bpe_work *w = *work;
    if (b->rules.marks_spaces) {
        mark_spaces(&w->marked, text, n);
        if (w->marked.failed) return err_no_memory(e);
        text = w->marked.data;
        n = w->marked.len;
    }
    struct sink_context c = {b, w, out};
    struct pretok_sink sink = {encode_piece, &c};
    return pretok_run(b->rules.pretok, &w->pretok, text, n, at_start, &sink, e);
}

int bpe_encode_byte(const struct bpe *b, unsigned char byte, struct id_list *out, err *e) {
    bool has = b->units[byte] != NO_ID && (b->rules.byte_level || b->rules.byte_fallback);
    int32_t id = has ? b->units[byte] : b->unk;
    return id == NO_ID ? 0 : id_list_add(out, id, e);
}
