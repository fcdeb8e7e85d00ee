/* hf/tiktoken.c - reads a tiktoken.model, the vocabulary of Kimi's folders: a line for each token,
 * its bytes in base64 and its rank, which is its id (openai/tiktoken, load.py). Tokens become texts
 * in GPT-2's alphabet, and since tiktoken merges the neighbours whose joined bytes have the lowest
 * rank, every way to cut a token into two others is a merge of its rank (as transformers'
 * TikTokenConverter has it). Pure. */
#include "core/formats/hf/tokenizer_int.h"

#include "core/base/mem.h"
#include "core/text/unicode.h"
#include "core/text/utf8.h"

#include <inttypes.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKEN_BYTES = 1024, MAX_MEMORY = 1 << 28, N_RESERVED = 256 };

struct piece {
    uint8_t *bytes;
    uint32_t n;
};

struct ranks {
    struct hf_tokenizer *t;
    struct piece *pieces; /* (n) by rank */
    uint32_t n;
    int32_t *table; /* (n_slots) open addressing: a rank, -1 where it is free */
    uint64_t n_slots;
    err *e;
};

/* ---- lines ---- */

static int err_line(const struct ranks *r, uint32_t line, const char *why) {
    return err_set(r->e, ERR_FORMAT, "line %" PRIu32 " %s", line + 1, why);
}

/* A line of n characters: "aGVsbG8= 42". Ranks are 0, 1, 2, ... in this order. */
static int read_line(struct ranks *r, const char *text, size_t n, uint32_t line) {
    const char *space = memchr(text, ' ', n);
    const size_t n_base64 = space ? (size_t)(space - text) : 0;
    struct base64_decode_ctx ctx;
    char rank[16], *end;
    size_t n_bytes = BASE64_DECODE_LENGTH(n_base64);
    if (!n_base64 || n - n_base64 - 1 >= sizeof rank)
        return err_line(r, line, "is not a token in base64 and its rank");
    if (n_bytes > MAX_TOKEN_BYTES + 2) return err_line(r, line, "has a token that is too long");
    snprintf(rank, sizeof rank, "%.*s", (int)(n - n_base64 - 1), space + 1);
    if (rank[0] < '0' || rank[0] > '9' || strtoul(rank, &end, 10) != line || *end)
        return err_line(r, line, "has another rank than the number of lines before it");
    uint8_t *bytes = arena_alloc(r->t->memory, n_bytes + 1);
    if (!bytes) return err_no_memory(r->e);
    base64_decode_init(&ctx);
    if (!base64_decode_update(&ctx, &n_bytes, bytes, n_base64, text) ||
        !base64_decode_final(&ctx) || !n_bytes || n_bytes > MAX_TOKEN_BYTES)
        return err_line(r, line, "has no token in base64");
    r->pieces[line] = (struct piece){bytes, (uint32_t)n_bytes};
    return 0;
}

static int read_lines(struct ranks *r, const char *text, size_t n) {
    uint64_t lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n' || i + 1 == n;
    if (!lines || lines > HF_MAX_ID - N_RESERVED)
        return err_set(r->e, ERR_FORMAT, "it has %" PRIu64 " tokens, expected 1 to %d", lines,
                       HF_MAX_ID - N_RESERVED);
    r->pieces = mem_new(lines, sizeof *r->pieces);
    if (!r->pieces) return err_no_memory(r->e);
    int rc = 0;
    for (size_t at = 0; at < n && !rc;) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t next = end ? (size_t)(end - text) : n;
        const size_t length = next - at - (next > at && text[next - 1] == '\r');
        rc = read_line(r, text + at, length, r->n);
        if (!rc) r->n++;
        at = next + 1;
    }
    return rc;
}

/* ---- ranks of bytes ---- */

static uint64_t slot_of(const struct ranks *r, const uint8_t *bytes, uint32_t n) {
    uint64_t hash = 14695981039346656037u;
    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return (hash ^ hash >> 32) & (r->n_slots - 1);
}

/* The slot with these bytes, or the free one where they belong. */
static uint64_t find_slot(const struct ranks *r, const uint8_t *bytes, uint32_t n) {
    uint64_t at = slot_of(r, bytes, n);
    while (r->table[at] >= 0) {
        const struct piece *p = &r->pieces[r->table[at]];
        if (p->n == n && memcmp(p->bytes, bytes, n) == 0) break;
        at = (at + 1) & (r->n_slots - 1);
    }
    return at;
}

static int32_t rank_of(const struct ranks *r, const uint8_t *bytes, uint32_t n) {
    return r->table[find_slot(r, bytes, n)];
}

static int index_ranks(struct ranks *r) {
    r->n_slots = 16;
    while (r->n_slots < 2 * (uint64_t)r->n)
        r->n_slots *= 2;
    r->table = mem_new(r->n_slots, sizeof *r->table);
    if (!r->table) return err_no_memory(r->e);
    for (uint64_t i = 0; i < r->n_slots; i++)
        r->table[i] = -1;
    for (uint32_t i = 0; i < r->n; i++) {
        const uint64_t at = find_slot(r, r->pieces[i].bytes, r->pieces[i].n);
        if (r->table[at] >= 0) return err_line(r, i, "has the token of another line");
        r->table[at] = (int32_t)i;
    }
    for (uint32_t b = 0; b < 256; b++)
        if (rank_of(r, &(uint8_t){(uint8_t)b}, 1) < 0)
            return err_set(r->e, ERR_FORMAT, "it has no token for byte %" PRIu32, b);
    return 0;
}

