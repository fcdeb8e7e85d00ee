/* window.c - owns the window blocks: the K/V of windowed layers. Their references, the lists of
 * those without, and which KV block has which. Sequences hold those of their window only. Worker
 * thread only. */
#include "core/kv/kv_int.h"

#include "core/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool kv_has_windows(const kv *c) {
    return c->pages != NULL;
}

/* A sequence holds the blocks of window - 1 tokens and of one more whose id the host does not know
 * yet, which may begin and end inside a block; the rows of a step may begin another one, and a copy
 * pins its source. */
uint64_t kv_window_least(uint32_t window, uint32_t block_tokens, uint32_t n_seqs, uint32_t n_rows) {
    uint64_t each = (uint64_t)window / block_tokens + 4;
    return each * n_seqs + n_rows / block_tokens;
}

bool kv_windows_suffice(const kv *c, uint32_t n_seqs, uint32_t n_rows) {
    const struct kv_config *k = &c->config;
    return !kv_has_windows(c) || k->n_window_blocks == k->n_blocks ||
           k->n_window_blocks >= kv_window_least(k->window, k->block_tokens, n_seqs, n_rows);
}

uint32_t kv_window_first(const kv *c, uint32_t n_tokens) {
    uint32_t window = c->config.window;
    return (n_tokens >= window ? n_tokens + 1 - window : 0) / c->config.block_tokens;
}

/* ---- lists ---- */

static void list_add(kv *c, uint32_t i) {
    const struct kv_page *p = &c->pages[i];
    kv_list_add(KV_LINKS(c->pages, free), &c->page_lists[kv_page_list_of(p)], i, true);
    kv_count(&c->n_pages_free, 1);
    if (p->owner != KV_NONE) kv_count(&c->n_pages_cached, 1);
}

static void list_remove(kv *c, uint32_t i) {
    const struct kv_page *p = &c->pages[i];
    kv_list_remove(KV_LINKS(c->pages, free), &c->page_lists[kv_page_list_of(p)], i);
    kv_count(&c->n_pages_free, -1);
    if (p->owner != KV_NONE) kv_count(&c->n_pages_cached, -1);
}

int kv_windows_open(kv *c, err *e) {
    const struct kv_config *k = &c->config;
    uint32_t n_windowed = 0;
    for (uint32_t i = 0; k->window && k->windowed && i < k->n_layers; i++)
        n_windowed += k->windowed[i];
    if (!n_windowed) return 0;
    c->windowed = mem_new(k->n_layers, sizeof *c->windowed);
    c->page_tables = mem_new((uint64_t)k->max_seqs * k->max_blocks_per_seq, sizeof *c->page_tables);
    c->page_copies = mem_new(k->n_blocks, 2 * sizeof *c->page_copies);
    c->pages = mem_new(k->n_window_blocks, sizeof *c->pages);
    if (!c->windowed || !c->page_tables || !c->page_copies || !c->pages) return err_no_memory(e);
    memcpy(c->windowed, k->windowed, k->n_layers * sizeof *c->windowed);
    for (int l = 0; l < KV_N_PAGE_LISTS; l++)
        c->page_lists[l] = KV_LIST_EMPTY;
    for (uint32_t i = 0; i < k->n_window_blocks; i++) {
        c->pages[i].owner = KV_NONE;
        list_add(c, i); /* block 0 is taken first */
    }
    return 0;
}

void kv_windows_close(kv *c) {
    free(c->pages);
    free(c->page_copies);
    free(c->page_tables);
    free(c->windowed);
}

/* ---- owners and references ---- */

/* For block b; with one reference. */
static uint32_t page_take(kv *c, uint32_t b) {
    int l = KV_PAGES_UNUSED;
    while (l < KV_N_PAGE_LISTS && c->page_lists[l].head == KV_NONE)
        l++;
    assert(l < KV_N_PAGE_LISTS && c->blocks[b].page == KV_NONE);
    uint32_t i = c->page_lists[l].head;
    struct kv_page *p = &c->pages[i];
    list_remove(c, i);
    if (p->owner != KV_NONE) {
        c->blocks[p->owner].page = KV_NONE;
        kv_count(&c->page_evictions, 1);
    }
    kv_await_batch(c, p->batch);
    *p = (struct kv_page){.refs = 1, .owner = b, .batch = p->batch};
    c->blocks[b].page = i;
    return i;
}

static void page_ref(kv *c, uint32_t i) {
    if (kv_page_is_free(&c->pages[i])) list_remove(c, i);
    c->pages[i].refs++;
}

/* Without references and pins: its contents are of use only if its block can be found. */
static void page_idle(kv *c, uint32_t i) {
    struct kv_page *p = &c->pages[i];
    if (!kv_page_is_free(p)) return;
    if (p->owner != KV_NONE && !c->blocks[p->owner].cached) {
        c->blocks[p->owner].page = KV_NONE;
        p->owner = KV_NONE;
    }
    list_add(c, i);
}

static void page_unref(kv *c, uint32_t i) {
    assert(c->pages[i].refs > 0);
    c->pages[i].refs--;
    page_idle(c, i);
}

void kv_window_uncached(kv *c, uint32_t b) {
    uint32_t i = c->blocks[b].page;
    if (i == KV_NONE || !kv_page_is_free(&c->pages[i])) return;
    list_remove(c, i);
    c->pages[i].owner = c->blocks[b].page = KV_NONE;
    kv_count(&c->page_evictions, 1);
    list_add(c, i);
}

void kv_windows_forget(kv *c, uint64_t done) {
    for (uint32_t i = 0; kv_has_windows(c) && i < c->config.n_window_blocks; i++)
        if (c->pages[i].owner != KV_NONE && c->pages[i].step > done)
            kv_window_uncached(c, c->pages[i].owner);
}

/* ---- sequences ---- */

void kv_window_begin(kv *c, kv_seq *s, uint32_t n_begun) {
    if (!kv_has_windows(c)) return;
    s->n_begun = n_begun;
    s->first_page = kv_window_first(c, s->n_valid);
    s->end_page = s->n_blocks;
    for (uint32_t i = s->first_page; i < s->end_page; i++) {
        uint32_t p = c->blocks[s->table[i]].page;
        page_ref(c, p);
        c->pages[p].keep = true;
        s->pages[i] = (int32_t)p;
    }
}

void kv_window_reserve(kv *c, kv_seq *s, uint32_t n_tokens) {
    if (!kv_has_windows(c)) return;
    for (; (uint64_t)s->end_page * c->config.block_tokens < n_tokens; s->end_page++)
        s->pages[s->end_page] = (int32_t)page_take(c, (uint32_t)s->table[s->end_page]);
}

void kv_window_release(kv *c, kv_seq *s, uint32_t i) {
    page_unref(c, (uint32_t)s->pages[i]);
}

void kv_window_trim(kv *c, kv_seq *s, uint32_t n_computed) {
    const uint64_t block_tokens = c->config.block_tokens;
    if (!kv_has_windows(c)) return;
    while (s->end_page && (s->end_page - 1) * block_tokens >= n_computed)
        page_unref(c, (uint32_t)s->pages[--s->end_page]);
}

void kv_window_pass(kv *c, kv_seq *s) {
    if (!kv_has_windows(c)) return;
    const uint64_t likely = 2 * (uint64_t)c->config.window; /* before the prompt's end */
    for (uint32_t first = kv_window_first(c, s->n_valid); s->first_page < first; s->first_page++) {
        uint32_t i = (uint32_t)s->pages[s->first_page];
        uint64_t end = ((uint64_t)s->first_page + 1) * c->config.block_tokens;
        if (end + likely > s->n_begun) c->pages[i].keep = true;
        page_unref(c, i);
    }
}

void kv_window_end(kv *c, kv_seq *s) {
    if (!kv_has_windows(c)) return;
    for (uint32_t i = s->end_page; i-- > s->first_page;) {
        c->pages[s->pages[i]].keep = true;
        page_unref(c, (uint32_t)s->pages[i]);
    }
    s->first_page = s->end_page = 0;
}

void kv_window_copy_later(kv *c, kv_seq *s, uint32_t i, uint32_t b) {
    if (!kv_has_windows(c)) return;
    uint32_t old = (uint32_t)s->pages[i], at = c->n_copies - 1, from = old;
    uint32_t pending = c->blocks[s->table[i]].copy; /* as in kv_block_copy_later */
    if (pending != KV_NONE) from = (uint32_t)c->page_copies[2 * pending];
    c->pages[from].pins++;
    uint32_t to = page_take(c, b);
    c->page_copies[2 * at] = (int32_t)from;
    c->page_copies[2 * at + 1] = (int32_t)to;
    page_unref(c, old);
    s->pages[i] = (int32_t)to;
}

void kv_window_unpin(kv *c, uint32_t copy) {
    if (!kv_has_windows(c)) return;
    uint32_t i = (uint32_t)c->page_copies[2 * copy];
    assert(c->pages[i].pins > 0);
    c->pages[i].pins--;
    page_idle(c, i);
}

void kv_window_replace(kv *c, kv_seq *s, uint32_t i, uint32_t twin) {
    if (!kv_has_windows(c) || i < s->first_page) return; /* imported without */
    uint32_t own = (uint32_t)s->pages[i], other = c->blocks[twin].page;
    if (other == KV_NONE) {
        c->blocks[c->pages[own].owner].page = KV_NONE;
        c->blocks[twin].page = own;
        c->pages[own].owner = twin;
        c->pages[own].step = c->n_steps;
        return;
    }
    page_ref(c, other);
    page_unref(c, own);
    s->pages[i] = (int32_t)other;
}

/* ---- what a step reads ---- */

int32_t kv_window_slot(const kv *c, const kv_seq *s, uint32_t pos) {
    uint32_t block_tokens = c->config.block_tokens;
    return s->pages[pos / block_tokens] * (int32_t)block_tokens + (int32_t)(pos % block_tokens);
}

void kv_window_table(const kv_seq *s, int32_t *table) {
    for (uint32_t i = 0; i < s->first_page; i++)
        table[i] = s->pages[s->first_page];
    for (uint32_t i = s->first_page; i < s->n_blocks; i++)
        table[i] = i < s->end_page ? s->pages[i] : 0;
}