/* ---- texts and merges ---- */

static int add_texts(struct ranks *r) {
    struct hf_tokenizer *t = r->t;
    t->tokens = mem_new(r->n, sizeof *t->tokens);
    if (!t->tokens) return err_no_memory(r->e);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct piece *p = &r->pieces[i];
        char *text = arena_alloc(t->memory, 2 * (uint64_t)p->n + 4); /* up to U+0143 */
        size_t at = 0;
        if (!text) return err_no_memory(r->e);
        for (uint32_t k = 0; k < p->n; k++)
            at += utf8_encode(unicode_of_byte(p->bytes[k]), text + at);
        t->tokens[t->n_tokens++] = (struct hf_token){.text = text, .id = (int32_t)i};
    }
    return 0;
}

struct cut {
    int32_t left, right; /* ranks */
    uint32_t at;         /* bytes of the text */
};

static int compare_cuts(const void *a, const void *b) {
    const struct cut *x = a, *y = b;
    return x->left != y->left ? (x->left < y->left ? -1 : 1)
                              : (x->right > y->right) - (x->right < y->right);
}

/* The cuts of token i into two tokens, in the order of transformers. */
static uint32_t find_cuts(const struct ranks *r, uint32_t i, struct cut *cuts) {
    const struct piece *p = &r->pieces[i];
    uint32_t n = 0, text = 0;
    for (uint32_t k = 1; k < p->n; k++) {
        text += unicode_of_byte(p->bytes[k - 1]) < 0x80 ? 1 : 2;
        const int32_t left = rank_of(r, p->bytes, k);
        const int32_t right = left < 0 ? -1 : rank_of(r, p->bytes + k, p->n - k);
        if (right >= 0) cuts[n++] = (struct cut){left, right, text};
    }
    if (n > 1) qsort(cuts, n, sizeof *cuts, compare_cuts);
    return n;
}

static int add_merges(struct ranks *r) {
    struct hf_tokenizer *t = r->t;
    struct cut cuts[MAX_TOKEN_BYTES];
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->n; i++)
        n += find_cuts(r, i, cuts);
    if (n > HF_MAX_MERGES)
        return err_set(r->e, ERR_FORMAT, "its tokens have %" PRIu64 " merges, expected at most %d",
                       n, HF_MAX_MERGES);
    t->merges = mem_new(n + 1, sizeof *t->merges);
    if (!t->merges) return err_no_memory(r->e);
    for (uint32_t i = 0; i < r->n; i++) {
        const char *text = t->tokens[i].text;
        const uint32_t length = (uint32_t)strlen(text), n_cuts = find_cuts(r, i, cuts);
        for (uint32_t k = 0; k < n_cuts; k++)
            t->merges[t->n_merges++] =
                (struct hf_merge){text, text + cuts[k].at, cuts[k].at, length - cuts[k].at};
    }
    return 0;
}

int hf_tiktoken_read(const char *text, size_t n, struct hf_tokenizer *t, err *e) {
    struct ranks r = {.t = t, .e = e};
    t->memory = arena_new(MAX_MEMORY);
    int rc = t->memory ? read_lines(&r, text, n) : err_no_memory(e);
    if (!rc) rc = index_ranks(&r);
    if (!rc) rc = add_texts(&r);
    if (!rc) rc = add_merges(&r);
    free(r.table);
    free(r.pieces);
    if (rc) return rc;
    t->ignore_merges = true; /* tiktoken looks a whole word up first */
    t->decodes_bytes = true;
    t->pre_tokenizer.items[0] =
        (struct hf_step){.kind = HF_SPLIT, .pattern = HF_KIMI_WORDS, .behavior = HF_ISOLATED};
    t->pre_tokenizer.items[1] = (struct hf_step){.kind = HF_BYTE_LEVEL};
    t->pre_tokenizer.n = 2;
    return 0;
}

/* ---- special tokens ---- */

/* Those that the configuration has; the maker's code calls others of 256 behind the ranks
 * "<|reserved_token_N|>". */
int hf_tiktoken_reserve(struct hf_tokenizer *t, err *e) {
    const uint32_t first = t->n_tokens, n_named = t->n_added;
    bool named[N_RESERVED] = {false};
    for (uint32_t i = 0; i < n_named; i++) {
        const uint32_t id = (uint32_t)t->added[i].token.id;
        if (id >= first && id - first < N_RESERVED) named[id - first] = true;
    }
    for (uint32_t i = 0; i < N_RESERVED; i++) {
        char text[48];
        const int n = snprintf(text, sizeof text, "<|reserved_token_%" PRIu32 "|>", first + i);
        if (named[i]) continue;
        const char *kept = arena_strndup(t->memory, text, (size_t)n);
        if (!kept) return err_no_memory(e);
        t->added[t->n_added++] =
            (struct hf_added){.token = {.text = kept, .id = (int32_t)(first + i)}, .special = true};
    }
    return 0;
}
